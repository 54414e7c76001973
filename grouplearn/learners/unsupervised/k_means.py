"""k-means: every k of a grid in the same passes, as mergeable sums; the arithmetic is ``kernels.clustering``.

A model is the ``k`` centroids that (nearly) minimise the inertia Σ wᵢ·min_c ‖xᵢ − c‖². The first pass surveys the rows: it
draws a sample of them, from which greedy k-means++ takes its seeds (Arthur & Vassilvitskii 2007). Each further pass is one of
Lloyd (1982).

**The sample.** A row draws a number by hashing (seed of the group, number of the row in it); the 8,192 rows that draw least
are the sample; fewer where they take more than 4 MB, but never fewer than 256. So the sample of a group is that of its parts'
samples, and of a group that is no larger than it, it is the group: there seeding is k-means++ on all rows.

**Seeds.** A config tries 2 + ⌊log k⌋ rows for each seed, as scikit-learn does. Configs with one ``seed`` and as many trials
take the first k seeds of one chain. How many are tried depends on a config's own k, not on the largest of the grid, so a
config has the same model in any pack.

**The end.** A start ends when no assignment changes, or when Σ‖moves of centroids‖² ≤ ``tolerance`` · (mean variance of the
features), or after the most passes. Weight and number of rows of a cluster, and the inertia, are always those of the
centroids kept.

**Clusters without rows.** One that has lost its rows, or had no row of the sample left as its seed, takes the row that is
farthest from its centroid; one cluster a pass.
Where there are fewer distinct rows than ``k``, the clusters that are left over have NaN as centroid and no rows, and no row
is ever assigned to them.

**Numbers.** Clusters are numbered by their weight, the heaviest 0; equally heavy ones by their centroids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.data import shard
from grouplearn.data.shard import FloatArray
from grouplearn.kernels import clustering as kernel
from grouplearn.kernels.clustering import Config, Plan
from grouplearn.learners.contract.control import Diverged, Interrupted
from grouplearn.learners.contract.state import Tensors

#: The most passes of a start, and how many starts a config has, unless it says otherwise.
DEFAULT_EPOCHS, DEFAULT_N_INIT = 300, 3


class Model(NamedTuple):
    """A finished model: ``centroids`` (k, d), NaN of a cluster without rows, ``weight`` and ``rows`` (k,) of its training rows.

    ``inertia`` is Σ w·‖x − c‖² of these; ``passes`` over them of the start that was best, and whether it ``converged``.
    """

    centroids: FloatArray
    weight: FloatArray
    rows: FloatArray
    inertia: float
    passes: int
    converged: bool


def plan(n_features: int, configs: Sequence[Mapping[str, Any]], epochs: int = DEFAULT_EPOCHS) -> Plan:
    """Return what is to be trained for configs with ``k`` and perhaps ``seed``, ``n_init`` and ``tolerance``.

    Raises ValueError where a value is not allowed.
    """
    for config in configs:
        for name in ("k", "n_init"):
            if config.get(name, 1) < 1:
                raise ValueError(f"{name} is {config[name]}; it must be 1 or more")
        if not config.get("tolerance", 0.0) >= 0:
            raise ValueError(f"tolerance is {config['tolerance']}; it must be 0 or more")
    if epochs < 1:
        raise ValueError(f"epochs is {epochs}; it must be 1 or more")
    return Plan(n_features, tuple(Config(**{"n_init": DEFAULT_N_INIT, **config}) for config in configs), epochs)


def accumulate(
    plan: Plan, seed: int, state: Tensors, x: npt.NDArray[Any], weight: FloatArray, first_row: int
) -> Tensors:
    """Return the sums of a block of finite rows x (n, d) whose first row has this number in the group; ``state`` is {} at
    first."""
    if not state:
        return plan.survey(x, weight, first_row, seed)
    return plan.sums(state, x, weight, first_row)


def merge(plan: Plan, left: Tensors, right: Tensors) -> Tensors:
    """Return the sums of both blocks, the rows of ``left`` before those of ``right``."""
    return plan.merge_surveys(left, right) if "draw" in left else kernel.merged(left, right)


def step(plan: Plan, seed: int, state: Tensors, sums: Tensors) -> Tensors:
    """Return the state after a pass, tensors named as ``Plan.begin`` has them: seeds after the first, later centroids that
    moved.

    Raises Diverged where no row has weight, or the distance between rows overflows.
    """
    if state:
        return plan.step(state, sums)
    if not len(sums["weights"]):
        raise Diverged("no row has a weight above 0")
    begun = plan.begin(sums, seed)
    if begun["scale"][0] == 0:
        with np.errstate(over="ignore"):
            column = int(np.argmax(sums["high"] - sums["low"]))
        raise Diverged(
            f"the differences within feature column {column + 1} overflow; scale it, with zscore for example", column
        )
    return begun


def done(plan: Plan, state: Tensors) -> npt.NDArray[np.bool_]:
    """Return which configs (C,) need no further pass."""
    if not state:
        return np.zeros(len(plan.configs), np.bool_)
    return np.logical_and.reduceat(state["phase"] >= kernel.CONVERGED, plan.starts[:-1])


def losses(plan: Plan, state: Tensors) -> FloatArray:
    """Return per config (C,) the least inertia of its starts in the pass before; NaN before the first."""
    if not state:
        return np.full(len(plan.configs), np.nan)
    scale = float(state["scale"][0])
    with np.errstate(over="ignore"):
        return np.asarray(np.fmin.reduceat(state["inertia"], plan.starts[:-1]) / scale / scale)


def is_sound(plan: Plan, state: Tensors) -> bool:
    """Return whether tensors that come from a file can be models of this plan in training."""
    if not state:
        return True
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


def finish(plan: Plan, state: Tensors) -> list[Model]:
    """Return the model of each config; raises Diverged as ``model`` does."""
    found = plan.finish(state)
    return [model(plan, found, 0, config) for config in range(len(plan.configs))]


def solve(
    plan: Plan,
    stack: shard.Stack,
    seeds: npt.NDArray[np.uint64],
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> kernel.Clusters:
    """Return the models of every group of a stack, whose labels are not read; ``seeds`` (G,). Raises Interrupted.

    The bits are those of ``accumulate``, ``merge`` and ``step`` over the blocks of each group.
    """
    try:
        return kernel.solve(
            plan,
            *(stack.x, stack.weight, stack.start, seeds),
            block_rows=shard.BLOCK_ROWS,
            report=report,
            cancelled=cancelled,
        )
    except kernel.Stopped:
        raise Interrupted from None


def model(plan: Plan, found: kernel.Clusters, group: int, config: int) -> Model:
    """Return the model of one group and config; raises Diverged where it has failed."""
    phase = int(found.phase[group, config])
    if phase == kernel.FAILED:
        raise Diverged(
            "no row has a weight above 0, or the sums over rows overflow; scale features, with zscore for example"
        )
    own = slice(*plan.clusters[config : config + 2].tolist())
    return Model(
        found.centroids[group, own],
        found.weight[group, own],
        found.rows[group, own],
        float(found.inertia[group, config]),
        int(found.passes[group, config]),
        phase == kernel.CONVERGED,
    )


def assign(model: Model, x: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int32], FloatArray]:
    """Return the cluster of each row of x (n, d) and its Euclidean distance to the centroid; -1 and NaN of a row with a NaN."""
    return kernel.assign(x, model.centroids)
