"""From a parsed TRAIN to a bound one: DuckDB checks the SQL, the registry checks the names.

No row is read, unless a label of whole numbers may be two classes or a number: then its values say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from grouplearn import sqltext
from grouplearn.bind import ways
from grouplearn.bind.auto.auto import AutoBinder
from grouplearn.bind.bound import AutoFeatures, BoundKey, BoundTarget, BoundTrain
from grouplearn.bind.clauses.features import BoundItem, FeatureBinder
from grouplearn.bind.clauses.held_out import HeldOutBinder
from grouplearn.bind.clauses.holdout import HoldoutBinder
from grouplearn.bind.clauses.label import LabelBinder
from grouplearn.bind.clauses.lags import over_lags
from grouplearn.bind.clauses.metric import bind_metric
from grouplearn.bind.clauses.refit import refits, refits_by_default
from grouplearn.bind.clauses.search import SearchBinder, bind_within, searched
from grouplearn.bind.clauses.series import SeriesBinder
from grouplearn.bind.clauses.steps_ahead import StepsAhead
from grouplearn.bind.learner_aliases import learner_meant
from grouplearn.bind.objectives import BoundHyperparameters, implies_classes
from grouplearn.bind.run import standard_errors
from grouplearn.bind.run.options import bind_options
from grouplearn.bind.run.pooling import pooled_items
from grouplearn.bind.run.run_options import RunOptions
from grouplearn.bind.sql import bounds as sql_bounds
from grouplearn.bind.sql.checker import Column, SqlChecker
from grouplearn.bind.sql.expressions import Replay, columns_used, deep_stack, is_call, read_ahead, samples
from grouplearn.bind.sql.leaks import LabelLeaks
from grouplearn.bind.sql.reading import leaves_out_rows, rows_of
from grouplearn.bind.sql.rowwise import refuse_aggregates, refuse_places, refuse_unnested, refuse_windows
from grouplearn.bind.sql.volatile import Volatility
from grouplearn.data.encoding import types
from grouplearn.data.encoding.numbers.offset import Offset
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import OFFSET
from grouplearn.messages import did_you_mean
from grouplearn.models.definition import SQL_TYPES, HyperparameterColumn, KeyColumn
from grouplearn.models.forms.forms import form_error
from grouplearn.parser.statements import (
    Feature,
    GroupBy,
    Name,
    Sql,
    TrainModel,
    ValidateRolling,
    ValidateWhere,
)

#: Most models for KEEP BEST: the catalog stores the number as an INTEGER.
_MOST_KEPT = (1 << 31) - 1


def bind(
    checker: SqlChecker,
    statement: TrainModel,
    catalog: str,
    schema: str,
    settings: Mapping[str, Any],
    views: Sequence[str] | None = None,
) -> BoundTrain:
    """Return the bound statement; raises BindError with a position and a hint for every unknown or unsuitable name.

    ``views`` are the names of users' views in the current transaction, None where they are not known.
    """
    try:
        with deep_stack():
            return _Binder(checker, statement, settings).bind(catalog, schema, views)
    except RecursionError:
        message = "the statement has an expression that is nested too deeply to be read"
        raise checker.error(message, None, "Compute it in steps: FROM (SELECT *, ... AS part FROM ...).") from None


def learner_of(checker: SqlChecker, statement: TrainModel, settings: Mapping[str, Any]) -> Learner:
    """Return the learner of a statement over rows, by the way that it chooses; raises BindError."""
    return ways.choose(checker, bind_learner(checker, statement.learner), statement.options, settings)


def options_of(checker: SqlChecker, statement: TrainModel, settings: Mapping[str, Any]) -> RunOptions:
    """Return how a statement runs, without a look at FROM; raises BindError for an unknown learner or option."""
    return bind_options(checker, learner_of(checker, statement, settings), statement.options, settings)[0]


def bind_learner(checker: SqlChecker, name: Name) -> Learner:
    """Return the learner of that name."""
    asked = name.value.casefold()
    learner = registry.learner(asked) if registry.is_known(asked) else None
    if learner is None or learner.declaration.over_lags:
        message = f'unknown learner "{name.value}"\nLearners: {", ".join(registry.names())}'
        raise checker.error(message, name.span, _learner_meant(name.value))
    if error := form_error(learner):
        raise checker.error(f"the learner {learner.declaration.name} cannot be used: {error}", name.span)
    return learner


def _learner_meant(typed: str) -> str | None:
    """Return what a name of another library means here, or a "did you mean" of the closest name, or the shortest with it."""
    names = registry.names()
    longer = [name for name in names if typed.casefold() in name]
    by_spelling = did_you_mean(typed, names) or (did_you_mean(min(longer, key=len), longer) if longer else None)
    return learner_meant(typed) or by_spelling


#: Levels (a cast and parentheses) and words that are added around a stored expression.
_KEPT_WITHIN, _KEPT_TOKENS = 4, 8


class _Binder:
    def __init__(self, checker: SqlChecker, statement: TrainModel, settings: Mapping[str, Any]) -> None:
        self._checker = checker
        self._settings = settings
        learner = bind_learner(checker, statement.learner)
        self._statement = statement = over_lags(checker, statement, learner)
        if statement.order_by is not None:
            learner = registry.of_series(learner.declaration.name) or learner
        self._learner = ways.choose(checker, learner, statement.options, settings)
        self._source = rows_of(statement.source, statement.where, leaves_out_rows(statement.source.text))

    def bind(self, catalog: str, schema: str, views: Sequence[str] | None) -> BoundTrain:
        statement = self._statement
        options, fixed = bind_options(self._checker, self._learner, statement.options, self._settings)
        fixed |= ways.solver_option(self._learner)
        implied = implies_classes(self._learner, statement, fixed)
        options = options.changed({"within": bind_within(self._checker, statement.within)})
        told, estimation = options.rows, options.estimation
        weight = [each for each in (told.weight, estimation.offset, estimation.cluster) if each]
        read_ahead(self._checker, self._source, [*self._expressions(), *weight])
        self._refuse_query_sample()
        columns = self._checker.describe("SELECT *", *self._source)
        volatility = Volatility(self._checker, views)
        volatility.refuse_source(statement.source)
        self._source = rows_of(statement.source, statement.where, volatility.leaves_out_rows)
        volatility.refuse([each for each in (statement.where, statement.having) if each])
        self._folded = frozenset(sqltext.folded(column.name) for column in columns)
        self._replay = Replay(self._checker, self._source, columns)
        self._check_weight(told.weight)
        cluster = standard_errors.bind_cluster(self._checker, statement.options, estimation, self._source, self._replay)
        if told.watermark is not None:
            self._checker.describe("SELECT max(", told.watermark, ")", *self._source)
        target = LabelBinder(
            self._checker, statement, self._learner, self._source, self._replay, told.task, implied, told.weight
        ).bind()
        label = [target.extract] if target else []
        keys = self._keys(target, statement.group_by)
        # Before the features, whose error on a missing encoder would come first.
        called = [each for each in [*label, *(key.extract for key in keys)] if "(" in each.text]
        if called:
            refuse_aggregates(self._checker, self._source, called)
        self._having()
        auto = self._auto(columns, target, keys, [*label, *(key.extract for key in keys), *weight])
        if auto is not None:
            self._statement = statement = replace(statement, features=auto.features)
        ordered = SeriesBinder(self._checker, statement, self._learner, self._source)
        series_keys = self._keys(target, statement.series_by)
        series = ordered.bind(options.rows.frequency, series_keys, keys, target.extract if target else None)
        kept = HeldOutBinder(self._checker, statement, self._source, self._replay, options)
        held_out = kept.bind(target, series)
        rows = HoldoutBinder(self._checker, statement, self._source)
        holdout_given = rows.given()
        keyed = [key.extract for key in (*keys, *(series.keys if series else ()))]
        told_apart = [key.extract for key in held_out or ()]
        volatility.refuse([*label, *keyed, *weight, *told_apart])
        if isinstance(statement.validation, ValidateWhere):
            hint = "VALIDATE SAMPLE 20% draws rows at random, the same ones for one seed."
            volatility.refuse([statement.validation.predicate], hint)
        taken = [*label, *(key.extract for key in keys), *weight]
        in_order = [series.time, *(key.extract for key in series.keys)] if series else []
        features = ordered.features(series) if series else statement.features or ()
        items = self._items(columns, target, [*taken, *in_order], features, estimation.offset)
        volatility.refuse([item.source for item in items])
        self._refuse_unstorable([*label, *weight, *(key.extract for key in keys), *(item.source for item in items)])
        typed = [
            *([(target.type, target.extract)] if target else []),
            *((key.stored.type, key.extract) for key in keys),
        ]
        self._refuse_long_types([*typed, *((item.stored.type, item.source) for item in items)])
        if series:
            fixed |= ordered.defaults(series, fixed, holdout_given)
            if statement.features is not None and target is not None:
                ahead = StepsAhead(self._checker, self._source, columns)
                known = [item.source for item in items[2:]]
                self._source = ahead.added(series, keys, target, known, int(str(fixed["horizon"])))
        configs, search = SearchBinder(self._checker, self._learner, options).bind(statement, fixed)
        chosen = BoundHyperparameters(self._checker, statement, self._learner, configs, search)
        if target:
            chosen.check_label(target)
        chosen.check_features(items)
        if estimation.offset is not None:
            chosen.check_offset()
        items = pooled_items(self._checker, statement, self._learner, (configs, search), items)
        standard_errors.refuse_idle(
            self._checker, statement.options, self._learner, configs if search is None else None
        )
        chosen.check_operator(options.placement.operator)
        several = search is not None or len(configs) > 1
        refits_anyway = refits_by_default(statement, self._learner, options, search)
        if series and holdout_given is None:
            holdout = rows.last_steps(ordered.judged(series, fixed))
        else:
            holdout = holdout_given or rows.unless_given(several, options, refits_anyway)
        kept.refuse_unable(holdout, self._learner, search)
        refuse_windows(self._checker, [*(item.extract for item in items), *told_apart])
        per_row = [*self._per_row(label, items, weight), *(key.extract for key in keys), *told_apart]
        refuse_unnested(self._checker, per_row)
        refuse_aggregates(self._checker, self._source, per_row)
        if "rowid" not in self._folded:
            refuse_places(self._checker, per_row)
        if options.training.early_stopping is not None:
            rows.check_early_stopping(holdout, self._learner)
        refit = refits(self._checker, statement, holdout, options, search)
        self._refuse_idle_options(target)
        registry.check_installed(self._learner)
        return BoundTrain(
            statement=statement,
            catalog=catalog,
            schema=schema,
            name=statement.name.name,
            learner=self._learner,
            source=self._source,
            columns=columns,
            target=target,
            weight_sql=None if options.rows.weight is None else self._replay.stored(options.rows.weight),
            keys=keys,
            sets=statement.group_by.sets if statement.group_by else ((),),
            items=items,
            series=series,
            left_out=self._left_out(columns, taken, auto),
            configs=configs,
            search=search,
            hyperparameters=self._hyperparameter_columns(fixed),
            holdout=holdout,
            metric=chosen.metric(
                bind_metric(self._checker, self._learner, statement.metric, target),
                bool(target and target.classification),
            ),
            keep_best=1 if refit else self._keep(),
            refit=refit,
            options=options,
            auto=auto,
            held_out=held_out,
            cluster=cluster,
            notes=auto.notes if auto else (),
        )

    def _expressions(self) -> list[Sql]:
        """Return all expressions over the rows of FROM."""
        statement = self._statement
        written = [feature for feature in statement.features or () if not feature.is_auto]
        found = [argument for feature in written for argument in feature.arguments]
        found += [statement.target.expression] if statement.target else []
        for keys in (statement.group_by, statement.series_by):
            found += keys.keys if keys else ()
        return found

    def _refuse_unstorable(self, expressions: Sequence[Sql]) -> None:
        """Raise for SQL with the character 0, where DuckDB's parser ends: no other session could read it."""
        for expression in expressions:
            if "\0" in expression.text:
                hint = 'Name the column otherwise: FROM (SELECT * RENAME ("..." AS name) FROM ...).'
                raise self._checker.error("an expression cannot have the character 0", expression.span, hint)
            if (reason := sql_bounds.excess(expression.text, _KEPT_WITHIN)) is not None:
                hint = "Compute it in FROM (SELECT *, ... AS name FROM ...): a model keeps its expressions."
                raise self._checker.error(f"the expression {reason}", expression.span, hint)
        texts = {expression.text for expression in expressions}
        if sum(sql_bounds.tokens(text) + _KEPT_TOKENS for text in texts) > sql_bounds.MOST_TOGETHER:
            message = f"the expressions have more than {sql_bounds.MOST_TOGETHER:,} words, numbers and commas together"
            raise self._checker.error(
                message, expressions[-1].span, "Compute them in FROM (SELECT *, ... AS name FROM ...)."
            )

    def _refuse_long_types(self, types_of: Iterable[tuple[str | None, Sql]]) -> None:
        for kind, expression in types_of:
            if kind is not None and len(kind) > sql_bounds.LONGEST_TYPE:
                message = f"its type has {len(kind):,} characters, and a model keeps types of at most {sql_bounds.LONGEST_TYPE:,}"
                raise self._checker.error(message, expression.span, f"Write CAST({expression.text} AS VARCHAR).")

    def _refuse_query_sample(self) -> None:
        source = self._statement.source
        if samples(self._checker, source):
            hint = "Write FROM table TABLESAMPLE reservoir(10%) REPEATABLE (seed), or keep the sample in a table first."
            raise self._checker.error("USING SAMPLE is a clause of a whole query, not of FROM", source.span, hint)

    # --- groups ----------------------------------------------------------------------------------------------------

    def _keys(self, target: BoundTarget | None, group_by: GroupBy | None) -> tuple[BoundKey, ...]:
        """Return the keys of GROUP BY, or of SERIES BY."""
        if group_by is None:
            return ()
        clause = "GROUP BY" if group_by is self._statement.group_by else "SERIES BY"
        refuse_windows(self._checker, group_by.keys)
        keys: list[BoundKey] = []
        for position, fragment in enumerate(group_by.keys):
            described = self._checker.describe("SELECT", fragment, *self._source)
            if len(described) != 1:
                raise self._checker.error(f"{clause} takes one expression per key", fragment.span)
            if fragment.text.strip().isdigit():
                raise self._checker.error(f"{clause} takes expressions, not positions", fragment.span)
            if len(group_by.sets) > 1 and is_call(self._checker, fragment, "row"):
                message = "a row without names is grouped by its parts, and cannot be one key of ROLLUP, CUBE or GROUPING SETS"
                hint = (
                    "Name the parts, {'a': a, 'b': b}, or compute the row in FROM (SELECT *, row(a, b) AS k FROM ...)."
                )
                raise self._checker.error(message, fragment.span, hint)
            if unreadable := types.unreadable_part(described[0].type):
                message = f"a key of type {described[0].type} has no text from which it could be read again"
                members = {"UNION": "Group by a member of it: union_extract(x, 'name')."}
                hint = members.get(unreadable, "Cast it, e.g. x::VARCHAR.")
                raise self._checker.error(message, fragment.span, types.about(fragment.text, hint))
            alias = group_by.aliases[position] if position < len(group_by.aliases) else None
            stored = self._replay.stored(fragment)
            if target and sqltext.folded(stored.strip()) == sqltext.folded(target.stored.strip()):
                message = (
                    f'"{fragment.text.strip()}" is both the label and a {clause} key: each group would have one label'
                )
                raise self._checker.error(message, fragment.span, "Group by something else, or predict something else.")
            name = alias.value if alias else described[0].name
            while any(sqltext.folded(key.stored.name) == sqltext.folded(name) for key in keys):
                name += "_2"
            keys.append(BoundKey(KeyColumn(name, stored, described[0].type), fragment))
        return tuple(keys)

    def _having(self) -> None:
        having = self._statement.having
        if having:
            self._checker.describe("SELECT 1", *named_keys(self._statement), *self._source, *grouping(self._statement))

    def _refuse_idle_options(self, target: BoundTarget | None) -> None:
        """Raise for an option that would have no effect in this statement."""
        if target is None:
            return
        weighable = target.classification and target.array is None
        kind = "a number" if target.array is None else "an array"
        reasons = {
            name: None if weighable else f"{name} is for classes, and the label is {kind}"
            for name in ("class_weight", "positive_class")
        }
        for option in self._statement.options:
            reason = reasons.get(option.name.value.casefold())
            if reason:
                raise self._checker.error(reason, option.name.span)

    # --- features --------------------------------------------------------------------------------------------------

    def _items(
        self,
        columns: tuple[Column, ...],
        target: BoundTarget | None,
        taken: list[Sql],
        features: Sequence[Feature],
        offset: Sql | None,
    ) -> tuple[BoundItem, ...]:
        """Return the ``features`` and the ``offset``; a star has the columns that neither the expressions ``taken`` nor the
        holdout use."""
        used = self._used(taken) | self._used(self._held_out_by())
        leaks = LabelLeaks(self._checker, self._replay, columns, target.extract if target else None)
        binder = FeatureBinder(self._checker, self._source, self._replay, self._learner, leaks, used)
        items = binder.bind([*features, *self._offset(offset)])
        if offset is None:
            return items
        stored = items[-1].stored
        return (*items[:-1], replace(items[-1], stored=replace(stored, item=replace(stored.item, encoder=Offset.name))))

    def _offset(self, offset: Sql | None) -> tuple[Feature, ...]:
        """Return the offset as the last of the features: its weight is 1."""
        if offset is None:
            return ()
        learner = self._learner.declaration
        if not learner.has_offset:
            having = [each for each in registry.names() if registry.learner(each).declaration.has_offset]
            solver = f" by solver '{learner.solver}'" if learner.name in having else ""
            how = " with ORDER BY" if learner.over_lags else solver
            message = f"{learner.name}{how} takes no offset\nLearners that do: {', '.join(having)}"
            raise self._checker.error(message, offset.span)
        described = self._checker.describe("SELECT CAST((", offset, ") AS DOUBLE)", *self._source)
        if len(described) != 1:
            raise self._checker.error("offset takes one expression", offset.span)
        named = Name(OFFSET, offset.span)
        return (Feature((Sql(f"CAST(({offset.text}\n) AS DOUBLE)", offset.span),), alias=named, span=offset.span),)

    def _auto(
        self, columns: Sequence[Column], target: BoundTarget | None, keys: Sequence[BoundKey], taken: Sequence[Sql]
    ) -> AutoFeatures | None:
        """Return the features that AUTO stands for, None where the statement has none of them."""
        statement = self._statement
        own = self._learner.declaration
        absent = statement.features is None and statement.order_by is None and not own.takes_series
        if not absent and not any(feature.is_auto for feature in statement.features or ()):
            return None
        times = [each for each in (statement.order_by,) if each]
        series = statement.series_by.keys if statement.series_by else ()
        used = self._used([*taken, *times, *series, *self._held_out_by()]) | self._beside_auto()
        kept = [column for column in columns if sqltext.folded(column.name) not in used]
        others = [column for column in columns if sqltext.folded(column.name) in used]
        binder = AutoBinder(self._checker, self._source, self._replay, statement, self._learner)
        return binder.bind(kept, others, target, [key.extract for key in keys])

    def _beside_auto(self) -> frozenset[str]:
        """Return the (folded) columns that stand beside AUTO as they are, or in an encoder alone."""
        written = [feature for feature in self._statement.features or () if not feature.is_auto]
        texts = [argument.text.strip() for feature in written for argument in feature.arguments]
        return frozenset(sqltext.folded(sqltext.plain(text)) for text in texts) & self._folded

    def _used(self, expressions: Sequence[Sql]) -> frozenset[str]:
        """Return the (folded) columns that any of the expressions mentions."""
        return frozenset().union(*(columns_used(self._checker, fragment, self._folded) for fragment in expressions))

    def _held_out_by(self) -> list[Sql]:
        validation = self._statement.validation
        if isinstance(validation, ValidateRolling) and validation.by is not None:
            return [validation.by]
        return [validation.predicate] if isinstance(validation, ValidateWhere) else []

    def _left_out(self, columns: tuple[Column, ...], taken: list[Sql], auto: AutoFeatures | None) -> tuple[str, ...]:
        """Return the columns that are no features for the sole reason that VALIDATE looks at them."""
        features = self._statement.features or ()
        if auto is None and not any(each.arguments[0].text.lstrip().startswith("*") for each in features):
            return ()
        alone = self._used(self._held_out_by()) - self._used(taken)
        return tuple(
            each.name for each in columns if sqltext.folded(each.name) in alone and types.kind(each.type) != "other"
        )

    def _per_row(self, label: list[Sql], items: tuple[BoundItem, ...], weight: list[Sql]) -> list[Sql]:
        """Return every expression that is evaluated per row."""
        return [*label, *(item.extract for item in items), *self._held_out_by(), *weight]

    def _check_weight(self, weight: Sql | None) -> None:
        if weight is None:
            return
        column = self._checker.describe("SELECT", weight, *self._source)[0]
        if types.kind(column.type) != "numeric":
            raise self._checker.error(f"weight must be a number, and this is {column.type}", weight.span)

    # --- configurations --------------------------------------------------------------------------------------------

    def _hyperparameter_columns(self, fixed: Mapping[str, Any]) -> tuple[HyperparameterColumn, ...]:
        search = self._statement.search
        names = [name.value.casefold() for name in searched(search)] if search else []
        kinds = {parameter.name: parameter.kind for parameter in self._learner.declaration.hyperparameters}
        return tuple(HyperparameterColumn(name, SQL_TYPES[kinds[name]]) for name in dict.fromkeys([*names, *fixed]))

    # --- the rest --------------------------------------------------------------------------------------------------

    def _keep(self) -> int | None:
        keep = self._statement.keep
        if keep is None or keep.best is None:
            return None
        value = self._checker.constant(keep.best)
        if not isinstance(value, int) or not 1 <= value <= _MOST_KEPT:
            raise self._checker.error(
                f"KEEP BEST takes a whole number from 1 to {_MOST_KEPT}, got {sqltext.shown(value)}", keep.best.span
            )
        return value


def named_keys(statement: TrainModel) -> tuple[str | Sql, ...]:
    """Return the keys that the statement gives a name, as further columns of a query, where its HAVING may mean them by it."""
    pieces: list[str | Sql] = []
    if statement.group_by and statement.having:
        for key, alias in zip(statement.group_by.keys, statement.group_by.aliases, strict=False):
            if alias:
                pieces += [", (", key, f"\n) AS {sqltext.identifier(alias.value)}"]
    return tuple(pieces)


def grouping(statement: TrainModel) -> tuple[str | Sql, ...]:
    """Return GROUP BY and HAVING of a query over the source, as pieces, with grouping sets written out."""
    pieces: list[str | Sql] = []
    if statement.group_by:
        keys = statement.group_by.keys
        pieces.append("GROUP BY GROUPING SETS (")
        for number, members in enumerate(statement.group_by.sets):
            pieces.append("(" if number == 0 else ", (")
            for position, key in enumerate(members):
                pieces.extend([", "] if position else [])
                pieces.append(keys[key])
            pieces.append(")")
        pieces.append(")")
    if statement.having:
        pieces.extend(["HAVING", statement.having])
    return tuple(pieces)
