"""The last SELECT: what an output predicts for rows with scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from grouplearn.models.dialects.databases import NotInDialect
from grouplearn.models.dialects.encoded_rows import THRESHOLD, links_of
from grouplearn.models.dialects.exported import ExportedModel
from grouplearn.models.dialects.plain_tables import constant, plain_type
from grouplearn.models.dialects.scored import SCORED, linked, logistic, score, selected
from grouplearn.models.dialects.scores.layers import layer_scores
from grouplearn.models.dialects.scores.linear import linear_scores
from grouplearn.models.dialects.scores.trees import tree_scores
from grouplearn.models.dialects.scores.vectors import cluster_answer, projection_answer, vector_scores
from grouplearn.models.forms.forms import form_of
from grouplearn.models.outputs.classes import SeveralClasses, TwoClasses
from grouplearn.models.outputs.clusters import Clusters
from grouplearn.models.outputs.number import Number
from grouplearn.models.outputs.projection import Projection
from grouplearn.sqltext import identifier

#: A class that names its column.
_NAMES_COLUMN = re.compile("[A-Za-z0-9_]{1,40}")
_P, _HIGHEST, _TOTAL, _MOST = (f"__grouplearn_{name}" for name in ("p", "highest", "total", "most"))


def predicting_select(model: ExportedModel) -> str:
    """Add the model's tables, and the steps from the source to predictions, and return the last SELECT.

    Raises NotInDialect if the model has no SQL, or none but DuckDB's.
    """
    definition = model.definition
    form = form_of(definition)
    scores, answer = _SCORES.get(form.name), _ANSWERS.get(type(definition.output))
    if scores is None or answer is None:
        raise NotInDialect(f"{definition.shown_learner} has no form in the SQL of other databases")
    if reason := form.without_sql(definition):
        raise NotInDialect(f'model "{definition.name}" ({definition.shown_learner}) has no sql form: {reason}')
    scores(model)
    return answer(model)


def _number(model: ExportedModel) -> str:
    return selected(model, [f"{linked(model, identifier(score(0)))} AS prediction"], SCORED)


def _class_value(model: ExportedModel, number: int | None) -> str:
    """Return a class as a constant of the label's type."""
    definition = model.definition
    kind = plain_type(definition.label_type or "", "the label", model.database)
    if number is None:
        return f"CAST(NULL AS {kind})"
    return model.query.own(constant(definition.classes[number], kind, model.database))


def _two_classes(model: ExportedModel) -> str:
    definition, query = model.definition, model.query
    if not definition.output.has_threshold:
        columns = [f"{_class_value(model, None)} AS prediction", "CAST(NULL AS DOUBLE) AS probability"]
        return selected(model, columns, SCORED)
    p = query.added(_P, logistic(identifier(score(0))))
    query.step("probabilities", f"SELECT r.*, {p} FROM {SCORED} AS r")
    threshold = f"COALESCE({identifier(THRESHOLD)}, 0.5)" if definition.threshold_metric else "0.5"
    negative, positive = _class_value(model, 0), _class_value(model, 1)
    prediction = f"CASE WHEN {_P} > {threshold} THEN {positive} WHEN {_P} <= {threshold} THEN {negative} END"
    return selected(model, [f"{prediction} AS prediction", f"{_P} AS probability"], "probabilities")


def _several_classes(model: ExportedModel) -> str:
    query, links = model.query, links_of(model)
    numbers = range(model.definition.output.n_scores)
    scores = [identifier(score(number)) for number in numbers]
    lowest = "-1.7976931348623157e308"
    highest = f"GREATEST({', '.join(f'COALESCE({each}, {lowest})' for each in scores)})"
    known = " OR ".join(f"{each} IS NOT NULL" for each in scores)
    query.step(
        "shifted", f"SELECT r.*, {query.added(_HIGHEST, f'CASE WHEN {known} THEN {highest} END')} FROM {SCORED} AS r"
    )
    if links == {"softmax"}:
        # 0 where e to it is nearly subnormal, as in training: else rows that tie there would have an order.
        power = "CASE WHEN {0} - " + _HIGHEST + " < -707.7 THEN 0 ELSE EXP({0} - " + _HIGHEST + ") END"
        powers = [power.format(each) for each in scores]
    else:
        powers = [logistic(each) for each in scores]
    names = [f"__grouplearn_power{number}" for number in numbers]
    columns = [query.added(name, f"COALESCE({power}, 0)") for name, power in zip(names, powers, strict=True)]
    query.step("powers", f"SELECT r.*, {', '.join(columns)} FROM shifted AS r")
    total, most = query.added(_TOTAL, " + ".join(names)), query.added(_MOST, f"GREATEST({', '.join(names)})")
    query.step("totals", f"SELECT r.*, {total}, {most} FROM powers AS r")
    cases = " ".join(f"WHEN {name} = {_MOST} THEN {_class_value(model, number)}" for number, name in enumerate(names))
    shares = [
        f"CASE WHEN {_HIGHEST} IS NOT NULL THEN {name} / {_TOTAL} END AS {identifier(column)}"
        for name, column in zip(names, _probability_columns(model.definition.classes), strict=True)
    ]
    return selected(
        model, [f"CASE WHEN {_HIGHEST} IS NOT NULL THEN CASE {cases} END END AS prediction", *shares], "totals"
    )


def _probability_columns(classes: Sequence[str]) -> list[str]:
    """Return the columns of classes' probabilities: named after them, or after their numbers if a name is none."""
    named = all(map(_NAMES_COLUMN.fullmatch, classes)) and len({name.lower() for name in classes}) == len(classes)
    return [f"probability_{name if named else number}" for number, name in enumerate(classes, start=1)]


_ANSWERS: Mapping[type, Callable[[ExportedModel], str]] = {
    Number: _number,
    TwoClasses: _two_classes,
    SeveralClasses: _several_classes,
    Clusters: cluster_answer,
    Projection: projection_answer,
}
#: The steps to scores, by the name of a form.
_SCORES: Mapping[str, Callable[[ExportedModel], None]] = {
    "linear": linear_scores,
    "trees": tree_scores,
    "layers": layer_scores,
    "vectors": vector_scores,
}
