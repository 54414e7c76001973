"""``grouplearn.register_learner``: learners of third parties and users, for ``USING``."""

from __future__ import annotations

from grouplearn.bind.run.options import WITH_OPTIONS
from grouplearn.errors import ProgrammingError
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.third_party import checked
from grouplearn.models.forms.forms import form_error


def register_learner(learner: Learner | type[Learner]) -> None:
    """Register a learner, or its class: ``TRAIN MODEL m USING its_name ...`` trains it like a built-in one.

    It inherits from ``SequentialLearner``, ``AlgebraicLearner`` or ``SamplingLearner`` of
    ``grouplearn.learning``; its declarations (see docs/how-to/models/own-learner.md) are checked here. It is known in this
    process from now on; registering a name again replaces the learner for later statements. Other processes import its
    class, so with executor = 'ray' it must be in an importable module. Packages can use the entry point group
    ``grouplearn.learners`` instead. Raises ProgrammingError.
    """
    try:
        make_known(checked(learner))
    except ValueError as error:
        raise ProgrammingError(f"register_learner: {error}") from None


def unregister(name: str) -> None:
    """Remove a registered network or learner; raises ProgrammingError if the name is unknown."""
    try:
        registry.unregister(name.casefold())
    except KeyError:
        raise ProgrammingError(f'no learner "{name}" is registered') from None


def make_known(learner: Learner) -> None:
    """Add a learner to the registry; raises ValueError for an invalid name of it or its hyperparameters."""
    taken = [parameter.name for parameter in learner.declaration.hyperparameters if parameter.name in WITH_OPTIONS]
    if taken:
        raise ValueError(f"{taken[0]} is an option of TRAIN; name the hyperparameter otherwise")
    if error := form_error(learner):
        raise ValueError(f"{type(learner).__name__}: {error}")
    registry.register(learner)
