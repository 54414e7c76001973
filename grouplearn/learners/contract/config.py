"""Hyperparameters as a learner declares them, and the values of one configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Value = float | int | bool | str | tuple[int, ...] | None
Config = Mapping[str, Value]
Kind = Literal["float", "int", "bool", "str", "ints", "ints_by_feature", "floats_by_feature", "feature_sets"]


@dataclass(frozen=True, slots=True)
class Hyperparameter:
    """A typed hyperparameter, its default, its allowed range or choices, and where it comes from.

    ``kind`` is the Python type of a value; ``ints`` is a list of integers, such as layer widths. ``ints_by_feature`` and
    ``floats_by_feature`` are numbers by the name of a FEATURES item, ``feature_sets`` lists of such names: their values are
    JSON text. Bounds are inclusive unless ``open_low``. ``refused`` are values that have a reason not to be among ``choices``.
    """

    name: str
    kind: Kind
    default: Value
    doc: str
    source: str
    low: float | None = None
    high: float | None = None
    open_low: bool = False
    choices: tuple[str, ...] = ()
    nullable: bool = False
    refused: tuple[tuple[str, str], ...] = ()


#: The hyperparameter by which configurations say how they are trained, where that is not the learner's usual way.
SOLVER = "solver"


def solver_named(name: str, source: str) -> Hyperparameter:
    """Return the hyperparameter of a way of a learner that is not its usual one: every configuration says which it is."""
    return Hyperparameter(SOLVER, "str", name, "the way of training that the statement chose", source, choices=(name,))


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why values of a config contradict each other, or the label; and the hyperparameters that do, the one to blame first."""

    message: str
    parameters: tuple[str, ...]
