"""FEATURES AUTO, also where FEATURES is absent: each AUTO becomes the items that a user would have written.

Before: FEATURES AUTO EXCEPT (comment). After: FEATURES (zscore(age, income, impute := 'mean'), onehot(city)).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from grouplearn import sqltext
from grouplearn.bind.auto.choice import Taste, chosen, features, shown
from grouplearn.bind.auto.seen import SeenColumn, SeenRows, copies, fields_of, may_have_copies, seen
from grouplearn.bind.bound import AutoFeatures, BoundTarget
from grouplearn.bind.clauses.feature_advice import NONE_LEFT, as_written
from grouplearn.bind.clauses.search import searched
from grouplearn.bind.sql.checker import Column, SqlChecker
from grouplearn.bind.sql.expressions import Replay
from grouplearn.learners.contract.learner import Learner
from grouplearn.messages import did_you_mean
from grouplearn.parser.statements import Feature, Name, Sql, TrainModel

_PENALTIES = ("l1", "l2")


class AutoBinder:
    """Chooses features among ``columns``, those of the statement's rows that nothing else uses."""

    def __init__(
        self,
        checker: SqlChecker,
        source: Sequence[str | Sql],
        replay: Replay,
        statement: TrainModel,
        learner: Learner,
    ) -> None:
        self._checker, self._source, self._replay = checker, source, replay
        self._statement = statement
        declared = learner.declaration
        penalised = any(name in _PENALTIES for name in _mentioned(statement))
        trees = declared.handles_missing and not declared.takes_series  # a series without a value has no row
        self._taste = Taste(trees, declared.needs_scaling or penalised)

    def bind(
        self, columns: Sequence[Column], others: Iterable[Column], target: BoundTarget | None, keys: Sequence[Sql]
    ) -> AutoFeatures:
        """Return the features; ``others`` are the columns of FROM that the statement uses otherwise."""
        span = self._statement.source.span
        written = self._statement.features or (Feature((Sql("AUTO", span),), auto_except=(), span=span),)
        auto, *twice = [feature for feature in written if feature.is_auto]
        if twice:
            raise self._checker.error("AUTO stands for all columns, and is given twice", twice[0].span)
        others = list(others)
        rows = self._seen(self._kept(auto, columns, others), auto, target, keys)
        items, left = chosen(rows, self._taste)
        if not items:
            message = f"no column is left to be a feature: {shown(left)}"
            raise self._checker.error(message, auto.span, "Name features in FEATURES (...).")
        place = written.index(auto)
        found = (*written[:place], *features(items, auto.span), *written[place + 1 :])
        meant = ", ".join(f"{as_written(column.name)} as {column.meant}" for column in rows.columns if column.meant)
        if any(column.says_missing for column in rows.columns):
            meant += ", '-' and the like as missing"
        every = [*columns, *others] if may_have_copies(rows) else []
        return AutoFeatures(found, shown(left), meant, copies(self._checker, self._source, every) if every else "")

    def _seen(
        self, columns: Sequence[Column], feature: Feature, target: BoundTarget | None, keys: Sequence[Sql]
    ) -> SeenRows:
        span = feature.span
        self._replay.refuse_ambiguous_among([column.name for column in columns], span)
        each = [SeenColumn(column.name, Sql(as_written(column.name), span), column.type) for column in columns]
        fields = [field for column in each for field in fields_of(self._checker, self._source, column)]
        return seen(self._checker, self._source, fields, target, keys)

    def _kept(self, feature: Feature, columns: Sequence[Column], others: Iterable[Column]) -> Sequence[Column]:
        """Return the columns without those of EXCEPT, and without those that stand beside AUTO as they are."""
        known = {sqltext.folded(column.name) for column in columns}
        used = {sqltext.folded(column.name) for column in others}
        if not feature.auto_except and sqltext.folded(feature.arguments[0].text) in known:
            self._refuse_column(feature)
        for name in feature.auto_except or ():
            self._refuse_unknown(name, known, used)
        excluded = {sqltext.folded(name.value) for name in feature.auto_except or ()}
        kept = [column for column in columns if sqltext.folded(column.name) not in excluded]
        if not kept:
            raise self._checker.error("no column is left to be a feature", feature.span, NONE_LEFT)
        return kept

    def _refuse_column(self, feature: Feature) -> None:
        """Raise BindError for AUTO written in a list where it is a column, too."""
        listed = self._statement.features
        if listed is not None and self._checker.text[: feature.span.start].rstrip().endswith(("(", ",")):
            message = f"{feature.arguments[0].text} means all columns here, and it is a column, too"
            raise self._checker.error(
                message, feature.span, 'Write "auto" in double quotes for the column, or FEATURES AUTO.'
            )

    def _refuse_unknown(self, name: Name, known: set[str], used: set[str]) -> None:
        if sqltext.folded(name.value) not in known | used:
            hint = did_you_mean(name.value, sorted(known))
            raise self._checker.error(f'AUTO EXCEPT: there is no column "{name.value}"', name.span, hint)


def _mentioned(statement: TrainModel) -> Iterator[str]:
    """Yield the names of hyperparameters that a statement gives or searches, in lower case."""
    yield from (option.name.value.casefold() for option in statement.options)
    yield from (name.value.casefold() for name in (searched(statement.search) if statement.search else ()))
