"""Prediction outside SQL: rows to groups exactly as the macro routes them, then the learners' own ``score``."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse

from grouplearn.catalog import artifacts, rows
from grouplearn.catalog.damage import damaged, shown
from grouplearn.catalog.exact_rows import ExactRows
from grouplearn.catalog.flaws import refuse_flaws
from grouplearn.catalog.models import StoredModel
from grouplearn.catalog.predict_sql import GROUP, NUMERIC, item_alias, routed_cte, rows_cte
from grouplearn.catalog.records import ModelDefinition, RunOutcome
from grouplearn.catalog.schema import table
from grouplearn.catalog.unreadable import features, unreadable
from grouplearn.catalog.views import level_names
from grouplearn.data import arrays
from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoders import FittedItem, encode
from grouplearn.data.shard import Matrix
from grouplearn.errors import data_error
from grouplearn.learners.base import Artifact, Learner, Problem, Task
from grouplearn.learners.registry import learner as learner_named
from grouplearn.learners.registry import names as registered_names

_INDEX = "__grouplearn_index"
_ELSEWHERE = (
    "\n\nHint: predict() reads on a connection of its own, which knows no temporary tables and nothing that is not committed;"
    " FROM <model>_predict(...) does"
)


@dataclass(frozen=True, slots=True)
class GroupModel:
    """What predicts one group: its encoders, the classes its artifact knows, and the artifact."""

    id: int
    level: int
    keys: tuple[str | None, ...]
    fitted: tuple[FittedItem, ...]
    classes: tuple[int, ...]
    artifact: Artifact


class Scorer:
    """A loaded model: the best trial of every group that has one."""

    def __init__(self, definition: ModelDefinition, groups: Iterable[GroupModel]) -> None:
        self.definition = definition
        self._groups = {group.id: group for group in groups}
        self._routes = pa.table(
            {
                "group_id": pa.array([group.id for group in self._groups.values()], pa.int32()),
                "level": pa.array([group.level for group in self._groups.values()], pa.int32()),
                "keys": pa.array([group.keys for group in self._groups.values()], pa.list_(pa.string())),
            }
        )

    @property
    def _learner(self) -> Learner:
        """The learner, or the network that is registered now under the name."""
        definition = self.definition
        if definition.learner not in registered_names():
            raise data_error(
                f'model "{definition.name}" was trained with the network {definition.learner}, which is not registered in'
                f" this process.\n\nHint: grouplearn.register('{definition.learner}', make_module=...) first"
            )
        return learner_named(definition.learner)

    def score(self, cursor: duckdb.DuckDBPyConnection, batch: Any, exact: ExactRows | None = None) -> Any:
        """Return the predictions for the rows of an Arrow table as a struct array of type ``PREDICTION``, in order.

        ``exact`` are the rows again where Arrow changes their values. ``cursor`` evaluates keys and items; it must not be in
        the middle of another query.
        """
        group, columns = self._routed(cursor, batch, exact)
        numeric, codes, dictionaries = self._encodable(columns)
        outputs = np.full((len(group), self._width), np.nan)
        for number, at in _runs(group):
            if number in self._groups:
                outputs[at] = self._outputs(self._groups[number], numeric[at], codes[at], dictionaries)
        return self._answer(outputs, group)

    def _routed(
        self, cursor: duckdb.DuckDBPyConnection, batch: Any, exact: ExactRows | None
    ) -> tuple[npt.NDArray[np.int64], list[Any]]:
        """Return per row the group (-1: none) and the columns of the items, where the numeric ones are one list."""
        definition = self.definition
        numbered = batch.append_column(_INDEX, pa.array(np.arange(batch.num_rows)))
        own = [item_alias(n) for n, entry in enumerate(definition.items) if entry.item.kind != "numeric"]
        items = "".join(f", {name}" for name in ([NUMERIC] if len(own) < len(definition.items) else []) + own)
        # In the extension temporary tables are the session's, for all threads that predict.
        call = uuid.uuid4().hex
        tables = {
            f"__grouplearn_batch_{call}": exact.beside(numbered) if exact else numbered,
            f"__grouplearn_routes_{call}": self._routes,
        }
        batch_name, routes_name = tables
        source = exact.source(cursor, batch_name) if exact else batch_name
        ctes = [rows_cte(definition, source, _INDEX), routed_cte(definition, routes_name)]
        sql = f"WITH {', '.join(ctes)} SELECT {_INDEX}, {GROUP}{items} FROM __grouplearn_routed ORDER BY {_INDEX} ASC"
        try:
            for name, values in tables.items():
                cursor.register(name, values)
            found = cursor.sql(sql).to_arrow_table()
        except duckdb.BinderException as error:
            why = str(error).splitlines()[0].removeprefix("Binder Error: ")
            raise data_error(f'model "{definition.name}" cannot read these rows: {why}') from None
        except duckdb.CatalogException as error:
            why = str(error).splitlines()[0].removeprefix("Catalog Error: ")
            raise data_error(f'model "{definition.name}" cannot read these rows: {why}{_ELSEWHERE}') from None
        except duckdb.ConversionException as error:
            why = str(error).splitlines()[0].removeprefix("Conversion Error: ")
            why = unreadable(cursor, source, features(definition)) or why
            raise data_error(f'model "{definition.name}" cannot read these rows: {why}') from None
        finally:
            for name in tables:
                with suppress(duckdb.Error):
                    cursor.unregister(name)
        group = np.asarray(found.column(1).fill_null(-1), dtype=np.int64)
        return group, [found.column(place).combine_chunks() for place in range(2, found.num_columns)]

    @property
    def _width(self) -> int:
        """Outputs per row: the value, or a probability per class (of a label with one class there are still two)."""
        if self.definition.label_length:
            return self.definition.label_length
        return {Task.REGRESSION: 1, Task.BINARY: 2}.get(self.definition.task, len(self.definition.classes))

    def _encodable(self, columns: Sequence[Any]) -> tuple[FloatArray, npt.NDArray[np.int32], list[list[str]]]:
        """Return the item columns in the layout of ``Dataset``: numeric, codes, dictionaries."""
        items = [entry.item for entry in self.definition.items]
        numbers = [item.column for item in items if item.kind == "numeric"]
        others = [item for item in items if item.kind != "numeric"]
        n_rows = len(columns[0]) if columns else 0
        n_numeric = max((item.column + item.numbers for item in items if item.numbers), default=0)
        n_codes = 1 + max((item.column for item in items if not item.numbers), default=-1)
        numeric = np.full((n_rows, n_numeric), np.nan)
        codes = np.full((n_rows, n_codes), -1, dtype=np.int32)
        dictionaries: list[list[str]] = [[] for _ in range(n_codes)]
        if numbers:
            values = columns[0].flatten().cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
            numeric[:, numbers] = values.reshape(n_rows, len(numbers))
        for item, column in zip(others, columns[1:] if numbers else columns, strict=True):
            if item.kind == "array":
                numeric[:, item.column : item.column + item.buckets] = self._arrays(item, column)
            elif item.kind == "hash":
                codes[:, item.column] = self._buckets(item, column)
            else:
                coded = column.cast(pa.string()).dictionary_encode()
                codes[:, item.column] = np.asarray(coded.indices.fill_null(-1))
                dictionaries[item.column] = coded.dictionary.to_pylist()
        return numeric, codes, dictionaries

    def _buckets(self, item: Item, column: Any) -> npt.NDArray[np.int32]:
        """Return the numbers of buckets, -1 for NULL: what computes them comes with the model, and so does their count."""
        buckets = np.asarray(column.cast(pa.int64()).fill_null(-1))
        if len(buckets) and not -1 <= buckets.min() <= buckets.max() < item.buckets:
            raise damaged(
                self.definition.catalog,
                self.definition.name,
                "models",
                f"item {shown(item.name)} has {item.buckets:,} buckets, and its expression gives others",
            )
        return buckets.astype(np.int32)

    def _arrays(self, item: Item, column: Any) -> FloatArray:
        try:
            return arrays.numbers(column, item.buckets)
        except arrays.LengthError as error:
            raise data_error(
                f'model "{self.definition.name}" takes {item.buckets:,} values of "{item.name}", and {error.rows:,} of'
                " these rows have another number"
            ) from None

    def _outputs(
        self, group: GroupModel, numeric: FloatArray, codes: npt.NDArray[np.int32], dictionaries: list[list[str]]
    ) -> FloatArray:
        """Return one column for regression, and one per class of the model for classification; NaN: no prediction."""
        definition = self.definition
        x = encode(group.fitted, numeric, codes, dictionaries) if group.fitted else np.zeros((len(numeric), 0))
        usable = np.arange(x.shape[0]) if self._learner.handles_missing else _finite_rows(x)
        outputs = np.full((x.shape[0], self._width), np.nan)
        if not usable.size:
            return outputs
        # Features far out may overflow: an infinite value is a prediction, NaN is none.
        with np.errstate(over="ignore", invalid="ignore"):
            score = self._scored(group, x[usable])
        if definition.label_length:
            outputs[usable] = self._values(group, score)
            return outputs
        if definition.task is Task.BINARY:
            score = np.column_stack([1 - score[:, 0], score[:, 0]])
        if definition.task is Task.MULTICLASS:
            known = score
            score = np.zeros((usable.size, len(definition.classes)))
            score[:, list(group.classes)] = known
        outputs[usable] = score
        return outputs

    def _scored(self, group: GroupModel, x: Matrix) -> FloatArray:
        try:
            return self._learner.score(self.definition.task, group.artifact, x)
        except ValueError as error:  # what a network of the user's raised
            raise data_error(f'model "{self.definition.name}" cannot predict: {error}') from None

    def _values(self, group: GroupModel, score: FloatArray) -> FloatArray:
        """Return the value or the class, as a number, for each of the L values of a label: (n, L)."""
        definition = self.definition
        if definition.task is Task.REGRESSION:
            return score
        by_class = score.reshape(len(score), -1, definition.label_length)
        chosen = by_class.argmax(axis=1) if definition.task is Task.MULTICLASS else by_class[:, 0] > 0.5
        present = group.classes if definition.task is Task.MULTICLASS else (0, 1)
        classes = np.array([float(definition.classes[number]) for number in present])
        return np.where(np.isnan(by_class).any(axis=1), np.nan, classes[chosen.astype(np.intp)])

    def _answer(self, outputs: FloatArray, group: npt.NDArray[np.int64]) -> Any:
        definition, n_rows = self.definition, outputs.shape[0]
        missing: npt.NDArray[np.bool_] = np.logical_or.reduce(np.isnan(outputs), axis=1)
        nothing = pa.nulls(n_rows, pa.float64())
        no_map = pa.nulls(n_rows, pa.map_(pa.string(), pa.float64()))
        if definition.label_length:
            none = pa.nulls(n_rows, pa.string())
            return self._struct(none, nothing, nothing, no_map, group, _list_array(outputs, missing))
        if definition.task is Task.REGRESSION:
            value = pa.array(outputs[:, 0], mask=missing)
            return self._struct(value.cast(pa.string()), value, nothing, no_map, group)
        number = np.where(missing, -1, np.argmax(np.where(missing[:, None], 0, outputs), axis=1))
        if definition.task is Task.BINARY:
            number = np.where(missing, -1, outputs[:, 1] > 0.5)
        classes = pa.array(definition.classes, pa.string())
        prediction = classes.take(pa.array(number, mask=missing))
        probability = pa.array(outputs[:, 1], mask=missing) if definition.task is Task.BINARY else nothing
        return self._struct(prediction, nothing, probability, _maps(classes, outputs, missing), group)

    def _struct(
        self,
        prediction: Any,
        value: Any,
        probability: Any,
        probabilities: Any,
        group: npt.NDArray[np.int64],
        predicted: Any = None,
    ) -> Any:
        level = [self._groups[number].level if number in self._groups else None for number in group.tolist()]
        levels = pa.array(level_names(self.definition), pa.string()).take(pa.array(level, pa.int32()))
        group_id = pa.array(group.astype(np.int32), mask=group < 0)
        predicted = pa.nulls(len(group), pa.list_(pa.float64())) if predicted is None else predicted
        fields = ["prediction", "value", "probability", "probabilities", "model_level", "group_id", "predicted"]
        columns = [prediction, value, probability, probabilities, levels, group_id, predicted]
        return pa.StructArray.from_arrays(columns, names=fields)


def _list_array(values: FloatArray, missing: npt.NDArray[np.bool_]) -> Any:
    """Return rows (n, L) as lists, NULL where ``missing``."""
    offsets = np.concatenate([[0], np.cumsum(np.where(missing, 0, values.shape[1]))]).astype(np.int32)
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[~missing].ravel()), mask=mask)


def _runs(group: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Return each group number with the rows it has."""
    order = np.argsort(group, kind="stable")
    numbers, first = np.unique(group[order], return_index=True)
    return list(zip(numbers.tolist(), np.split(order, first[1:]), strict=True))


