"""The learner ``kmeans``: clusters of the rows of each group, every k of a grid in the same passes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Shard
from grouplearn.kernels import clustering as kernel
from grouplearn.learners.contract.access import SUMS, AccessPattern
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.learner import Vector, VectorLearner
from grouplearn.learners.contract.problem import Problem, Task
from grouplearn.learners.contract.state import Artifact, State, Tensors
from grouplearn.learners.contract.ways import AlgebraicLearner
from grouplearn.learners.unsupervised import k_means
from grouplearn.learners.unsupervised.cost import CLUSTERS

_MOST_CLUSTERS, _MOST_STARTS = 100_000, 1_000
#: More passes than any statement allows.
_MOST_PASSES = 1 << 40
#: The least difference whose square is a number of all its digits.
_LEAST_APART = 1e-150
K = Hyperparameter("k", "int", 8, "number of clusters", "Lloyd 1982", low=1, high=_MOST_CLUSTERS)
N_INIT = Hyperparameter(
    "n_init",
    "int",
    k_means.DEFAULT_N_INIT,
    "starts from other seeds, of which the one with the least inertia is kept",
    "Arthur & Vassilvitskii 2007",
    low=1,
    high=_MOST_STARTS,
)
TOLERANCE = Hyperparameter(
    "tolerance",
    "float",
    1e-4,
    "a start ends when the squared moves of its centroids sum to no more than this share of the features' mean variance; "
    "0: when no row changes its cluster",
    "scikit-learn's tol",
    low=0.0,
)
#: What a survey has besides what the kernel knows: the weight of all rows, and how many rows a sample has at most.
_OWN = ("total", "most")
#: A block of fewer rows than this begins at a multiple of it in its group, whatever the size of blocks.
_BLOCK = 1 << 32


class KMeans(AlgebraicLearner, VectorLearner):
    """Minimises the inertia Σ wᵢ·min_c ‖xᵢ − c‖² over k centroids by Lloyd's algorithm from greedy k-means++ seeds.

    The first pass draws the sample that seeds are chosen from, at most 8,192 rows of a group, and moves the centroids by it
    once; each further pass moves them by all rows. See ``k_means``.
    """

    name: ClassVar[str] = "kmeans"
    summary: ClassVar[str] = (
        "clusters by k-means++ and Lloyd's algorithm, every k of a grid from the same passes over the rows"
    )
    tasks: ClassVar[frozenset[Task]] = frozenset({Task.CLUSTERING})
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (K, N_INIT, TOLERANCE)
    default_epochs: ClassVar[int | None] = k_means.DEFAULT_EPOCHS
    cost: ClassVar[Cost] = CLUSTERS
    #: A pass over a block compares its rows with tens of centroids while the interpreter is free.
    access: ClassVar[AccessPattern] = replace(SUMS, threaded_from=4_000.0)

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return a state that has seen no rows; Diverged where there is nothing to learn from."""
        if not problem.n_features:
            raise Diverged("there are no features")
        return State({"loss": np.full(len(configs), np.nan)}, np.zeros(len(configs), dtype=bool))

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the tensors are those of such centroids in training."""
        loss, models = state.tensors.get("loss"), _models(state)
        fits = loss is not None and loss.dtype == np.float64 and loss.shape == (len(configs),)
        return fits and k_means.is_sound(_plan(problem, configs), models)

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the survey of one block in the first pass, the sums of rows by their nearest centroid later."""
        models, plan = _models(state), _plan(problem, configs)
        x, weight = np.asarray(block.x), block.weight
        sums = k_means.accumulate(plan, problem.seed, models, x, weight, block.first * _BLOCK)
        return sums if models else {**sums, "total": np.array([weight.sum()]), "most": np.array([plan.sampled])}

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the sums of both, of which ``left`` are the rows that come first."""
        if "draw" not in left:
            return kernel.merged(left, right)
        survey = kernel.merged_surveys(left, right, int(left["most"][0]))
        return {**survey, "total": left["total"] + right["total"], "most": left["most"]}

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the state after a pass; raises Diverged in the first one where distances overflow, or vanish."""
        plan, models, share = _plan(problem, configs), _models(state), 1.0
        if not models:
            _refuse_tiny(sums)
        after = k_means.step(
            plan, problem.seed, models, {name: each for name, each in sums.items() if name not in _OWN}
        )
        if not models:
            # Seeds move by the rows that they were drawn from: of most groups that is all rows.
            rows, weight = sums["values"], sums["weights"]
            after = k_means.step(plan, problem.seed, after, plan.sums(after, rows, weight, 0))
            share = float(sums["total"][0] / weight.sum())
        loss = k_means.losses(plan, after) * share
        return State({**after, "loss": loss}, k_means.done(plan, after))

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return cluster, its distance and that to the second nearest centroid, (n, n_configs, 3)."""
        found = k_means.finish(_plan(problem, configs), _models(state))
        rows = np.asarray(x)
        return np.stack([_distances(rows, each.centroids[each.rows > 0]) for each in found], axis=1)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``centroids`` (k, d), ``weight`` and ``rows`` (k,) of config ``index``, of the clusters that have rows."""
        plan = _plan(problem, configs)
        model = k_means.model(plan, plan.finish(_models(state)), 0, index)
        has_rows = model.rows > 0
        tensors = {"centroids": model.centroids, "weight": model.weight, "rows": model.rows}
        return Artifact("tensors", {name: np.ascontiguousarray(each[has_rows]) for name, each in tensors.items()})

    def score(self, task: Task, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return cluster, its distance and that to the second nearest centroid, (n, 3)."""
        del task
        return _distances(np.asarray(x), artifact.tensors["centroids"])

    def flaw(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from centroids of such a group."""
        names = {"centroids", "weight", "rows"}
        if artifact.format != "tensors" or artifact.tensors.keys() != names:
            return "it has not the tensors of centroids"
        centroids = artifact.tensors["centroids"]
        if centroids.dtype != np.float64 or centroids.shape[1:] != (problem.n_features,) or not len(centroids):
            return f"its centroids are {centroids.dtype}{list(centroids.shape)}, with {problem.n_features} features"
        if any(artifact.tensors[name].shape != (len(centroids),) for name in ("weight", "rows")):
            return "it has not one weight and one number of rows for each centroid"
        return None if np.isfinite(centroids).all() else "a centroid is not finite"

    def vectors(self, artifact: Artifact) -> list[Vector]:
        """Return the centroids, numbered from 1, with the number of their training rows."""
        pairs = zip(artifact.tensors["centroids"], artifact.tensors["rows"].tolist(), strict=True)
        return [Vector("centroid", number, centroid, rows) for number, (centroid, rows) in enumerate(pairs, start=1)]


def _refuse_tiny(survey: Tensors) -> None:
    """Raise Diverged where rows differ, and no square of a difference is a number above 0: SQL could not tell clusters apart."""
    with np.errstate(over="ignore"):
        apart = float(np.max(survey["high"] - survey["low"], initial=0.0))
    if 0 < apart < _LEAST_APART:
        raise Diverged(
            "the features differ by less than 1e-150, whose squares are 0; scale them, with zscore for example"
        )


def _plan(problem: Problem, configs: Sequence[Config]) -> kernel.Plan:
    wanted = (tuple(config[each.name] for each in (K, N_INIT, TOLERANCE)) for config in configs)
    return _planned(problem.n_features, tuple(wanted))


@functools.lru_cache
def _planned(n_features: int, configs: tuple[tuple[Any, ...], ...]) -> kernel.Plan:
    """Return the plan of a pack, which every pass over every group asks for; how many passes there are is not its matter."""
    wanted = (kernel.Config(k, n_init=n_init, tolerance=tolerance) for k, n_init, tolerance in configs)
    return kernel.Plan(n_features, tuple(wanted), _MOST_PASSES)


def _models(state: State) -> Tensors:
    return {name: each for name, each in state.tensors.items() if name != "loss"}


def _distances(x: FloatArray, centroids: FloatArray) -> FloatArray:
    """Return number from 1, distance, and distance to the second nearest of ``centroids``, infinite of one; (n, 3).

    A row whose squared distance is beyond a double is in no cluster: SQL, which predicts, too, could not tell of which.
    """
    cluster, nearest = kernel.assign(x, centroids)
    with np.errstate(over="ignore"):
        far = ~np.isfinite(nearest * nearest)
    cluster[far], nearest[far] = -1, np.nan
    second = np.full(len(x), np.inf)
    for number in range(len(centroids)) if len(centroids) > 1 else ():
        own = cluster == number
        others = centroids.copy()
        others[number] = np.nan
        second[own] = kernel.assign(x[own], others)[1]
    place = np.where(cluster < 0, np.nan, cluster + 1.0)
    return np.column_stack([place, nearest, np.where(cluster < 0, np.nan, second)])
