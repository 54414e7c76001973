"""Stochastic gradient descent by kernels against a plain loop that penalises every weight in every step."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.special
from builds import in_every_build

from grouplearn.kernels.linear import stochastic_gradient as kernel
from grouplearn.kernels.linear.stochastic_gradient import BlockRows, SgdModels, SgdSettings
from grouplearn.kernels.networks import visiting_order

OF_NUMBERS = ("squares", "absolute", "quantile", "huber", "poisson")
#: Packs whose configs have one loss, and others in which each has its own.
LOSSES = {
    **{each: (each,) for each in (*OF_NUMBERS, "logistic", "softmax", "hinge", "squared_hinge")},
    "several of numbers": OF_NUMBERS,
    "several of two classes": ("hinge", "logistic", "squared_hinge"),
    "several of three classes": ("softmax", "hinge", "squared_hinge"),
}


def outputs_of(loss: str) -> int:
    return 3 if "softmax" in LOSSES[loss] else 1


def rows_of(loss: str, n: int = 90, columns: int = 11, batch_size: int = 1, kind: str = "sparse") -> BlockRows:
    random = np.random.default_rng(4)
    x = random.normal(size=(n, columns)) * (random.random((n, columns)) < 0.4)
    kinds = {"poisson": random.poisson(2.0, n), "softmax": random.integers(0, 3, n), "hinge": random.integers(0, 2, n)}
    kinds |= dict.fromkeys(("logistic", "squared_hinge"), kinds["hinge"])
    own = next((name for name in ("poisson", "softmax", *LOSSES[loss]) if name in LOSSES[loss]), loss)
    labels = np.asarray(kinds[own] if own in kinds else random.normal(size=n), float)
    as_kind = {"sparse": scipy.sparse.csr_matrix, "single": lambda each: each.astype(np.float32), "double": np.array}
    return BlockRows(as_kind[kind](x), labels, random.uniform(0.5, 2, n), visiting_order(1, 0, n), batch_size, 0.8)


def models_of(configs: int, outputs: int, columns: int = 11, owes: bool = True, sums: bool = True) -> SgdModels:
    shape = (configs, outputs, columns)
    zeros, of_config = np.zeros(shape), np.zeros(configs)
    return SgdModels(
        unscaled=np.random.default_rng(2).normal(size=shape) * 0.1,
        paid=zeros if owes else None,
        beyond=zeros.copy() if sums else None,
        scale=np.ones(configs),
        due=of_config,
        total=of_config,
        counted=of_config,
        intercept=np.zeros(shape[:2]),
        intercept_sum=np.zeros(shape[:2]),
        step=of_config,
        objective=np.zeros(shape[:2]),
    )


def descent_of(loss: str, configs: int = 5) -> SgdSettings:
    c = np.arange(configs)
    return SgdSettings(
        np.resize(LOSSES[loss], configs),
        rate=0.03 + 0.02 * c,
        decay=np.where(c == 0, 0.0, 0.01 * (c + 1)),
        rooted=c % 2.0,
        ridge=np.array([0.0, 0.3, 0.01, 1.0, 0.0])[c % 5],
        lasso=np.array([0.0, 0.002, 0.02, 0.0, 0.01])[c % 5],
        with_intercept=(c != 3) * 1.0,
        parameter=np.array([0.9, 0.3, 0.5])[c % 3],
    )


def loss_and_slope(loss: str, number: float, score: np.ndarray, label: float) -> tuple[float, np.ndarray]:
    """The loss of scores (k,) and its slopes."""
    if loss != "softmax" and len(score) > 1:
        each = [loss_and_slope(loss, number, score[[k]], float(label == k)) for k in range(len(score))]
        return sum(value for value, _ in each), np.concatenate([slope for _, slope in each])
    (s,), side, error = score[:1], 2 * label - 1, label - score[0]
    if loss == "softmax":
        own = np.arange(len(score)) == label
        return float(scipy.special.logsumexp(score) - score[own][0]), scipy.special.softmax(score) - own
    found = {
        "squares": lambda: (0.5 * (s - label) ** 2, s - label),
        "absolute": lambda: (abs(error), -np.sign(error)),
        "quantile": lambda: (max(number * error, (number - 1) * error), -number if error > 0 else 1 - number),
        "huber": lambda: (
            0.5 * error**2 if abs(error) <= number else number * (abs(error) - 0.5 * number),
            -np.clip(error, -number, number),
        ),
        "logistic": lambda: (np.logaddexp(0, s) - label * s, scipy.special.expit(s) - label),
        "poisson": lambda: (np.exp(s) - label * s + scipy.special.xlogy(label, label) - label, np.exp(s) - label),
        "hinge": lambda: (max(0, 1 - side * s), -side if side * s < 1 else 0.0),
        "squared_hinge": lambda: (max(0, 1 - side * s) ** 2, -2 * side * max(0, 1 - side * s)),
    }[loss]()
    return float(found[0]), np.array([found[1]])


def weight_of(
    descent: SgdSettings, c: int, rate: float, row: tuple[np.ndarray, float, float], score: np.ndarray
) -> float:
    """What a row (x, y, weight) counts in a step: its weight, but of Poisson's loss no more than moves its score to log(y)."""
    x, y, weight = row[0].astype(float), *row[1:]
    if descent.loss[c] != "poisson" or rate == 0:
        return weight
    return float(min(weight, 1 / (max(np.exp(score[0]), y) * rate * (x @ x + descent.with_intercept[c]))))