def _finite_rows(x: Any) -> npt.NDArray[np.int64]:
    if scipy.sparse.issparse(x):
        bad = np.zeros(x.shape[0], dtype=bool)
        bad[np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))[~np.isfinite(x.data)]] = True
        return np.flatnonzero(~bad)
    return np.flatnonzero(np.isfinite(x).all(axis=1))


def _maps(classes: Any, outputs: FloatArray, missing: npt.NDArray[np.bool_]) -> Any:
    """Return a map class -> probability per row, NULL where nothing is predicted."""
    lengths = np.where(missing, 0, outputs.shape[1])
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    keys = classes.take(pa.array(np.tile(np.arange(outputs.shape[1]), int((~missing).sum()))))
    maps = pa.MapArray.from_arrays(offsets, keys, pa.array(outputs[~missing].ravel()))
    return pc.if_else(pa.array(~missing), maps, None) if missing.any() else maps


def load_scorer(con: duckdb.DuckDBPyConnection, model: StoredModel) -> Scorer:
    """Return the model ready to score; raises DataError when a stored artifact is damaged."""
    return Scorer(model.definition, load_groups(con, model))


def load_groups(con: duckdb.DuckDBPyConnection, model: StoredModel) -> list[GroupModel]:
    """Return what predicts each group that has a model, in order of their numbers; raises as ``load_scorer``."""
    catalog, where = model.location.catalog, f"'{model.id}'::UUID"
    refuse_flaws(con, model, ("models", "groups", "artifacts"))
    sql = (
        "SELECT g.group_id, g.level, g.keys, g.fills, g.centers, g.scales, g.categories, g.classes,"
        " a.format, a.weights, a.intercept, a.content, a.sha256"
        f" FROM {table(catalog, 'groups')} AS g LEFT JOIN {table(catalog, 'artifacts')} AS a"
        f" ON a.model = {where} AND a.group_id = g.group_id AND a.config = g.best"
        f" WHERE g.model = {where} AND g.best IS NOT NULL ORDER BY g.group_id ASC"
    )
    found = con.sql(sql).to_arrow_table()
    columns = [column.combine_chunks() for column in found.columns]
    numbers = [_list_slices(columns[9]), _list_slices(columns[10])]
    plain = [column.to_pylist() for place, column in enumerate(columns) if place not in (9, 10)]
    groups, definition = [], model.definition
    learner = learner_named(definition.learner) if definition.learner in registered_names() else None
    for row, values in enumerate(zip(*plain, strict=True)):
        number, level, keys, fills, centers, scales, categories, classes, kind, content, digest = values
        stored = artifacts.StoredArtifact(kind, numbers[0][row], numbers[1][row], content, digest)
        fitted = tuple(
            FittedItem(entry.item, fill, center, scale, tuple(texts))
            for entry, fill, center, scale, texts in zip(
                definition.items, fills, centers, scales, categories, strict=True
            )
        )
        artifact = artifacts.restore(stored, _named(model, keys))
        groups.append(GroupModel(number, level, tuple(keys), fitted, tuple(classes or ()), artifact))
    if learner is not None:
        models = [(_problem(definition, group.fitted, group.classes), group.artifact) for group in groups]
        artifacts.refuse_misfits(learner, models, lambda place: _named(model, groups[place].keys))
    return groups


