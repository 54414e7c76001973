"""``kmeans`` by ``facility_location``: few places, found as rows come, give every ``k``, or choose it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.clusters import facilities
from grouplearn.learners.contract.config import Config, Hyperparameter, solver_named
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.unsupervised.centroids import K
from grouplearn.learners.unsupervised.one_pass.cost import FACILITIES, POINTS_PER_CLUSTER
from grouplearn.learners.unsupervised.one_pass.learner import K_MAX, LATE, OnePassKMeans
from grouplearn.models.label import CLUSTERING
from grouplearn.models.outputs.clusters import Clusters
from grouplearn.models.state import Tensors

FACILITY_COST = Hyperparameter(
    "facility_cost",
    "float",
    0.01,
    "without k: what a further cluster costs, as a share of the inertia of one cluster; the number of clusters, up to k_max, is "
    "the one with the least sum of inertia and costs",
    "Meyerson 2001",
    low=0.0,
    only_with=(K.name, (None,)),
    late=True,
)


class FacilityKMeans(OnePassKMeans):
    """Opens facilities at rows as they come, and solves k-means on these (Shindler, Wong & Meyerson 2011).

    A group of n rows has at most 24·``k_max``·(1 + ⌈log₂ n⌉) points. More are halved: those that join a facility become two,
    with the mean and the inertia of its rows. Two sets are merged by opening facilities for them.
    """

    declaration = Declaration(
        name="kmeans",
        summary="clusters by online facility location; one pass gives every k up to k_max, or chooses k",
        labels=frozenset({CLUSTERING}),
        output=Clusters,
        hyperparameters=(
            solver_named("facility_location", "Meyerson 2001"),
            replace(
                K, default=None, nullable=True, late=True, doc="number of clusters; NULL: as many as facility_cost says"
            ),
            *LATE[1:],
            K_MAX,
            FACILITY_COST,
        ),
        form="vectors",
        needs_scaling=True,
        draws=True,
        one_pass=True,
        cost=FACILITIES,
        solver="facility_location",
    )
    early: ClassVar[tuple[Hyperparameter, ...]] = (K_MAX,)

    def sizes(self, config: Config) -> tuple[int, ...]:
        """Return ``k_max``."""
        return (int(str(config[K_MAX.name])),)

    def most(self, sizes: npt.NDArray[np.int64], rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the most points of so many rows."""
        doublings = np.ceil(np.log2(np.maximum(rows, 1)))
        return np.asarray(POINTS_PER_CLUSTER * sizes[0] * (1 + doublings), np.int64)

    def beside(self, rows: int) -> dict[str, FloatArray]:
        """Return that the cost of a facility is not known."""
        del rows
        return {"cost": np.zeros(1)}

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the points of both."""
        return super().merge({**left, "cost": np.maximum(left["cost"], right["cost"])}, right)

    def reduced(self, sums: Tensors, most: int) -> Tensors:
        """Return the points of facilities for those that there are, half as many at most."""
        key = (int(sums["seed"][0]), int(sums["blocks"][0]), int(sums["blocks"][1]))
        given = facilities.Points(*(sums[name] for name in self.per_point))
        sizes = (int(sums["sizes"][0]), most // 2)
        found, cost = facilities.opened(given, self.ranges(sums), sizes, key, float(sums["cost"][0]))
        return {**sums, **found._asdict(), "cost": np.array([cost])}

    def candidates(self, config: Config) -> tuple[int, ...]:
        """Return ``k``, or every number of clusters up to ``k_max``."""
        k = config[K.name]
        return tuple(range(1, self.sizes(config)[0] + 1)) if k is None else (int(str(k)),)

    def chosen(self, config: Config, losses: FloatArray) -> npt.NDArray[np.int64]:
        """Return the candidates with the least sum of inertia and costs."""
        clusters: Sequence[int] = self.candidates(config)
        cost = float(str(config[FACILITY_COST.name])) * losses[:, :1]
        return np.asarray(np.argmin(losses + cost * np.array(clusters), axis=1), np.int64)
