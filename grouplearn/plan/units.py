"""The units of a plan, grouped by what they have in common: planning 100,000 groups takes a few arrays."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import numpy.typing as npt

from grouplearn.interrupting import with_checks
from grouplearn.schedule.messages import Unit

#: The groups of a task: one, or several that train side by side.
Groups = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SimilarTasks:
    """Tasks whose units differ only in their groups and costs, in order.

    ``first`` are the units of the first task; per task there are ``groups``, ``rows`` (int64) and the ``seconds`` of its
    units (float64, tasks x units). ``side_by_side`` marks tasks of several groups.
    """

    first: tuple[Unit, ...]
    groups: tuple[Groups, ...]
    rows: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    side_by_side: npt.NDArray[np.bool_]

    @property
    def whole(self) -> npt.NDArray[np.bool_]:
        """Which tasks may not be split by any operator (``Unit.stays_whole``)."""
        return self.side_by_side | bool(self.first[0].folds or self.first[0].stacked)

    def units(self, task: int) -> list[Unit]:
        """Return the units of a task, numbered as those of the first task."""
        group, *others = self.groups[task]
        costs = self.seconds[task].tolist()
        pairs = zip(self.first, costs, strict=True)
        return [replace(unit, group=group, others=tuple(others), cost=seconds) for unit, seconds in pairs]


class Units(Sequence[Unit]):
    """Every task with every pack and fold, in that order; a Unit is made only when it is read.

    ``seconds`` are float64, tasks x packs; ``stacked`` says per task whether it trains in a batched solve, and ``together``
    is the number of folds that one unit trains.
    """

    def __init__(
        self,
        tasks: Sequence[Groups],
        packs: tuple[tuple[int, ...], ...],
        folds: tuple[int, ...],
        together: int,
        stacked: npt.NDArray[np.bool_],
        rows: npt.NDArray[np.int64],
        seconds: npt.NDArray[np.float64],
    ) -> None:
        self._tasks, self._packs, self._folds, self._together = tuple(tasks), packs, folds, together
        self._stacked, self._rows, self._seconds = stacked, rows, seconds

    def __len__(self) -> int:
        return len(self._tasks) * len(self._packs) * len(self._folds)

    def __iter__(self) -> Iterator[Unit]:
        numbers = itertools.count()
        tasks = zip(self._tasks, self._stacked.tolist(), self._seconds.tolist(), strict=True)
        for (group, *others), stacked, costs in with_checks(tasks):
            beside = tuple(others)
            for pack, seconds in zip(self._packs, costs, strict=True):
                for fold in self._folds:
                    yield Unit(next(numbers), group, pack, fold, seconds, beside, self._together, stacked)

    @overload
    def __getitem__(self, place: int) -> Unit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Unit, ...]: ...
    def __getitem__(self, place: int | slice) -> Unit | tuple[Unit, ...]:
        if isinstance(place, slice):
            return tuple(self[each] for each in range(*place.indices(len(self))))
        number = range(len(self))[place]
        rest, fold = divmod(number, len(self._folds))
        task, pack = divmod(rest, len(self._packs))
        group, *others = self._tasks[task]
        seconds, stacked = float(self._seconds[task, pack]), bool(self._stacked[task])
        return Unit(
            number, group, self._packs[pack], self._folds[fold], seconds, tuple(others), self._together, stacked
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(Unit.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    def alike(self) -> tuple[SimilarTasks, ...]:
        """Return the stacked tasks and the others."""
        each = len(self._packs) * len(self._folds)
        side_by_side = np.fromiter((len(groups) > 1 for groups in with_checks(self._tasks)), bool, len(self._tasks))
        seconds = np.repeat(self._seconds, len(self._folds), axis=1)
        found = []
        for stacked in (False, True):
            (places,) = np.nonzero(self._stacked == stacked)
            if len(places) and each:
                groups = (
                    self._tasks
                    if len(places) == len(self._tasks)
                    else tuple(self._tasks[n] for n in with_checks(places))
                )
                first = self[int(places[0]) * each : (int(places[0]) + 1) * each]
                found.append(SimilarTasks(first, groups, self._rows[places], seconds[places], side_by_side[places]))
        return tuple(sorted(found, key=lambda alike: alike.first[0].id))


def alike(units: Sequence[Unit], rows: Sequence[int]) -> tuple[SimilarTasks, ...]:
    """Return the units grouped by what they have in common; ``rows`` are those of each group."""
    if isinstance(units, Units):
        return units.alike()
    tasks: dict[int, list[Unit]] = defaultdict(list)
    for unit in with_checks(units):
        tasks[unit.group].append(unit)
    same: dict[object, list[list[Unit]]] = defaultdict(list)
    for task in with_checks(tasks.values()):
        same[tuple((unit.configs, unit.fold, unit.folds, unit.stacked) for unit in task)].append(task)
    return tuple(
        SimilarTasks(
            tuple(members[0]),
            tuple(task[0].groups for task in members),
            np.array([sum(rows[group] for group in task[0].groups) for task in members], np.int64),
            np.array([[unit.cost for unit in task] for task in members], np.float64),
            np.array([bool(task[0].others) for task in members], bool),
        )
        for members in same.values()
    )
