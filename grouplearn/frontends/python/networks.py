"""``grouplearn.register``: a user's own networks, for ``USING``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from grouplearn.errors import ProgrammingError
from grouplearn.frontends.python.learners import make_known
from grouplearn.learners.contract.config import Value
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.neural.declared_hyperparameters import declaration
from grouplearn.learners.neural.network import Network
from grouplearn.learners.third_party import is_name
from grouplearn.messages import did_you_mean
from grouplearn.models.label import LABELS_OF_TASK, Label


def register(
    name: str,
    make_module: Callable[[Problem, Mapping[str, Value]], Any],
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    tasks: str | Iterable[str] = ("regression", "classification"),
    summary: str = "A network registered in this process",
) -> None:
    """Register a network: ``TRAIN MODEL m USING name ...`` trains the ``torch.nn.Module`` that ``make_module`` returns.

    ``make_module(problem, config)`` is called once per group and configuration, and again whenever its tensors move:
    ``problem`` has ``task``, ``n_features``, ``n_classes``, ``label_length`` and ``n_outputs``, ``config`` maps every
    hyperparameter to its value. The module takes x (rows, n_features) and returns a value or the logit (rows, 1), or a logit
    for each of k classes (rows, k); where the label is an array of L values, (rows, k, ...) with L values per class.

    ``hyperparameters`` maps names to defaults, or to mappings with ``default``, ``low``, ``high``, ``open_low``,
    ``choices``, ``doc``; they work in OVER and WITH like ``learning_rate``, ``optimizer``, ``momentum``, ``l1``, ``l2``,
    ``batch_size`` and ``precision``, which every network has. ``loss(outputs, labels)`` returns the loss of each row, shape
    (rows, ...); without it ½(y-ŷ)² or cross entropy. ``tasks`` is "regression", "classification" or both.

    A network is known in this process from now on; registering a name again replaces it for later statements. Its models
    are stored as tensors, never as code: register the network before predicting with one. Raises ProgrammingError.
    """
    try:
        if not is_name(name):
            raise ValueError(f"the name of a network is an identifier, such as my_unet, got {name!r}")
        if not callable(make_module) or (loss is not None and not callable(loss)):
            raise ValueError("make_module, and loss if given, must be functions")
        own = declaration(name, summary, _tasks(tasks), hyperparameters or {})
        make_known(Network(own, make_module, loss))
    except ValueError as error:
        raise ProgrammingError(f"register: {error}") from None


def _tasks(tasks: str | Iterable[str]) -> frozenset[Label]:
    given = [tasks] if isinstance(tasks, str) else list(tasks)
    unknown = [each for each in given if each not in LABELS_OF_TASK]
    if unknown or not given:
        hint = did_you_mean(str(unknown[0]), LABELS_OF_TASK) if unknown else None
        raise ValueError(
            f"tasks are {' and '.join(reversed([*LABELS_OF_TASK]))}, got {given!r}" + (f". {hint}" if hint else "")
        )
    return frozenset().union(*(LABELS_OF_TASK[each] for each in given))
