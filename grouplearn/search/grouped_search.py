"""Procedures of many groups with common barriers: one per group or one for all, with common configuration numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from grouplearn.interrupting import check_interrupt, with_checks
from grouplearn.learners.contract.config import Config
from grouplearn.search.group_normaliser import GroupNormaliser
from grouplearn.search.procedure import WORST, Judgment, Procedure, TrialBudget
from grouplearn.search.procedures import SearchPlan

Key = tuple[int, int]

#: Fewest groups from which other groups learn.
MOST_OF_AT_LEAST = 6


@dataclass(frozen=True, slots=True)
class NextRound:
    """The next round: by group and configuration, the budget to reach, and whose state a new trial continues.

    ``keys`` are the trials with a value at the barrier before it: those of the round and those that need no training. Those
    ``waiting`` are not in it and may be in a later one.
    """

    goes: Mapping[Key, tuple[int, int | None]] = field(default_factory=dict)
    waiting: frozenset[Key] = frozenset()

    @property
    def keys(self) -> tuple[Key, ...]:
        """The trials of the round."""
        return tuple(self.goes)


@dataclass
class _Scope:
    """A procedure, its groups, and the configuration number of each of its trials.

    Its rungs' judgments go to ``counts`` once some trial has a value, and are ``uncounted`` until then: if none has,
    configurations are not to blame.
    """

    procedure: Procedure
    groups: tuple[int, ...]
    numbers: dict[int, int] = field(default_factory=dict)
    going: tuple[TrialBudget, ...] = ()
    uncounted: list[Judgment] = field(default_factory=list)
    counts: bool = False


class GroupedSearch:
    """Asks every procedure at every barrier; ``configs`` are all configurations so far.

    If groups decide for themselves (``plan.shared`` is False) and losing trials stop for good, a configuration that has
    lost at a rung in most groups, ``1 - 1/(2η)`` of at least six that judged it there, stops in the others too, unless it
    leads there. With random decisions it would lose in ``1 - 1/η`` of them. A group without values judges nothing. Ties
    within a group are broken by its seed in ``seeds``.
    """

    def __init__(
        self,
        plan: SearchPlan,
        configs: Sequence[Config],
        groups: Sequence[int],
        alike: Callable[[Config, Config], bool],
        seeds: Mapping[int, int] | None = None,
    ) -> None:
        self._plan = plan
        self._configs: list[Config] = []
        self._known: dict[Hashable, int] = {}
        members = [tuple(groups)] if plan.shared else [(group,) for group in groups]
        lots = {} if seeds is None or plan.shared else seeds
        self._scopes = [_Scope(plan.procedure(configs, alike, lots.get(each[0])), each) for each in members if each]
        self._normaliser = GroupNormaliser()
        self._dropped: set[Key] = set()
        self._latest: dict[Key, float] = {}
        self._judgments: Counter[tuple[int, int]] = Counter()  # by configuration and rung
        self._losses: Counter[tuple[int, int]] = Counter()
        self._added: dict[Key, tuple[int, int | None]] = {}
        self._groups = tuple(groups)
        for number, config in enumerate(configs):
            self._number(number, config, None)

    @property
    def configs(self) -> tuple[Config, ...]:
        """All configurations, tried or about to be, by number."""
        return tuple(self._configs)

    def begin(self) -> NextRound:
        """Return the first round."""
        for scope in self._scopes:
            self._go_on(scope, scope.procedure.begin())
        return self._next_round()

    def stop(self, number: int) -> None:
        """Stop a configuration in all groups."""
        self._dropped |= {(group, number) for group in self._groups}

    def add(self, config: Config, parent: int | None) -> None:
        """Let all groups train a further configuration to its end, in addition to what the procedures decide."""
        number = self._number(-1, config, parent)
        self._added |= {(group, number): (self._plan.budget, parent) for group in self._groups}

    def on(self, values: Mapping[Key, float | None], failed_groups: frozenset[int]) -> NextRound:
        """Take the values of a round's trials (None: no model) and return the next round."""
        self._normaliser.see(values)
        self._latest.update({key: value for key, value in values.items() if value is not None})
        for scope in self._scopes:
            check_interrupt()
            if not scope.going:
                continue
            scope.groups = tuple(group for group in scope.groups if group not in failed_groups)
            told = {go.trial: self._value(scope, scope.numbers[go.trial], values) for go in with_checks(scope.going)}
            self._go_on(scope, scope.procedure.on(told) if scope.groups else ())
            if scope.groups:
                self._count_losses(scope, any(value > WORST for value in told.values()))
        if self._plan.prunes and not self._plan.shared:
            self._drop_common_losers()
        for scope in self._scopes:
            self._pass_over_the_dropped(scope)
        return self._next_round()

    def _pass_over_the_dropped(self, scope: _Scope) -> None:
        """Skip rounds in which no trial may train: they have no values."""
        while scope.going and self._dropped.issuperset(self._keys(scope)):
            self._go_on(scope, scope.procedure.on({go.trial: WORST for go in scope.going}))

    def _go_on(self, scope: _Scope, goes: tuple[TrialBudget, ...]) -> None:
        for go in with_checks(goes):
            if go.trial not in scope.numbers:
                parent = None if go.parent is None else scope.numbers[go.parent]
                scope.numbers[go.trial] = self._number(go.trial, go.config, parent)
        scope.going = goes

    def _number(self, trial: int, config: Config, parent: int | None) -> int:
        """Return the number of a configuration; equal ones share it, unless they continue another's state."""
        values = tuple(sorted(config.items()))
        key: Hashable = values if parent is None else (trial, parent, values)
        if key not in self._known:
            self._known[key] = len(self._configs)
            self._configs.append(config)
        return self._known[key]

    def _value(self, scope: _Scope, number: int, values: Mapping[Key, float | None]) -> float:
        keys = [(group, number) for group in scope.groups]
        known = {key: None if key in self._dropped else values.get(key) for key in keys}
        if self._plan.shared:
            return self._normaliser.mean(known)
        value = known[keys[0]] if keys else None
        return WORST if value is None else value

    def _keys(self, scope: _Scope) -> list[Key]:
        return [(group, scope.numbers[go.trial]) for go in scope.going for group in scope.groups]

    def _waiting(self, scope: _Scope) -> list[Key]:
        return [(group, scope.numbers[trial]) for trial in scope.procedure.waiting for group in scope.groups]

    def _next_round(self) -> NextRound:
        goes: dict[Key, tuple[int, int | None]] = {}
        for scope in self._scopes:
            for go in with_checks(scope.going):
                parent = None if go.parent is None else scope.numbers[go.parent]
                for group in scope.groups:
                    goes.setdefault((group, scope.numbers[go.trial]), (go.budget, parent))
        added, self._added = self._added, {}
        goes = {key: go for key, go in {**goes, **added}.items() if key not in self._dropped}
        waiting = frozenset(key for scope in self._scopes for key in self._waiting(scope)) - self._dropped
        return NextRound(goes, waiting - goes.keys())

    def _count_losses(self, scope: _Scope, has_values: bool) -> None:
        """Count the judgments of a scope's rungs, if its group says anything about configurations."""
        scope.counts |= has_values
        scope.uncounted += scope.procedure.judged
        if not scope.counts:
            return
        for judgment in scope.uncounted:
            number = scope.numbers[judgment.trial]
            if self._dropped.issuperset((group, number) for group in scope.groups):
                continue  # it was stopped from outside, so it has not lost
            at = (number, judgment.rung)
            self._judgments[at] += 1
            self._losses[at] += not judgment.passed
        scope.uncounted.clear()

    def _drop_common_losers(self) -> None:
        """Stop configurations that lost in most groups in the others, unless they lead there."""
        most = 1 - 1 / (2 * self._plan.factor)
        losers = {
            number
            for (number, rung), judged in self._judgments.items()
            if judged >= MOST_OF_AT_LEAST and self._losses[number, rung] >= most * judged
        }
        if not losers:
            return
        for scope in self._scopes:
            going = {*self._keys(scope), *self._waiting(scope)}
            known = {key: self._latest[key] for key in going if key in self._latest}
            best = max(known.values(), default=None)
            self._dropped |= {key for key in going if key[1] in losers and (best is None or known.get(key) != best)}
