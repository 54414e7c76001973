"""How a TRAIN runs, apart from hyperparameters: one class per subject, and the options that operators declare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from grouplearn.bind.run.class_options import ClassWeights, Named
from grouplearn.bind.run.resources import DEFAULT_TIMEOUT
from grouplearn.data.frequency import Frequency
from grouplearn.parser.statements import Sql
from grouplearn.schedule.operators import OPTIONS
from grouplearn.schedule.options import REPLAY

#: Bytes of states that are kept without a word, and of any.
_USUAL_STATE, _LARGEST_STATE = 1 << 16, 1 << 62
#: Rows of a group on average from which features are described unless the statement says otherwise: of fewer rows it takes
#: more than a fifth of the time of least squares by one configuration, the shortest training.
LEAST_PROFILED = 500


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """How long trials train, the seed, whether states are kept, the model whose states groups begin with, and how
    probabilities are calibrated; ``within`` is in seconds."""

    epochs: int | None = None
    seed: int = 0
    early_stopping: int | None = None
    within: float | None = None
    keep_state: bool | None = None
    initialize_from: str | None = None
    calibrate: str | None = None

    @property
    def state_bytes(self) -> int | None:
        """The most bytes of a state that is kept although it is larger than its model; None if none is kept."""
        return {None: _USUAL_STATE, True: _LARGEST_STATE, False: None}[self.keep_state]


@dataclass(frozen=True, slots=True)
class RowOptions:
    """Which rows count, what their labels stand for, and how many a group needs; the ``frequency`` may be that of a model."""

    min_rows: int = 2
    task: Literal["classification", "regression"] | None = None
    class_weight: Literal["balanced"] | ClassWeights | None = None
    positive_class: Named | None = None
    weight: Sql | None = None
    frequency: Sql | Frequency | None = None
    watermark: Sql | None = None
    key: Sql | None = None


@dataclass(frozen=True, slots=True)
class PlacementOptions:
    """Where models train, and how work is divided; ``enclosed`` is the reason if only this process may be used."""

    executor: str = "auto"
    workers: int | None = None
    operator: str = "auto"
    memory_limit: int | None = None
    node_price: float | None = None
    durable: bool | None = None
    address: str | None = None
    worker_timeout: float = DEFAULT_TIMEOUT
    enclosed: str | None = None


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of search procedures."""

    trials: int | None = None
    reduction_factor: int = 3
    min_epochs: int = 1
    parallel_trials: int = 9
    interval: int | None = None
    search_scope: str = "group"


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """What stays in the database: how many versions of the model, the new one included, whether features are described,
    None: their quantiles by ``LEAST_PROFILED``, and whether predictions of held-out rows are kept."""

    keep_versions: int = 3
    profile: bool | None = None
    keep_held_out: bool = False

    @property
    def profiles(self) -> bool:
        """Whether features are described."""
        return self.profile is not False

    def quantiles(self, n_rows: int, n_groups: int) -> bool:
        """Return whether the features of so many groups with so many rows are described with their quantiles."""
        return n_rows >= LEAST_PROFILED * n_groups if self.profile is None else self.profile


@dataclass(frozen=True, slots=True)
class EstimationOptions:
    """Which standard errors weights have, classical ones unless given, by which ``cluster``, the confidence of their intervals,
    and the known part of scores."""

    offset: Sql | None = None
    cluster: Sql | None = None
    standard_errors: str | None = None
    confidence: float = 0.95

    @property
    def asks(self) -> bool:
        """Whether standard errors are asked for by name."""
        return self.standard_errors not in (None, "none")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """All run options; ``of_operators`` are those that operators declare, by name, as given or at their defaults."""

    training: TrainingOptions = TrainingOptions()
    rows: RowOptions = field(default_factory=RowOptions)
    placement: PlacementOptions = PlacementOptions()
    search: SearchOptions = SearchOptions()
    storage: StorageOptions = StorageOptions()
    estimation: EstimationOptions = EstimationOptions()
    of_operators: Mapping[str, Any] = field(
        default_factory=lambda: {name: each.default for name, each in OPTIONS.items()}
    )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RunOptions:
        """Return the options ``given`` by name, with defaults for the others; unknown names are ignored."""
        return cls().changed(given)

    def changed(self, given: Mapping[str, Any]) -> RunOptions:
        """Return these options with those ``given`` by name replaced."""
        parts = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "of_operators"}
        of_operators = {name: given.get(name, value) for name, value in self.of_operators.items()}
        changed = {name: replace(part, **_own(part, given)) for name, part in parts.items()}
        return replace(self, **changed, of_operators=of_operators)

    @property
    def repeated(self) -> str | None:
        """The model whose run is repeated."""
        name: str | None = self.of_operators[REPLAY.name]
        return name


def _own(part: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: given[each.name] for each in fields(part) if each.name in given}
