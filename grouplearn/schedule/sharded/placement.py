"""Workers, the places of the partition that they hold, and their loaded rows of split groups."""

from __future__ import annotations

from collections.abc import Iterable

from grouplearn.schedule.invariants import require
from grouplearn.schedule.messages import BlockRange, Instruction, Load, Release


class Placement:
    """The places of the partition, each held by one worker; work is assigned to places.

    The first workers to join take the places in order. A lost worker's places go to the worker that holds fewest, or wait
    for the next one to join. A worker that joins later takes a place from one that holds several.

    With ``replicas`` r the rows of a place are also available to the holders of the r - 1 places before it (Nakandala, Zhang
    and Kumar 2020, 5.5), and a worker without a place has a replica of one. None: no replicas.
    """

    def __init__(self, places: int, replicas: int | None = None) -> None:
        self._replicas = replicas
        self._copies: dict[int, int] = {}
        self._holder: list[int | None] = [None] * places
        self._places: dict[int, list[int]] = {}
        self._joined, self._awaited = 0, 0
        self._orphans: list[int] = []
        self._loaded: dict[int, dict[int, dict[BlockRange, None]]] = {}

    def __contains__(self, worker: int) -> bool:
        return worker in self._places

    @property
    def workers(self) -> list[int]:
        """Present workers, lowest first."""
        return sorted(self._places)

    @property
    def complete(self) -> bool:
        """Whether every place is held, and no worker is expected to join and take one."""
        return self._joined >= len(self._holder) and not self._orphans and not self._awaited

    def holder(self, place: int) -> int | None:
        """Return the worker that holds a place; None if there is none now."""
        return self._holder[place]

    def places(self, worker: int) -> list[int]:
        """Return the places that a worker holds."""
        return self._places[worker]

    def reach(self, worker: int) -> list[int]:
        """Return the places at which a worker can work, its own first."""
        own = self._places[worker]
        if self._replicas is None:
            return own
        if not own:
            return [self._copies[worker]] if worker in self._copies else []
        others = ((place + step) % len(self._holder) for step in range(1, self._replicas) for place in own)
        return [*dict.fromkeys((*own, *others))]

    def near(self, place: int) -> list[int]:
        """Return the workers that can work at a place."""
        if self._replicas is None:
            holder = self._holder[place]
            return [] if holder is None else [holder]
        count = min(self._replicas, len(self._holder))
        holders = (self._holder[place - step] for step in range(count))
        copies = (worker for worker, copy in self._copies.items() if copy == place)
        return [*dict.fromkeys(worker for worker in (*holders, *copies) if worker is not None)]

    def join(self, worker: int) -> None:
        """Give a worker that joins the places that it is to hold."""
        require(worker not in self, f"worker {worker} joined twice")
        self._places[worker] = []
        self._joined += 1
        self._awaited = max(0, self._awaited - 1)
        fresh, all_joined = self._joined - 1, self._joined >= len(self._holder)
        if self._orphans or all_joined:
            free = [place for place in range(len(self._holder)) if self._holder[place] is None]
            taken = free if all_joined else self._orphans
        else:
            taken = [self._holder.index(None, 0)] if fresh < len(self._holder) else []
        self._orphans = []
        for place in taken or self._spare():
            self._give(place, worker)
        if self._replicas is not None and not self._places[worker]:
            self._copies[worker] = len(self._copies) % len(self._holder)

    def expect(self) -> None:
        """Expect a worker to join in place of one that is to leave; it may join before that one goes."""
        self._awaited += 1

    def lose(self, worker: int, replaced: bool = False) -> None:
        """Give the places of a worker that is gone to others. ``replaced``: another worker will join for it."""
        require(worker in self, f"worker {worker} was not there to be lost")
        self._awaited += replaced
        places = self._places.pop(worker)
        self._copies.pop(worker, None)
        for loaded in self._loaded.values():
            loaded.pop(worker, None)
        for place in places:
            self._holder[place] = None
            if self._places:
                self._give(place, min(self._places, key=lambda each: (len(self._places[each]), each)))
            else:
                self._orphans.append(place)

    def _spare(self) -> list[int]:
        """Return a place of the worker that holds most places, if it holds several."""
        richest = max(sorted(self._places), key=lambda each: len(self._places[each]))
        return self._places[richest][-1:] if len(self._places[richest]) > 1 else []

    def _give(self, place: int, worker: int) -> None:
        old = self._holder[place]
        if old is not None:
            self._places[old].remove(place)
        self._holder[place] = worker
        self._copies.pop(worker, None)
        self._places[worker].append(place)

    def load(self, worker: int, group: int, blocks: BlockRange) -> list[Instruction]:
        """Return the instructions that load a shard on a worker; none if it is loaded."""
        there = self._loaded.setdefault(group, {}).setdefault(worker, {})
        if blocks in there:
            return []
        there[blocks] = None
        return [Load(worker, group, blocks)]

    def is_loaded(self, group: int, blocks: BlockRange) -> bool:
        """Whether some worker has loaded a shard."""
        return any(blocks in there for there in self._loaded.get(group, {}).values())

    def load_only(self, worker: int, group: int, blocks: BlockRange) -> list[Instruction]:
        """As ``load``, but other blocks of the group are released."""
        there = self._loaded.get(group, {}).get(worker, {})
        stale = bool(there) and list(there) != [blocks]
        return [*(self._release(group, [worker]) if stale else ()), *self.load(worker, group, blocks)]

    def release(self, group: int) -> list[Instruction]:
        """Return the instructions that release the rows of a group everywhere."""
        return self._release(group, sorted(self._loaded.get(group, {})))

    def _release(self, group: int, workers: Iterable[int]) -> list[Instruction]:
        for worker in workers:
            del self._loaded[group][worker]
        return [Release(worker, group) for worker in workers]
