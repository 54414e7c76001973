"""What the catalog stores about a model: the bound definition and the outcome of the run."""

from __future__ import annotations

from dataclasses import dataclass

from grouplearn.plan.definition import HyperparameterColumn, ItemColumn, KeyColumn, ModelDefinition
from grouplearn.runtime.job import UnitResult
from grouplearn.runtime.outcome import GroupOutcome

__all__ = ["GroupOutcome", "HyperparameterColumn", "ItemColumn", "KeyColumn", "ModelDefinition", "RunOutcome"]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A finished run: outcomes by group, the units as they really ran, and how they were run."""

    groups: tuple[GroupOutcome, ...]
    units: tuple[UnitResult, ...]
    operator: str
    executor: str
    workers: int
    seconds: float
