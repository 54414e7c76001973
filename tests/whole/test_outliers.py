"""One row that outweighs all others, as raw columns of people's data have it."""

from __future__ import annotations

import pytest

import grouplearn

#: A row of 10,000s among normal numbers: it ties the weights to each other, as one step lets their sum move by next to nothing.
TABLE = """CREATE TABLE t AS SELECT CASE WHEN i = 0 THEN 10000 ELSE a END AS a, CASE WHEN i = 0 THEN 10000 ELSE b END AS b,
    CASE WHEN i = 0 THEN 10000 ELSE c END AS c, CASE WHEN i = 0 THEN 10000 ELSE d END AS d, a - b + c / 4 + noise > 0 AS y
FROM (SELECT i, n(i, 1) AS a, n(i, 2) AS b, n(i, 3) AS c, n(i, 4) AS d, n(i, {}) AS noise FROM range(400) AS r(i))"""
NORMAL = "CREATE MACRO n(i, k) AS sqrt(-2 * ln((hash(i, k) % 99999 + 1) / 100000)) * cos(2 * pi() * (hash(k, i) % 99991) / 99991)"


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_l1_ends_at_the_least_objective_beside_an_outlier(seed: int) -> None:
    found = []
    with grouplearn.connect(progress=False) as con:
        con.execute(NORMAL)
        con.execute(TABLE.format(seed))
        for solver in ("lbfgs", "coordinate_descent"):
            con.execute(
                "TRAIN OR REPLACE MODEL m USING linear_svm PREDICT y FEATURES (a, b, c, d) FROM t"
                f" VALIDATE NONE WITH (solver = '{solver}', l1 = 1, l2 = 0{', epochs = 5000' * (solver != 'lbfgs')})"
            )
            found += con.execute(
                "SELECT converged, epochs, (SELECT arg_max(train_loss, epoch) FROM m_curves) FROM m"
            ).fetchall()
    (converged, epochs, least), (_, _, by_columns) = found
    assert converged
    assert epochs < 100
    assert least <= by_columns * (1 + 1e-7)
