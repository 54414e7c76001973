"""The cost of clusters in one pass over the rows."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.cost import Coefficients, Cost, whole

#: The rows of a coreset for each of ``k_max`` clusters: the inertia of k_max centroids is then within 2% of that of all rows'.
ROWS_PER_CLUSTER = 256
#: The points of facilities for each of ``k_max`` clusters and each doubling of the rows: the same holds of these.
POINTS_PER_CLUSTER = 24
#: How many passes over its points a start makes.
_PASSES_ON_POINTS = 25
#: How often a group of ten million rows has doubled, with the first row.
_DOUBLINGS = 25


class CoresetCost(Cost):
    """The cost of a coreset for all configs, and of the starts of each on it."""

    def updates(self, config: Config, n_rows: int, width: int) -> int:
        """Return the products of points, centroids and columns in the passes of all starts, in thousands."""
        starts = whole(config, "n_init", 10) * _PASSES_ON_POINTS
        return max(1, starts * self._clusters(config) * min(n_rows, self.points(config)) * width // 1_000)

    def points(self, config: Config) -> int:
        """Return the most points that stand for a group's rows."""
        return whole(config, "coreset_rows", ROWS_PER_CLUSTER * whole(config, "k_max", 20))

    def state_values(self, config: Config, width: int, outputs: int) -> int:
        """Return the centroids with their weights and row counts."""
        del outputs
        return self._clusters(config) * (width + 2) + 1

    def sums_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the points with their weights and row counts, which all configs share."""
        del outputs
        return self.points(configs[0]) * (width + 2) + 2 * width + 5

    def _clusters(self, config: Config) -> int:
        return whole(config, "k", whole(config, "k_max", 20))


class FacilityCost(CoresetCost):
    """The cost of facilities for all configs, and of the starts of each on them."""

    def points(self, config: Config) -> int:
        """Return the most points of a group."""
        return POINTS_PER_CLUSTER * whole(config, "k_max", 20) * _DOUBLINGS

    def _clusters(self, config: Config) -> int:
        """Return ``k``, or the sum of all up to ``k_max`` that are tried."""
        most = whole(config, "k_max", 20)
        return whole(config, "k", most * (most + 1) // 2)


#: Measured with 8 features and k_max = 20.
CORESET = CoresetCost(Coefficients(0.0, 1e-8, 2.5e-7, 4e-4, 2e-8, 4e-5, 5e-4))
FACILITIES = FacilityCost(Coefficients(0.0, 1e-8, 2.5e-7, 4e-4, 3e-8, 4e-5, 5e-4))
