"""Learners that take dense rows alone predict rows of many columns, whichever way is asked."""

from __future__ import annotations

import numpy as np
import pytest

import grouplearn


@pytest.mark.parametrize(
    ("learner", "options", "value", "columns"),
    [
        ("kmeans", "k = 3", "distance", 513),
        ("kmeans", "k = 3", "distance", 5000),
        ("pca", "n_components = 2", "residual", 513),  # of many columns it takes a minute
    ],
)
def test_rows_of_many_columns_are_predicted_by_function_macro_and_table(
    learner: str, options: str, value: str, columns: int
) -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE h AS SELECT i, i % 2 AS g, i % 50 AS x, 'w' || (i % 20) AS w FROM range(300) r(i)")
        con.execute(
            f"TRAIN MODEL m USING {learner} FEATURES (hash(w, {columns}), x) FROM h GROUP BY g VALIDATE NONE WITH ({options})"
        )
        macro = con.execute(f"SELECT {value} FROM m_predict(h) ORDER BY i").fetchall()
        function = con.execute("SELECT predict('m', h).value FROM h ORDER BY i").fetchall()
        assert np.allclose(np.array(function, float), np.array(macro, float), rtol=1e-9, atol=1e-9)
        assert len(np.unique(np.array(macro, float).round(6))) > 2
        evaluated = con.execute("EVALUATE MODEL m ON h").fetchall()
        trained = con.execute("FROM m").fetchall()
        assert len(evaluated) == len(trained) == 2
