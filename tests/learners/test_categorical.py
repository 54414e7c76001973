"""One-hot columns by the thousand: the same weights as by solving all columns at once."""

import numpy as np
import pytest
import scipy.sparse

from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear.least_squares import categorical
from grouplearn.models.label import NUMBER

LINEAR = registry.learner("linear_regression")
CATEGORIES, ROWS = 520, 2000


def rows(seed: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers around a run of indicators, one of which is never set, and some rows without any."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, CATEGORIES, ROWS)
    codes[:10] = 7
    indicators = np.zeros((ROWS, CATEGORIES + 1))
    indicators[np.arange(ROWS), codes] = 1.0
    numbers = rng.normal(loc=[0.0, 50.0, 1e3], size=(ROWS, 3))
    x = np.column_stack([numbers[:, :1], indicators, numbers[:, 1:], indicators[:, 0]])
    return x, x[:, 0] + codes % 9 + rng.normal(size=ROWS), rng.uniform(0.5, 2.0, ROWS)


def reference(x: np.ndarray, y: np.ndarray, weight: np.ndarray, l2: float, centred: bool) -> tuple[np.ndarray, float]:
    mean = np.average(x, axis=0, weights=weight) if centred else np.zeros(x.shape[1])
    label = np.average(y, weights=weight) if centred else 0.0
    root = np.sqrt(weight)
    a = np.vstack([(x - mean) * root[:, None], np.sqrt(l2) * np.eye(x.shape[1])])
    b = np.concatenate([(y - label) * root, np.zeros(x.shape[1])])
    weights = np.linalg.lstsq(a, b, rcond=1e-12)[0]
    return weights, 0.5 * float(((b - a @ weights) ** 2).sum())


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_weights_are_those_of_all_columns_at_once(l2: float, intercept: bool) -> None:
    x, y, weight = rows()
    problem, configs = Problem(NUMBER, x.shape[1]), [{"l2": l2, "fit_intercept": intercept}]
    state = LINEAR.init(problem, configs)
    halves = (slice(0, 1200), slice(1200, None))
    parts = [
        LINEAR.accumulate(problem, configs, state, Shard(scipy.sparse.csr_matrix(x[half]), y[half], weight[half]))
        for half in halves
    ]
    state = LINEAR.step(problem, configs, state, LINEAR.merge(*parts))
    weights, loss = reference(x, y, weight, l2, intercept)
    np.testing.assert_allclose(state.tensors["weights"][0, 0], weights, rtol=1e-6, atol=1e-6)
    assert state.tensors["loss"][0] == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("size", [1e-120, 1e-40, 1e-20, 1e-9, 1e9, 1e60])
@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize("pieces", [1, 2])
def test_the_sizes_of_columns_beside_do_not_matter(size: float, shift: float, pieces: int) -> None:
    """Numbers of another size and far from zero, and constants, which have weight 0: the other weights stay as they are."""
    x, y, weight = rows()
    x, size = x[:, :-1], size if shift == 0 else size**0.01  # else what is far from zero has no digits
    plain = np.column_stack([x[:, :-1], x[:, -1:] - 1e3, np.zeros((len(y), 2))])
    other = plain.copy()
    other[:, -3] = (plain[:, -3] + shift) * size
    other[:, -2:] = [0.1, 1e8 / 3]
    found = []
    problem, configs = Problem(NUMBER, plain.shape[1]), [{"l2": 0.0}]
    for numbers in (plain, other):
        state = LINEAR.init(problem, configs)
        parts = [
            LINEAR.accumulate(
                problem, configs, state, Shard(scipy.sparse.csr_matrix(numbers[rows_]), y[rows_], weight[rows_])
            )
            for rows_ in np.array_split(np.arange(len(y)), pieces)
        ]
        sums = parts[0] if pieces == 1 else LINEAR.merge(*parts)
        assert categorical.parted(sums) is not None
        found.append(LINEAR.step(problem, configs, state, sums))
    expected, weights = (state.tensors["weights"][0, 0] for state in found)
    assert weights[-2:].tolist() == [0.0, 0.0]
    assert weights[-3] * size == pytest.approx(expected[-3], rel=1e-6)
    # Without the column whose size is another: the smallest weights are then those of all others.
    np.testing.assert_allclose(weights[:-3], expected[:-3], rtol=1e-4, atol=1e-5)
    assert found[1].tensors["loss"][0] == pytest.approx(found[0].tensors["loss"][0], rel=1e-7)


def test_columns_that_are_set_together_are_solved_as_others() -> None:
    rng = np.random.default_rng(1)
    x, weight = rng.normal(size=(700, 520)) * (rng.uniform(size=(700, 520)) < 0.1), np.ones(700)
    y = x[:, 0] + rng.normal(size=700)
    problem, configs = Problem(NUMBER, 520), [{"l2": 1.0}, {"l1": 0.5}]
    state = LINEAR.init(problem, configs)
    sums = LINEAR.accumulate(problem, configs, state, Shard(scipy.sparse.csr_matrix(x), y, weight))
    assert categorical.parted(sums) is None
    weights, loss = reference(x, y, weight, 1.0, centred=True)
    state = LINEAR.step(problem, configs, state, sums)
    np.testing.assert_allclose(state.tensors["weights"][0, 0], weights, rtol=1e-6, atol=1e-6)
    assert state.tensors["loss"][0] == pytest.approx(loss, rel=1e-6)
