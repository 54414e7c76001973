"""Rounds of coordinate descent against plain Python, the same bits in every build, for one model and for many."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from builds import in_every_build

from grouplearn.kernels.library import on_threads, processor_seconds
from grouplearn.kernels.linear import coordinate_descent as kernel
from grouplearn.layout.pages import mapped_file

LOSSES: dict[str, int] = {"squares": 1, "logistic": 1, "softmax": 3, "poisson": 1, "squared_hinge": 1}
ROWS, BEGINS = 37, np.array([0, 1, 5, 9, 12])
#: Items of which columns may be centred.
CENTRED = np.array([True, False, False, True])
#: What moves the largest row by 1, of every column: it counts where rows have several values in a block.
UNIT = np.array([1.0, 1, 1, 1, 1, 1, 1, 1, 1, 0.1, 2.0, 5.0])


def rows(loss: str, outputs: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


def group(loss: str, configs: int, outputs: int = 1, l1: float = 0.1) -> kernel.GroupRounds:
    forms = [kernel.ONE_COLUMN, kernel.CODES, kernel.CODES_WITH_VALUES, kernel.RAGGED_WITH_VALUES]
    mean = np.zeros(12)
    mean[0] = 0.25
    cut = kernel.ColumnBlocks(BEGINS.astype(np.int64), np.array(forms, np.int64), mean)
    each = np.linspace(0.5, 2.0, configs)
    penalties = kernel.GlmPenalties(l1 * each, 0.3 * each, np.full(configs, 1e-9))
    complete = np.array([0, 0, 0, 0])
    return kernel.GroupRounds(
        kernel.GroupShape(loss, configs, outputs), cut, complete, np.append(UNIT, 1.0), True, penalties
    )


def weights_of(configs: int, outputs: int, seed: int) -> np.ndarray:
    return 0.5 * np.random.default_rng(seed).normal(size=(configs, outputs, 13))


def derivatives(loss: str, score: np.ndarray, y: float, reach: float, k: int) -> tuple[float, float, float]:
    """str of a row, its slope by score k, and what it bends at most within ``reach``, by looking at many points."""
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
    loss: str, outputs: int, weights: np.ndarray, radius: np.ndarray | None, block: int
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


def passed(loss: str, configs: int, x: object | None = None) -> dict[str, np.ndarray]:
    """All blocks' sums and the end's, of so many models, moved there from elsewhere."""
    outputs = LOSSES[loss]
    given, y, weight = rows(loss, outputs)
    one = group(loss, configs, outputs)
    cell = kernel.Cell(lambda: [given if x is None else x], (y, weight), one.cut, one.shape)
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
def test_sums_are_those_of_plain_python(loss: str) -> None:
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
def test_a_model_alone_has_the_bits_that_it_has_among_others(loss: str) -> None:
    alone, many = in_every_build(lambda: passed(loss, 1)), passed(loss, 9)
    for name, values in alone.items():
        if name != "predictions":
            assert values[:, 0, ..., 0].tobytes() == np.ascontiguousarray(many[name][:, 0, ..., 0]).tobytes(), name


def of_codes(loss: str, configs: int) -> dict[str, np.ndarray]:
    """Sums of two blocks of codes, which some rows do not have, after nothing, the intercept and the other block have moved."""
    random, n, first = np.random.default_rng(5), 301, np.array([0, 7, 90])
    codes = np.stack([random.integers(-1, 7, n), random.integers(-9, 83, n)], axis=1)
    x = np.zeros((n, 90))
    for block in range(2):
        at = np.flatnonzero(codes[:, block] >= 0)
        x[at, first[block] + codes[at, block]] = 1.0
    y, weight = random.integers(0, 2, n) * 1.0, random.uniform(0.5, 2.0, n)
    cut = kernel.ColumnBlocks(first, np.full(2, kernel.CODES), np.zeros(90))
    each = np.ones(configs)
    shape = kernel.GroupShape(loss, configs, 1)
    one = kernel.GroupRounds(shape, cut, np.zeros(2), np.ones(91), True, kernel.GlmPenalties(each, each, each))
    cell = kernel.Cell(lambda: [x], (y, weight), cut, shape)
    start, step, radius = (scale * random.normal(size=(9, 1, 91))[:configs] for scale in (0.5, 0.1, 0.3))
    lanes = None if loss == "squares" else shape.in_lanes(np.abs(radius))
    done = one.lanes_of_done(np.zeros(configs, bool))
    one.measure(cell, shape.in_lanes(start), None if lanes is None else lanes[90:], done)
    moves = [None, (None, slice(90, 91)), (0, slice(0, 7)), (1, slice(7, 90))]
    found = {}
    for number, moved in enumerate(moves):
        by = None if moved is None else (moved[0], shape.in_lanes(step[:, :, moved[1]]))
        for block in (number % 2, 1 - number % 2):
            own = None if lanes is None else lanes[first[block] : first[block + 1]]
            found[f"{moved} {block}"] = one.pass_over(cell, by, block, own, done)
            by = None
    score = x @ (start[0, 0, :90] + step[0, 0, :90]) + start[0, 0, 90] + step[0, 0, 90]
    np.testing.assert_allclose(cell.predictions[0, 0, :n, 0], score, rtol=1e-12, atol=1e-12)
    return found


@pytest.mark.parametrize("loss", [each for each in LOSSES if each != "softmax"])
def test_one_model_of_codes_has_the_bits_that_it_has_among_others(loss: str) -> None:
    alone, many = in_every_build(lambda: of_codes(loss, 1)), of_codes(loss, 9)
    for name, values in alone.items():
        assert values[:, 0, ..., 0].tobytes() == np.ascontiguousarray(many[name][:, 0, ..., 0]).tobytes(), name


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_in_single_precision_and_sparse_ones_have_the_same_bits(loss: str) -> None:
    x = rows(loss, LOSSES[loss])[0].astype(np.float32)
    dense = passed(loss, 2, x.astype(float))
    for other in (x, scipy.sparse.csr_matrix(x.astype(float))):
        for name, values in passed(loss, 2, other).items():
            assert values.tobytes() == dense[name].tobytes(), name


def test_a_survey_counts_columns_and_items() -> None:
    x, _, weight = rows("squares")
    first = np.array(BEGINS, np.int64)

    def surveyed(given: kernel.Matrix) -> dict[str, np.ndarray]:
        whole, *parts = (
            kernel.survey([given[part]], np.ascontiguousarray(weight[part]), first, CENTRED)
            for part in (slice(None), slice(40), slice(40, None))
        )
        both = kernel.merged(*parts)
        assert both.items.tobytes() == whole.items.tobytes()
        assert both.columns[:, 1:].tobytes() == whole.columns[:, 1:].tobytes()
        assert both.largest.tobytes() == whole.largest.tobytes()
        np.testing.assert_allclose(both.columns[:, 0], whole.columns[:, 0], rtol=1e-12, atol=1e-12)
        return {"merged": both.columns, **whole._asdict()}

    own = np.repeat(CENTRED, np.diff(BEGINS))
    for given in (x, scipy.sparse.csr_matrix(x)):
        found = in_every_build(lambda given=given: surveyed(given))
        total, low, high, count = found["columns"].T
        np.testing.assert_allclose(total, weight @ x[:, own], rtol=1e-12, atol=1e-12)
        set_ = x != 0
        np.testing.assert_array_equal(count, set_[:, own].sum(axis=0))
        np.testing.assert_array_equal(low, np.where(set_, x, np.inf)[:, own].min(axis=0))
        np.testing.assert_array_equal(high, np.where(set_, x, -np.inf)[:, own].max(axis=0))
        np.testing.assert_array_equal(found["largest"], np.abs(x[:, ~own]).max(axis=0))
        of_items = [set_[:, BEGINS[i] : BEGINS[i + 1]] for i in range(4)]
        assert found["items"][0].tolist() == [each.sum(axis=1).max() for each in of_items]
        assert found["items"][1].tolist() == [each.sum() for each in of_items]
        odd = [(x[:, BEGINS[i] : BEGINS[i + 1]] != 1) & of_items[i] for i in range(4)]
        assert found["items"][2].tolist() == [each.sum() for each in odd]


@pytest.mark.parametrize("forms", [(0, 1, 2, 4), (0, 3, 4, 4), (4, 1, 4, 3)])
def test_rows_in_pieces_are_cut_as_all_at_once_in_memory_and_in_files(forms: tuple[int, ...], tmp_path: Path) -> None:
    x, y, weight = rows("squares")
    one = group("squares", 2, 1)
    cut = kernel.ColumnBlocks(one.cut.first, np.array(forms), one.cut.mean)
    pieces = [scipy.sparse.csr_matrix(each) for each in np.split(x, (16, 17, 30))]
    first = np.array(BEGINS, np.int64)
    surveys = (kernel.survey(given, weight, first, CENTRED) for given in ([x], pieces))
    for whole, part in zip(*surveys, strict=True):
        assert whole.tobytes() == part.tobytes()
    expected = kernel.Cell(lambda: [x], (y, weight), cut, one.shape)
    for directory in (None, str(tmp_path)):
        found = kernel.Cell(lambda: iter(pieces), (y, weight), cut, one.shape, directory)
        assert (mapped_file(found.predictions) is not None) == (directory is not None)
        for own, same in zip(found._arrays, expected._arrays, strict=True):
            for array, other in zip(own, same, strict=True):
                assert (array is None) == (other is None)
                assert array is None or array.tobytes() == other.tobytes()


def unknown(configs: int, done: np.ndarray | None = None) -> kernel.EpochProgress:
    gone = np.zeros(configs, bool) if done is None else done
    return kernel.EpochProgress(*(np.full(configs, np.nan) for _ in range(3)), gone, np.zeros(configs))


def in_order(one: kernel.GroupRounds) -> kernel.Order:
    return kernel.Order(np.arange(one.cut.n_blocks, dtype=np.int64))


@pytest.mark.parametrize("l1", [0.0, 0.4])
@pytest.mark.parametrize("radius", [np.inf, 0.2])
def test_a_column_goes_to_the_minimum_within_its_radius(l1: float, radius: float) -> None:
    one = group("logistic", 3, 1, l1)
    random = np.random.default_rng(8)
    slope, bend, start = random.normal(size=(3, 4)), random.uniform(0.1, 3, (3, 4)), random.normal(size=(3, 5))
    sums = np.zeros((4, 1, 1, 2, 8))
    sums[:, 0, 0, 0, :3], sums[:, 0, 0, 1, :3] = slope.T, bend.T
    weights = one.shape.in_lanes(start[:, None])
    radii = np.full(weights[:-1].shape, radius)
    progress = unknown(3, np.array([False, False, True]))
    step, after = one.solve(1, sums, weights, radii, (progress, in_order(one)))
    found, reach, moved = (one.shape.out_of_lanes(each)[:, 0] for each in (weights, radii, step))
    each = np.linspace(0.5, 2.0, 3)
    for model in range(2):
        grid = np.linspace(-1, 1, 400_001) * (radius if radius < np.inf else 20)
        for j in range(4):
            new = start[model, j] + grid
            cost = slope[model, j] * grid + 0.5 * bend[model, j] * grid**2
            cost = cost + l1 * each[model] * np.abs(new) + 0.15 * each[model] * new**2
            assert found[model, j] == pytest.approx(new[cost.argmin()], abs=2e-4)
            assert moved[model, j] == found[model, j] - start[model, j]
            own = abs(moved[model, j])
            assert reach[model, j] == pytest.approx(max(2 * own, 0.5 * radius if radius < np.inf else 0, 1 / 64))
        if l1 == 0:  # what pulls is the slope of the objective where the columns were, whatever the radius
            slopes = slope[model] + 0.3 * each[model] * start[model, :4]
            assert after.pull[model] == pytest.approx((slopes**2).sum(), rel=1e-12)
    np.testing.assert_array_equal(found[2], start[2])  # it is done
    assert (moved[2], after.pull[2]) == (pytest.approx(0), 0)
    np.testing.assert_array_equal(found[:, 4], start[:, 4])  # no block in which every row has one entry, no intercept


def of_columns(
    v: float, columns: np.ndarray, l1: float, l2: float, radius: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, moves of rows and least costs of columns (slope, bend, weight) where the level of all rows moves by v."""
    slope, bend, weight = columns
    pull = bend * (weight - v) - slope
    u = np.clip(np.sign(pull) * np.maximum(0, np.abs(pull) - l1) / (bend + l2) - weight + v, -radius, radius)
    new = weight + u - v
    return new, u, slope * u + 0.5 * bend * u**2 + l1 * np.abs(new) + 0.5 * l2 * new**2


