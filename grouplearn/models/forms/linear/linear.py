"""Prediction by linear models as one SELECT: numbers as a sum or dot product, categories by joins with their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grouplearn.data.encoding.encoder import OnnxGraph
from grouplearn.data.encoding.registry import widths_of
from grouplearn.kernels.scoring import LinearModels, Link
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import JoinsClasses
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.explained import long_rows
from grouplearn.models.forms.form import Best, FormWithSql, GroupModel, Layout, Prediction, SqlForm, StoredRows, affine
from grouplearn.models.forms.items import (
    encoded_cte,
    encoders_sql,
    inputs_sql,
    is_number,
    listed,
    numbers,
    picked_sql,
    value_sql,
)
from grouplearn.models.forms.linear.contributions import explained_select, order
from grouplearn.models.forms.linear.weights import joins_sql, known_sql, linked_sql, place_sql, weights_sql
from grouplearn.models.forms.routed import (
    BEST,
    ENCODED,
    LEVEL,
    NUMBERED_ROW,
    PARAMETERS,
    SCORED,
    PredictedRows,
    best_cte,
    linked,
    reachable,
    routed_cte,
    rows_cte,
    score_sql,
    sortable_row,
)
from grouplearn.models.label import SEVERAL_CLASSES
from grouplearn.models.outputs import link as links
from grouplearn.models.state import Artifact, shape_flaw

#: The kernels' links of linear models: for two classes both probabilities are returned.
_LINKS: Mapping[links.Link, Link] = {
    "identity": Link.VALUE,
    "exp": Link.EXPONENTIAL,
    "logistic": Link.SIGMOID,
    "softmax": Link.SOFTMAX,
}


def _parameters(definition: ModelDefinition, outputs: range) -> str:
    columns = [
        "group_id AS __grouplearn_id",
        "best AS __grouplearn_config",
        f"{BEST}.level AS {LEVEL}",
        *encoders_sql(definition, finite=True),
    ]
    for output in outputs:
        place, known, weights = (
            place_sql(definition, output),
            known_sql(definition, output),
            weights_sql(definition, output),
        )
        columns.append(f"intercept[{place}] AS __grouplearn_b{output}")
        if _summed(definition, outputs):
            columns += [f"weights[starts[{number + 1}] + 1] AS {_weight(number)}" for number in numbers(definition)]
        elif numbers(definition):
            # For a class that the group does not have flatten would return a list without values. After CASE, DuckDB 2.0
            # assumes that the list's values may be NULL, which list_dot_product refuses; not so for a slice of it.
            picked = picked_sql(definition, numbers(definition), weights, "")
            columns.append(f"(CASE WHEN {known} THEN {picked} END)[:] AS __grouplearn_w{output}")
    return f"{PARAMETERS} AS (SELECT {', '.join(columns)} FROM {BEST})"


def _summed(definition: ModelDefinition, outputs: range) -> bool:
    """Return whether numbers are multiplied one by one; with lists a second output needs no further column, and arrays are
    lists."""
    arrays = any(entry.item.kind == "array" for entry in definition.items)
    return len(outputs) == 1 and not arrays and not listed(definition)


def _weight(number: int) -> str:
    """Return the column of a single-number item's weight."""
    return f"__grouplearn_w0_{number}"


def _scored(definition: ModelDefinition, outputs: range) -> str:
    scores = [
        f"{linked_sql(definition, score_sql(_terms(definition, outputs, output), definition))} AS __grouplearn_s{output}"
        for output in outputs
    ]
    return (
        f"{SCORED} AS (SELECT r.*, {', '.join(scores)} FROM {ENCODED} AS r {' '.join(joins_sql(definition, outputs))})"
    )


def _terms(definition: ModelDefinition, outputs: range, output: int) -> list[str]:
    terms = [f"r.__grouplearn_b{output}"]
    if _summed(definition, outputs):
        terms += [f"{value_sql(definition, number)} * r.{_weight(number)}" for number in numbers(definition)]
    elif numbers(definition):
        inputs = inputs_sql(definition, numbers(definition), finite=True)
        terms.append(f"list_dot_product({inputs}, r.__grouplearn_w{output})")
    return terms + [
        f"coalesce(j{number}.w{output}, 0)" for number, entry in enumerate(definition.items) if not is_number(entry)
    ]


