"""Persistent settings of sessions and machines: SET and RESET of our options, CALIBRATE."""

from __future__ import annotations

from grouplearn.bind.bind import bind_learner
from grouplearn.bind.run.options import check_setting, known_setting
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.parser.statements import Calibrate, ResetCalibration, SetOption
from grouplearn.plan import calibration
from grouplearn.statements import result_sql
from grouplearn.statements.context import StatementContext
from grouplearn.statements.workflow import training


def set_option(statement: SetOption, checker: SqlChecker, at: StatementContext) -> str:
    """Store a setting for later statements, or reset it."""
    name = statement.name.value.casefold()
    if statement.value is None:
        at.settings.pop(known_setting(checker, statement.name), None)
        return result_sql.notice(f"{name} is reset")
    setting, value = check_setting(checker, statement.name, statement.value)
    at.settings[setting] = value
    return result_sql.notice(f"{name} is {value}")


def calibrate(statement: Calibrate, checker: SqlChecker, at: StatementContext) -> str:
    """Measure the cost coefficients, and return a query of them and of what could not be measured."""
    _refuse_outside(checker, statement)
    learner = bind_learner(checker, statement.learner).declaration.name if statement.learner else None
    columns = ("subject", "coefficient", "default", "measured", "unit", "error")
    return result_sql.table(columns, training.calibrate(learner, at.cancelled))


def reset_calibration(statement: ResetCalibration, checker: SqlChecker, at: StatementContext) -> str:  # noqa: ARG001
    """Delete all measurements."""
    _refuse_outside(checker, None)
    return result_sql.notice("calibration is reset" if calibration.forget() else "nothing was calibrated")


def _refuse_outside(checker: SqlChecker, statement: Calibrate | None) -> None:
    span = statement.learner.span if statement is not None and statement.learner else None
    checker.outside.refuse(calibration.path().parent, checker.text, span)