@pytest.mark.examples(2)
@pytest.mark.parametrize("radius", [np.inf, 0.3])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.3, 1.0), (5.0, 0.1), (0.01, 1e-6)])
@pytest.mark.parametrize("seed", range(4))
def test_a_complete_block_and_the_intercept_go_to_the_best_of_both(
    seed: int, l1: float, l2: float, radius: float
) -> None:
    """Against the costs of its columns at many levels; every row has one entry in one of nine columns, none in the tenth."""
    random = np.random.default_rng(seed)
    slope, bend = 3 * random.normal(size=10), random.uniform(0.1, 9, 10)
    start = random.normal(size=10) * (random.random(10) < 0.7)
    slope[4], bend[4], start[4] = 0, 0, 0
    unit = np.array([1.0, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1])
    cut = kernel.ColumnBlocks(np.array([0, 10], np.int64), np.array([kernel.CODES], np.int64), np.zeros(10))
    there = np.flatnonzero(unit[:10])

    def solved(configs: int) -> dict[str, np.ndarray]:
        penalties = kernel.GlmPenalties(*(np.full(configs, each) for each in (l1, l2, 1.0)))
        one = kernel.GroupRounds(kernel.GroupShape("logistic", configs, 1), cut, np.array([1]), unit, True, penalties)
        weights = one.shape.in_lanes(np.tile(np.append(start, 0.5), (configs, 1, 1)))
        sums = np.zeros((10, 1, 1, 2, one.shape.lanes))
        sums[:, 0, 0, 0, :configs], sums[:, 0, 0, 1, :configs] = slope[:, None], bend[:, None]
        radii = np.full(weights[:-1].shape, radius)
        step, after = one.solve(0, sums, weights, radii, (unknown(configs), in_order(one)))
        found = {"weights": one.shape.out_of_lanes(weights)[0, 0], "step": one.shape.out_of_lanes(step)[0, 0]}
        return {**found, "pull": after.pull[:1]}

    found = in_every_build(lambda: solved(1))
    assert all(found[name].tobytes() == each.tobytes() for name, each in solved(3).items())
    weights, v = found["weights"][:10], found["weights"][10] - 0.5
    columns = np.stack([slope, bend, start])[:, there]
    new, u, costs = of_columns(v, columns, l1, l2, radius)
    np.testing.assert_allclose(weights[there], new, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["step"][there], u, rtol=1e-9, atol=1e-12)
    assert weights[4] == 0
    least = min(of_columns(level, columns, l1, l2, radius)[2].sum() for level in v + np.linspace(-4, 4, 20_001))
    assert costs.sum() <= least + 1e-9
    if l1 == l2 == 0:
        assert v == 0  # nothing is to be gained


