"""The cost of learners without a label."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.cost import Coefficients, Cost, whole
from grouplearn.learners.contract.problem import FeatureBlock


class ClusterCost(Cost):
    """The cost of centroids, for every start of a config."""

    def state_values(self, config: Config, width: int, outputs: int) -> int:
        """Return the centroids with their weights and row counts."""
        del outputs
        return whole(config, "k", 8) * whole(config, "n_init", 3) * (width + 3)

    def sums_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return sums of the same size, and the row farthest from its centroid."""
        return sum(self.state_values(config, width, outputs) + width + 6 for config in configs)


class ComponentCost(Cost):
    """The cost of eigenvectors of one matrix of moments, for all configs."""

    def read_values(self, width: int) -> float:
        """Return the values of a row with their products, and those of its coordinates."""
        return width + _OF_PRODUCTS * width * width

    def solving(self, n_rows: int, columns: int) -> float:
        """Return what the eigenvectors take: at most as many as rows have a variance."""
        return _OF_EIGENVECTORS * columns * float(min(n_rows, columns)) ** 2

    def most_values(self, config: Config, blocks: Sequence[FeatureBlock], outputs: int) -> int:
        """Return six matrices: moments, without columns that are constant, what the solver makes of them, and all components."""
        del config, outputs
        return 6 * sum(block.width for block in blocks) ** 2

    def model_values(self, config: Config, width: int, outputs: int, n_rows: int) -> int:
        """Return the components that are kept, with their variances, and the mean."""
        del outputs
        kept = min(whole(config, "n_components", width), width, max(1, n_rows))
        return kept * (width + 1) + width + 1

    def state_values(self, config: Config, width: int, outputs: int) -> int:
        """Return all components with their variances, and the mean."""
        del config, outputs
        return width * (width + 2) + 2

    def sums_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the Gram matrix and the means."""
        del configs, outputs
        return width * width + 2 * width + 4


class SketchCost(Cost):
    """The cost of a sketch of the covariance, and of its eigenvectors, for all configs."""

    def read_values(self, width: int) -> float:
        """Return the values of a row with their products with the directions, and those of its coordinates."""
        return width * (1 + _OF_DIRECTIONS * min(SKETCH_ROWS, width))

    def solving(self, n_rows: int, columns: int) -> float:
        """Return what products and eigenvectors of the sketch take."""
        del n_rows
        return _OF_EIGENVECTORS * columns * float(min(SKETCH_ROWS, columns)) ** 2

    def most_values(self, config: Config, blocks: Sequence[FeatureBlock], outputs: int) -> int:
        """Return six times the sketch: a block's, the sum, the directions, and what is made of them."""
        del outputs
        width = sum(block.width for block in blocks)
        return 6 * width * _sketched(config, width)

    def model_values(self, config: Config, width: int, outputs: int, n_rows: int) -> int:
        """Return the components that are kept, with their variances, and the mean."""
        del outputs
        kept = min(whole(config, "n_components", width), _sketched(config, width), max(1, n_rows))
        return kept * (width + 1) + width + 1

    def state_values(self, config: Config, width: int, outputs: int) -> int:
        """Return as many components as the sketch has rows, with their variances, and the mean."""
        del outputs
        return _sketched(config, width) * (width + 1) + width + 3

    def sums_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the sketch, its products with the directions, and the means; packs share them."""
        del outputs
        rows = max((_sketched(config, width) for config in configs), default=0)
        return rows * (width + rows + 1) + 2 * width + 1


def _sketched(config: Config, width: int) -> int:
    return min(whole(config, "sketch_rows", SKETCH_ROWS), width)


#: The rows of a sketch by default: of spectra that decay as 1/i, ten components explain 99% of what the best ones do.
SKETCH_ROWS = 100
#: What r eigenvectors of d columns take per r²d, and a row of d values per d², in values read: from 256 to 1,000 columns.
_OF_EIGENVECTORS, _OF_PRODUCTS = 0.18, 0.02
#: The same of a value's products for each row of a sketch, from 200 to 1,000 columns.
_OF_DIRECTIONS = 0.08

#: Measured with 16 features, k from 2 to 10 and three starts.
CLUSTERS = ClusterCost(Coefficients(2.5e-9, 2e-8, 2e-5, 2e-4, 7.5e-9, 4e-5, 5e-4, typical_epochs=20))
COMPONENTS = ComponentCost(Coefficients(0.0, 1.2e-8, 4e-5, 2.5e-4, 4.9e-9, 0.0, 0.0))
SKETCHES = SketchCost(Coefficients(0.0, 1.2e-8, 4e-5, 2.5e-4, 4.9e-9, 0.0, 0.0))
