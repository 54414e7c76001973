"""All operators by name, with what they need to know of the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from grouplearn.schedule.data_parallel import DataParallel
from grouplearn.schedule.gap import Gap
from grouplearn.schedule.messages import Operator, Unit
from grouplearn.schedule.mop import Mop
from grouplearn.schedule.switching import Switching
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


def operator(name: str, units: Iterable[Unit], workload: Workload) -> Operator:
    """Return a fresh state machine of the operator ``name`` (a key of ``OPERATORS``) over ``units``."""
    return OPERATORS[name](units, workload)
