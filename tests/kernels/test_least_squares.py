"""Least squares, ridge and elastic net from moments: against closed forms, the same bits in every build and beside any config."""

import numpy as np
import pytest
import scipy.sparse
from builds import in_every_build
from hypothesis import given
from hypothesis import strategies as st

from grouplearn.kernels.linear import least_squares, moments
from grouplearn.kernels.linear.least_squares import LeastSquaresPenalties


def groups(kinds: list[str], d: int, n: int = 60, seed: int = 5) -> tuple[np.ndarray, ...]:
    """Rows of groups one after another; what kind of columns each has."""
    random = np.random.default_rng(seed)
    parts = []
    for kind in kinds:
        x = random.normal(size=(max(1, d // 2) if kind == "short" else n, d)) * np.geomspace(0.01, 100, d) + 3
        if kind == "twice":
            x[:, -1] = x[:, 0] * 7
        elif kind == "constant":
            x[:, d // 2] = 1000.0
        elif kind == "close":
            x[:, -1] = x[:, 0] + 1e-7 * x[:, -1]
        elif kind == "infinite":
            x[3, 0] = 1e300
        parts.append((x, x @ np.linspace(-1, 1, d) + random.normal(size=len(x)), random.uniform(0.5, 2, len(x))))
    x, y, weight = (np.concatenate(each) for each in zip(*parts, strict=True))
    return x, y[:, None], weight, np.cumsum([0, *(len(part[0]) for part in parts)])


def penalties(*configs: tuple[float, float, bool]) -> LeastSquaresPenalties:
    l1, l2, fit_intercept = zip(*configs, strict=True)
    return LeastSquaresPenalties(
        np.array(l1), np.array(l2), np.full(len(l1), 1e-11), np.array(fit_intercept, bool), rounds=10_000
    )


KINDS = ["plain", "twice", "short", "constant", "infinite", "close", "plain"]
CONFIGS = [(l1, l2, fit) for fit in (True, False) for l1 in (0, 3) for l2 in (0, 1e-30, 0.01, 1, 100, 1e4)]


@pytest.mark.parametrize("d", [1, 2, 5, 8, 33])
def test_models_have_the_same_bits_in_every_build_and_beside_any_other(d: int) -> None:
    rows = groups(KINDS, d)

    def compute() -> dict[str, np.ndarray]:
        found = least_squares.solve(moments.of_rows(*rows), penalties(*CONFIGS))
        return found._asdict()

    found = least_squares.PathModels(**in_every_build(compute))
    assert np.isnan(found.loss[4]).all()
    assert np.isfinite(found.loss[[0, 1, 2, 3, 5, 6]]).all()
    with_intercept = [fit for *_, fit in CONFIGS]
    assert found.converged[[0, 1, 2, 3, 6]][:, with_intercept].all()
    for group in (0, 1, 6):
        own = slice(rows[3][group], rows[3][group + 1])
        one = moments.of_rows(*(each[own] for each in rows[:3]), np.array([0, own.stop - own.start]))
        for number in (0, 3, 7, 11, 20):
            alone = least_squares.solve(one, penalties(CONFIGS[number]))
            for ours, theirs in zip(found, alone, strict=True):
                assert ours[group, number].tobytes() == theirs[0, 0].tobytes(), (group, CONFIGS[number])


@pytest.mark.parametrize("kind", ["plain", "twice", "short", "constant"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_ridge_and_smallest_weights_are_those_of_the_rows(kind: str, fit_intercept: bool) -> None:
    rows = groups([kind], 9)
    x, y, weight = rows[0], rows[1][:, 0], rows[2]
    values = (0.0, 1e-30, 0.1, 50.0)
    found = least_squares.solve(moments.of_rows(*rows), penalties(*((0, l2, fit_intercept) for l2 in values)))
    mean, label = (weight @ x / weight.sum(), weight @ y / weight.sum()) if fit_intercept else (np.zeros(9), 0.0)
    root = np.sqrt(weight)
    for config, l2 in enumerate(values):
        design = np.vstack([(x - mean) * root[:, None], np.sqrt(l2) * np.eye(9)])
        best = np.linalg.lstsq(design, np.append((y - label) * root, np.zeros(9)), rcond=1e-11)[0]
        # What a direction has that is nearly lost is known to a millionth.
        np.testing.assert_allclose(found.weights[0, config], best, rtol=1e-5, atol=1e-6)
        left = design @ found.weights[0, config] - np.append((y - label) * root, np.zeros(9))
        np.testing.assert_allclose(found.loss[0, config], 0.5 * left @ left, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.intercept[0, config], label - mean @ found.weights[0, config], atol=1e-9)


@pytest.mark.parametrize("kind", ["plain", "twice", "short", "close"])
@pytest.mark.parametrize("d", [3, 20])
def test_elastic_nets_meet_the_conditions_of_the_optimum(kind: str, d: int) -> None:
    rows = groups([kind], d)
    x, y, weight = rows[0], rows[1][:, 0], rows[2]
    configs = [(l1, l2, fit) for l1 in (1e-3, 1, 50) for l2 in (0, 5) for fit in (True, False)]
    found = least_squares.solve(moments.of_rows(*rows), penalties(*configs))
    assert found.converged[0, [fit for *_, fit in configs]].all()
    for config, (l1, l2, _) in enumerate(configs):
        if not found.converged[0, config]:
            continue  # without intercept far from zero the Gram matrix cannot tell, and says so
        weights = found.weights[0, config]
        error = y - x @ weights - found.intercept[0, config]
        centre = weight @ x / weight.sum() if configs[config][2] else np.zeros(d)
        slope = (x - centre).T @ (weight * error) - l2 * weights
        # Of sums of products of this size so many digits are left.
        rounding = 1e-12 * np.sqrt((weight[:, None] * x**2).sum(axis=0) * (weight @ y**2))
        assert (np.abs(slope) <= l1 * (1 + 1e-9) + rounding).all()
        chosen = weights != 0
        assert (np.abs(slope - l1 * np.sign(weights))[chosen] <= l1 * 1e-9 + rounding[chosen]).all()


@pytest.mark.parametrize(("l2", "size"), [(0.0, 1e4), (1e-4, 1e3)])
def test_what_descent_does_not_end_is_ended_on_a_factor(l2: float, size: float) -> None:
    """One row outweighs all others. What a Gram matrix alone cannot tell is not said to be found."""
    random = np.random.default_rng(1)
    x, y = random.normal(size=(15, 25)), random.normal(size=(15, 1))
    x[:, 7] = x[:, 3]
    x[0] *= size
    given = moments.of_rows(x, y, np.ones(15), np.array([0, 15]))
    mean = np.append(x.mean(axis=0), y.mean())
    rows = np.column_stack([x, y]) - mean
    configs = penalties((0.3, l2, True), (0.3, l2, False), (0.01, l2, True), (1e9, l2, True))
    few = configs._replace(rounds=100)

    def compute(factor: np.ndarray | None) -> least_squares.PathModels:
        return least_squares.PathModels(**in_every_build(lambda: least_squares.solve(given, few, factor)._asdict()))

    by_rows, by_moments = compute(least_squares.triangle(rows)), compute(None)
    assert by_rows.converged.all()
    assert by_moments.converged[0].tolist() == [True, True, l2 > 0, True]
    for found in (by_rows, by_moments):
        for config in np.flatnonzero(found.converged[0]):
            weights, l1 = found.weights[0, config], configs.l1[config]
            error = y[:, 0] - x @ weights - found.intercept[0, config]
            loss = 0.5 * error @ error + l1 * np.abs(weights).sum() + 0.5 * l2 * weights @ weights
            np.testing.assert_allclose(found.loss[0, config], loss, rtol=1e-6)
            centre = x.mean(axis=0) if configs.fit_intercept[config] else 0.0
            slope = np.abs((x - centre).T @ error - l2 * weights) / l1
            rounding = 1e-15 * size**2 * 25 / l1
            assert (slope <= 1 + 1e-4 + rounding).all()
            assert (slope[weights != 0] >= 1 - 1e-4 - rounding).all()
            if not l2:
                assert not weights[[3, 7]].all()  # the same column twice


def test_triangle_and_root() -> None:
    random = np.random.default_rng(1)
    for n, p in ((1, 1), (3, 5), (100, 7), (9, 9)):
        rows = random.normal(size=(n, p))
        rows[:, p // 2] = 0
        found = in_every_build(lambda rows=rows: {"r": least_squares.triangle(rows)})["r"]
        assert (np.tril(found, -1) == 0).all()
        np.testing.assert_allclose(found.T @ found, rows.T @ rows, atol=1e-12 * n)
        root = in_every_build(lambda found=found: {"root": least_squares.root(found.T @ found)})["root"]
        np.testing.assert_allclose(root.T @ root, rows.T @ rows, atol=1e-12 * n)


def test_lost_directions() -> None:
    rows = groups(["plain", "twice", "close", "short", "infinite", "constant"], 6, n=100)
    x = rows[0].copy()
    own = slice(rows[3][2], rows[3][3])
    x[own, -1] = x[own, 0] + 1e-6 * x[own, 1]  # a direction that is none about the three
    x[own, 1] = np.cos(np.arange(100))
    rows = (x, *rows[1:])
    found = in_every_build(
        lambda: {"lost": least_squares.lost_directions(moments.of_rows(*rows), rows[0], rows[2], rows[3])}
    )["lost"]
    kept, nothing, lost = least_squares.KEPT, least_squares.NOTHING_LOST, least_squares.LOST
    assert found.tolist() == [kept, nothing, lost, nothing, kept, kept]


def lost_by_singular_values(x: np.ndarray) -> int:
    """The rule by all directions of the rows: of those below 1e-9 of the largest eigenvalue a Gram matrix says nothing."""
    centred = x - x.mean(axis=0)
    square = (centred**2).sum(axis=0)
    varies = square > 0
    values = np.zeros(x.shape[1] - np.count_nonzero(~varies))
    values[: min(values.size, len(x))] = np.linalg.svd(centred[:, varies] / np.sqrt(square[varies]), compute_uv=False)
    lost = values[values**2 <= 1e-9 * max(values[0] ** 2, 1)]
    if not lost.size:
        return least_squares.KEPT
    offset = (len(x) * x.mean(axis=0)[varies] ** 2 / square[varies]).max()
    more = np.linalg.norm(lost) > 1e-13 * np.sqrt(1 + offset) * np.sqrt(lost.size)
    return least_squares.LOST if more else least_squares.NOTHING_LOST


@given(
    sizes=st.lists(st.integers(1, 12), max_size=3),
    numbers=st.integers(1, 4),
    close=st.sampled_from([None, 0.0, 1e-2, 1e-6, 1e-7, 1e-9]),
    rows=st.sampled_from([5, 40, 200]),
    seed=st.integers(0, 99),
)
def test_categories_that_are_complete_lose_nothing(
    sizes: list[int], numbers: int, close: float | None, rows: int, seed: int
) -> None:
    """What pivots tell of directions is what eigenvectors tell: of complete categories, and of columns close to others' sum."""
    random = np.random.default_rng(seed)
    parts = [np.eye(size)[random.integers(0, size, rows)] for size in sizes]
    x = np.column_stack([*parts, random.normal(size=(rows, numbers))])
    if close is not None:
        x = np.column_stack([x, x[:, 0] + x[:, -1] + close * random.normal(size=rows)])
    given_rows = (x, np.zeros((rows, 1)), np.ones(rows), np.array([0, rows]))
    sums = moments.of_rows(*given_rows)
    found = in_every_build(lambda: {"lost": least_squares.lost_directions(sums, x, *given_rows[2:])})["lost"]
    assert found.tolist() == [lost_by_singular_values(x)]


def eliminated(first: np.ndarray, others: np.ndarray, y: np.ndarray, l2: float, far: bool) -> np.ndarray:
    """Return ridge weights of columns no two of which are set together and of others, about half of their means."""
    centre, total = others.mean(axis=0) / 2, len(y)
    beside = scipy.sparse.csr_matrix(first.T @ (others - others.mean(axis=0) + centre))
    rest = np.column_stack([others - others.mean(axis=0), np.ones(total)])
    labelled = (first.T @ y, rest.T @ y)
    found = least_squares.parted(
        first.sum(axis=0),
        (beside.indptr, beside.indices, beside.data),
        (first.sum(axis=0), centre, far),
        rest.T @ rest,
        labelled,
        l2,
    )
    return np.concatenate(found)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_columns_that_are_never_set_together_are_eliminated(l2: float, far: bool) -> None:
    random = np.random.default_rng(4)
    codes = random.integers(0, 12, 300)
    first = np.eye(13)[codes]  # one never set
    others = np.column_stack([random.normal(size=(300, 3)), codes == 2])  # one twice
    y = others[:, 0] + codes % 5 + random.normal(size=300)
    found = in_every_build(lambda: {"weights": eliminated(first, others, y, l2, far)})["weights"]
    np.testing.assert_allclose(found, smallest(np.column_stack([first, others]), y, l2), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("n", [150, 4_000])
def test_categories_beside_categories_have_the_smallest_weights(n: int, l2: float, far: bool) -> None:
    """Of few rows the categories fall into many parts, each of which has a level of its own that no row tells."""
    random = np.random.default_rng(n)
    first, others = (np.eye(size)[random.integers(0, size, n)] for size in (190, 150))
    others = others[:, others.any(axis=0)]
    y = first @ random.normal(size=190) + random.normal(size=n)
    found = in_every_build(lambda: {"weights": eliminated(first, others, y, l2, far)})["weights"]
    np.testing.assert_allclose(found, smallest(np.column_stack([first, others]), y, l2), rtol=1e-8, atol=1e-9)


def smallest(x: np.ndarray, y: np.ndarray, l2: float) -> np.ndarray:
    design = np.vstack([x - x.mean(axis=0), np.sqrt(l2) * np.eye(x.shape[1])])
    return np.linalg.lstsq(design, np.append(y - y.mean(), np.zeros(x.shape[1])), rcond=1e-12)[0]


@pytest.mark.parametrize("d", [33, 515])
def test_what_lay_in_memory_before_is_nothing(d: int) -> None:
    """Lanes beyond the last column are zeros, and not whatever there was: NaN of which would make a model diverge."""
    given = moments.of_rows(*groups(["short"], d))
    found = []
    for _ in range(20):
        before = [np.full(size, np.nan) for size in (130, 520, 1040, 4160, 40_000) for _ in range(40)]
        del before
        found.append(least_squares.solve(given, penalties((0, 0, True), (0, 0.5, True), (0, 0, False))))
    for name in least_squares.PathModels._fields:
        every = [getattr(each, name) for each in found]
        assert np.isfinite(every[0]).all()
        assert all(each.tobytes() == every[0].tobytes() for each in every)


def with_sums(d: int, n: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Raw columns of sizes from 1 to 1,000, a third of them sums of others, one twice, one constant; and a label."""
    random = np.random.default_rng(seed)
    own = random.normal(size=(n, d - d // 3))
    sums = [own[:, random.choice(own.shape[1], 3, replace=False)].sum(axis=1) for _ in range(d // 3)]
    x = np.column_stack([own, *sums])[:, random.permutation(d)] * np.geomspace(1, 1000, d) + random.normal(size=d)
    x[:, 1], x[:, 2] = x[:, 0] * 3, 7.0
    return x, x @ (random.normal(size=d) / x.std(axis=0).clip(1)) + random.normal(size=n)


@pytest.mark.parametrize(("d", "n"), [(48, 200), (520, 700), (520, 300)])
def test_small_penalties_beside_columns_that_follow_from_others(d: int, n: int) -> None:
    """Which weights of many predict alike is the penalty's to say, also where it is less than what rounding makes of them."""
    x, y = with_sums(d, n)
    values = (1e-12, 1e-8, 1e-4, 1e-2, 1.0, 1e3)
    given = moments.of_rows(x, y[:, None], np.ones(n), np.array([0, n]))
    configs = penalties(*((0, l2, True) for l2 in values))
    found = least_squares.PathModels(**in_every_build(lambda: least_squares.solve(given, configs)._asdict()))
    centred, label = x - x.mean(axis=0), y - y.mean()
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    some = sizes > 1e-11 * sizes[0]
    for weights, l2 in zip(found.weights[0], values, strict=True):
        best = right[some].T @ (sizes[some] / (sizes[some] ** 2 + l2) * (left[:, some].T @ label))
        np.testing.assert_allclose(centred @ weights, centred @ best, atol=1e-10 * np.abs(label).max())
        if (
            d > 512
        ):  # of fewer columns eight systems are solved at a time, and directions that say nothing are known less well
            np.testing.assert_allclose(weights, best, rtol=0, atol=3e-7 * np.abs(best).max())
        assert weights[2] == 0
