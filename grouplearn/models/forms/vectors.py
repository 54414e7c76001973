"""Prediction by vectors as one SELECT: a row's features, scored as its output says, by its group's vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import cast

import pyarrow as pa

from grouplearn.data.encoding.registry import widths_of
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner, VectorLearner
from grouplearn.models.definition import ItemColumn, ModelDefinition
from grouplearn.models.forms.form import (
    OF_LISTS,
    Best,
    Checks,
    FormWithSql,
    FunctionSql,
    Prediction,
    SqlForm,
    StoredRows,
    every,
    once,
)
from grouplearn.models.forms.items import (
    encoded_cte,
    encoders_sql,
    groups_cte,
    inputs_sql,
    is_looked_up,
    is_number,
    listed,
    position_join,
)
from grouplearn.models.forms.routed import (
    BEST,
    ENCODED,
    GROUP,
    LEVEL,
    PARAMETERS,
    SCORED,
    PredictedRows,
    item_alias,
    linked,
    reachable,
    routed_cte,
    rows_cte,
    sortable_row,
)
from grouplearn.models.outputs.vectors import FEATURES, VectorSql
from grouplearn.sqltext import identifier, literal

_VECTORS = "__grouplearn_vectors"
#: Most encoded features of a row in SQL, as a list.
MOST_FEATURES = 4_096


def _parameters(definition: ModelDefinition, read: VectorSql) -> str:
    columns = [
        "g.group_id AS __grouplearn_id",
        f"g.level AS {LEVEL}",
        *([] if read.place else _given(read)),
        *(
            f"len(g.categories[{number + 1}]) AS {_count(number)}"
            for number, entry in enumerate(definition.items)
            if _is_looked_up(entry)
        ),
        *encoders_sql(definition, finite=True, groups="g."),
    ]
    parts = [
        f"list({column} ORDER BY place ASC) FILTER (part = {literal(part)}) AS {identifier(part + suffix)}"
        for column, suffix in (("vector", ""), *((("value", "_values"),) if read.values else ()))
        for part in (*read.parts, *read.single)
    ]
    vectors = f"SELECT group_id, {', '.join(parts)} FROM {_VECTORS} GROUP BY group_id"
    source = f"{BEST} AS g" + ("" if read.place else f" LEFT JOIN ({vectors}) AS v ON v.group_id = g.group_id")
    return f"{PARAMETERS} AS (SELECT {', '.join(columns)} FROM {source})"


def _given(read: VectorSql) -> list[str]:
    """Return the columns that a row gets from its group."""
    return [f"{sql} AS {name}" for name, sql in read.given.items()]


def _placed(rows: str, read: VectorSql) -> str:
    """Return the query of rows with what they get from the vectors of their place."""
    parts = ", ".join(
        f"any_value({column}) FILTER (part = {literal(part)}) AS {identifier(part + suffix)}"
        for part in read.parts
        for column, suffix in (("vector", ""), ("value", "_value"))
    )
    vectors = f"SELECT group_id, place, {parts} FROM {_VECTORS} GROUP BY group_id, place"
    on = f"v.group_id = r.{GROUP} AND v.place = {read.place}"
    return f"SELECT r.*, {', '.join(_given(read))} FROM ({rows}) AS r LEFT JOIN ({vectors}) AS v ON {on}"


def _is_looked_up(entry: ItemColumn) -> bool:
    """Return whether an item is 0s with a 1 at its category's place in the group's list."""
    return is_looked_up(entry) and not is_number(entry)


def _count(number: int) -> str:
    """Return the column with an item's number of categories."""
    return f"__grouplearn_count{number}"


def _rows(definition: ModelDefinition) -> str:
    """Return rows with their group's columns, and the list of their features."""
    joins = [position_join(number) for number, entry in enumerate(definition.items) if is_looked_up(entry)]
    pieces = list(_pieces(definition))
    vector = pieces[0] if len(pieces) == 1 else f"flatten([{', '.join(pieces)}])"
    return f"SELECT r.*, {vector} AS {FEATURES} FROM {ENCODED} AS r {' '.join(joins)}"


def _pieces(definition: ModelDefinition) -> Iterator[str]:
    """Yield the lists that make up a row's features: of adjacent numbers, and of each category."""
    for numeric, run in groupby(enumerate(definition.items), key=lambda each: is_number(each[1])):
        members = [number for number, _ in run]
        if numeric:
            yield inputs_sql(definition, members, finite=True)
        else:
            yield from (_indicators(definition.items[number], number) for number in members)