def _named(model: StoredModel, keys: Sequence[str | None]) -> str:
    return f'model "{model.location.name}", group {list(keys)!r}'


def _problem(definition: ModelDefinition, fitted: Sequence[FittedItem], classes: Sequence[int]) -> Problem:
    """Return what the models of a group solve."""
    width, length = sum(item.width for item in fitted), definition.label_length or 1
    return Problem(definition.task, width, len(classes), label_length=length)


def _list_slices(column: Any) -> list[FloatArray | None]:
    """Return the lists of a column as arrays without boxing their numbers."""
    if column.null_count == len(column):
        return [None] * len(column)
    values, offsets = np.asarray(column.values), np.asarray(column.offsets)
    return [values[start:stop] for start, stop in itertools.pairwise(offsets)]


def scorer_of(definition: ModelDefinition, outcome: RunOutcome) -> Scorer:
    """Return a model that was just trained ready to score, without the catalog."""
    groups = []
    for entry in outcome.every_group(definition.metric):
        best = next((trial for trial in rows.kept_trials(definition, entry)[:1] if trial.config == entry.best), None)
        if best is not None and best.artifact is not None and entry.facts is not None:
            group, facts = entry.group, entry.facts
            groups.append(GroupModel(group.id, group.level, group.keys, facts.fitted, facts.classes, best.artifact))
    return Scorer(definition, groups)
