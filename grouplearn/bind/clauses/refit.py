"""Whether the best configuration of each group trains again on all rows, and what REFIT cannot be combined with."""

from __future__ import annotations

from grouplearn.bind.bound import Holdout
from grouplearn.bind.run.compatibility import changes_models
from grouplearn.bind.run.run_options import RunOptions
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.learners.contract.learner import Learner
from grouplearn.parser.statements import TrainModel
from grouplearn.schedule.operators import OPERATORS
from grouplearn.search.procedures import SearchPlan


def refits(
    checker: SqlChecker, statement: TrainModel, holdout: Holdout, options: RunOptions, search: SearchPlan | None
) -> bool:
    """Return whether models train twice; raises BindError where REFIT is not supported, or nothing is held out."""
    if statement.refit is not None:
        for reason, hint in _reasons(statement, options, search):
            raise checker.error(reason, statement.refit.span, hint)
        if holdout.kind == "none":
            hint = "Add VALIDATE SAMPLE 10% or VALIDATE WHERE ..., or leave out REFIT."
            raise checker.error("REFIT trains on the rows that were held out, and none are", statement.refit.span, hint)
    return (
        bool(statement.refit or holdout.split.spares) and not holdout.split.folds
    )  # models kept after folds are of all rows anyway


def refits_by_default(statement: TrainModel, learner: Learner, options: RunOptions, search: SearchPlan | None) -> bool:
    """Return whether the models that are kept are of all rows where the statement has no VALIDATE.

    An operator whose models depend on what else is trained, or whose run can be repeated, does what the statement says.
    """
    operator = options.placement.operator
    if operator in OPERATORS and (OPERATORS[operator].plan.repeats or changes_models(operator, learner)):
        return False
    return not _reasons(statement, options, search)


def _reasons(statement: TrainModel, options: RunOptions, search: SearchPlan | None) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if search is not None:
        message = f"REFIT goes with OVER GRID and OVER RANDOM, and not with OVER {search.method.upper()}"
        found.append((message, "Train the configuration that it finds by a statement of its own, on all rows."))
    if options.training.early_stopping is not None:
        message = "with early_stopping the rows held out decide when training ends, so REFIT cannot train on them"
        found.append((message, "Leave out early_stopping, or REFIT."))
    if options.training.within is not None:
        found.append(
            ("REFIT begins when a search is over, and WITHIN ends it at any time", "Leave out one of the two.")
        )
    if options.repeated is not None:
        found.append(("a run that is replayed has no REFIT", "Leave out REFIT, or replay."))
    if statement.keep is not None and (statement.keep.best is None or statement.keep.best.text.strip() != "1"):
        found.append(("REFIT keeps one model of each group: the one of all rows", "Leave out KEEP."))
    return found
