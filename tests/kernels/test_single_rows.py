"""Rows in single precision: every kernel that reads features makes the bits of the same numbers in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse

from grouplearn.kernels import algebra, metrics, networks
from grouplearn.kernels.linear import generalised_linear, least_squares, moments
from grouplearn.kernels.number_columns import NumberReader

SIZES = (0, 1, 2, 7, 127, 128, 129, 300)
START = np.cumsum([0, *SIZES])
N = int(START[-1])
RANDOM = np.random.default_rng(11)
WEIGHT = RANDOM.integers(0, 4, N) / 2
FOLD = (RANDOM.integers(0, 3, N).astype(np.int16), 3)
Found = dict[str, Any]


def rows(d: int) -> np.ndarray:
    """Numbers that need all their digits, of very unequal columns, some of them subnormal."""
    x = (RANDOM.normal(size=(N, d)) * np.geomspace(1e-3, 1e4, d) + np.linspace(-9, 900, d)).astype(np.float32)
    x[::11, 0] = np.float32(1e-41)
    x[::13, -1] = -0.0
    if d > 2:
        x[:, 2] = np.nextafter(x[:, 1], np.float32(np.inf))  # a direction that a Gram matrix loses
    return x


def of_moments(x: np.ndarray) -> Found:
    targets = np.column_stack([WEIGHT, np.arange(N)])
    whole = moments.of_rows(x, targets, WEIGHT + 1, START)
    parts = moments.of_rows(x, targets, WEIGHT, START, FOLD, gram=False)
    return {**whole, **{f"part_{name}": value for name, value in parts.items()}}


def of_lost_digits(x: np.ndarray) -> Found:
    """Of a column that is another one, and of one that has more and more beyond it."""
    found = {}
    for power in (-99, *range(-7, 0)):
        near = x.copy()
        near[:, 0] = (2 * x[:, -1].astype(np.float64) + 10.0**power * x[:, 0].astype(np.float64)).astype(np.float32)
        sums = moments.of_rows(near.astype(np.float64), WEIGHT[:, None], WEIGHT + 1, START)
        found[f"lost_{power}"] = least_squares.lost_directions(sums, near, WEIGHT + 1, START)
    return found


def of_metrics(x: np.ndarray) -> Found:
    random, d = np.random.default_rng(2), x.shape[1]
    models = random.normal(size=(len(SIZES), 3, 5, 2, d)) / 1e3, random.normal(size=(len(SIZES), 3, 5, 2))
    labels = metrics.LabelledRows(random.integers(0, 2, N).astype(float), WEIGHT, START, FOLD)
    return metrics.of_models(labels, x, models, metrics.CLASSES, metrics.ClassCount(2), metrics.NAMES)


def of_products(x: np.ndarray) -> Found:
    odd = x.copy()
    odd[3, -1], odd[9, 0] = np.nan, np.inf
    by = np.random.default_rng(3).normal(size=(x.shape[1], 11))
    return {"product": algebra.product(x, by), "none": algebra.product(x[:0], by), "finite": algebra.finite_rows(odd)}


def of_whole_groups(x: np.ndarray) -> Found:
    few = generalised_linear.GlmPenalties(np.array([0, 0.5]), np.array([1.0, 0.1]), np.full(2, 1e-8))
    label = np.random.default_rng(4).integers(0, 2, N).astype(float)
    found = generalised_linear.solve(
        x, label, WEIGHT + 1, START, loss="logistic", outputs=1, fit_intercept=True, penalties=few, epochs=30,
        report=lambda _: None, cancelled=lambda: False,
    )  # fmt: skip
    return {"weights": found.weights, "intercept": found.intercept, "value": found.value, "curve": found.curve}


def of_epochs(x: Any) -> Found:
    label, one = np.random.default_rng(5).integers(0, 2, N).astype(float), np.full(1, 0.5)
    dense = np.asarray(x.todense() if scipy.sparse.issparse(x) else x)
    form = generalised_linear.EpochModels(x.shape[1], 1, True, 3, True)
    sums = moments.of_rows(dense, label[:, None], WEIGHT + 1, np.array([0, N]))
    known = (np.zeros(1), np.full(1, 0.5 - label.mean()), np.log(2), np.full((1, 1), 0.25))
    model, at = form.begin("logistic", {name: each[0] for name, each in sums.items()}, (N, dense.size), *known)
    model = form.step("logistic", model, generalised_linear.GlmPenalties(one, one, one / 1e8), one, at).models
    return {**at, **form.sums(x, label, WEIGHT + 1, "logistic", model)}


def of_networks(x: np.ndarray) -> Found:
    found, random = {}, np.random.default_rng(6)
    shape = networks.NetworkShape((x.shape[1], 5, 1), "tanh", "regression")
    for dtype in (np.float32, np.float64):
        names = ("parameters", "first_moment", "second_moment")
        state: Found = {name: np.zeros((2, shape.n_parameters), dtype) for name in names}
        state["parameters"][:] = random.normal(size=(2, shape.n_parameters)) / 100
        state |= {"step": np.zeros(2, np.int64), "objective": np.zeros(2)}
        descent = networks.OptimizerSettings("adam", *(np.full(2, each) for each in (0.01, 0.9, 0.1, 0.0, 0.1)))
        order = networks.visiting_order(1, 2, N)
        networks.train(shape, descent, state, networks.NetworkRows(x, WEIGHT, WEIGHT + 1, order, 100, key=7))
        found |= {f"{name}_{np.dtype(dtype).name}": value for name, value in state.items()}
    found["predicted"] = networks.predict(shape, state["parameters"], x)
    return found


KERNELS: dict[str, Callable[[np.ndarray], Found]] = {
    "moments": of_moments,
    "lost digits": of_lost_digits,
    "metrics": of_metrics,
    "products": of_products,
    "whole groups": of_whole_groups,
    "epochs": of_epochs,
    "networks": of_networks,
}


@pytest.mark.parametrize("d", [1, 3, 8, 16, 33])
@pytest.mark.parametrize("name", KERNELS)
def test_numbers_are_widened_before_they_are_used(name: str, d: int, build: str) -> None:
    x = rows(d)
    single, double = KERNELS[name](x), KERNELS[name](x.astype(np.float64))
    assert single.keys() == double.keys()
    for each, value in single.items():
        assert np.asarray(value).tobytes() == np.asarray(double[each]).tobytes(), each


@pytest.mark.parametrize("n_fields", [1, 7, 8, 9, 20])
def test_columns_are_read_as_single_where_single_is_asked_for(n_fields: int, build: str) -> None:
    kinds = (
        pa.array(RANDOM.normal(size=150).astype(np.float32), mask=RANDOM.random(150) < 0.1),
        pa.array(np.array([1e-45, -0.0, 3.4e38, np.inf, np.nan] * 30, np.float32)),
        pa.array(RANDOM.integers(-(2**15), 2**15, 150).astype(np.int16)),
        pa.array(RANDOM.random(150) < 0.5),
    )
    fields = [kinds[place % len(kinds)] for place in range(n_fields)]
    batch = pa.StructArray.from_arrays(fields, names=[str(place) for place in range(n_fields)])
    to = RANDOM.permutation(200)[:150]
    reader = NumberReader(batch.type, range(n_fields), range(1, n_fields + 1))
    for where in (None, to):
        single, double = np.full((200, n_fields + 2), 7, np.float32), np.full((200, n_fields + 2), 7.0)
        reader.read(batch, single, where)
        reader.read(batch, double, where)
        assert single.astype(np.float64).tobytes() == double.tobytes()
        assert (double[:, [0, -1]] == 7).all()


def test_sparse_rows_are_read_with_indices_of_either_length(build: str) -> None:
    x = scipy.sparse.random(N, 30, density=0.2, format="csr", random_state=np.random.default_rng(1))
    short, long = scipy.sparse.csr_matrix(x), scipy.sparse.csr_matrix(x)
    short.indices, short.indptr = short.indices.astype(np.int32), short.indptr.astype(np.int32)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    one, other = of_epochs(short), of_epochs(long)
    dense = of_epochs(short.toarray())
    for name, value in one.items():
        assert value.tobytes() == other[name].tobytes(), name
        np.testing.assert_allclose(value, dense[name], rtol=1e-9, atol=1e-9)