@pytest.mark.parametrize("l2", [0.0, 1.0])
def test_without_an_intercept_complete_blocks_are_shifted_against_each_other(l2: float) -> None:
    random = np.random.default_rng(2)
    first = np.array([0, 3, 8, 10, 12], np.int64)  # the third block is not complete
    complete, unit = np.array([1, 1, 0, 1]), np.ones(13)
    unit[5] = 0  # a column that is in no row
    cut = kernel.ColumnBlocks(first, np.full(4, kernel.CODES, np.int64), np.zeros(12))
    before = random.normal(size=(1, 1, 13)) + np.repeat([1.0, 2, 3, -4, 0], [3, 5, 2, 2, 1])
    before[0, 0, 5] = 0

    def shifted(intercept: bool) -> dict[str, np.ndarray]:
        penalties = kernel.GlmPenalties(np.zeros(1), np.full(1, l2), np.ones(1))
        one = kernel.GroupRounds(kernel.GroupShape("squares", 1, 1), cut, complete, unit, intercept, penalties)
        weights = one.shape.in_lanes(before)
        one.shift(weights, np.zeros(1))
        return {"weights": one.shape.out_of_lanes(weights)}

    np.testing.assert_array_equal(shifted(True)["weights"], before)  # which the intercept's level has done
    after = in_every_build(lambda: shifted(False))["weights"][0, 0]
    if l2 == 0:
        np.testing.assert_array_equal(after, before[0, 0])
        return
    member = np.stack([(np.arange(13) >= first[b]) & (np.arange(13) < first[b + 1]) & (unit > 0) for b in (0, 1, 3)])
    moves = np.array([[1, -1, 0], [0, 1, -1.0]]) @ member  # what changes no prediction
    best, *_ = np.linalg.lstsq(moves.T, before[0, 0], rcond=None)
    np.testing.assert_allclose(after, before[0, 0] - best @ moves, rtol=1e-12, atol=1e-14)


