"""k-means in one pass: a few weighted points stand for the rows of a group, and every ``k`` is solved on them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack, starts
from grouplearn.data.tensors import tensor_bytes
from grouplearn.kernels.clusters import clustering as kernel
from grouplearn.kernels.clusters import coresets, distances
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.access import SUMS, AccessPattern
from grouplearn.learners.contract.config import Config, Conflict, Hyperparameter, Value
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.unsupervised import lloyd
from grouplearn.learners.unsupervised.centroids import MOST_CLUSTERS, N_INIT, TOLERANCE, CentroidLearner, K
from grouplearn.learners.unsupervised.solved import SolvedVectors
from grouplearn.models.state import Artifact, State, Tensors, has_tensors_of

#: ``k`` and the starts are applied to the finished points. Starts are cheap there, so there are more.
LATE = (replace(K, late=True), replace(N_INIT, default=10, late=True), replace(TOLERANCE, late=True))
K_MAX = Hyperparameter(
    "k_max",
    "int",
    20,
    "the largest k that the points of a group are made for; a larger one keeps more of them",
    "Feldman & Langberg 2011",
    low=1,
    high=MOST_CLUSTERS,
)


class Summary(NamedTuple):
    """The points of G groups as a ``stack``, in the order of their groups.

    ``rows`` (n,) are how many rows a point stands for. ``is_whole`` (G,): the points are the group's rows.
    """

    stack: Stack
    rows: FloatArray
    is_whole: npt.NDArray[np.bool_]


class OnePassKMeans(CentroidLearner):
    """Solves k-means on few weighted points instead of all rows: one pass over the rows serves every ``k`` up to ``k_max``.

    The sums of some rows are their points: ``values`` (m, d), ``weights`` and ``rows`` (m,), and whatever a way adds; their
    ranges ``low`` and ``high`` (d,); ``sizes``, a way's limits; ``seed`` (1,) of the group and ``blocks`` (2,), the numbers
    of the first and the last block, on which random numbers depend. Fewer rows than the limits are their own points.
    """

    access: ClassVar[AccessPattern] = replace(SUMS, threaded_from=4_000.0)
    #: The tensors that have a value for each point.
    per_point: ClassVar[tuple[str, ...]] = ("values", "weights", "rows")
    #: The hyperparameters on which the points depend.
    early: ClassVar[tuple[Hyperparameter, ...]]

    @abstractmethod
    def sizes(self, config: Config) -> tuple[int, ...]:
        """Return the limits on the points of a pack."""

    @abstractmethod
    def most(self, sizes: npt.NDArray[np.int64], rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the most points that stand for so many rows, elementwise."""

    @abstractmethod
    def reduced(self, sums: Tensors, most: int) -> Tensors:
        """Return at most so many points for more than that."""

    def beside(self, rows: int) -> dict[str, FloatArray]:
        """Return what a way adds to the points of so many rows, before they are reduced."""
        del rows
        return {}

    def candidates(self, config: Config) -> tuple[int, ...]:
        """Return the numbers of clusters of which a config takes one."""
        return (_whole(config, K),)

    def chosen(self, config: Config, losses: FloatArray) -> npt.NDArray[np.int64]:
        """Return which candidates (G,) groups take, from their inertias (G, n)."""
        del config
        return np.zeros(len(losses), np.int64)

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return the hyperparameters on which the points depend."""
        return tuple(config[each.name] for each in self.early)

    def conflict(self, config: Config) -> Conflict | None:
        """Return a conflict between ``k`` and the largest one that the points are made for."""
        k, most = config[K.name], _whole(config, K_MAX)
        if k is None or int(str(k)) <= most:
            return None
        return Conflict(
            f"k = {k} is above k_max = {most}, for which this solver keeps points: raise k_max", (K.name, K_MAX.name)
        )

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return a state without clusters; Diverged if there is nothing to learn from."""
        if not problem.n_features:
            raise Diverged("there are no features")
        count = int(self._places(configs)[-1])
        tensors = {
            "centroids": np.full((count, problem.n_features), np.nan),
            "weight": np.zeros(count),
            "rows": np.zeros(count),
            "loss": np.full(len(configs), np.nan),
        }
        return State(tensors, np.zeros(len(configs), dtype=bool))

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the tensors are a valid state of such centroids."""
        return has_tensors_of(state, self.init(problem, configs)) and bool((state.tensors["rows"] >= 0).all())

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return whether there are features: points of a small group cost less than the Python around them."""
        del configs
        return problem.n_features > 0

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the points of one block."""
        del state
        return self._summed(problem.seed, configs, block)

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the points of both."""
        return self._limited(
            {
                **left,
                **{name: np.concatenate([left[name], right[name]]) for name in self.per_point},
                "low": np.minimum(left["low"], right["low"]),
                "high": np.maximum(left["high"], right["high"]),
                "blocks": np.array([left["blocks"][0], right["blocks"][1]]),
            }
        )

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the clusters of every config; Diverged if no row has weight, or distances overflow or vanish."""
        del state
        if not sums["rows"].any():
            raise Diverged(lloyd.NO_WEIGHT)
        lloyd.check_apart(sums["low"], sums["high"])
        solved = self._solved(problem, configs, self._summary([sums]), lambda: False)
        tensors = {**self.init(problem, configs).tensors, "loss": solved.loss[0]}
        for first, place in zip(self._places(configs), range(len(configs)), strict=False):
            for name, each in solved.found.items():
                tensors[name][first : first + len(each[place])] = each[place]
        return State(tensors, np.ones(len(configs), dtype=bool))

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> SolvedVectors:
        """Return the models of every config on every group of a stack, bit for bit as by a step over its only block."""
        if not (stack.keeps_sums or stack.before):
            solved = self._solved(problem, configs, self._summarised(configs, stack), cancelled)
        else:
            sums = [self._sums_of_group(configs, stack, group) for group in range(stack.n_groups)]
            states = Ragged.of([np.frombuffer(tensor_bytes(each), np.uint8) for each in sums])
            solved = replace(self._solved(problem, configs, self._summary(sums), cancelled), states=states)
        report(solved.epochs.size)
        return solved

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return cluster, distance, and distance to the second nearest centroid, (n, n_configs, 3)."""
        del problem
        found = Ragged.of([self._model(configs, state, index)["centroids"] for index in range(len(configs))])
        return distances.scores(np.asarray(x), found.values, found.start)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``centroids`` (k, d), ``weight`` and ``rows`` (k,) of config ``index``, for clusters with rows."""
        del problem
        if not np.isfinite(state.tensors["loss"][index]):
            raise Diverged(lloyd.NOTHING_TO_SUM)
        return Artifact("tensors", self._model(configs, state, index))

    def _model(self, configs: Sequence[Config], state: State, index: int) -> dict[str, FloatArray]:
        first, last = self._places(configs)[index : index + 2]
        found = np.isfinite(state.tensors["centroids"][first:last]).all(axis=1)
        return {name: state.tensors[name][first:last][found] for name in ("centroids", "weight", "rows")}

    def _places(self, configs: Sequence[Config]) -> npt.NDArray[np.int64]:
        """Return where the clusters of each config begin among all, (C + 1,)."""
        return starts(np.array([max(self.candidates(config)) for config in configs]))

    # Points

    def ranges(self, sums: Tensors) -> coresets.Ranges:
        """Return the ranges of the rows behind some points."""
        return coresets.Ranges(sums["low"], sums["high"])

    def _summed(self, seed: int, configs: Sequence[Config], block: Shard) -> Tensors:
        x, weight = np.asarray(block.x), block.weight
        low, high = coresets.ranges(x, weight)
        return self._limited(
            {
                "values": x.astype(np.float64),
                "weights": weight.astype(np.float64),
                "rows": (weight > 0).astype(np.float64),
                **self.beside(block.n_rows),
                "low": low,
                "high": high,
                "sizes": np.array(self.sizes(configs[0]), np.int64),
                "seed": np.array([seed], np.uint64).astype(np.int64),
                "blocks": np.array([block.first, block.first], np.int64),
            }
        )

    def _limited(self, sums: Tensors) -> Tensors:
        most = int(self.most(sums["sizes"], sums["rows"].sum()))
        with np.errstate(over="ignore", invalid="ignore"):
            overflows = not np.isfinite(sums["high"] - sums["low"]).all()
        if len(sums["values"]) <= most:
            return sums
        if not overflows:
            return self.reduced(sums, most)
        # There will be no model: see ``step``.
        return {**sums, **{name: sums[name][:most] for name in self.per_point}}

    def _summarised(self, configs: Sequence[Config], stack: Stack) -> Summary:
        """Return the points of every group of a stack, whose rows are one block each."""
        sizes = np.array(self.sizes(configs[0]), np.int64)
        large = stack.sizes > self.most(sizes, stack.sizes)
        rows = (stack.weight > 0).astype(np.float64)
        if not large.any():
            return Summary(stack, rows, ~large)
        pieces = [
            self._sums_of_group(configs, stack, group)
            if large[group]
            else {"values": stack.x[own], "weights": stack.weight[own], "rows": rows[own]}
            for group, own in enumerate(map(slice, stack.start[:-1], stack.start[1:]))
        ]
        return Summary(_stacked(pieces, stack.seed), _joined(pieces, "rows"), ~large)

    def _sums_of_group(self, configs: Sequence[Config], stack: Stack, group: int) -> Tensors:
        """Return the points of a group of a stack, with those of its earlier rows."""
        own, seed = slice(stack.start[group], stack.start[group + 1]), 0 if stack.seed is None else stack.seed[group]
        sums = self._summed(int(seed), configs, Shard(stack.x[own], stack.y[own], stack.weight[own]))
        before = {name: each[group] for name, each in (stack.before or {}).items()}
        return self.merge(before, sums) if before else sums

    def _summary(self, sums: Sequence[Tensors]) -> Summary:
        """Return the sums of groups together."""
        seeds = _joined(sums, "seed").astype(np.uint64)
        is_whole = np.array([bool(np.isin(each["rows"], (0.0, 1.0)).all()) for each in sums])
        return Summary(_stacked(sums, seeds), _joined(sums, "rows"), is_whole)

    # Models

    def _solved(
        self, problem: Problem, configs: Sequence[Config], summary: Summary, cancelled: Callable[[], bool]
    ) -> SolvedVectors:
        """Return the models of every config on the points, as if all had taken one epoch."""
        ks = [self.candidates(config) for config in configs]
        wanted = [
            kernel.KMeansConfig(k, n_init=_whole(config, N_INIT), tolerance=float(str(config[TOLERANCE.name])))
            for config, own in zip(configs, ks, strict=True)
            for k in own
        ]
        plan = kernel.ClusteringPlan(problem.n_features, tuple(wanted), lloyd.DEFAULT_EPOCHS)
        found = lloyd.solve(plan, summary.stack, lloyd.DEFAULT_EPOCHS, lambda _: None, cancelled)
        first = starts(np.array([len(own) for own in ks]))
        taken = np.stack(
            [
                begin + self.chosen(config, found.loss[:, begin:end])
                for config, begin, end in zip(configs, first[:-1], first[1:], strict=True)
            ],
            axis=1,
        )
        trials = (np.arange(len(found.loss))[:, None] * len(wanted) + taken).ravel()
        tensors = {name: each.take(trials) for name, each in found.found.items()}
        loss = np.take_along_axis(found.loss, taken, axis=1)
        ones = np.ones(loss.shape, np.int64)
        return SolvedVectors(_counted(tensors, summary, len(configs)), loss, ones, loss[None].copy(), ones > 0)


def _counted(tensors: Mapping[str, Ragged], summary: Summary, configs: int) -> dict[str, Ragged]:
    """Return the tensors with the rows of each cluster, estimated where points are not rows: those of its points."""
    centroids, rows = tensors["centroids"], tensors["rows"].values.copy()
    stack = summary.stack
    for group in np.flatnonzero(~summary.is_whole).tolist():
        own = slice(stack.start[group], stack.start[group + 1])
        models = centroids.part(group * configs, (group + 1) * configs)
        first = centroids.start[group * configs]
        nearest = distances.scores(stack.x[own], models.values, models.start)[..., 0].astype(np.int64) - 1
        for place in range(configs):
            counts = np.bincount(nearest[:, place], summary.rows[own], len(models[place]))
            rows[first + models.start[place] : first + models.start[place + 1]] = np.diff(
                np.rint(np.cumsum(counts)), prepend=0.0
            )
    return {**tensors, "rows": Ragged(rows, tensors["rows"].start)}


def _stacked(sums: Sequence[Tensors], seeds: npt.NDArray[np.uint64] | None) -> Stack:
    values = _joined(sums, "values")
    start = starts(np.array([len(each["values"]) for each in sums]))
    return Stack(values, np.zeros(len(values)), _joined(sums, "weights"), start, seeds)


def _joined(sums: Sequence[Tensors], name: str) -> npt.NDArray[Any]:
    return np.concatenate([each[name] for each in sums])


def _whole(config: Config, parameter: Hyperparameter) -> int:
    return int(str(config[parameter.name]))
