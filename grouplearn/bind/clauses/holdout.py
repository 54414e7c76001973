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
from grouplearn.parser.statements import Sql, TrainModel, ValidateFolds, ValidateNone, ValidateSample, ValidateWhere

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
            raise self.checker.error(message, span, "It is solved exactly in one pass over the data.")
        if holdout.kind in ("sample", "where"):
            return
        hint = "Use VALIDATE SAMPLE 10% or VALIDATE WHERE ... with early_stopping."
        raise self.checker.error("early_stopping needs rows held out from the model that is kept", span, hint)
