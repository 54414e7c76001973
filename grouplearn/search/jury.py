"""Procedures of many groups at one barrier: one for each group or one for all, over one numbering of configurations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from grouplearn.learners.base import Config
from grouplearn.search.procedure import WORST, Go, Procedure
from grouplearn.search.procedures import SearchPlan
from grouplearn.search.yardstick import Yardstick

Key = tuple[int, int]

#: Fewest groups that say something about the others.
MOST_OF_AT_LEAST = 6


@dataclass(frozen=True, slots=True)
class Verdict:
    """The next round: by group and configuration, the epochs to reach and whose state a new trial continues.

    ``keys`` are the trials that have a value at the barrier before it: those of the round and those that need no training.
    """

    goes: Mapping[Key, tuple[int, int | None]] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The trials of the round."""
        return tuple(self.goes)


@dataclass
class _Seat:
    """A procedure, the groups it decides for, and the number of the configuration of each of its trials."""

    procedure: Procedure
    groups: tuple[int, ...]
    numbers: dict[int, int] = field(default_factory=dict)
    going: tuple[Go, ...] = ()


class Jury:
    """Asks every procedure at every barrier; ``configs`` are all configurations so far.

    Where groups decide for themselves (``plan.shared`` is False) and trials that lose stop for good, a configuration that
    has lost in most groups, ``1 - 1/(2η)`` of at least six, stops in the others too, unless it leads there. With random
    decisions it would lose in ``1 - 1/η`` of them.
    """

    def __init__(
        self,
        plan: SearchPlan,
        configs: Sequence[Config],
        groups: Sequence[int],
        alike: Callable[[Config, Config], bool],
    ) -> None:
        self._plan = plan
        self._configs: list[Config] = []
        self._known: dict[Hashable, int] = {}
        members = [tuple(groups)] if plan.shared else [(group,) for group in groups]
        self._seats = [_Seat(plan.procedure(configs, alike), each) for each in members if each]
        self._yardstick = Yardstick()
        self._dropped: set[Key] = set()
        self._added: dict[Key, tuple[int, int | None]] = {}
        self._groups = tuple(groups)
        for number, config in enumerate(configs):
            self._number(number, config, None)

    @property
    def configs(self) -> tuple[Config, ...]:
        """Every configuration that was tried or is about to be, by number."""
        return tuple(self._configs)

    def begin(self) -> Verdict:
        """Return the first round."""
        for seat in self._seats:
            self._seat(seat, seat.procedure.begin())
        return self._verdict()

    def stop(self, number: int) -> None:
        """Have a configuration stop in all groups."""
        self._dropped |= {(group, number) for group in self._groups}

    def add(self, config: Config, parent: int | None) -> None:
        """Have all groups train a further configuration to its end, beside what the procedures say."""
        number = self._number(-1 - len(self._configs), config, parent)
        self._added |= {(group, number): (self._plan.epochs, parent) for group in self._groups}

    def on(self, values: Mapping[Key, float | None], failed_groups: frozenset[int]) -> Verdict:
        """Take the values of a round's trials (None: it has no model) and return the next round."""
        self._yardstick.see(values)
        before = {key for seat in self._seats for key in self._keys(seat)}
        for seat in self._seats:
            if not seat.going:
                continue
            seat.groups = tuple(group for group in seat.groups if group not in failed_groups)
            told = {go.trial: self._value(seat, seat.numbers[go.trial], values) for go in seat.going}
            self._seat(seat, seat.procedure.on(told) if seat.groups else ())
        if self._plan.prunes and not self._plan.shared:
            self._drop_common_losers(before, values)
        return self._verdict()

    def _seat(self, seat: _Seat, goes: tuple[Go, ...]) -> None:
        for go in goes:
            if go.trial not in seat.numbers:
                parent = None if go.parent is None else seat.numbers[go.parent]
                seat.numbers[go.trial] = self._number(go.trial, go.config, parent)
        seat.going = goes

    def _number(self, trial: int, config: Config, parent: int | None) -> int:
        """Return the number of a configuration: equal ones are one, unless they continue another's state."""
        values = tuple(sorted(config.items()))
        key: Hashable = values if parent is None else (trial, parent, values)
        if key not in self._known:
            self._known[key] = len(self._configs)
            self._configs.append(config)
        return self._known[key]

    def _value(self, seat: _Seat, number: int, values: Mapping[Key, float | None]) -> float:
        keys = [(group, number) for group in seat.groups]
        known = {key: None if key in self._dropped else values.get(key) for key in keys}
        if self._plan.shared:
            return self._yardstick.mean(known)
        value = known[keys[0]] if keys else None
        return WORST if value is None else value

    def _keys(self, seat: _Seat) -> list[Key]:
        return [(group, seat.numbers[go.trial]) for go in seat.going for group in seat.groups]

    def _verdict(self) -> Verdict:
        goes: dict[Key, tuple[int, int | None]] = {}
        for seat in self._seats:
            for go in seat.going:
                parent = None if go.parent is None else seat.numbers[go.parent]
                for group in seat.groups:
                    goes.setdefault((group, seat.numbers[go.trial]), (go.epochs, parent))
        added, self._added = self._added, {}
        return Verdict({key: go for key, go in {**goes, **added}.items() if key not in self._dropped})

    def _drop_common_losers(self, before: set[Key], values: Mapping[Key, float | None]) -> None:
        """Stop what has lost in most groups in those where it goes on without leading."""
        going = {key for seat in self._seats for key in self._keys(seat)}
        judged = Counter(number for _, number in before)
        lost = Counter(number for group, number in before if (group, number) not in going)
        most = 1 - 1 / (2 * self._plan.factor)
        losers = {n for n in judged if judged[n] >= MOST_OF_AT_LEAST and most * judged[n] <= lost[n] < judged[n]}
        for seat in self._seats:
            own = {key: values.get(key) for key in self._keys(seat)}
            known = {key: value for key, value in own.items() if value is not None}
            leader = max(known, key=lambda key: known[key]) if known else None
            self._dropped |= {key for key in own if key[1] in losers and key != leader}
