"""What all learners of one series per group share: rows to series, models, scores; a method adds ``fit``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np

from grouplearn.data.frequency import Frequency
from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.access import SUMS, AccessPattern
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.control import Diverged, Interrupted
from grouplearn.learners.contract.cost import Coefficients, Cost, whole
from grouplearn.learners.contract.learner import Vector, VectorLearner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import SolvedStack, StackLearner
from grouplearn.learners.series.batch import FittedSeries, SeriesBatch, scores_at
from grouplearn.learners.unsupervised.solved import SolvedVectors
from grouplearn.models.label import Label
from grouplearn.models.metrics.forecasts import FORECASTS, sums_of_runs
from grouplearn.models.metrics.metric import MetricSums
from grouplearn.models.state import Artifact, State, Tensors

_MOST_STEPS = 10_000
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


class SeriesLearner(StackLearner, VectorLearner):
    """Forecasts each group's label from its own past. The only feature is the step of a row.

    The sums over blocks are the rows themselves, which merge into the whole series: whoever merges them last fits it.
    """

    access: ClassVar[AccessPattern] = replace(SUMS, words="whole series")

    @abstractmethod
    def fit(self, config: Config, batch: SeriesBatch, cancelled: Callable[[], bool]) -> FittedSeries:
        """Return the models of many series, each as alone."""

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return a state that has seen no rows."""
        del problem
        return State({"loss": np.full(len(configs), np.nan)}, np.zeros(len(configs), dtype=bool))

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return False: the only pass is taken again."""
        del problem, configs, state
        return False

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
        batch, flaws = SeriesBatch.of_rows(sums["step"], sums["y"], np.array([0, sums["y"].size]), _frequency(problem))
        if flaws:
            raise Diverged(flaws[0])
        loss = np.full(len(configs), np.nan)
        tensors: dict[str, Any] = {"loss": loss}
        for number, config in enumerate(configs):
            fitted = self.fit(config, batch, lambda: False)
            loss[number] = fitted.loss[0]
            made = fitted.tensors(batch, _season(config))
            tensors |= {f"{number}.{name}": each.values for name, each in made.items()}
        return State(tensors, np.ones(len(configs), dtype=bool))

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> SolvedVectors:
        """Return the models of every series of a stack, bit for bit as alone; none where ``step`` raises Diverged."""
        step = np.asarray(stack.x[:, 0], np.float64)
        batch, _ = SeriesBatch.of_rows(step, stack.y, stack.start, _frequency(problem))
        made, losses, converged = [], [], []
        for config in configs:
            if cancelled():
                raise Interrupted
            fitted = self.fit(config, batch, cancelled)
            made.append(fitted.tensors(batch, _season(config)))
            losses.append(np.where(np.diff(batch.start) > 0, fitted.loss, np.nan))
            converged.append(fitted.converged)
            report(batch.n_series)
        order = np.arange(len(configs) * batch.n_series).reshape(len(configs), -1).T.ravel()
        tensors = {name: Ragged.joined([each[name] for each in made]).take(order) for name in made[0]}
        loss, ones = np.stack(losses, axis=1), np.ones((batch.n_series, len(configs)), np.int64)
        return SolvedVectors(tensors, loss, ones, loss[None].copy(), np.stack(converged, axis=1))

    def measure(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: SolvedStack, wanted: Collection[str]
    ) -> Mapping[str, FloatArray]:
        """Return the metrics of solved models on rows of the same groups; see ``stacks.GatheringLearner``."""
        del problem
        of, models = np.repeat(np.arange(stack.n_groups), stack.sizes), solved.tensors()
        step = np.asarray(stack.x[:, 0], np.float64)
        each = [scores_at(step, of * len(configs) + number, models) for number in range(len(configs))]
        sums = sums_of_runs(np.stack(each, axis=1), stack.y, stack.weight, stack.start)
        return FORECASTS.finish(MetricSums(sums), *wanted)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return the model: ``fitted`` (n,) from the step ``first`` on, ``mean`` and ``deviation`` (H,), ``scale`` (2,)."""
        del problem, configs
        begin = f"{index}."
        own = {name.removeprefix(begin): each for name, each in state.tensors.items() if name.startswith(begin)}
        return Artifact("tensors", own)

    def score(self, label: Label, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return mean, deviation and scales at the rows' steps, (n, 4)."""
        del label
        step = np.asarray(x, np.float64)[:, 0]
        return scores_at(step, np.zeros(step.size, np.int64), artifact.tensors)

    def validation_error(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from those of a series."""
        del problem
        tensors = artifact.tensors
        if artifact.format != "tensors" or not tensors.keys() >= _NEEDED:
            return "its tensors are not those of a series"
        if any(each.dtype != np.float64 or each.ndim != 1 for each in tensors.values()):
            return "a tensor is not a list of numbers in double precision"
        sizes = {name: tensors[name].size for name in _NEEDED}
        if sizes["mean"] != sizes["deviation"] or not sizes["mean"] or (sizes["first"], sizes["scale"]) != (1, 2):
            return "its forecasts and their deviations are not of the same steps"
        return None if float(tensors["first"][0]).is_integer() else "its first step is not a whole number"

    def vectors(self, artifact: Artifact) -> list[Vector]:
        """Return one-step forecasts with the first step, forecasts, deviations with the last step, and scales."""
        tensors = artifact.tensors
        first = float(tensors["first"][0])
        last = first + tensors["fitted"].size - 1
        values = {"fitted": first, "mean": last, "deviation": last, "scale": 0.0}
        return [Vector(name, 0, tensors[name], value) for name, value in values.items()]


_NEEDED = frozenset({"fitted", "first", "mean", "deviation", "scale"})


def _frequency(problem: Problem) -> Frequency:
    return problem.frequency or Frequency("number")


def _season(config: Config) -> int:
    return cast(int, config[SEASON_LENGTH.name])
