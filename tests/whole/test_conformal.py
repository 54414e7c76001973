"""m_predict(src, level := ...): the label is inside as often as the level says, in every group."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import grouplearn

LEARNERS = [
    ("linear_regression", "y", ""),
    ("random_forest", "y", ", num_iterations = 10"),
    ("logistic_regression", "b", ""),
    ("mlp", "b", ", epochs = 3"),
    ("gbdt", "c", ", num_iterations = 10"),
]


def rows(n: int = 80_000) -> Any:
    rng = np.random.default_rng(5)
    g, x, z = rng.integers(0, 2, n), rng.normal(size=n), rng.normal(size=n)
    y = 2 * x - z * g + rng.standard_t(4, size=n) * (1 + g)
    chosen = np.argmax(np.c_[x, z, x * z] + rng.gumbel(size=(n, 3)), axis=1)
    columns = {
        "g": g,
        "x": x,
        "z": z,
        "y": y,
        "b": x + rng.logistic(size=n) > 0,
        "c": np.array(["u", "v", "w"])[chosen],
    }
    return pa.table({**columns, "future": np.arange(n) % 2 == 0, "drawn": rng.random(n) < 0.5})


@pytest.mark.parametrize(("learner", "target", "options"), LEARNERS)
@pytest.mark.parametrize("validate", ["FOLDS 4", "WHERE drawn"])
def test_labels_are_inside_as_often_as_promised(learner: str, target: str, options: str, validate: str) -> None:
    found = rows()
    with grouplearn.connect(progress=False) as con:
        con.register("every", found)
        con.execute("CREATE TABLE t AS FROM every WHERE NOT future; CREATE TABLE later AS FROM every WHERE future")
        con.execute(
            f"TRAIN MODEL m USING {learner} PREDICT {target} FEATURES (x, z) FROM t GROUP BY g VALIDATE {validate}"
            f" WITH (keep_held_out = true{options})"
        )
        inside = "y BETWEEN lower AND upper" if target == "y" else f"list_contains(prediction_set, {target})"
        for level in (0.9, 0.7):
            query = f"SELECT avg(({inside})::INTEGER) FROM m_predict(later, level := {level}) GROUP BY g"
            shares = [share for (share,) in con.execute(query).fetchall()]
            np.testing.assert_allclose(shares, level, atol=0.02)
