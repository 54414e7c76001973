"""Networks by kernels against plain NumPy: predictions, losses, gradients, steps; the same bits in every build."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

from grouplearn.kernels import networks
from grouplearn.kernels.networks import ACTIVATIONS, TASKS, NetworkRows, NetworkShape, OptimizerSettings

SHAPES = ((3, 1), (1, 5, 1), (17, 16, 1), (33, 7, 18, 2))
VALUES = {
    "relu": lambda z: np.maximum(z, 0),
    "tanh": np.tanh,
    "sigmoid": scipy.special.expit,
    "gelu": lambda z: z * scipy.special.ndtr(z),
}
SLOPES = {
    "relu": lambda z: (z > 0) * 1.0,
    "tanh": lambda z: 1 / np.cosh(z) ** 2,
    "sigmoid": lambda z: scipy.special.expit(z) * scipy.special.expit(-z),
    "gelu": lambda z: scipy.special.ndtr(z) + z * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi),
}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) * 2 - 1


def shape_of(widths: tuple[int, ...], activation: str, task: str) -> NetworkShape:
    return NetworkShape((*widths[:-1], 3 if task == "multiclass" else 1), activation, task)


def state_of(shape: NetworkShape, configs: int, dtype: Any = np.float64) -> dict[str, np.ndarray]:
    size = (configs, shape.n_parameters)
    return {
        "parameters": numbers(*size, seed=1).astype(dtype),
        "first_moment": (numbers(*size, seed=2) / 10).astype(dtype),
        "second_moment": (numbers(*size, seed=3) ** 2 / 100).astype(dtype),
        "step": np.arange(configs) * 7,
        "objective": np.zeros(configs),
    }


def descent_of(configs: int, optimizer: str = "adam", **values: Any) -> OptimizerSettings:
    given = {"learning_rate": 0.01, "momentum": 0.9, "dropout": 0.0, "lasso": 0.0, "ridge": 0.0, **values}
    return OptimizerSettings(optimizer, **{name: np.full(configs, value) for name, value in given.items()}, scale=1.5)


def rows_of(shape: NetworkShape, n: int, batch_size: int = 8) -> NetworkRows:
    y = np.arange(n) % 3.0 if shape.task == "multiclass" else (np.arange(n) % 2.0)
    order = networks.visiting_order(3, 1, n, 2)
    weight = numbers(n, seed=5) + 1.5
    return NetworkRows(
        numbers(n, shape.widths[0], seed=4), y, weight, order, batch_size, weighed=0.5, key=networks.dropout_key(3, 1)
    )


def scores(shape: NetworkShape, parameters: np.ndarray, x: np.ndarray) -> np.ndarray:
    layers = shape.layers(parameters[None])
    for depth, (weight, bias) in enumerate(layers):
        x = x @ weight[0].T + bias[0]
        x = x if depth == len(layers) - 1 else VALUES[shape.activation](x)
    return x


def losses(shape: NetworkShape, parameters: np.ndarray, rows: NetworkRows) -> np.ndarray:
    z = scores(shape, parameters, rows.x)
    if shape.task == "regression":
        return 0.5 * (z[:, 0] - (rows.y - rows.mean) / rows.scale) ** 2
    if shape.task == "binary":
        return np.logaddexp(0, z[:, 0]) - rows.y * z[:, 0]
    return scipy.special.logsumexp(z, axis=1) - z[np.arange(len(z)), rows.y.astype(int)]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("widths", SHAPES)
def test_predictions(widths: tuple[int, ...], task: str, build: str) -> None:
    for activation in ACTIVATIONS:
        shape = shape_of(widths, activation, task)
        parameters, x = 3 * numbers(2, shape.n_parameters), 2 * numbers(67, widths[0])
        found = networks.predict(shape, parameters, x)
        z = np.stack([scores(shape, each, x) for each in parameters], axis=1)
        links = {
            "regression": lambda z: z,
            "binary": scipy.special.expit,
            "multiclass": lambda z: scipy.special.softmax(z, 2),
        }
        np.testing.assert_allclose(found, links[task](z), rtol=1e-12, atol=1e-13)
        assert networks.predict(shape, parameters, x[:0]).shape == (0, 2, shape.widths[-1])
        # Neither the rows nor the networks beside it decide a prediction's bits.
        np.testing.assert_array_equal(networks.predict(shape, parameters[1:], x[41:50])[:, 0], found[41:50, 1])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 2e-6)])
def test_activations_and_their_slopes(activation: str, dtype: Any, tolerance: float, build: str) -> None:
    """One unit whose bias is z, one config per z: its output, and the gradient by the bias."""
    z = np.concatenate([np.linspace(-6, 6, 97), [-0.0, 1e-5, -30.0, 30.0, 0.6249, 0.6251]])
    shape, n = NetworkShape((1, 1, 1), activation, "regression"), len(z)
    state = state_of(shape, n, dtype)
    state["parameters"][:] = np.column_stack([np.zeros(n), z, np.ones(n), np.zeros(n)])
    z = state["parameters"][:, 1].astype(float)
    rows = NetworkRows(np.zeros((1, 1)), np.array([-100.0]), np.ones(1), np.zeros(1, np.int64), 1)
    gradient, _ = networks.gradients(shape, descent_of(n), state, rows, slice(0, 1), 1)
    value = gradient[:, 3].astype(float) - 100
    np.testing.assert_allclose(value, VALUES[activation](z), rtol=0, atol=100 * tolerance)
    np.testing.assert_allclose(
        gradient[:, 1] / gradient[:, 3].astype(float), SLOPES[activation](z), rtol=0, atol=tolerance
    )
    if dtype is np.float64:
        found = networks.predict(shape, state["parameters"], rows.x)[0, :, 0]
        np.testing.assert_allclose(found, VALUES[activation](z), rtol=2e-13, atol=1e-300)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("widths", SHAPES)
def test_gradients_are_those_of_finite_differences(widths: tuple[int, ...], task: str) -> None:
    for activation in ACTIVATIONS[1:]:
        shape = shape_of(widths, activation, task)
        rows, state = rows_of(shape, 70), state_of(shape, 2)
        rows = replace(rows, mean=0.3, scale=1.7) if task == "regression" else rows
        part = slice(2, 69)  # more than a tile
        gradient, loss = networks.gradients(shape, descent_of(2), state, rows, part, 50)
        chosen = rows.order[part]

        def mean(
            parameters: np.ndarray, rows: NetworkRows = rows, chosen: Any = chosen, shape: NetworkShape = shape
        ) -> float:
            return float((losses(shape, parameters, rows) * rows.weight)[chosen].sum() * rows.weighed / 50)

        for config, parameters in enumerate(state["parameters"]):
            assert loss[config] == pytest.approx(mean(parameters), rel=1e-12)
            steps = 1e-6 * np.eye(shape.n_parameters)[:: max(1, shape.n_parameters // 40)]
            slopes = [(mean(parameters + step) - mean(parameters - step)) / 2e-6 for step in steps]
            np.testing.assert_allclose(gradient[config][steps.any(axis=0)], slopes, rtol=1e-5, atol=1e-8)
        single = {
            **state,
            **{name: state[name].astype(np.float32) for name in ("parameters", "first_moment", "second_moment")},
        }
        rough, near = networks.gradients(shape, descent_of(2), single, rows, part, 50)
        np.testing.assert_allclose(rough, gradient, atol=2e-5 * np.abs(gradient).max())
        np.testing.assert_allclose(near, loss, rtol=1e-5)


@pytest.mark.parametrize("optimizer", networks.OPTIMIZERS)
def test_steps(optimizer: str, build: str) -> None:
    shape = NetworkShape((5, 4, 1), "relu", "regression")
    state, descent = state_of(shape, 3), descent_of(3, optimizer, lasso=0.02, ridge=0.3)
    before, gradient = {name: value.copy() for name, value in state.items()}, numbers(3, shape.n_parameters, seed=9)
    penalties = networks.descend(shape, descent, state, gradient)
    on = np.zeros(shape.n_parameters)  # the last layer holds w/scale
    for (weight, _), own in zip(shape.layers(on[None]), (1.0, descent.scale), strict=True):
        weight[...] = own
    w = before["parameters"]
    np.testing.assert_allclose(penalties, (0.02 * np.abs(on * w) + 0.15 * (on * w) ** 2).sum(axis=1), rtol=1e-12)
    g, step = gradient + 0.02 * on * np.sign(w) + 0.3 * on**2 * w, before["step"][:, None] + 1
    np.testing.assert_array_equal(state["step"], step[:, 0])
    if optimizer == "sgd":
        first = 0.9 * before["first_moment"] + g
        expected = w - 0.01 * first
    else:
        first, second = 0.9 * before["first_moment"] + 0.1 * g, 0.999 * before["second_moment"] + 0.001 * g**2
        expected = w - 0.01 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        np.testing.assert_allclose(state["second_moment"], second, rtol=1e-12)
    np.testing.assert_allclose(state["first_moment"], first, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(state["parameters"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 7, 64, 100, 1000])
def test_training_is_gradients_and_steps(batch_size: int) -> None:
    """Also where batches are laid out ahead (small ones), tile by tile, and in part of a tile."""
    shape = NetworkShape((400, 6, 1), "tanh", "binary")
    rows, descent = rows_of(shape, 150, batch_size), descent_of(2, ridge=0.1, dropout=0.25)
    together, apart = state_of(shape, 2, np.float32), state_of(shape, 2, np.float32)
    networks.train(shape, descent, together, rows)
    for start in range(0, 150, batch_size):
        part = slice(start, min(start + batch_size, 150))
        gradient, loss = networks.gradients(shape, descent, apart, rows, part, part.stop - start)
        apart["objective"] += (loss + networks.descend(shape, descent, apart, gradient)) * (part.stop - start)
    for name, value in together.items():
        np.testing.assert_array_equal(value, apart[name], name)


def test_no_part_of_a_batch_has_no_gradient() -> None:
    shape = NetworkShape((4, 3, 1), "gelu", "regression")
    gradient, loss = networks.gradients(shape, descent_of(2), state_of(shape, 2), rows_of(shape, 9), slice(4, 4), 8)
    assert not gradient.any()
    assert not loss.any()


def test_what_is_no_number_stays_in_its_config() -> None:
    shape, clean = NetworkShape((4, 3, 1), "relu", "binary"), state_of(NetworkShape((4, 3, 1), "relu", "binary"), 2)
    broken = {name: value.copy() for name, value in clean.items()}
    broken["parameters"][0, 2] = np.inf
    for state in (clean, broken):
        networks.train(shape, descent_of(2), state, rows_of(shape, 30))
    assert np.isnan(broken["objective"][0])
    np.testing.assert_array_equal(broken["parameters"][1], clean["parameters"][1])
    bits = broken["parameters"][0][np.isnan(broken["parameters"][0])].view(np.uint64)
    assert set(bits.tolist()) == {0x7FF8000000000000}


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_an_order_is_a_shuffle(n: int) -> None:
    order = networks.visiting_order(1, 2, n, 3)
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    others = [networks.visiting_order(*path) for path in ((2, 2, n, 3), (1, 3, n, 3), (1, 2, n, 4))]
    assert n < 3 or not any(np.array_equal(order, other) for other in others)


def test_every_order_is_as_likely() -> None:
    found: dict[tuple[int, ...], int] = {}
    for seed in range(1200):
        order = tuple(networks.visiting_order(seed, 0, 4).tolist())
        found[order] = found.get(order, 0) + 1
    assert len(found) == 24
    assert scipy.stats.chisquare(list(found.values())).pvalue > 1e-3


def test_starting_numbers_are_uniform() -> None:
    drawn = np.concatenate([networks.starting_numbers(seed, tensor, 500) for seed in range(4) for tensor in range(3)])
    assert len(np.unique(drawn)) == len(drawn)
    assert scipy.stats.kstest(drawn, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.05


def test_wrong_arrays_are_refused() -> None:
    shape = NetworkShape((4, 3, 1), "relu", "binary")
    state, rows = state_of(shape, 2), rows_of(shape, 9)
    with pytest.raises(ValueError, match="where float64"):
        networks.train(shape, descent_of(3), state, rows)
    with pytest.raises(ValueError, match="one precision"):
        networks.train(shape, descent_of(2), {**state, "first_moment": state["first_moment"].astype(np.float32)}, rows)
    with pytest.raises(ValueError, match="contiguous"):
        networks.train(shape, descent_of(2), state, replace(rows, x=np.asfortranarray(rows.x)))


def results() -> str:
    """Return a digest of what training and predicting give, whatever the shape."""
    digest = hashlib.sha256()
    for widths, task, dtype in itertools.product(SHAPES, TASKS, (np.float32, np.float64)):
        for number, activation in enumerate(ACTIVATIONS):
            shape = shape_of(widths, activation, task)
            state, optimizer = state_of(shape, 2, dtype), networks.OPTIMIZERS[number % 2]
            descent = descent_of(2, optimizer, lasso=0.01, ridge=0.1, dropout=0.3 * (number > 1))
            networks.train(shape, descent, state, rows_of(shape, 37, 9))
            digest.update(b"".join(value.tobytes() for value in state.values()))
            found = networks.predict(shape, state["parameters"].astype(np.float64), numbers(21, widths[0]))
            digest.update(found.tobytes())
    return digest.hexdigest()


#: Of all that ``results`` looks at; it is the same on every processor.
BITS = "9aaef31932475d90dcea1ee6d0f4077425d91387d92e7c40541d90a5788b55ff"


def test_the_same_bits_everywhere(build: str) -> None:
    assert results() == BITS