def _indicators(entry: ItemColumn, number: int) -> str:
    """Return a category's 0s and 1; all 0 if the group does not know it."""
    if _is_looked_up(entry):
        count, place = f"r.{_count(number)}", f"j{number}.position"
    else:
        count, place = str(entry.item.buckets), f"r.{item_alias(number)}"
    return f"list_transform(range({count}), lambda i: CAST(coalesce(i = {place}, false) AS DOUBLE))"


@dataclass(frozen=True, slots=True)
class VectorsSql(SqlForm):
    """By the vectors in ``factors``, as the output reads them."""

    reads: VectorSql
    tables = ("groups", "factors")

    def select(self, rows: PredictedRows) -> str:
        """Return the SELECT that compares the list of a row's encoded features with each vector of its group."""
        definition = rows.definition
        read = _rows(definition)
        ctes = [
            rows_cte(definition, rows.relation, sortable_row(rows.extras), rows.extras, listed(definition)),
            groups_cte(rows),
            routed_cte(definition, BEST, reachable(rows)),
            f"{_VECTORS} AS (SELECT * FROM {rows.table('factors')})",
            _parameters(definition, self.reads),
            encoded_cte(definition, finite=True),
            f"{SCORED} AS ({self.reads.scored(_placed(read, self.reads) if self.reads.place else read)})",
        ]
        return f"WITH {', '.join(ctes)} {linked(rows)}"


class Vectors(FormWithSql):
    """Vectors over the encoded features (``VectorLearner``)."""

    name = "vectors"
    explains_by_means = False
    tables = ("factors",)
    of_any_learner = True
    grows_with_columns = True

    def learner_error(self, learner: Learner) -> str | None:
        """Return that a learner does not say which vectors its models have."""
        return None if isinstance(learner, VectorLearner) else "a learner of vectors has vectors()"

    def without_sql(self, definition: ModelDefinition) -> str:
        """Return why there is no SQL: the output may have none."""
        if definition.output.vectors is None and not definition.label_length:
            return _without_vectors(definition)
        return super().without_sql(definition)

    def prediction(self, definition: ModelDefinition, best: Sequence[Best]) -> Prediction:
        """Return the vectors also where lists make SQL impossible: views show them."""
        reason = self.without_sql(definition)
        if reason and reason != OF_LISTS:
            return Prediction(FunctionSql(reason))
        found = self.rows(definition, best)
        return Prediction(FunctionSql(reason), found.tables) if reason else found

    def rows(self, definition: ModelDefinition, best: Sequence[Best]) -> Prediction:
        """Return the vectors of all models; SQL compares a list of a row's features with each."""
        learner = cast(VectorLearner, registry.learner(definition.learner))
        rows = [
            {"group_id": each.group, "part": part, "place": place, "vector": vector.tolist(), "value": value}
            for each in best
            for part, place, vector, value in learner.vectors(each.artifact)
        ]
        small = pa.int32()
        fields = [("group_id", small), ("part", pa.string()), ("place", small), ("vector", pa.list_(pa.float64()))]
        factors = pa.Table.from_pylist(rows, pa.schema([*fields, ("value", pa.float64())]))
        width = max((sum(widths_of(each.fitted)) for each in best), default=0)
        return Prediction(_form(definition, width), (("factors", factors),))

    def read(self, definition: ModelDefinition, rows: StoredRows) -> SqlForm:
        """Return the SQL form, if rows are no longer than SQL takes."""
        return _form(definition, rows.first("groups", "max(len(features))") or 0)

    def checks(self, definition: ModelDefinition) -> Mapping[str, Checks]:
        """Return the checks of vectors: the output says which parts there are."""
        read = definition.output.vectors
        places = (
            {}
            if read is None
            else {**dict.fromkeys(read.parts, "place >= 1"), **dict.fromkeys(read.single, "place = 0")}
        )
        there = " OR ".join(f"(part = {literal(part)} AND {fits})" for part, fits in places.items()) or "place >= 0"
        return {
            "factors": {
                "two rows are the same vector": once("group_id", "part", "place"),
                "a vector has an unknown part": every(f"({there})"),
                "a vector has a number that is NULL": every("list_count(vector) = len(vector)"),
            }
        }


def _without_vectors(definition: ModelDefinition) -> str:
    return f"SQL has no form of {' and '.join(definition.output.shown)} by vectors"


def _form(definition: ModelDefinition, width: int) -> SqlForm:
    """Return how a model predicts whose longest row has this many encoded features."""
    if width > MOST_FEATURES:
        return FunctionSql(f"a row has {width:,} encoded features, and SQL takes {MOST_FEATURES:,}")
    read = definition.output.vectors
    return FunctionSql(_without_vectors(definition)) if read is None else VectorsSql(read)
