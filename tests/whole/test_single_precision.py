"""FLOAT stays FLOAT: columns of single precision take half the bytes, and make the models of the same numbers as DOUBLE.

Every learner, on tables with missing, constant, huge and tiny values, in groups of one row and of several blocks: models, metrics
and predictions are the same to the last bit, whatever the executor, the workers and the memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.dying_runs import dies
from helpers.thorough import THOROUGH, every_other, some
from torch import nn

import grouplearn
from grouplearn.data import encoders, shard
from grouplearn.plan import physical

Tables = Callable[..., grouplearn.Connection]
#: Rows of each group: one of several blocks, which trains by sums over them.
SIZES = (1, 2, 9, 60, 130, shard.BLOCK_ROWS + 700)
#: Likewise, where blocks are small, too.
SMALL_BLOCK = 2048
FEWER = (*SIZES[:-1], SMALL_BLOCK + 700)
COLUMNS = ("a", "b", "c", "d", "e", "f", "s", "t")
#: What FLOAT holds at its ends: huge, tiny and subnormal numbers, and zeros of both signs.
ENDS = np.array([1e38, -3.4028235e38, 1e-38, -1e-45, 1e-41, 0.0, -0.0, 3.3, 1e-6, 16777217.0], np.float32)
PLAIN = "a, b, c, d, e, f, s, t"

STATEMENTS = {
    "least squares": f"USING linear_regression PREDICT y FEATURES ({PLAIN}) {{}} VALIDATE SAMPLE 20%",
    "ridge": f"USING linear_regression PREDICT y FEATURES ({PLAIN}) {{}} OVER GRID (l2 IN (0, 1, 20)) VALIDATE FOLDS 3",
    "lasso": "USING linear_regression PREDICT y FEATURES (a, b, s) {} OVER GRID (l1 IN (0.1, 4)) WITH (weight = w)",
    "mape": "USING linear_regression PREDICT y FEATURES (a, b, s) {} VALIDATE WHERE id % 5 = 0 OPTIMIZE mape",
    "imputed": "USING linear_regression PREDICT y FEATURES (impute(a, 0), impute(b, 'median'), impute(c, 0.1), onehot(k)) {}",
    "scaled": "USING linear_regression PREDICT y FEATURES (zscore(a), minmax(b), c, onehot(k)) {} OVER GRID (l2 IN (0, 1))",
    "wide": "USING linear_regression PREDICT y FEATURES (a, b, hash(k, 700)) {} OVER GRID (l2 IN (1, 9))",
    "logistic": f"USING logistic_regression PREDICT p FEATURES ({PLAIN}) {{}} OVER GRID (l2 IN (0, 3), l1 IN (0, 1))",
    "indicators": "USING logistic_regression PREDICT p FEATURES (a, b, onehot(k)) {} WITH (class_weight = 'balanced')",
    "softmax": "USING logistic_regression PREDICT k FEATURES (a, b, s, t) {} OVER GRID (l2 IN (0.1, 3)) VALIDATE SAMPLE 20%",
    "sparse": "USING logistic_regression PREDICT p FEATURES (a, s, hash(k, 700)) {} OVER GRID (l2 IN (1, 3))",
    "svm": "USING linear_svm PREDICT k FEATURES (a, b, s, t) {} OVER GRID (l2 IN (0.1, 3)) VALIDATE SAMPLE 20%",
    "poisson": "USING poisson_regression PREDICT n FEATURES (a, b, c, s, t) {} OVER GRID (l2 IN (0.1, 3)) VALIDATE SAMPLE 20%",
    "gbdt": f"USING gbdt PREDICT y FEATURES ({PLAIN}, ordinal(k)) {{}} VALIDATE SAMPLE 20% WITH (num_iterations = 4)",
    "linear leaves": "USING gbdt PREDICT y FEATURES (a, b, s) {} OVER GRID (linear_tree IN (true)) WITH (num_iterations = 3)",
    "classes by trees": "USING gbdt PREDICT k FEATURES (a, b, s) {} VALIDATE FOLDS 2 WITH (num_iterations = 3)",
    "forest": f"USING random_forest PREDICT p FEATURES ({PLAIN}) {{}} VALIDATE SAMPLE 20% WITH (num_iterations = 4)",
    "net": "USING mlp PREDICT y FEATURES (a, b, s, t) {} VALIDATE SAMPLE 20% WITH (epochs = 2)",
    "double net": "USING mlp PREDICT k FEATURES (a, b, s) {} OVER GRID (precision IN ('double')) WITH (epochs = 2)",
    "arrays": "USING gbdt PREDICT y FEATURES (v, s) {} VALIDATE SAMPLE 20% WITH (num_iterations = 3)",
    "arrays and nets": "USING mlp PREDICT p FEATURES (v, zscore(a)) {} WITH (epochs = 1)",
    "own net": "USING own_net PREDICT y FEATURES (a, b, s, t) {} WITH (epochs = 1)",
}
SETTINGS = ("memory_limit = '1MB'", "operator = 'gap', workers = 2", "workers = 2")
#: The cases of a few statements that other settings repeat: one of each way in which rows are read.
FEW = ("ridge", "logistic", "softmax", "indicators", "wide", "gbdt", "net", "arrays")


@pytest.fixture(autouse=True)
def own_net() -> Iterator[None]:
    def made(problem: Any, config: Any) -> nn.Module:
        del config
        return nn.Sequential(nn.Linear(problem.n_features, 4), nn.Tanh(), nn.Linear(4, problem.n_outputs))

    grouplearn.register("own_net", made)
    yield
    grouplearn.unregister("own_net")


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The types of the numbers before and after each encoding of dense rows."""
    seen: list[tuple[str, str]] = []
    encode = encoders.encode

    def noted(fitted: Any, columns: Any, *others: Any, **more: Any) -> Any:
        found = encode(fitted, columns, *others, **more)
        if isinstance(found, np.ndarray):
            seen.append((columns.numeric.dtype.name, found.dtype.name))
        return found

    monkeypatch.setattr(encoders, "encode", noted)
    return seen


