"""Scores by vectors: of each row the distance from centroids, or its place along components."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from grouplearn.data.encoding.registry import encoder_of
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import VectorLearner
from grouplearn.models.dialects.databases import NotInDialect
from grouplearn.models.dialects.encoded_rows import GROUP, encode_rows, feature
from grouplearn.models.dialects.exported import ExportedModel
from grouplearn.models.dialects.scored import SCORED, selected
from grouplearn.models.dialects.scores.inputs import INPUTS, add_inputs, add_scored, kept, same_row, with_group
from grouplearn.models.dialects.scores.linear import is_number
from grouplearn.models.forms.form import GroupModel
from grouplearn.models.outputs.clusters import Clusters
from grouplearn.models.outputs.projection import Projection

#: Added columns.
_CLUSTER, _DISTANCE, _RESIDUAL = (f"__grouplearn_{name}" for name in ("cluster", "distance", "residual"))
#: Most numbers of all vectors.
MOST_NUMBERS = 1_000_000


def vector_scores(model: ExportedModel) -> None:
    """Add the tables of vectors, and the steps to rows with what their output shows."""
    scored = _SCORED.get(type(model.definition.output))
    if scored is None:
        raise NotInDialect(f"{' and '.join(model.definition.output.shown)} have no form in the SQL of other databases")
    encode_rows(model, finite=True, numbered=True)
    add_inputs(model)
    _add_features(model)
    scored(model)


def _vectors(model: ExportedModel, group: GroupModel, part: str) -> list[tuple[int, Any]]:
    """Return the numbers and vectors of a part of a group's model."""
    learner = cast(VectorLearner, registry.learner(model.definition.learner))
    return [(place, vector) for own, place, vector, _ in learner.vectors(group.artifact) if own == part]


def _add_features(model: ExportedModel) -> None:
    """Add the table of the feature columns of each group, and the step with a row for each of a row's."""

    def rows() -> Iterator[Sequence[int]]:
        for group in model.groups:
            number = 0
            for item, fitted in enumerate(group.fitted, start=1):
                for place in encoder_of(fitted.item).numbers(fitted).tolist():
                    number += 1
                    yield group.id, number, item, place

    columns = [(name, "BIGINT") for name in ("group_id", "feature", "item", "place")]
    table = model.table("features", columns, rows())
    cases = " ".join(
        f"WHEN {number + 1} THEN {_value(entry, f'i.{feature(number)}')}"
        for number, entry in enumerate(model.definition.items)
    )
    model.query.step(
        "long",
        f"SELECT {with_group(model, 'i')}, f.feature, CASE f.item {cases} END AS x"
        f" FROM {INPUTS} AS i JOIN {table} AS f ON f.group_id = i.{GROUP}",
    )


def _value(entry: Any, value: str) -> str:
    return value if is_number(entry) else f"CASE WHEN {value} = f.place THEN 1.0 ELSE 0.0 END"


def _numbers(
    model: ExportedModel, suffix: str, numbers: Callable[[GroupModel], Iterator[Sequence[Any]]], *more: str
) -> str:
    """Add a table of numbers of vectors by group, vector and feature, and return its name."""
    rows = [(group.id, *row) for group in model.groups for row in numbers(group)]
    if len(rows) > MOST_NUMBERS:
        raise NotInDialect(f"its vectors have {len(rows):,} numbers, and a script takes {MOST_NUMBERS:,}")
    columns = [(name, "BIGINT") for name in ("group_id", "vector", "feature")]
    return model.table(suffix, [*columns, *((name, "DOUBLE") for name in ("value", *more))], rows)


def _clusters(model: ExportedModel) -> None:
    def centroids(group: GroupModel) -> Iterator[Sequence[Any]]:
        for number, vector in _vectors(model, group, "centroid"):
            yield from ((number, place, value) for place, value in enumerate(vector.tolist(), start=1))

    query, table = model.query, _numbers(model, "centroids", centroids)
    away = "(x.x - c.value)"
    query.step(
        "distances",
        f"SELECT {kept(model, 'x')}, c.vector, SQRT(SUM({away} * {away})) AS distance FROM long AS x"
        f" JOIN {table} AS c ON c.group_id = x.{GROUP} AND c.feature = x.feature"
        f" GROUP BY {kept(model, 'x')}, c.vector HAVING COUNT(x.x) = COUNT(*)",
    )
    rank = f"ROW_NUMBER() OVER (PARTITION BY {kept(model, 'd')} ORDER BY d.distance, d.vector) AS nearest"
    query.step("ranked", f"SELECT {kept(model, 'd')}, d.vector, d.distance, {rank} FROM distances AS d")
    columns = f"{kept(model, 'd')}, d.vector AS {_CLUSTER}, d.distance AS {_DISTANCE}"
    query.step("sums", f"SELECT {columns} FROM ranked AS d WHERE d.nearest = 1")
    add_scored(model, "sums", [_CLUSTER, _DISTANCE])