def test_weights_of_classes_that_are_zero_stay_so_where_that_costs_least() -> None:
    cut = kernel.ColumnBlocks(np.array([0, 1], np.int64), np.array([kernel.ONE_COLUMN], np.int64), np.zeros(1))
    penalties = kernel.GlmPenalties(np.array([1.0]), np.array([0.1]), np.ones(1))
    one = kernel.GroupRounds(kernel.GroupShape("softmax", 1, 6), cut, np.array([0]), np.ones(2), True, penalties)
    before = np.array([[0.0, 0.0, 0.7, 0.0, -0.2, 1.0], [0.3] * 6]).T[None]
    weights = one.shape.in_lanes(before)
    one.shift(weights, np.zeros(1))
    np.testing.assert_array_equal(one.shape.out_of_lanes(weights), before)
    before[0, :, 0] += [0.5, 0.6, 0, 0, 0, 0]
    weights = one.shape.in_lanes(before)
    one.shift(weights, np.zeros(1))
    after, c = one.shape.out_of_lanes(weights)[0, :, 0], np.linspace(-2, 2, 40_001)[:, None]
    costs = np.abs(before[0, :, 0] - c).sum(axis=1) + 0.05 * ((before[0, :, 0] - c) ** 2).sum(axis=1)
    assert np.abs(after).sum() + 0.05 * (after**2).sum() <= costs.min() + 1e-7


