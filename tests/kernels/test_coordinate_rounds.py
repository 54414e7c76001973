"""Rounds of coordinate descent against plain Python, the same bits in every build, for one model and for many."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse
from builds import in_every_build

from grouplearn.kernels.linear import coordinate_descent as kernel

LOSSES: dict[kernel.Loss, int] = {"squares": 1, "logistic": 1, "softmax": 3, "poisson": 1, "squared_hinge": 1}
ROWS, BEGINS = 37, np.array([0, 1, 5, 9, 12])
#: What moves the largest row by 1, of every column: it counts where rows have several values in a block.
UNIT = np.array([1.0, 1, 1, 1, 1, 1, 1, 1, 1, 0.1, 2.0, 5.0])


def rows(loss: kernel.Loss, outputs: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A number, a code, a code with values, and values of three sizes, of which a row has some; labels and weights."""
    random = np.random.default_rng(3)
    x = np.zeros((ROWS, 12))
    x[:, 0] = random.normal(size=ROWS)
    at = np.arange(ROWS)
    x[at, random.integers(1, 5, ROWS)] = 1.0
    x[at, random.integers(5, 9, ROWS)] = random.normal(size=ROWS)
    x[:, 9:] = random.integers(0, 2, (ROWS, 3)) * random.normal(size=(ROWS, 3)) / UNIT[9:]
    x[:3, 1:] = 0
    y = {"squares": random.normal(size=ROWS), "poisson": random.poisson(2.0, ROWS) * 1.0}
    classes = random.integers(0, max(2, outputs), ROWS) * 1.0
    return x, y.get(loss, classes), random.uniform(0.5, 2.0, ROWS)


def group(loss: kernel.Loss, configs: int, outputs: int = 1, l1: float = 0.1) -> kernel.Group:
    forms = [kernel.ONE_COLUMN, kernel.CODES, kernel.CODES_WITH_VALUES, kernel.RAGGED_WITH_VALUES]
    mean = np.zeros(12)
    mean[0] = 0.25
    cut = kernel.Blocks(BEGINS.astype(np.int64), np.array(forms, np.int64), mean)
    each = np.linspace(0.5, 2.0, configs)
    penalties = kernel.Penalties(l1 * each, 0.3 * each, np.full(configs, 1e-9))
    complete = np.array([0, 0, 0, 0])
    return kernel.Group(kernel.Shape(loss, configs, outputs), cut, complete, np.append(UNIT, 1.0), True, penalties)


def weights_of(configs: int, outputs: int, seed: int) -> np.ndarray:
    return 0.5 * np.random.default_rng(seed).normal(size=(configs, outputs, 13))


def derivatives(loss: str, score: np.ndarray, y: float, reach: float, k: int) -> tuple[float, float, float]:
    """Loss of a row, its slope by score k, and what it bends at most within ``reach``, by looking at many points."""
    sign = -1.0 if y > 0.5 else 1.0
    if loss == "squares":
        return 0.5 * (score[0] - y) ** 2, score[0] - y, 1.0
    if loss == "logistic":
        p = 1 / (1 + math.exp(-sign * score[0]))
        near = max(0.0, abs(score[0]) - reach)
        bend = math.exp(-near) / (1 + math.exp(-near)) ** 2
        return math.log1p(math.exp(sign * score[0])), sign * p, bend
    if loss == "poisson":
        constant = y * math.log(y) - y if y > 0 else 0.0
        return math.exp(score[0]) - y * score[0] + constant, math.exp(score[0]) - y, math.exp(score[0] + reach)
    if loss == "squared_hinge":
        lack = max(0.0, 1 + sign * score[0])
        return lack**2, 2 * sign * lack, 2.0 if 1 + sign * score[0] + reach > 0 else 0.0
    e = np.exp(score - score.max())
    p = e / e.sum()
    odds = min(p[k], 1 - p[k]) / max(p[k], 1 - p[k])
    e = min(1.0, odds * math.exp(min(700.0, 2 * reach)))
    return (0.0 if k else -math.log(p[int(y)])), p[k] - (k == y), 2 * e / (1 + e) ** 2


