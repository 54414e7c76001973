"""What an operator tells the planner about its work: how it cuts, searches, counts and repeats it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from grouplearn.schedule.messages import BlockRange, Push, Unit
from grouplearn.schedule.options import Contradiction
from grouplearn.schedule.workload import Workload

#: The blocks of each shard of a group, by place.
Shards = Mapping[int, Mapping[int, BlockRange]]
#: The pushes to each unit, in order.
Pushes = Mapping[int, tuple[Push, ...]]


@dataclass(frozen=True, slots=True)
class PackBytes:
    """The estimated bytes of a pack's state, of its gradients, and of the sums of a pass."""

    state: int
    gradients: int
    sums: int


@dataclass(frozen=True, slots=True)
class PlanSizes:
    """A plan on ``work.workers``: its epochs, the rounds of one, its distinct packs, and whether workers may have to leave."""

    work: Workload
    epochs: int
    rounds: int
    packs: tuple[PackBytes, ...]
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Repeats:
    """How an operator repeats a run that is recorded: its ``visits``, or else its pushes.

    ``options`` takes the statement's options and the pushes, and returns the options of the repeated run.
    ``validation_error`` says why the statement, with its units and workload, cannot be that run; its first argument is the
    name of the model.
    """

    visits: bool = False
    options: Callable[[Mapping[str, Any], Pushes], Mapping[str, Any]] = lambda _, __: {}
    validation_error: Callable[[str, Pushes, Sequence[Unit], Workload, Mapping[str, Any]], str | None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class PlanRules:
    """``shards``: the shards of split groups over which units hop; packs are cut until every shard has one.

    ``refuses`` says why units cannot be scheduled with the statement's options, shown at the value of one of them.
    ``rounds``: of an epoch of a unit; with the options ``one_round`` an epoch is one of them. ``words`` continue "as asked"
    in EXPLAIN. An operator without ``repeats`` has no schedule to repeat.
    """

    shards: Callable[[Iterable[Unit], Workload], Shards] | None = None
    refuses: Callable[[Sequence[Unit], Workload], Contradiction | None] = lambda _, __: None
    rounds: Callable[[Unit, Workload], int] | None = None
    one_round: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    words: Callable[[PlanSizes], str] | None = None
    repeats: Repeats | None = None
