"""What all learners of series share: rows to series, models, scores. A method adds ``fit``."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np

from grouplearn.data.frequency import Frequency
from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack, starts
from grouplearn.data.tensors import tensor_bytes
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.access import SUMS, AccessPattern
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.control import Diverged, Interrupted
from grouplearn.learners.contract.cost import Coefficients, Cost, whole
from grouplearn.learners.contract.learner import Vector, VectorLearner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import SolvedStack, StackLearner
from grouplearn.learners.series import methods
from grouplearn.learners.series.batch import PARTS, QUANTILES, FittedSeries, IntArray, SeriesBatch, scores_at
from grouplearn.learners.unsupervised.solved import SolvedVectors
from grouplearn.models.label import Label
from grouplearn.models.metrics.forecasts import COMPONENTS, ENDED, FORECASTS, sums_of_runs
from grouplearn.models.metrics.metric import MetricSums
from grouplearn.models.state import Artifact, State, Tensors

_NONE = np.empty(0)
_MOST_STEPS = 10_000
#: Steps that a double counts exactly.
_MOST_STEP = 2**53
SEASON_LENGTH = Hyperparameter(
    "season_length",
    "int",
    None,
    "steps of a season, 1 for none; by default that of the frequency: 12 months, 4 quarters, 7 days, 24 hours ...",
    "Hyndman & Athanasopoulos 2021",
    low=1,
    high=_MOST_STEPS,
    nullable=True,
)
HORIZON = Hyperparameter(
    "horizon",
    "int",
    None,
    "steps after the last row that are forecast and stored; by default two seasons, or 10",
    "Hyndman & Athanasopoulos 2021",
    low=1,
    high=_MOST_STEPS,
    nullable=True,
)


@dataclass(frozen=True)
class SeriesCost(Cost):
    """The cost of a model with a number per row, and two per step of the horizon."""

    unmeasured: str | None = "learns series, of which CALIBRATE has none"

    def state_values(self, config: Config, width: int, outputs: int) -> int:
        """Return the forecasts and their deviations."""
        del width, outputs
        return 2 * whole(config, HORIZON.name, 24) + 32

    def model_values(self, config: Config, width: int, outputs: int, n_rows: int) -> int:
        """Return the one-step forecasts, too."""
        return self.state_values(config, width, outputs) + n_rows


#: Some microseconds a series and a value.
QUICK = SeriesCost(Coefficients(0.0, 1e-7, 0.0, 0.0, 1e-8, 2e-6, 1e-5))


class Forecaster(VectorLearner):
    """A learner of series, whose models are forecasts: those of each step of the past, and those of the steps to come.

    A row's features are its step; then, where a group may have many series, the number of its series, and others.
    """

    #: Whether it has ``values_ahead``.
    takes_rows_ahead: ClassVar[bool] = False

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return a state that has seen no rows."""
        del problem
        return State({"loss": np.full(len(configs), np.nan)}, np.zeros(len(configs), dtype=bool))

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return False: the only pass is taken again."""
        del problem, configs, state
        return False

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return the model of S series with H steps to come.

        ``fitted`` are their one-step forecasts, of series s the next ``size`` [s], from the step ``first`` [s] on; ``missing``
        (S,) counts their steps without a value. ``mean`` and ``deviation`` (S · H,) are those of the steps after them, ``scale``
        (S · 3,) as in ``SeriesBatch.scale``, and whether deviations are relative to forecasts. A single series may have
        ``COMPONENTS`` and ``ENDED``, too.
        """
        del problem, configs
        begin = f"{index}."
        own = {name.removeprefix(begin): each for name, each in state.tensors.items() if name.startswith(begin)}
        return Artifact("tensors", own)

    def score(self, label: Label, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the scores at the rows' steps, (n, 4), or (n, 15) with quantiles."""
        del label
        return self.distribution(np.asarray(x, np.float64), np.zeros(x.shape[0], np.int64), artifact.tensors)

    def distribution(self, x: FloatArray, of: IntArray, models: Mapping[str, Ragged] | Tensors) -> FloatArray:
        """Return the scores of rows by the models ``of`` each row, see ``scores_at``."""
        return scores_at(x, of, models)

    def validation_error(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from those of series."""
        del problem
        tensors = artifact.tensors
        if artifact.format != "tensors" or not tensors.keys() >= PARTS:
            return "its tensors are not those of a series"
        if any(each.dtype != np.float64 or each.ndim != 1 for each in tensors.values()):
            return "a tensor is not a list of numbers in double precision"
        sizes = {name: tensors[name].size for name in PARTS}
        count, lengths = sizes["first"], tensors["size"]
        if not count or (sizes["size"], sizes["missing"], sizes["scale"]) != (count, count, 3 * count):
            return "it has another number of lengths or scales than of series"
        if sizes["mean"] != sizes["deviation"] or not sizes["mean"] or sizes["mean"] % count:
            return "its forecasts and their deviations are not of the same steps"
        if not (_are_whole(lengths) and (lengths >= 0).all() and lengths.sum() == sizes["fitted"]):
            return "its one-step forecasts are not of the lengths of its series"
        if not _are_whole(tensors["first"]):
            return "the first step of a series is not a whole number"
        if any(tensors[name].size not in (0, sizes["fitted"]) for name in COMPONENTS if name in tensors):
            return "its components are not of the steps of its one-step forecasts"
        try:
            self.continued(tensors, 1)
        except (IndexError, KeyError, ValueError):
            return "its last states are not those of its method"
        return methods.validation_error(tensors)

    def continued(self, tensors: Tensors, horizon: int) -> tuple[FloatArray, FloatArray] | None:  # noqa: ARG002 - others do
        """Return the means and deviations (horizon,) of the steps after the only series, from its last states.

        None if that takes rows. Raises ValueError or IndexError for states that are not the method's.
        """
        return None

    def values_ahead(self, artifact: Artifact, series: int, ahead: FloatArray) -> FloatArray:  # noqa: ARG002 - others do
        """Return the values of the next steps of a series (H,), by the features ``ahead`` (H, p) of these steps.

        Raises ValueError, with a reason for users, if there is no such forecast.
        """
        raise ValueError(
            "only learners over lags forecast from features of the steps to come: forecast('model', row, horizon)"
        )

    def vectors(self, artifact: Artifact) -> list[Vector]:
        """Return of each series the one-step forecasts with the first step, forecasts and deviations with the last step, and
        scales with the number of missing steps; the method with its note, if there is anything to say; and the components and
        states of the only series, where a method has them."""
        tensors = artifact.tensors
        first, size = tensors["first"], tensors["size"].astype(np.int64)
        last = first + size - 1
        cut: dict[str, Sequence[FloatArray]] = {
            name: [*tensors[name].reshape(first.size, -1)]
            for name in ("mean", "deviation", "scale", QUANTILES)
            if name in tensors
        }
        cut["fitted"] = np.split(tensors["fitted"], np.cumsum(size)[:-1])
        values = {"fitted": first, "mean": last, "deviation": last, "scale": tensors["missing"], QUANTILES: last}
        own = tensors.get(methods.PART, np.array([])), float(tensors.get(methods.NOTE, np.zeros(1))[0])
        return [
            *(
                Vector(name, number + 1, cut[name][number], float(value[number]))
                for number in range(first.size)
                for name, value in values.items()
                if name in cut
            ),
            *([Vector(methods.PART, 1, *own)] if own[0].size or own[1] else []),
            *(Vector(name, 1, each, 0.0) for name in (*COMPONENTS, *ENDED) if (each := tensors.get(name, _NONE)).size),
        ]


def _are_whole(numbers: FloatArray) -> bool:
    return bool((np.isfinite(numbers) & (numbers == np.floor(numbers)) & (np.abs(numbers) < _MOST_STEP)).all())


class SeriesLearner(Forecaster, StackLearner):
    """Forecasts each group's label from its own past. The only feature is the step of a row.

    The sums over blocks are the rows themselves, which merge into the whole series: whoever merges them last fits it.
    """

    access: ClassVar[AccessPattern] = replace(SUMS, words="whole series")

    @abstractmethod
    def fit(self, config: Config, batch: SeriesBatch, cancelled: Callable[[], bool]) -> FittedSeries:
        """Return the models of many series, each as alone."""

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return True: a series takes less than the Python around it."""
        del problem, configs
        return True

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the rows of a block."""
        del problem, configs, state
        return {"step": np.asarray(block.x[:, 0], np.float64), "y": block.y}

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the rows of both."""
        return {name: np.concatenate([each, right[name]]) for name, each in left.items()}

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the models of the series of all rows; Diverged if it is none."""
        del state
        start = np.array([0, sums["y"].size])
        batch, flaws = SeriesBatch.of_rows(sums["step"], sums["y"], start, frequency_of(problem))
        if flaws:
            raise Diverged(flaws[0])
        scale, fitted = batch.scale(_season(configs[0])), [self.fit(config, batch, lambda: False) for config in configs]
        return state_of([each.tensors(batch, scale, 1) for each in fitted], [float(each.loss[0]) for each in fitted])

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> SolvedVectors:
        """Return the models of every series of a stack, bit for bit as alone; none where ``step`` raises Diverged."""
        rows = _rows_of(stack)
        batch, _ = SeriesBatch.of_rows(*rows, frequency_of(problem))
        scale, made, losses, converged = batch.scale(_season(configs[0])), [], [], []
        for config in configs:
            if cancelled():
                raise Interrupted
            fitted = self.fit(config, batch, cancelled)
            made.append(fitted.tensors(batch, scale, batch.n_series))
            losses.append(np.where(batch.sizes > 0, fitted.loss, np.nan))
            converged.append(fitted.converged)
            report(batch.n_series)
        order = np.arange(len(configs) * batch.n_series).reshape(len(configs), -1).T.ravel()
        tensors = {name: Ragged.joined([each[name] for each in made]).take(order) for name in made[0]}
        loss, ones = np.stack(losses, axis=1), np.ones((batch.n_series, len(configs)), np.int64)
        states = _states_of(*rows) if stack.keeps_sums else None
        return SolvedVectors(tensors, loss, ones, loss[None].copy(), np.stack(converged, axis=1), states)

    def measure(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: SolvedStack, wanted: Collection[str]
    ) -> Mapping[str, FloatArray]:
        """Return the metrics of solved models on rows of the same groups; see ``stacks.GatheringLearner``."""
        del problem
        of, models = np.repeat(np.arange(stack.n_groups), stack.sizes), solved.tensors()
        x = np.asarray(stack.x, np.float64)
        each = [self.distribution(x, of * len(configs) + number, models) for number in range(len(configs))]
        sums = sums_of_runs(np.stack(each, axis=1), stack.y, stack.weight, stack.start)
        return FORECASTS.finish(MetricSums(sums), *wanted)


def _rows_of(stack: Stack) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return steps and labels of the rows of each series, and where they begin, with those of earlier rows."""
    step, y, sizes = np.asarray(stack.x[:, 0], np.float64), stack.y, stack.sizes
    if stack.before is None:
        return step, y, stack.start
    earlier = stack.before["step"]
    of = np.concatenate([np.repeat(np.arange(stack.n_groups), each) for each in (earlier.shape[1], sizes)])
    order = np.argsort(of, kind="stable")
    step, y = np.concatenate([earlier.ravel(), step]), np.concatenate([stack.before["y"].ravel(), y])
    return step[order], y[order], starts(sizes + earlier.shape[1])


def _states_of(step: FloatArray, y: FloatArray, start: IntArray) -> Ragged:
    """Return the rows of each series as a safetensors file."""
    ends = itertools.pairwise(start.tolist())
    files = (tensor_bytes({"step": step[first:last], "y": y[first:last]}) for first, last in ends)
    return Ragged.of([np.frombuffer(each, np.uint8) for each in files])


def state_of(made: Sequence[Mapping[str, Ragged]], losses: Sequence[float]) -> State:
    """Return the state of finished models, from the tensors and the loss of each."""
    tensors = {f"{number}.{name}": each.values for number, model in enumerate(made) for name, each in model.items()}
    return State({"loss": np.array(losses), **tensors}, np.ones(len(made), dtype=bool))


def frequency_of(problem: Problem) -> Frequency:
    """Return the frequency of the steps."""
    return problem.frequency or Frequency("number")


def _season(config: Config) -> int:
    return cast(int, config[SEASON_LENGTH.name])
