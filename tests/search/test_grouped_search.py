"""Many groups at one barrier: numbering, common losers, one decision for all."""

import math

import pytest

from grouplearn.search.group_normaliser import GroupNormaliser
from grouplearn.search.grouped_search import GroupedSearch
from grouplearn.search.procedures import SearchPlan
from grouplearn.search.space import Range


def plan(method: str, **options) -> SearchPlan:
    return SearchPlan(method, (Range("x", 0.0, 1.0),), {}, 9, 9, 0, **options)


def grouped(of: SearchPlan, groups) -> GroupedSearch:
    return GroupedSearch(of, of.first_configs(), groups, lambda one, other: True)


def test_groups_decide_for_themselves() -> None:
    search = grouped(plan("hyperband"), [0, 1])
    first = search.begin()
    assert {epochs for epochs, _ in first.goes.values()} == {1, 3, 9}
    values = {(group, config): float(config if group else -config) for group, config in first.keys}
    second = search.on(values, frozenset())
    going = {group: sorted(config for each, config in second.keys if each == group) for group in (0, 1)}
    assert going == {0: [0, 5], 1: [4, 7]}  # of brackets of 5, 3 and 1 trials, each group keeps its own best


def test_what_loses_in_most_groups_stops_in_the_others_unless_it_leads() -> None:
    """Trials 0-4 are one bracket: trial 4 wins everywhere but in group 0 (2 wins), so 2 would go on there alone."""
    of = SearchPlan("asha", (Range("x", 0.0, 1.0),), {}, 6, 9, 0, slots=6)
    search = grouped(of, range(8))
    first = search.begin()
    best = {group: {5: 2.0, 4: 1.0} for group in range(8)}
    best[0] = {3: 2.0, 4: 1.0}
    best[1] = {5: 2.0, 3: 1.0}
    values = {(g, c): best[g].get(c, -float(c)) for g, c in first.keys}
    second = search.on(values, frozenset())
    going = {group: sorted(config for each, config in second.keys if each == group) for group in range(8)}
    # 3 went on in groups 0 and 1 only, 6 of 8 groups are fewer than 5/6; 4 went on in 7.
    assert going[0] == [3, 4]
    assert going[1] == [3, 5]
    best[1] = {5: 2.0, 4: 1.0}
    best[2] = {5: 2.0, 0: 1.0}  # 0 is in second place in one group of eight
    again = grouped(of, range(8))
    third = again.on({(g, c): best[g].get(c, -1.0 - c) for g, c in again.begin().keys}, frozenset())
    going = {group: sorted(config for each, config in third.keys if each == group) for group in range(8)}
    assert going[2] == [5]  # stopped here as in all the others
    assert going[0] == [3, 4]  # 3 leads here


def race(search: GroupedSearch, values, failed: frozenset[int] = frozenset()) -> dict[tuple[int, int], int]:
    """Run a search to its end on ``values(group, config, epochs)``; return the epochs that each trial reached."""
    reached: dict[tuple[int, int], int] = {}
    next_round = search.begin()
    while next_round.goes:
        reached |= {key: epochs for key, (epochs, _) in next_round.goes.items()}
        told = {key: None if key[0] in failed else values(*key, epochs) for key, (epochs, _) in next_round.goes.items()}
        next_round = search.on(told, failed)
    return reached


@pytest.mark.parametrize("method", ["hyperband", "asha"])
@pytest.mark.parametrize("told_of", [True, False])  # groups without rows that train, or without any metric
def test_groups_that_say_nothing_do_not_vote(method: str, told_of: bool) -> None:
    of = plan(method, slots=3)

    def values(group: int, config: int, epochs: int) -> float | None:
        return float(config * 5 % 9) + epochs / 100 if group == 3 else None

    alone = race(grouped(of, [3]), values)
    among = race(grouped(of, range(8)), values, frozenset({0, 1, 2, 4, 5, 6, 7} if told_of else ()))
    assert {key: epochs for key, epochs in among.items() if key[0] == 3} == alone


def test_healthy_groups_agree_in_spite_of_failed_ones() -> None:
    """Six groups say that configuration 5 loses, two cannot say anything, and the ninth, which it does not lead, hears it."""
    of = SearchPlan("asha", (Range("x", 0.0, 1.0),), {}, 6, 9, 0, slots=6)
    search = grouped(of, range(9))
    values = {(g, c): 6.0 - c if g < 8 else 6.0 - c % 5 - c / 9 for g, c in search.begin().keys}
    values |= {(g, c): None for g in (6, 7) for c in range(6)}
    going = [config for group, config in search.on(values, frozenset({6})).keys if group == 8]
    assert going == [0]


