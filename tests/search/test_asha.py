"""ASHA's promotions on synthetic curves."""

from grouplearn.search.asha import Asha, rungs
from grouplearn.search.procedure import WORST


def history(search: Asha, value) -> list[dict[int, int]]:
    """Return the epochs to reach of every round."""
    rounds = []
    goes = search.begin()
    while goes:
        rounds.append({go.trial: go.epochs for go in goes})
        goes = search.on({go.trial: value(go.trial, go.epochs) for go in goes})
    return rounds


def test_rungs_end_at_the_whole_budget() -> None:
    assert rungs(9, 3, 1) == (1, 3, 9)
    assert rungs(10, 3, 1) == (1, 3, 9, 10)
    assert rungs(10, 2, 3) == (3, 6, 10)
    assert rungs(1, 3, 1) == (1,)


def test_one_slot_promotes_as_soon_as_a_third_is_known() -> None:
    """By hand: with one slot and trial number as value, a trial is promoted when it is the best of each three."""
    rounds = history(Asha([{"x": n} for n in range(9)], 9, 3, 1, 1), lambda trial, _: float(trial))
    assert rounds == [
        {0: 1}, {1: 1}, {2: 1}, {2: 3},  # of three, the best is promoted
        {3: 1},  # 3 is now the best third of four, and free
        {3: 3}, {4: 1}, {4: 3},  # and the best of three at the second rung
        {4: 9}, {5: 1}, {5: 3}, {5: 9}, {6: 1}, {6: 3}, {6: 9},
        {7: 1}, {7: 3}, {7: 9}, {8: 1}, {8: 3}, {8: 9},
    ]  # fmt: skip


def test_rising_values_are_the_worst_case_and_falling_ones_the_best() -> None:
    falling = history(Asha([{"x": n} for n in range(27)], 9, 3, 1, 1), lambda trial, _: -float(trial))
    epochs: dict[int, int] = {}
    for each in falling:
        epochs |= each
    assert [sum(reached >= rung for reached in epochs.values()) for rung in (1, 3, 9)] == [27, 9, 3]
    assert sorted(trial for trial, reached in epochs.items() if reached == 9) == [0, 1, 2]


def test_a_round_ends_when_the_first_trial_reaches_its_rung() -> None:
    """Three slots: the promoted trial needs two more epochs, new ones one, and no one is trained past its rung."""
    rounds = history(Asha([{"x": n} for n in range(6)], 9, 3, 1, 3), lambda trial, _: -float(trial))
    assert rounds[0] == {0: 1, 1: 1, 2: 1}
    assert rounds[1] == {0: 2, 3: 1, 4: 1}
    assert all(sorted(each.values())[-1] <= 9 for each in rounds)


def test_one_trial_has_the_whole_budget_in_the_end() -> None:
    rounds = history(Asha([{"x": n} for n in range(4)], 9, 3, 1, 4), lambda trial, _: -float(trial))
    assert rounds[-1] == {0: 9}


def test_a_trial_without_a_model_frees_its_slot() -> None:
    rounds = history(Asha([{"x": n} for n in range(4)], 9, 3, 1, 1), lambda trial, _: WORST)
    assert rounds == [{0: 1}, {1: 1}, {2: 1}, {3: 1}]
