"""What a machine cannot hold is refused before it is spent: in a process of its own, with little memory to have."""

from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys

import numpy as np
import pytest

import grouplearn
from grouplearn.data.dataset import Group, Runs
from grouplearn.errors import BindError

CHILD = """
import json, resource, sys
import grouplearn
for statement in json.load(sys.stdin):
    with grouplearn.connect(progress=None) as con:
        con.execute("SET threads = 1; SET memory_limit = '500MB'; SET enable_progress_bar = false")
        con.execute("CREATE TABLE t AS SELECT i % 3 AS k, i * 1.0 AS x, i * 2.0 + 1 AS y FROM range(2000) AS r(i)")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            con.execute(statement).fetchall()
            said = "done"
        except grouplearn.Error as error:
            said = error.message if hasattr(error, "message") else str(error)
        print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, said]), flush=True)
"""
#: Address space that a child may have: Python, DuckDB and NumPy map some, and what is refused would take much more.
ADDRESSES = 6 << 30
LINEAR = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY {}"
NETWORK = "TRAIN MODEL m USING mlp PREDICT y FEATURES (x) FROM t GROUP BY k"
REFUSED = {
    LINEAR.format("k") + " OVER GRID (l2 IN (SELECT i FROM range(100000000) AS r(i)))": (
        "this subquery has more than 100,000 rows; at most so many configurations are trained"
    ),
    LINEAR.format("x") + " OVER GRID (l2 IN (SELECT i FROM range(100000) AS r(i))) WITH (memory_limit = '4GB')": (
        "the results of 200,000,000 trials of 2,000 groups take about 120 GB of memory; the limit is 4 GB"
    ),
    "TRAIN MODEL m USING pca FEATURES (hash(x::VARCHAR, 30000)) FROM t WITH (memory_limit = '4GB')": (
        "pca takes about 43 GB of memory for 30,000 columns; the limit is 4 GB"
    ),
    NETWORK + " WITH (hidden_layers = [1000000000], memory_limit = '4GB')": (
        "the results of 3 trials of 3 groups take about 110 GB of memory; the limit is 4 GB"
    ),
    LINEAR.format("k") + f" OVER GRID (l2 IN ({', '.join(map(str, range(100001)))}))": (
        "the grid has 100,001 configurations; at most 100,000 are trained"
    ),
    LINEAR.format("k") + " WITH (workers = 2000000000)": "workers must be a whole number of at most 10000",
    LINEAR.format("k") + " VALIDATE FOLDS 1000000000": "VALIDATE FOLDS takes a whole number from 2 to 1000",
    LINEAR.format("k") + " OVER RANDOM (l2 BETWEEN 0 AND 1) WITH (trials = 1000000000)": (
        "trials must be a whole number of at most 100000"
    ),
    NETWORK + " OVER PBT (learning_rate BETWEEN 0.1 AND 1) WITH (trials = 1000000000)": (
        "trials must be a whole number of at most 100000"
    ),
    NETWORK + " OVER ASHA (learning_rate BETWEEN 0.1 AND 1) WITH (parallel_trials = 1000000000)": (
        "parallel_trials must be a whole number of at most 100000"
    ),
    NETWORK + " OVER HYPERBAND (learning_rate BETWEEN 0.1 AND 1) WITH (epochs = 2147483647)": (
        "HYPERBAND over 2147483647 epochs begins with 1,792,078,897 trials; at most 100,000 are trained"
    ),
    "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (hash(x::VARCHAR, 2000000000)) FROM t": (
        "buckets must be a whole number from 1 to 1073741824"
    ),
    f"TRAIN MODEL m USING linear_regression PREDICT y FROM t GROUP BY {'(' * 20000}k{')' * 20000}": (
        "brackets are nested too deeply"
    ),
    f"TRAIN MODEL m USING linear_regression PREDICT y FROM t WHERE {'(' * 20000}true{')' * 20000}": (
        "Max expression depth limit of 1000 exceeded"
    ),
    LINEAR.format(f"GROUPING SETS ({', '.join(['(k)'] * 100000)})"): "too many grouping sets: 100,000",
    LINEAR.format(f"CUBE ({', '.join(f'x + {number}' for number in range(40))})"): "too many grouping sets",
}
WORKS = {
    LINEAR.format("k") + " OVER GRID (l2 IN (SELECT i FROM range(1000) AS r(i)))": "done",
    f"{LINEAR.format('k')} WITH (seed = {' ' * 5_000_000}1)": "done",
    "EXPLAIN " + LINEAR.format("x") + " OVER GRID (l2 IN (SELECT i FROM range(20000) AS r(i)))": "done",
    "EXPLAIN " + NETWORK + " WITH (epochs = 2147483647)": "done",
    # One component of 1,000 columns for each of 200 groups, not 1,000.
    "TRAIN MODEL m USING pca FEATURES (hash(k::VARCHAR, 999), x) FROM t GROUP BY x // 10 AS g"
    " WITH (n_components = 1, memory_limit = '200MB')": "done",
}


