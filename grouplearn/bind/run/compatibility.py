"""Which operator runs which learner on which runtime, by their declarations: checked before any row is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import can_be_averaged, stops_between_batches, trains_in_gangs
from grouplearn.parser.statements import Option
from grouplearn.schedule.operators import OPERATORS, OPTIONS, OWNERS, STEADY, RunRules
from grouplearn.sqltext import shown


def changes_models(operator: str, learner: Learner) -> bool:
    """Return whether the operator makes other models of a learner than one worker would."""
    return _how(operator, learner).own_models


def depends_on(operator: str) -> str:
    """Return what such an operator's models depend on."""
    return OPERATORS[operator].models_depend_on


def is_movable(operator: str, learner: Learner) -> bool:
    """Return whether a run can continue with any number of workers and make the same models."""
    return operator in STEADY or not changes_models(operator, learner)


def runtimes(operator: str, learner: Learner) -> tuple[str, ...]:
    """Return the runtimes on which the operator runs a learner; none if it never does."""
    how = _how(operator, learner)
    return () if _unlike(how, learner) else how.runtimes


def refusal_reason(operator: str, learner: Learner, executor: str) -> str | None:
    """Return as a message why the operator cannot run a learner there (``auto``: anywhere), None if it can."""
    if operator not in OPERATORS:  # auto
        return None
    how, places = _how(operator, learner), runtimes(operator, learner)
    if executor in places or (executor == "auto" and places):
        return None
    unlike = _unlike(how, learner)
    if unlike:
        return f"operator {operator} does not run {learner.declaration.name}, because {unlike}"
    what = f"learners that train on {learner.access.words}"
    if not places:
        return f"operator {operator} does not run {what}, because {how.reason}"
    named = " or ".join(f"'{name}'" for name in places)
    return f"operator {operator} runs {what} with executor = {named} only, because {how.reason}"


def chosen(options: tuple[Option, ...], run: Mapping[str, Any]) -> str:
    """Return the operator that a statement names, or means by an option that chooses one; ``auto`` if neither."""
    operator = str(run.get("operator", "auto"))
    option = operator_option(options) if operator == "auto" else None
    return operator if option is None else OWNERS[option.name.value.casefold()][0]


def operator_option(options: tuple[Option, ...]) -> Option | None:
    """Return the option that chooses an operator where a statement names none, None if it has none."""
    given = ((option.name.value.casefold(), option) for option in options)
    return next((option for name, option in given if name in OPTIONS and OPTIONS[name].chooses_operator), None)


def refuse_contradictions(
    checker: SqlChecker, learner: Learner, options: tuple[Option, ...], run: Mapping[str, Any]
) -> None:
    """Raise for options, from WITH or SET, that the operator does not take together or of this learner."""
    declared = OPERATORS.get(run["operator"])
    found = declared.contradiction(run, learner) if declared else None
    if found is None:
        return
    spans = {option.name.value.casefold(): option.name.span for option in options}
    raise checker.error(found.message, spans.get(found.option) or spans.get("operator"), found.hint)


def refuse_options(checker: SqlChecker, learner: Learner, options: tuple[Option, ...], run: Mapping[str, Any]) -> None:
    """Raise for an option of operators in a statement that another one runs, or that the learner does not support."""
    given = {option.name.value.casefold(): option for option in options}
    operator = run["operator"]
    own = next((name for name, operators in OWNERS.items() if name in given and operator not in operators), None)
    if own is None:
        _refuse_unsupported(checker, learner, given, run)
        return
    other = "the operator that is fastest" if operator == "auto" else f"operator {operator}"
    plural = "operators" if len(OWNERS[own]) > 1 else "operator"
    message = f"{own} is an option of {plural} {' and '.join(OWNERS[own])}, and this statement is run by {other}"
    hint = OPTIONS[own].hint or f"Add operator = '{OWNERS[own][0]}'."
    raise checker.error(message, given[own].name.span, hint)


def _refuse_unsupported(
    checker: SqlChecker, learner: Learner, given: Mapping[str, Option], run: Mapping[str, Any]
) -> None:
    for name, option in OPTIONS.items():
        if name in given and not option.suits(run[name], stops_between_batches(learner)):
            message = (
                f"{name} must be {shown(option.default)}: {learner.declaration.name} does not say what its batches do"
            )
            raise checker.error(message, given[name].value.span)


def remedy(operator: str, learner: Learner) -> str | None:
    """Return what to write where RETRY or RESUME would continue in this process and the operator cannot."""
    if "ray" not in runtimes(operator, learner):
        return None
    return "WITH (executor = 'ray') starts other processes, and SET grouplearn_trust = true does what the file says."


def _unlike(how: RunRules, learner: Learner) -> str | None:
    """Return why the operator does not run this learner although it runs its access pattern; None if it does."""
    if how.gangs and not trains_in_gangs(learner):
        return "several workers cannot train one model of it"
    if how.means and not can_be_averaged(learner):
        return "the mean of several models of it is not known to be one"
    return None


def _how(operator: str, learner: Learner) -> RunRules:
    return OPERATORS[operator].how(learner.access)
