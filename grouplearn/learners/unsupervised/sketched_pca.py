"""The solver ``sketch`` of ``pca``: components in memory that grows with the columns, not with their square."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grouplearn.data.shard import Shard
from grouplearn.learners.contract.config import Config, Conflict, Hyperparameter, Value, solver_named
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.unsupervised import principal_components, sketches
from grouplearn.learners.unsupervised.cost import SKETCH_ROWS, SKETCHES
from grouplearn.learners.unsupervised.pca import N_COMPONENTS, WHITEN, Pca
from grouplearn.models.state import State, Tensors

_SOURCE = "Tropp, Yurtsever, Udell & Cevher 2017"
_SOME_COMPONENTS = replace(
    N_COMPONENTS,
    default=10,
    doc="number of components, at most `sketch_rows`; more than the rank of a group's rows: as many as that rank",
    nullable=False,
)
ROWS = Hyperparameter(
    "sketch_rows",
    "int",
    SKETCH_ROWS,
    "random directions that the covariance is multiplied with; take 2 * n_components + 10 or more, and more where variances "
    "decay slowly. Groups with fewer rows, and rows of no more columns, have exact components",
    _SOURCE,
    low=1,
    high=1 << 20,
)


class SketchedPca(Pca):
    """The components of an approximate covariance; see ``sketches``.

    If rows have no more columns than the sketch has rows, they are exact.
    """

    def __init__(self) -> None:
        """Share name, label, output and artifacts with the first way."""
        super().__init__()
        self.declaration = replace(
            self.declaration,
            summary="principal components of many columns in little memory, by random projections in one pass",
            hyperparameters=(solver_named("sketch", _SOURCE), _SOME_COMPONENTS, ROWS, WHITEN),
            cost=SKETCHES,
            solver="sketch",
        )

    @property
    def prefers_sparse(self) -> bool:
        """True: only values that are not 0 are multiplied."""
        return True

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Configs of one pack share a sketch."""
        return (_rows(config),)

    def conflict(self, config: Config) -> Conflict | None:
        """Return that a sketch has fewer rows than a config wants components."""
        wanted, rows = config[N_COMPONENTS.name], _rows(config)
        if not isinstance(wanted, int) or wanted <= rows:
            return None
        message = f"{wanted} components need a sketch of more than {rows} rows: WITH (sketch_rows = {2 * wanted + 10})"
        return Conflict(message, (N_COMPONENTS.name, ROWS.name))

    def most_components(self, problem: Problem, configs: Sequence[Config]) -> int:
        """Return the rows of the sketch."""
        return min(problem.n_features, _rows(configs[0]))

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return whether all components are exact."""
        return super().gathers(problem, configs) and problem.n_features <= min(map(_rows, configs))

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the sketch of one block; see ``sketches.of_block``."""
        if problem.n_features <= _rows(configs[0]):
            return super().accumulate(problem, configs, state, block)
        return sketches.of_block(block.x, block.weight, _rows(configs[0]))

    def found(self, sums: Tensors) -> principal_components.Components:
        """Return the components of rows with this sketch."""
        return super().found(sums) if "gram" in sums else sketches.components(sums)


def _rows(config: Config) -> int:
    return int(str(config.get(ROWS.name, ROWS.default)))
