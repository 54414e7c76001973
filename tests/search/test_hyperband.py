"""Hyperband against the published bracket table, and on synthetic curves."""

import itertools

import pytest

from grouplearn.search.hyperband import Hyperband, brackets, brackets_of, most_budget
from grouplearn.search.procedure import WORST

#: Li et al. 2018, table 1: (n_i, r_i) of every bracket for R = 81, η = 3.
PUBLISHED = (
    ((81, 1), (27, 3), (9, 9), (3, 27), (1, 81)),
    ((34, 3), (11, 9), (3, 27), (1, 81)),
    ((15, 9), (5, 27), (1, 81)),
    ((8, 27), (2, 81)),
    ((5, 81),),
)


def test_the_brackets_are_those_of_the_paper() -> None:
    assert tuple(tuple((rung.trials, rung.budget) for rung in bracket) for bracket in brackets(81, 3)) == PUBLISHED


def finished(search: Hyperband, value) -> tuple[dict[int, int], int]:
    """Run a search to its end on ``value(trial, epochs)``; return the epochs each trial reached, and all that were run."""
    reached: dict[int, int] = {}
    run = 0
    goes = search.begin()
    while goes:
        for go in goes:
            run += go.budget - reached.get(go.trial, 0)
            reached[go.trial] = go.budget
        goes = search.on({go.trial: value(go.trial, go.budget) for go in goes})
    return reached, run


def test_each_bracket_keeps_the_best_of_its_own() -> None:
    configs = [{"x": number} for number in range(143)]
    reached, run = finished(Hyperband(configs, 81, 3), lambda trial, epochs: -float(trial))
    # Smaller is better: the first of every bracket wins it.
    starts = [0, 81, 81 + 34, 81 + 34 + 15, 81 + 34 + 15 + 8]
    winners = [0, 81, 115, 130, 131, *range(138, 143)]
    assert sorted(trial for trial, epochs in reached.items() if epochs == 81) == winners
    for start, bracket in zip(starts, PUBLISHED, strict=True):
        members = range(start, start + bracket[0][0])
        for n, epochs in bracket:
            assert sorted(trial for trial in members if reached[trial] >= epochs) == list(range(start, start + n))
    assert run == most_budget(143, 81, 3)


def test_lots_decide_where_values_are_equal() -> None:
    def winners(seed: int) -> list[int]:
        search, reached = Hyperband([{"x": n} for n in range(17)], 9, 3, seed), {}
        goes = search.begin()
        while goes:
            reached |= {go.trial: go.budget for go in goes}
            goes = search.on({go.trial: 1.0 for go in goes})
        return sorted(trial for trial, budget in reached.items() if budget == 9)

    assert winners(1) == winners(1)
    won = [winner for seed in range(100) for winner in winners(seed) if winner < 9]  # the first bracket's
    assert len(won) == 100
    assert set(won) == set(range(9))
    assert max(map(won.count, won)) < 30


def test_a_trial_that_has_no_model_never_goes_on() -> None:
    reached, _ = finished(Hyperband([{"x": n} for n in range(17)], 9, 3), lambda trial, _: WORST if trial < 9 else 1.0)
    assert [reached[trial] for trial in range(9)] == [1] * 9


@pytest.mark.parametrize("trials", [1, 2, 5, 17, 24, 60, 143])
@pytest.mark.parametrize(("epochs", "factor"), [(1, 3), (9, 3), (10, 3), (81, 3), (16, 2), (100, 4)])
def test_fewer_trials_shrink_all_brackets(trials: int, epochs: int, factor: int) -> None:
    whole = sum(bracket[0].trials for bracket in brackets(epochs, factor))
    found = brackets_of(trials, epochs, factor)
    assert sum(bracket[0].trials for bracket in found) == min(trials, whole)
    for bracket in found:
        assert bracket[-1].budget == epochs
        assert all(one.budget <= next_.budget for one, next_ in itertools.pairwise(bracket))
        assert all(one.trials >= next_.trials for one, next_ in itertools.pairwise(bracket))
