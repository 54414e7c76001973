"""The numbers and hyperparameters of ALTER MODEL: of versions that there are, of trials in the search that trains."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from grouplearn.bind.run.options import bind_hyperparameter
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import conflict
from grouplearn.messages import did_you_mean
from grouplearn.parser.statements import AddTrial, Sql
from grouplearn.search.procedures import SearchPlan


def bind_version(checker: SqlChecker, number: Sql, model: str, versions: Collection[int], listed: str) -> int:
    """Return the number of a version that there is; ``listed`` are all for people."""
    value = checker.constant(number)
    if isinstance(value, bool) or not isinstance(value, int) or value not in versions:
        shown = "NULL" if value is None else str(value)
        message = f'model "{model}" has no version {shown}\nVersions: {listed}'
        hint = f"FROM {model}_versions says what they are, and FROM {model}_history which others there were."
        raise checker.error(message, number.span, hint)
    return value


def bind_trial(checker: SqlChecker, number: Sql, trials: Mapping[int, Config]) -> int:
    """Return the number of a trial that there is."""
    value = checker.constant(number)
    if isinstance(value, bool) or not isinstance(value, int) or value not in trials:
        shown = "NULL" if value is None else str(value)
        message = f"there is no trial {shown}; the trials are 0 to {max(trials, default=0)}"
        raise checker.error(message, number.span, "DESCRIBE MODEL lists the trials of a model in training.")
    return value


def bind_added(
    checker: SqlChecker,
    statement: AddTrial,
    learner: Learner,
    plan: SearchPlan,
    trials: Mapping[int, Config],
    going: frozenset[int],
) -> tuple[Config, int | None]:
    """Return the configuration of a further trial and the trial whose state it continues.

    Hyperparameters that are not given are those of that trial. Only the trials ``going`` on have a state to continue.
    """
    given: dict[str, Any] = {}
    searched = set(plan.searched)
    for option in statement.options:
        value = bind_hyperparameter(checker, learner, option.name, option.value)
        name = option.name.value.casefold()
        if name not in searched:
            message = f"{name} is not searched: OVER names {', '.join(sorted(searched))}"
            raise checker.error(message, option.name.span, did_you_mean(name, searched))
        given[name] = value
    missing = sorted(searched - given.keys())
    if statement.parent is None:
        if missing:
            message = f"no value is given for {', '.join(missing)}"
            raise checker.error(message, statement.span, "Give it, or continue a trial: FROM TRIAL n.")
        config = consistent(checker, statement, learner, {**plan.base, **given})
        check_new(checker, statement, config, trials)
        return config, None
    if not plan.continues or plan.resource == "iterations":
        how = {"epochs": "in one go", "iterations": "with one configuration to its end"}.get(
            plan.resource, "anew on more rows"
        )
        message = f"OVER {plan.method.upper()} trains every trial {how}, so none can be continued"
        raise checker.error(message, statement.parent.span, "Leave FROM TRIAL out.")
    parent = bind_trial(checker, statement.parent, trials)
    if parent not in going:
        message = f"trial {parent} has stopped, and its state is gone"
        raise checker.error(message, statement.parent.span, "DESCRIBE MODEL lists the trials that go on.")
    config = consistent(checker, statement, learner, {**trials[parent], **given})
    _check_shape(checker, statement, learner, config, trials[parent])
    check_new(checker, statement, config, trials)
    return config, parent


def consistent(checker: SqlChecker, statement: AddTrial, learner: Learner, config: Config) -> Config:
    """Return a trial's configuration; raise if its values contradict each other."""
    contradiction = conflict(learner, config)
    if contradiction:
        given = {option.name.value.casefold(): option.value.span for option in statement.options}
        found = (given[name] for name in contradiction.parameters if name in given)
        raise checker.error(contradiction.message, next(found, statement.span))
    return config


def check_new(checker: SqlChecker, statement: AddTrial, config: Config, trials: Mapping[int, Config]) -> None:
    """Raise if a trial has these hyperparameters, which tell the trials of a group apart."""
    same = next((number for number, each in trials.items() if each == config), None)
    if same is not None:
        message = f"trial {same} has the same hyperparameters"
        raise checker.error(message, statement.span, "Change one of them: they tell the trials of a group apart.")


def _check_shape(checker: SqlChecker, statement: AddTrial, learner: Learner, config: Config, parent: Config) -> None:
    key = learner.pack_key(parent)
    if learner.pack_key(config) == key:
        return
    for option in statement.options:
        name = option.name.value.casefold()
        if learner.pack_key({**parent, name: config[name]}) != key:
            message = f"a trial cannot be continued with another {name}: its state has another shape"
            raise checker.error(message, option.name.span, "Leave FROM TRIAL out to begin anew.")
