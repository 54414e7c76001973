"""What the catalog stores about a model: its definition and the outcome of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grouplearn.catalog.schema import Location
from grouplearn.learners.contract.config import Config
from grouplearn.models.definition import HyperparameterColumn, ItemColumn, KeyColumn, ModelDefinition, Watermark
from grouplearn.models.forms.form import SqlForm
from grouplearn.train.job import UnitResult
from grouplearn.train.results.outcome import Outcome

__all__ = [
    "HyperparameterColumn",
    "ItemColumn",
    "KeyColumn",
    "ModelDefinition",
    "Outcome",
    "RunOutcome",
    "StoredModel",
    "Watermark",
]


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

    ``configs`` are those that a search tried, None if the statement lists all. ``watermark`` is the latest time of the rows.
    ``profiles`` are the rows of that table, which describe the features of each group, None if they are not kept, and
    ``held_out`` those of the predictions of held-out rows.
    """

    found: Outcome
    units: tuple[UnitResult, ...]
    operator: str
    executor: str
    workers: int
    seconds: float
    configs: tuple[Config, ...] | None = None
    watermark: Watermark | None = None
    profiles: Any = None
    held_out: Any = None
