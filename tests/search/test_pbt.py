"""Population based training on synthetic values: who is replaced by a copy of whom, and how copies differ."""

import math

import pytest

from grouplearn.search.pbt import Pbt
from grouplearn.search.procedure import WORST
from grouplearn.search.space import Choices, Range, random

SPACE = (
    Range("rate", 1e-4, 1.0, log=True),
    Range("width", 1, 64, integer=True),
    Choices(("shape",), (("a",), ("b",), ("c",))),
)


def population(seed: int = 0, alike=lambda one, other: True) -> Pbt:
    configs = [{"rate": 10.0 ** -(n % 4), "width": 1 + n, "shape": "b"} for n in range(10)]
    return Pbt(configs, SPACE, 12, 3, seed, alike)


def test_the_worst_fifth_continues_copies_of_the_best_fifth() -> None:
    search = population()
    first = search.begin()
    assert [(go.trial, go.budget, go.parent) for go in first] == [(n, 3, None) for n in range(10)]
    second = search.on({go.trial: float(go.trial) for go in first})
    assert [go.trial for go in second] == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert {go.budget for go in second} == {6}
    copies = [go for go in second if go.trial >= 10]
    assert all(go.parent in (8, 9) for go in copies)
    assert all(go.parent is None and go.config == first[go.trial].config for go in second if go.trial < 10)


def test_it_ends_at_the_last_barrier() -> None:
    search = population()
    goes, barriers = search.begin(), []
    while goes:
        barriers.append(goes[0].budget)
        goes = search.on({go.trial: float(go.trial) for go in goes})
    assert barriers == [3, 6, 9, 12]


@pytest.mark.parametrize("seed", range(20))
def test_copies_are_changed_within_the_space(seed: int) -> None:
    search = population(seed)
    goes = search.begin()
    parents = {go.trial: go.config for go in goes}
    goes = search.on({go.trial: float(go.trial) for go in goes})
    for go in goes:
        if go.parent is None:
            continue
        parent = parents[go.parent]
        assert 1e-4 <= go.config["rate"] <= 1.0
        assert isinstance(go.config["width"], int)
        assert 1 <= go.config["width"] <= 64
        assert go.config["shape"] in ("a", "b", "c")
        assert go.config != parent


def test_factors_are_those_of_the_paper_unless_drawn_anew() -> None:
    ratios = set()
    for seed in range(60):
        search = population(seed)
        parents = {go.trial: go.config for go in search.begin()}
        for go in search.on({trial: float(trial) for trial in parents}):
            if go.parent is not None:
                ratios.add(round(go.config["rate"] / parents[go.parent]["rate"], 6))
    assert {0.8, 1.2} & ratios
    assert len(ratios) > 2  # some are drawn anew


def test_what_does_not_fit_the_state_is_kept() -> None:
    search = population(1, lambda one, other: one["shape"] == other["shape"])
    goes = search.begin()
    while goes:
        assert all(go.config["shape"] == "b" for go in goes)
        goes = search.on({go.trial: float(go.trial) for go in goes})


def test_all_that_failed_are_replaced_and_never_copied() -> None:
    search = population()
    goes = search.on({go.trial: (WORST if go.trial < 7 else 1.0) for go in search.begin()})
    assert [go.trial for go in goes] == [7, 8, 9, *range(10, 17)]
    assert all(go.parent in (7, 8) for go in goes if go.parent is not None)
    assert search.on({go.trial: WORST for go in goes}) == ()


def test_one_seed_gives_one_search() -> None:
    def run(seed: int) -> list:
        search, seen = population(seed), []
        goes = search.begin()
        while goes:
            seen.append(goes)
            goes = search.on({go.trial: math.sin(go.trial) for go in goes})
        return seen

    assert run(4) == run(4) != run(5)


def trials_of(search: Pbt) -> dict[int, dict]:
    """Return the hyperparameters of all trials of a search in which higher rates are better."""
    trials: dict[int, dict] = {}
    goes = search.begin()
    while goes:
        trials |= {go.trial: dict(go.config) for go in goes}
        goes = search.on({go.trial: go.config["rate"] for go in goes})
    return trials


@pytest.mark.parametrize("seed", range(100))
def test_no_two_trials_have_the_same_hyperparameters(seed: int) -> None:
    space = (Range("rate", 1e-4, 0.3, log=True),)
    trials = trials_of(Pbt(random(space, {}, 5, seed), space, 20, 1, seed, lambda one, other: True))
    assert len(trials) == 24
    assert len({trial["rate"] for trial in trials.values()}) == 24


@pytest.mark.parametrize("seed", range(20))
def test_listed_values_are_used_up_before_any_repeats(seed: int) -> None:
    space = (Choices(("rate",), tuple((rate / 10,) for rate in range(10))),)
    trials = trials_of(Pbt([{"rate": rate / 10} for rate in range(5)], space, 8, 1, seed, lambda one, other: True))
    assert len(trials) == 12
    assert len({trial["rate"] for trial in trials.values()}) == 10
