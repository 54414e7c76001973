"""The learner ``pca``: principal components of each group's rows, every number of them from the same moments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack
from grouplearn.kernels.clusters import projections
from grouplearn.kernels.library import RowRuns
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.learner import Declaration, Learner, Vector, VectorLearner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import SolvedStack, StackLearner, joined_states, states_of
from grouplearn.learners.linear.least_squares import moments
from grouplearn.learners.unsupervised import principal_components
from grouplearn.learners.unsupervised.cost import COMPONENTS
from grouplearn.learners.unsupervised.solved import SolvedVectors
from grouplearn.models.label import PROJECTION, Label
from grouplearn.models.metrics.metrics import MetricSums
from grouplearn.models.outputs.projection import Projection
from grouplearn.models.state import Artifact, State, Tensors, has_tensors_of

N_COMPONENTS = Hyperparameter(
    "n_components",
    "int",
    None,
    "number of components; NULL, or more than the rank of a group's rows: as many as that rank",
    "Jolliffe 2002",
    low=1,
    nullable=True,
    late=True,
)
WHITEN = Hyperparameter(
    "whiten",
    "bool",
    False,
    "divide each coordinate by the standard deviation of the training rows along its component, so that all have variance 1",
    "scikit-learn: PCA(whiten=True)",
    late=True,
)
_ELSEWHERE = {"svd_solver": "WITH (solver = 'sketch') takes little memory; otherwise components are exact"}


class Pca(StackLearner, VectorLearner):
    """Finds successive orthonormal directions along which the rows of a group have the greatest variance.

    They are eigenvectors of the covariance Σ wᵢ(xᵢ − x̄)(xᵢ − x̄)' / (Σw − 1), from moments of the rows: exact, in one
    pass. The largest entry of each is positive. See ``principal_components``; scikit-learn:
    PCA(svd_solver="covariance_eigh"). Components of whitened coordinates are divided by the standard deviation along them.
    """

    def __init__(self, further_ways: tuple[Learner, ...] = ()) -> None:
        """Take the other ways of training."""
        self.declaration = Declaration(
            name="pca",
            summary="principal components; one pass over the rows gives every number of them; a row of weight w counts as w rows",
            labels=frozenset({PROJECTION}),
            output=Projection,
            hyperparameters=(N_COMPONENTS, WHITEN),
            form="vectors",
            handles_sparse=True,
            needs_scaling=True,
            one_pass=True,
            refused=_ELSEWHERE,
            cost=COMPONENTS,
            solver="moments",
            further_ways=further_ways,
        )

    @property
    def prefers_sparse(self) -> bool:
        """False: products of all columns are faster of dense rows."""
        return False

    def most_components(self, problem: Problem, configs: Sequence[Config]) -> int:
        """Return how many components training finds at most."""
        del configs
        return problem.n_features

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return zero components; Diverged if there is nothing to learn from."""
        d, most = problem.n_features, self.most_components(problem, configs)
        if not d:
            raise Diverged("there are no features")
        tensors = {
            "mean": np.zeros(d),
            "components": np.zeros((most, d)),
            "variance": np.zeros(most),
            "rank": np.zeros((), np.int64),
            "rest": np.zeros(()),
        }
        loss = np.full(len(configs), np.nan)
        return State({**tensors, "loss": loss}, np.zeros(len(configs), dtype=bool))

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the tensors are a valid state of such components."""
        sound = has_tensors_of(state, self.init(problem, configs))
        return sound and 0 <= int(state.tensors["rank"]) <= self.most_components(problem, configs)

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return whether there are features: moments of a small group cost less than the Python around them."""
        del configs
        return problem.n_features > 0

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the moments of one block; see ``moments.block_moments``."""
        del problem, configs, state
        return moments.block_moments(block.x, np.zeros((len(block.weight), 0)), block.weight, gram=True)

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the moments of both."""
        return moments.merge_moments(left, right)

    def found(self, sums: Tensors) -> principal_components.Components:
        """Return the components of rows with these sums."""
        return principal_components.fit_one(sums)

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return all components; Diverged if sums overflow or all rows are equal."""
        del problem, state
        found = self.found(sums)
        if not found.rank:
            raise Diverged(
                "all training rows have the same features, so that there is no direction in which they differ"
            )
        left = [float(found.variance[_count(config, int(found.rank)) :].sum() + found.rest) for config in configs]
        tensors = {
            "mean": found.mean,
            "components": found.components,
            "variance": found.variance,
            "rank": np.asarray(found.rank),
            "rest": found.rest,
            "loss": np.array(left),
        }
        return State(tensors, np.ones(len(configs), dtype=bool))

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> SolvedVectors:
        """Return the components of every group of a stack, bit for bit as by a step; none where ``step`` raises Diverged."""
        parts, losses, every = [], [], []
        for part in moments.runs_of(stack, problem.n_features, cancelled):
            sums = moments.group_moments(part, np.zeros((len(part.weight), 0)))
            every.append(states_of(sums) if part.keeps_sums else None)
            found = principal_components.fit(sums)
            kept = np.stack([[_count(config, rank) for config in configs] for rank in found.rank.tolist()])
            parts.append(
                _tensors(found, kept, [*map(_whitens, configs)])
            )  # a group's own components may be few of its columns
            losses.append(_losses(found, kept))
            report(part.n_groups * len(configs))
        tensors = {name: Ragged.joined([each[name] for each in parts]) for name in parts[0]}
        loss = np.concatenate(losses)
        ones = np.ones(loss.shape, np.int64)
        return SolvedVectors(tensors, loss, ones, loss[None].copy(), ones > 0, joined_states(every))

    def measure(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: SolvedStack, wanted: Collection[str]
    ) -> dict[str, FloatArray]:
        """Return the metrics of solved models on rows of the same groups; see ``stacks.GatheringLearner``."""
        tensors, components = solved.tensors(), solved.tensors()["components"]
        mean = tensors["mean"].values.reshape(-1, len(configs), problem.n_features)[:, 0]
        sums = projections.of_groups(stack.x, stack.weight, stack.start, mean, (components.values, components.start))
        finished = Projection.metrics.finish(
            MetricSums({**sums._asdict(), "projected": sums.projected[:, None]}), *wanted
        )
        return {name: finished[name] for name in wanted}

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the rows' ``score``, (n, n_configs, 2 + k) for the most components, NaN beyond a config's."""
        artifacts = [self.finalize(problem, configs, state, index) for index in range(len(configs))]
        each = [self.score(PROJECTION, artifact, x) for artifact in artifacts]
        widest = max(scores.shape[1] for scores in each)
        padded = [np.pad(own, ((0, 0), (0, widest - own.shape[1])), constant_values=np.nan) for own in each]
        return np.stack(padded, axis=1)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``mean`` (d,), ``components`` (k, d), their ``variance`` (k,) and the ``total`` (1,) of config ``index``."""
        del problem
        tensors, config = state.tensors, configs[index]
        kept = _count(config, int(tensors["rank"]))
        components, variance = tensors["components"][:kept], tensors["variance"][:kept]
        found = {
            "mean": tensors["mean"],
            "components": _whitening(components, variance) if _whitens(config) else components,
            "variance": variance,
            "total": np.array([tensors["variance"].sum() + tensors["rest"]]),
        }
        return Artifact("tensors", {name: np.ascontiguousarray(each) for name, each in found.items()})

    def score(self, label: Label, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the rows' residuals, squared lengths of projections, and coordinates, (n, 2 + k)."""
        del label
        scores = projections.scores if isinstance(x, np.ndarray) else projections.sparse_scores
        return scores(x, artifact.tensors["mean"], artifact.tensors["components"])

    def score_runs(
        self, label: Label, artifacts: Sequence[Artifact]
    ) -> Callable[[FloatArray, RowRuns], FloatArray] | None:
        """Return ``score`` by one kernel, if all groups have the same number of components."""
        del label
        if len({len(artifact.tensors["components"]) for artifact in artifacts}) != 1:
            return None
        mean, components = (np.stack([each.tensors[name] for each in artifacts]) for name in ("mean", "components"))
        return lambda x, runs: projections.score_runs(x, mean, components, runs)

    def validation_error(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from valid components of such a group."""
        if artifact.format != "tensors" or artifact.tensors.keys() != {"mean", "components", "variance", "total"}:
            return "its tensors are not those of components"
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
        """Return the mean with the total variance, and the components, each with its variance."""
        tensors = artifact.tensors
        mean = Vector("mean", 0, tensors["mean"], float(tensors["total"][0]))
        pairs = zip(tensors["components"], tensors["variance"].tolist(), strict=True)
        return [
            mean,
            *(Vector("component", number, each, variance) for number, (each, variance) in enumerate(pairs, start=1)),
        ]


def _count(config: Config, rank: int) -> int:
    """Return how many components a config keeps, of those with a variance above 0."""
    wanted = config[N_COMPONENTS.name]
    return rank if wanted is None else min(int(str(wanted)), rank)


def _whitens(config: Config) -> bool:
    return bool(config.get(WHITEN.name, WHITEN.default))


def _whitening(components: FloatArray, variance: FloatArray) -> FloatArray:
    """Return components (k, d) by which coordinates have variance 1."""
    whitening: FloatArray = components / np.sqrt(variance)[:, None]
    return whitening


def _losses(found: principal_components.Components, kept: npt.NDArray[np.int64]) -> FloatArray:
    """Return the variance (G, C) that so many components leave, NaN where there is none or it is not finite."""
    sound = np.isfinite(found.variance).all(axis=1) & (found.rank > 0)
    left = [[own[count:].sum() for count in counts] for own, counts in zip(found.variance, kept.tolist(), strict=True)]
    return np.where(sound, 0.0, np.nan)[:, None] + np.array(left)


def _tensors(
    found: principal_components.Components, kept: npt.NDArray[np.int64], whitens: Sequence[bool]
) -> dict[str, Ragged]:
    """Return the tensors of each group and config, with so many components (G, C), for configs that whiten or do not (C)."""
    groups, configs = kept.shape
    d = found.mean.shape[1]
    sizes = kept.ravel()
    first = np.repeat(np.arange(groups) * d, configs)
    rows = np.repeat(first - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
    components, variance = found.components.reshape(groups * d, d)[rows], found.variance.ravel()[rows]
    whitened = np.repeat(np.tile(np.array(whitens, np.bool_), groups), sizes)
    components[whitened] = _whitening(components[whitened], variance[whitened])
    flat = {
        "mean": Ragged.of_equal(np.repeat(found.mean, configs, axis=0).ravel(), groups * configs),
        "components": Ragged.of_sizes(components, sizes),
        "variance": Ragged.of_sizes(variance, sizes),
    }
    total = np.repeat(found.total, configs)
    return {**flat, "total": Ragged.of_equal(total, groups * configs)}
