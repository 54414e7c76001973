"""The best model of each group, loaded from the catalog."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from grouplearn.catalog.checks.damage import damaged
from grouplearn.catalog.checks.invalid_rows import refuse_invalid_rows
from grouplearn.catalog.records import ModelDefinition, StoredModel
from grouplearn.catalog.rows import artifacts
from grouplearn.catalog.schema import table
from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.registry import widths_of
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.registry import is_known
from grouplearn.learners.registry import learner as learner_named
from grouplearn.models.forms.form import GroupModel
from grouplearn.models.forms.forms import form_of

#: Number of columns from ``_numbers``.
_NUMBERS = 4


def load_groups(
    con: duckdb.DuckDBPyConnection, model: StoredModel, *, only: Iterable[int] | None = None
) -> list[GroupModel]:
    """Return the model of each group that has one, by group number; raises as ``load_scorer``.

    ``only`` are the numbers of the groups to load, None for all.
    """
    catalog, where = model.location.catalog, f"'{model.id}'::UUID"
    refuse_invalid_rows(con, model, ("models", "groups", "artifacts"))
    some = "" if only is None else f" AND g.group_id IN ({', '.join(map(str, only))})"
    threshold, trials = "NULL", ""
    if model.definition.threshold_metric:
        threshold = model.definition.threshold_sql("t.")
        best = f"t.model = {where} AND t.group_id = g.group_id AND t.config = g.best"
        trials = f" LEFT JOIN {table(catalog, 'trials')} AS t ON {best}"
    sql = (
        f"SELECT {_numbers(model)}, g.group_id, g.best, {threshold}, g.level, g.keys, g.fills, g.centers, g.scales,"
        " g.categories, g.category_values, g.classes, g.calibration, a.format, a.content, a.sha256"
        f" FROM {table(catalog, 'groups')} AS g LEFT JOIN {table(catalog, 'artifacts')} AS a"
        f" ON a.model = {where} AND a.group_id = g.group_id AND a.config = g.best"
        f"{trials} WHERE g.model = {where} AND g.best IS NOT NULL{some} ORDER BY g.group_id ASC"
    )
    found = con.sql(sql).to_arrow_table()
    numbers, columns = _numbers_of(found), found.columns[_NUMBERS:]
    try:
        plain = [column.combine_chunks().to_pylist() for column in columns]
    except UnicodeDecodeError:  # DuckDB does not validate text that it reads
        raise damaged(catalog, model.location.name, "groups", "or in artifacts, a text is not UTF-8") from None
    groups, definition = [], model.definition
    with_weights = form_of(definition).has_one_weight_per_column
    learner = learner_named(definition.learner) if is_known(definition.learner) else None
    for row, values in enumerate(zip(*plain, strict=True)):
        (number, best, threshold, level, keys, *encoders, classes, calibration, kind, content, digest) = values
        weights, intercept, *wide = (column[row] for column in numbers)
        stored = artifacts.StoredArtifact(kind, weights, intercept, content, digest, *wide)
        fitted = tuple(
            FittedItem(entry.item, fill, center, scale, tuple(texts), values=np.array(numbers, np.float64).tobytes())
            for entry, fill, center, scale, texts, numbers in zip(definition.items, *encoders, strict=True)
        )
        named = _named(model, keys)
        artifact = artifacts.restore(stored, named)
        if with_weights:
            artifact, fitted = artifacts.with_columns(stored, artifact, fitted, named)
        groups.append(
            GroupModel(
                number,
                level,
                tuple(keys),
                fitted,
                tuple(classes or ()),
                artifact,
                best,
                0.5 if threshold is None else threshold,
                None if calibration is None else (tuple(calibration[0]), tuple(calibration[1])),
            )
        )
    if learner is not None:
        models = [(problem_of_model(definition, group.fitted, group.classes), group.artifact) for group in groups]
        artifacts.refuse_misfits(learner, models, lambda place: _named(model, groups[place].keys))
    return groups


def read_profiles(con: duckdb.DuckDBPyConnection, model: StoredModel) -> Any:
    """Return the rows of ``profiles`` of a model whose explanations need them, None of others."""
    if not form_of(model.definition).explains_by_means:
        return None
    refuse_invalid_rows(con, model, ("profiles",))
    own = f"{table(model.location.catalog, 'profiles')} WHERE model = '{model.id}'::UUID"
    return con.sql(f"SELECT group_id, item, n_rows, n_missing, mean, categories, counts FROM {own}").to_arrow_table()


def refuse_damaged_weights(con: duckdb.DuckDBPyConnection, model: StoredModel) -> None:
    """Raise DataError if the weights that a linear model's SQL reads are not those that were written."""
    catalog, where = model.location.catalog, f"'{model.id}'::UUID"
    sql = (
        f"SELECT {_numbers(model)}, g.keys, a.sha256 FROM {table(catalog, 'groups')} AS g"
        f" JOIN {table(catalog, 'artifacts')} AS a ON a.model = g.model AND a.group_id = g.group_id AND a.config = g.best"
        f" WHERE g.model = {where} ORDER BY g.group_id ASC"
    )
    found = con.sql(sql).to_arrow_table()
    keys, digests = (each.combine_chunks() for each in found.columns[_NUMBERS:])
    for row, (weight, intercept, *wide) in enumerate(zip(*_numbers_of(found), strict=True)):
        stored = artifacts.StoredArtifact("linear", weight, intercept, None, digests[row].as_py(), *wide)
        artifacts.restore(stored, _named(model, keys[row].as_py()))


def _named(model: StoredModel, keys: Sequence[str | None]) -> str:
    return f'model "{model.location.name}", group {list(keys)!r}'


def problem_of_model(definition: ModelDefinition, fitted: Sequence[FittedItem], classes: Sequence[int]) -> Problem:
    """Return the problem of a group's model."""
    width, length = sum(widths_of(fitted)), definition.label_length or 1
    return Problem(definition.label, width, len(classes), label_length=length)


def _numbers(model: StoredModel) -> str:
    """Return the columns of linear models' numbers; NULL for wide items in a model without any."""
    wide = "a.places, a.nonzeros" if model.definition.is_wide else "NULL AS places, NULL AS nonzeros"
    return f"a.weights, a.intercept, {wide}"


def _numbers_of(found: Any) -> list[list[Any]]:
    """Return each row's lists in these columns, which come first."""
    columns = [column.combine_chunks() for column in found.columns[:_NUMBERS]]
    return [_list_slices(column) for column in columns]


def _list_slices(column: Any) -> list[Any]:
    """Return a column's lists, or lists of lists, as arrays without an object per number."""
    if column.null_count == len(column):
        return [None] * len(column)
    inside, offsets = column.values, np.asarray(column.offsets).tolist()
    values = _list_slices(inside) if pa.types.is_nested(inside.type) else np.asarray(inside)
    return [values[start:stop] for start, stop in itertools.pairwise(offsets)]
