"""A series learner makes of many series in one call what it makes of each alone, block by block."""

import numpy as np
import pytest

from grouplearn.data.frequency import Frequency
from grouplearn.data.shard import Shard, Stack
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Value
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.series.learners import LEARNERS
from grouplearn.learners.series.series_learner import SeriesLearner
from grouplearn.models.label import NUMBER
from grouplearn.models.state import Artifact

#: ARIMA models that are chosen take a second each.
GIVEN = {"arima": {"p": 1, "d": 0, "q": 0}}
PROBLEM = Problem(NUMBER, n_features=1, frequency=Frequency("day"))


def base(learner: SeriesLearner) -> dict[str, Value]:
    own = learner.declaration
    return {each.name: each.default for each in own.hyperparameters} | GIVEN.get(own.name, {})


def rows() -> list[Shard]:
    """Return series in random order: seasonal, constant, all zero, mostly zero, with gaps, of two values, one, all negative."""
    random = np.random.default_rng(3)
    steps = [
        np.arange(first, first + n)
        for first, n in ((5, 80), (0, 30), (-40, 25), (7, 90), (0, 60), (3, 2), (9, 1), (2, 40))
    ]
    values = [
        50 + 10 * np.sin(steps[0] * 2 * np.pi / 7) + random.normal(size=80),
        np.full(30, 4.0),
        np.zeros(25),
        np.where(random.uniform(size=90) < 0.2, random.integers(1, 9, 90), 0).astype(float),
        np.cumsum(random.normal(size=60)),
        np.array([1.0, 3.0]),
        np.array([2.0]),
        -100 + random.normal(size=40),
    ]
    kept = random.uniform(size=60) < 0.8
    kept[[0, -1]] = True
    steps[4], values[4] = steps[4][kept], values[4][kept]
    found = []
    for step, y in zip(steps, values, strict=True):
        order = random.permutation(step.size)
        found.append(Shard(step[order].astype(float)[:, None], y[order], np.ones(step.size)))
    return found


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda each: each.declaration.name)
def test_a_stack_is_as_its_series_alone(learner: SeriesLearner) -> None:
    configs = [
        {**base(learner), "season_length": 7, "horizon": 10},
        {**base(learner), "season_length": 7, "horizon": 3},
    ]
    shards = rows()
    start = np.concatenate([[0], np.cumsum([each.n_rows for each in shards])])
    x, y, weight = (np.concatenate([getattr(each, name) for each in shards]) for name in ("x", "y", "weight"))
    stack = Stack(x, y, weight, start)
    solved = learner.solve(PROBLEM, configs, stack, lambda _: None, lambda: False)
    measured = learner.measure(PROBLEM, configs, stack, solved, ["rmse", "mase"])
    assert solved.sound.all()
    for number, shard in enumerate(shards):
        state = learner.init(PROBLEM, configs)
        sums = None
        for block in shard.blocks(16):
            own = learner.accumulate(PROBLEM, configs, state, block)
            sums = own if sums is None else learner.merge(sums, own)
        assert sums is not None
        state = learner.step(PROBLEM, configs, state, sums)
        for place in range(len(configs)):
            artifact = learner.finalize(PROBLEM, configs, state, place)
            assert learner.validation_error(PROBLEM, artifact) is None
            assert all(np.isfinite(each).all() for each in artifact.tensors.values())
            for name, each in solved.tensors().items():
                np.testing.assert_array_equal(each[number * len(configs) + place], artifact.tensors[name], name)
            if place and (more := learner.continued(artifact.tensors, 10)):  # as the longer horizon has it
                mean, deviation = more
                expected = learner.finalize(PROBLEM, configs, state, 0).tensors
                np.testing.assert_allclose(mean, expected["mean"], rtol=1e-9)
                np.testing.assert_allclose(
                    np.nan_to_num(deviation, nan=-1.0), expected["deviation"], rtol=1e-12, atol=1e-9
                )
            error = shard.y - learner.score(NUMBER, artifact, shard.x)[:, 0]
            root = np.sqrt(np.nanmean(error**2)) if np.isfinite(error).any() else np.nan
            np.testing.assert_allclose(measured["rmse"][number, place], root, rtol=1e-12)


@pytest.mark.parametrize("name", ["exponential_smoothing", "theta", "seasonal_naive"])
@pytest.mark.parametrize(
    ("tensor", "numbers"), [("state", []), ("parameters", [2.0]), ("parameters", [99.0, 1, 1, 1, 1, 1])]
)
def test_states_that_are_not_the_methods_are_refused(name: str, tensor: str, numbers: list[float]) -> None:
    learner, shard = registry.learner(name), rows()[0]
    config = {**base(learner), "season_length": 7, "horizon": 10}
    state = learner.init(PROBLEM, [config])
    state = learner.step(PROBLEM, [config], state, learner.accumulate(PROBLEM, [config], state, shard))
    artifact = learner.finalize(PROBLEM, [config], state, 0)
    other = Artifact("tensors", {**artifact.tensors, tensor: np.array(numbers)})
    assert learner.validation_error(PROBLEM, artifact) is None
    assert learner.validation_error(PROBLEM, other) == "its last states are not those of its method"


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda each: each.declaration.name)
@pytest.mark.parametrize(
    ("step", "why"),
    [
        (
            [0.0, 1.0, 1.0],
            "1 row repeats the time of another, such as 1970-01-02: name what tells series apart in GROUP BY or SERIES BY",
        ),
        ([0.0, np.nan, 1.0], "the time is NULL or infinite in 1 row"),
        ([0.0, 1.5, 3.0], "a time after 1970-01-02 is between two steps of 1 day"),
        ([0.0, 1.0, 1e9], "its 3 rows span 1,000,000,001 steps"),
    ],
)
def test_rows_that_are_no_series_are_refused(learner: SeriesLearner, step: list[float], why: str) -> None:
    config = {**base(learner), "season_length": 7, "horizon": 3}
    state = learner.init(PROBLEM, [config])
    with pytest.raises(Diverged, match=why):
        learner.step(PROBLEM, [config], state, {"step": np.array(step), "y": np.ones(3)})
    stack = Stack(np.array(step)[:, None], np.ones(3), np.ones(3), np.array([0, 3]))
    assert not learner.solve(PROBLEM, [config], stack, lambda _: None, lambda: False).sound.any()
