"""Rare categories, in groups so large that second derivatives are taken of some rows, which see none of them."""

from __future__ import annotations

import pytest

import grouplearn

#: Geometric categories: the rarest of 79 have some rows in 20,000.
TABLE = """CREATE TABLE t AS SELECT c, 'd' || (hash(i, 2) % 20) AS d, c % 5 < 2 AS pure, hash(i, 8) % 500 = 0 AS rare,
    (c % 5 >= 2)::INT * (hash(i, 3) % 4)::DOUBLE AS few, (hash(i, 8) % 500 = 0)::INT * 1000.0 AS much
FROM (SELECT i, least(floor(-ln((hash(i, 1) % 100000 + 1) / 100001) / 0.06), 78)::INT AS c FROM range(20000) AS r(i))"""


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("learner", "label", "l1"),
    [
        ("logistic_regression", "pure", 1),
        ("logistic_regression", "pure", 0.1),
        ("logistic_regression", "rare", 0.1),
        ("poisson_regression", "few", 1),
        ("poisson_regression", "much", 1),
    ],
)
def test_a_step_that_leads_nowhere_is_taken_anew_by_more_rows(learner: str, label: str, l1: float) -> None:
    """A model that had converged, as it said, had six to forty-five times the objective of coordinate descent."""
    found = []
    with grouplearn.connect(progress=False) as con:
        con.execute(TABLE)
        for solver in ("lbfgs", "coordinate_descent"):
            con.execute(
                f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT {label} AS label FEATURES (onehot(c), onehot(d)) FROM t "
                f"VALIDATE NONE WITH (solver = '{solver}', l1 = {l1}, l2 = 0)"
            )
            (told,) = con.execute("SELECT converged FROM m").fetchall()
            (loss,) = con.execute("SELECT arg_max(train_loss, epoch) FROM m_curves").fetchall()
            assert told == (True,)
            found += loss
    assert found[0] == pytest.approx(found[1], rel=1e-5)
