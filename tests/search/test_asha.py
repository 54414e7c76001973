"""ASHA's promotions on synthetic curves."""

import pytest

from grouplearn.search.asha import Asha, rungs
from grouplearn.search.procedure import WORST, Judgment


def history(search: Asha, value) -> list[dict[int, int]]:
    """Return the epochs to reach of every round."""
    rounds = []
    goes = search.begin()
    while goes:
        rounds.append({go.trial: go.budget for go in goes})
        goes = search.on({go.trial: value(go.trial, go.budget) for go in goes})
    return rounds


def test_rungs_end_at_the_whole_budget() -> None:
    assert rungs(9, 3, 1) == (1, 3, 9)
    assert rungs(10, 3, 1) == (1, 3, 9, 10)
    assert rungs(10, 2, 3) == (3, 6, 10)
    assert rungs(1, 3, 1) == (1,)


def test_one_slot_promotes_as_soon_as_a_third_is_known() -> None:
    """By hand: with one slot and trial number as value, a trial is promoted when it is the best of each three."""
    rounds = history(Asha([{"x": n} for n in range(9)], rungs(9, 3, 1), 3, 1), lambda trial, _: float(trial))
    assert rounds == [
        {0: 1}, {1: 1}, {2: 1}, {2: 3},  # of three, the best is promoted
        {3: 1},  # 3 is now the best third of four, and free
        {3: 3}, {4: 1}, {4: 3},  # and the best of three at the second rung
        {4: 9}, {5: 1}, {5: 3}, {5: 9}, {6: 1}, {6: 3}, {6: 9},
        {7: 1}, {7: 3}, {7: 9}, {8: 1}, {8: 3}, {8: 9},
    ]  # fmt: skip


def test_rising_values_are_the_worst_case_and_falling_ones_the_best() -> None:
    falling = history(Asha([{"x": n} for n in range(27)], rungs(9, 3, 1), 3, 1), lambda trial, _: -float(trial))
    epochs: dict[int, int] = {}
    for each in falling:
        epochs |= each
    assert [sum(reached >= rung for reached in epochs.values()) for rung in (1, 3, 9)] == [27, 9, 3]
    assert sorted(trial for trial, reached in epochs.items() if reached == 9) == [0, 1, 2]


def test_a_round_ends_when_the_first_trial_reaches_its_rung() -> None:
    """Three slots: the promoted trial needs two more epochs, new ones one, and no one is trained past its rung."""
    rounds = history(Asha([{"x": n} for n in range(6)], rungs(9, 3, 1), 3, 3), lambda trial, _: -float(trial))
    assert rounds[0] == {0: 1, 1: 1, 2: 1}
    assert rounds[1] == {0: 2, 3: 1, 4: 1}
    assert all(sorted(each.values())[-1] <= 9 for each in rounds)


def test_one_trial_has_the_whole_budget_in_the_end() -> None:
    rounds = history(Asha([{"x": n} for n in range(4)], rungs(9, 3, 1), 3, 4), lambda trial, _: -float(trial))
    assert rounds[-1] == {0: 9}


def test_trials_that_train_anew_reach_their_rung_in_one_round() -> None:
    rounds = history(
        Asha([{"x": n} for n in range(6)], rungs(9, 3, 1), 3, 3, whole=True), lambda trial, _: -float(trial)
    )
    assert {budget for each in rounds for budget in each.values()} == {1, 3, 9}
    assert rounds[1] == {0: 3, 3: 1, 4: 1}


def test_a_trial_without_a_model_frees_its_slot() -> None:
    rounds = history(Asha([{"x": n} for n in range(4)], rungs(9, 3, 1), 3, 1), lambda trial, _: WORST)
    assert rounds == [{0: 1}, {1: 1}, {2: 1}, {3: 1}]


def test_what_waits_may_be_promoted_and_nothing_else_is() -> None:
    """Whatever is promoted was in training or waiting at the barrier before, whichever order the values come in."""
    for step in (1, 5, 7, 11):  # orders of the values of 27 trials
        search = Asha([{"x": n} for n in range(27)], rungs(9, 3, 1), 3, 4)
        goes, begun, kept, waiting = search.begin(), set(), set(), frozenset()
        while goes:
            now = {go.trial for go in goes}
            assert begun & now <= kept
            begun |= now
            goes = search.on({go.trial: float(go.trial * step % 27) for go in goes})
            kept, waiting = now | waiting, search.waiting
            assert len(waiting) <= 9 + 3
        assert not search.waiting


def test_when_the_best_fails_the_next_best_has_the_whole_budget() -> None:
    rounds = history(
        Asha([{"x": n} for n in range(3)], rungs(9, 3, 1), 3, 3),
        lambda trial, epochs: WORST if trial == 0 and epochs > 1 else -float(trial),
    )
    assert rounds == [{0: 1, 1: 1, 2: 1}, {0: 3}, {1: 3}, {1: 9}]


@pytest.mark.parametrize("step", [1, 2, 4, 5, 7, 8])
@pytest.mark.parametrize("slots", [1, 3, 9])
def test_every_trial_loses_once_or_had_the_whole_budget(step: int, slots: int) -> None:
    search = Asha([{"x": n} for n in range(9)], rungs(9, 3, 1), 3, slots)
    judged: list[Judgment] = []
    reached: dict[int, int] = {}
    goes = search.begin()
    while goes:
        reached |= {go.trial: go.budget for go in goes}
        goes = search.on({go.trial: float(go.trial * step % 9) for go in goes})
        judged += search.judged
    for trial in range(9):
        of_trial = sorted((each.rung, each.passed) for each in judged if each.trial == trial)
        rung = {1: 0, 3: 1, 9: 2}[reached[trial]]
        assert of_trial == [(below, True) for below in range(rung)] + [(rung, rung == 2)]
