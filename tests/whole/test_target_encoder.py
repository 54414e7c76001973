"""``target``: encodings are those of scikit-learn, no row learns from its own label, and all ways to the rows agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import TargetEncoder

import grouplearn

#: The encodings of the first item in the model ``m``.
ENCODINGS = """
    SELECT unnest(g.categories[1]) AS category, unnest(g.category_values[1]) AS value
    FROM grouplearn.groups AS g SEMI JOIN (FROM grouplearn.models WHERE model_name = 'm') AS m ON m.model = g.model
    WHERE g.keys[1] = '{}'
"""


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with grouplearn.connect(progress=False) as con:
        con.execute("""
            CREATE TABLE t AS
            SELECT i AS id, i % 3 AS k, CASE WHEN i % 13 > 0 THEN 'c' || hash(i) % 9 END AS c, 'n' || hash(i * 7) % 400 AS noise,
                   hash(i) % 9 + sin(i) * 3 AS y, hash(i) % 9 + sin(i) * 3 > 4 AS b, 1 + i % 2 AS w
            FROM range(1200) AS r(i)
        """)
        yield con


@pytest.mark.parametrize(
    ("learner", "label", "smooth", "given"),
    [
        ("linear_regression", "y", "'auto'", "auto"),
        ("linear_regression", "y", "7.5", 7.5),
        ("logistic_regression", "b", "'auto'", "auto"),
        ("logistic_regression", "b", "0", 0.0),
    ],
)
def test_encodings_are_those_of_scikit_learn(con: Any, learner: str, label: str, smooth: str, given: Any) -> None:
    con.execute(
        f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT {label} FEATURES (target(c, smooth := {smooth})) FROM t GROUP BY k"
        " VALIDATE NONE"
    )
    for k in range(3):
        rows = con.execute(f"SELECT coalesce(c, '(null)'), {label}::DOUBLE FROM t WHERE k = {k}").fetchall()
        x, y = np.array([[row[0]] for row in rows]), np.array([row[1] for row in rows])
        encoder = TargetEncoder(smooth=given, target_type="binary" if label == "b" else "continuous").fit(x, y)
        found = dict(con.execute(ENCODINGS.format(k)).fetchall())
        assert sorted(found) == encoder.categories_[0].tolist()
        expected = dict(zip(encoder.categories_[0], encoder.encodings_[0], strict=True))
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_weights_count_as_rows(con: Any) -> None:
    statement = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (target(c)) FROM {} GROUP BY k VALIDATE NONE"
    con.execute(statement.format("t") + " WITH (weight = w)")
    weighted = dict(con.execute(ENCODINGS.format(1)).fetchall())
    con.execute(statement.format("(FROM t UNION ALL FROM t WHERE w = 2)"))
    assert weighted == pytest.approx(dict(con.execute(ENCODINGS.format(1)).fetchall()), rel=1e-12)


def test_no_row_learns_from_its_own_label(con: Any) -> None:
    """Categories of about one row each say nothing: a model that saw their labels would know all of them."""
    con.execute("""
        TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (target(noise)) FROM t GROUP BY k VALIDATE NONE
    """)
    r2 = [value for (value,) in con.execute("SELECT train_r2 FROM m").fetchall()]
    assert max(r2) < 0.05
    con.execute("TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (target(c)) FROM t GROUP BY k")
    assert min(value for (value,) in con.execute("SELECT valid_r2 FROM m").fetchall()) > 0.3


def test_refresh_of_all_rows_fits_it_again(con: Any) -> None:
    """A model that is trained anew would see labels that the encodings of the last TRAIN know; one that goes on sees new rows."""
    con.execute("CREATE OR REPLACE TEMP TABLE early AS FROM t WHERE id < 900")
    con.execute("""
        TRAIN OR REPLACE MODEL m USING logistic_regression PREDICT b FEATURES (target(noise)) FROM early GROUP BY k VALIDATE NONE
    """)
    con.execute("INSERT INTO early FROM t WHERE id >= 900")
    con.execute("REFRESH MODEL m")
    refreshed = con.execute("SELECT k, feature, weight FROM m_weights ORDER BY ALL").fetchall()
    con.execute("""
        TRAIN OR REPLACE MODEL m USING logistic_regression PREDICT b FEATURES (target(noise)) FROM t GROUP BY k VALIDATE NONE
    """)
    trained = con.execute("SELECT k, feature, weight FROM m_weights ORDER BY ALL").fetchall()
    assert [row[2] for row in refreshed] == pytest.approx([row[2] for row in trained], rel=0.01)


def test_contributions_are_from_the_mean_encoding(con: Any) -> None:
    con.execute("""
        TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (target(c)) FROM t GROUP BY k WITH (profile = true)
    """)
    means = con.execute("SELECT avg(contribution), max(abs(contribution)) FROM m_explain(t) GROUP BY k").fetchall()
    assert [mean for mean, _ in means] == pytest.approx([0.0] * 3, abs=1e-9)
    assert min(most for _, most in means) > 1