def reference(
    loss: kernel.Loss, outputs: int, weights: np.ndarray, radius: np.ndarray | None, block: int
) -> tuple[np.ndarray, np.ndarray]:
    """The sums of one model's block (columns, K, 2), and of the end of an epoch (K, 3), row by row."""
    x, y, weight = rows(loss, outputs)
    x = x.copy()
    x[:, 0] -= 0.25
    own = slice(BEGINS[block], BEGINS[block + 1])
    sums, end = np.zeros((own.stop - own.start, outputs, 2)), np.zeros((outputs, 3))
    for i in range(ROWS):
        score = weights[:, :12] @ x[i] + weights[:, 12]
        extent = (np.abs(x[i, own]) * UNIT[own]).sum()
        for k in range(outputs):
            most = math.inf
            if radius is not None:
                some = radius if loss == "softmax" else radius[k : k + 1]
                most = (some[:, own] / UNIT[own] * (x[i, own] != 0)).max() * extent
            _, slope, bend = derivatives(loss, score, y[i], most, k)
            sums[:, k, 0] += weight[i] * slope * x[i, own]
            sums[:, k, 1] += weight[i] * bend * np.abs(x[i, own]) * extent / UNIT[own]
            own_reach = math.inf if radius is None else (radius[:, 12].max() if loss == "softmax" else radius[k, 12])
            value, slope, bend = derivatives(loss, score, y[i], own_reach, k)
            end[k] += weight[i] * np.array([value, slope, bend])
    return sums, end


def passed(loss: kernel.Loss, configs: int, x: object | None = None) -> dict[str, np.ndarray]:
    """All blocks' sums and the end's, of so many models, moved there from elsewhere."""
    outputs = LOSSES[loss]
    given, y, weight = rows(loss, outputs)
    one = group(loss, configs, outputs)
    cell = kernel.Cell(given if x is None else x, y, weight, one.cut, one.shape)
    here, start = weights_of(9, outputs, 1)[:configs], weights_of(9, outputs, 2)[:configs]
    radius = np.abs(weights_of(9, outputs, 4)[:configs])
    lanes = None if loss == "squares" else one.shape.in_lanes(radius)
    done = one.lanes_of_done(np.zeros(configs, bool))
    found = {}
    one.measure(cell, one.shape.in_lanes(start), None if lanes is None else lanes[12:], done)
    for block in range(4):  # the block's weights are moved from ``start`` to ``here``
        own = slice(int(BEGINS[block]), int(BEGINS[block + 1]))
        step = one.shape.in_lanes((here - start)[:, :, own])
        one.pass_over(cell, (block, step), None, None, done)
    one.pass_over(cell, (None, one.shape.in_lanes((here - start)[:, :, 12:])), None, None, done)
    for block in range(4):
        own = slice(int(BEGINS[block]), int(BEGINS[block + 1]))
        sums = one.pass_over(cell, None, block, None if lanes is None else lanes[own], done)
        found[f"block {block}"] = sums
    found["predictions"] = cell.predictions
    found["end"] = one.measure(cell, one.shape.in_lanes(here), None if lanes is None else lanes[12:], done)
    return found


