"""The learner ``pca``: principal components of the rows of each group, every number of them from the same moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Shard
from grouplearn.kernels import algebra
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.learner import Vector, VectorLearner
from grouplearn.learners.contract.problem import Problem, Task
from grouplearn.learners.contract.state import Artifact, State, Tensors, has_tensors_of
from grouplearn.learners.contract.ways import AlgebraicLearner
from grouplearn.learners.linear import moments
from grouplearn.learners.unsupervised import principal_components
from grouplearn.learners.unsupervised.cost import COMPONENTS

N_COMPONENTS = Hyperparameter(
    "n_components",
    "int",
    None,
    "number of components; where it is NULL, or more than the directions in which rows of a group differ: all of these",
    "Jolliffe 2002",
    low=1,
    nullable=True,
)


class Pca(AlgebraicLearner, VectorLearner):
    """Finds orthonormal directions, one after the other, along which the rows of a group have the greatest variance.

    They are eigenvectors of the covariance Σ wᵢ(xᵢ − x̄)(xᵢ − x̄)' / (Σw − 1), from moments of the rows: exact, in one pass. Each
    has its largest entry positive. See ``principal_components``; scikit-learn: PCA(svd_solver="covariance_eigh").
    """

    name: ClassVar[str] = "pca"
    summary: ClassVar[str] = "principal components, every number of them from one pass over the rows"
    tasks: ClassVar[frozenset[Task]] = frozenset({Task.PROJECTION})
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (N_COMPONENTS,)
    cost: ClassVar[Cost] = COMPONENTS

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return components that are 0; Diverged where there is nothing to learn from."""
        d = problem.n_features
        if not d:
            raise Diverged("there are no features")
        tensors = {
            "mean": np.zeros(d),
            "components": np.zeros((d, d)),
            "variance": np.zeros(d),
            "rank": np.zeros((), np.int64),
        }
        loss = np.full(len(configs), np.nan)
        return State({**tensors, "loss": loss}, np.zeros(len(configs), dtype=bool))

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the tensors are those of such components."""
        sound = has_tensors_of(state, self.init(problem, configs))
        return sound and 0 <= int(state.tensors["rank"]) <= problem.n_features

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the moments of one block; see ``moments.block_moments``."""
        del problem, configs, state
        return moments.block_moments(block.x, np.zeros((len(block.weight), 0)), block.weight, gram=True)

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the moments of both."""
        return moments.merge_moments(left, right)

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return all components; Diverged where sums overflow or all rows are the same."""
        del state
        found = principal_components.fit_one(sums)
        if not found.rank:
            raise Diverged(
                "all training rows have the same features, so that there is no direction in which they differ"
            )
        left = [float(found.variance[_count(config, int(found.rank)) :].sum()) for config in configs]
        tensors = {
            "mean": found.mean,
            "components": found.components,
            "variance": found.variance,
            "rank": np.asarray(found.rank),
            "loss": np.array(left),
        }
        del problem
        return State(tensors, np.ones(len(configs), dtype=bool))

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return residual and coordinates, (n, n_configs, 1 + k) for the most components, NaN beyond those of a config."""
        artifacts = [self.finalize(problem, configs, state, index) for index in range(len(configs))]
        each = [self.score(Task.PROJECTION, artifact, x) for artifact in artifacts]
        widest = max(scores.shape[1] for scores in each)
        padded = [np.pad(own, ((0, 0), (0, widest - own.shape[1])), constant_values=np.nan) for own in each]
        return np.stack(padded, axis=1)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``mean`` (d,), ``components`` (k, d), ``variance`` (k,) and their ``total`` (1,) of config ``index``."""
        del problem
        tensors = state.tensors
        kept = _count(configs[index], int(tensors["rank"]))
        found = {
            "mean": tensors["mean"],
            "components": tensors["components"][:kept],
            "variance": tensors["variance"][:kept],
            "total": np.array([tensors["variance"].sum()]),
        }
        return Artifact("tensors", {name: np.ascontiguousarray(each) for name, each in found.items()})

    def score(self, task: Task, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the distance of rows from the point that their coordinates are of, and the coordinates; (n, 1 + k)."""
        del task
        components = artifact.tensors["components"]
        centred = np.asarray(x, np.float64) - artifact.tensors["mean"]
        coordinates = algebra.product(centred, np.ascontiguousarray(components.T))
        left = centred - algebra.product(coordinates, components)
        return np.column_stack([np.sqrt((left * left).sum(axis=1)), coordinates])

    def flaw(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from components of such a group."""
        if artifact.format != "tensors" or artifact.tensors.keys() != {"mean", "components", "variance", "total"}:
            return "it has not the tensors of components"
        d, components = problem.n_features, artifact.tensors["components"]
        if components.ndim != 2 or not 1 <= len(components) <= d:
            return f"its components are {list(components.shape)}, with {d} features"
        shapes = {"mean": (d,), "components": (len(components), d), "variance": (len(components),), "total": (1,)}
        for name, shape in shapes.items():
            tensor = artifact.tensors[name]
            if tensor.dtype != np.float64 or tensor.shape != shape or not np.isfinite(tensor).all():
                return f"its tensor {name} is {tensor.dtype}{list(tensor.shape)}, not finite float64{list(shape)}"
        return None

    def vectors(self, artifact: Artifact) -> list[Vector]:
        """Return the mean, with the variance in all, and the components, with that along each."""
        tensors = artifact.tensors
        mean = Vector("mean", 0, tensors["mean"], float(tensors["total"][0]))
        pairs = zip(tensors["components"], tensors["variance"].tolist(), strict=True)
        return [
            mean,
            *(Vector("component", number, each, variance) for number, (each, variance) in enumerate(pairs, start=1)),
        ]


def _count(config: Config, rank: int) -> int:
    """Return how many components a config keeps of those that say something."""
    wanted = config[N_COMPONENTS.name]
    return rank if wanted is None else min(int(str(wanted)), rank)