class Chosen:
    """Which block is next, by plain Python: means of gains in which the last counts half, for each round that a block waits."""

    def __init__(self, blocks: int) -> None:
        self.gain, self.waits = [math.inf] * blocks, [0] * blocks
        self.begin(False)

    def best(self, without: int | None) -> int:
        def expected(block: int) -> tuple[float, int, int]:
            waits = self.waits[block]
            late = waits > 4 * len(self.waits)
            return (math.inf if late else self.gain[block] * (waits + 1), waits, -block)

        return max((block for block in range(len(self.waits)) if block != without), key=expected)

    def begin(self, all_: bool) -> None:
        count = len(self.waits)
        everything = all_ or math.inf in self.gain
        self.order = list(range(count)) if everything else [-1] * count
        for place in range(0 if everything else 2):
            self.order[place] = self.best(self.order[0] if place else None)

    def after(self, place: int, gained: float) -> None:
        own = self.order[place]
        self.waits = [0 if block == own else waits + 1 for block, waits in enumerate(self.waits)]
        self.gain[own] = 0.5 * (self.gain[own] + gained) if self.gain[own] < math.inf else gained
        if place + 2 < len(self.order) and self.order[place + 2] < 0:
            self.order[place + 2] = self.best(self.order[place + 1])


def test_blocks_are_chosen_by_what_they_gained_a_round_ahead() -> None:
    """By slopes drawn at random, of which a column's gain follows; some blocks gain nothing and wait until it is their turn."""
    blocks, scale = 7, np.array([1.0, 5.0, 0.0, 0.1, 3.0, 1e-9, 2.0])
    cut = kernel.ColumnBlocks(np.arange(blocks + 1), np.full(blocks, kernel.ONE_COLUMN, np.int64), np.zeros(blocks))
    penalties = kernel.GlmPenalties(np.zeros(1), np.ones(1), np.full(1, 1e-9))
    one = kernel.GroupRounds(
        kernel.GroupShape("squares", 1, 1), cut, np.zeros(blocks), np.ones(blocks + 1), False, penalties
    )

    def orders() -> dict[str, np.ndarray]:
        random = np.random.default_rng(1)
        order = kernel.Order(np.arange(blocks), np.full(blocks, np.inf), np.zeros(blocks, np.int64))
        plain, progress = (
            Chosen(blocks),
            kernel.EpochProgress(*(np.full(1, each) for each in (9.0, 9.0, 1.0, False, 0.0))),
        )
        visited = []
        for _ in range(40):
            for place in range(blocks):
                assert order.block.tolist() == plain.order
                block = int(order.block[place])
                slope = scale[block] * random.normal()
                visited.append(block)
                sums = np.array([slope, 1.0]).reshape(1, 1, 1, 2, 1)
                _, progress = one.solve(place, sums, np.zeros((2, 1, 1, 1)), None, (progress, order))
                plain.after(place, slope**2 / 4)
            sums = np.array([progress.loss[0] * 0.9, 0, 0]).reshape(1, 1, 1, 3, 1)
            _, progress = one.close(sums, np.zeros((blocks + 1, 1, 1, 1)), None, (progress, order))
            plain.begin(False)
        return {"visited": np.array(visited)}

    visited = in_every_build(orders)["visited"]
    counts = np.bincount(visited, minlength=blocks)
    assert counts[1] > 2 * counts[3]
    assert counts[2] >= 280 / (4 * blocks + blocks)