@pytest.mark.parametrize("loss", LOSSES)
def test_sums_are_those_of_plain_python(loss: kernel.Loss) -> None:
    outputs = LOSSES[loss]
    found = in_every_build(lambda: passed(loss, 3))
    for model in range(3):
        weights = weights_of(9, outputs, 1)[model]
        radius = None if loss == "squares" else np.abs(weights_of(9, outputs, 4)[model])
        for block in range(4):
            sums, end = reference(loss, outputs, weights, radius, block)
            np.testing.assert_allclose(found[f"block {block}"][:, 0, :, :, model], sums, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(found["end"][0, 0, :, :, model], end, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_model_alone_has_the_bits_that_it_has_among_others(loss: kernel.Loss) -> None:
    alone, many = in_every_build(lambda: passed(loss, 1)), passed(loss, 9)
    for name, values in alone.items():
        if name != "predictions":
            assert values[:, 0, ..., 0].tobytes() == np.ascontiguousarray(many[name][:, 0, ..., 0]).tobytes(), name


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_in_single_precision_and_sparse_ones_have_the_same_bits(loss: kernel.Loss) -> None:
    x = rows(loss, LOSSES[loss])[0].astype(np.float32)
    dense = passed(loss, 2, x.astype(float))
    for other in (x, scipy.sparse.csr_matrix(x.astype(float))):
        for name, values in passed(loss, 2, other).items():
            assert values.tobytes() == dense[name].tobytes(), name


def test_a_survey_counts_columns_and_items() -> None:
    x, _, weight = rows("squares")
    item = np.repeat(np.arange(4), np.diff(BEGINS)).astype(np.int64)
    for given in (x, scipy.sparse.csr_matrix(x)):
        found = in_every_build(lambda given=given: kernel.survey(given, weight, item, 4)._asdict())
        total, low, high, count = found["columns"]
        np.testing.assert_allclose(total, weight @ x, rtol=1e-12, atol=1e-12)
        set_ = x != 0
        np.testing.assert_array_equal(count, set_.sum(axis=0))
        np.testing.assert_array_equal(low, np.where(set_, x, np.inf).min(axis=0))
        np.testing.assert_array_equal(high, np.where(set_, x, -np.inf).max(axis=0))
        of_items = [set_[:, BEGINS[i] : BEGINS[i + 1]] for i in range(4)]
        assert found["items"][0].tolist() == [each.sum(axis=1).max() for each in of_items]
        assert found["items"][1].tolist() == [each.sum() for each in of_items]
        odd = [(x[:, BEGINS[i] : BEGINS[i + 1]] != 1) & of_items[i] for i in range(4)]
        assert found["items"][2].tolist() == [each.sum() for each in odd]


@pytest.mark.parametrize("l1", [0.0, 0.4])
@pytest.mark.parametrize("radius", [np.inf, 0.2])
def test_a_column_goes_to_the_minimum_within_its_radius(l1: float, radius: float) -> None:
    one = group("logistic", 3, 1, l1)
    random = np.random.default_rng(8)
    slope, bend, start = random.normal(size=(3, 4)), random.uniform(0.1, 3, (3, 4)), random.normal(size=(3, 4))
    sums = np.zeros((4, 1, 1, 2, 8))
    sums[:, 0, 0, 0, :3], sums[:, 0, 0, 1, :3] = slope.T, bend.T
    weights = one.shape.in_lanes(start[:, None])
    radii = np.full(weights.shape, radius)
    one.reduce(sums, 1, weights, radii, one.lanes_of_done(np.array([False, False, True])))
    found, reach = one.shape.out_of_lanes(weights)[:, 0], one.shape.out_of_lanes(radii)[:, 0]
    each = np.linspace(0.5, 2.0, 3)
    for model in range(2):
        grid = np.linspace(-1, 1, 400_001) * (radius if radius < np.inf else 20)
        for j in range(4):
            new = start[model, j] + grid
            cost = slope[model, j] * grid + 0.5 * bend[model, j] * grid**2
            cost = cost + l1 * each[model] * np.abs(new) + 0.15 * each[model] * new**2
            assert found[model, j] == pytest.approx(new[cost.argmin()], abs=2e-4)
            moved = abs(found[model, j] - start[model, j])
            assert reach[model, j] == pytest.approx(max(2 * moved, 0.5 * radius if radius < np.inf else 0, 1 / 64))
    np.testing.assert_array_equal(found[2], start[2])  # it is done


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.3, 1.0), (5.0, 0.1)])
def test_a_complete_block_is_shifted_to_where_it_costs_least(l1: float, l2: float) -> None:
    random = np.random.default_rng(2)
    cut = kernel.Blocks(np.array([0, 6], np.int64), np.array([kernel.CODES], np.int64), np.zeros(6))
    unit = np.array([1.0, 1, 1, 1, 0, 1, 1])  # the fifth is in no row
    penalties = kernel.Penalties(np.array([l1]), np.array([l2]), np.ones(1))
    one = kernel.Group(kernel.Shape("squares", 1, 1), cut, np.array([1]), unit, True, penalties)
    before = random.normal(size=(1, 1, 7)) + 1.0
    before[0, 0, 4] = 0.0
    weights = one.shape.in_lanes(before)
    one.shift(weights, np.zeros(1))
    after = one.shape.out_of_lanes(weights)[0, 0]
    moved = after[6] - before[0, 0, 6]
    there = np.array([0, 1, 2, 3, 5])
    np.testing.assert_allclose(after[there], before[0, 0, there] - moved, rtol=1e-14, atol=1e-15)
    assert after[4] == 0

    def cost(c: np.ndarray) -> np.ndarray:
        values = before[0, 0, there][:, None] - c
        return l1 * np.abs(values).sum(axis=0) + 0.5 * l2 * (values**2).sum(axis=0)

    assert cost(np.array([moved]))[0] <= cost(np.linspace(-5, 5, 100_001)).min() + 1e-7


def test_weights_that_are_zero_stay_so_where_that_costs_least() -> None:
    cut = kernel.Blocks(np.array([0, 6], np.int64), np.array([kernel.CODES], np.int64), np.zeros(6))
    penalties = kernel.Penalties(np.array([1.0]), np.array([0.1]), np.ones(1))
    one = kernel.Group(kernel.Shape("squares", 1, 1), cut, np.array([1]), np.ones(7), True, penalties)
    before = np.array([0.0, 0.0, 0.7, 0.0, -0.2, 1.0, 0.0])[None, None]
    weights = one.shape.in_lanes(before)
    one.shift(weights, np.zeros(1))
    np.testing.assert_array_equal(one.shape.out_of_lanes(weights), before)
