"""Which way a statement trains by: the one that it names, else the first that its operator runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grouplearn.bind.run import compatibility
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.learners import registry
from grouplearn.learners.contract.config import SOLVER, Value
from grouplearn.learners.contract.learner import Learner
from grouplearn.messages import did_you_mean
from grouplearn.parser.statements import Option
from grouplearn.sqltext import shown


def choose(checker: SqlChecker, learner: Learner, options: tuple[Option, ...], settings: Mapping[str, Any]) -> Learner:
    """Return the way of ``learner`` that WITH asks for by solver or operator; raises BindError for an unknown solver."""
    ways = registry.ways(learner)
    given = {option.name.value.casefold(): option for option in options}
    if SOLVER in given and len(ways) > 1:
        return _named(checker, ways, given[SOLVER])
    operator = checker.constant(given["operator"].value) if "operator" in given else settings.get("operator")
    return _run_by(compatibility.chosen(options, {"operator": operator or "auto"}), ways)


def chooses(learner: Learner, name: str) -> bool:
    """Return whether an option in WITH only repeats the learner's default way, of several."""
    return name == SOLVER and learner.declaration.is_first_way and len(registry.ways(learner)) > 1


def solver_option(learner: Learner) -> dict[str, Value]:
    """Return the option of WITH that selects this way; the model table shows it, whatever selected it."""
    return {} if learner.declaration.is_first_way else {SOLVER: learner.declaration.solver}


def of_another(learner: Learner, name: str) -> str | None:
    """Return a hint for a hyperparameter that only other ways of the learner have; None if none has it."""
    own = learner.declaration
    others = [each.declaration for each in _all(learner) if each.declaration.solver != own.solver]
    if name == SOLVER:
        return "A statement trains by one solver: WITH (solver = ...)." if others else f"{own.name} has one solver."
    having = [each.solver for each in others if name in {parameter.name for parameter in each.hyperparameters}]
    return f"{name} is a hyperparameter of WITH (solver = '{having[0]}')." if having else None


def _all(learner: Learner) -> tuple[Learner, ...]:
    name = learner.declaration.stored_name
    return registry.ways(registry.learner(name)) if registry.is_known(name) else (learner,)


def _named(checker: SqlChecker, ways: tuple[Learner, ...], option: Option) -> Learner:
    value = checker.constant(option.value)
    found = next(
        (each for each in ways if isinstance(value, str) and each.declaration.solver == value.casefold()), None
    )
    if found is not None:
        return found
    solvers = [each.declaration.solver for each in ways]
    message = f"unknown solver {shown(value)}\nSolvers of {ways[0].declaration.name}: {', '.join(solvers)}"
    raise checker.error(message, option.value.span, did_you_mean(str(value), solvers))


def _run_by(operator: str, ways: tuple[Learner, ...]) -> Learner:
    """Return the first way that an operator runs; an unknown operator is reported elsewhere."""
    return next(
        (each for each in ways if compatibility.refusal_reason(operator.lower(), each, "auto") is None), ways[0]
    )
