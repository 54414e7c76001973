"""The learner ``kmeans``: clusters of each group's rows, every k of a grid in the same passes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack
from grouplearn.kernels.clusters import clustering as kernel
from grouplearn.kernels.clusters import distances
from grouplearn.learners.contract.access import SUMS, AccessPattern
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.unsupervised import lloyd
from grouplearn.learners.unsupervised.centroids import N_INIT, TOLERANCE, CentroidLearner, K
from grouplearn.learners.unsupervised.cost import CLUSTERS
from grouplearn.learners.unsupervised.one_pass.coreset import CoresetKMeans
from grouplearn.learners.unsupervised.one_pass.facility_location import FacilityKMeans
from grouplearn.learners.unsupervised.solved import SolvedVectors
from grouplearn.models.label import CLUSTERING
from grouplearn.models.outputs.clusters import Clusters
from grouplearn.models.state import Artifact, State, Tensors

#: More passes than any statement allows.
_MOST_PASSES = 1 << 40
#: A block has fewer rows than this, and its first row's number is a multiple of it, whatever the block size.
_BLOCK = 1 << 32


class KMeans(CentroidLearner):
    """Minimises the inertia Σ wᵢ·min_c ‖xᵢ − c‖² over k centroids by Lloyd's algorithm from greedy k-means++ seeds.

    The first pass samples at most 8,192 rows of a group, chooses seeds among them, and moves the centroids by them once;
    each further pass moves them by all rows. See ``lloyd``.
    """

    declaration = Declaration(
        name="kmeans",
        summary="clusters by k-means++ and Lloyd's algorithm, every k of a grid from the same passes over the rows",
        labels=frozenset({CLUSTERING}),
        output=Clusters,
        hyperparameters=(K, N_INIT, TOLERANCE),
        default_epochs=lloyd.DEFAULT_EPOCHS,
        form="vectors",
        needs_scaling=True,
        draws=True,
        cost=CLUSTERS,
        solver="lloyd",
        further_ways=(CoresetKMeans(), FacilityKMeans()),
    )
    #: A pass over a block compares its rows with tens of centroids without the interpreter lock.
    access: ClassVar[AccessPattern] = replace(SUMS, threaded_from=4_000.0)

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return a state that has seen no rows; Diverged if there is nothing to learn from."""
        if not problem.n_features:
            raise Diverged("there are no features")
        return State({"loss": np.full(len(configs), np.nan)}, np.zeros(len(configs), dtype=bool))

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the tensors are a valid state of such centroids."""
        loss, models = state.tensors.get("loss"), _models(state)
        fits = loss is not None and loss.dtype == np.float64 and loss.shape == (len(configs),)
        return fits and (not models or lloyd.is_sound(_plan(problem, configs), models))

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return whether there are features: a pass over a small group costs less than the Python around it."""
        del configs
        return problem.n_features > 0

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the survey of one block in the first pass, later the sums of rows by nearest centroid."""
        models, plan = _models(state), _plan(problem, configs)
        rows = np.asarray(block.x), block.weight, block.first * _BLOCK
        if models:
            return plan.sums(models, *rows)
        survey = plan.survey(*rows, problem.seed)
        return {**survey, "total": np.array([block.weight.sum()]), "most": np.array([plan.sampled])}

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the sums of both; the rows of ``left`` come first."""
        if "draw" not in left:
            return kernel.merged(left, right)
        survey = kernel.merged_surveys(left, right, int(left["most"][0]))
        return {**survey, "total": left["total"] + right["total"], "most": left["most"]}

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the state after a pass; the first raises Diverged if distances overflow or vanish."""
        plan, models, share = _plan(problem, configs), _models(state), 1.0
        if models:
            after = plan.step(models, sums)
        else:
            after = lloyd.begin(plan, problem.seed, sums)
            share = float(sums["total"][0] / sums["weights"].sum())
        loss = lloyd.losses(plan, after) * share
        return State({**after, "loss": loss}, lloyd.done(plan, after), lloyd.FinishedClusters(plan, after))

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> SolvedVectors:
        """Return the models of every config on every group of a stack, bit for bit as by steps over their blocks."""
        return lloyd.solve(_plan(problem, configs), stack, problem.epochs, report, cancelled)

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return cluster, distance, and distance to the second nearest centroid, (n, n_configs, 3)."""
        centroids = _finished(problem, configs, state).tensors["centroids"]
        return distances.scores(np.asarray(x), centroids.values, centroids.start)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``centroids`` (k, d), ``weight`` and ``rows`` (k,) of config ``index``, for clusters with rows."""
        return Artifact("tensors", _finished(problem, configs, state).model(index))


def _plan(problem: Problem, configs: Sequence[Config]) -> kernel.ClusteringPlan:
    wanted = (tuple(config[each.name] for each in (K, N_INIT, TOLERANCE)) for config in configs)
    return _planned(problem.n_features, tuple(wanted))


@functools.lru_cache
def _planned(n_features: int, configs: tuple[tuple[Any, ...], ...]) -> kernel.ClusteringPlan:
    """Return the plan of a pack, cached for all passes over all groups; it does not depend on the number of passes."""
    wanted = (kernel.KMeansConfig(k, n_init=n_init, tolerance=tolerance) for k, n_init, tolerance in configs)
    return kernel.ClusteringPlan(n_features, tuple(wanted), _MOST_PASSES)


def _models(state: State) -> Tensors:
    return {name: each for name, each in state.tensors.items() if name != "loss"}


def _finished(problem: Problem, configs: Sequence[Config], state: State) -> lloyd.FinishedClusters:
    """Return the models of a final state; for a freshly trained one they are cached in it."""
    found: lloyd.FinishedClusters | None = state.live
    return lloyd.FinishedClusters(_plan(problem, configs), _models(state)) if found is None else found
