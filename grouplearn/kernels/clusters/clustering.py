"""k-means of groups of rows (``source/clusters/clustering.cpp``): many groups in one call, or one group pass by pass.

Every k of a grid trains in the same passes. A model depends on the group's rows in order, its seed, and its config: not on
other groups or configs, nor on how blocks of rows are distributed.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import (
    WATCH,
    Stopped,
    address,
    calling_back,
    features,
    function,
    progress_callback,
    single_or_double,
)

FloatArray: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]
Tensors: TypeAlias = Mapping[str, npt.NDArray[Any]]

#: Rows of a group in the sample from which seeds are drawn: most, fewest, and the bytes that they should not exceed.
SAMPLED_ROWS, SAMPLED_FEWEST, SAMPLED_BYTES = 8_192, 256, 4 << 20
#: State of a model: ``CONVERGED``, ``ENDED`` at the most passes, ``FAILED`` with non-finite sums, or still in training.
MOVING, LAST_LOOK, CONVERGED, ENDED, FAILED = range(5)

#: Arrays of ``State`` (and ``Found``) and ``Sums``, in the order of ``source/clusters/clustering_passes.hpp``.
_STATE = ("centroids", "clusters", "inertia", "passes", "phase")
_SUMS = ("clusters", "inertia", "far", "spread")
_POINTER, _COUNT, _SEED = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64


class KMeansConfig(NamedTuple):
    """One point of a grid: ``k`` clusters, the best of ``n_init`` starts, which depend on ``seed``.

    A start ends when no centroid moves, or the sum of their squared moves is at most ``tolerance`` times the mean variance
    of the features.
    """

    k: int
    seed: int = 0
    n_init: int = 1
    tolerance: float = 1e-4


class ClusterModels(NamedTuple):
    """Models of G groups, clusters numbered by weight, heaviest first, then by centroids.

    The axis K has the clusters of all configs, cut by ``ClusteringPlan.clusters``: ``centroids`` (G, K, d), NaN without rows;
    ``weight`` and ``rows`` (G, K). Per config (G, C): ``inertia`` Σ w·‖x − c‖², NaN for a ``FAILED`` model; ``passes`` over
    the rows of the best start, and its final ``phase``.
    """

    centroids: FloatArray
    weight: FloatArray
    rows: FloatArray
    inertia: FloatArray
    passes: Counts
    phase: Counts


class _Plan(ctypes.Structure):
    """``Plan`` of ``source/clusters/clustering_passes.hpp``."""

    _fields_ = (
        *((name, _COUNT) for name in ("d", "models", "configs", "chains", "limit")),
        *((name, _POINTER) for name in ("first", "chain", "tolerance", "start")),
        *((name, _POINTER) for name in ("chain_seed", "chain_restart", "chain_trials", "chain_length")),
    )


class _Pointers(ctypes.Structure):
    """Arrays of a ``State``, ``Sums`` or ``Found``."""

    _fields_ = tuple((f"array_{number}", _POINTER) for number in range(5))


def trials(k: int) -> int:
    """Return how many rows greedy k-means++ tries per seed, as scikit-learn does: 2 + ⌊log k⌋."""
    return 2 + int(math.log(k))


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """What to train on rows of ``d`` features: every start of every config is a model.

    Starts of configs with the same seed and number of ``trials`` are prefixes of one chain of seeds, so configs do not
    affect each other.
    """

    d: int
    configs: tuple[KMeansConfig, ...]
    limit: int
    _arrays: dict[str, npt.NDArray[Any]] = field(init=False, repr=False, compare=False)
    _c_plan: _Plan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        chains: dict[tuple[int, int, int], int] = {}
        models = [(config, restart) for config in self.configs for restart in range(config.n_init)]
        chain = [chains.setdefault((config.seed, restart, trials(config.k)), len(chains)) for config, restart in models]
        length = [0] * len(chains)
        for (config, _), number in zip(models, chain, strict=True):
            length[number] = max(length[number], config.k)
        seeds, restarts, tried = zip(*chains, strict=True) if chains else ((), (), ())
        arrays = {
            "first": _running([config.k for config, _ in models]),
            "chain": np.array(chain, np.int64),
            "tolerance": np.array([config.tolerance for config, _ in models], np.float64),
            "start": _running([config.n_init for config in self.configs]),
            "chain_seed": np.array(seeds, np.uint64),
            "chain_restart": np.array(restarts, np.int64),
            "chain_trials": np.array(tried, np.int64),
            "chain_length": np.array(length, np.int64),
        }
        object.__setattr__(self, "_arrays", arrays)
        numbers = (self.d, len(models), len(self.configs), len(seeds), self.limit)
        object.__setattr__(self, "_c_plan", _Plan(*numbers, *(address(each) for each in arrays.values())))

    @property
    def clusters(self) -> Counts:
        """Where each config's clusters begin among all, (C + 1,)."""
        return _running([config.k for config in self.configs])

    @property
    def starts(self) -> Counts:
        """Where each config's models begin among all, (C + 1,)."""
        return self._arrays["start"].copy()

    @property
    def n_models(self) -> int:
        """Number of starts of all configs."""
        return len(self._arrays["chain"])

    @property
    def n_centroids(self) -> int:
        """Number of centroids of all models."""
        return int(self._arrays["first"][-1])

    @property
    def sampled(self) -> int:
        """Most rows in the sample; it depends only on their width, so that configs do not affect each other."""
        return min(SAMPLED_ROWS, max(SAMPLED_FEWEST, SAMPLED_BYTES // (8 * (self.d + 2))))

    def c_plan(self) -> Any:
        """Return the plan for the kernels, valid as long as this one lives."""
        return ctypes.byref(self._c_plan)

    # Pass by pass

    def survey(self, x: npt.NDArray[Any], weight: FloatArray, first_row: int, seed: int) -> Tensors:
        """Return what ``begin`` needs of a block of rows x (n, d), whose first row has the given number in its group.

        ``low`` and ``high`` (d,) of rows with weight, and a sample: ``values`` (m, d), ``weights`` and ``draw`` (m,). A row
        draws a number by (seed, row number); those with the smallest are the sample, so that a group's sample is drawn from
        its blocks' samples, and a group of at most ``sampled`` rows is its own sample.
        """
        rows, weight = features(x), np.ascontiguousarray(weight, np.float64)
        low, high = np.empty(self.d), np.empty(self.d)
        kinds = (*[_POINTER] * 2, _COUNT, _POINTER, _COUNT, *[_POINTER] * 2)
        given = (*single_or_double(rows), self.d, address(weight), len(weight))
        function("survey_rows", *kinds, returns=_COUNT)(*given, address(low), address(high))
        chosen, draw = np.empty(len(weight), np.int64), np.empty(len(weight))
        count = function("sample_rows", _POINTER, _COUNT, _COUNT, _SEED, _COUNT, *[_POINTER] * 2, returns=_COUNT)(
            address(weight), len(weight), first_row, seed, self.sampled, address(chosen), address(draw)
        )
        chosen = chosen[:count]
        values = rows[chosen].astype(np.float64)
        return {"low": low, "high": high, "values": values, "weights": weight[chosen], "draw": draw[:count]}

    def begin(self, survey: Tensors, seed: int) -> Tensors:
        """Return the models of a group before their first pass.

        ``origin`` (d,) and ``scale``: rows are transformed to (x − origin)·scale, as are ``centroids`` (n_centroids, d).
        ``clusters`` (n_centroids, 2) will be the weight and number of their rows; per model there are ``inertia``,
        ``passes`` and ``phase``. Without rows, or if distances overflow, every model has ``FAILED``.
        """
        state = {
            "centroids": np.full((self.n_centroids, self.d), np.nan),
            "clusters": np.zeros((self.n_centroids, 2)),
            "inertia": np.full(self.n_models, np.nan),
            "passes": np.zeros(self.n_models, np.int64),
            "phase": np.zeros(self.n_models, np.int64),
        }
        names = ("values", "weights", "low", "high")
        values, weights, low, high = (np.ascontiguousarray(survey[name], np.float64) for name in names)
        origin, scale = np.zeros(self.d), np.zeros(1)
        kinds = (*[_POINTER] * 3, _COUNT, *[_POINTER] * 2, _SEED, *[_POINTER] * 3)
        function("start_clustering", *kinds)(
            *(self.c_plan(), address(values), address(weights), len(weights), address(low), address(high), seed),
            *(address(origin), address(scale), _pointers(state, _STATE)),
        )
        return {**state, "origin": origin, "scale": scale}

    def sums(self, state: Tensors, x: npt.NDArray[Any], weight: FloatArray, first_row: int) -> Tensors:
        """Return what ``step`` needs of a block of rows x (n, d), whose first row has the given number in its group.

        ``clusters`` (n_centroids, d + 2): Σw·x, Σw and number of the nearest rows, for all models in training; ``inertia``
        (models,), ``far`` (models, 4 + d) the row farthest from its centroid, and ``spread`` Σw·‖x‖². Among equally distant
        centroids the first is nearest.
        """
        found = {
            "clusters": np.empty((self.n_centroids, self.d + 2)),
            "inertia": np.empty(self.n_models),
            "far": np.empty((self.n_models, 4 + self.d)),
            "spread": np.empty(1),
        }
        rows, weight = features(x), np.ascontiguousarray(weight, np.float64)
        state = {name: np.ascontiguousarray(each) for name, each in state.items()}
        kinds = (*[_POINTER] * 5, *[_COUNT] * 2, _POINTER, ctypes.c_double, _POINTER)
        function("sum_clusters", *kinds)(
            *(
                self.c_plan(),
                _pointers(state, _STATE),
                *single_or_double(rows),
                address(weight),
                len(weight),
                first_row,
            ),
            *(address(state["origin"]), float(state["scale"][0]), _pointers(found, _SUMS)),
        )
        return found

    def step(self, state: Tensors, sums: Tensors) -> Tensors:
        """Return the models after a pass: centroids move to the means of their rows.

        The first cluster without rows takes the row farthest from its centroid, which leaves its own cluster. A converged
        model gets one more pass, so that ``clusters`` and ``inertia`` belong to its final centroids.
        """
        after = {name: np.array(each, order="C") for name, each in state.items()}
        used = {name: np.array(each, np.float64, order="C") for name, each in sums.items()}
        function("step_clusters", *[_POINTER] * 3)(self.c_plan(), _pointers(after, _STATE), _pointers(used, _SUMS))
        return after

    def finish(self, state: Tensors) -> ClusterModels:
        """Return the finished models of one group: each config's start with the least inertia."""
        found = self._found(1)
        state = {name: np.ascontiguousarray(each) for name, each in state.items()}
        function("finish_clusters", _POINTER, _POINTER, _POINTER, ctypes.c_double, _POINTER)(
            *(
                self.c_plan(),
                _pointers(state, _STATE),
                address(state["origin"]),
                float(state["scale"][0]),
                _pointers(found, _STATE),
            )
        )
        return _as_clusters(found)

    def _found(self, groups: int) -> dict[str, npt.NDArray[Any]]:
        clusters, shape = int(self.clusters[-1]), (groups, len(self.configs))
        return {
            "centroids": np.empty((groups, clusters, self.d)),
            "clusters": np.empty((groups, clusters, 2)),
            "inertia": np.empty(shape),
            "passes": np.empty(shape, np.int64),
            "phase": np.empty(shape, np.int64),
        }


def merged_surveys(left: Tensors, right: Tensors, most: int) -> Tensors:
    """Return the survey of both parts' rows, ``left`` first, with a sample of limited size."""
    sampled = {name: np.concatenate([left[name], right[name]]) for name in ("values", "weights", "draw")}
    if len(sampled["draw"]) > most:
        kept = np.sort(np.argsort(sampled["draw"], kind="stable")[:most])
        sampled = {name: each[kept] for name, each in sampled.items()}
    return {"low": np.minimum(left["low"], right["low"]), "high": np.maximum(left["high"], right["high"]), **sampled}


def merged(left: Tensors, right: Tensors) -> Tensors:
    """Return the sums of both parts' rows; of equally far rows the first counts."""
    later = right["far"][:, :1] > left["far"][:, :1]
    sums = {name: left[name] + right[name] for name in ("clusters", "inertia", "spread")}
    return {**sums, "far": np.where(later, right["far"], left["far"])}


class Convergence(NamedTuple):
    """How G groups converged: ``epochs`` (G, C) passes, which configs ``converged`` (G, C), and ``curve`` (passes, G, C),
    the least inertia of a config's starts in each pass, NaN after its last."""

    epochs: Counts
    converged: npt.NDArray[np.bool_]
    curve: FloatArray


def solve(
    plan: ClusteringPlan,
    x: npt.NDArray[Any],
    weight: FloatArray,
    start: Counts,
    seeds: npt.NDArray[np.uint64],
    *,
    limits: tuple[int, int],
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> tuple[ClusterModels, Convergence]:
    """Return the models of every config for the groups whose rows are ``start[g]`` to ``start[g + 1]`` of x (n, d).

    ``limits`` are the rows of a block, and the most passes of a config. The first pass is over the sample of ``begin``; if
    that may not be all rows, starts that converged on it continue. The bits are those of ``survey`` to ``finish`` over
    blocks, merged as by ``train.block_sums``. x is float32 or float64 and finite, ``seeds`` (G,). ``report`` is called with
    passes, counted per config. Raises Stopped soon after ``cancelled()`` became true.
    """
    groups, found, (block_rows, epochs) = len(start) - 1, plan._found(len(start) - 1), limits
    rows, weight = features(x), np.ascontiguousarray(weight, np.float64)
    start, seeds = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(seeds, np.uint64)
    shape = groups, len(plan.configs)
    course = Convergence(np.empty(shape, np.int64), np.empty(shape, np.bool_), np.empty((*shape, epochs)))

    def look() -> None:
        if cancelled():
            raise Stopped

    kinds = (*[_POINTER] * 6, *[_COUNT] * 4, *[_POINTER] * 2, WATCH)
    call = function("solve_clusters", *kinds, returns=ctypes.c_int)
    to = ctypes.byref(_Pointers(*map(address, (course.curve, course.epochs, course.converged))))
    with progress_callback(report, cancelled) as watch, calling_back(look):
        stopped = call(
            *(plan.c_plan(), *single_or_double(rows), address(weight), address(start), address(seeds)),
            *(groups, block_rows, plan.sampled, epochs, _pointers(found, _STATE), to, watch),
        )
    if stopped:
        raise Stopped
    curve = np.moveaxis(course.curve[..., : int(course.epochs.max(initial=0))], -1, 0).copy()
    curve[np.arange(len(curve))[:, None, None] >= course.epochs] = np.nan
    return _as_clusters(found), course._replace(curve=curve)


def _running(sizes: Sequence[int]) -> Counts:
    return np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))]).astype(np.int64)


def _pointers(arrays: Tensors, names: Sequence[str]) -> Any:
    return ctypes.byref(_Pointers(*(address(arrays[name]) for name in names)))


def _as_clusters(found: Mapping[str, npt.NDArray[Any]]) -> ClusterModels:
    weight, rows = np.moveaxis(found["clusters"], -1, 0).copy()
    return ClusterModels(found["centroids"], weight, rows, found["inertia"], found["passes"], found["phase"])
