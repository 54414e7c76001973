"""Users' modules: built from a seed, tensors extracted and loaded, outputs checked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Matrix
from grouplearn.learners.contract.config import Config, Value
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label

#: Rows scored together: the activations of a convolutional network take many times the memory of its input.
_SCORED_ROWS = 256
#: Rows of zeros with which a new module is tried.
_TRIED_ROWS = 2
#: Advice if tensors do not fit the module.
MISFIT = "register the network that the model was trained with, or train the model again"

#: torch's generator is global: whoever seeds it needs exclusive use.
_DRAWING = threading.RLock()


def torch_on_one_thread() -> Any:
    """Return torch, set to one thread: results must not depend on the number of cores.

    It is set at every call, as the number is per thread, and other libraries' limits restore the old one.
    """
    import torch

    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    return torch


@dataclass(frozen=True, slots=True)
class RegisteredNetwork:
    """What a user registered: functions that make a module and its loss; the name is for messages."""

    name: str
    make_module: Callable[[Problem, Mapping[str, Value]], Any]
    loss: Callable[[Any, Any], Any] | None

    def run(self, what: str, call: Callable[[], Any]) -> Any:
        """Return the result of the user's code; raises ValueError that names it if it fails."""
        try:
            return call()
        except (MemoryError, Interrupted):
            raise
        except Exception as error:
            raise ValueError(f"{what} of {self.name} raised {type(error).__name__}: {error}") from error


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Seed torch's generator for exclusive use by this thread, and restore it afterwards."""
    torch = torch_on_one_thread()
    with _DRAWING:
        before = torch.get_rng_state()
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_rng_state(before)


def dtype_of(config: Config) -> Any:
    """Return the floating type of weights and rows."""
    torch = torch_on_one_thread()
    return torch.float64 if config["precision"] == "double" else torch.float32


def built(recipe: RegisteredNetwork, problem: Problem, config: Config) -> Any:
    """Return the module from ``make_module``, tried on rows of zeros; raises ValueError if its output does not fit."""
    torch = torch_on_one_thread()
    with drawing(problem.seed):
        module = recipe.run("make_module", lambda: recipe.make_module(problem, MappingProxyType(dict(config))))
        if not isinstance(module, torch.nn.Module):
            kind = type(module).__name__
            raise ValueError(f"make_module of {recipe.name} returned an object of type {kind}, not a torch.nn.Module")
        module = module.to(dtype_of(config)).eval()
        zeros = torch.zeros(_TRIED_ROWS, problem.n_features, dtype=dtype_of(config))
        with torch.no_grad():  # also initialises lazy layers
            outputs_of(recipe, problem, module, zeros)
    return module


def outputs_of(recipe: RegisteredNetwork, problem: Problem, module: Any, x: Any) -> tuple[Any, Any]:
    """Return the module's output for ``x``, raw and as (rows, k, L); raises ValueError for another shape."""
    torch = torch_on_one_thread()
    z = recipe.run("the module", lambda: module(x))
    rows, classes = x.shape[0], problem.n_classes if problem.label == SEVERAL_CLASSES else 1
    if not isinstance(z, torch.Tensor):
        raise ValueError(f"the module of {recipe.name} returned an object of type {type(z).__name__}, not a tensor")
    fits = z.ndim and z.shape[0] == rows and z.numel() == rows * problem.n_outputs
    if not fits or (classes > 1 and z.shape[1] != classes):
        raise ValueError(
            f"the module of {recipe.name} gives outputs of shape {tuple(z.shape)} for {rows} rows,"
            f" and {_needed(rows, classes, problem.label_length)} is needed"
        )
    return z, z.reshape(rows, classes, problem.label_length)


def _needed(rows: int, classes: int, length: int) -> str:
    if length == 1:
        return f"({rows}, {classes})"
    return f"({rows}, {classes}, {length}), or any shape of ({rows}, {classes}, ...) with {length} values per class,"


def module_tensors(module: Any) -> dict[str, npt.NDArray[Any]]:
    """Return copies of the tensors of ``state_dict`` as ``module/<name>``; raises ValueError for other values."""
    torch, found = torch_on_one_thread(), {}
    for name, value in module.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"the module's state {name} is no tensor, and nothing else is stored")
        found[f"module/{name}"] = as_array(name, value)
    return found


def as_array(name: str, tensor: Any) -> npt.NDArray[Any]:
    """Return a copy of a tensor; raises ValueError if numpy has no such type."""
    try:
        array: npt.NDArray[Any] = tensor.detach().clone().numpy()
    except TypeError:
        raise ValueError(f"the module's tensor {name} is of type {tensor.dtype}, which cannot be stored") from None
    return array


def load_tensors(module: Any, tensors: Mapping[str, npt.NDArray[Any]], name: str) -> None:
    """Load tensors into a module; raises ValueError if they belong to another one."""
    torch, own = torch_on_one_thread(), module.state_dict()
    missing = own.keys() ^ tensors.keys()
    other = [key for key, value in own.items() if key in tensors and value.numel() != tensors[key].size]
    if missing or other:
        key = sorted(missing or other)[0]
        raise ValueError(f"the tensor {key} of the model does not fit the network {name} as it is registered: {MISFIT}")
    # A tensor without dimensions is stored with one.
    given = {key: torch.from_numpy(np.array(tensors[key])).reshape(value.shape) for key, value in own.items()}
    module.load_state_dict(given)


def predicted(recipe: RegisteredNetwork, problem: Problem, module: Any, x: Matrix) -> FloatArray:
    """Return values or probabilities (n, n_outputs) of a module in evaluation mode."""
    torch = torch_on_one_thread()
    dtype = _floating_type(module)
    module.eval()
    parts = []
    with torch.no_grad():
        for start in range(0, max(x.shape[0], 1), _SCORED_ROWS):
            rows = x[start : start + _SCORED_ROWS]
            dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
            if not dense.shape[0]:
                return np.empty((0, problem.n_outputs))
            _, z = outputs_of(recipe, problem, module, torch.from_numpy(np.ascontiguousarray(dense)).to(dtype))
            parts.append(_linked(torch, problem.label, z.to(torch.float64)).reshape(z.shape[0], -1).numpy())
    return np.concatenate(parts)


def _floating_type(module: Any) -> Any:
    torch = torch_on_one_thread()
    return next((each.dtype for each in module.state_dict().values() if each.is_floating_point()), torch.float32)


def _linked(torch: Any, label: Label, z: Any) -> Any:
    if label == NUMBER:
        return z
    return torch.sigmoid(z) if label == TWO_CLASSES else torch.softmax(z, 1)
