"""TPE is optuna's own sampler: the same configurations as a plain loop over ask and tell."""

import math

import optuna

from grouplearn.search.procedure import WORST
from grouplearn.search.space import Choices, Range
from grouplearn.search.tpe import Tpe

SPACE = (
    Range("rate", 1e-4, 1.0, log=True),
    Range("width", 1, 64, integer=True),
    Choices(("a", "b"), ((1, "x"), (2, "y"))),
)


def value(config) -> float:
    return -((math.log10(config["rate"]) + 2) ** 2) - (config["width"] - 20) ** 2 / 100 + (config["a"] == 2)


def ours(seed: int, trials: int, of=value) -> list:
    search, seen = Tpe(SPACE, {"fixed": 7}, trials, 5, seed), []
    goes = search.begin()
    while goes:
        seen += goes
        goes = search.on({go.trial: of(go.config) for go in goes})
    return seen


def test_the_configurations_are_those_of_optunas_own_loop() -> None:
    of = optuna.distributions
    distributions = {
        "rate": of.FloatDistribution(1e-4, 1.0, log=True),
        "width": of.IntDistribution(1, 64),
        "a,b": of.CategoricalDistribution((0, 1)),
    }
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=11))
    expected = []
    for _ in range(35):
        trial = study.ask(distributions)
        a, b = SPACE[2].points[trial.params["a,b"]]
        expected.append({"fixed": 7, "rate": trial.params["rate"], "width": trial.params["width"], "a": a, "b": b})
        study.tell(trial, value(expected[-1]))
    assert [go.config for go in ours(11, 35)] == expected


def test_it_ends_after_its_trials_and_depends_on_the_seed() -> None:
    assert len(ours(1, 3)) == 3
    assert [go.trial for go in ours(1, 14)] == list(range(14))
    assert ours(1, 14) == ours(1, 14) != ours(2, 14)
    assert {go.budget for go in ours(1, 14)} == {5}


def test_failed_trials_are_told_and_counted() -> None:
    assert len(ours(3, 15, lambda config: WORST)) == 15
