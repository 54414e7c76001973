"""What a session and a machine keep: SET and RESET of our options, CALIBRATE."""

from __future__ import annotations

from grouplearn import answers, training
from grouplearn.parser.statements import Calibrate, ResetCalibration, SetOption
from grouplearn.plan import calibration
from grouplearn.plan.bind import bind_learner
from grouplearn.plan.judge import Judge
from grouplearn.plan.options import check_setting, known_setting
from grouplearn.workplace import Workplace


def set_option(statement: SetOption, judge: Judge, at: Workplace) -> str:
    """Keep a setting for the statements to come, or forget it."""
    name = statement.name.value.casefold()
    if statement.value is None:
        at.settings.pop(known_setting(judge, statement.name), None)
        return answers.notice(f"{name} is reset")
    setting, value = check_setting(judge, statement.name, statement.value)
    at.settings[setting] = value
    return answers.notice(f"{name} is {value}")


def calibrate(statement: Calibrate, judge: Judge, at: Workplace) -> str:
    """Measure the coefficients of estimates, and return a query of them."""
    _refuse_outside(judge, statement)
    learner = bind_learner(judge, statement.learner).name if statement.learner else None
    columns = ("subject", "coefficient", "default", "measured", "unit")
    return answers.table(columns, training.calibrate(learner, at.cancelled))


def reset_calibration(statement: ResetCalibration, judge: Judge, at: Workplace) -> str:  # noqa: ARG001
    """Forget what was measured."""
    _refuse_outside(judge, None)
    return answers.notice("calibration is reset" if calibration.forget() else "nothing was calibrated")


def _refuse_outside(judge: Judge, statement: Calibrate | None) -> None:
    span = statement.learner.span if statement is not None and statement.learner else None
    judge.outside.refuse(calibration.path().parent, judge.text, span)
