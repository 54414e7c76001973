"""Which rows of a group train and which judge, in each fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

#: The fold number of the fit whose model is kept.
FINAL = -1

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Split:
    """Which rows of a group train and which judge: by the fold of a fit, and each row's number in ``Dataset.split``.

    Who asks for both asks twice: a row may do neither. Nothing else knows what the numbers mean.
    Without ``folds`` there is the final fit alone, which the rows of number 1 judge; unless the split ``holds_out`` rows, all
    train. With folds, the rows of number k judge fold k, and all train the final fit. A single fold is a sample, held out of
    a fit that is only judged. If it ``spares`` groups, one that cannot train without the rows held out trains on all.

    With a ``horizon`` the split follows time. A row's number is its distance from the end of its group, 1 for the last step,
    and at most ``farthest``; 0 is a row without a place in time, which trains the final fit alone. Fold k is judged by
    ``horizon`` steps that end k * ``step`` before the last, and trained by those that lie more than ``gap`` before these.
    """

    folds: int = 0
    holds_out: bool = True
    spares: bool = False
    horizon: int = 0
    step: int = 0
    gap: int = 0

    @property
    def rolls(self) -> bool:
        """Whether each fold is judged by later rows than those that train it."""
        return self.horizon > 0

    @property
    def farthest(self) -> int:
        """The greatest number of a row: the rows with this number train every fold."""
        return self._before(self.folds - 1) + 1 if self.rolls else max(1, self.folds - 1)

    def _before(self, fold: int) -> int:
        """Return the greatest number of a row that does not train a fold, as it is judged or too near."""
        return fold * self.step + self.horizon + self.gap

    @property
    def fits(self) -> tuple[int, ...]:
        """The folds of all fits of a trial; the final one is last."""
        return *range(self.folds), FINAL

    @property
    def has_sample(self) -> bool:
        """Whether a sample is held out of a fit that is only judged."""
        return self.folds == 1

    def judges(self, numbers: npt.NDArray[Any], fold: int) -> BoolArray:
        """Return which rows of these numbers judge a fit."""
        if fold == FINAL and (self.folds or not self.holds_out):
            return np.zeros(numbers.shape, np.bool_)
        if self.rolls:
            last = fold * self.step
            return np.asarray((numbers > last) & (numbers <= last + self.horizon))
        return np.asarray(numbers == (fold if self.folds else 1))

    def trains(self, numbers: npt.NDArray[Any], fold: int) -> BoolArray:
        """Return which rows of these numbers train a fit: all that do not judge it, or those before them in time."""
        if self.rolls and fold != FINAL:
            return np.asarray(numbers > self._before(fold))
        return ~self.judges(numbers, fold)

    def numbers(self, judges: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
        """Return the numbers of rows of which those with 1 judge, and those with 0 only train."""
        return judges ^ 1 if self.has_sample else judges

    def ever_trains(self, numbers: npt.NDArray[Any]) -> BoolArray:
        """Return which rows of these numbers train any fit."""
        return np.asarray(np.logical_or.reduce([self.trains(numbers, fold) for fold in self.fits]))

    def ever_judges(self, numbers: npt.NDArray[Any]) -> BoolArray:
        """Return which rows of these numbers judge any fit."""
        return np.asarray(np.logical_or.reduce([self.judges(numbers, fold) for fold in self.fits]))

    def fewest_training(self, counts: npt.NDArray[np.int64]) -> int:
        """Return how many rows train a fit, at least, of which ``counts[number]`` have a number."""
        numbers = np.arange(counts.size)
        return min(int(counts[self.trains(numbers, fold)].sum()) for fold in self.fits)

    def only_judged(self, fold: int) -> bool:
        """Return whether a fit is there to be judged, and nothing else."""
        return self.has_sample and fold != FINAL

    def measures_training_rows(self, fold: int) -> bool:
        """Return whether a fit has the metrics of the rows that it learned from."""
        return fold == FINAL or self.only_judged(fold)
