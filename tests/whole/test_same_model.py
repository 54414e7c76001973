"""The same model everywhere: bit for bit, on one, two and four workers, in process and on Ray, whatever the threads of DuckDB."""

import pytest
from helpers.learners import OF_ROWS
from helpers.thorough import THOROUGH

import grouplearn
from grouplearn.plan import physical

STATEMENTS = {
    "linear_regression": "PREDICT y FEATURES (x, zscore(z), onehot(kind)) OVER GRID (l1 IN (0, 2), l2 IN (0, 10))",
    "logistic_regression": "PREDICT y > 2 FEATURES (x, zscore(z), onehot(kind)) OVER GRID (l1 IN (0, 2), l2 IN (0, 1))",
    "linear_svm": "PREDICT kind FEATURES (x, zscore(z)) OVER GRID (l1 IN (0, 2), l2 IN (0, 1))",
    "linear_learner": "PREDICT y FEATURES (zscore(x), zscore(z)) OVER GRID (loss IN ('squared', 'huber'), l2 IN (0, 1))",
    "poisson_regression": "PREDICT y FEATURES (x, zscore(z), onehot(kind)) OVER GRID (l1 IN (0, 2), l2 IN (0, 1))",
    "gbdt": "PREDICT y > 2 FEATURES (x, z, ordinal(kind)) OVER GRID (num_leaves IN (4, 9), num_iterations IN (3, 8))",
    "random_forest": "PREDICT y > 2 FEATURES (x, z, ordinal(kind)) OVER GRID (num_leaves IN (4, 9), num_iterations IN (3, 8))",
    "mlp": "PREDICT y FEATURES (x, zscore(z)) OVER GRID (learning_rate IN (0.01, 0.001), hidden_layers IN ([5], [3, 3]))",
    "kmeans": "FEATURES (x, zscore(z), onehot(kind)) OVER GRID (k IN (2, 3, 4, 5))",
    "pca": "FEATURES (x, zscore(z), onehot(kind)) OVER GRID (n_components IN (1, 2, 3, 4))",
}
#: Executor, workers, threads of DuckDB.
FIRST, OTHERS = ("local", 1, 2), [("local", 2, 1), ("ray", 1, 2), ("local", 4, 2), ("ray", 2, 1), ("ray", 4, 2)]


def model_bits(name: str, executor: str, workers: int, threads: int) -> tuple[object, ...]:
    with grouplearn.connect(progress=False) as con:
        con.execute(f"SET threads = {threads}")
        con.execute(
            "CREATE TABLE t AS SELECT hash(i) % 5 AS g, hash(i, 1) % 1000 / 100 AS x, hash(i, 2) % 1000 / 10 AS z, "
            "'k' || hash(i, 3) % 4 AS kind, x / 3 + z / 50 + hash(i, 4) % 100 / 100 AS y FROM range(2000) AS r(i)"
        )
        clauses, over = STATEMENTS[name].split("OVER")
        con.execute(
            f"TRAIN MODEL m USING {name} {clauses} FROM t GROUP BY ROLLUP (g) OVER {over} KEEP ALL "
            f"WITH (executor = '{executor}', workers = {workers}, seed = 3{', epochs = 3' if name == 'mlp' else ''})"
        )
        artifacts = con.execute(
            "SELECT group_id, config, sha256 FROM grouplearn.artifacts SEMI JOIN grouplearn.models USING (model) ORDER BY ALL"
        ).fetchall()
        metrics = con.execute(
            "SELECT COLUMNS('train_.*|valid_.*') FROM m ORDER BY g, model_level, COLUMNS(*)"
        ).fetchall()
        return artifacts, metrics


@pytest.mark.parametrize("name", OF_ROWS)
def test_bitwise_the_same_model(name: str) -> None:
    expected = model_bits(name, *FIRST)
    assert len(expected[0]) == 6 * 4
    number = OF_ROWS.index(name)
    for setting in OTHERS if THOROUGH else OTHERS[number % len(OTHERS) :][:1]:
        assert model_bits(name, *setting) == expected, setting


#: Operator, workers, most configs of a pack (as a memory limit says).
PLACES = [
    ("group_task_parallel", 1, 64),
    ("group_task_parallel", 1, 1),
    ("model_task_parallel", 2, 64),
    ("gap", 1, 64),
    ("gap", 2, 64),
    ("gap", 3, 1),
]


