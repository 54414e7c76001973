"""VALIDATE bound: how rows are held out, and whether training can stop early by them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from grouplearn import sqltext
from grouplearn.bind.bound import Holdout
from grouplearn.bind.run.options import has_rounds
from grouplearn.bind.run.run_options import RunOptions
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding import types
from grouplearn.data.split import Split
from grouplearn.learners.contract.learner import Learner
from grouplearn.parser.statements import (
    Sql,
    TrainModel,
    ValidateFolds,
    ValidateNone,
    ValidateRolling,
    ValidateSample,
    ValidateWhere,
)

#: Most steps back from the end of a group that a split counts.
_FARTHEST = (1 << 15) - 1
#: Share of each group held out without VALIDATE (kingpin 5).
DEFAULT_HOLDOUT = 0.1


@dataclass(frozen=True)
class HoldoutBinder:
    """Binds VALIDATE of a statement over ``source``, its FROM and WHERE."""

    checker: SqlChecker
    statement: TrainModel
    source: tuple[str | Sql, ...]

    def given(self) -> Holdout | None:
        """Return what VALIDATE says, None where it is absent."""
        match self.statement.validation:
            case None:
                return None
            case ValidateNone():
                return Holdout("none")
            case ValidateWhere(predicate):
                self._refuse_other_than_condition(predicate)
                return Holdout("where", predicate=predicate)
            case ValidateSample(percent):
                value = self.checker.constant(percent)
                if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not 0 < value < 100:
                    raise self.checker.error(
                        f"VALIDATE SAMPLE takes more than 0% and less than 100%, got {sqltext.shown(value)}%",
                        percent.span,
                    )
                return Holdout("sample", share=float(value) / 100)
            case ValidateFolds(folds):
                value = self.checker.constant(folds)
                if not isinstance(value, int) or not 2 <= value <= 1000:
                    raise self.checker.error(
                        f"VALIDATE FOLDS takes a whole number from 2 to 1000, got {sqltext.shown(value)}", folds.span
                    )
                return Holdout("folds", split=Split(value))
            case ValidateRolling():
                return self._rolling(self.statement.validation)

    def _rolling(self, rolling: ValidateRolling) -> Holdout:
        """Return windows that are judged after the rows that train them."""
        statement, by = self.statement, rolling.by
        if len(statement.group_by.sets if statement.group_by else ()) > 1:
            hint = "Write GROUP BY without ROLLUP, CUBE and GROUPING SETS."
            raise self.checker.error("VALIDATE ROLLING takes one level of groups", rolling.windows.span, hint)
        if by is None and statement.order_by is None:
            hint = "Name it: VALIDATE ROLLING 3 BY day HORIZON 7."
            raise self.checker.error("VALIDATE ROLLING needs the time of a row", rolling.windows.span, hint)
        if by is not None and statement.order_by is not None:
            message = "a series has the time that ORDER BY gives, and VALIDATE ROLLING names another"
            raise self.checker.error(message, by.span, "Leave BY out.")
        if by is not None:
            self.checker.describe("SELECT (", by, ")", *self.source)
        windows, horizon = self._amount(rolling.windows, 1), self._amount(rolling.horizon, 1)
        step = horizon if rolling.step is None else self._amount(rolling.step, 1)
        gap = 0 if rolling.gap is None else self._amount(rolling.gap, 0)
        split = Split(windows, horizon=horizon, step=step, gap=gap)
        if split.farthest > _FARTHEST:
            message = f"the windows reach {split.farthest - 1:,} steps back, and at most {_FARTHEST - 1:,} are counted"
            raise self.checker.error(message, rolling.windows.span, "Take fewer windows, or a shorter STEP or HORIZON.")
        return Holdout("rolling", by=by, split=split)

    def _amount(self, written: Sql, least: int) -> int:
        """Return a whole number of steps or windows."""
        value = self.checker.constant(written)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _FARTHEST:
            message = f"VALIDATE ROLLING takes whole numbers from {least} to {_FARTHEST:,}, got {sqltext.shown(value)}"
            raise self.checker.error(message, written.span)
        return value

    def last_steps(self, horizon: int) -> Holdout:
        """Return the holdout of series without VALIDATE: the last steps, unless too few are left to train on."""
        return Holdout("rolling", split=Split(1, spares=True, horizon=min(horizon, _FARTHEST - 1), step=horizon))

    def _refuse_other_than_condition(self, predicate: Sql) -> None:
        found = self.checker.describe("SELECT (", predicate, ")", *self.source)
        if len(found) == 1 and found[0].type in ("BOOLEAN", '"NULL"'):
            return
        told = f"this has type {found[0].type}" if len(found) == 1 else f"this gives {len(found)} columns"
        number = len(found) == 1 and types.kind(found[0].type) == "numeric"
        hint = f"Write {predicate.text.strip()} <> 0." if number else "Compare it with a value."
        raise self.checker.error(f"VALIDATE WHERE takes a condition, and {told}", predicate.span, hint)

    def unless_given(self, several: bool, options: RunOptions, refits: bool) -> Holdout:
        """Return the holdout without VALIDATE: a tenth of each group.

        The model that is kept is of all rows where the default ``refits``. Where it does not, one configuration trains on
        every row, unless it stops early; and so does one without a label, which nothing can judge.
        """
        if several or options.training.early_stopping is not None:
            return Holdout("sample", share=DEFAULT_HOLDOUT, split=Split(spares=refits))
        if not refits or self.statement.target is None:
            return Holdout("none")
        return Holdout("sample", share=DEFAULT_HOLDOUT, split=Split(1, spares=True))

    def check_early_stopping(self, holdout: Holdout, learner: Learner) -> None:
        """Raise if early stopping has nothing to stop, or no held-out rows."""
        span = next(
            option.name.span for option in self.statement.options if option.name.value.casefold() == "early_stopping"
        )
        if learner.declaration.default_epochs is None and not has_rounds(learner):
            message = f"{learner.declaration.name} has no epochs, so there is nothing to stop early"
            raise self.checker.error(message, span, "It is solved in one pass over the data.")
        if holdout.kind in ("sample", "where"):
            return
        hint = "Use VALIDATE SAMPLE 10% or VALIDATE WHERE ... with early_stopping."
        raise self.checker.error("early_stopping needs rows held out from the model that is kept", span, hint)
