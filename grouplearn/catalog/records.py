"""What the catalog stores about a model: its definition and the outcome of the run."""

from __future__ import annotations

from dataclasses import dataclass

from grouplearn.catalog.schema import Location
from grouplearn.learners.contract.config import Config
from grouplearn.models.definition import HyperparameterColumn, ItemColumn, KeyColumn, ModelDefinition
from grouplearn.models.forms.form import SqlForm
from grouplearn.train.job import UnitResult
from grouplearn.train.results.outcome import Outcome

__all__ = ["HyperparameterColumn", "ItemColumn", "KeyColumn", "ModelDefinition", "Outcome", "RunOutcome", "StoredModel"]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A stored model: its identity (new with every training), place, definition, and how it predicts."""

    id: str
    location: Location
    definition: ModelDefinition
    form: SqlForm


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A finished run: what was found, the units as they ran, and how they were run.

    ``configs`` are those that a search tried, None if the statement lists all.
    """

    found: Outcome
    units: tuple[UnitResult, ...]
    operator: str
    executor: str
    workers: int
    seconds: float
    configs: tuple[Config, ...] | None = None