def networks(monkeypatch: pytest.MonkeyPatch, operator: str, workers: int, most: int, validate: str) -> list[object]:
    monkeypatch.setattr(physical, "most_packed", lambda *_: most)
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT greatest(2, hash(i) % 5) AS g, hash(i, 1) % 1000 / 1000 AS x, "
            "hash(i, 2) % 1000 / 500 AS z, x * z + hash(i, 4) % 100 / 1000 AS y FROM range(900) AS r(i)"
        )
        con.execute(
            "TRAIN MODEL m USING mlp PREDICT y FEATURES (x, z) FROM t GROUP BY g "
            "OVER GRID (learning_rate IN (0.01, 0.03), hidden_layers IN ([5], [3, 3])) "
            f"{validate} WITH (epochs = 3, seed = 3, operator = '{operator}', workers = {workers}, executor = 'local')"
        )
        artifacts = con.execute(
            "SELECT group_id, config, sha256 FROM grouplearn.artifacts SEMI JOIN grouplearn.models USING (model) ORDER BY ALL"
        ).fetchall()
        return (
            artifacts
            + con.execute("SELECT g, learning_rate, hidden_layers, valid_rmse, is_best FROM m ORDER BY ALL").fetchall()
        )


@pytest.mark.parametrize("validate", ["VALIDATE SAMPLE 20%", "VALIDATE FOLDS 2"])
def test_a_pass_over_blocks_is_the_same_wherever_it_is_made(monkeypatch: pytest.MonkeyPatch, validate: str) -> None:
    """Groups of several blocks, whole or split, beside other packs and groups or not."""
    monkeypatch.setattr(physical, "BLOCK_ROWS", 64)
    expected = networks(monkeypatch, *PLACES[0], validate)
    assert len(expected) == 2 * 3 * 4
    for place in PLACES[1:]:
        assert networks(monkeypatch, *place, validate) == expected, place


BESIDE_WIDE = {
    "linear_regression": ("PREDICT y", ("", "l2 = 1", "l1 = 0.5")),
    "logistic_regression": (
        "PREDICT y > 9",
        ("l2 = 0.5", "l1 = 0.5", "solver = 'coordinate_descent'", "solver = 'sgd', epochs = 2"),
    ),
    "linear_svm": ("PREDICT kind", ("", "loss = 'hinge'")),
    "poisson_regression": ("PREDICT round(y)", ("l2 = 1",)),
    "gbdt": ("PREDICT y", ("num_iterations = 4, min_data_in_leaf = 3",)),
    "random_forest": ("PREDICT kind", ("num_iterations = 4",)),
    "mlp": ("PREDICT y", ("epochs = 2",)),
    "kmeans": ("", ("k = 2",)),
    "pca": ("", ("",)),
}
RESTS = ("", "VALIDATE SAMPLE 30%", "VALIDATE FOLDS 3")


@pytest.mark.examples(4)
@pytest.mark.parametrize(
    ("name", "options", "rest", "features"),
    [
        (
            name,
            options,
            RESTS[(place + at) % 3],
            ("onehot(a), x, 2 * x + 1 AS x2", "onehot(a), onehot(a) AS dup, x")[at % 2],
        )
        for place, (name, (_, every)) in enumerate(BESIDE_WIDE.items())
        for options in every
        for at in range(3)
    ],
)
def test_a_group_is_as_alone_beside_one_of_many_more_columns(name: str, options: str, rest: str, features: str) -> None:
    """How a group trains follows from its own columns: 4 categories here, where its neighbour has 600."""
    label, _ = BESIDE_WIDE[name]
    found = []
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT CASE WHEN i < 1200 THEN 1 ELSE 2 + i % 5 END AS g, 'k' || hash(i, 9) % 3 AS kind,"
            " CASE WHEN g = 1 THEN i % 600 ELSE hash(i, 1) % 4 END::INTEGER AS a, (hash(i, 3) % 100)::INTEGER AS x,"
            " a % 7 + x / 10 + hash(i, 5) % 10 AS y FROM range(1350) AS r(i)"
        )
        for which in ("", "WHERE g > 1", "WHERE g = 4"):
            given = f"WITH ({options})" if options else ""
            con.execute(
                f"TRAIN OR REPLACE MODEL m USING {name} {label} FEATURES ({features}) FROM t {which} GROUP BY g {rest} {given}"
            )
            metrics = con.execute(
                "SELECT COLUMNS('train_.*|valid_.*|status|n_.*|epochs') FROM m WHERE g = 4"
            ).fetchall()
            digests = (
                "SELECT sha256 FROM grouplearn.artifacts JOIN grouplearn.groups USING (model, group_id)"
                " SEMI JOIN grouplearn.models USING (model) WHERE keys[1] = '4'"
            )
            found.append((repr(metrics), con.execute(digests).fetchall()))
    assert found[0] == found[1] == found[2]
    assert "'done'" in found[0][0]
