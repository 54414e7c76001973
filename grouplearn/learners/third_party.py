"""Learners of packages and users, checked when they are registered or loaded, before any training."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from grouplearn.learners.contract.config import SOLVER, Hyperparameter, solver_named
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.hyperparameter_values import resolve
from grouplearn.learners.contract.learner import Declaration, Learner, VectorLearner
from grouplearn.learners.contract.requirement import Requirement
from grouplearn.learners.contract.stacks import BoostedStackLearner, GatheringLearner, MomentsLearner, StackLearner
from grouplearn.learners.contract.ways import (
    AlgebraicLearner,
    AveragingLearner,
    BatchesLearner,
    DataParallelLearner,
    SamplingLearner,
    SequentialLearner,
)
from grouplearn.models.label import Label
from grouplearn.models.outputs.output import Output

#: The entry point group of packages' learners, as in ``median_sgd = "my_package.median:MedianSgd"``.
GROUP = "grouplearn.learners"
#: A learner must inherit from one of these access patterns.
_PATTERNS: tuple[type, ...] = (AlgebraicLearner, SequentialLearner, SamplingLearner)
#: The methods that a learner of each protocol must supply.
_SUPPLIES: Mapping[type, tuple[str, ...]] = {
    Learner: ("init", "finalize", "score"),
    AlgebraicLearner: ("accumulate", "merge", "step"),
    SequentialLearner: ("train",),
    SamplingLearner: ("boost",),
    GatheringLearner: ("gathers", "measure"),
    StackLearner: ("solve",),
    BoostedStackLearner: ("boost_together",),
    MomentsLearner: ("unclear", "solve_moments"),
    DataParallelLearner: ("joined", "descend"),
    VectorLearner: ("vectors",),
}


def checked(given: Learner | type[Learner]) -> Learner:
    """Return a learner, given as instance or class; raises ValueError if it declares something wrongly or lacks something."""
    if isinstance(given, type):
        try:
            return checked(given())
        except TypeError as error:
            raise ValueError(f"{given.__name__} cannot be made without arguments: {error}") from None
    learner, kind = given, type(given)
    patterns = [pattern for pattern in _PATTERNS if pattern in kind.__mro__]
    if len(patterns) != 1:
        named = ", ".join(pattern.__name__ for pattern in _PATTERNS)
        where = "of grouplearn.learning, by how it reads rows"
        raise ValueError(f"{kind.__name__} has to inherit from one of {named} {where}")
    problem = next(_problems(learner), None)
    if problem is not None:
        raise ValueError(f"{kind.__name__}: {problem}")
    return learner


def is_name(name: Any) -> bool:
    """Return whether a learner can have this name in USING."""
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None


def _problems(learner: Learner) -> Iterator[str]:
    kind = type(learner)
    lacking = [
        name
        for protocol, names in _SUPPLIES.items()
        if protocol in kind.__mro__
        for name in names
        if getattr(kind, name) is getattr(protocol, name)
    ]
    if lacking:
        yield f"it has no {lacking[0]}()"
    own = getattr(learner, "declaration", None)
    if not isinstance(own, Declaration):
        yield f"its declaration is a Declaration, got {own!r}"
        return
    if not is_name(own.name):
        yield f"its name is an identifier, such as my_unet, got {own.name!r}"
    if own.name != str(own.name).casefold():
        yield f"its name is in lower case, got {own.name!r}"
    if not isinstance(own.summary, str):
        yield "it declares no summary, which is a text"
    if (
        not isinstance(own.labels, frozenset)
        or not own.labels
        or not all(isinstance(label, Label) for label in own.labels)
    ):
        yield f"its labels are a frozenset of Label, got {own.labels!r}"
    elif not own.has_label and own.output is None:
        yield "a learner without a label declares its output"
    if own.output is not None and not (isinstance(own.output, type) and issubclass(own.output, Output)):
        yield f"its output is a class of Output, got {own.output!r}"
    elif own.output is not None and not hasattr(own.output, "metrics"):
        yield "its output has metrics, such as VALUES or CLASSES of grouplearn.learning"
    if own.default_epochs is not None and (type(own.default_epochs) is not int or own.default_epochs < 1):
        yield f"its default_epochs are a whole number from 1 on or None, got {own.default_epochs!r}"
    averaged = getattr(kind, "averaged", ())
    if AveragingLearner in kind.__mro__ and not (
        isinstance(averaged, tuple) and averaged and all(isinstance(n, str) for n in averaged)
    ):
        yield f"the tensors of its state that are averaged are a tuple of names, got {averaged!r}"
    parameters = getattr(kind, "parameters", ())
    if BatchesLearner in kind.__mro__ and not (
        isinstance(parameters, tuple) and parameters and all(isinstance(n, str) for n in parameters)
    ):
        yield f"the tensors of its state that a model predicts with are a tuple of names, got {parameters!r}"
    if not isinstance(learner.cost, Cost):
        yield f"its cost is a Cost, got {learner.cost!r}"
    if not (own.requires is None or isinstance(own.requires, Requirement)):
        yield f"what it requires is a Requirement or None, got {own.requires!r}"
    yield from _problems_of(own.hyperparameters)
    yield from _problems_of_ways(own)


def _problems_of_ways(first: Declaration) -> Iterator[str]:
    """Yield what is wrong with a learner's further ways: each must differ in its solver, and agree in the rest."""
    solvers = [first.solver, *(each.declaration.solver for each in first.further_ways)]
    if first.further_ways and not (all(solvers) and len(set(solvers)) == len(solvers)):
        yield f"each of its ways has a solver of its own, got {solvers!r}"
    for way in first.further_ways:
        own = way.declaration
        if (own.name, own.labels, own.form) != (first.name, first.labels, first.form):
            yield f"all its ways have one name, its labels and its form, and {own.solver!r} does not"
        if solver_named(own.solver, "").choices not in [p.choices for p in own.hyperparameters if p.name == SOLVER]:
            yield f"a way that is not its usual one has the hyperparameter solver_named({own.solver!r}, ...)"
        yield from (f"way {own.solver!r}: {problem}" for problem in _problems(way))


