"""The cost of the linear learners: steps, rounds, and values in states and sums."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.data.encoders import DENSE_COLUMNS
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.cost import Coefficients, Cost, whole
from grouplearn.learners.contract.problem import FeatureBlock

#: Up to this many parameters, generalised linear models use second derivatives; scalars of their solver.
_SECOND_DERIVATIVES_UP_TO, _SOLVER_NUMBERS = 256, 23
#: Scalars of a config in stochastic gradient descent.
_SGD_NUMBERS = 14
#: Coordinate descent: items with several entries per row, up to this many columns, are split into single columns.
SPLIT_UP_TO = 64
#: Assumed nonzeros per column of a sparse X'X, each stored with its place.
_SPARSE_PRODUCTS = 32


#: Square matrices in memory while a system with many columns is solved.
_FACTORS = 4


class MomentsCost(Cost):
    """The cost of least squares, which needs one X'X for a pack."""

    def sums_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the size of X'X and the means; a mostly zero X'X is stored as nonzeros."""
        del configs, outputs
        products = width * width if width <= DENSE_COLUMNS else _SPARSE_PRODUCTS * width
        return products + 2 * width + 4

    def most_values(self, config: Config, blocks: Sequence[FeatureBlock], outputs: int) -> int:
        """Return the values with a dense X'X and some of its factors, where its zeros do not help.

        They help where most columns belong to one pure item and there is no l1: then only products of the others are dense.
        """
        width = sum(block.width for block in blocks)
        widest = max((block.width for block in blocks if block.pure), default=0)
        rest = width - widest if 2 * widest >= width and not config.get("l1") else width
        return super().most_values(config, blocks, outputs) + (0 if width <= DENSE_COLUMNS else _FACTORS * rest * rest)


class GlmCost(Cost):
    """The cost of batched L-BFGS, which also sums second derivatives in most passes."""

    def state_values(self, config: Config, width: int, outputs: int) -> int:
        """Return the size of the weights, the solver's four points and its steps, second derivatives (or a diagonal and the
        point where it was evaluated), two values per column and a few scalars."""
        parameters, triangle = outputs * (width + 1), _second_derivatives(width, outputs)
        steps = whole(config, "history", 10)
        return (5 + 2 * steps) * parameters + (triangle or 2 * parameters) + 2 * width + steps + _SOLVER_NUMBERS

    def sums_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return gradients and second derivatives."""
        return super().sums_values(configs, width, outputs) + len(configs) * _second_derivatives(width, outputs)


class OneByOneCost(GlmCost):
    """The cost of one model per output."""

    def state_values(self, config: Config, width: int, outputs: int) -> int:
        """Return the states of all models."""
        return outputs * super().state_values(config, width, 1)

    def sums_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the gradients, and each model's second derivatives."""
        gradients = Cost.sums_values(self, configs, width, outputs)
        return gradients + len(configs) * outputs * _second_derivatives(width, 1)


class CoordinateCost(Cost):
    """The cost of coordinate descent: weights, previous weights, and step bounds."""

    def epoch_rounds(self, configs: Sequence[Config], items: Sequence[FeatureBlock]) -> int:
        """Return a round per block of columns, and one for the end of the epoch; blocks of lists depend on their rows."""
        if configs and configs[0].get("blocks") == "one":
            return 2
        split = (each.width if not each.pure and each.width <= SPLIT_UP_TO else 1 for each in items if each.width)
        return 1 + max(1, sum(split))

    def state_values(self, config: Config, width: int, outputs: int) -> int:  # noqa: ARG002
        """Return three numbers per weight."""
        return 3 * outputs * (width + 1) + 3

    def most_values(self, config: Config, blocks: Sequence[FeatureBlock], outputs: int) -> int:
        """Return the values with extrapolation: each weight after the last five epochs, and at the extrapolated point."""
        weights = outputs * (1 + sum(block.width for block in blocks))
        return super().most_values(config, blocks, outputs) + (
            0 if config.get("acceleration") == "none" else 6 * weights
        )


class SgdCost(Cost):
    """The cost of stochastic gradient descent, a row at a time by default."""

    def steps(self, config: Config, n_rows: int) -> int:  # noqa: ARG002
        """Return n: a row takes as long in a batch as alone."""
        return max(1, n_rows)

    def updates(self, config: Config, n_rows: int, width: int) -> int:  # noqa: ARG002
        """Return ``ceil(n / b)``."""
        return max(1, -(-n_rows // max(1, whole(config, "batch_size", 1))))

    def state_values(self, config: Config, width: int, outputs: int) -> int:
        """Return the size of the weights, of the paid l1 or the sum of steps for each, and of a config's scalars."""
        kept = 2 if config.get("l1") or config.get("average") in (None, True) else 1
        return outputs * (kept * width + 3) + _SGD_NUMBERS

    def gradient_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return a number per weight, and a few scalars."""
        return len(configs) * (outputs * (width + 1) + 4)


def _second_derivatives(width: int, outputs: int) -> int:
    """Return how many second derivatives a generalised linear model uses: one triangle, for few parameters."""
    parameters = outputs * (width + 1)
    return parameters * (parameters + 1) // 2 if parameters <= _SECOND_DERIVATIVES_UP_TO else 0


#: Measured on ``coefficients.MEASURED_ON``, 2 to 32 features, in the order of the fields.
MOMENTS = MomentsCost(Coefficients(0.0, 1.2e-8, 4e-5, 2.5e-4, 4.9e-9, 0.0, 0.0))
_GLM = Coefficients(5.5e-10, 3e-8, 2e-5, 5e-4, 7.5e-9, 4e-5, 5e-4, typical_epochs=10)
GLM, ONE_BY_ONE = GlmCost(_GLM), OneByOneCost(_GLM)
COORDINATES = CoordinateCost(Coefficients(6e-9, 1.2e-8, 2e-7, 1e-6, 1.5e-8, 2e-5, 3e-4, typical_epochs=20))
#: Measured on 3 columns, and on 10 and 50 values of 1,000 columns per row, 1 to 12 configurations, batches of 1 to 16,384 rows.
SGD = SgdCost(Coefficients(1.2e-9, 1e-8, 0.0, 2.3e-7, 0.0, 4e-5, 5e-4))
