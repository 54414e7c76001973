"""Which rows are held out: a fair sample of each group, whatever the statement makes of the columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pytest

from grouplearn.bind.bind import bind
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.data.split import Split
from grouplearn.extract import batches, holdout
from grouplearn.extract.counts.statistics import statistics
from grouplearn.extract.extract import extract
from grouplearn.extract.finest_groups import FinestGroups
from grouplearn.parser.parse import parse
from grouplearn.parser.statements import TrainModel

TABLE = (
    "CREATE TABLE t AS SELECT i AS id, i % 4 AS g, i % 3 AS a, (i % 7) / 10 AS b, ['u', 'v'][1 + i % 2] AS c, "
    "i // 2 * 0.1::DOUBLE AS y, 1 + i % 5 AS w FROM range(3000) r(i)"
)
#: The smallest change of a DOUBLE that is not 0.
ULP = "(y + CASE id % 3 WHEN 0 THEN 1 WHEN 1 THEN -1 ELSE 0 END * y * 1.2e-16)"


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def split_of(
    connection: duckdb.DuckDBPyConnection,
    features: str = "id",
    source: str = "t",
    validate: str = "SAMPLE 20%",
    options: str = "seed = 1",
    target: str = "y",
    directory: RunDirectory | None = None,
) -> dict[object, list[int]]:
    """Return what becomes of the rows with each value of the first feature."""
    text = f"TRAIN MODEL m USING gbdt PREDICT {target} FEATURES ({features}) FROM {source} "
    text += f"GROUP BY g VALIDATE {validate} WITH ({options})"
    statement = parse(text)[0]
    assert isinstance(statement, TrainModel)
    checker = SqlChecker(connection, text)
    bound = bind(checker, statement, "memory", "main", {})
    data, _ = extract(connection, checker, bound, statistics(checker, bound), directory, limit=0)
    found: dict[object, list[int]] = {}
    for value, mark in zip(data.numeric[:, 0].tolist(), data.split.tolist(), strict=True):
        found.setdefault(value, []).append(mark)
    return {value: sorted(marks) for value, marks in found.items()}


@pytest.mark.parametrize("validate", ["SAMPLE 20%", "FOLDS 3"])
def test_only_the_seed_and_the_rows_of_from_decide(con: duckdb.DuckDBPyConnection, validate: str) -> None:
    con.execute(TABLE)
    expected = split_of(con, validate=validate)
    shares = np.bincount([mark for marks in expected.values() for mark in marks]) / 3000
    np.testing.assert_allclose(shares, [0.8, 0.2] if validate.startswith("SAMPLE") else [1 / 3] * 3, atol=0.001)
    assert split_of(con, "id, a, zscore(b), onehot(c)", validate=validate) == expected
    assert split_of(con, options="seed = 1, weight = w", validate=validate) == expected
    assert split_of(con, target="a", validate=validate) == expected
    assert split_of(con, source="(FROM t ORDER BY hash(id))", validate=validate) == expected
    assert split_of(con, options="seed = 2", validate=validate) != expected


def test_a_last_bit_of_a_label_and_another_type_move_no_row(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(TABLE)
    expected = split_of(con)
    assert con.execute(f"SELECT count(*) FROM t WHERE {ULP} <> y").fetchall()[0][0] > 1000
    assert split_of(con, source=f"(SELECT * REPLACE ({ULP} AS y) FROM t)") == expected
    con.execute("CREATE TYPE letter AS ENUM ('v', 'u')")
    cast = "id::DOUBLE AS id, g::DECIMAL(9, 2) AS g, a::HUGEINT AS a, c::letter AS c, w::FLOAT AS w"
    assert split_of(con, source=f"(SELECT * REPLACE ({cast}) FROM t)") == expected


def test_a_last_bit_of_a_large_whole_label_moves_no_row(con: duckdb.DuckDBPyConnection) -> None:
    """Odd numbers of 25 bits lie just between two values of single precision."""
    con.execute(TABLE.replace("i // 2 * 0.1::DOUBLE AS y", "(1 << 24) + 2 * i + 1.0::DOUBLE AS y"))
    nudged = f"(SELECT * REPLACE ({ULP} AS y) FROM t)"
    assert con.execute(f"SELECT count(*) FROM t WHERE {ULP} <> y").fetchall()[0][0] > 1000
    assert split_of(con, source=nudged) == split_of(con)


def test_whole_numbers_beyond_single_precision_tell_rows_apart(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(
        "CREATE TABLE t AS SELECT (1::BIGINT << 40) + i AS id, 1 AS g, i % 3 AS a, 1.5 AS y FROM range(500) r(i)"
    )
    expected = split_of(con)
    assert split_of(con, "id, a") == expected
    assert split_of(con, source="(FROM t ORDER BY hash(id))") == expected


def test_columns_of_one_name_and_of_any_type(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(TABLE)
    con.execute(
        "CREATE TABLE o AS SELECT id AS o, [a, b] AS a, {'x': b} AS b, MAP {c: 1} AS m, '101'::BIT AS bits, n: NULL, "
        "DATE '2020-01-01' AS d, to_days(a::INTEGER) AS i, 'x'::BLOB AS bytes, [id / 3, NULL] AS numbers FROM t"
    )
    source = "t JOIN o ON id = o"
    assert split_of(con, "o, w", source=source) == split_of(con, source=source) != split_of(con)


@pytest.mark.parametrize("validate", ["SAMPLE 20%", "FOLDS 3"])
def test_long_groups_are_drawn_in_parts(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, validate: str
) -> None:
    con.execute(TABLE)
    con.execute("INSERT INTO t SELECT -1, 1, a, b, 'u', 2.0, 1 FROM t WHERE id < 400")  # many equal rows
    expected = split_of(con, "id // 10", validate=validate)
    monkeypatch.setattr(holdout, "_ROWS", 100)
    monkeypatch.setattr(batches, "BATCH_BYTES", 1 << 11)
    assert split_of(con, "id // 10", validate=validate) == expected
    with RunDirectory(tmp_path / "runs") as directory:
        assert split_of(con, "id // 10", validate=validate, directory=directory) == expected
        assert sorted(path.name for path in directory.path.iterdir() if "split" in path.name) == ["split.npy"]


def drawn(sizes: list[int], rounded: npt.NDArray[np.uint64], kind: str, seed: int) -> npt.NDArray[np.int16]:
    offsets = np.cumsum([0, *sizes])
    split = np.zeros(offsets[-1], dtype=np.int16)
    wanted = holdout.Holdout("sample", share=0.1) if kind == "sample" else holdout.Holdout("folds", split=Split(10))
    hashes = (rounded * np.uint64(2 * seed + 1) + np.uint64(seed), np.zeros(rounded.size, dtype=np.uint64))
    leaves = FinestGroups([()] * len(sizes), offsets, np.zeros((len(sizes), 0), np.int32))
    holdout.hold_out(split, wanted, leaves, hashes, np.zeros(rounded.size), threads=2)
    return split


@pytest.mark.parametrize("kind", ["sample", "folds"])
def test_rows_that_repeat_are_drawn_as_fairly_as_any(kind: str) -> None:
    """Of 1,000 rows with four values, 100 are held out: each value's number is hypergeometric."""
    rng = np.random.default_rng(0)
    values = rng.integers(1, 2**63, 4, dtype=np.uint64)
    of = np.repeat(np.arange(4), [500, 300, 150, 50])
    counts = np.array([np.bincount(of[drawn([1000], values[of], kind, seed) == 1], minlength=4) for seed in range(500)])
    assert (counts.sum(axis=1) == 100).all()
    share = np.array([0.5, 0.3, 0.15, 0.05])
    variance = 100 * share * (1 - share) * 900 / 999
    np.testing.assert_allclose(counts.mean(axis=0), 100 * share, atol=4 * np.sqrt(variance.max() / 500))
    np.testing.assert_allclose(counts.var(axis=0), variance, rtol=0.3)


def test_each_group_has_its_share() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 60, 500).tolist()
    split = drawn(sizes, rng.integers(0, 9, sum(sizes), dtype=np.uint64), "sample", 3)
    held = np.add.reduceat(split, np.cumsum([0, *sizes[:-1]]))
    assert held.tolist() == [max(int(n * 0.1 + 0.5), 1) if n >= 5 else 0 for n in sizes]
