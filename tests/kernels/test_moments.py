"""Moments of groups of rows against sums in twice the precision, the same bits in every build, and whatever stands beside."""

import numpy as np
import pytest
from builds import in_every_build

from grouplearn.kernels.linear import moments


def rows(sizes: list[int], d: int, t: int, seed: int = 3) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    n = sum(sizes)
    x = random.normal(size=(n, d)) * np.geomspace(1e-3, 1e3, d or 1)[:d] + np.linspace(-10, 1e3, d or 1)[:d]
    weight = random.uniform(0.1, 3, n)
    weight[::7] = 0.0
    return x, random.normal(size=(n, t)) + 50, weight, np.cumsum([0, *sizes])


def expected(x: np.ndarray, targets: np.ndarray, weight: np.ndarray) -> dict[str, np.ndarray]:
    x, targets, weight = (each.astype(np.longdouble) for each in (x, targets, weight))
    total = weight.sum()
    mean, target_mean = weight @ x / total, weight @ targets / total
    centred, centred_targets = x - mean, targets - target_mean
    weighted = centred * weight[:, None]
    return {
        "total": total,
        "mean": mean,
        "target_mean": target_mean,
        "square": (weighted * centred).sum(axis=0),
        "cross": weighted.T @ centred_targets,
        "target_gram": (centred_targets * weight[:, None]).T @ centred_targets,
        "gram": weighted.T @ centred,
    }


def assert_close(found: dict[str, np.ndarray], exact: dict[str, np.ndarray]) -> None:
    """Of products of two columns, to a share of the columns' own size."""
    size, label = np.sqrt(exact["square"]), np.sqrt(np.diagonal(exact["target_gram"]))
    scales = {
        "cross": size[:, None] * label,
        "gram": size[:, None] * size,
        "target_gram": label[:, None] * label,
        "square": size**2,
    }
    for name, value in found.items():
        scale = scales.get(name, np.abs(exact[name]) + 1)
        assert (np.abs(value - exact[name]) <= 1e-9 * scale + 1e-20).all(), name


@pytest.mark.parametrize(("d", "t"), [(1, 1), (3, 2), (8, 1), (33, 1), (40, 3)])
def test_moments_of_groups(d: int, t: int) -> None:
    sizes = [2, 1, 127, 128, 0, 129, 300]
    x, targets, weight, start = rows(sizes, d, t)
    weight[0] = 1.5
    weight[2] = 2.5
    found = in_every_build(lambda: moments.of_rows(x, targets, weight, start))
    for group, size in enumerate(sizes):
        own = slice(start[group], start[group + 1])
        if not size:
            assert all((each[group] == 0).all() for each in found.values())
            continue
        assert_close({name: each[group] for name, each in found.items()}, expected(x[own], targets[own], weight[own]))
        alone = moments.of_rows(x[own].copy(), targets[own], weight[own], np.array([0, size]))
        assert all(alone[name].tobytes() == each[group].tobytes() for name, each in found.items())
        lean = moments.of_rows(x[own], targets[own], weight[own], np.array([0, size]), gram=False)
        assert "gram" not in lean
        assert_close({name: each[0] for name, each in lean.items()}, expected(x[own], targets[own], weight[own]))


def test_no_columns() -> None:
    x, targets, weight, start = rows([5, 4], 0, 1)
    found = in_every_build(lambda: moments.of_rows(x, targets, weight, start))
    assert found["gram"].shape == (2, 0, 0)
    np.testing.assert_allclose(found["target_mean"][1], expected(x[5:], targets[5:], weight[5:])["target_mean"])


def test_parts_and_all_but_each() -> None:
    x, targets, weight, start = rows([40, 200, 9], 5, 1)
    weight[:] = np.where(weight > 0, weight, 1.0)
    part = (np.arange(len(x)) * 7 % 4).astype(np.int16)
    part[start[2] :] = [0, 0, 2, 2, 2, 3, 3, 0, 0]  # no row of the last group is in part 1

    def both() -> dict[str, np.ndarray]:
        parts = moments.of_rows(x, targets, weight, start, (part, 4))
        rest = moments.without_each(parts)
        return {**parts, **{f"rest {name}": each for name, each in rest.items()}}

    found = in_every_build(both)
    for group in range(3):
        for fold in range(5):
            own = np.arange(start[group], start[group + 1])
            out, kept = own[part[own] == fold], own[part[own] != fold]
            rest = {name: found[f"rest {name}"][group, fold] for name in moments._NAMES}
            assert_close(rest, expected(x[kept], targets[kept], weight[kept]))
            if out.size:
                alone = moments.of_rows(x[out], targets[out], weight[out], np.array([0, out.size]))
                assert all(found[name][group, fold].tobytes() == each[0].tobytes() for name, each in alone.items())


def test_numbers_that_are_none_stay_in_their_group() -> None:
    x, targets, weight, start = rows([10, 10, 10], 9, 1)
    clean = moments.of_rows(x, targets, weight, start)
    x[3, 8], x[15, 0] = np.nan, np.inf
    found = moments.of_rows(x, targets, weight, start)
    assert np.isnan(found["gram"][0, 8]).all()
    assert np.isnan(found["square"][1, 0])
    assert all(found[name][2].tobytes() == each[2].tobytes() for name, each in clean.items())
