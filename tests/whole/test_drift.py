"""m_drift against NumPy on the same parts, in any DuckDB, and profiles that stay with the models that they belong to."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy.stats import ks_2samp

import grouplearn

LEAST = 1e-4
ROWS = (
    "SELECT i % 3 AS g, {x} AS x, CASE WHEN i % 11 > 0 THEN 'k' || floor(ln(1 + hash(i, 2) % 900) * 40)::INT END AS k, i AS y"
    " FROM range({n}) AS r(i)"
)


@pytest.fixture
def con(tmp_path: Path) -> Iterator[Any]:
    with grouplearn.connect(str(tmp_path / "shop.duckdb"), progress=None) as opened:
        opened.execute("CREATE TABLE t AS " + ROWS.format(x="(hash(i) % 10000) / 10000.0", n=6000))
        opened.execute("CREATE TABLE u AS " + ROWS.format(x="((hash(i, 9) % 10000) / 10000.0) ** 1.4 + 0.05", n=2500))
        opened.execute(
            "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (zscore(x), onehot(k)) FROM t GROUP BY g"
        )
        yield opened


def index(then: np.ndarray, now: np.ndarray) -> float:
    p, q = (np.maximum(shares, LEAST) for shares in (then, now))
    return float(((q - p) * np.log(q / p)).sum())


def column(con: Any, table: str, name: str, group: int) -> np.ndarray:
    return np.array([row[0] for row in con.execute(f"SELECT {name} FROM {table} WHERE g = {group}").fetchall()])


def test_numbers_against_numpy_and_scipy(con: Any) -> None:
    drifted = con.execute("SELECT g, psi, ks FROM m_drift(u) WHERE feature = 'x' ORDER BY g").fetchall()
    profiles = con.execute("SELECT quantiles FROM m_features WHERE feature = 'x' ORDER BY g").fetchall()
    for (group, psi, distance), (quantiles,) in zip(drifted, profiles, strict=True):
        then, now = column(con, "t", "x", group), column(con, "u", "x", group)
        ends = [-np.inf, *quantiles, np.inf]
        shares = [
            np.array([((each > low) & (each <= high)).mean() for low, high in itertools.pairwise(ends)])
            for each in (then, now)
        ]
        assert psi == pytest.approx(index(*shares), rel=1e-9)
        own = max(abs((now <= end).mean() - (then <= end).mean()) for end in quantiles)
        assert distance == pytest.approx(own, rel=1e-9)
        exact = ks_2samp(then, now).statistic  # also between quantiles: less than the share of a part above
        assert own <= exact + 1e-12
        assert own > exact - 0.1


def test_categories_against_numpy(con: Any) -> None:
    drifted = con.execute(
        "SELECT g, psi, unseen, missing_now FROM m_drift(u) WHERE feature = 'k' ORDER BY g"
    ).fetchall()
    for group, psi, unseen, missing in drifted:
        then, now = (column(con, table, "k", group) for table in ("t", "u"))
        assert missing == pytest.approx(np.mean([each is None for each in now]))
        then, now = (each[[value is not None for value in each]] for each in (then, now))
        names, counts = np.unique(then.astype(str), return_counts=True)
        listed = names[np.lexsort((names, -counts))[:100]]
        assert len(names) > 100  # so that there is a rest
        shares = [np.array([(each == name).mean() for name in listed]) for each in (then, now)]
        rest = [np.append(each, 1 - each.sum()) for each in shares]
        assert psi == pytest.approx(index(*rest), rel=1e-9)
        known = set(con.execute(f"SELECT DISTINCT feature[3:] FROM m_weights WHERE g = {group}").fetchall())
        assert unseen == pytest.approx(np.mean([(name,) not in known for name in now]))


def test_plain_duckdb_answers_alike(con: Any, tmp_path: Path) -> None:
    expected = con.execute("FROM m_drift(u)").fetchall()
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'out'}' (FORMAT sql)")
    con.close()
    with duckdb.connect(str(tmp_path / "shop.duckdb"), read_only=True) as other:
        assert other.execute("FROM m_drift(u)").fetchall() == expected
        rows = other.sql("FROM u").to_arrow_table()
    with duckdb.connect() as other:
        other.execute((tmp_path / "out" / "model.sql").read_text())
        other.register("u", rows)
        assert other.execute("FROM m_drift(u)").fetchall() == expected


def features(con: Any, where: str = "true") -> list[Any]:
    return con.execute(f"FROM m_features WHERE {where} ORDER BY ALL").fetchall()


def test_groups_that_keep_their_model_keep_its_profile(con: Any) -> None:
    before = features(con, "g = 1")
    con.execute("UPDATE t SET y = NULL WHERE g = 1; UPDATE t SET x = x + 1")
    con.execute(
        "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (zscore(x), onehot(k)) FROM t GROUP BY g"
        " WITH (keep_versions = 1)"
    )
    assert con.execute("SELECT status FROM m WHERE g = 1").fetchall() == [("kept",)]
    assert features(con, "g = 1") == before
    assert all(row[8] >= 1 for row in features(con, "g <> 1 AND feature = 'x'"))


def test_retry_describes_the_groups_that_it_trains(con: Any) -> None:
    con.execute("UPDATE t SET y = NULL WHERE g = 1")
    train = "TRAIN MODEL r USING linear_regression PREDICT y FEATURES (zscore(x), onehot(k)) FROM t GROUP BY g"
    con.execute(train)
    con.execute("UPDATE t SET y = 1, x = x + 1 WHERE g = 1")
    others = con.execute("FROM r_features WHERE g <> 1 ORDER BY ALL").fetchall()
    con.execute("RETRY FAILED MODEL r")
    assert con.execute("FROM r_features WHERE g <> 1 ORDER BY ALL").fetchall() == others
    assert con.execute("SELECT count(*), min(min) >= 1 FROM r_features WHERE g = 1 AND feature = 'x'").fetchall() == [
        (1, True)
    ]


def test_profiles_do_not_depend_on_workers_and_outlive_a_run_that_is_resumed(con: Any) -> None:
    expected = features(con)
    con.execute(
        "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (zscore(x), onehot(k)) FROM t GROUP BY g"
        " WITH (workers = 2, durable = true)"
    )
    assert features(con) == expected


def test_refresh_describes_groups_that_are_trained_anew(con: Any) -> None:
    before = features(con, "g <> 1")
    con.execute("UPDATE t SET x = x + 1 WHERE g = 1")
    con.execute("REFRESH MODEL m")
    assert features(con, "g <> 1") == before
    assert con.execute("SELECT min(min) >= 1 FROM m_features WHERE g = 1 AND feature = 'x'").fetchall() == [(True,)]