def plain(descent: SgdSettings, c: int, w: np.ndarray, rows: BlockRows) -> dict[str, np.ndarray]:
    """One config (k, d) by the formula: after each batch every weight shrinks, moves, and pays what it owes to l1."""
    x = rows.x.toarray() if scipy.sparse.issparse(rows.x) else rows.x
    b, objective, due, paid = np.zeros(len(w)), 0.0, 0.0, np.zeros_like(w)
    sums, counted = np.zeros((len(w), w.shape[1] + 1)), 0
    for t, start in enumerate(range(0, len(x), rows.batch_size)):
        batch = rows.order[start : start + rows.batch_size]
        slower = 1 + descent.decay[c] * t
        rate = descent.rate[c] / (np.sqrt(slower) if descent.rooted[c] else slower)
        by_w, by_b = np.zeros_like(w), np.zeros_like(b)
        for row in batch:
            loss, slope = loss_and_slope(str(descent.loss[c]), descent.parameter[c], w @ x[row] + b, rows.y[row])
            weight = rows.weight[row] * rows.weighed
            counts = weight_of(descent, c, rate, (x[row], rows.y[row], weight), w @ x[row] + b)
            by_w += counts / len(batch) * np.outer(slope, x[row])
            by_b += counts / len(batch) * slope
            objective += weight * loss
        shrunk = max(0.0, 1 - rate * descent.ridge[c])
        w, due, paid = shrunk * w - rate * by_w, due * shrunk + rate * descent.lasso[c], paid * shrunk
        b = b - rate * by_b * descent.with_intercept[c]
        down, up = np.maximum(0, w - (due + paid)), np.minimum(0, w + (due - paid))
        moved = np.where(w > 0, down, np.where(w < 0, up, 0.0))
        w, paid = moved, paid + moved - w
        sums, counted = sums + (t + 1) * np.column_stack([w, b]), counted + t + 1
    return {
        "w": w,
        "b": b,
        "objective": np.array(objective),
        "mean": sums[:, :-1] / counted,
        "mean_b": sums[:, -1] / counted,
    }