def _problems_of(hyperparameters: Any) -> Iterator[str]:
    if not isinstance(hyperparameters, tuple) or not all(isinstance(each, Hyperparameter) for each in hyperparameters):
        yield f"its hyperparameters are a tuple of Hyperparameter, got {hyperparameters!r}"
        return
    names = [each.name for each in hyperparameters]
    for each in hyperparameters:
        if not each.name.isidentifier() or each.name != each.name.casefold() or names.count(each.name) > 1:
            yield f"hyperparameters have lower-case names, each another, got {each.name!r}"
        try:
            fits = each.default is None or resolve(each, each.default) == each.default
        except ValueError as error:
            yield f"the default is not allowed: {error}"
        else:
            if not fits:
                yield f"the default of {each.name} is not of its type {each.kind}: {each.default!r}"


def installed() -> Iterator[Learner]:
    """Yield the learners of installed packages; those that fail to load are skipped with a warning."""
    for entry in entry_points(group=GROUP):
        try:
            learner = checked(entry.load())
            if learner.declaration.name != entry.name:
                raise ValueError(f"{entry.value} calls itself {learner.declaration.name}")
        except Exception as error:
            _warn(entry, f"{type(error).__name__}: {error}")
        else:
            yield learner


def warn_taken(learner: Learner) -> None:
    """Warn about a skipped learner whose name is taken."""
    warnings.warn(
        f'the learner "{learner.declaration.name}" of {type(learner).__module__} is left out: the name is taken',
        stacklevel=2,
    )


def _warn(entry: EntryPoint, why: str) -> None:
    package = entry.dist.name if entry.dist else entry.module
    warnings.warn(f'the package {package} offers the learner "{entry.name}", which cannot be used: {why}', stacklevel=2)
