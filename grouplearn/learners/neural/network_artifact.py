"""Finished networks of a user's making: the tensors of a module, and what the module is made from as JSON text beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.hyperparameter_values import are_declared
from grouplearn.learners.contract.problem import Problem, Task
from grouplearn.learners.contract.state import Artifact
from grouplearn.learners.neural.network_module import Recipe, torch_on_one_thread

#: The tensor of an artifact that says, as JSON text, how its module is made again.
MADE_FROM = "made_from"
_MODULE = "module/"
_SIZES = ("n_features", "n_classes", "label_length", "seed", "epochs")
#: Numbers more than there are tensors for that a module may have: another network of the name is told when it predicts.
_SMALL = 1 << 22


def written(what: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    """Return what a module is made from as a tensor."""
    return np.frombuffer(json.dumps(what, sort_keys=True).encode(), dtype=np.uint8)


def made_from(artifact: Artifact) -> tuple[Problem, Config]:
    """Return what the module of a model is made from."""
    what = json.loads(artifact.tensors[MADE_FROM].tobytes())
    values = what.pop("hyperparameters")
    config = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return Problem(**{**what, "task": Task(what["task"])}), config


def own_tensors(artifact: Artifact) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of the module by their names in it."""
    return {name.removeprefix(_MODULE): value for name, value in artifact.tensors.items() if name != MADE_FROM}


def flaw(recipe: Recipe, declared: Sequence[Hyperparameter], problem: Problem, artifact: Artifact) -> str | None:
    """Return why a model is none that a network makes for such a group.

    The sizes that ``make_module`` is given are those of the group, the hyperparameters within the ranges that are declared, and
    what it makes is not far larger than the tensors.
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
    two = problem.task is Task.MULTICLASS and problem.n_classes == 2
    if what["task"] != problem.task.value and not (two and what["task"] == Task.BINARY.value):
        return f"its module is made for {str(what['task'])[:40]!r}, not {problem.task.value}"
    expected = {"n_features": problem.n_features, "label_length": problem.label_length}
    if problem.task is Task.MULTICLASS:
        expected["n_classes"] = problem.n_classes
    found = next((name for name, value in expected.items() if what[name] != value), None)
    if found is not None:
        return f"its module is made for {found} = {what[found]}, not {expected[found]}"
    return None


def _wrong_config(declared: Sequence[Hyperparameter], values: Any) -> str | None:
    """Return which hyperparameter has a value that is none, or beyond what the network declares that is registered today.

    One that it does not declare is given to ``make_module`` as it is, which does not ask for it.
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
    recipe: Recipe, problem: Problem, config: Config, tensors: Mapping[str, npt.NDArray[Any]]
) -> str | None:
    """Return that the module is far larger than the tensors that are to fill it, known before it is in memory.

    What cannot be made without memory, and whether the tensors fit, is seen when it predicts.
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
