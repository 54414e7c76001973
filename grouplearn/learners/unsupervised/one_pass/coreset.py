"""``kmeans`` by ``coreset``: a weighted sample of the rows on which the inertia of any centroids is nearly that of all rows."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.clusters import coresets
from grouplearn.learners.contract.config import Config, Conflict, Hyperparameter, solver_named
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.unsupervised.one_pass.cost import CORESET, ROWS_PER_CLUSTER
from grouplearn.learners.unsupervised.one_pass.learner import K_MAX, LATE, OnePassKMeans
from grouplearn.models.label import CLUSTERING
from grouplearn.models.outputs.clusters import Clusters
from grouplearn.models.state import Tensors

CORESET_ROWS = Hyperparameter(
    "coreset_rows",
    "int",
    None,
    f"the most rows in a group's coreset: more make better clusters; NULL: {ROWS_PER_CLUSTER} for each of k_max clusters",
    "Bachem, Lucic & Krause 2017",
    low=1,
    high=1 << 30,
    nullable=True,
)


class CoresetKMeans(OnePassKMeans):
    """Merges and reduces coresets along the tree of blocks (Har-Peled & Mazumdar 2004), and solves k-means on the last.

    A coreset is drawn without replacement, each row by a bound on its share of the inertia of any centroids (Feldman &
    Langberg 2011), and weighs what the rows weigh that it stands for. Two coresets are merged by drawing one from both.
    """

    declaration = Declaration(
        name="kmeans",
        summary="clusters by k-means on a weighted sample of the rows; one pass gives every k up to k_max",
        labels=frozenset({CLUSTERING}),
        output=Clusters,
        hyperparameters=(
            solver_named("coreset", "Feldman & Langberg 2011"),
            *LATE,
            K_MAX,
            CORESET_ROWS,
        ),
        form="vectors",
        needs_scaling=True,
        draws=True,
        one_pass=True,
        cost=CORESET,
        solver="coreset",
    )
    early: ClassVar[tuple[Hyperparameter, ...]] = (K_MAX, CORESET_ROWS)

    def conflict(self, config: Config) -> Conflict | None:
        """Return a conflict between the numbers of clusters, or between them and the rows of the coreset."""
        most, rows = config[K_MAX.name], config[CORESET_ROWS.name]
        if rows is not None and int(str(rows)) < int(str(most)):
            return Conflict(
                f"coreset_rows = {rows} is below k_max = {most}: a cluster needs a row", (CORESET_ROWS.name, K_MAX.name)
            )
        return super().conflict(config)

    def sizes(self, config: Config) -> tuple[int, ...]:
        """Return the number of centres among which rows are drawn, and the most rows."""
        centres, rows = int(str(config[K_MAX.name])), config[CORESET_ROWS.name]
        return centres, ROWS_PER_CLUSTER * centres if rows is None else int(str(rows))

    def most(self, sizes: npt.NDArray[np.int64], rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the most rows of a coreset, however many it stands for."""
        return np.broadcast_to(sizes[1], np.shape(rows))

    def reduced(self, sums: Tensors, most: int) -> Tensors:
        """Return a coreset."""
        key = (int(sums["seed"][0]), int(sums["blocks"][0]), int(sums["blocks"][1]))
        sizes = (int(sums["sizes"][0]), most)
        chosen, factor = coresets.draw(sums["values"], sums["weights"], self.ranges(sums), sizes, key)
        kept = {name: sums[name][chosen] * factor for name in ("weights", "rows")}
        return {**sums, "values": sums["values"][chosen], **kept}