@pytest.mark.examples(17)
@pytest.mark.parametrize("batch_size", [1, 7, 1000])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_config_is_that_of_a_loop_which_penalises_every_weight_in_every_step(
    loss: str, batch_size: int, build: str
) -> None:
    for configs, kind, owes in ((1, "sparse", True), (2, "double", True), (5, "sparse", True), (4, "single", False)):
        descent, rows = descent_of(loss, configs), rows_of(loss, batch_size=batch_size, kind=kind)
        if not owes:
            descent = replace(descent, lasso=np.zeros(configs))
        models = models_of(configs, outputs_of(loss), owes=owes)
        found = kernel.descend(models, descent, [rows])
        means = (found.total[:, None, None] * found.unscaled - found.beyond) / found.counted[:, None, None]  # type: ignore[operator]
        for c in range(configs):
            expected = plain(descent, c, models.unscaled[c], rows)
            np.testing.assert_allclose(found.weights()[c], expected["w"], rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(found.intercept[c], expected["b"], rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(found.objective[c].sum(), expected["objective"], rtol=1e-12)
            np.testing.assert_allclose(
                found.intercept_sum[c] / found.counted[c], expected["mean_b"], rtol=1e-10, atol=1e-12
            )
            if not descent.lasso[c]:  # what is owed when a column is seen next is not in the sums before
                np.testing.assert_allclose(means[c], expected["mean"], rtol=1e-10, atol=1e-12)


def test_scales_that_get_small_are_multiplied_out() -> None:
    """A penalty of half the weights in every step: without it the scale would be 2⁻⁹⁰."""
    rows = rows_of("squares")
    descent = replace(descent_of("squares", 3), rate=np.array([0.1, 0.02, 3.0]), decay=np.zeros(3))
    # The last one has 1 − η·ridge < 0.
    descent = replace(descent, ridge=np.array([5.0, 0.0, 1.0]), rooted=np.zeros(3), lasso=np.array([0.005, 0.002, 0.0]))
    models = models_of(3, 1)
    found = kernel.descend(models, descent, [rows])
    for c in range(2):
        expected = plain(descent, c, models.unscaled[c], rows)
        np.testing.assert_allclose(found.weights()[c], expected["w"], rtol=1e-9, atol=1e-13)
    gentle = replace(descent, lasso=np.zeros(3), rate=np.array([0.1, 0.02, 0.05]))
    summed = kernel.descend(models, gentle, [rows])
    for c in (0, 2):
        mean = (summed.total[c] * summed.unscaled[c] - summed.beyond[c]) / summed.counted[c]  # type: ignore[index]
        np.testing.assert_allclose(mean, plain(gentle, c, models.unscaled[c], rows)["mean"], rtol=1e-9, atol=1e-12)
    assert found.scale[0] > 2.0**-11
    assert found.scale[1] == 1
    alone = kernel.descend(_one(models, 1), _one(descent, 1), [rows])
    np.testing.assert_array_equal(found.weights()[1], alone.weights()[0])


def _one(pack: Any, c: int) -> Any:
    """The config c of a pack by itself."""
    arrays = {each.name: getattr(pack, each.name) for each in fields(pack)}
    return replace(pack, **{name: value[c : c + 1] for name, value in arrays.items() if isinstance(value, np.ndarray)})


@pytest.mark.parametrize("loss", LOSSES)
def test_a_pack_of_n_has_the_bits_of_n_packs_of_one_in_every_build(loss: str) -> None:
    configs = 19  # lanes of 16 at a time, of 8, and some that nobody uses

    def compute() -> dict[str, np.ndarray]:
        models, found = models_of(configs, outputs_of(loss)), {}
        for kind, batch_size in (("sparse", 1), ("double", 4), ("single", 1)):
            rows = rows_of(loss, batch_size=batch_size, kind=kind)
            result = kernel.descend(models, descent_of(loss, configs), [rows])
            found |= {f"{kind} {name.name}": getattr(result, name.name) for name in fields(result)}
            found[f"{kind} norms"] = np.array(kernel.norms(result))
            found[f"{kind} gradient"] = kernel.gradients(models, descent_of(loss, configs), [rows])[0]
            found[f"{kind} square"] = np.array(kernel.mean_square(rows))
        return found

    together = in_every_build(compute)
    for c in (0, 6, 18):
        for size in (1, 2, 3):
            others = [c, *range(size - 1)]
            models = _some(models_of(configs, outputs_of(loss)), others)
            alone = kernel.descend(models, _some(descent_of(loss, configs), others), [rows_of(loss)])
            for each in fields(alone):
                np.testing.assert_array_equal(getattr(alone, each.name)[0], together[f"sparse {each.name}"][c])


def _some(pack: Any, places: list[int]) -> Any:
    arrays = {each.name: getattr(pack, each.name) for each in fields(pack)}
    return replace(pack, **{name: value[places] for name, value in arrays.items() if isinstance(value, np.ndarray)})


def test_what_is_given_stays_as_it_is_and_blocks_may_come_apart() -> None:
    models, descent, rows = models_of(5, 1), descent_of("logistic"), rows_of("logistic")
    before = {each.name: getattr(models, each.name).copy() for each in fields(models)}
    whole = kernel.descend(models, descent, [rows, rows])
    apart = kernel.descend(kernel.descend(models, descent, [rows]), descent, [rows])
    for each in fields(models):
        np.testing.assert_array_equal(getattr(models, each.name), before[each.name])
        np.testing.assert_array_equal(getattr(whole, each.name), getattr(apart, each.name))


@pytest.mark.parametrize("known", [True, False], ids=["rate", "no rate"])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_and_norms(loss: str, known: bool, build: str) -> None:
    outputs = outputs_of(loss)
    rows, descent = rows_of(loss), descent_of(loss)
    descent = replace(descent, rate=descent.rate * known)
    models = replace(models_of(5, outputs), scale=np.linspace(0.5, 2, 5), intercept=np.full((5, outputs), 0.1))
    by_weights, by_intercept, losses = kernel.gradients(models, descent, [rows, rows])
    expected, sums, total = np.zeros_like(by_weights), np.zeros_like(by_intercept), np.zeros(5)
    for c in range(5):
        for x, y, weight in zip(rows.x.toarray(), rows.y, rows.weight * rows.weighed, strict=True):
            score = models.weights()[c] @ x + models.intercept[c]
            value, slope = loss_and_slope(str(descent.loss[c]), descent.parameter[c], score, y)
            counts = weight_of(descent, c, descent.rate[c], (x, y, weight), score)
            expected[c] += 2 * counts * np.outer(slope, x)
            sums[c] += 2 * counts * slope
            total[c] += 2 * weight * value
    np.testing.assert_allclose(by_weights, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(by_intercept, sums, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(losses.sum(axis=1), total, rtol=1e-12)
    trained = kernel.descend(models, descent, [rows])
    absolute, square = kernel.norms(trained)
    np.testing.assert_allclose(absolute, np.abs(trained.weights()).sum(axis=(1, 2)), rtol=1e-12)
    np.testing.assert_allclose(square, (trained.weights() ** 2).sum(axis=(1, 2)), rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_differences_of_losses(loss: str) -> None:
    outputs, rows = outputs_of(loss), rows_of(loss)
    descent = replace(descent_of(loss), rate=np.zeros(5))  # with a rate, rows of Poisson's loss weigh less
    models = replace(models_of(5, outputs), intercept=np.full((5, outputs), 0.1))
    by_weights, by_intercept, _ = kernel.gradients(models, descent, [rows])
    step = 1e-6

    def losses(**moved: np.ndarray) -> np.ndarray:
        return kernel.gradients(replace(models, **moved), descent, [rows])[2].sum(axis=1)

    for output in range(outputs):
        for column in range(11):
            up, down = models.unscaled.copy(), models.unscaled.copy()
            up[:, output, column] += step
            down[:, output, column] -= step
            difference = (losses(unscaled=up) - losses(unscaled=down)) / (2 * step)
            np.testing.assert_allclose(by_weights[:, output, column], difference, rtol=1e-5, atol=1e-6)
        up, down = models.intercept.copy(), models.intercept.copy()
        up[:, output] += step
        down[:, output] -= step
        difference = (losses(intercept=up) - losses(intercept=down)) / (2 * step)
        np.testing.assert_allclose(by_intercept[:, output], difference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["sparse", "single", "double"])
def test_the_mean_square_of_rows(kind: str) -> None:
    rows = rows_of("squares", kind=kind)
    x = rows.x.toarray() if kind == "sparse" else rows.x.astype(float)
    expected = (rows.weight * rows.weighed * (x**2).sum(axis=1)).mean()
    assert kernel.mean_square(rows) == pytest.approx(expected, rel=1e-12)


def test_a_config_that_overflows_does_not_disturb_the_others() -> None:
    rows, descent, models = rows_of("squares"), descent_of("squares"), models_of(5, 1)
    wild = replace(descent, rate=np.where(np.arange(5) == 2, 1e6, descent.rate))
    found, expected = kernel.descend(models, wild, [rows] * 9), kernel.descend(models, descent, [rows] * 9)
    assert not np.isfinite(found.objective[2]).all()
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal(found.weights()[others], expected.weights()[others])
    np.testing.assert_array_equal(found.objective[others], expected.objective[others])


def test_rows_that_cannot_be_read() -> None:
    rows = rows_of("squares")
    with pytest.raises(ValueError, match=r"90 labels, features \(90, 11\) of 12 columns"):
        kernel.descend(models_of(5, 1, columns=12), descent_of("squares"), [rows])
    for order in ([0, 90], [-1]):
        with pytest.raises(ValueError, match=r"rows -?\d+ to -?\d+ of 90"):
            kernel.descend(models_of(5, 1), descent_of("squares"), [replace(rows, order=np.array(order))])
