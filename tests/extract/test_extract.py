"""Reading rows: the same rows in the same order, in memory and in files, however many threads read them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from grouplearn.bind.bind import bind
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.dataset import ARRAYS, Dataset, Group
from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.errors import BindError
from grouplearn.extract import batches
from grouplearn.extract import extract as extracting
from grouplearn.extract.counts.statistics import statistics
from grouplearn.extract.extract import extract
from grouplearn.extract.sorted_rows import SortedRows
from grouplearn.parser.parse import parse
from grouplearn.parser.statements import TrainModel

ROWS = 20_000
TRAIN = (
    "TRAIN MODEL m USING logistic_regression PREDICT late FEATURES (x, impute(z), onehot(kind), hash(kind, 7), w) "
    "FROM points GROUP BY ROLLUP (g, kind) HAVING count(*) > 1 VALIDATE {validate} WITH (seed = 5, weight = w)"
)
VALIDATIONS = ("NONE", "SAMPLE 20%", "FOLDS 3", "WHERE x > 3")


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE points AS SELECT nullif(i % 13, 0) AS g, ['b', 'ä', NULL, '', '10', '9'][1 + i % 6] AS kind, "
            "CASE i % 50 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN -0.0 WHEN 2 THEN 0.0 ELSE i % 997 / 100 END AS x, "
            "nullif(i * 7 % 101, 4)::FLOAT AS z, 1 + i % 3 AS w, hash(i) % 3 = 0 AS late "
            f"FROM (SELECT range // 2 AS i FROM range({ROWS}))"  # every row is there twice
        )
        yield connection


def read(
    connection: duckdb.DuckDBPyConnection, text: str, directory: RunDirectory | None = None, between: str | None = None
) -> tuple[Dataset, tuple[Group, ...]]:
    """``between``: what is run between counting the rows and reading them."""
    statement = parse(text)[0]
    assert isinstance(statement, TrainModel)
    checker = SqlChecker(connection, text)
    bound = bind(checker, statement, "memory", "main", {})
    stats = statistics(checker, bound)
    if between:
        connection.execute(between)
    return extract(connection, checker, bound, stats, directory, limit=0)


def bits(dataset: Dataset) -> tuple[object, ...]:
    arrays = [getattr(dataset, name) for name in ARRAYS]
    return (*((each.dtype, each.shape, each.tobytes()) for each in arrays), dataset.dictionaries, dataset.classes)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", 1 << 11)  # tens of rows, so that runs of equal rows are cut


@pytest.mark.parametrize("validate", VALIDATIONS)
@pytest.mark.usefixtures("small_batches")
def test_rows_in_files_are_those_in_memory(con: duckdb.DuckDBPyConnection, tmp_path: Path, validate: str) -> None:
    in_memory, groups = read(con, TRAIN.format(validate=validate))
    with RunDirectory(tmp_path / "runs") as directory:
        in_files, same_groups = read(con, TRAIN.format(validate=validate), directory)
        assert in_files.files is not None
        assert in_memory.files is None
        assert not in_files.numeric.flags.writeable
        assert bits(in_files) == bits(in_memory)
        assert same_groups == groups


@pytest.mark.parametrize("batch_bytes", [1, 1 << 11, 1 << 25])
def test_neither_threads_nor_batches_nor_storage_order_matter(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    text = TRAIN.format(validate="SAMPLE 20%")
    if batch_bytes == 1:  # a batch of each row
        con.execute("DELETE FROM points WHERE rowid >= 2000")
    con.execute("SET threads = 1")
    expected = read(con, text)
    monkeypatch.setattr(batches, "BATCH_BYTES", batch_bytes)
    con.execute("SET threads = 2")
    con.execute("CREATE OR REPLACE TABLE points AS FROM points ORDER BY hash(rowid)")
    dataset, groups = read(con, text)
    assert groups == expected[1]
    assert bits(dataset) == bits(expected[0])


@pytest.mark.parametrize("in_files", [False, True])
def test_numbers_that_fit_float_are_the_same_rows_in_the_same_order(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, in_files: bool
) -> None:
    con.execute(
        "CREATE TABLE narrow AS SELECT g, "
        "[0.1, '-0.0', 1e-45, 3.4028235e38, 'nan', 'inf', '-inf', NULL][1 + (x * 100)::BIGINT % 8]::FLOAT AS a, "
        "(x * 100)::SMALLINT AS b, z::INTEGER::UTINYINT AS c, late AS d, w::DOUBLE AS e, late FROM points WHERE NOT isnan(x)"
    )
    con.execute(
        "CREATE TABLE wide AS SELECT * REPLACE (a::DOUBLE AS a, b::DOUBLE AS b, c::DOUBLE AS c, d::DOUBLE AS d) FROM narrow"
    )
    text = "TRAIN MODEL m USING logistic_regression PREDICT late FEATURES ({}) FROM {} GROUP BY g VALIDATE SAMPLE 20%"
    # Where one column is DOUBLE all of them are.
    for columns, kind in {
        "a, b, c, d, e": np.float64,
        "a, b, c, d": np.float32,
        "impute(a), zscore(c)": np.float32,
    }.items():
        with RunDirectory(tmp_path / "runs") as one, RunDirectory(tmp_path / "runs") as other:
            narrow = read(con, text.format(columns, "narrow"), one if in_files else None)
            wide = read(con, text.format(columns, "wide"), other if in_files else None)
            assert (narrow[0].files is not None) == in_files
            assert narrow[0].numeric.dtype == kind
            assert bits(replace(narrow[0], numeric=narrow[0].numeric.astype(np.float64))) == bits(wide[0])
            assert narrow[1] == wide[1]


@pytest.mark.parametrize("in_files", [False, True])
@pytest.mark.usefixtures("small_batches")
def test_categories_of_whole_numbers_are_read_as_their_texts(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, in_files: bool
) -> None:
    """The same rows in the same order, with the same dictionaries, for a type of any width and for text."""
    features = "x, onehot(a), ordinal(b + 1 -- so\n)"
    text = f"TRAIN MODEL m USING logistic_regression PREDICT late FEATURES ({features}) FROM {{}} GROUP BY g"
    con.execute(
        "CREATE TABLE named AS SELECT g, x, late, nullif(w * 57 - 120, -6)::TINYINT AS a, (x * 10)::TINYINT - 50 AS b "
        "FROM points WHERE NOT isnan(x)"
    )
    found = {}
    for type_ in ("TINYINT", "INTEGER", "BIGINT", "HUGEINT", "VARCHAR"):
        named = type_ == "VARCHAR"
        columns = f"a::{type_} AS a, (b + 1)::{type_} AS b" if named else f"a::{type_} AS a, b::{type_} AS b"
        con.execute(f"CREATE OR REPLACE TABLE t AS SELECT * REPLACE ({columns}) FROM named ORDER BY hash(rowid)")
        own = (text.replace("b + 1", "b") if named else text).format("t")
        with RunDirectory(tmp_path / type_) as directory:
            dataset, groups = read(con, own + " VALIDATE WHERE x > 3", directory if in_files else None)
            found[type_] = bits(dataset), groups
    assert dataset.dictionaries[0] == ("-63", "51")
    assert "-49" in dataset.dictionaries[1]
    assert all(each == found["VARCHAR"] for each in found.values())


def test_what_decides_about_a_models_form_does_not_depend_on_a_columns_type(con: duckdb.DuckDBPyConnection) -> None:
    """Estimates of distinct numbers and of distinct texts differ; near the limit it is that of the texts."""
    con.execute("CREATE TABLE many AS SELECT i AS n, i::VARCHAR AS t, i % 2 = 0 AS late FROM range(8000) r(i)")
    text = "TRAIN MODEL m USING logistic_regression PREDICT late FEATURES (onehot({})) FROM many WHERE n < {} VALIDATE NONE"
    for rows in (3000, 4000, 4096, 4300, 6000):
        numbers, texts = (counted(con, text.format(column, rows)) for column in "nt")
        assert numbers == texts
    (few,) = con.execute("SELECT approx_count_distinct(n) FROM many WHERE n < 50").fetchall()
    assert counted(con, text.format("n", 50)) == few


def counted(connection: duckdb.DuckDBPyConnection, text: str) -> tuple[int, ...]:
    (statement,), checker = parse(text), SqlChecker(connection, text)
    assert isinstance(statement, TrainModel)
    return statistics(checker, bind(checker, statement, "memory", "main", {})).categories


def test_rows_are_sorted_by_key_text_and_hash_of_seed_and_content(con: duckdb.DuckDBPyConnection) -> None:
    text = "TRAIN MODEL m USING linear_regression PREDICT w FEATURES (x, z) FROM points GROUP BY g WITH (seed = 5)"
    dataset, groups = read(con, text)
    expected = con.execute(
        "SELECT * FROM (SELECT g::VARCHAR AS k, x, z::DOUBLE AS z, w::DOUBLE AS y FROM points) "
        "ORDER BY k NULLS FIRST, hash(5, k, x, z, y), k, x, z, y"
    ).fetchnumpy()
    columns = {"x": dataset.numeric[:, 0], "z": dataset.numeric[:, 1], "y": dataset.y}
    for name, values in columns.items():
        np.testing.assert_array_equal(values, np.ma.filled(expected[name].astype(float), np.nan))
    keys = expected["k"]
    for group in groups:
        ((start, stop),) = group.ranges
        assert {None if key is None or key is np.ma.masked else key for key in keys[start:stop]} == {group.keys[0]}


@pytest.mark.usefixtures("small_batches")
def test_rows_of_one_hash_are_ordered_by_content(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extracting, "ROW_HASH", "0::UBIGINT")
    text = TRAIN.format(validate="SAMPLE 20%")
    first, groups = read(con, text)
    con.execute("CREATE OR REPLACE TABLE points AS FROM points ORDER BY hash(rowid)")
    second, same_groups = read(con, text)
    assert same_groups == groups
    assert bits(second) == bits(first)
    with RunDirectory(tmp_path / "runs") as directory:
        assert bits(read(con, text, directory)[0]) == bits(first)
    total = con.execute("SELECT sum(x) FILTER (NOT isnan(x)), sum(w) FROM points").fetchall()[0]
    assert np.nansum(first.numeric[:, 0]) == pytest.approx(total[0], rel=1e-12)
    assert first.weight.sum() == total[1]


def test_one_hash_in_only_some_rows(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of equal and of unequal rows next to each other, at the first and the last row too."""
    monkeypatch.setattr(extracting, "ROW_HASH", "floor(x0 / 10)::UBIGINT")
    orders = []
    for step in (37, 13):
        con.execute(
            f"CREATE OR REPLACE TABLE t AS SELECT x, x % 7 AS y FROM (SELECT (range * {step} % 50)::DOUBLE AS x FROM range(100))"
        )
        dataset, _ = read(con, "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t")
        orders.append(dataset.numeric[:, 0].tolist())
        assert dataset.y.tolist() == [x % 7 for x in orders[-1]]
    assert orders[0] == orders[1]
    for start in range(0, 100, 20):  # a run: each of ten values twice
        assert sorted(orders[0][start : start + 20]) == [start // 2 + x // 2 for x in range(20)]


def test_zero_and_minus_zero_have_one_order(con: duckdb.DuckDBPyConnection) -> None:
    seen = set()
    for direction in ("ASC", "DESC"):
        con.execute(
            "CREATE OR REPLACE TABLE t AS SELECT CASE WHEN range % 2 = 0 THEN 0.0 ELSE -0.0::DOUBLE END AS x, 1 AS y "
            f"FROM range(3000) ORDER BY range {direction}"
        )
        dataset, _ = read(con, "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t")
        assert np.signbit(dataset.numeric).sum() == 1500
        seen.add(hashlib.sha256(dataset.numeric.tobytes()).digest())
    assert len(seen) == 1


def test_no_rows(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    text = "TRAIN MODEL m USING linear_regression PREDICT w FEATURES (x, onehot(kind)) FROM points WHERE false"
    with RunDirectory(tmp_path / "runs") as directory:
        for place in (None, directory):
            dataset, groups = read(con, text, place)
            assert (dataset.numeric.shape, dataset.codes.shape, dataset.dictionaries) == ((0, 1), (0, 1), ((),))
            assert [group.ranges for group in groups] == [()]


@pytest.mark.usefixtures("small_batches")
def test_a_batch_that_cannot_be_taken_leaves_the_connection_free(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SortedRows, "take", fail)
    try:
        read(con, TRAIN.format(validate="NONE"))
    except KeyboardInterrupt:  # inside, as the traceback keeps the frames that read
        assert con.execute("SELECT 1").fetchall() == [(1,)]
    else:
        pytest.fail("nothing was raised")


@pytest.mark.usefixtures("small_batches")
def test_an_interrupt_between_batches_stops_the_reading(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("CREATE TABLE many AS SELECT range AS x, range AS y FROM range(1000000)")
    monkeypatch.setattr(SortedRows, "take", lambda *_: con.interrupt())
    with pytest.raises(duckdb.InterruptException):
        read(con, "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM many")


@pytest.mark.parametrize(("label", "classes"), [("kind", "kind"), ("x", "x"), ("w::DOUBLE", "w")])
def test_a_class_that_came_after_classes_were_counted_is_named(
    con: duckdb.DuckDBPyConnection, label: str, classes: str
) -> None:
    """As where FROM chooses other rows each time; labels that are NaN are no classes, and known to be none."""
    text = f"TRAIN MODEL m USING logistic_regression PREDICT {label} FEATURES (z) FROM points"
    dataset, _ = read(con, text)
    assert np.isinf(dataset.y).any() == (label == "x")
    for value in ("NULL", "'nan'") if label == "x" else ("NULL",):
        read(con, text, between=f"UPDATE points SET {classes} = {value} WHERE g = 3")
    with pytest.raises(BindError, match=r"FROM gave other rows when it was read again: the class '1234(\.0)?' was not"):
        read(con, text, between=f"UPDATE points SET {classes} = 1234 WHERE g = 4")
