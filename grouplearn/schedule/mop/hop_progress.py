"""The progress of a unit that hops: every shard once per epoch, in an order chosen by a scheduler or read from a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from grouplearn.schedule.invariants import require
from grouplearn.schedule.messages import BlockRange, Step, Unit
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.unit_progress import ReadyStep, Sequential

#: Place and blocks of every visit of an epoch, in order.
Route = tuple[tuple[int, BlockRange], ...]


class HopProgress(Sequential):
    """One epoch is one visit to each shard, wherever a worker is free first (Nakandala, Zhang and Kumar 2020, 3.1).

    Completeness is checked at the end of every epoch. Each epoch's order of shards is kept, so that training can resume
    from an older state after a loss.
    """

    def __init__(
        self,
        unit: Unit,
        shards: Mapping[int, BlockRange],
        epochs: int,
        products: Products,
        evaluate_epochs: bool = False,
    ) -> None:
        super().__init__(unit, shards, epochs, products, evaluate_epochs)
        self._orders: dict[int, list[int]] = {}
        self._epoch = 0
        self.left = set(shards)

    def shard(self, place: int) -> BlockRange:
        """Return the blocks of the unit's group at a place."""
        return self._shards[place]

    def started(self, ready: ReadyStep, step: Step) -> None:
        """Record that a task returned here begins as ``step``."""
        if step.kind == "train":
            require(ready.place in self.left, f"unit {self.unit.id} visits the shard of place {ready.place} twice")
        super().started(ready, step)

    def done(self, step: Step, worker: int, place: int, more: bool) -> list[ReadyStep]:
        """Record that an expected step is done; return what may begin now."""
        if step.kind == "train":
            order = self._orders.setdefault(step.epoch, [])
            order.append(place)
            self.left.remove(place)
            complete = len(order) < len(self._shards) or not self.left
            require(complete, f"epoch {step.epoch} of unit {self.unit.id} is not complete")
        return super().done(step, worker, place, more)

    def _first_place(self) -> int:
        return self.places[self.unit.id % len(self.places)]

    def _visit_count(self, epoch: int) -> int:  # noqa: ARG002
        return len(self._shards)

    def _next_visit(self) -> ReadyStep:
        """Return a task for any remaining place: the scheduler chooses."""
        epoch, visit = self._now.epoch, self._now.visit
        order = self._orders.setdefault(epoch, [])
        if epoch != self._epoch or visit != len(order):  # a new epoch, or a return to an older state
            del order[visit:]
            self._epoch, self.left = epoch, set(self._shards).difference(order)
        return self._ready(self.places[0], "train", epoch)


class Routed(Sequential):
    """Epochs that follow ``route`` by epoch: a plan, or an earlier run's log."""

    def __init__(
        self,
        unit: Unit,
        shards: Mapping[int, BlockRange],
        epochs: int,
        products: Products,
        route: Callable[[int], Route],
        evaluate_epochs: bool = False,
    ) -> None:
        super().__init__(unit, shards, epochs, products, evaluate_epochs)
        self._route_of = route

    def _route(self, epoch: int) -> Route:
        return self._route_of(epoch)