def plain_leap(path: np.ndarray, now: np.ndarray, l1: float) -> np.ndarray:
    """Where the weights (K, d) after moves lead: the mean after each, weighed so that the sum of the moves is least."""
    size = np.append(1 / UNIT, 1.0)
    moves = np.diff(np.concatenate([path, now[None]]), axis=0)
    scaled = (moves * size).reshape(len(moves), -1)
    products = scaled @ scaled.T
    share = np.linalg.solve(products / np.trace(products) + 1e-14 * np.eye(len(moves)), np.ones(len(moves)))
    after = np.concatenate([path[1:], now[None]])
    leap = np.tensordot(share / share.sum(), after, 1) - now
    return np.where((l1 > 0) & (now == 0), 0, leap)


@pytest.mark.parametrize("l1", [0.0, 0.1])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_leap_goes_where_moves_lead_as_far_as_the_objective_falls(loss: str, l1: float) -> None:
    outputs = LOSSES[loss]
    given, y, weight = rows(loss, outputs)
    now, radius = weights_of(9, outputs, 1), np.abs(weights_of(9, outputs, 4))
    now[:, :, 3] = 0
    path = np.stack([now + 0.02 * weights_of(9, outputs, seed) for seed in range(10, 10 + kernel.MOVES)])
    path[:, 2] = now[2]  # one that made no moves

    def leapt(configs: int) -> dict[str, np.ndarray]:
        one = group(loss, configs, outputs, l1)
        cell = kernel.Cell(lambda: [given], (y, weight), one.cut, one.shape)
        shape, done = one.shape, one.lanes_of_done(np.arange(configs) == 4)
        lanes = None if loss == "squares" else shape.in_lanes(radius[:configs])
        level = None if lanes is None else lanes[12:]
        here = shape.in_lanes(now[:configs])
        leap = one.leap(np.stack([shape.in_lanes(each[:configs]) for each in path]), here, done)
        sums = one.measure(cell, here, level, done, leap)
        many = kernel.EpochProgress(
            *(np.full(configs, each) for each in (1e9, 1e9, 1.0)), np.arange(configs) == 4, np.ones(configs)
        )
        before, after = one.close(sums, here, lanes, (many, in_order(one)), leap)
        found = {"leap": leap, "before": before, "weights": here, "loss": after.loss}
        found["alone"] = one.measure(cell, before, level, done)
        found["points"] = sums
        return {name: each[..., 0] if configs == 1 else each for name, each in found.items()}

    found = in_every_build(lambda: leapt(9))
    alone = in_every_build(lambda: leapt(1))
    shape = group(loss, 9, outputs, l1).shape
    assert (
        alone["before"].tobytes()
        == np.ascontiguousarray(found["before"][:, 0, :, 0]).reshape(alone["before"].shape).tobytes()
    )
    leaps, before = shape.out_of_lanes(found["leap"]), shape.out_of_lanes(found["before"])
    points = np.array([0, 1 / 4, 1 / 2, 1, 2, 8, 32, 256])
    chosen = []
    for model in range(9):
        if model == 4:  # it is done
            np.testing.assert_array_equal(before[model], now[model])
            continue
        expected = np.zeros_like(now[2]) if model == 2 else plain_leap(path[:, model], now[model], l1)
        np.testing.assert_allclose(leaps[model], expected, rtol=1e-6, atol=1e-9)
        each = np.linspace(0.5, 2.0, 9)[model]
        objectives = []
        for point in points:
            at = now[model] + point * leaps[model]
            lost = reference(loss, outputs, at, None if loss == "squares" else radius[model], 0)[1][:, 0].sum()
            objectives.append(lost + l1 * each * np.abs(at[:, :12]).sum() + 0.15 * each * (at[:, :12] ** 2).sum())
        best = int(np.nanargmin(objectives))
        np.testing.assert_allclose(before[model], now[model] + points[best] * leaps[model], rtol=1e-12, atol=1e-12)
        assert found["loss"][model] == pytest.approx(objectives[best], rel=1e-9)
        chosen.append(best)
    assert any(chosen)


