"""Losses of rows against scikit-learn, and the same as SQL."""

import duckdb
import numpy as np
import pytest
import sklearn.metrics as sk
from helpers.measuring import finish, measure, merge

from grouplearn.models.label import NUMBER
from grouplearn.models.metrics.deviances import RowLoss, loss_sql, row_losses, with_losses

RNG = np.random.default_rng(3)
ROWS = 60
MEAN = RNG.uniform(0.05, 0.95, size=(ROWS, 2))
WEIGHT = np.where(RNG.random(ROWS) < 0.2, 0.0, RNG.uniform(0.5, 2, ROWS))
COUNTS, SHARES = RNG.poisson(1.0, ROWS).astype(float), RNG.random(ROWS)
SHARES[:2] = [0.0, 1.0]
POSITIVE = RNG.gamma(2.0, size=ROWS) + 0.01


def cross_entropy(y, predicted, sample_weight):
    return np.average(-(y * np.log(predicted) + (1 - y) * np.log(1 - predicted)), weights=sample_weight)


LOSSES = [
    (RowLoss("pinball", 0.2), COUNTS, lambda *a, **k: sk.mean_pinball_loss(*a, alpha=0.2, **k)),
    (RowLoss("poisson_deviance"), COUNTS, sk.mean_poisson_deviance),
    (RowLoss("gamma_deviance"), POSITIVE, sk.mean_gamma_deviance),
    (RowLoss("tweedie_deviance", 1.3), COUNTS, lambda *a, **k: sk.mean_tweedie_deviance(*a, power=1.3, **k)),
    (RowLoss("tweedie_deviance", 1.0), COUNTS, sk.mean_poisson_deviance),
    (RowLoss("cross_entropy"), SHARES, cross_entropy),
]


@pytest.mark.parametrize(("loss", "y", "reference"), LOSSES, ids=lambda value: getattr(value, "name", ""))
def test_the_mean_of_a_loss_of_rows(loss, y, reference):
    parts = [slice(0, 25), slice(25, ROWS)]

    def sums(part):
        scores = MEAN[part, :, None]
        own = measure(NUMBER, 0, scores, y[part], WEIGHT[part])
        return with_losses(own, (loss,), scores, y[part], WEIGHT[part])

    found = finish(merge(*map(sums, parts)))[loss.name]
    expected = [reference(y, MEAN[:, config], sample_weight=WEIGHT) for config in range(2)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    with duckdb.connect() as con:
        rows = [*zip(MEAN[:, 0].tolist(), y.tolist(), strict=True), (0.0, 0.5), (1.0, 0.5), (0.5, -1.0)]
        con.execute("CREATE TABLE t (p DOUBLE, y DOUBLE)")
        con.executemany("INSERT INTO t VALUES (?, ?)", rows)
        by_sql = con.execute(f"SELECT {loss_sql(loss)} FROM t").fetchnumpy()
    ours = loss.of(*map(np.array, zip(*rows, strict=True)))
    (values,) = by_sql.values()
    np.testing.assert_allclose(np.ma.filled(values.astype(float), np.nan), ours, rtol=1e-9)


def test_the_parameter_is_that_of_the_config():
    config = {"alpha": 0.1, "tweedie_variance_power": 1.9}
    assert row_losses(("rmse", "pinball", "gamma_deviance", "pinball"), config) == (
        RowLoss("pinball", 0.1),
        RowLoss("gamma_deviance"),
    )
    assert row_losses(("tweedie_deviance",), config) == (RowLoss("tweedie_deviance", 1.9),)


def test_a_label_without_such_a_loss_has_no_mean():
    scores, y = np.full((2, 1, 1), 0.5), np.array([0.0, 1.0])
    for weight, defined in ((np.array([1.0, 1.0]), False), (np.array([0.0, 1.0]), True)):
        sums = with_losses(measure(NUMBER, 0, scores, y, weight), (RowLoss("gamma_deviance"),), scores, y, weight)
        assert np.isfinite(finish(sums)["gamma_deviance"][0]) == defined
