"""The cost of boosting."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.data.encoders import DENSE_COLUMNS
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.cost import Coefficients, Cost, whole

#: Default leaves per tree and trees per model.
_LEAVES, _TREES = 31, 100
#: Numbers per histogram bin (sum of gradients, sum of Hessians), bins per feature, and bytes per leaf of a model's text.
_BIN_VALUES, _BINS, _LEAF_BYTES, _VALUE_BYTES = 2, 255, 100, 8


class BoostingCost(Cost):
    """The cost of trees: a pass is a tree per output, an update the search of one of its leaves for a split by one feature.

    Kingpin has one update per pass for sampling learners, but for small groups the search takes longer than the rows.
    """

    def passes(self, config: Config, epochs: int) -> int:
        """Return the boosting rounds."""
        return whole(config, "num_iterations", epochs)

    def updates(self, config: Config, n_rows: int, width: int) -> int:
        """Return ``leaves * d``, with as many leaves as the rows can fill."""
        return _filled(config, n_rows) * width

    def rounds(self, config: Config, n_rows: int) -> int:
        """Return the leaves: the members of a gang exchange a histogram for each."""
        del n_rows
        return _leaves(config)

    def state_values(self, config: Config, width: int, outputs: int) -> int:
        """Return the size of the model's text."""
        del width
        return self._text_values(config, outputs, _leaves(config))

    def model_values(self, config: Config, width: int, outputs: int, n_rows: int) -> int:
        """Return the size of the model's text, with as many leaves as the rows can fill."""
        del width
        return self._text_values(config, outputs, _filled(config, n_rows))

    def _text_values(self, config: Config, outputs: int, leaves: int) -> int:
        return self.passes(config, _TREES) * outputs * leaves * _LEAF_BYTES // _VALUE_BYTES

    def sums_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the histograms of one leaf; columns of wide categories have two bins each."""
        bins = min(width, DENSE_COLUMNS) * _BINS + 2 * max(0, width - DENSE_COLUMNS)
        return len(configs) * bins * _BIN_VALUES * outputs

    def exchanged_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the histograms of one leaf."""
        return self.sums_values(configs, width, outputs)


def _leaves(config: Config) -> int:
    return whole(config, "num_leaves", _LEAVES)


def _filled(config: Config, n_rows: int) -> int:
    return max(1, min(_leaves(config), n_rows // max(1, whole(config, "min_data_in_leaf", 1))))


#: A boosted model's results are its text, its nodes, and copies of both on their way into tables: runs of 60 and 240 trials
#: of 100 trees differed by 1.4 MB per trial, with texts of 0.3 MB.
COST = BoostingCost(Coefficients(1.3e-8, 1.6e-7, 9.5e-7, 2e-5, 2e-7, 7e-4, 1e-3), resident=4.5)