def descended(loss: str, configs: int, threads: int, cells: int = 11) -> dict[str, np.ndarray]:
    """What whole epochs come to where the rows are some times as many, in so many cells."""
    outputs = LOSSES[loss]
    given, y, weight = rows(loss, outputs)
    one = group(loss, configs, outputs)
    own = [np.roll(np.arange(ROWS), 5 * number)[: ROWS - number] for number in range(cells)]
    parts = [kernel.Cell(lambda some=some: [given[some]], (y[some], weight[some]), one.cut, one.shape) for some in own]
    shape, start = one.shape, np.zeros((configs, outputs, 13))
    weights, before = shape.in_lanes(start), shape.in_lanes(start)
    radius = None if loss == "squares" else shape.in_lanes(np.tile(np.append(1 / UNIT, 1.0), (configs, outputs, 1)))
    path = np.zeros((kernel.MOVES, *weights.shape))
    unknown = kernel.EpochProgress(
        *(np.full(configs, each) for each in (np.nan, np.nan, np.inf)), np.zeros(configs, bool), np.zeros(configs)
    )
    with on_threads(lambda: threads):
        progress, curve, passes = one.descend(parts, (weights, before, radius, path), (unknown, in_order(one)), (0, 30))
    scores = np.concatenate([part.predictions.ravel() for part in parts])
    return {"weights": weights, "curve": curve, "passes": passes, "gain": progress.gain, "scores": scores}


@pytest.mark.parametrize("configs", [1, 9])
@pytest.mark.parametrize("loss", LOSSES)
def test_models_have_the_same_bits_on_any_number_of_threads(loss: str, configs: int) -> None:
    alone = in_every_build(lambda: descended(loss, configs, 1))
    assert len(alone["curve"]) > 5
    for threads in (2, 3, 8, 64):
        for _ in range(5):
            found = descended(loss, configs, threads)
            assert {name: each.tobytes() for name, each in found.items()} == {
                name: each.tobytes() for name, each in alone.items()
            }


def test_seconds_of_others_count() -> None:
    began, own = processor_seconds(), time.thread_time()
    descended("logistic", 9, 2, cells=400)
    helped = (processor_seconds() - began) - (time.thread_time() - own)
    assert helped > 0
    again = processor_seconds(), time.thread_time()
    descended("logistic", 9, 1)
    assert (processor_seconds() - again[0]) - (time.thread_time() - again[1]) < helped / 2
