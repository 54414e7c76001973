"""How a TRAIN runs, apart from hyperparameters: one class per subject, and one per operator that has options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from grouplearn.bind.run.averaging import AverageOptions
from grouplearn.bind.run.hopping import HopOptions
from grouplearn.bind.run.resources import DEFAULT_TIMEOUT
from grouplearn.parser.statements import Sql


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """How long trials train, and the seed; ``within`` is in seconds."""

    epochs: int | None = None
    seed: int = 0
    early_stopping: int | None = None
    within: float | None = None


@dataclass(frozen=True, slots=True)
class RowOptions:
    """Which rows count, what their labels stand for, and how many a group needs."""

    min_rows: int = 2
    task: Literal["classification", "regression"] | None = None
    class_weight: Any = None
    positive_class: str | None = None
    weight: Sql | None = None


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
class RunOptions:
    """All run options; ``hopping`` is for operator mop, ``averaging`` for averaging and parameter_server."""

    training: TrainingOptions = TrainingOptions()
    rows: RowOptions = field(default_factory=RowOptions)
    placement: PlacementOptions = PlacementOptions()
    search: SearchOptions = SearchOptions()
    hopping: HopOptions = field(default_factory=HopOptions)
    averaging: AverageOptions = field(default_factory=AverageOptions)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RunOptions:
        """Return the options ``given`` by name, with defaults for the others; unknown names are ignored."""
        return cls().changed(given)

    def changed(self, given: Mapping[str, Any]) -> RunOptions:
        """Return these options with those ``given`` by name replaced."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        return replace(self, **{name: replace(part, **_own(part, given)) for name, part in parts.items()})


def _own(part: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: given[each.name] for each in fields(part) if each.name in given}
