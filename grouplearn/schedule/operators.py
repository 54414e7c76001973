"""All operators by name, with what they need to know of the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from grouplearn.schedule.messages import Operator, Unit
from grouplearn.schedule.mop.hopper import Mop
from grouplearn.schedule.sharded.data_parallel import DataParallel
from grouplearn.schedule.sharded.gap import Gap
from grouplearn.schedule.sharded.switching import Switching
from grouplearn.schedule.task_parallel import GroupTaskParallel, ModelTaskParallel
from grouplearn.schedule.workload import Workload

OPERATORS: Mapping[str, Callable[[Iterable[Unit], Workload], Operator]] = {
    GroupTaskParallel.name: lambda units, _: GroupTaskParallel(units),
    ModelTaskParallel.name: lambda units, _: ModelTaskParallel(units),
    Gap.name: Gap,
    Mop.name: Mop,
    DataParallel.name: DataParallel,
    Switching.name: Switching,
}
#: Operators that run a unit as a whole.
_WHOLE = frozenset([GroupTaskParallel.name, ModelTaskParallel.name])


def most_workers(name: str, units: Sequence[Unit], workers: int) -> int:
    """Return how many of ``workers`` can have something to do; the others need not be started."""
    return max(1, min(workers, len(units))) if name in _WHOLE else workers


def operator(name: str, units: Iterable[Unit], workload: Workload) -> Operator:
    """Return a fresh state machine of the operator ``name`` (a key of ``OPERATORS``) over ``units``."""
    return OPERATORS[name](units, workload)