def create(con: grouplearn.Connection, seed: int, *, extreme: bool, sizes: tuple[int, ...] = SIZES) -> None:
    """Make ``narrow``, with FLOAT, SMALLINT and BOOLEAN columns, and ``wide``, with the same numbers as DOUBLE."""
    random, n = np.random.default_rng(seed), sum(sizes)
    columns: dict[str, Any] = {name: random.normal(3, 2, n).astype(np.float32) for name in "abcdef"}
    columns["b"] *= np.float32(1e6)
    columns["c"][:] = np.float32(0.1)  # constant
    columns["e"] = np.where(random.random(n) < 0.5, columns["a"], np.nextafter(columns["a"], np.float32(np.inf)))
    columns["s"], columns["t"] = random.integers(-300, 300, n).astype(np.int16), random.random(n) < 0.3
    truth = columns["a"] - columns["b"] / 1e6 + columns["s"] / 300
    if extreme:
        for name in "abf":
            at = random.random(n) < 0.02
            columns[name][at] = random.choice(ENDS, at.sum())
        columns["d"] *= np.float32(1e-42)  # subnormal
    labels = {
        "y": truth + random.normal(size=n),
        "p": truth + random.normal(size=n) > 2,
        "n": random.poisson(np.exp(np.clip(truth / 4, -3, 3))).astype(float),
        "k": np.array(["u", "v", "w"])[random.integers(0, 3, n)],
        "w": random.integers(0, 4, n) / 2,
        "g": np.repeat(np.arange(len(sizes)), sizes),
        "id": np.arange(n),
    }
    arrays = [
        None if number % 97 == 5 else row for number, row in enumerate(random.normal(size=(n, 5)).astype(np.float32))
    ]
    known = {name: pa.array(values, mask=random.random(n) < 0.01 * (name in "ab")) for name, values in columns.items()}
    con.register("given", pa.table({**known, **labels, "v": pa.array(arrays, pa.list_(pa.float32(), 5))}))
    con.execute("CREATE OR REPLACE TABLE narrow AS FROM given").fetchall()
    con.unregister("given")
    doubles = ", ".join([*(f"{name}::DOUBLE AS {name}" for name in COLUMNS), "v::DOUBLE[5] AS v"])
    con.execute(f"CREATE OR REPLACE TABLE wide AS SELECT * REPLACE ({doubles}) FROM narrow").fetchall()


def with_options(statement: str, options: str) -> str:
    """Return a statement with more options than it has."""
    if "WITH (" in statement:
        return statement.replace("WITH (", f"WITH ({options}, ")
    return f"{statement} WITH ({options})"


def trained(con: grouplearn.Connection, statement: str, table: str, grouping: str = "g") -> list[Any]:
    """Return what a statement says of its models on a table, and what they predict for both tables."""
    con.execute(f"TRAIN OR REPLACE MODEL m {statement.format(f'FROM {table} GROUP BY {grouping}')}").fetchall()
    return said(con)


