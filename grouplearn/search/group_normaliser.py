"""One number for a configuration over many groups whose metrics differ in scale."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping

from grouplearn.search.procedure import WORST

Key = tuple[int, int]


class GroupNormaliser:
    """Normalises values by those of each group's first barrier: (value - median) / (median distance from the median).

    A configuration is worth its mean over groups. Where it has no model it counts as one distance below the worst value
    seen in that group; without a model anywhere it is worth ``WORST``.
    """

    def __init__(self) -> None:
        self._scales: dict[int, tuple[float, float]] = {}
        self._worst: dict[int, float] = {}

    def see(self, values: Mapping[Key, float | None]) -> None:
        """Add the values of a barrier, by (group, configuration)."""
        by_group: dict[int, list[float]] = defaultdict(list)
        for (group, _), value in values.items():
            if value is not None:
                by_group[group].append(value)
        for group, known in by_group.items():
            if group not in self._scales:
                median = statistics.median(known)
                spread = statistics.median([abs(value - median) for value in known])
                self._scales[group] = (median, spread or max(map(abs, known)) or 1.0)
            lowest = min(self._measured(group, value) for value in known)
            self._worst[group] = min(lowest, self._worst.get(group, lowest))

    def mean(self, values: Mapping[Key, float | None]) -> float:
        """Return what a configuration is worth, from its values in each group."""
        if all(value is None for value in values.values()):
            return WORST
        worth = [
            self._measured(group, value) if value is not None else self._worst[group] - 1
            for (group, _), value in values.items()
            if group in self._scales
        ]
        return statistics.fmean(worth)

    def _measured(self, group: int, value: float) -> float:
        median, spread = self._scales[group]
        return (value - median) / spread