@pytest.mark.thorough
def test_refused_or_done_in_little_memory() -> None:
    """In one process, whose greatest memory so far hides only what is less than what an earlier statement took."""

    def little() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))

    statements = REFUSED | WORKS
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps([*statements]),
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=little,
        check=False,
    )
    seen = [json.loads(line) for line in child.stdout.splitlines()]
    for (statement, said), (grew, told) in zip(statements.items(), seen, strict=False):
        assert said in told, statement[:300]
        assert grew << 10 < 500_000_000, statement[:300]
    assert (child.returncode, len(seen)) == (0, len(statements)), child.stderr[-2000:]


def test_plans_of_many_groups_are_refused_as_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grouplearn.extract.counts.group_counts._ALWAYS", 1 << 20)
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i AS k, i * 1.0 AS x, i * 2.0 AS y FROM range(5000) AS r(i)")
        for explain in ("", "EXPLAIN "):
            with pytest.raises(
                BindError, match=r"more than 5,000 groups, which take 1 MB of memory, the limit"
            ) as caught:
                con.execute(explain + LINEAR.format("k") + " WITH (memory_limit = '1MB')")
            assert "HAVING count(*) >= n" in str(caught.value)
        con.execute(LINEAR.format("k % 10") + " WITH (memory_limit = '1MB')")


def test_explain_tells_the_memory_of_the_results() -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i % 4 AS k, i * 1.0 AS x, i * 2.0 AS y FROM range(100) AS r(i)")
        lines = [line for (line,) in con.execute("EXPLAIN " + LINEAR.format("k")).fetchall()]
    assert "  Store: 4 trials of 4 groups, 10 kB of memory" in lines


def test_the_memory_of_boosted_trials_is_that_of_text_and_trees() -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i % 3 AS k, i * 1.0 AS x, i * 2.0 AS y FROM range(3000) AS r(i)")
        trees = "USING gbdt PREDICT y FEATURES (x) FROM t GROUP BY k WITH (num_iterations = 100)"
        lines = [line for (line,) in con.execute(f"EXPLAIN TRAIN MODEL m {trees}").fetchall()]
    assert "  Store: 3 trials of 3 groups, 4.2 MB of memory" in lines


def test_components_take_the_memory_of_those_that_are_kept() -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i % 50 AS g, 'k' || i % 3 AS k, i * 1.0 AS x FROM range(2000) AS r(i)")
        trains = (
            "TRAIN OR REPLACE MODEL m USING pca FEATURES (hash(k, 999), x) FROM t GROUP BY g WITH (n_components = {})"
        )
        for kept, size in ((1, "930 kB"), (2, "1.3 MB"), ("NULL", "17 MB")):
            lines = [line for (line,) in con.execute(f"EXPLAIN {trains.format(kept)}").fetchall()]
            assert f"  Store: 50 trials of 50 groups, {size} of memory" in lines
        con.execute(trains.format(1))


def test_runs_of_rows_are_a_sequence_of_pairs() -> None:
    runs = Runs(np.array([[0, 2], [5, 9], [9, 10]]), 1, 3)
    assert (len(runs), list(runs), runs[1], runs[:1]) == (2, [(5, 9), (9, 10)], (9, 10), ((5, 9),))
    assert runs == ((5, 9), (9, 10))
    assert hash(runs) == hash(((5, 9), (9, 10)))
    assert pickle.loads(pickle.dumps(runs)) == runs
    assert Group(0, 0, (), runs).n_rows == 5


def test_forests_of_few_rows_take_as_many_leaves_as_these_fill() -> None:
    """By 255 leaves a tree the results of 3,000 groups would take 100 GB."""
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 3000 AS g, hash(i) % 1000 AS x, hash(i, 5) % 3 AS y FROM range(30000) AS r(i)"
        )
        statement = (
            "TRAIN MODEL m USING random_forest PREDICT y FEATURES (x) FROM t GROUP BY g WITH (memory_limit = '4GB')"
        )
        assert con.execute(f"EXPLAIN {statement}").fetchall()
        con.execute("CREATE TABLE u AS SELECT i % 3 AS g, i AS x, i % 7 AS y FROM range(300000) AS r(i)")
        large = statement.replace("FROM t", "FROM u").replace("WITH (", "WITH (num_iterations = 100000, ")
        with pytest.raises(grouplearn.Error, match="the results of 3 trials of 3 groups take about"):
            con.execute(large)
