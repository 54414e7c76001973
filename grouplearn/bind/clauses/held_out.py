"""WITH (keep_held_out = true, key = ...): whether predictions of held-out rows are kept, and what tells these rows apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from grouplearn.bind.bound import BoundKey, BoundTarget, Holdout, Series
from grouplearn.bind.run.compatibility import changes_models
from grouplearn.bind.run.run_options import RunOptions
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.bind.sql.expressions import Replay
from grouplearn.data.encoding import types
from grouplearn.learners.contract.learner import Learner
from grouplearn.messages import Span
from grouplearn.models.definition import KeyColumn
from grouplearn.parser.statements import Sql, TrainModel
from grouplearn.schedule.operators import OPERATORS
from grouplearn.search.procedures import SearchPlan

_KEEP, _KEY, _CALIBRATE = "keep_held_out", "key", "calibrate"


@dataclass(frozen=True)
class HeldOutBinder:
    """Binds the options of a statement over ``source``, its FROM and WHERE."""

    checker: SqlChecker
    statement: TrainModel
    source: tuple[str | Sql, ...]
    replayed: Replay
    options: RunOptions

    def bind(self, target: BoundTarget | None, series: Series | None) -> tuple[BoundKey, ...] | None:
        """Return what tells held-out rows apart, None if their predictions are not kept; raises BindError."""
        key = self.options.rows.key
        if self.options.training.calibrate and (
            target is None or target.array is not None or not target.classification
        ):
            message = "calibrate is for probabilities of two classes, and the statement has no such label"
            raise self.checker.error(message, self._span(_CALIBRATE))
        if not self.options.storage.keep_held_out:
            if key is not None:
                message = "key tells held-out rows apart, and their predictions are not kept"
                raise self.checker.error(message, self._span(_KEY), "Add keep_held_out = true.")
            return None
        if target is None or target.array is not None:
            what = "no label" if target is None else "an array as its label"
            raise self.checker.error(
                f"keep_held_out compares predictions with labels, and the statement has {what}", self._span(_KEEP)
            )
        if key is not None:
            return (self._key(key),)
        return () if series is None else (*series.keys, self._of(series.time, self._type(series.time)))

    def refuse_unable(self, holdout: Holdout, learner: Learner, search: SearchPlan | None) -> None:
        """Raise BindError if no row is held out, or folds cannot be trained once more."""
        if self._option is None:
            return
        for message, hint in self._reasons(self._option, holdout, learner, search):
            raise self.checker.error(message, self._span(self._option), hint)

    @property
    def _option(self) -> str | None:
        """The option that needs predictions of held-out rows, None if none does."""
        if self.options.storage.keep_held_out:
            return _KEEP
        return _CALIBRATE if self.options.training.calibrate else None

    def _reasons(
        self, option: str, holdout: Holdout, learner: Learner, search: SearchPlan | None
    ) -> Iterator[tuple[str, str]]:
        if holdout.kind == "none":
            yield (
                f"{option} needs predictions of rows that are held out, and none are",
                "Add VALIDATE FOLDS 5, VALIDATE SAMPLE 10% or VALIDATE WHERE ...",
            )
        if not holdout.split.folds:
            return
        again, sample = f"{option} trains the folds of the best configuration once more", "VALIDATE SAMPLE 10%"
        operator = self.options.placement.operator
        if search is not None:
            yield f"{again}, and OVER {search.method.upper()} does not", f"Take OVER GRID, or {sample}."
        if self.options.training.within is not None:
            yield f"{again}, and WITHIN ends training at any time", f"Leave out WITHIN, or take {sample}."
        if operator in OPERATORS and (OPERATORS[operator].plan.repeats or changes_models(operator, learner)):
            yield (
                f"{again}, and operator {operator} makes another model each time",
                f"Leave out operator, or take {sample}.",
            )

    def _key(self, key: Sql) -> BoundKey:
        kind = self._type(key)
        if types.unreadable_part(kind):
            message = f"a key of type {kind} has no text from which it could be read again"
            raise self.checker.error(message, key.span, types.about(key.text, "Cast it, e.g. x::VARCHAR."))
        return self._of(key, kind)

    def _type(self, expression: Sql) -> str:
        described = self.checker.describe("SELECT (", expression, ")", *self.source)
        if len(described) != 1:
            raise self.checker.error("key takes one expression", expression.span, "Several are one: {'a': a, 'b': b}.")
        return described[0].type

    def _of(self, expression: Sql, kind: str) -> BoundKey:
        (column,) = self.checker.describe("SELECT", expression, *self.source)
        written = expression.text.strip().removesuffix('"')
        name = column.name if written.endswith(column.name.replace('"', '""')) else _KEY
        return BoundKey(KeyColumn(name, self.replayed.stored(expression), kind), expression)

    def _span(self, name: str) -> Span:
        return next(each.name.span for each in self.statement.options if each.name.value.casefold() == name)
