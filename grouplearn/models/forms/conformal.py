"""``m_predict(src, level := 0.9)``: conformal prediction from the held-out rows of the group whose model predicts.

A number ŷ has the interval ŷ ± q, where q is the ⌈(n + 1)·level⌉-th least of the n absolute errors |y - ŷ| of held-out rows
(Lei et al., Distribution-Free Predictive Inference for Regression, 2018). The error of a class is 1 - p(label), and the set has
the classes with p ≥ 1 - q (Sadinle, Lei, Wasserman, Least Ambiguous Set-Valued Classifiers, 2019). Errors of all folds count
together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from grouplearn.learners import registry
from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.routed import GROUP
from grouplearn.models.metrics.judging import above
from grouplearn.models.outputs.classes import Classes, TwoClasses
from grouplearn.models.outputs.horizon import checked_level
from grouplearn.models.outputs.number import Number
from grouplearn.models.outputs.output import PLACE, PREDICT, SOURCE, Endpoint, StoredModel

_WIDTH = "__grouplearn_width"


def level_of(definition: ModelDefinition) -> Endpoint | None:
    """Return the macro that predicts with a ``level``, beside the one without; None if nothing is kept of held-out rows."""
    output = definition.output
    if definition.held_out is None or definition.calibrate or not isinstance(output, Number | Classes):
        return None
    select: Callable[[StoredModel, str], str] = _interval_sql if isinstance(output, Number) else _set_sql
    return Endpoint(PREDICT.suffix, (*PREDICT.parameters, ("level", None)), PREDICT.comment, True, select)


def _interval_sql(model: StoredModel, predicted: str) -> str:
    """Return the rows with their predictions and the interval; of a learner of counts it does not begin below 0."""
    definition = cast(ModelDefinition, model.definition)
    lower = f"prediction - {_WIDTH}"
    if registry.links(definition.learner, definition.configs, definition.label) == {"exp"}:
        lower = f"greatest(0.0, {lower})"
    shown = f"prediction, {lower} AS lower, prediction + {_WIDTH} AS upper"
    return _answer(model, predicted, "abs(y - p1)", shown)


def _set_sql(model: StoredModel, predicted: str) -> str:
    """Return the rows with their predictions and the set of classes."""
    definition = cast(ModelDefinition, model.definition)
    output, count = cast(Classes, definition.output), len(definition.classes)
    of_two = isinstance(output, TwoClasses)
    shares = (
        ("1 - probability", "probability")
        if of_two
        else [f"map_values(probabilities)[{place}]" for place in range(1, count + 1)]
    )
    shown = f"{above(model)} AS prediction, probability" if of_two else "prediction, probabilities"
    kept = [
        f"CASE WHEN 1 - ({share}) <= {_WIDTH} THEN {value} END"
        for share, value in zip(shares, output.values(), strict=True)
    ]
    known = f"{_WIDTH} IS NOT NULL AND prediction IS NOT NULL"
    listed = f"list_filter([{', '.join(kept)}], lambda each: each IS NOT NULL)"
    label = f"([{', '.join(f'p{place}' for place in range(1, count + 1))}])[CAST(y AS BIGINT) + 1]"
    return _answer(model, predicted, f"1 - {label}", f"{shown}, CASE WHEN {known} THEN {listed} END AS prediction_set")


def _answer(model: StoredModel, predicted: str, error: str, shown: str) -> str:
    """Return the rows with columns ``shown``, over predictions and the quantile of the ``error`` of a held-out row.

    ``error`` is SQL over the label ``y`` and the outputs ``p1``, ``p2``, ...; the quantile is NULL in a group of too few rows.
    """
    definition = cast(ModelDefinition, model.definition)
    level = checked_level(definition.free_parameter("level"))
    outputs = ", ".join(
        f"unnest(outputs[{place}]) AS p{place}" for place in range(1, max(1, len(definition.classes)) + 1)
    )
    rows = f"SELECT group_id, unnest(labels) AS y, {outputs} FROM {model.table('held_out')}"
    errors = f"SELECT group_id, {error} AS error FROM ({rows})"
    # A level of 0.9 is a little more or less in binary, and 9 rows are enough for it.
    rank = f"CAST(ceil((count(*) + 1) * {level} - 1e-9) AS BIGINT)"
    widths = (
        f"SELECT group_id, list(error ORDER BY error ASC)[{rank}] AS {_WIDTH} FROM ({errors}) WHERE isfinite(error)"
    )
    # The columns of the source are unpacked last: one of them may be called lower.
    return (
        f"SELECT unnest({SOURCE}), {shown}, model_level FROM ({predicted}) AS r"
        f" LEFT JOIN ({widths} GROUP BY group_id) AS w ON w.group_id = r.{GROUP} ORDER BY {PLACE} ASC"
    )
