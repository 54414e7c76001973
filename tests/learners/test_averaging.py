"""The steps that means of models are, with momentum."""

from __future__ import annotations

import numpy as np
import pytest

import grouplearn
from grouplearn.learners.contract.averaging import Momentum, pushed

SQUARES = (4.0, 1.0)


def descended(momentum: float, rounds: int, rate: float) -> np.ndarray:  # type: ignore[type-arg]
    """Return where K partitions of ½·aₖ·(w - bₖ)² come to in rounds of one local step each, the next model made by ``pushed``."""
    w, velocity = np.array([[3.0, -2.0]]), None
    for _ in range(rounds):
        made = [w - rate * square * (w - goal) for square, goal in zip(SQUARES, (1.0, -1.0), strict=True)]
        w, velocity = pushed(w, np.mean(made, axis=0), Momentum(momentum, velocity), np.zeros(1, dtype=bool))
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
    np.testing.assert_allclose(descended(momentum, 25, 0.2), heavy_ball(0.2, momentum, 25), rtol=1e-12)


def test_what_is_zero_in_the_mean_and_who_is_done_stay_where_they_are() -> None:
    before, mean = np.array([[1.0, 2.0, 0.0], [1.0, 2.0, 3.0]]), np.array([[0.0, 1.0, 0.0], [1.0, 2.0, 3.0]])
    push = Momentum(0.9, np.ones((2, 3)))
    w, velocity = pushed(before, mean, push, np.array([False, True]))
    np.testing.assert_array_equal(w, [[0.0, 2.0 - 1.0 + 0.9, 0.0], [1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(velocity, [[0.0, 0.9 - 1.0, 0.0], [0.0, 0.0, 0.0]])
    single, _ = pushed(before.astype(np.float32), mean.astype(np.float32), push, np.array([False, True]))
    assert single.dtype == np.float32


def test_momentum_counts_from_the_intercept_that_steps_begin_with() -> None:
    """A label far from 0 is where the model begins, and no move that a momentum would go on with."""
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT hash(i) % 1000 / 1000 - 0.5 AS x, 1000 + x AS y FROM range(40_000) AS r(i)"
        )
        for send in ("model", "gradient"):
            con.execute(
                "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FROM t WITH (solver = 'sgd', epochs = 3,"
                f" operator = 'averaging', partitions = 2, send = '{send}', sync = 'epoch', outer_momentum = 0.5,"
                " average = false)"
            )
            ((rmse,),) = con.execute("SELECT train_rmse FROM m").fetchall()
            assert rmse < 1
