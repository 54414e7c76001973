"""Columns that a Gram matrix cannot tell apart: NIST's Filip, and dependencies that are none but rounding."""

import numpy as np
import pytest
from helpers.stacks import stack_of

from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear.least_squares import moments
from grouplearn.models.label import NUMBER

LINEAR = registry.learner("linear_regression")
#: NIST Statistical Reference Datasets, linear regression, Filip: y and x; a polynomial of degree 10.
FILIP = np.array([
    0.8116, -6.860120914, 0.9072, -4.324130045, 0.9052, -4.358625055, 0.9039, -4.358426747, 0.8053, -6.955852379,
    0.8377, -6.661145254, 0.8667, -6.355462942, 0.8809, -6.118102026, 0.7975, -7.115148017, 0.8162, -6.815308569,
    0.8515, -6.519993057, 0.8766, -6.204119983, 0.8885, -5.853871964, 0.8859, -6.109523091, 0.8959, -5.79832982,
    0.8913, -5.482672118, 0.8959, -5.171791386, 0.8971, -4.851705903, 0.9021, -4.517126416, 0.909, -4.143573228,
    0.9139, -3.709075441, 0.9199, -3.499489089, 0.8692, -6.300769497, 0.8872, -5.953504836, 0.89, -5.642065153,
    0.891, -5.031376979, 0.8977, -4.680685696, 0.9035, -4.329846955, 0.9078, -3.928486195, 0.7675, -8.56735134,
    0.7705, -8.363211311, 0.7713, -8.107682739, 0.7736, -7.823908741, 0.7775, -7.522878745, 0.7841, -7.218819279,
    0.7971, -6.920818754, 0.8329, -6.628932138, 0.8641, -6.323946875, 0.8804, -5.991399828, 0.7668, -8.781464495,
    0.7633, -8.663140179, 0.7678, -8.473531488, 0.7697, -8.247337057, 0.77, -7.971428747, 0.7749, -7.676129393,
    0.7796, -7.352812702, 0.7897, -7.072065318, 0.8131, -6.774174009, 0.8498, -6.478861916, 0.8741, -6.159517513,
    0.8061, -6.835647144, 0.846, -6.53165267, 0.8751, -6.224098421, 0.8856, -5.910094889, 0.8919, -5.598599459,
    0.8934, -5.290645224, 0.894, -4.974284616, 0.8957, -4.64454848, 0.9047, -4.290560426, 0.9129, -3.885055584,
    0.9209, -3.408378962, 0.9219, -3.13200249, 0.7739, -8.726767166, 0.7681, -8.66695597, 0.7665, -8.511026475,
    0.7703, -8.165388579, 0.7702, -7.886056648, 0.7761, -7.588043762, 0.7809, -7.283412422, 0.7961, -6.995678626,
    0.8253, -6.691862621, 0.8602, -6.392544977, 0.8809, -6.067374056, 0.8301, -6.684029655, 0.8664, -6.378719832,
    0.8834, -6.065855188, 0.8898, -5.752272167, 0.8964, -5.132414673, 0.8963, -4.811352704, 0.9074, -4.098269308,
    0.9119, -3.66174277, 0.9228, -3.2644011,
]).reshape(-1, 2)  # fmt: skip
INTERCEPT, LAST, RESIDUAL = -1467.48961422980, -0.402962525080404e-04, 0.795851382172941e-03


def powers() -> tuple[np.ndarray, np.ndarray]:
    y, x = FILIP.T
    return np.column_stack([x**power for power in range(1, 11)]), y


def solved(x: np.ndarray, y: np.ndarray, blocks: int, config: dict[str, float]) -> tuple[np.ndarray, float, float]:
    problem, configs = Problem(NUMBER, x.shape[1]), [config]
    state = LINEAR.init(problem, configs)
    parts = [
        LINEAR.accumulate(problem, configs, state, Shard(*rows, np.ones(len(rows[0]))))
        for rows in zip(np.array_split(x, blocks), np.array_split(y, blocks), strict=True)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = LINEAR.merge(total, part)
    state = LINEAR.step(problem, configs, state, total)
    return state.tensors["weights"][0, 0], state.tensors["intercept"][0, 0], state.tensors["loss"][0]


@pytest.mark.parametrize("l2", [0.0, 1e-30])
@pytest.mark.parametrize("blocks", [1, 2, 7, 20])
def test_filip_has_its_certified_coefficients(blocks: int, l2: float) -> None:
    x, y = powers()
    weights, intercept, loss = solved(x, y, blocks, {"l2": l2})
    assert intercept == pytest.approx(INTERCEPT, rel=1e-4)
    assert weights[-1] == pytest.approx(LAST, rel=1e-4)
    assert 2 * loss == pytest.approx(RESIDUAL, rel=1e-6)


def test_filip_trains_alone_where_groups_train_side_by_side() -> None:
    x, y = powers()
    plain = np.column_stack([np.sin(np.arange(82) * each) for each in range(1, 11)])
    stack = stack_of([Shard(rows, y, np.ones(82)) for rows in (x, plain)])
    found = LINEAR.solve(Problem(NUMBER, 10), [{"l2": 0.0}], stack, lambda _: None, lambda: False)
    assert np.isnan(found.loss[:, 0]).tolist() == [True, False]


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e9])
def test_rounding_is_no_direction(offset: float) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 500)) + offset
    x = np.column_stack([a, b, a + b, 0.1 * a - 0.3 * b])
    y = a - 2 * b + rng.normal(size=500)
    weights, _, _ = solved(x, y, 3, {"l2": 0.0})
    assert np.abs(weights).max() < 3


def test_indicators_that_sum_to_one_need_no_factor() -> None:
    codes = np.arange(300) % 5
    block = Shard(np.eye(5)[codes], codes * 1.0, np.ones(300))
    sums = LINEAR.accumulate(Problem(NUMBER, 5), [{"l2": 0.0}], None, block)
    assert "factor" not in sums
    assert "factor" not in moments.block_moments(block.x, block.y[:, None], block.weight, gram=True)
