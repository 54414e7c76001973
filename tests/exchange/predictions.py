"""Predictions to compare: of the function predict, and of a model's macro, as id -> numbers."""

import math
from typing import Any

from helpers.plain_sql import in_plain_sql

SHOWN = {"value": "prediction", "binary": "probability", "multiclass": "probabilities"}
FUNCTION = {"value": "p.value", "binary": "p.probability", "multiclass": "p.probabilities"}

Predictions = dict[int, tuple[Any, ...]]


def by_function(con: Any, name: str, source: str = "fresh") -> Predictions:
    task = name.rpartition("_")[2]
    predicted = f"SELECT id, predict('{name}', s) AS p FROM {source} AS s"
    sql = f"SELECT id, {FUNCTION[task]}, p.prediction, p.model_level FROM ({predicted})"
    return {row[0]: numbers(row) for row in con.execute(sql).fetchall()}


def by_plain_macro(con: Any, name: str, source: str = "fresh") -> Predictions:
    """What the macro predicts where nothing of ours is installed."""
    with in_plain_sql(con):
        return by_macro(con, name, source)


def by_macro(con: Any, name: str, source: str = "fresh") -> Predictions:
    task = name.rpartition("_")[2]
    sql = f"SELECT id, {SHOWN[task]}, prediction::VARCHAR, model_level FROM {name}_predict({source})"
    return {row[0]: numbers(row) for row in con.execute(sql).fetchall()}


def numbers(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The numbers of a prediction, its class (a value is its own), and its level."""
    _, value, text, level = row
    if isinstance(value, dict):
        return (*(value[name] for name in sorted(value)), text, level)
    return (value, level)


def assert_same(left: Predictions, right: Predictions, tolerance: float) -> None:
    assert left.keys() == right.keys()
    for key, values in left.items():
        for one, other in zip(values, right[key], strict=True):
            if isinstance(one, float) and isinstance(other, float):
                assert math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance), (key, values, right[key])
            else:
                assert one == other, (key, values, right[key])
