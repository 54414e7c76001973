"""Stochastic gradient descent for linear models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Matrix, Shard, Totals
from grouplearn.kernels.linear import stochastic_gradient as kernel
from grouplearn.learners.contract.access import PASSES, AccessPattern
from grouplearn.learners.contract.config import Config, Conflict, Hyperparameter, Value
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import BatchesLearner, Descended, EpochsLearner, Piece, Visit
from grouplearn.learners.linear import linear_model
from grouplearn.learners.linear.cost import SGD
from grouplearn.learners.linear.linear_learner import LinearLearner
from grouplearn.learners.linear.stochastic_gradient import pack_losses, pass_rows
from grouplearn.learners.linear.stochastic_gradient import state as sgd_state
from grouplearn.learners.linear.stochastic_gradient.hyperparameters import (
    AVERAGE,
    BATCH_SIZE,
    LEARNING_RATE,
    SCHEDULE,
    TOLERANCE,
    averaged,
    averages,
    number,
)
from grouplearn.models.losses.loss import Loss
from grouplearn.models.state import Artifact, State, Tensors, has_tensors_of

#: Epochs without progress after which a config is done.
_PATIENCE = 5


@dataclass(frozen=True, slots=True)
class _Pass:
    """A pass before its first step: the places of its configs, its rows, their tensors, and the settings of its steps."""

    active: list[int]
    blocks: list[kernel.BlockRows]
    tensors: sgd_state.Arrays
    descent: kernel.SgdSettings


class StochasticGradientSolver(LinearLearner, BatchesLearner, EpochsLearner):
    """Stochastic gradient descent.

    An epoch visits every row once, block by block, each block in its own shuffled order that depends on (seed, epoch,
    number of the block). A batch B of b rows, all of one block, descends
    ``1/b Σ_{i∈B} w̃ᵢ·lossᵢ + (l1·‖w‖₁ + ½·l2·‖w‖²)/Σwᵢ`` with ``w̃ᵢ = wᵢ·n/Σwᵢ``, whose mean over the batches of an
    epoch is the objective ``Σ wᵢ·lossᵢ + l1·‖w‖₁ + ½·l2·‖w‖²`` divided by ``Σwᵢ``. The intercept starts where it predicts
    the mean label.

    After t steps η = η₀ (constant), η₀/√(1 + t) or η₀/(1 + γ·t) with γ = η₀·l2/Σwᵢ (Bottou 2012). Without l2 or without a
    mean of steps, and always for Poisson's loss, γ is at least large enough to halve η in the first epoch. η₀ is
    ``learning_rate`` divided by the curvature of the loss and by the mean of ‖x‖² + 1, with longer rows counting more, in
    the first block visited (``pass_rows.steepness``). The curvature of Poisson's loss has no bound: a row moves its score at
    most to where its loss is least (Asi & Duchi 2019). Such rows count for less, so steps must get shorter. l2 shrinks one
    number per config, and l1 is the cumulative penalty of Tsuruoka, Tsujii & Ananiadou (2009) within an epoch, so that
    kernels touch only the columns of a row. A model's bits depend on no other config and on no processor.

    The state is as in ``sgd_state``: ``unscaled``, ``paid``, ``beyond`` (c, k, d) and others of ``kernel.Models``;
    ``objective``, ``visited`` and ``seen`` sum losses, rows and their weights in the ``epoch``; ``rate`` is 1/(curvature ·
    mean square); ``best`` and ``stalled`` are the least objective and the epochs since.
    """

    solver: ClassVar[str] = "sgd"
    averaged: ClassVar[tuple[str, ...]] = sgd_state.WIDE
    parameters: ClassVar[tuple[str, ...]] = ("unscaled", "intercept")
    source: ClassVar[str] = "Bottou 2012"
    summary: ClassVar[str] = ", with L1 and L2, by stochastic gradient descent"
    options: ClassVar[tuple[Hyperparameter, ...]] = (
        LEARNING_RATE,
        SCHEDULE,
        BATCH_SIZE,
        linear_model.L1,
        linear_model.GLM_L2,
        AVERAGE,
        TOLERANCE,
        linear_model.FIT_INTERCEPT,
    )
    default_epochs: ClassVar[int | None] = 50
    #: A kernel runs all rows of a block without the interpreter lock.
    access: ClassVar[AccessPattern] = replace(PASSES, threaded_from=400_000.0)
    usual_cost: ClassVar[Cost] = SGD

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return the batch size, whether there is l1 and whether steps are averaged, which set the state's tensors, and the loss,
        if configs choose it."""
        batch_size = config.get(BATCH_SIZE.name, BATCH_SIZE.default)
        return (batch_size, number(config, linear_model.L1) > 0, averages(config), *self.chosen_loss(config))

    def conflict(self, config: Config) -> Conflict | None:
        """Return a conflict between l1 and a mean of steps, which has no zeros."""
        if config.get(AVERAGE.name) and number(config, linear_model.L1) > 0:
            return Conflict(
                "the mean of steps has no zeros, which l1 is there for", (AVERAGE.name, linear_model.L1.name)
            )
        return None

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return zero weights and an unknown loss."""
        owes = any(number(config, linear_model.L1) > 0 for config in configs)
        return sgd_state.begun(problem, len(configs), owes, bool(averaged(configs).any()))

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the stored tensors are valid models, with no negative counts."""
        counts = ("step", "visited", "counted", "stalled", "rate", "due")
        return has_tensors_of(state, self.init(problem, configs)) and all(
            (state.tensors[name] >= 0).all() for name in counts
        )

    def batch_rows(self, config: Config) -> int:
        """Return ``batch_size``."""
        return int(number(config, BATCH_SIZE))

    def train_batches(
        self, problem: Problem, configs: Sequence[Config], state: State, block: Shard, visit: Visit
    ) -> State:
        """Return the state after some batches of a block, or all batches of several blocks.

        A config whose losses are not finite ends with loss NaN. Raises Diverged when the group has no rows, or nothing to
        learn from.
        """
        if block.totals.n_rows and (state.done.all() or not block.n_rows):
            return state
        begun = self._pass(problem, configs, state, block, visit)
        tensors = begun.tensors
        models = kernel.descend(sgd_state.models_of(tensors), begun.descent, begun.blocks)
        tensors |= {
            **sgd_state.tensors_of(models),
            "visited": tensors["visited"] + sum(len(each.order) for each in begun.blocks),
        }
        for each in begun.blocks:
            tensors["seen"] = tensors["seen"] + pass_rows.seen(each)
        after = State(sgd_state.updated(state, begun.active, tensors), state.done)
        return _ended(after, configs, begun.active, block.totals, _objectives(after.tensors))

    def train_epochs(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        block: Shard,
        epochs: range,
        *,
        keeps_models: bool,
    ) -> Descended:
        """Return the state after these epochs over a block, or sooner, when a config is done; see ``EpochsLearner``."""
        begun = self._pass(problem, configs, state, block, Visit(epochs.start, 0, block.n_rows, begins=False))
        active, tensors, (visited,) = begun.active, begun.tensors, begun.blocks
        given = kernel.SgdEpochs(
            *(epochs.start, block.first, problem.seed, pass_rows.seen(visited), block.totals.weight),
            linear_model.column([configs[index] for index in active], TOLERANCE),
            _PATIENCE,
            tensors["best"],
            tensors["stalled"],
            np.empty((0, len(active))),
            np.zeros(len(active), np.bool_),
        )
        models, course, each = kernel.descend_epochs(
            *(sgd_state.models_of(tensors), begun.descent, visited, given, len(epochs)), keeps=keeps_models
        )
        ones, made = np.ones(len(active)), len(course.curve)
        tensors |= {
            **sgd_state.tensors_of(models),
            "visited": ones * block.n_rows,
            "seen": ones * course.seen,
            "loss": course.curve[-1],
            "best": course.best,
            "stalled": course.stalled,
            "epoch": np.full(len(active), epochs[made - 1]),
        }
        done = state.done.copy()
        done[active] = course.done
        after = State(sgd_state.updated(state, active, tensors), done)
        curve = np.full((made, len(configs)), np.nan)
        curve[:, active] = course.curve
        counts = np.where(state.done, 0, made)
        kept = None if each is None else State(sgd_state.tensors_of(each), np.zeros(made * len(active), np.bool_))
        return Descended(after, curve, counts, kept)

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predicted means or probabilities, shape (n, n_configs, n_outputs)."""
        weights, intercept = sgd_state.finished(state, slice(None), averaged(configs))
        predictor = linear_model.linear_predictor(x, weights, intercept)
        logs = [loss.log_link for loss in self._losses(problem, configs)]
        if len({*logs}) == 1:
            return linear_model.inverse_link(problem.label, predictor, logs[0])
        predictor[:, logs] = linear_model.inverse_link(problem.label, predictor[:, logs], log_link=True)
        return predictor

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``weights`` (k, d) and ``intercept`` (k,) of config ``index``; raises Diverged where they overflowed."""
        del problem
        weights, intercept = sgd_state.finished(state, slice(index, index + 1), averaged(configs[index : index + 1]))
        if not (np.isfinite(weights).all() and np.isfinite(intercept).all()):
            raise Diverged("diverged: the weights became infinite; hint: lower learning_rate")
        tensors = {"weights": np.ascontiguousarray(weights[0]), "intercept": intercept[0].copy()}
        return Artifact("tensors", tensors)

    def part(self, state: State, number: int, of: int) -> Tensors:
        """Return part ``number`` of ``of`` of a state, with outstanding l1 applied; the first has all that is not cut."""
        return sgd_state.part(state, number, of)

    def average(self, parts: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
        """Return the mean of the same part of several models, each weighted by the rows that it saw (MLlib*)."""
        return sgd_state.mean_of(parts, weights)

    def summed(self) -> tuple[str, ...]:
        """Return the tensors whose changes from all partitions are added: weights, sums over steps, and their counts."""
        return sgd_state.SUMMED

    def of_parts(self, parts: Sequence[Tensors], done: npt.NDArray[np.bool_]) -> State:
        """Return the state from all its parts, in order."""
        return sgd_state.of_parts(parts, done)

    def gradient(
        self, problem: Problem, configs: Sequence[Config], state: State, block: Shard, visit: Visit
    ) -> dict[str, npt.NDArray[Any]]:
        """Return sums over the rows visited, with the models unchanged.

        ``gradient`` (c, k, d), ``by_intercept`` (c, k), ``losses`` (c,) with penalties, ``rows``, ``weight``, Σ w̃ᵢ, and
        ``square``, Σ w̃ᵢ‖xᵢ‖² (1,).
        """
        whole = block.totals
        self._check_labels(problem, configs, block)
        visited = pass_rows.blocks_of(problem, self.batch_rows(configs[0]), block, visit)
        tensors = self._penalised(configs, self._begun(problem, configs, state.tensors, 1.0, whole), whole)
        models = sgd_state.models_of(tensors)
        descent = self._descent(problem, configs, tensors, whole)
        unknown = state.tensors["rate"] == 0  # the first sums decide the length of steps
        descent = replace(descent, rate=np.where(unknown, 0.0, descent.rate))
        gradient, by_intercept, losses = kernel.gradients(models, descent, visited)
        square = sum(kernel.mean_square(each) * len(each.order) for each in visited)
        weight = sum(pass_rows.seen(each) for each in visited)
        return {
            "gradient": gradient,
            "by_intercept": by_intercept,
            "losses": _added(losses) + weight * _penalties(tensors),
            "rows": np.array([float(sum(len(each.order) for each in visited))]),
            "square": np.array([float(square)]),
            "weight": np.array([weight]),
        }

    def stepped(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        sums: Tensors,
        whole: Totals,
        piece: Piece,
    ) -> State:
        """Return a piece of the state after one step by the mean gradient; each column depends only on itself."""
        del piece
        active = np.flatnonzero(~state.done).tolist()
        if not active:
            return state
        picked, count = [configs[index] for index in active], float(sums["rows"][0])
        tensors = self._penalised(picked, sgd_state.chosen(state.tensors, active), whole)
        tensors = self._begun(problem, picked, tensors, float(sums["square"][0]) / count + 1.0, whole)
        tensors |= {"visited": np.full(len(active), count), "seen": np.full(len(active), float(sums["weight"][0]))}
        descent = self._descent(problem, picked, tensors, whole)
        slower = 1.0 + descent.decay * tensors["step"]
        rate = descent.rate / np.where(descent.rooted > 0, np.sqrt(slower), slower)
        by_weights, by_intercept = sums["gradient"][active] / count, sums["by_intercept"][active] / count
        wanted = descent.with_intercept[:, None]
        after = sgd_state.stepped(State(tensors, state.done[active]), rate, by_weights, by_intercept * wanted)
        found = State(sgd_state.updated(state, active, after.tensors), state.done)
        return _ended(found, configs, active, whole, sums["losses"] / sums["weight"])

    # --- the parts of a pass ----------------------------------------------------------------------------------------

    def _losses(self, problem: Problem, configs: Sequence[Config]) -> list[Loss]:
        return [self.loss(problem.label, config) for config in configs]

    def _check_labels(self, problem: Problem, configs: Sequence[Config], shard: Shard) -> None:
        for loss in {loss.name: loss for loss in self._losses(problem, configs)}.values():
            self.check_labels(loss, shard.y, shard.weight)

    def _pass(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, visit: Visit) -> _Pass:
        """Return a pass over some rows before its first step; raises Diverged when the group has no rows."""
        whole, active = shard.totals, np.flatnonzero(~state.done).tolist()
        if not whole.n_rows:
            raise Diverged("there are no training rows")
        picked = [configs[index] for index in active]
        self._check_labels(problem, picked, shard)
        blocks = pass_rows.blocks_of(problem, self.batch_rows(picked[0]), shard, visit)
        tensors = sgd_state.epoch_begun(sgd_state.chosen(state.tensors, active), visit)
        tensors = self._penalised(picked, tensors, whole)
        if not tensors["rate"].all():
            tensors = self._begun(problem, picked, tensors, pass_rows.steepness(blocks[0]), whole)
        return _Pass(active, blocks, tensors, self._descent(problem, picked, tensors, whole))

    def _penalised(self, configs: Sequence[Config], tensors: sgd_state.Arrays, whole: Totals) -> sgd_state.Arrays:
        """Return the tensors with each config's penalties divided by the weight of all rows."""
        penalties = {"l1": linear_model.L1, "l2": self.objective.l2}
        by_row = {name: linear_model.column(configs, each) / whole.weight for name, each in penalties.items()}
        return {**tensors, **by_row}

    def started(self, problem: Problem, configs: Sequence[Config], tensors: Tensors, whole: Totals) -> Tensors:
        """Return a part of a state in which configs that have not begun have the intercept that predicts the mean label."""
        if "rate" not in tensors:
            return tensors
        fresh = (tensors["rate"] == 0) & (linear_model.column(configs, linear_model.FIT_INTERCEPT) > 0)
        first = pack_losses.first_intercepts(self._losses(problem, configs), problem, whole)
        return {**tensors, "intercept": np.where(fresh[:, None], first[:, None], tensors["intercept"])}

    def _begun(
        self, problem: Problem, configs: Sequence[Config], tensors: sgd_state.Arrays, steepness: float, whole: Totals
    ) -> sgd_state.Arrays:
        """Return the tensors with step lengths and first intercepts for configs that have not begun.

        ``steepness`` stands for ‖x‖² + 1 of a row: its mean where all rows make a step together, else ``pass_rows.steepness``.
        """
        fresh, losses = tensors["rate"] == 0, self._losses(problem, configs)
        started = self.started(problem, configs, tensors, whole)
        rate = 1.0 / (pack_losses.curvatures(losses, configs, whole) * steepness)
        if not (rate > 0).all():
            raise Diverged("the squares of the features overflow; hint: bring them to one scale, as zscore(...) does")
        return {**started, "rate": np.where(fresh, rate, tensors["rate"])}

    def _descent(
        self, problem: Problem, configs: Sequence[Config], tensors: sgd_state.Arrays, whole: Totals
    ) -> kernel.SgdSettings:
        """Return the settings of the configs of a pack, as the kernels take them."""
        rate = linear_model.column(configs, LEARNING_RATE) * tensors["rate"]
        schedule = [config.get(SCHEDULE.name, SCHEDULE.default) for config in configs]
        batch_size, losses = int(number(configs[0], BATCH_SIZE)), self._losses(problem, configs)
        unbounded = np.array([loss.curvature is None for loss in losses])
        ends = unbounded | ~averaged(configs) | (tensors["l2"] == 0)
        bottou = np.maximum(rate * tensors["l2"], np.where(ends, batch_size / whole.n_rows, 0.0))
        decays = {"constant": np.zeros_like(rate), "inverse_sqrt": np.ones_like(rate), "bottou": bottou}
        return kernel.SgdSettings(
            np.array([loss.name for loss in losses]),
            rate,
            np.array([decays[str(name)][place] for place, name in enumerate(schedule)]),
            np.array([float(name == "inverse_sqrt") for name in schedule]),
            ridge=tensors["l2"],
            lasso=tensors["l1"],
            with_intercept=linear_model.column(configs, linear_model.FIT_INTERCEPT),
            parameter=pack_losses.parameters(losses, configs),
        )


def _added(by_output: FloatArray) -> FloatArray:
    """Return the sums (c,) over outputs (c, k), in their order."""
    total: FloatArray = by_output[:, 0]
    for output in range(1, by_output.shape[1]):
        total = total + by_output[:, output]
    return total


def _penalties(tensors: sgd_state.Arrays) -> FloatArray:
    """Return the penalties (c,) of a row."""
    absolute, square = kernel.norms(sgd_state.models_of(tensors))
    penalties: FloatArray = tensors["l1"] * absolute + 0.5 * tensors["l2"] * square
    return penalties


def _objectives(tensors: sgd_state.Arrays) -> FloatArray:
    """Return the objective of each config divided by the weight of the rows seen, (c,)."""
    with np.errstate(all="ignore"):
        return _added(tensors["objective"]) / tensors["seen"] + _penalties(tensors)


def _ended(
    state: State, configs: Sequence[Config], active: Sequence[int], whole: Totals, objectives: FloatArray
) -> State:
    """Return the state with configs done whose losses are not finite or, at the end of an epoch, no longer fall."""
    tensors, done = dict(state.tensors), state.done.copy()
    trained = np.zeros_like(done)
    trained[list(active)] = True
    finite = np.isfinite(objectives)
    sound = finite & np.isfinite(tensors["objective"]).all(axis=1) & np.isfinite(tensors["intercept"]).all(axis=1)
    loss, best = np.where(finite, objectives, np.nan) * whole.weight, tensors["best"]
    tolerance = linear_model.column(configs, TOLERANCE)
    tensors["loss"] = np.where(trained, np.where(sound, loss, np.nan), tensors["loss"])
    ends = trained & sound & (tensors["visited"] >= whole.n_rows)
    lower = best - loss > tolerance * loss
    tensors["best"] = np.where(ends & lower, loss, best)
    tensors["stalled"] = np.where(ends, np.where(lower, 0.0, tensors["stalled"] + 1.0), tensors["stalled"])
    done |= ends & (~np.isfinite(loss) | ((tolerance > 0) & (tensors["stalled"] >= _PATIENCE)))
    return State(tensors, done | (trained & ~sound))
