"""Training of one user's module: batches, losses, penalty, and the optimizer's state as named tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Shard, Totals
from grouplearn.kernels.networks import visiting_order
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.neural.network_module import (
    RegisteredNetwork,
    as_array,
    drawing,
    dtype_of,
    module_tensors,
    outputs_of,
    torch_on_one_thread,
)
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label


class ModuleTraining:
    """A module with its optimizer during an epoch."""

    def __init__(
        self,
        recipe: RegisteredNetwork,
        problem: Problem,
        config: Config,
        module: Any,
        optimizer: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        self.recipe, self.problem, self.config, self.module = recipe, problem, config, module
        self.torch = torch_on_one_thread()
        self._optimizer = _optimizer(config, module)
        _load_slots(self._optimizer, module, optimizer)
        module.train()

    def visit(self, block: Shard, epoch: int, whole: Totals) -> float:
        """Visit the rows of a block once; return the sum of its batches' objectives, each times its rows."""
        x, y, weight = self.rows(block, visiting_order(self.problem.seed, epoch, block.n_rows, block.first), whole)
        total = 0.0
        for number, batch in enumerate(_batches(block.n_rows, int(self.config["batch_size"]))):  # type: ignore[arg-type]
            losses = self.losses(self.module, x[batch], y[batch], (epoch, block.first, number))
            objective = (losses * weight[batch]).mean() + self.penalty(whole.weight)
            total += self.descend(objective) * (batch.stop - batch.start)
        return total

    def rows(self, block: Shard, order: Any, whole: Totals) -> tuple[Any, Any, Any]:
        """Return x (n, d), y (n,) or (n, L) and w̃ (n,) in the order of a visit."""
        dense = block.x if isinstance(block.x, np.ndarray) else block.x.toarray()
        dtype = dtype_of(self.config)
        # Single-precision rows are widened here, block by block, for a module in double precision.
        x, weight = (
            self.torch.from_numpy(np.ascontiguousarray(values)).to(dtype)[order]
            for values in (dense, block.weight * (whole.n_rows / whole.weight))
        )
        classes = self.problem.label == SEVERAL_CLASSES
        y = self.torch.from_numpy(np.ascontiguousarray(block.y)).to(self.torch.int64 if classes else dtype)[order]
        return x, y, weight

    def losses(self, forward: Any, x: Any, y: Any, path: tuple[int, ...]) -> Any:
        """Return the loss of each row (rows,); ``path`` seeds the module's random numbers."""
        with drawing(_seed(self.problem.seed, *path)):
            z, outputs = outputs_of(self.recipe, self.problem, forward, x)
            if self.recipe.loss is None:
                return _default_losses(self.torch, self.problem.label, outputs, y.reshape(x.shape[0], -1)).mean(1)
            loss = self.recipe.loss
            found = self.recipe.run("loss", lambda: loss(z, y))
        if not isinstance(found, self.torch.Tensor) or not found.ndim or found.shape[0] != x.shape[0]:
            shape = tuple(found.shape) if isinstance(found, self.torch.Tensor) else type(found).__name__
            raise ValueError(
                f"loss of {self.recipe.name} gave {shape} for {x.shape[0]} rows; it returns one loss per row "
                "(reduction='none'), as rows have weights"
            )
        return found.reshape(x.shape[0], -1).mean(1)

    def penalty(self, total: float) -> Any:
        """Return (l1·‖w‖₁ + ½·l2·‖w‖²)/Σwᵢ over the parameters of two or more dimensions."""
        l1, l2 = float(self.config["l1"]), float(self.config["l2"])  # type: ignore[arg-type]
        if not l1 and not l2:
            return self.torch.zeros(())
        weights = [each for each in self.module.parameters() if each.ndim > 1]
        return sum(l1 * each.abs().sum() + 0.5 * l2 * (each**2).sum() for each in weights) / total

    def descend(self, objective: Any) -> float:
        """Take one step down the gradient of ``objective`` and return its value."""
        self._optimizer.zero_grad()
        self.recipe.run("the gradient", objective.backward)
        self._optimizer.step()
        return float(objective.detach())

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """Return copies of all tensors: ``module/<name>`` and ``optimizer/<slot>/<name>``."""
        found = module_tensors(self.module)
        for name, parameter in self.module.named_parameters():
            for slot, value in self._optimizer.state.get(parameter, {}).items():
                if value is not None:
                    found[f"optimizer/{slot}/{name}"] = as_array(name, value)
        return found


def _batches(rows: int, size: int) -> Iterator[slice]:
    """Yield runs of ``size`` rows; a single last row joins the run before, as batch normalisation needs two."""
    starts = list(range(0, rows, size))
    if len(starts) > 1 and rows - starts[-1] == 1:
        starts.pop()
    for start, stop in zip(starts, [*starts[1:], rows], strict=True):
        yield slice(start, stop)


def _seed(*path: int) -> int:
    return int(np.random.SeedSequence(path).generate_state(1, np.uint64)[0])


def _default_losses(torch: Any, label: Label, z: Any, y: Any) -> Any:
    """Return the losses (rows, L) of outputs (rows, k, L)."""
    if label == NUMBER:
        return 0.5 * (z[:, 0] - y) ** 2
    if label == TWO_CLASSES:
        return torch.nn.functional.binary_cross_entropy_with_logits(z[:, 0], y, reduction="none")
    return torch.nn.functional.cross_entropy(z, y, reduction="none")


def _optimizer(config: Config, module: Any) -> Any:
    torch = torch_on_one_thread()
    parameters = [each for each in module.parameters() if each.requires_grad]
    if not parameters:
        raise ValueError("the module has no parameter to train")
    if config["optimizer"] == "adam":
        return torch.optim.Adam(parameters, lr=config["learning_rate"])
    return torch.optim.SGD(parameters, lr=config["learning_rate"], momentum=config["momentum"])


def _load_slots(optimizer: Any, module: Any, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    torch, by_name = torch_on_one_thread(), dict(module.named_parameters())
    for key, value in tensors.items():
        slot, name = key.split("/", 1)
        shape = () if slot == "step" else by_name[name].shape
        optimizer.state[by_name[name]][slot] = torch.from_numpy(np.array(value)).reshape(shape)
