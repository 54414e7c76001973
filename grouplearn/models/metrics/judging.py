"""``m_confusion``, ``m_roc``, ``m_pr``, ``m_lift``, ``m_calibration``: predictions beside labels, as SQL over labelled rows.

Each has the keys of the group whose model predicts, and ``model_level``, before its own columns. Rows without a label or a
prediction are left out; weights do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from grouplearn.models.metrics.metric import TARGET
from grouplearn.models.outputs.output import PLACE, Endpoint, StoredModel
from grouplearn.sqltext import identifier, literal

_GROUPED = "__grouplearn_group, model_level"
_JUDGED, _CURVE = "__grouplearn_judged", "__grouplearn_curve"
#: Points of a curve by default, and parts of the rows.
_POINTS, _PARTS = 200, 10


def _answer(model: StoredModel, ctes: Sequence[str], columns: str, order: str) -> str:
    """Return the query of columns of the last of ``ctes`` behind the keys of each group; ``order`` is within a group."""
    keys = "".join(f"{sql} AS {identifier(name)}, " for name, sql in model.definition.key_columns("g.keys"))
    last = ctes[-1].split(" AS ", 1)[0]
    groups = f"SELECT group_id, level, keys FROM {model.table('groups')}"
    return (
        f"WITH {', '.join(ctes)} SELECT {keys}t.* EXCLUDE (__grouplearn_group)"
        f" FROM (SELECT {_GROUPED}, {columns} FROM {last}) AS t JOIN ({groups}) AS g ON g.group_id = t.__grouplearn_group"
        f" ORDER BY g.level ASC, g.group_id ASC, {order}"
    )


def _judged(predicted: str, known: str) -> str:
    """Return the CTE of rows whose label and prediction are known."""
    return f"{_JUDGED} AS (SELECT * FROM ({predicted}) WHERE {known})"


def _of_two(model: StoredModel, predicted: str) -> str:
    """Return the CTE of rows of either class, with ``probability``, and ``positive``: 1 for a row of the second class, 0 for one
    of the first."""
    names = [literal(name) for name in model.definition.classes or ("",)]  # without classes no group has a model
    known = f"probability IS NOT NULL AND {TARGET} IN ({', '.join(names)})"
    return _judged(f"SELECT *, CAST({TARGET} = {names[-1]} AS INTEGER) AS positive FROM ({predicted})", known)


def _confusion(model: StoredModel, predicted: str) -> str:
    """Return how many rows of each class are predicted as which, and their share of the rows of the class."""
    definition = model.definition
    actual = f"TRY_CAST({TARGET} AS {definition.label_type})"
    rows = (
        f"SELECT {_GROUPED}, {actual} AS actual, {above(model)} AS predicted FROM ({predicted})"
        " WHERE prediction IS NOT NULL"
    )
    counted = (
        f"{_CURVE} AS (SELECT *, n_rows / sum(n_rows) OVER (PARTITION BY {_GROUPED}, actual) AS share FROM"
        f" (SELECT {_GROUPED}, actual, predicted, count(*) AS n_rows FROM {_JUDGED} GROUP BY ALL))"
    )
    judged = _judged(rows, "actual IS NOT NULL")
    return _answer(model, [judged, counted], "actual, predicted, n_rows, share", "t.actual ASC, t.predicted ASC")


def above(model: StoredModel) -> str:
    """Return the SQL of the predicted class, of two that by the parameter ``threshold``."""
    definition = model.definition
    if len(definition.classes) != 2:
        return "prediction"
    first, second = (f"CAST({literal(name)} AS {definition.label_type})" for name in definition.classes)
    given = definition.free_parameter("threshold")
    number = f"TRY_CAST({given} AS DOUBLE)"
    error = f"error('threshold is a probability from 0 to 1, got ' || CAST({given} AS VARCHAR))"
    checked = f"CASE WHEN {number} BETWEEN 0 AND 1 THEN {number} ELSE CAST({error} AS DOUBLE) END"
    return f"CASE WHEN {given} IS NULL THEN prediction WHEN probability > {checked} THEN {second} ELSE {first} END"


def _curve(model: StoredModel, predicted: str, points: str) -> list[str]:
    """Return the CTEs of rows at or above each threshold: ``tp`` and ``fp`` of ``p`` and ``n``, with at most ``points``."""
    each = (
        f"SELECT {_GROUPED}, probability AS threshold, sum(positive) AS tp, count(*) - sum(positive) AS fp"
        f" FROM {_JUDGED} GROUP BY ALL"
    )
    window = f"PARTITION BY {_GROUPED} ORDER BY threshold DESC"
    summed = (
        f"SELECT {_GROUPED}, threshold, sum(tp) OVER w AS tp, sum(fp) OVER w AS fp,"
        f" sum(tp) OVER (PARTITION BY {_GROUPED}) AS p, sum(fp) OVER (PARTITION BY {_GROUPED}) AS n FROM ({each})"
        f" WINDOW w AS ({window})"
    )
    part = f"floor((tp + fp - 1) * {points} / (p + n))"
    kept = f"SELECT * FROM ({summed}) QUALIFY {points} IS NULL OR {part} IS DISTINCT FROM lead({part}) OVER ({window})"
    return [_of_two(model, predicted), f"{_CURVE} AS ({kept})"]


def whole_parameter(model: StoredModel, name: str, *, nullable: bool = False) -> str:
    """Return the SQL of a parameter that is a whole number of at least 1."""
    given = model.definition.free_parameter(name)
    number = f"TRY_CAST({given} AS BIGINT)"
    error = f"CAST(error('{name} is a whole number of at least 1{', or NULL for all' if nullable else ''}') AS BIGINT)"
    null = f"WHEN {given} IS NULL THEN NULL " if nullable else ""
    return f"(CASE {null}WHEN {number} >= 1 THEN {number} ELSE {error} END)"


def _roc(model: StoredModel, predicted: str) -> str:
    """Return the rates of true and false positives at thresholds from high to low."""
    columns = "threshold, fp / nullif(n, 0) AS false_positive_rate, tp / nullif(p, 0) AS true_positive_rate"
    return _answer(
        model, _curve(model, predicted, whole_parameter(model, "points", nullable=True)), columns, "t.threshold DESC"
    )


def _precision_recall(model: StoredModel, predicted: str) -> str:
    """Return recall and precision at thresholds from high to low."""
    columns = "threshold, tp / nullif(p, 0) AS recall, tp / (tp + fp) AS precision"
    return _answer(
        model, _curve(model, predicted, whole_parameter(model, "points", nullable=True)), columns, "t.threshold DESC"
    )


def _lift(model: StoredModel, predicted: str) -> str:
    """Return the rows in equal parts, the most probable first: how many are positive, and how many more than on average."""
    parts = _parts(model, "probability", "DESC", "positive")
    each = (
        f"SELECT {_GROUPED}, part, count(*) AS n_rows, min(probability) AS least_probability, sum(observed) AS n_positive"
        f" FROM ({parts}) GROUP BY ALL"
    )
    total = f"sum(n_positive) OVER (PARTITION BY {_GROUPED})"
    summed = (
        f"SELECT *, n_positive / n_rows AS rate,"
        f" n_positive / n_rows * sum(n_rows) OVER (PARTITION BY {_GROUPED}) / nullif({total}, 0) AS lift,"
        f" sum(n_positive) OVER (PARTITION BY {_GROUPED} ORDER BY part ASC) / nullif({total}, 0) AS captured FROM ({each})"
    )
    columns = "part, n_rows, least_probability, n_positive, rate, lift, captured"
    return _answer(model, [_of_two(model, predicted), f"{_CURVE} AS ({summed})"], columns, "t.part ASC")


def _parts(model: StoredModel, predicted: str, direction: str, label: str) -> str:
    """Return the query of rows with their ``part``, and their label as ``observed``.

    Rows with one prediction may lie in several parts, so that each has the mean of their labels: their order says nothing.
    """
    order = f"PARTITION BY {_GROUPED} ORDER BY {predicted} {direction}, {PLACE} ASC"
    equal = f"avg({label}) OVER (PARTITION BY {_GROUPED}, {predicted}) AS observed"
    return f"SELECT *, ntile({whole_parameter(model, 'parts')}) OVER ({order}) AS part, {equal} FROM {_JUDGED}"


def _calibration(model: StoredModel, predicted: str, *, judged: Any, predicted_value: str, observed: str) -> str:
    """Return the rows in equal parts, the lowest predictions first: mean of the predictions and of the labels."""
    each = (
        f"{_CURVE} AS (SELECT {_GROUPED}, part, count(*) AS n_rows, avg({predicted_value}) AS predicted,"
        f" avg(observed) AS observed FROM ({_parts(model, predicted_value, 'ASC', observed)}) GROUP BY ALL)"
    )
    return _answer(model, [judged(model, predicted), each], "part, n_rows, predicted, observed", "t.part ASC")


def _of_numbers(_: StoredModel, predicted: str) -> str:
    return _judged(predicted, f"isfinite(prediction) AND isfinite({TARGET})")


def _of_rows(suffix: str, parameter: tuple[str, int | str], comment: str, select: Any) -> Endpoint:
    name, default = parameter
    return Endpoint(suffix, (("src", None), (name, str(default))), f"{comment}.", select=select, judges=True)


_COUNTED = "How many rows of each class are predicted as which"
#: The macros of classes.
OF_CLASSES = (Endpoint("_confusion", (("src", None),), f"{_COUNTED}.", select=_confusion, judges=True),)
#: The macros of two classes.
OF_TWO_CLASSES = (
    _of_rows("_confusion", ("threshold", "NULL"), _COUNTED, _confusion),
    _of_rows("_roc", ("points", _POINTS), "The rates of true and false positives at each threshold", _roc),
    _of_rows("_pr", ("points", _POINTS), "Recall and precision at each threshold", _precision_recall),
    _of_rows("_lift", ("parts", _PARTS), "How many positive rows the most probable parts of a table have", _lift),
    _of_rows(
        "_calibration",
        ("parts", _PARTS),
        "Mean probability and share of positive rows",
        partial(_calibration, judged=_of_two, predicted_value="probability", observed="positive"),
    ),
)
#: The macro of numbers.
CALIBRATION = _of_rows(
    "_calibration",
    ("parts", _PARTS),
    "Mean prediction and mean label",
    partial(_calibration, judged=_of_numbers, predicted_value="prediction", observed=TARGET),
)
