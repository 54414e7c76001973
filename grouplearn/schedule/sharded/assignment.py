"""The work of an operator's workers, and the places of the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grouplearn.schedule.messages import BlockRange, StepKind, Unit
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.unit_progress import UnitProgress
from grouplearn.schedule.task_parallel import GroupTask
from grouplearn.schedule.workload import Workload

MakeProgress = Callable[[Unit, Mapping[int, BlockRange], Products], UnitProgress]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The work: whole tasks by place, units of split groups in order, and the shards of these groups.

    ``progress`` makes the progress of a split unit; without it, a split unit is one step of kind ``gang`` on all the
    group's workers at the same time. ``one_by_one``: a task or unit begins when the previous one is over, in the order of
    groups. ``replicas``: see Placement. Whole units of at least ``by_epochs_from`` blocks run epoch by epoch if others
    would otherwise wait for them.
    """

    whole: Sequence[Sequence[GroupTask]]
    split: Sequence[Unit]
    shards: Mapping[int, Mapping[int, BlockRange]]
    progress: MakeProgress | None = None
    gang: StepKind = "boost"
    steal: bool = False
    isolate_groups: bool = False
    one_by_one: bool = False
    replicas: int | None = None
    by_epochs_from: int = 2

    @property
    def groups_at(self) -> Mapping[int, Sequence[int]]:
        """The split groups that have a shard at each place."""
        groups: defaultdict[int, list[int]] = defaultdict(list)
        for group, shards in self.shards.items():
            for place in shards:
                groups[place].append(group)
        return groups

    def pass_cost(self, workload: Workload) -> Mapping[int, float]:
        """Return the estimated seconds of the longest step of an epoch, by split group."""
        longest: dict[int, float] = {}
        for unit in self.split:
            shard = max(self.shards[unit.group].values(), key=len)
            longest[unit.group] = max(longest.get(unit.group, 0.0), workload.cost(unit, "accumulate", shard))
        return longest