@dataclass(frozen=True, slots=True)
class LinearSql(SqlForm):
    """By the weights in ``artifacts``."""

    tables = ("groups", "artifacts")

    def select(self, rows: PredictedRows) -> str:
        """Return the SELECT that sums weighted features.

        Numeric items are ``(coalesce(x, fill) - center) / scale``; every other item is a hash join of (group, value) with its
        weights, so that rows carry no list of categories.
        """
        definition = rows.definition
        outputs = range(definition.output.n_scores)
        # Lists are unnested and aggregated again by row number.
        apart = any(entry.item.is_list for entry in definition.items)
        carried, kind = (NUMBERED_ROW, "MATERIALIZED ") if apart else (sortable_row(rows.extras), "")
        ctes = [
            rows_cte(definition, rows.relation, carried, rows.extras, listed(definition)),
            best_cte(rows),
            routed_cte(definition, BEST, reachable(rows), kind),
            _parameters(definition, outputs),
            encoded_cte(definition, finite=True),
            _scored(definition, outputs),
        ]
        return f"WITH {', '.join(ctes)} {linked(rows)}"

    def explained(self, rows: PredictedRows) -> str:
        """Return the query of what each item adds to the score of each row."""
        return long_rows(rows, explained_select(rows), order(rows.definition))


class Linear(FormWithSql):
    """``weights`` (k, d) and ``intercept`` (k,) of ``link(x @ weights.T + intercept)``."""

    name = "linear"
    has_one_weight_per_column = True
    explains_by_means = False
    mixes_links = True
    grows_with_columns = True

    def learner_error(self, learner: Learner) -> str | None:
        """Return that a learner of several classes does not join models of two to them."""
        if SEVERAL_CLASSES in learner.declaration.labels and not isinstance(learner, JoinsClasses):
            return "a linear learner of more than two classes has as_multiclass()"
        return None

    def misfit(self, learner: Learner, problem: Problem, artifact: Artifact) -> str | None:
        """Return that a model has other tensors."""
        del learner
        shapes = {"weights": (problem.n_outputs, problem.n_features), "intercept": (problem.n_outputs,)}
        return shape_flaw(artifact, shapes)

    def without_sql(self, definition: ModelDefinition) -> str:
        """Return the empty text: linear models have SQL for every item."""
        del definition
        return ""

    def rows(self, definition: ModelDefinition, best: Sequence[Best]) -> Prediction:
        """Return the SQL form alone: artifacts have the weights."""
        del definition, best
        return Prediction(LinearSql())

    def read(self, definition: ModelDefinition, rows: StoredRows) -> SqlForm:
        """Return the SQL form."""
        del definition, rows
        return LinearSql()

    def onnx_scores(self, graph: OnnxGraph, definition: ModelDefinition, group: GroupModel, x: str) -> str:
        """Add weighted sums."""
        del definition
        return affine(graph, x, group.artifact.tensors["weights"], group.artifact.tensors["intercept"])

    def compiled(
        self, definition: ModelDefinition, groups: Sequence[GroupModel], layout: Layout
    ) -> tuple[LinearModels, Link] | None:
        """Return the weights of all groups, and where each item's are; None if groups have different links."""
        if len({self.link(definition, group) for group in groups}) > 1:
            return None
        several, n_outputs = definition.label.scores_classes, definition.output.n_scores
        weights = np.zeros((len(groups), n_outputs, layout.n_numbers))
        intercepts = np.full((len(groups), n_outputs), -np.inf if several else 0.0)
        starts = np.zeros((len(groups), n_outputs, layout.width - layout.n_numbers), dtype=np.int64)
        flat, base = [], 0
        for place, group in enumerate(groups):
            own, intercept = group.artifact.tensors["weights"], group.artifact.tensors["intercept"]
            outputs = list(group.classes) if several else [0]
            intercepts[place, outputs] = intercept
            # For a class that the group does not have any weights will do: its intercept, and so its score, is minus infinity.
            row = np.zeros(n_outputs, dtype=np.int64)
            row[outputs] = base + np.arange(len(outputs)) * own.shape[1]
            row[[number for number in range(n_outputs) if number not in outputs]] = base
            columns: list[int] = []
            features: list[int] = []
            at = 0
            for width, start in zip(widths_of(group.fitted), layout.starts, strict=True):
                if start >= layout.n_numbers:
                    starts[place, :, start - layout.n_numbers] = row + at
                else:
                    columns += range(start, start + width)
                    features += range(at, at + width)
                at += width
            weights[place, np.array(outputs)[:, None], columns] = own[:, features]
            flat.append(own.ravel())
            base += own.size
        link = _LINKS[self.link(definition, groups[0])]
        return LinearModels(weights, intercepts, starts, np.concatenate(flat)), link
