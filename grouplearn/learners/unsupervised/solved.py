"""Models of many groups trained together, as vectors over the features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.stacks import Drawn, drawn


@dataclass(frozen=True, slots=True)
class SolvedVectors:
    """The finished models of a stack, G groups with the same C configs: their tensors by name; see
    ``stacks.SolvedStack``. ``states`` (G,) are the sums over their rows, where they are kept."""

    found: Mapping[str, Ragged]
    loss: FloatArray
    epochs: npt.NDArray[np.int64]
    curve: FloatArray
    converged: npt.NDArray[np.bool_]
    states: Ragged | None = None

    @property
    def sound(self) -> npt.NDArray[np.bool_]:
        """Which groups (G,) have all their models."""
        return np.asarray(np.isfinite(self.loss).all(axis=1))

    def take(self, groups: npt.NDArray[Any]) -> SolvedVectors:
        """Return the results of some groups, chosen or in that order."""
        trials = np.arange(self.loss.size).reshape(self.loss.shape)[groups].ravel()
        return SolvedVectors(
            {name: each.take(trials) for name, each in self.found.items()},
            self.loss[groups],
            self.epochs[groups],
            self.curve[:, groups],
            self.converged[groups],
            self.states and self.states.take(np.arange(len(self.loss))[groups]),
        )

    @property
    def importance(self) -> None:
        """None: weights say it."""

    @property
    def drawn(self) -> Drawn:
        """The objective after each pass."""
        return drawn(self.curve, self.epochs, self.loss)

    def as_multiclass(self) -> SolvedVectors:
        """Return them unchanged: there are no classes."""
        return self

    def tensors(self) -> Mapping[str, Ragged]:
        """Return the tensors of each model."""
        return self.found
