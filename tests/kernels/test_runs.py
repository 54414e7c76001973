"""Runs of rows, each by a model of its own, against the same rows one run at a time: the same bits, in every build."""

from collections.abc import Callable

import numpy as np
import pytest
from builds import in_every_build

from grouplearn.kernels import networks
from grouplearn.kernels.clusters import distances, projections
from grouplearn.kernels.library import RowRuns

#: Runs of no rows, of one, of several tiles; a model that has two of them, and one that has none.
RUNS = RowRuns(np.array([0, 3, 3, 4, 190, 400]), np.array([4, 1, 0, 2, 4]))
RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(400, 6))


def of_networks() -> tuple[Callable[[], np.ndarray], Callable[[np.ndarray, int], np.ndarray]]:
    shape = networks.NetworkShape((6, 5, 3, 2), "relu", "regression")
    parameters = RANDOM.normal(size=(5, shape.n_parameters))
    return (
        lambda: networks.predict_runs(shape, parameters, X, RUNS),
        lambda x, model: networks.predict(shape, parameters[model : model + 1], x)[:, 0],
    )


def of_clusters() -> tuple[Callable[[], np.ndarray], Callable[[np.ndarray, int], np.ndarray]]:
    first = np.array([0, 3, 4, 9, 9, 12])
    centroids = RANDOM.normal(size=(12, 6))
    return (
        lambda: distances.score_runs(X, centroids, first, RUNS),
        lambda x, model: distances.scores(x, centroids, first[model : model + 2])[:, 0],
    )


def of_components() -> tuple[Callable[[], np.ndarray], Callable[[np.ndarray, int], np.ndarray]]:
    mean = RANDOM.normal(size=(5, 6))
    components = np.stack([np.linalg.qr(RANDOM.normal(size=(6, 6)))[0][:2] for _ in range(5)])
    return (
        lambda: projections.score_runs(X, mean, components, RUNS),
        lambda x, model: projections.scores(x, mean[model], components[model]),
    )


@pytest.mark.parametrize("kernels", [of_networks, of_clusters, of_components])
def test_runs_have_the_bits_of_each_alone(kernels: Callable) -> None:
    together, alone = kernels()
    found = in_every_build(lambda: {"found": together()})["found"]
    bounds = zip(RUNS.start[:-1], RUNS.start[1:], RUNS.model, strict=True)
    expected = np.concatenate([alone(X[start:stop], model) for start, stop, model in bounds])
    np.testing.assert_array_equal(found, expected)
    assert np.isfinite(found).all()


def test_rows_of_another_width_are_refused() -> None:
    narrow = np.ascontiguousarray(X[:, :5])
    with pytest.raises(ValueError, match="features"):
        distances.score_runs(narrow, np.zeros((2, 6)), np.array([0, 2]), RUNS)
    with pytest.raises(ValueError, match="features"):
        projections.score_runs(narrow, np.zeros((1, 6)), np.zeros((1, 2, 6)), RUNS)
    shape = networks.NetworkShape((6, 1), "relu", "regression")
    with pytest.raises(ValueError, match="expected"):
        networks.predict_runs(shape, np.zeros((1, 7)), narrow, RUNS)
