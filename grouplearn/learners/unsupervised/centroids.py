"""What the ways of ``kmeans`` share: their hyperparameters, and the finished models, which are centroids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Stack
from grouplearn.kernels.clusters import distances
from grouplearn.kernels.library import RowRuns
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.learner import Vector, VectorLearner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import SolvedStack, StackLearner
from grouplearn.models.label import Label
from grouplearn.models.metrics.metrics import MetricSums
from grouplearn.models.outputs.clusters import Clusters
from grouplearn.models.state import Artifact

MOST_CLUSTERS, _MOST_STARTS = 100_000, 1_000
K = Hyperparameter("k", "int", 8, "number of clusters", "Lloyd 1982", low=1, high=MOST_CLUSTERS)
N_INIT = Hyperparameter(
    "n_init",
    "int",
    3,
    "number of starts from different seeds; the one with the least inertia is kept",
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


class CentroidLearner(StackLearner, VectorLearner):
    """Its models are ``centroids`` (k, d), with the ``weight`` and the number of ``rows`` (k,) of their clusters."""

    def measure(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: SolvedStack, wanted: Collection[str]
    ) -> dict[str, FloatArray]:
        """Return the metrics of solved models on rows of the same groups; see ``stacks.GatheringLearner``."""
        del problem, configs
        centroids = solved.tensors()["centroids"]
        sums = distances.of_groups(stack.x, stack.weight, stack.start, (centroids.values, centroids.start))
        finished = Clusters.metrics.finish(
            MetricSums({**sums._asdict(), "clustered": sums.clustered[:, None]}), *wanted
        )
        return {name: finished[name] for name in wanted}

    def score(self, label: Label, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return cluster, distance, and distance to the second nearest centroid, (n, 3)."""
        del label
        centroids = artifact.tensors["centroids"]
        return distances.scores(np.asarray(x), centroids, np.array([0, len(centroids)]))[:, 0]

    def score_runs(
        self, label: Label, artifacts: Sequence[Artifact]
    ) -> Callable[[FloatArray, RowRuns], FloatArray] | None:
        """Return ``score`` by one kernel."""
        del label
        if not artifacts:
            return None
        centroids = Ragged.of([artifact.tensors["centroids"] for artifact in artifacts])
        return lambda x, runs: distances.score_runs(x, centroids.values, centroids.start, runs)

    def validation_error(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from valid centroids of such a group."""
        names = {"centroids", "weight", "rows"}
        if artifact.format != "tensors" or artifact.tensors.keys() != names:
            return "its tensors are not those of centroids"
        centroids = artifact.tensors["centroids"]
        if centroids.dtype != np.float64 or centroids.shape[1:] != (problem.n_features,) or not len(centroids):
            return f"its centroids are {centroids.dtype}{list(centroids.shape)}, with {problem.n_features} features"
        if any(artifact.tensors[name].shape != (len(centroids),) for name in ("weight", "rows")):
            return "a centroid has no weight or no number of rows"
        return None if np.isfinite(centroids).all() else "a centroid is not finite"

    def vectors(self, artifact: Artifact) -> list[Vector]:
        """Return the centroids, numbered from 1, with their numbers of training rows."""
        pairs = zip(artifact.tensors["centroids"], artifact.tensors["rows"].tolist(), strict=True)
        return [Vector("centroid", number, centroid, rows) for number, (centroid, rows) in enumerate(pairs, start=1)]
