"""ALTER MODEL ... STOP TRIAL and ADD TRIAL, and what DESCRIBE MODEL shows, while a search trains in this process."""

from __future__ import annotations

from grouplearn.bind.alter import bind_added, bind_trial
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.parser.statements import AddTrial, QualifiedName, StopTrial
from grouplearn.search.procedures import SearchPlan
from grouplearn.statements import result_sql
from grouplearn.statements.workflow.trial_control import IN_TRAINING, Addition, Halt, Place, TrialControl


def stop_trial(statement: StopTrial, checker: SqlChecker, place: Place) -> str:
    """Send a command to stop a trial in all groups; raise if there is no such trial in training."""
    control, _ = _search(statement.name, checker, place)
    trial = bind_trial(checker, statement.trial, {each.trial: each.config for each in control.standings()})
    control.send(Halt(trial))
    return result_sql.notice(f"trial {trial} stops at the end of this round")


def add_trial(statement: AddTrial, checker: SqlChecker, place: Place) -> str:
    """Send a command to add a trial in all groups; raise if no search is in training, or it cannot have this trial."""
    control, plan = _search(statement.name, checker, place)
    standings = control.standings()
    trials = {each.trial: each.config for each in standings}
    going = frozenset(each.trial for each in standings if each.going_on)
    config, parent = bind_added(checker, statement, control.learner, plan, trials, going)
    control.send(Addition(config, parent))
    return result_sql.notice("the trial begins with the next round")


def trials_sql(control: TrialControl, plan: SearchPlan) -> str:
    """Return a SELECT of the trials of a search at its last barrier."""
    rows = [
        (
            each.trial,
            ", ".join(f"{name} = {result_sql.shown(each.config[name])}" for name in plan.searched),
            each.epochs,
            each.going_on,
        )
        for each in control.standings()
    ]
    return result_sql.table(("trial", "hyperparameters", "epochs", "groups_going_on"), rows)


def _search(name: QualifiedName, checker: SqlChecker, place: Place) -> tuple[TrialControl, SearchPlan]:
    control = IN_TRAINING.find(place)
    if control is None:
        message = f'this process is not training a model "{name.name}"'
        hint = "Trials are stopped and added while TRAIN runs, from another connection of the same process."
        raise checker.error(message, name.span, hint)
    if control.plan is None:
        message = f'the trials of model "{name.name}" train in one round, so none can be stopped or added'
        raise checker.error(message, name.span, "OVER HYPERBAND, ASHA, PBT and TPE train in rounds.")
    return control, control.plan
