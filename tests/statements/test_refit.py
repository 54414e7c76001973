"""REFIT: the search decides as without it, and the model that is kept is the one that all rows make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from helpers.dying_runs import Died, answer

import grouplearn
from grouplearn.train.results import ledger
from grouplearn.train.results.ledger import Ledger

TABLE = (
    "CREATE TABLE t AS SELECT nullif(i % 5, 0) AS g, hash(i) % 1000 / 1000 AS a, hash(i * 3) % 1000 / 1000 AS b, "
    "'k' || hash(i, 1) % 3 AS k, CASE WHEN i % 50 <> 7 THEN a + 2 * b + hash(i * 7) % 1000 / 2000 END AS y, "
    "y > 1.6 AS z FROM range(900) r(i)"
)
FEATURES = "FEATURES (zscore(a), zscore(b, scope := 'all'), onehot(k)) FROM t GROUP BY ROLLUP (g)"
LEARNERS = {
    "linear_regression": ("y", "l2", (0.1, 100.0), ""),
    "logistic_regression": ("z", "l2", (0.1, 100.0), ""),
    "linear_svm": ("z", "l2", (0.1, 100.0), ""),
    "poisson_regression": ("(10 * y)::INTEGER", "l2", (0.1, 100.0), ""),
    "gbdt": ("z", "num_leaves", (3, 9), ", num_iterations = 4"),
    "mlp": ("y", "hidden_layers", ([2], [4]), ", epochs = 2"),
}
KEPT = "SELECT g.keys, g.features, g.fills, g.centers, g.scales, g.categories, a.sha256 FROM grouplearn.artifacts AS a "
KEPT += "JOIN grouplearn.groups AS g USING (model, group_id) SEMI JOIN grouplearn.models USING (model) ORDER BY ALL"


def fetched(con: grouplearn.Connection, statement: str) -> list[Any]:
    return con.execute(statement).fetchall()


@pytest.mark.examples(2)
@pytest.mark.parametrize("learner", LEARNERS)
def test_the_model_is_that_of_all_rows_and_the_metrics_are_those_of_the_search(learner: str) -> None:
    target, name, values, options = LEARNERS[learner]
    train = f"USING {learner} PREDICT {target} AS y {FEATURES} VALIDATE SAMPLE 20%"
    grid = f"OVER GRID ({name} IN ({', '.join(map(str, values))})) WITH (seed = 3{options})"
    with grouplearn.connect(progress=False) as con:
        con.execute(TABLE)
        con.execute(f"TRAIN MODEL searched {train} {grid}")
        expected = fetched(con, "SELECT * EXCLUDE (seconds) FROM searched ORDER BY ALL")
        con.execute("DROP MODEL searched")
        con.execute(f"TRAIN MODEL m {train} REFIT {grid}")
        assert fetched(con, "SELECT * EXCLUDE (seconds) FROM m ORDER BY ALL") == expected
        kept = fetched(con, KEPT)
        best = dict(fetched(con, f"SELECT coalesce(g, -1 - len(model_level)), {name} FROM m WHERE is_best"))
        assert len(kept) == len(best) == 6
        con.execute("DROP MODEL m")
        for value in values:
            # The whole table, so that the same groups stand side by side.
            con.execute(
                f"TRAIN MODEL alone USING {learner} PREDICT {target} AS y {FEATURES} "
                f"VALIDATE NONE WITH (seed = 3, {name} = {value}{options})"
            )
            found = fetched(con, KEPT)
            chosen = [row for row in kept if row in found]
            assert len(chosen) == sum(each == value for each in best.values())
            con.execute("DROP MODEL alone")


def everything(path: Path) -> list[Any]:
    queries = (KEPT, "SELECT * EXCLUDE (seconds) FROM m ORDER BY ALL", "SELECT refit, keep_best FROM grouplearn.models")
    found = [answer(path, query) for query in queries]
    answer(path, "DROP MODEL m")
    return found


def test_a_run_that_dies_before_or_in_its_refit_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "FLUSH_SECONDS", 0.0)
    path = tmp_path / "d.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute(TABLE)
    train = f"TRAIN MODEL m USING gbdt PREDICT y {FEATURES} OVER GRID (num_leaves IN (3, 9)) REFIT "
    train += "WITH (num_iterations = 3, durable = true, workers = 1)"
    added: list[int] = []
    add = Ledger.add

    def dying_at(most: int) -> Any:
        def noted(self: Ledger, result: Any) -> None:
            if len(added) >= most:
                raise Died
            add(self, result)
            added.append(result.unit.id)

        return noted

    monkeypatch.setattr(Ledger, "add", dying_at(1000))
    answer(path, train)
    expected, every = everything(path), len(added)
    for most in (every // 2, every - 2):
        added.clear()
        monkeypatch.setattr(Ledger, "add", dying_at(most))
        with pytest.raises(Died):
            answer(path, train)
        done = set(added)
        added.clear()
        monkeypatch.setattr(Ledger, "add", dying_at(1000))
        answer(path, "RESUME MODEL m")
        assert not done & set(added)
        assert everything(path) == expected


def test_folds_keep_models_of_all_rows_anyway() -> None:
    train = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (a) FROM t "
    train += "OVER GRID (l2 IN (0, 1)) VALIDATE FOLDS 3"
    with grouplearn.connect(progress=False) as con:
        con.execute(TABLE)
        con.execute(train)
        expected = fetched(
            con, "SELECT sha256 FROM grouplearn.artifacts SEMI JOIN grouplearn.models USING (model) ORDER BY ALL"
        )
        con.execute(f"{train} REFIT")
        assert (
            fetched(
                con, "SELECT sha256 FROM grouplearn.artifacts SEMI JOIN grouplearn.models USING (model) ORDER BY ALL"
            )
            == expected
        )
        assert fetched(con, "SELECT refit FROM grouplearn.models") == [(True,)]
        assert "Refit" not in str(fetched(con, f"EXPLAIN {train} REFIT"))
        assert "Refit" in str(fetched(con, f"EXPLAIN {train.replace('FOLDS 3', 'SAMPLE 10%')} REFIT"))
        con.execute(f"EXPLAIN ANALYZE {train.replace('FOLDS 3', 'SAMPLE 10%')} REFIT")
