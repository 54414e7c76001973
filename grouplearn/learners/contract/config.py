"""Declared hyperparameters, and the values of one configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Value = float | int | bool | str | tuple[int, ...] | None
Config = Mapping[str, Value]
Kind = Literal["float", "int", "bool", "str", "ints", "ints_by_feature", "floats_by_feature", "feature_sets"]


@dataclass(frozen=True, slots=True)
class Hyperparameter:
    """A typed hyperparameter: its default, its range or choices, and its source.

    ``kind`` is the Python type of a value; ``ints`` is a list of integers, such as layer widths. ``ints_by_feature`` and
    ``floats_by_feature`` map names of FEATURES items to numbers, ``feature_sets`` are lists of such names: their values are
    JSON text. Bounds are inclusive unless ``open_low``. ``refused`` are values not among ``choices``, with the reason.
    ``remedy`` is what to do with it where a model is worse than a constant: ``lower`` or ``raise`` it, or leave it at its
    ``default``. ``only_with`` names another hyperparameter and the values of it with which this one counts; none: any that
    is not its default. ``late``: it is applied to the finished sums of a learner of one pass, see ``Declaration.one_pass``.
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
    remedy: Literal["lower", "raise", "default"] | None = None
    only_with: tuple[str, tuple[Value, ...]] | None = None
    late: bool = False


#: The hyperparameter that selects a way other than the learner's first.
SOLVER = "solver"


def solver_named(name: str, source: str) -> Hyperparameter:
    """Return the hyperparameter of a further way of a learner, with which every configuration names its way."""
    return Hyperparameter(SOLVER, "str", name, "the way of training that the statement chose", source, choices=(name,))


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why values of a config contradict each other or the label, and the hyperparameters concerned, the main one first."""

    message: str
    parameters: tuple[str, ...]