def said(con: grouplearn.Connection, tables: tuple[str, ...] = ("narrow", "wide")) -> list[Any]:
    queries = (
        "SELECT * EXCLUDE (seconds) FROM m ORDER BY ALL",
        "SELECT group_id, config, sha256 FROM grouplearn.artifacts SEMI JOIN grouplearn.models USING (model) ORDER BY ALL",
        "SELECT * EXCLUDE (model) FROM grouplearn.errors SEMI JOIN grouplearn.models USING (model) ORDER BY ALL",
        *(f"SELECT predict('m', {table}) FROM {table} WHERE id % 7 = 0 OR g < 3 ORDER BY id" for table in tables),
    )
    return [repr(con.execute(query).fetchall()) for query in queries]


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    """Give the connection that has the tables of a seed, of which each is made once."""
    with ExitStack() as open_ones:

        @functools.cache
        def made(seed: int, extreme: bool, sizes: tuple[int, ...] = SIZES) -> grouplearn.Connection:
            con = open_ones.enter_context(grouplearn.connect(progress=False))
            create(con, seed, extreme=extreme, sizes=sizes)
            return con

        yield made


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(physical, "BLOCK_ROWS", SMALL_BLOCK)


@pytest.mark.examples(2)
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("name", "extreme"), [*((name, True) for name in STATEMENTS), *((name, False) for name in some([*STATEMENTS], 8))]
)
def test_floats_make_the_models_of_the_same_doubles(
    tables: Tables, name: str, extreme: bool, widths: list[tuple[str, str]]
) -> None:
    con = tables(7 + extreme, extreme, FEWER)
    narrow = trained(con, STATEMENTS[name], "narrow")
    if not extreme:
        assert_most_are_trained(con)
    seen, widths[:] = set(widths), []
    wide = trained(con, STATEMENTS[name], "wide")
    assert narrow == wide
    if name not in ("sparse", "wide"):
        computed = name in ("imputed", "scaled", "arrays and nets")
        assert seen == {("float32", "float64" if computed else "float32")}
        assert set(widths) == {("float64", "float64")}


def assert_most_are_trained(con: grouplearn.Connection) -> None:
    """What all fail to train is alike, too, and says nothing."""
    done = {row[0] for row in con.execute("SELECT DISTINCT g FROM m WHERE status = 'done'").fetchall()}
    assert {3, 4, 5} <= done
    known = con.execute("SELECT count(predict('m', narrow)) FROM narrow WHERE g = 5").fetchall()
    assert known[0][0] > 0.6 * FEWER[5]


@pytest.fixture(scope="module")
def usual(tables: Tables) -> Callable[[str], list[Any]]:
    """Give what is said of a statement's models of DOUBLE columns, which are trained once."""

    @functools.cache
    def said_of(name: str) -> list[Any]:
        return trained(tables(9, True), STATEMENTS[name], "wide")

    return said_of


@pytest.mark.examples(2)
@pytest.mark.parametrize(("name", "options"), every_other(product(FEW, SETTINGS)))
def test_neither_files_nor_workers_matter(
    tables: Tables, usual: Callable[[str], list[Any]], name: str, options: str
) -> None:
    more = with_options(STATEMENTS[name], options)
    if name in ("gbdt", "net", "arrays") and "gap" in options:
        more = more.replace("'gap'", "'model_task_parallel'")
    expected = usual(name)
    assert trained(tables(9, True), more, "narrow") == expected


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for at, name in enumerate(FEW) for seed in range(2) if THOROUGH or seed == at % 2]
)
def test_random_tables(name: str, seed: int) -> None:
    """Groups of few rows, side by side and level by level."""
    random = np.random.default_rng(seed)
    sizes = tuple(random.integers(1, 40, random.integers(1, 30)).tolist())
    with grouplearn.connect(progress=False) as con:
        create(con, seed, extreme=bool(seed % 2), sizes=sizes)
        narrow, wide = (trained(con, STATEMENTS[name], table, "ROLLUP (g)") for table in ("narrow", "wide"))
        assert narrow == wide


@pytest.mark.examples(2)
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", FEW if THOROUGH else ("ridge", "wide", "gbdt", "net", "arrays"))
def test_a_durable_run_goes_on_with_floats(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = STATEMENTS[name]
    more = with_options(statement, "durable = true, workers = 1")
    path = tmp_path / "d.duckdb"
    with grouplearn.connect(path, progress=False) as con:
        create(con, 3, extreme=True, sizes=FEWER)
        expected = trained(con, statement, "wide")
        con.execute("DROP MODEL m").fetchall()
    dies(path, monkeypatch, f"TRAIN MODEL m {more.format('FROM narrow GROUP BY g')}", 1)
    with grouplearn.connect(path, progress=False) as con:
        con.execute("RESUME MODEL m").fetchall()
        assert said(con) == expected


@pytest.mark.thorough
def test_floats_on_ray() -> None:
    with grouplearn.connect(progress=False) as con:
        create(con, 4, extreme=True, sizes=FEWER)
        for name in ("ridge", "logistic", "gbdt"):
            statement = STATEMENTS[name]
            more = with_options(statement, "executor = 'ray', workers = 2")
            assert trained(con, more, "narrow") == trained(con, statement, "wide"), name
