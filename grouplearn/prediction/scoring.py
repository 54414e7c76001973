"""Prediction outside SQL: rows are routed to groups as by the macro, then scored by kernels or the learners' ``score``."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.catalog.checks.unreadable import features, unreadable
from grouplearn.catalog.predicting_connections import INEXACT_TYPES
from grouplearn.catalog.records import ModelDefinition, RunOutcome, StoredModel
from grouplearn.data.dataset import FloatArray
from grouplearn.data.encoders import Columns, encode
from grouplearn.data.encoding.registry import widths_of
from grouplearn.data.shard import Matrix
from grouplearn.errors import data_error
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import predicting
from grouplearn.learners.registry import how_to_register, is_known
from grouplearn.learners.registry import learner as learner_named
from grouplearn.models.forms.form import Contributions, GroupModel
from grouplearn.models.forms.routed import GROUP, NUMERIC, evaluated, item_alias, routed_cte, rows_cte
from grouplearn.prediction.ahead import StepsAhead, listed
from grouplearn.prediction.compiled import CompiledModel, ModelsInRuns
from grouplearn.prediction.explaining import GroupExplainer, Means
from grouplearn.prediction.group_models import load_groups, read_profiles
from grouplearn.prediction.predictions import PredictionPart, Predictions
from grouplearn.prediction.rows.exact_rows import ExactRows
from grouplearn.prediction.rows.known_values import Codes
from grouplearn.prediction.rows.own_columns import OwnColumns
from grouplearn.prediction.rows.row_reader import INDEX, RowReader, is_evaluated
from grouplearn.prediction.rows.vocabulary import Vocabulary

#: Opens the connection that evaluates what kernels cannot read.
Cursor = Callable[[], duckdb.DuckDBPyConnection]
#: Row types for which a model keeps a reader.
_READERS = 4
#: Values of rows that are made dense at a time, for learners that take no others.
_DENSE_VALUES = 1 << 22
_ELSEWHERE = (
    "\n\nHint: predict() reads on a connection of its own, which knows no temporary tables and nothing that is not committed;"
    " FROM <model>_predict(...) does"
)


class Scorer:
    """A loaded model: the best trial of every group that has one. Thread-safe."""

    def __init__(
        self, definition: ModelDefinition, groups: Iterable[GroupModel], profiles: Callable[[], Any] = lambda: None
    ) -> None:
        self.definition = definition
        self._profiles = profiles
        self._groups = list(groups)
        numbers, levels = [group.id for group in self._groups], [group.level for group in self._groups]
        thresholds = [group.threshold for group in self._groups] if definition.threshold_metric else None
        calibrations = [group.calibration for group in self._groups]
        self._predictions = Predictions(definition, numbers, levels, thresholds, calibrations)
        self._routes = pa.table(
            {
                "group_id": pa.array(range(len(self._groups)), pa.int32()),
                "level": pa.array(levels, pa.int32()),
                "keys": pa.array([group.keys for group in self._groups], pa.list_(pa.string())),
            }
        )
        self._own = OwnColumns(definition, [group.fitted for group in self._groups])
        self._vocabulary: Vocabulary | None = None
        self._compiled: CompiledModel | ModelsInRuns | None = None
        self._is_compiled = False
        self._readers: tuple[RowReader, ...] = ()
        self._of_evaluated: Scorer | None = None
        self._lock = threading.Lock()

    def for_rows(self, kind: pa.DataType) -> Scorer:
        """Return the scorer for rows of a struct type: another one if their keys and items are evaluated already."""
        if not is_evaluated(kind):
            return self
        with self._lock:
            self._of_evaluated = self._of_evaluated or Scorer(evaluated(self.definition), self._groups, self._profiles)
        return self._of_evaluated

    @property
    def _learner(self) -> Learner:
        """The learner, or the one now registered under its name."""
        definition = self.definition
        if not is_known(definition.learner):
            raise data_error(
                f'model "{definition.name}" was trained with the learner {definition.learner}, which is not registered in'
                f" this process.\n\nHint: {how_to_register(definition.learner)} first"
            )
        return learner_named(definition.learner)

    def score(
        self, cursor: Cursor, rows: Any, exact: ExactRows | None = None, part: PredictionPart = PredictionPart.ALL
    ) -> Any:
        """Return the predictions for a struct array of rows without NULLs, in order, or a part of each.

        ``exact`` are the same rows if Arrow changes their values. ``cursor`` opens a connection for keys and items that are
        not plain columns; it must not be in the middle of another query.
        """
        if part is PredictionPart.STEPS:
            return self._steps_ahead(cursor, rows, exact)
        if part is PredictionPart.EXPLANATION:
            return self._explanations(cursor, rows, exact)
        reader = self._reader(cursor, rows.type, exact=exact is not None)
        found = None if reader is None else reader.read(rows, partial(self._evaluated, cursor, rows, exact))
        if found is None:
            group, columns = self._routed(cursor, rows, exact)
            outputs = self._scored_by_group(group, self._own.of_columns(columns, group))
        elif self._compiled is None:
            x, group = found
            outputs = self._scored_by_group(group, self._own.of_lines(x))
        else:
            x, group = found
            outputs = self._compiled.predict(x, group)
        return self._predictions.of(outputs, group, part)

    def _steps_ahead(self, cursor: Cursor, rows: Any, exact: ExactRows | None) -> Any:
        """Return the steps after the end of each row's series; of a row no more is read than what tells series apart."""
        definition = self.definition
        ahead = StepsAhead.of(definition, self._learner, self._groups)
        if (found := listed(rows)) is not None:
            each, of = found
            scorer = self.for_rows(each.type)
            features = scorer._features(cursor, each, exact)
            if scorer is not self:  # rows that are evaluated, by EVALUATE
                return ahead.of_each(rows, of, features)
            return ahead.read_lists(cursor(), rows, of, features)
        own = slice(1, 2) if definition.series else slice(0)
        groups = [replace(each, fitted=each.fitted[own]) for each in self._groups]
        keyed = Scorer(replace(definition, items=definition.items[own]), groups)
        group, columns = keyed._routed(cursor, rows, exact)
        series = keyed._own.of_columns(columns, group).codes[:, 0] if definition.series else np.zeros_like(group)
        return ahead.read(cursor(), rows, group, series)

    @cached_property
    def _means(self) -> Callable[[GroupModel], tuple[FloatArray, bool]]:
        return Means(self._profiles()).of

    def _explanations(self, cursor: Cursor, rows: Any, exact: ExactRows | None) -> Any:
        """Return what each item adds to the score of each row."""
        group, columns = self._routed(cursor, rows, exact)
        encoded, count = self._own.of_columns(columns, group), len(self.definition.items)
        outputs = np.full((len(group), self._predictions.output.width), np.nan)
        added, baseline, methods = np.zeros((len(group), count)), np.full(len(group), np.nan), [""] * len(group)
        for place, at in _runs(group):
            if place < 0:
                continue
            own, model = encoded.taken(at, self._own.dictionaries[place]), self._groups[place]
            for part in self._parts(model, own.n_rows):
                x, usable = self._usable(model, own.rows(part))
                if not usable.size:
                    continue
                with np.errstate(over="ignore", invalid="ignore"):
                    predicted = self._scored(model, x)
                    outputs[at[part][usable]] = self._predictions.output.outputs(predicted, model.classes)
                    explainer = GroupExplainer(self.definition, model, partial(self._scored, model), self._means)
                    found = explainer.explain(x, predicted)
                chosen = at[part][usable]
                added[chosen], baseline[chosen] = found.added, found.baseline
                for row in chosen.tolist():
                    methods[row] = found.method
        return self._predictions.explained(outputs, group, Contributions(added, baseline, ""), methods)

    def _features(self, cursor: Cursor, rows: Any, exact: ExactRows | None) -> list[tuple[int, FloatArray]]:
        """Return the place of each row's group, -1 for none, and its encoded features."""
        if exact is not None:
            raise data_error(
                f"rows of a list have no columns of the types {', '.join(INEXACT_TYPES)}: CAST them, or leave them out"
            )
        group, columns = self._routed(cursor, rows, None)
        found = [(-1, np.empty(0))] * len(group)
        for place, at in _runs(group):
            if place >= 0:
                own = self._own.of_columns(columns, group).taken(at, self._own.dictionaries[place])
                fitted = self._groups[place].fitted
                x = np.asarray(encode(fitted, own, sum(widths_of(fitted))))
                for row, features in zip(at.tolist(), x, strict=True):
                    found[row] = place, features
        return found

    def _reader(self, cursor: Cursor, kind: pa.StructType, *, exact: bool) -> RowReader | None:
        """Return a reader of such rows that needs no query for routing; None if there is none."""
        for reader in self._readers:
            if reader.reads(kind, exact=exact):
                return reader
        with self._lock:
            if not self._is_compiled:
                self._vocabulary = self._made_vocabulary(cursor())
                if self._vocabulary is not None:
                    layout = self._vocabulary.layout
                    compiled = CompiledModel.of(self.definition, self._groups, layout)
                    self._compiled = compiled or ModelsInRuns.of(self.definition, self._groups)
                    if (
                        self._vocabulary.bins and self._compiled is None
                    ):  # lines have the bins of numbers, not the numbers
                        self._vocabulary = None
                self._is_compiled = True
            if self._vocabulary is None:
                return None
            made = RowReader(self._vocabulary, kind, exact=exact)
            self._readers = (made, *self._readers[: _READERS - 1])
            return made

    def _made_vocabulary(self, cursor: duckdb.DuckDBPyConnection) -> Vocabulary | None:
        levels, keys = [group.level for group in self._groups], [group.keys for group in self._groups]
        return Vocabulary.of(self.definition, levels, keys, [group.fitted for group in self._groups], cursor)

    def _evaluated(self, cursor: Cursor, rows: Any, exact: ExactRows | None, query: Callable[[str], str]) -> list[Any]:
        """Return the columns of a query over the rows, made from the rows' name."""
        return self._queried(cursor(), rows, exact, lambda source, _: query(source))

    def _routed(self, cursor: Cursor, rows: Any, exact: ExactRows | None) -> tuple[Codes, list[Any]]:
        """Return per row its group's place (-1: none) and the items' columns, numeric items as one list."""
        definition = self.definition
        own = [item_alias(n) for n, entry in enumerate(definition.items) if entry.item.kind != "numeric"]
        items = "".join(f", {name}" for name in ([NUMERIC] if len(own) < len(definition.items) else []) + own)

        def query(source: str, routes: str) -> str:
            ctes = [rows_cte(definition, source, INDEX), routed_cte(definition, routes)]
            return f"WITH {', '.join(ctes)} SELECT {GROUP}{items} FROM __grouplearn_routed ORDER BY {INDEX} ASC"

        group, *columns = self._queried(cursor(), rows, exact, query)
        return np.asarray(group.fill_null(-1), dtype=np.int32), columns

    def _queried(
        self, cursor: duckdb.DuckDBPyConnection, rows: Any, exact: ExactRows | None, query: Callable[[str, str], str]
    ) -> list[Any]:
        """Return the columns of a query made from the names of the numbered rows and of the routes."""
        # With the fields' metadata, which alone tells a GEOMETRY from a BLOB, and a VARIANT from a STRUCT. flatten() would
        # apply NULL rows, and crashes at a column of type UNION.
        fields = [rows.field(place) for place in range(rows.type.num_fields)]
        batch = pa.Table.from_arrays(fields, schema=pa.schema(list(rows.type)))
        numbered = batch.append_column(INDEX, pa.array(np.arange(batch.num_rows)))
        # In the extension temporary tables belong to the session, shared by all predicting threads.
        call = uuid.uuid4().hex
        tables = {
            f"__grouplearn_batch_{call}": exact.beside(numbered) if exact else numbered,
            f"__grouplearn_routes_{call}": self._routes,
        }
        batch_name, routes_name = tables
        source = exact.source(batch_name) if exact else batch_name
        model = self.definition.name
        try:
            for name, values in tables.items():
                cursor.register(name, values)
            found = cursor.sql(query(source, routes_name)).to_arrow_table()
        except duckdb.BinderException as error:
            why = str(error).splitlines()[0].removeprefix("Binder Error: ")
            raise data_error(f'model "{model}" cannot read these rows: {why}') from None
        except duckdb.CatalogException as error:
            why = str(error).splitlines()[0].removeprefix("Catalog Error: ")
            raise data_error(f'model "{model}" cannot read these rows: {why}{_ELSEWHERE}') from None
        except (duckdb.ConversionException, duckdb.InvalidInputException) as error:
            # A late thread of DuckDB 1 says first that a pending query failed, and then why.
            _, converting, told = str(error).partition("Conversion Error: ")
            if not converting:
                raise
            why = told.splitlines()[0]
            why = unreadable(cursor, source, features(self.definition)) or why
            raise data_error(f'model "{model}" cannot read these rows: {why}') from None
        finally:
            for name in tables:
                with suppress(duckdb.Error):
                    cursor.unregister(name)
        return [column.combine_chunks() for column in found.columns]

    def _scored_by_group(self, group: Codes, columns: Columns) -> FloatArray:
        """Return the outputs (n, width) of the learner's ``score`` for each group's rows, NaN: no prediction."""
        outputs = np.full((len(group), self._predictions.output.width), np.nan)
        for place, at in _runs(group):
            if place < 0:
                continue
            own = self._outputs(self._groups[place], columns.taken(at, self._own.dictionaries[place]))
            if (wider := own.shape[1] - outputs.shape[1]) > 0:
                outputs = np.pad(outputs, ((0, 0), (0, wider)), constant_values=np.nan)
            outputs[at, : own.shape[1]] = own
        return outputs

    def _outputs(self, group: GroupModel, columns: Columns) -> FloatArray:
        """Return the outputs (n, width) of the model's answer; NaN: no prediction."""
        parts = self._parts(group, columns.n_rows)
        return np.concatenate([self._outputs_of(group, columns.rows(part)) for part in parts])

    def _parts(self, group: GroupModel, n_rows: int) -> list[slice]:
        """Return the parts of a group's rows that are encoded at a time."""
        width = 0 if self._learner.declaration.handles_sparse else sum(widths_of(group.fitted))
        step = max(1, _DENSE_VALUES // width) if width else max(1, n_rows)
        return [slice(start, start + step) for start in range(0, max(1, n_rows), step)]

    def _usable(self, group: GroupModel, columns: Columns) -> tuple[Matrix, npt.NDArray[np.int64]]:
        """Return the features of the rows that can be predicted, and which these are."""
        dense_columns = None if self._learner.declaration.handles_sparse else sum(widths_of(group.fitted))
        x = encode(group.fitted, columns, dense_columns) if group.fitted else np.zeros((columns.n_rows, 0))
        usable = np.arange(x.shape[0]) if self._learner.declaration.handles_missing else _finite_rows(x)
        return x[usable], usable

    def _outputs_of(self, group: GroupModel, columns: Columns) -> FloatArray:
        x, usable = self._usable(group, columns)
        if not usable.size:
            return np.full((columns.n_rows, self._predictions.output.width), np.nan)
        # Extreme features may overflow: an infinite value is a prediction, NaN is none.
        with np.errstate(over="ignore", invalid="ignore"):
            score = self._predictions.output.outputs(self._scored(group, x), group.classes)
        outputs = np.full((columns.n_rows, score.shape[1]), np.nan)
        outputs[usable] = score
        return outputs

    def _scored(self, group: GroupModel, x: Matrix) -> FloatArray:
        try:
            learner = predicting(self._learner, self.definition.configs[group.config])
            return learner.score(self.definition.label, group.artifact, x)
        except ValueError as error:  # raised by a user's network
            raise data_error(f'model "{self.definition.name}" cannot predict: {error}') from None


def _runs(group: Codes) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Return each group number with its rows."""
    order = np.argsort(group, kind="stable")
    numbers, first = np.unique(group[order], return_index=True)
    return list(zip(numbers.tolist(), np.split(order, first[1:]), strict=True))


def _finite_rows(x: Matrix) -> npt.NDArray[np.int64]:
    if not isinstance(x, np.ndarray):
        bad = np.zeros(x.shape[0], dtype=bool)
        bad[np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))[~np.isfinite(x.data)]] = True
        return np.flatnonzero(~bad)
    return np.flatnonzero(np.isfinite(x).all(axis=1))


def load_scorer(con: duckdb.DuckDBPyConnection, model: StoredModel) -> Scorer:
    """Return the model ready for scoring; raises DataError if a stored artifact is damaged."""
    profiles = read_profiles(con, model)
    return Scorer(model.definition, load_groups(con, model), lambda: profiles)


def scorer_of(definition: ModelDefinition, outcome: RunOutcome) -> Scorer:
    """Return a newly trained model ready for scoring, without the catalog."""
    best = dict(zip(outcome.found.ids.tolist(), outcome.found.best.tolist(), strict=True))
    thresholds = _thresholds(definition, outcome)
    groups = [
        GroupModel(
            *(group.id, group.level, group.keys, facts.fitted, facts.classes, artifact, best[group.id]),
            threshold=thresholds.get(group.id, 0.5),
            calibration=facts.calibration,
        )
        for group, facts, artifact in outcome.found.best_models()
    ]
    return Scorer(definition, groups, lambda: outcome.profiles)


def _thresholds(definition: ModelDefinition, outcome: RunOutcome) -> dict[int, float]:
    """Return the thresholds of groups that have one, by number; see ``ModelDefinition.threshold_sql``."""
    name, found = definition.threshold_metric, outcome.found
    if name is None:
        return {}
    valid, train = (found.trials.metric(part, name) for part in ("valid", "train"))
    known = np.where(np.isnan(valid), train, valid)
    chosen = found.is_best & ~np.isnan(known)
    return dict(zip(found.trials.group[chosen].tolist(), known[chosen].tolist(), strict=True))
