"""Ridge regression on encoded features predicts what scikit-learn's predicts on features of its own encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, RobustScaler

import grouplearn

Matrix = npt.NDArray[Any]


def one_hot(**options: Any) -> Callable[[], Any]:
    return lambda: OneHotEncoder(sparse_output=False, **options)


def k_bins(n: int) -> Callable[[], Any]:
    return lambda: KBinsDiscretizer(n, encode="onehot-dense", strategy="quantile", quantile_method="linear")


#: Items, the columns of theirs, and scikit-learn's encoder.
ENCODERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "robust(x)": ("x", RobustScaler),
    "robust(steps)": ("steps", RobustScaler),
    "robust(spike)": ("spike", RobustScaler),
    "robust(one)": ("one", RobustScaler),
    "bins(x, 4)": ("x", k_bins(4)),
    "bins(x, 100)": ("x", k_bins(100)),
    "bins(steps, 7)": ("steps", k_bins(7)),
    "bins(spike, 3)": ("spike", k_bins(3)),
    "bins(one, 3)": ("one", k_bins(3)),
    "onehot(a, null := true)": ("a", one_hot()),
    "onehot(a, null := true, min_count := 9)": ("a", one_hot(min_frequency=9)),
    "onehot(steps, min_count := 21)": ("steps", one_hot(min_frequency=21)),
    "cross(steps, spike)": ("steps || '+' || spike", one_hot()),
    "cross(steps, spike, k, min_count := 5)": ("steps || '+' || spike", one_hot(min_frequency=5)),
}


@pytest.fixture(scope="module")
def con() -> Any:
    con = grouplearn.connect(progress=False)
    # Numbers of every kind: drawn, tied, all but one equal, constant.
    con.execute("""
        CREATE TABLE t AS
        SELECT i AS id, i % 3 AS k, sin(i * i) * exp(i % 7) AS x, i % 5 AS steps, (i < 9)::INTEGER AS spike, 3.5 AS one,
               ['one', 'two', NULL, 'three'][1 + i * i % 7 % 4] || CASE WHEN i % 9 = 0 THEN (i // 40)::VARCHAR ELSE '' END AS a,
               cos(i) + i % 5 + sin(i * i) AS y
        FROM range(301) AS r(i)
    """)
    return con


@pytest.mark.filterwarnings("ignore:.*(Bins whose width|is constant).*:UserWarning")
@pytest.mark.parametrize("item", ENCODERS)
def test_it_encodes_as_scikit_learn(con: Any, item: str) -> None:
    column, encoder = ENCODERS[item]
    con.execute(
        f"TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES ({item}) FROM t GROUP BY k VALIDATE NONE"
        " WITH (l2 = 1)"
    )
    for k in range(3):
        x, y, found = (
            np.array(con.execute(f"SELECT {each} FROM m_predict(t) WHERE k = {k} ORDER BY id").fetchall())
            for each in (column, "y", "prediction")
        )
        features = encoder().fit_transform(x)
        expected = Ridge(alpha=1).fit(features, y[:, 0]).predict(features)
        assert found[:, 0] == pytest.approx(expected, rel=1e-9, abs=1e-9)
