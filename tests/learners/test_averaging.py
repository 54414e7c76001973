"""The steps that means of models are: momentum, models added, short steps."""

from __future__ import annotations

import numpy as np
import pytest

from grouplearn.learners import registry
from grouplearn.learners.contract.averaging import Push, pushed, slower

SQUARES = (4.0, 1.0)


def descended(push_of: tuple[int, float], rounds: int, rate: float) -> np.ndarray:  # type: ignore[type-arg]
    """Return where K partitions of ½·aₖ·(w - bₖ)² come to in rounds of one local step each, the next model made by ``pushed``."""
    times, momentum = push_of
    w, velocity = np.array([[3.0, -2.0]]), None
    for _ in range(rounds):
        made = [w - rate * square * (w - goal) for square, goal in zip(SQUARES, (1.0, -1.0), strict=True)]
        w, velocity = pushed(w, np.mean(made, axis=0), Push(times, momentum, velocity), np.zeros(1, dtype=bool))
    return w


def heavy_ball(rate: float, momentum: float, rounds: int) -> np.ndarray:  # type: ignore[type-arg]
    """Return where w + momentum·(w - w before) - rate·gradient of the mean comes to (Polyak 1964)."""
    w = before = np.array([[3.0, -2.0]])
    for _ in range(rounds):
        gradient = np.mean([square * (w - goal) for square, goal in zip(SQUARES, (1.0, -1.0), strict=True)], axis=0)
        w, before = w + momentum * (w - before) - rate * gradient, w
    return w


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_outer_momentum_is_the_heavy_ball(momentum: float) -> None:
    np.testing.assert_allclose(descended((1, momentum), 25, 0.2), heavy_ball(0.2, momentum, 25), rtol=1e-12)


def test_models_that_are_added_after_one_short_step_are_their_mean_after_one_of_full_length() -> None:
    """CoCoA+: K partitions with steps that are K times shorter, all of which count (Ma et al. 2015)."""
    np.testing.assert_allclose(descended((2, 0.0), 9, 0.2 / 2), descended((1, 0.0), 9, 0.2), rtol=1e-12)


@pytest.mark.parametrize("times", [1, 4])
def test_what_is_zero_in_the_mean_and_who_is_done_stay_where_they_are(times: int) -> None:
    before, mean = np.array([[1.0, 2.0, 0.0], [1.0, 2.0, 3.0]]), np.array([[0.0, 1.0, 0.0], [1.0, 2.0, 3.0]])
    push = Push(times, 0.9, np.ones((2, 3)))
    w, velocity = pushed(before, mean, push, np.array([False, True]))
    np.testing.assert_array_equal(w, [[0.0, 2.0 - times + 0.9, 0.0], [1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(velocity, [[0.0, 0.9 - times, 0.0], [0.0, 0.0, 0.0]])
    single, _ = pushed(before.astype(np.float32), mean.astype(np.float32), push, np.array([False, True]))
    assert single.dtype == np.float32


def test_steps_are_as_much_shorter_as_there_are_partitions() -> None:
    learner = registry.learner("mlp")
    assert slower({"learning_rate": 0.3, "l2": 1.0}, learner, 3) == {"learning_rate": 0.3 / 3, "l2": 1.0}
    assert slower({}, learner, 4) == {"learning_rate": 1e-3 / 4}
