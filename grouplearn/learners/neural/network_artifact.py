"""Finished networks of users: a module's tensors, and the arguments that it was made with as JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.hyperparameter_values import are_declared
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.neural.network_module import RegisteredNetwork, torch_on_one_thread
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.state import Artifact

#: The tensor with the arguments of ``make_module``, as JSON text.
MADE_FROM = "made_from"
_MODULE = "module/"
_SIZES = ("n_features", "n_classes", "label_length", "seed", "epochs")
#: How many more numbers than the stored tensors a module may have; a different network is reported when it predicts.
_SMALL = 1 << 22


def written(what: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    """Return the arguments of a module as a tensor."""
    return np.frombuffer(json.dumps(what, sort_keys=True).encode(), dtype=np.uint8)


def made_from(artifact: Artifact) -> tuple[Problem, Config]:
    """Return the arguments that a model's module was made with."""
    what = json.loads(artifact.tensors[MADE_FROM].tobytes())
    values = what.pop("hyperparameters")
    config = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return Problem(Label.named(what["task"]), **{name: size for name, size in what.items() if name != "task"}), config


def own_tensors(artifact: Artifact) -> dict[str, npt.NDArray[Any]]:
    """Return the module's tensors by their names in it."""
    return {name.removeprefix(_MODULE): value for name, value in artifact.tensors.items() if name != MADE_FROM}


def validation_error(
    recipe: RegisteredNetwork, declared: Sequence[Hyperparameter], problem: Problem, artifact: Artifact
) -> str | None:
    """Return why a model cannot be this network's for such a group.

    The sizes given to ``make_module`` must be the group's, the hyperparameters within their declared ranges, and the module
    not far larger than the tensors.
    """
    if artifact.format != "tensors" or MADE_FROM not in artifact.tensors:
        return "it does not say what its module is made from"
    try:
        what = json.loads(artifact.tensors[MADE_FROM].tobytes())
    except (ValueError, RecursionError):
        return "what its module is made from is no JSON"
    wrong = _wrong_facts(what, problem) or _wrong_config(declared, what["hyperparameters"])
    return wrong or _wrong_size(recipe, *made_from(artifact), own_tensors(artifact))


def _wrong_facts(what: Any, problem: Problem) -> str | None:
    if not isinstance(what, dict) or what.keys() != {"task", "hyperparameters", *_SIZES}:
        return "it says something else than what its module is made from"
    if not all(type(what[name]) is int and what[name] >= 0 for name in _SIZES):
        return "its module is made from sizes that are none"
    two = problem.label == SEVERAL_CLASSES and problem.n_classes == 2
    if what["task"] != problem.label.name and not (two and what["task"] == TWO_CLASSES.name):
        return f"its module is made for {str(what['task'])[:40]!r}, not {problem.label.name}"
    expected = {"n_features": problem.n_features, "label_length": problem.label_length}
    if problem.label == SEVERAL_CLASSES:
        expected["n_classes"] = problem.n_classes
    found = next((name for name, value in expected.items() if what[name] != value), None)
    if found is not None:
        return f"its module is made for {found} = {what[found]}, not {expected[found]}"
    return None


def _wrong_config(declared: Sequence[Hyperparameter], values: Any) -> str | None:
    """Return which hyperparameter has an invalid value or is out of the range that the currently registered network declares.

    Undeclared ones are passed to ``make_module``, which does not read them.
    """
    if not isinstance(values, dict):
        return "it has no hyperparameters"
    known = {each.name: each for each in declared}
    for name, value in values.items():
        each = value if isinstance(value, list) else [value]
        if not all(one is None or isinstance(one, bool | int | float | str) for one in each):
            return f"its hyperparameter {name[:60]} is no value"
        given = {name: tuple(value) if isinstance(value, list) else value}
        if name in known and not are_declared([known[name]], given):
            return f"its hyperparameter {name[:60]} = {str(value)[:60]} is beyond what the network declares"
    return None


def _wrong_size(
    recipe: RegisteredNetwork, problem: Problem, config: Config, tensors: Mapping[str, npt.NDArray[Any]]
) -> str | None:
    """Return that the module is far larger than its stored tensors, determined without allocating it.

    If it cannot be made without allocation, or the tensors do not fit, that is reported when it predicts.
    """
    torch = torch_on_one_thread()
    try:
        with torch.device("meta"):
            module = recipe.make_module(problem, MappingProxyType(dict(config)))
        needed = sum(int(value.numel()) for value in module.state_dict().values())
    except Exception:
        return None
    there = sum(value.size for value in tensors.values())
    if needed <= there + _SMALL:
        return None
    return f"its module would have {needed:,} numbers, and there are {there:,}"
