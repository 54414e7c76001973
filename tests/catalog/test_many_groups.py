"""What predicts many groups of few rows: the models' kernels are called once for a chunk of rows, not once for each group."""

import pytest

import grouplearn
from grouplearn.learners.registry import learner
from grouplearn.prediction.scoring import Scorer
from grouplearn.train.rows import chosen

GROUPS = 60
STATEMENTS = {
    "numbers": "USING mlp PREDICT y FEATURES (zscore(x), impute(z, 'mean'))",
    "two classes": "USING mlp PREDICT y > 3 FEATURES (x, z)",
    # Some groups have two of the classes only.
    "classes": "USING mlp PREDICT CASE WHEN i % 60 < 20 THEN i // 60 % 2 ELSE i // 60 % 3 END FEATURES (x, z)",
    "clusters": "USING kmeans FEATURES (x, zscore(z))",
    "components": "USING pca FEATURES (x, z)",
}


@pytest.fixture
def con():
    with grouplearn.connect(progress=None) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, i % 60 AS g, (i * 7919 % 101) / 10.0 AS x, (i * 104729 % 97)::DOUBLE AS z, i % 11 AS y"
            f" FROM range({GROUPS * 20}) AS r(i)"
        )
        # Values that are missing, or far out, and groups that are not known.
        connection.execute(
            "CREATE TABLE rows AS SELECT i, g, CASE WHEN i % 17 = 0 THEN NULL WHEN i % 19 = 0 THEN 'infinity' ELSE x END AS x,"
            " CASE WHEN i % 13 <> 0 THEN z END AS z, y FROM t UNION ALL SELECT i, -1, x, z, y FROM t WHERE i < 9"
        )
        yield connection


def predictions(con) -> list[tuple]:
    return con.execute("SELECT predict('m', rows) FROM rows ORDER BY i, g").fetchall()


@pytest.mark.examples(2)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_groups_together_are_predicted_as_one_by_one(con, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = " WITH (epochs = 2)" if "mlp" in STATEMENTS[kind] else ""
    con.execute(f"TRAIN MODEL m {STATEMENTS[kind]} FROM t GROUP BY g{options}")
    calls = []
    alone = Scorer._scored
    monkeypatch.setattr(Scorer, "_scored", lambda *given: calls.append(1) or alone(*given))
    together = predictions(con)
    assert any(row[0]["predicted"] or row[0]["value"] or row[0]["probabilities"] for row in together)
    if kind != "classes":  # whose networks are of two shapes
        assert not calls
    for name in ("mlp", "kmeans", "pca"):
        monkeypatch.setattr(type(learner(name)), "score_runs", lambda *_: None)
    con.execute("DROP MODEL m")
    con.execute(f"TRAIN MODEL m {STATEMENTS[kind]} FROM t GROUP BY g{options}")
    calls.clear()
    assert str(predictions(con)) == str(together)  # as text: NaN are one
    assert len(calls) >= GROUPS


def test_the_memory_of_the_machine_is_not_looked_up_for_each_group_that_trains(con, monkeypatch) -> None:
    asked = []
    limit = chosen.memory_limit
    monkeypatch.setattr(chosen, "memory_limit", lambda *given: asked.append(1) or limit(*given))
    con.execute("TRAIN MODEL m USING gbdt PREDICT y FEATURES (x) FROM t GROUP BY g WITH (num_iterations = 1)")
    assert con.execute("SELECT count(*) FROM m WHERE status = 'done'").fetchone() == (GROUPS,)
    assert not asked
