"""k-means: every k of a grid in the same passes, as mergeable sums; the arithmetic is ``kernels.clusters``.

A model is the ``k`` centroids that (nearly) minimise the inertia Σ wᵢ·min_c ‖xᵢ − c‖². The first pass samples rows, from
which greedy k-means++ takes its seeds (Arthur & Vassilvitskii 2007). Each further pass is one of Lloyd (1982).

**The sample.** A row's random number is a hash of (seed of the group, number of the row in it); the 8,192 rows with the
smallest numbers are the sample; fewer if they take more than 4 MB, but at least 256. So the sample of a group is drawn
from its parts' samples, and a smaller group is its own sample: there, seeding is k-means++ on all rows.

**Seeds.** A config tries 2 + ⌊log k⌋ rows for each seed, as scikit-learn does. Configs with the same ``seed`` and number of
trials take the first k seeds of one chain. The number of trials depends on a config's own k, not on the largest of the
grid, so a config has the same model in any pack. Centroids first move by the rows of the sample, which in most groups are
all rows; in larger groups, starts that have converged on the sample continue with all rows.

**The end.** A start ends when no assignment changes, or when Σ‖moves of centroids‖² ≤ ``tolerance`` · (mean variance of the
features), or after the most passes. Weight and number of rows of a cluster, and the inertia, always belong to the centroids
that are kept.

**Clusters without rows.** A cluster that loses all rows, or for which no seed was left, takes the row farthest from its
centroid; one cluster per pass. If there are fewer distinct rows than ``k``, the remaining clusters have NaN as centroid and
no rows, and no row is ever assigned to them.

**Numbers.** Clusters are numbered by weight, the heaviest 0; equally heavy ones by their centroids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from grouplearn.data import shard
from grouplearn.data.shard import FloatArray
from grouplearn.kernels.clusters import clustering as kernel
from grouplearn.kernels.clusters.clustering import ClusteringPlan
from grouplearn.kernels.library import Stopped
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.control import Diverged, Interrupted
from grouplearn.learners.unsupervised.solved import SolvedVectors
from grouplearn.models.state import Tensors

#: Default for the most passes of a start.
DEFAULT_EPOCHS = 300
NO_WEIGHT = "no row has a weight above 0"
#: Why there is no model of a group whose rows seemed to be in order.
NOTHING_TO_SUM = f"{NO_WEIGHT}, or the sums over rows overflow; scale features, with zscore for example"
#: A group that needs more passes than this trains alone, pass by pass.
_MOST_IN_ONE_CALL = 1_024
#: The least difference whose square has full precision.
_LEAST_APART = 1e-150


def begin(plan: ClusteringPlan, seed: int, survey: Tensors) -> Tensors:
    """Return the state after the first pass from the survey of its rows; tensors are named as in ``ClusteringPlan.begin``.

    Raises Diverged if no row has weight, or distances between rows overflow or vanish.
    """
    values, weights = survey["values"], survey["weights"]
    if not len(weights):
        raise Diverged(NO_WEIGHT)
    check_apart(survey["low"], survey["high"])
    begun = plan.begin(survey, seed)
    after = dict(plan.step(begun, plan.sums(begun, values, weights, 0)))
    if len(weights) >= plan.sampled:
        rests = (after["phase"] == kernel.LAST_LOOK) | (after["phase"] == kernel.CONVERGED)
        after["phase"] = np.where(rests, kernel.MOVING, after["phase"])
    return after


def check_apart(low: FloatArray, high: FloatArray) -> None:
    """Raise Diverged if the squared differences between rows whose features (d,) have these ranges overflow or vanish."""
    with np.errstate(over="ignore"):
        apart = high - low
    if is_tiny(apart):
        raise Diverged(
            "the features differ by less than 1e-150, whose squares are 0; scale them, with zscore for example"
        )
    if np.isinf(apart).any():
        column = int(np.argmax(apart))
        raise Diverged(
            f"the differences within feature column {column + 1} overflow; scale it, with zscore for example", column
        )


def is_tiny(apart: FloatArray) -> npt.NDArray[np.bool_]:
    """Return whether rows differ, by at most ``apart`` (..., d), but all squares underflow to 0: SQL could not tell
    clusters apart."""
    largest = np.max(apart, axis=-1, initial=0.0)
    return np.asarray((largest > 0) & (largest < _LEAST_APART))


def done(plan: ClusteringPlan, state: Tensors) -> npt.NDArray[np.bool_]:
    """Return which configs (C,) need no further pass."""
    return np.logical_and.reduceat(state["phase"] >= kernel.CONVERGED, plan.starts[:-1])


def losses(plan: ClusteringPlan, state: Tensors) -> FloatArray:
    """Return per config (C,) the least inertia of its starts in the previous pass."""
    scale = float(state["scale"][0])
    with np.errstate(over="ignore"):
        return np.asarray(np.fmin.reduceat(state["inertia"], plan.starts[:-1]) / scale / scale)


def is_sound(plan: ClusteringPlan, state: Tensors) -> bool:
    """Return whether tensors from a file are a valid state of this plan."""
    shapes = {
        "centroids": ((plan.n_centroids, plan.d), np.float64),
        "clusters": ((plan.n_centroids, 2), np.float64),
        "inertia": ((plan.n_models,), np.float64),
        "passes": ((plan.n_models,), np.int64),
        "phase": ((plan.n_models,), np.int64),
        "origin": ((plan.d,), np.float64),
        "scale": ((1,), np.float64),
    }
    if state.keys() != shapes.keys():
        return False
    if any(each.shape != shapes[name][0] or each.dtype != shapes[name][1] for name, each in state.items()):
        return False
    numbers = bool(np.isfinite(state["origin"]).all() and 0 < state["scale"][0] < np.inf)
    phases = bool(((state["phase"] >= kernel.MOVING) & (state["phase"] <= kernel.FAILED)).all())
    return numbers and phases and bool(((state["passes"] >= 0) & (state["passes"] <= plan.limit)).all())


@dataclass(frozen=True)
class FinishedClusters:
    """The models of one group from its final ``state``, computed on demand."""

    plan: ClusteringPlan
    state: Tensors

    @cached_property
    def found(self) -> kernel.ClusterModels:
        """The clusters of each config."""
        return self.plan.finish(self.state)

    @cached_property
    def tensors(self) -> Mapping[str, Ragged]:
        """The tensors of each config."""
        return tensors(self.plan, self.found)

    def model(self, config: int) -> dict[str, FloatArray]:
        """Return the tensors of one config; raises Diverged if it has failed."""
        if self.found.phase[0, config] == kernel.FAILED:
            raise Diverged(NOTHING_TO_SUM)
        return {name: each[config] for name, each in self.tensors.items()}


def tensors(plan: ClusteringPlan, found: kernel.ClusterModels) -> dict[str, Ragged]:
    """Return ``centroids`` (k, d), ``weight`` and ``rows`` (k,) of each group and config, for clusters with rows."""
    has_rows = found.rows > 0
    sizes = np.add.reduceat(has_rows.astype(np.int64), plan.clusters[:-1], axis=1).ravel()
    values = {"centroids": found.centroids, "weight": found.weight, "rows": found.rows}
    return {name: Ragged.of_sizes(each[has_rows], sizes) for name, each in values.items()}


def solve(
    plan: ClusteringPlan, stack: shard.Stack, epochs: int, report: Callable[[int], None], cancelled: Callable[[], bool]
) -> SolvedVectors:
    """Return the models of every group of a stack, ignoring labels; raises Interrupted.

    The bits are those of ``begin`` and passes over the blocks of each group. A group with a failed model, or one that needs
    too many passes, has none.
    """
    if stack.seed is None:
        raise ValueError("a stack to draw seeds from has a seed for each group")
    limit = min(epochs, _MOST_IN_ONE_CALL)
    try:
        found, course = kernel.solve(
            plan,
            *(stack.x, stack.weight, stack.start, stack.seed),
            limits=(shard.BLOCK_ROWS, limit),
            report=report,
            cancelled=cancelled,
        )
    except Stopped:
        raise Interrupted from None
    lost = (found.phase == kernel.FAILED) | (course.epochs == 0) | (~course.converged & (limit < epochs))
    lost |= is_tiny(_apart(stack))[:, None]
    last = np.maximum(course.epochs - 1, 0)[None]
    loss = np.take_along_axis(course.curve, last, axis=0)[0] if len(course.curve) else np.full(lost.shape, np.nan)
    loss[lost] = np.nan
    return SolvedVectors(tensors(plan, found), loss, course.epochs, course.curve, course.converged)


def _apart(stack: shard.Stack) -> FloatArray:
    """Return the range of each feature in each group, (G, d); 0 for a group without rows."""
    apart = np.zeros((stack.n_groups, stack.x.shape[1]))
    filled = stack.sizes > 0
    if filled.any():
        first = stack.start[:-1][filled]
        with np.errstate(over="ignore"):
            apart[filled] = np.maximum.reduceat(stack.x, first, axis=0).astype(np.float64)
            apart[filled] -= np.minimum.reduceat(stack.x, first, axis=0)
    return apart