def test_few_groups_do_not_speak_for_the_others() -> None:
    of = SearchPlan("asha", (Range("x", 0.0, 1.0),), {}, 6, 9, 0, slots=6)
    search = grouped(of, range(5))
    values = {(g, c): (2.0 if c == 5 else 1.0 if c == (0 if g == 2 else 4) else -c) for g, c in search.begin().keys}
    assert (2, 0) in search.on(values, frozenset()).keys


def test_one_decision_for_all_groups_follows_the_mean_of_measured_values() -> None:
    of = SearchPlan("asha", (Range("x", 0.0, 1.0),), {}, 3, 3, 0, slots=3, shared=True)
    search = grouped(of, [0, 1])
    search.begin()
    # Group 1 is measured in thousands; without a normaliser it alone would decide for 2.
    values = {(0, 0): 9.0, (0, 1): 5.0, (0, 2): 0.0, (1, 0): 2000.0, (1, 1): 1000.0, (1, 2): 2500.0}
    assert set(search.on(values, frozenset()).keys) == {(0, 0), (1, 0)}


def test_a_failed_group_takes_no_further_part() -> None:
    search = grouped(plan("hyperband"), [0, 1])
    values = {key: (float(key[1]) if key[0] else None) for key in search.begin().keys}
    assert {group for group, _ in search.on(values, frozenset({0})).keys} == {1}


def test_equal_proposals_of_groups_are_one_configuration_and_copies_are_their_own() -> None:
    search = grouped(plan("pbt", interval=3), [0, 1])
    first = search.begin()
    next_round = search.on({key: float(key[1]) for key in first.keys}, frozenset())
    copies = {key: go for key, go in next_round.goes.items() if key not in first.goes}
    assert {parent for _, parent in copies.values()} <= set(range(9))
    assert len({config for _, config in copies}) == 1  # both groups draw alike from one seed, and saw the same values
    other = search.on({(g, c): (float(c) if g else -float(c)) for g, c in next_round.keys}, frozenset())
    new = {key for key in other.goes if key not in next_round.goes}
    assert len({config for _, config in new}) == 2


def test_users_stop_and_add() -> None:
    search = grouped(plan("hyperband"), [0, 1])
    first = search.begin()
    search.stop(5)
    search.add({"x": 0.5}, 0)
    search.add({"x": 0.5}, 0)  # heard once
    next_round = search.on({key: float(key[1] == 5) for key in first.keys}, frozenset())
    assert (0, 5) not in next_round.goes
    added = len(search.configs) - 1
    assert search.configs.index({"x": 0.5}) == added
    assert next_round.goes[0, added] == (9, 0)
    assert next_round.goes[1, added] == (9, 0)


def test_what_a_user_stops_while_it_waits_does_not_end_the_search() -> None:
    of = SearchPlan("asha", (Range("x", 0.0, 1.0),), {}, 6, 9, 0, slots=2)
    search = grouped(of, [0])
    values = {0: 5.0, 1: 4.0, 2: 3.0, 3: 2.0, 4: 1.0, 5: 0.0}
    next_round = search.begin()
    assert sorted(next_round.keys) == [(0, 0), (0, 1)]
    next_round = search.on({key: values[key[1]] for key in next_round.keys}, frozenset())
    assert (0, 0) in next_round.waiting  # the best of two, and a third of six are two
    search.stop(0)
    reached = 0
    while next_round.goes:
        next_round = search.on({key: values[key[1]] for key in next_round.keys}, frozenset())
        assert (0, 0) not in {*next_round.keys, *next_round.waiting}
        reached = max([reached, *(epochs for epochs, _ in next_round.goes.values())])
    assert reached == 9


def test_the_normaliser_counts_what_has_no_model_as_worse_than_the_worst() -> None:
    stick = GroupNormaliser()
    stick.see({(0, 0): 1.0, (0, 1): 2.0, (0, 2): 3.0})
    assert stick.mean({(0, 9): 2.0}) == 0.0
    assert stick.mean({(0, 9): 3.0}) == 1.0
    assert stick.mean({(0, 9): 3.0, (1, 9): None}) == 1.0
    stick.see({(1, 0): 10.0, (1, 1): 10.0})
    assert stick.mean({(0, 9): 3.0, (1, 9): None}) == pytest.approx((1.0 - 1.0) / 2)
    assert stick.mean({(0, 9): None}) == -math.inf
