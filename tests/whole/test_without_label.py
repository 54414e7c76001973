"""Clusters and components keep what every model keeps: alone as among others, on any workers, of any type, after any stop."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

import grouplearn
from grouplearn.plan import physical

Rows = list[tuple[Any, ...]]
LEARNERS = ("kmeans", "pca")
VECTORS = {"kmeans": "centroids", "pca": "components"}
_DIGESTS = (
    "SELECT g.keys, a.config, a.sha256 FROM grouplearn.artifacts AS a"
    " JOIN grouplearn.groups AS g USING (model, group_id) SEMI JOIN grouplearn.models USING (model) ORDER BY ALL"
)
GRID = {"kmeans": "OVER GRID (k IN (1, 2, 3, 5))", "pca": "OVER GRID (n_components IN (1, 2))"}


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=None) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i AS id, CASE WHEN i < 2500 THEN 'large' WHEN i < 2520 THEN 'small' ELSE 'odd' END AS g,"
            " (hash(i) % 4) * 5 + (hash(i + 1) % 1000) / 400.0 AS x, (hash(i + 2) % 1000) / 300.0 + i % 3 * 4 AS y,"
            " 'k' || hash(i + 3) % 3 AS k, 1 + i % 2 AS w FROM range(2600) AS r(i)"
        )
        yield connection


def trained(
    con: grouplearn.Connection, learner: str, source: str = "t", more: str = "", features: str = "x, y, onehot(k)"
) -> Rows:
    """Train, and return every artifact's digest by group and configuration, for one that is compared in its bits."""
    con.execute(
        f"TRAIN OR REPLACE MODEL m USING {learner} FEATURES ({features}) FROM {source} GROUP BY g {GRID[learner]} {more}"
    )
    return con.execute(_DIGESTS).fetchall()


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_group_alone_is_as_among_others(con: grouplearn.Connection, learner: str) -> None:
    together = trained(con, learner, more="KEEP ALL")
    assert len({row[2] for row in together}) > 4
    for group in ("large", "small", "odd"):
        alone = trained(con, learner, f"(FROM t WHERE g = '{group}')", "KEEP ALL")
        assert alone == [row for row in together if row[0] == [group]]


@pytest.mark.examples(3)
@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(
    "source",
    [
        "(FROM t ORDER BY hash(id + 5))",
        "(SELECT g, x::DECIMAL(18, 6) AS x, y::DECIMAL(18, 9) AS y, k FROM t)",
        "(SELECT k::ENUM ('k0', 'k1', 'k2') AS k, y, x, g FROM t)",
    ],
)
def test_order_and_types_of_rows_do_not_matter(con: grouplearn.Connection, learner: str, source: str) -> None:
    con.execute("UPDATE t SET x = round(x, 4), y = round(y, 4)")
    assert trained(con, learner, source, "VALIDATE NONE") == trained(con, learner, more="VALIDATE NONE")


@pytest.mark.examples(2)
@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("more", ["WITH (workers = 1)", "WITH (workers = 3)", "WITH (operator = 'gap', workers = 2)",
                                  "WITH (operator = 'model_task_parallel', workers = 2)"])  # fmt: skip
def test_models_do_not_depend_on_who_trains_them(
    con: grouplearn.Connection, learner: str, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(physical, "BLOCK_ROWS", 300)
    assert trained(con, learner, more=more) == trained(con, learner)


@pytest.mark.parametrize("learner", LEARNERS)
def test_which_configurations_stand_beside_does_not_matter(con: grouplearn.Connection, learner: str) -> None:
    together = trained(con, learner, more="KEEP ALL")
    name, values = {"kmeans": ("k", (1, 2, 3, 5)), "pca": ("n_components", (1, 2))}[learner]
    for number, value in enumerate(values):
        con.execute(
            f"TRAIN OR REPLACE MODEL m USING {learner} FEATURES (x, y, onehot(k)) FROM t GROUP BY g VALIDATE SAMPLE 10%"
            f" WITH ({name} = {value})"
        )
        alone = con.execute(_DIGESTS).fetchall()
        assert alone == [(keys, 0, digest) for keys, config, digest in together if config == number]


def test_inertia_is_no_worse_than_scikit_learns(con: grouplearn.Connection) -> None:
    con.execute(
        "TRAIN MODEL m USING kmeans FEATURES (x, y) FROM t GROUP BY g OVER GRID (k IN (2, 3, 4, 6)) VALIDATE NONE"
        " WITH (n_init = 5)"
    )
    for group, k, inertia in con.execute("SELECT g, k, train_inertia FROM m").fetchall():
        x = np.array(con.execute("SELECT x, y FROM t WHERE g = ?", [group]).fetchall(), np.float64)
        best = KMeans(k, n_init=10, tol=0, random_state=0).fit(x).inertia_
        assert inertia <= best * 1.02


def test_components_are_scikit_learns(con: grouplearn.Connection) -> None:
    con.execute("TRAIN MODEL m USING pca FEATURES (x, y, id) FROM t GROUP BY g")
    for group in ("large", "small", "odd"):
        x = np.array(con.execute("SELECT x, y, id FROM t WHERE g = ? ORDER BY id", [group]).fetchall(), np.float64)
        theirs = PCA(svd_solver="covariance_eigh").fit(x)
        variance = con.execute(
            "SELECT variance, share FROM m_variance WHERE g = ? ORDER BY component", [group]
        ).fetchall()
        np.testing.assert_allclose([row[0] for row in variance], theirs.explained_variance_, rtol=1e-9)
        np.testing.assert_allclose(
            [row[1] for row in variance], theirs.explained_variance_ratio_, rtol=1e-9, atol=1e-12
        )
        found = con.execute("SELECT projection FROM m_predict(t) WHERE g = ? ORDER BY id", [group]).fetchall()
        ours, scores = np.array([row[0] for row in found]), theirs.transform(x)
        signs = np.sign((ours * scores).sum(axis=0))
        np.testing.assert_allclose(ours * signs, scores, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("learner", LEARNERS)
def test_what_is_damaged_is_said(con: grouplearn.Connection, learner: str) -> None:
    trained(con, learner)
    con.execute("UPDATE grouplearn.models SET target_name = 'y'")
    with pytest.raises(grouplearn.Error, match=r"target_name is 'y', and task is '?(clustering|projection)"):
        con.execute("DESCRIBE MODEL m").fetchall()
    con.execute("UPDATE grouplearn.models SET target_name = NULL")
    con.execute("UPDATE grouplearn.artifacts SET sha256 = 'x'")
    with pytest.raises(grouplearn.Error, match="its bytes do not match their SHA-256"):
        con.execute("SELECT predict('m', t) FROM t").fetchall()
