"""Streams that are read once and not kept: what one-pass learners learn from them is what they learn from a table."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import grouplearn
from grouplearn import Connection
from grouplearn.learning import NUMBER, Artifact, Declaration, Hyperparameter, SequentialLearner, State

TRAIN = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (x, z) FROM rows"
KEPT = " rows were kept in a temporary table meanwhile"
NOT_KEPT = "rows can be read once: its 4,000 rows were not kept, and metrics are of at most 1,000 rows of a group"


@pytest.fixture
def con() -> Iterator[Connection]:
    with grouplearn.connect(progress=False) as connection:
        yield connection


def table(n: int = 4000, seed: int = 3) -> pa.Table:
    """Return rows of groups of many sizes, some of which cannot train."""
    rng = np.random.default_rng(seed)
    names = np.array(
        ["a", "b", "c", None, "few", "no label", "no feature", "infinite", "negative", "held", "ten"], dtype=object
    )
    share = [0.2, 0.2, 0.19, 0.2, 0.001, 0.05, 0.05, 0.02, 0.02, 0.05, 0.019]
    rows = pd.DataFrame({"g": rng.choice(names, n, p=share), "h": rng.integers(0, 2, n)})
    rows["x"], rows["z"], rows["w"] = rng.normal(size=n), rng.normal(size=n), rng.choice([0.0, 1.0, 2.0], n)
    rows["y"] = rows.x + 2 * rows.z + rng.normal(size=n)
    rows.loc[rng.random(n) < 0.05, "x"] = np.nan
    rows.loc[(rng.random(n) < 0.05) | (rows.g == "no label"), "y"] = np.nan
    rows.loc[rows.g == "no feature", "x"] = np.nan
    rows.loc[(rows.g == "infinite") & (rng.random(n) < 0.5), "y"] = np.inf
    rows.loc[rows.g == "negative", "w"] = -1
    rows["v"] = (rng.random(n) < 0.2) | (rows.g == "held")
    return pa.Table.from_pandas(rows, preserve_index=False)


def batches() -> Iterator[pa.RecordBatch]:
    return iter(table().to_batches(max_chunksize=300))


def sound() -> Iterator[pa.RecordBatch]:
    """Yield the same rows with finite labels."""
    rows = table()
    labels = rows["y"].to_numpy()
    return iter(rows.filter(pa.array(~np.isinf(labels))).to_batches(max_chunksize=300))


def trained(con: Connection, rows: Any, sql: str) -> tuple[str, pd.DataFrame, pd.DataFrame]:
    """Train on ``rows``, and return the first note, the model table and the weights.

    Rows that are read once cannot be read again for standard errors.
    """
    found = con.execute(sql).df()
    models = con.execute("SELECT * EXCLUDE (seconds) FROM m ORDER BY ALL").df()
    errors = ["standard_error", "statistic", "p_value", "lower", "upper", "note"]
    weights = con.execute(f"SELECT COLUMNS(lambda name: name NOT IN {errors}) FROM m_weights ORDER BY ALL").df()
    notes = [note for note in found.get("note", ()) if note is not None and "can be read once" in note]
    return (notes or [""])[0], models, weights


def same(left: pd.DataFrame, right: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(left, right, rtol=1e-9, atol=1e-12)


CLAUSES = [
    "VALIDATE NONE",
    "VALIDATE WHERE v",
    "VALIDATE WHERE v REFIT",
    "VALIDATE WHERE v WITH (weight = w, min_rows = 20)",
    "OVER GRID (l2 IN (0, 100), l1 IN (0, 1)) VALIDATE WHERE v REFIT",
    "ON NULL LABEL ERROR VALIDATE WHERE v",
]


@pytest.mark.parametrize("clause", CLAUSES)
def test_models_metrics_and_reasons_are_those_of_a_table(con: Connection, clause: str) -> None:
    """Groups have no more rows than are sampled, so that metrics are those of all."""
    sql = f"{TRAIN} GROUP BY g, h {clause}"
    _, *expected = trained(con, table(), sql)
    note, *found = trained(con, batches(), sql)
    assert NOT_KEPT in note
    assert "failed" in set(expected[0].status)
    assert "ERROR" in clause or "done" in set(expected[0].status)
    for each, other in zip(found, expected, strict=True):
        same(each, other)


def test_without_validate_the_models_of_all_rows_are_the_same(con: Connection) -> None:
    sql = f"{TRAIN} GROUP BY g WITH (weight = w)"
    _, models, weights = trained(con, table(), sql)
    _, found, found_weights = trained(con, batches(), sql)
    same(found_weights, weights)
    assert found[["g", "status", "error", "n_rows", "n_skipped"]].equals(
        models[["g", "status", "error", "n_rows", "n_skipped"]]
    )
    share = found.n_valid.sum() / (found.n_valid + found.n_train).sum()
    assert 0.07 < share < 0.13
    known = found[found.n_valid > 20]
    assert len(known) >= 4
    assert (abs(known.valid_rmse - 1) < 0.5).all()


def test_which_rows_are_held_out_depends_on_the_seed(con: Connection) -> None:
    counts = [
        tuple(trained(con, batches(), f"{TRAIN} GROUP BY g WITH (seed = {seed})")[1].n_valid) for seed in (1, 2, 1)
    ]
    assert counts[0] == counts[2] != counts[1]


def test_without_groups(con: Connection) -> None:
    _, _, weights = trained(con, table(), f"{TRAIN} VALIDATE NONE WHERE isfinite(y)")
    note, models, found = trained(con, batches(), f"{TRAIN} VALIDATE NONE WHERE isfinite(y)")
    assert "were not kept" in note
    same(found, weights)
    assert models.n_train[0] > 3000


def test_metrics_of_more_rows_are_those_of_a_sample(con: Connection) -> None:
    sql = f"{TRAIN} WHERE isfinite(y) VALIDATE NONE"
    _, models, _ = trained(con, table(40000), sql)
    _, found, _ = trained(con, iter(table(40000).to_batches(max_chunksize=3000)), sql)
    assert found.train_rmse[0] != models.train_rmse[0]
    assert abs(found.train_rmse[0] / models.train_rmse[0] - 1) < 0.1


def test_components(con: Connection) -> None:
    sql = "TRAIN OR REPLACE MODEL m USING pca FEATURES (x, z, h) FROM rows GROUP BY g WITH (n_components = 2)"
    results = []
    for rows in (table(), batches()):
        con.execute(sql)
        results.append(con.execute("FROM m_components ORDER BY ALL").df())
        assert rows is not None
    same(*results)


def test_joined_and_filtered(con: Connection) -> None:
    con.execute("CREATE TABLE bonus AS SELECT i AS h, i * 1.5 AS more FROM range(2) AS r(i)")
    sql = (
        "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y + more AS y FEATURES (x, z) FROM (SELECT r.*, more "
        "FROM rows AS r JOIN bonus USING (h)) WHERE x > -1 AND h IN (SELECT h FROM bonus) GROUP BY g VALIDATE NONE"
    )
    _, *expected = trained(con, table(), sql)
    note, *found = trained(con, batches(), sql)
    assert "were not kept" in note
    same(found[1], expected[1])


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (TRAIN.replace("x, z", "zscore(x), z"), "feature x is encoded: numbers as they are need not be"),
        (f"{TRAIN} GROUP BY g VALIDATE FOLDS 3", "VALIDATE trains several times"),
        (f"{TRAIN} GROUP BY ROLLUP (g)", "there are several levels of groups"),
        (f"{TRAIN} GROUP BY g HAVING count(*) > 5", "HAVING looks at whole groups"),
        (f"{TRAIN} WHERE x < (SELECT max(x) FROM rows)", "the statement reads it more than once"),
        (TRAIN.replace("FROM rows", "FROM (WITH r AS (FROM rows) FROM r)"), "the statement reads it more than once"),
        (f"{TRAIN} WITH (operator = 'gap')", "an operator is named"),
        (f"{TRAIN} WITH (solver = 'sgd', epochs = 1)", ""),
        (TRAIN.replace("linear_regression", "gbdt"), ""),
    ],
)
def test_other_statements_keep_the_rows_and_say_why(con: Connection, sql: str, why: str) -> None:
    note = trained_only(con, sound(), sql)
    assert KEPT in note
    assert note.endswith(f"meanwhile, as {why}" if why else "meanwhile")


def trained_only(con: Connection, rows: Any, sql: str) -> str:
    """Train, and return the note on how the rows were read."""
    (note,) = [note for note in con.execute(sql).df().note if note is not None and "can be read once" in note]
    return next(each for each in note.split("; ") if "can be read once" in each)


def test_explain_analyze_keeps_the_rows(con: Connection) -> None:
    rows = batches()
    plan = con.execute(f"EXPLAIN ANALYZE {TRAIN}").fetchall()
    assert any("measured" in line for (line,) in plan)
    assert next(rows, None) is None


def test_a_mistake_is_found_before_a_row_is_read(con: Connection) -> None:
    rows = table().to_reader()
    for wrong in (TRAIN.replace("z)", "q)"), f"{TRAIN} WITH (epoch = 1)", TRAIN.replace("PREDICT y", "PREDICT g")):
        with pytest.raises(grouplearn.Error):
            con.execute(wrong)
    assert rows.read_all().num_rows == 4000


def test_what_the_program_raises_is_the_error_and_nothing_is_stored(con: Connection) -> None:
    def rows_until(n: int) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches()):
            if number == n:
                raise ValueError("the server is away")
            yield batch

    rows = rows_until(5)
    with pytest.raises(
        grouplearn.Error, match='reading "rows" failed after 1,500 rows: ValueError: the server is away\n\nLINE 1'
    ):
        con.execute(TRAIN)
    assert con.execute("SHOW MODELS").fetchall() == []
    rows = batches()
    con.execute(TRAIN)
    assert rows is not None


@pytest.mark.parametrize("where", ["", "WHERE x > 100"])
def test_no_rows(con: Connection, where: str) -> None:
    rows = batches() if where else table(0).to_reader()
    with pytest.raises(grouplearn.Error, match="WHERE holds for no row of FROM" if where else "FROM has no rows"):
        con.execute(f"{TRAIN} {where}")
    assert rows is not None


def test_an_interrupt_ends_it(con: Connection) -> None:
    def endless() -> Iterator[pa.RecordBatch]:
        yield from batches()
        threading.Timer(0.2, con.interrupt).start()
        while True:
            yield from batches()

    rows = endless()
    with pytest.raises(grouplearn.Error, match=r"interrupted|INTERRUPT"):
        con.execute(TRAIN)
    assert con.execute("SHOW MODELS").fetchall() == []
    assert rows is not None


def test_in_a_transaction_and_stored_in_a_file(tmp_path: Path) -> None:
    with grouplearn.connect(tmp_path / "a.duckdb", progress=False) as con:
        con.begin()
        rows = sound()
        con.execute(f"{TRAIN} GROUP BY h")
        con.commit()
        assert rows is not None
    with grouplearn.connect(tmp_path / "a.duckdb", progress=False) as con:
        assert con.execute("SELECT count(*) FROM m WHERE status = 'done' AND n_rows > 1900").fetchall() == [(2,)]
        assert con.execute(
            "WITH r AS (SELECT 1.0 AS x, 2.0 AS z, 1 AS h) SELECT count(prediction) FROM m_predict(r)"
        ).fetchall() == [(1,)]


# --- learners that visit rows


class Drifting(SequentialLearner):
    """The mean of the labels, each batch of rows moving it: it depends on the order of rows, and on how many came."""

    declaration = Declaration(
        name="drifting",
        summary="the running mean of a number",
        labels=frozenset({NUMBER}),
        hyperparameters=(Hyperparameter("pull", "float", 1.0, "how far rows move it", "a test", low=0.0),),
        default_epochs=2,
        form="linear",
        online=True,
    )

    def init(self, problem: Any, configs: Any) -> State:
        names = ("mean", "seen", "loss")
        return State({name: np.zeros(len(configs)) for name in names}, np.zeros(len(configs), bool))

    def train(self, problem: Any, configs: Any, state: State, shard: Any, epoch: int) -> State:
        seen = state.tensors["seen"] + shard.weight.sum()
        pull = np.array([config["pull"] for config in configs])
        away = (shard.weight * shard.y).sum() - shard.weight.sum() * state.tensors["mean"]
        mean = state.tensors["mean"] + pull * away / seen
        return State({"mean": mean, "seen": seen, "loss": np.zeros(len(configs))}, state.done)

    def finalize(self, problem: Any, configs: Any, state: State, index: int) -> Artifact:
        mean = state.tensors["mean"][index : index + 1]
        return Artifact("tensors", {"weights": np.zeros((1, problem.n_features)), "intercept": mean.copy()})

    def score(self, label: Any, artifact: Artifact, x: Any) -> Any:
        return np.full((x.shape[0], 1), artifact.tensors["intercept"][0])


@pytest.fixture
def drifting() -> Iterator[None]:
    grouplearn.register_learner(Drifting)
    yield
    grouplearn.unregister("drifting")


MEAN = "TRAIN OR REPLACE MODEL m USING drifting PREDICT y FEATURES (x) FROM rows WHERE isfinite(y) AND isfinite(x) GROUP BY h"


@pytest.mark.usefixtures("drifting")
@pytest.mark.parametrize(
    "clause", ["VALIDATE NONE", "VALIDATE WHERE v", "OVER GRID (pull IN (1, 0.5)) VALIDATE WHERE v REFIT", ""]
)
def test_a_learner_that_visits_rows_does_so_once(con: Connection, clause: str) -> None:
    given = f"{clause} WITH (epochs = 1)"
    _, models, weights = trained(con, table(), f"{MEAN} {given}")
    note, found, found_weights = trained(con, batches(), f"{MEAN} {given}")
    assert "were not kept" in note
    if clause:
        assert found.n_train.equals(models.n_train)
    # The running mean is that of all rows, in any order.
    full = found_weights[(found_weights.feature == "(intercept)") & (found_weights.get("pull", 1.0) == 1.0)]
    expected = weights[(weights.feature == "(intercept)") & (weights.get("pull", 1.0) == 1.0)]
    same(full, expected)


@pytest.mark.usefixtures("drifting")
def test_more_epochs_keep_the_rows(con: Connection) -> None:
    note = trained_only(con, sound(), MEAN)
    assert note.endswith("as drifting has 2 epochs: epochs = 1 visits each row once")


@pytest.mark.usefixtures("drifting")
def test_a_learner_that_fails_fails_its_group(con: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    visit: Callable[..., State] = Drifting.train

    def train(self: Drifting, problem: Any, configs: Any, state: State, shard: Any, epoch: int) -> State:
        if (shard.y > 100).any():
            raise ValueError("a label is too large")
        return visit(self, problem, configs, state, shard, epoch)

    monkeypatch.setattr(Drifting, "train", train)
    sql = MEAN.replace("PREDICT y", "PREDICT y + 200 * h AS y")
    _, models, _ = trained(con, batches(), f"{sql} VALIDATE NONE WITH (epochs = 1)")
    assert list(models.status) == ["done", "failed"]
    assert models.error[1] == "a label is too large"


# --- memory

MEMORY = """
import resource, sys
import numpy as np, pyarrow as pa
import grouplearn

def batches(n):
    rng = np.random.default_rng(0)
    for _ in range(n // 50_000):
        x = rng.normal(size=(8, 50_000))
        features = {f"x{i}": each for i, each in enumerate(x)}
        yield pa.record_batch({**features, "g": rng.integers(0, 5, 50_000), "y": x.sum(axis=0)})

con = grouplearn.connect(progress=False)
con.execute("SET threads = 2")
rows = batches(int(sys.argv[1]))
con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x0, x1, x2, x3, x4, x5, x6, x7) FROM rows GROUP BY g")
assert con.execute("SELECT sum(n_rows) FROM m").fetchall() == [(int(sys.argv[1]),)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def test_memory_does_not_grow_with_the_rows() -> None:
    def peak(n: int) -> float:
        done = subprocess.run([sys.executable, "-c", MEMORY, str(n)], capture_output=True, text=True, check=True)
        return float(done.stdout.splitlines()[-1])  # DuckDB may show progress before it

    peaks = peak(1_000_000), peak(4_000_000)
    # 3 million rows more take 240 MB as numbers.
    assert peaks[1] - peaks[0] < 60, peaks