def coordinate(number: int) -> str:
    """Return the added column of a coordinate, from 1."""
    return f"__grouplearn_coordinate{number}"


def _projection(model: ExportedModel) -> None:
    def components(group: GroupModel) -> Iterator[Sequence[Any]]:
        for number, vector in _vectors(model, group, "component"):
            back = vector / np.dot(vector, vector)
            pairs = zip(vector.tolist(), back.tolist(), strict=True)
            yield from ((number, place, value, other) for place, (value, other) in enumerate(pairs, start=1))

    def means(group: GroupModel) -> Iterator[Sequence[Any]]:
        for number, vector in _vectors(model, group, "mean"):
            yield from ((number, place, value) for place, value in enumerate(vector.tolist(), start=1))

    query = model.query
    table, mean = _numbers(model, "components", components, "back"), _numbers(model, "means", means)
    query.step(
        "away",
        f"SELECT {with_group(model, 'x')}, x.feature, x.x - m.value AS v FROM long AS x"
        f" JOIN {mean} AS m ON m.group_id = x.{GROUP} AND m.feature = x.feature",
    )
    query.step(
        "coordinates",
        f"SELECT {with_group(model, 'a')}, c.vector, SUM(a.v * c.value) AS z FROM away AS a"
        f" JOIN {table} AS c ON c.group_id = a.{GROUP} AND c.feature = a.feature"
        f" GROUP BY {with_group(model, 'a')}, c.vector HAVING COUNT(a.v) = COUNT(*)",
    )
    query.step(
        "projected",
        f"SELECT {kept(model, 'z')}, c.feature, SUM(z.z * c.back) AS v FROM coordinates AS z"
        f" JOIN {table} AS c ON c.group_id = z.{GROUP} AND c.vector = z.vector GROUP BY {kept(model, 'z')}, c.feature",
    )
    _add_projection_sums(model)


def most_components(model: ExportedModel) -> int:
    """Return the number of components of the group that has most."""
    return max(len(_vectors(model, group, "component")) for group in model.groups)


def _add_projection_sums(model: ExportedModel) -> None:
    """Add the steps of residuals, and of rows with coordinates and residual."""
    query = model.query
    left = "(a.v - COALESCE(p.v, 0))"
    query.step(
        "residuals",
        f"SELECT {kept(model, 'a')}, SQRT(SUM({left} * {left})) AS {_RESIDUAL} FROM away AS a"
        f" LEFT JOIN projected AS p ON {same_row(model, 'p', 'a')} AND p.feature = a.feature"
        f" GROUP BY {kept(model, 'a')} HAVING COUNT(a.v) = COUNT(*)",
    )
    numbers = range(1, most_components(model) + 1)
    shown = ", ".join(f"MAX(CASE WHEN z.vector = {number} THEN z.z END) AS {coordinate(number)}" for number in numbers)
    query.step(
        "sums",
        f"SELECT {kept(model, 'r')}, MIN(r.{_RESIDUAL}) AS {_RESIDUAL}, {shown} FROM residuals AS r"
        f" LEFT JOIN coordinates AS z ON {same_row(model, 'z', 'r')} GROUP BY {kept(model, 'r')}",
    )
    add_scored(model, "sums", [_RESIDUAL, *map(coordinate, numbers)])


def cluster_answer(model: ExportedModel) -> str:
    """Return the last SELECT of clusters."""
    return selected(model, [f"{_CLUSTER} AS cluster", f"{_DISTANCE} AS distance"], SCORED)


def projection_answer(model: ExportedModel) -> str:
    """Return the last SELECT of projections: a column for each coordinate."""
    columns = [f"{coordinate(number)} AS projection_{number}" for number in range(1, most_components(model) + 1)]
    return selected(model, [*columns, f"{_RESIDUAL} AS residual"], SCORED)


_SCORED: Mapping[type, Callable[[ExportedModel], None]] = {Clusters: _clusters, Projection: _projection}
