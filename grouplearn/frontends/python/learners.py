"""``grouplearn.register_learner``: learners of other people and of the user's own, to be named in ``USING``."""

from __future__ import annotations

from grouplearn.bind.run.options import WITH_OPTIONS
from grouplearn.errors import ProgrammingError
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.third_party import checked


def register_learner(learner: Learner | type[Learner]) -> None:
    """Register a learner, or its class: ``TRAIN MODEL m USING its_name ...`` trains it like a built-in one.

    It inherits from ``SequentialLearner``, ``AlgebraicLearner`` or ``SamplingLearner`` of ``grouplearn.learners.contract.ways``
    and declares what it is, see docs/learners.md; what it declares is checked here. It is known to this process, from now on;
    registering a name again replaces the learner for the statements that follow. Other processes import its class: with
    executor = 'ray' it is of a module that they find. Packages name theirs as entry points of the group ``grouplearn.learners``
    instead. Raises ProgrammingError.
    """
    try:
        make_known(checked(learner))
    except ValueError as error:
        raise ProgrammingError(f"register_learner: {error}") from None


def unregister(name: str) -> None:
    """Forget a registered network or learner; raises ProgrammingError when there is none of that name."""
    try:
        registry.unregister(name.casefold())
    except KeyError:
        raise ProgrammingError(f'no learner "{name}" is registered') from None


def make_known(learner: Learner) -> None:
    """Put a learner into the registry; raises ValueError for a name that it cannot have, or that a hyperparameter cannot."""
    taken = [parameter.name for parameter in learner.hyperparameters if parameter.name in WITH_OPTIONS]
    if taken:
        raise ValueError(f"{taken[0]} is an option of TRAIN; name the hyperparameter otherwise")
    registry.register(learner)
