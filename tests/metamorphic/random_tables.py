"""Random tables, small but of every kind: types, NULLs, NaN, repeated rows, skew, groups with other classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

#: Texts that a careless comparison takes for one another.
TEXTS = ("a", "B", "b", "", "é", "it's", "a b")
_ENUM = "ENUM ({})".format(", ".join("'" + text.replace("'", "''") + "'" for text in TEXTS))
#: How a small number becomes a value of each type that names a category or a group.
CATEGORIES = {
    "VARCHAR": "(" + str(list(TEXTS)).replace('"it\'s"', "'it''s'") + ")[1 + {} % 7]",
    _ENUM: "CAST((" + str(list(TEXTS)).replace('"it\'s"', "'it''s'") + ")[1 + {} % 7] AS " + _ENUM + ")",
    "INTEGER": "CAST({} AS INTEGER)",
    "BIGINT": "CAST({} * 10000000000 AS BIGINT)",
    "DOUBLE": "CAST({} * 0.5 AS DOUBLE)",
    "DECIMAL(9,2)": "CAST({} * 1.25 AS DECIMAL(9,2))",
    "BOOLEAN": "({} % 2 = 1)",
    "DATE": "(DATE '2023-12-30' + CAST({} AS INTEGER))",
    "TIMESTAMP": "(TIMESTAMP '2023-12-31 22:30:00' + to_hours(CAST({} AS INTEGER)))",
    "TIMESTAMPTZ": "(TIMESTAMPTZ '2023-12-31 22:30:00+00' + to_hours(CAST({} AS INTEGER)))",
    "UUID": "CAST(md5({}::VARCHAR) AS UUID)",
}
NUMBERS = ("DOUBLE", "FLOAT", "INTEGER", "BIGINT", "SMALLINT", "HUGEINT", "DECIMAL(18,3)", "BOOLEAN")
#: Types of a column that is two numbers.
ARRAYS = ("DOUBLE[]", "DOUBLE[2]", "FLOAT[]", "INTEGER[2]", "DECIMAL(9,2)[]")
#: Types of a column that names any number of things, some of them twice, some NULL.
LISTS = {
    "VARCHAR[]": "[" + CATEGORIES["VARCHAR"].format("e") + " for e in {}]",
    "INTEGER[]": "{}::INTEGER[]",
    "BIGINT[]": "[e * 10000000000 for e in {}]::BIGINT[]",
    "DATE[]": "[DATE '2023-12-30' + e for e in {}]",
}
SHAPES = ("normal", "two values", "constant", "large", "tiny", "skewed")
LABELS = ("number", "count", "flag", "two classes", "three classes")
#: What a flag or a class is called in the table.
CLASSES = {"flag": ("false", "true"), "two classes": ("no", "yes"), "three classes": ("high", "low", "mid")}


@dataclass(frozen=True)
class Column:
    """A column to learn from: what it stands for, its SQL type, how its values are spread, whether some are missing."""

    name: str
    role: str
    type: str
    shape: str
    missing: bool = False


@dataclass(frozen=True)
class Table:
    """A table by what it is made of; the same description makes the same rows, in the same order.

    Columns: ``id`` (0, 1, ...), ``g`` (the group), those of ``columns``, ``y`` (the label, ``unlabelled``: some NULL),
    ``w`` (a weight, some 0), ``h`` (TRUE for a quarter of the rows).
    """

    seed: int
    sizes: tuple[int, ...]
    key: str
    columns: tuple[Column, ...]
    label: str
    null_key: bool = False
    other_classes: bool = False
    repeated: bool = False
    unlabelled: bool = False

    @property
    def n_rows(self) -> int:
        return sum(self.sizes)

    @property
    def classes(self) -> tuple[str, ...]:
        return CLASSES.get(self.label, ())


def _number(column: Column, rng: np.random.Generator, n: int) -> np.ndarray:
    base = np.round(rng.normal(size=n), 3)
    if column.type == "BOOLEAN" or column.shape == "two values":
        return (base > 0).astype(float)
    values = {
        "normal": base * 10,
        "constant": np.full(n, 0.1 if column.type in ("DOUBLE", "FLOAT") else 7.0),
        "large": 1_000_000 + np.round(base * 100),
        "tiny": base / 1000 if column.type in ("DOUBLE", "FLOAT") else base * 3,
        "skewed": np.round(np.exp(2 * base), 3),
    }[column.shape]
    if column.type == "SMALLINT":
        values = np.clip(values, -30_000, 30_000)
    return values if column.type in ("DOUBLE", "FLOAT", "DECIMAL(18,3)") else np.round(values)


def _drawn(column: Column, rng: np.random.Generator, n: int) -> np.ndarray:
    if column.role == "array":
        return np.round(rng.normal(size=(n, 2)), 2)
    if column.role == "list":  # the first so many of four, -1 stands for NULL
        drawn = rng.integers(-1, 5, size=(n, 4))
        return np.where(np.arange(4) < rng.integers(0, 5, size=n)[:, None], drawn, -2)
    return _number(column, rng, n) if column.role == "number" else rng.integers(0, 5, size=n).astype(float)


def _signal(column: Column, values: np.ndarray) -> np.ndarray:
    if column.role == "array":
        return values[:, 0] - 0.5 * values[:, 1]
    if column.role == "list":
        return (values % 3 == 1).sum(axis=1) - 1.0
    if column.role == "category":
        return np.where(values % 3 == 1, 1.0, -0.5)
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-9 * (1 + abs(values.mean())) else np.zeros(len(values))


def _label(table: Table, signal: np.ndarray, group: np.ndarray, rng: np.random.Generator) -> list[Any]:
    score = signal + rng.normal(size=table.n_rows) * 0.7
    if table.label == "number":
        return list(np.round(score * 3 + group, 3))
    if table.label == "count":
        return [float(value) for value in rng.poisson(np.exp(np.clip(score * 0.5, -2, 2)))]
    if table.label != "three classes":
        names = table.classes
        return [names[int(value > 0)] for value in score]
    number = np.digitize(score, [-0.7, 0.7])
    if table.other_classes:
        # Every second group lacks a class: the last, then the first.
        number = np.where((group % 4 == 1) & (number == 2), 1, number)
        number = np.where((group % 4 == 3) & (number == 0), 1, number)
    return [table.classes[place] for place in number]


def _values(table: Table) -> dict[str, Any]:
    rng = np.random.default_rng(table.seed)
    n = table.n_rows
    # Repeated rows: a third as many distinct ones, each several times in its group.
    distinct = np.arange(n) // 3 if table.repeated else np.arange(n)
    group = np.repeat(np.arange(len(table.sizes)), table.sizes)
    values: dict[str, Any] = {"id": np.arange(n), "g": group}
    signal = np.zeros(n)
    for column in table.columns:
        drawn = _drawn(column, rng, n)[distinct]
        signal += _signal(column, drawn) * rng.choice([-1.0, 1.0, 0.5])
        lost = (rng.random(n) < 0.08)[distinct] if column.missing else np.zeros(n, bool)
        if column.type in ("DOUBLE", "FLOAT") and column.role == "number":
            drawn = np.where(lost & (np.arange(n) % 2 == 0), np.nan, drawn)
        if column.role == "array":
            values[column.name] = pa.array(
                [None if gone else pair for gone, pair in zip(lost, drawn.tolist(), strict=True)]
            )
        elif column.role == "list":
            rows = [[None if each < 0 else each for each in row if each > -2] for row in drawn.tolist()]
            values[column.name] = pa.array(
                [None if gone else row for gone, row in zip(lost, rows, strict=True)], pa.list_(pa.int32())
            )
        else:
            values[column.name] = pa.array(drawn, mask=lost & ~np.isnan(drawn))
    unknown = (rng.random(n) < 0.05)[distinct] if table.unlabelled else np.zeros(n, bool)
    values["y"] = pa.array(_label(table, signal, group, rng), mask=unknown)
    values["w"] = rng.integers(0, 4, size=n).astype(float)
    values["h"] = rng.random(n) < 0.25
    # Groups lie mixed, as rows arrive.
    order = rng.permutation(n)
    return {name: pa.array(column).take(pa.array(order)) for name, column in values.items()} | {
        "id": pa.array(range(n))
    }


def _sql(column: Column) -> str:
    name = column.name
    if column.role == "category":
        return f"CASE WHEN {name} IS NOT NULL THEN {CATEGORIES[column.type].format(f'CAST({name} AS INTEGER)')} END AS {name}"
    if column.role == "list":
        return f"{LISTS[column.type].format(name)} AS {name}"
    return f"CAST({name} AS {column.type}) AS {name}"


def create(con: duckdb.DuckDBPyConnection, table: Table, name: str = "t") -> None:
    """Make the table in a database."""
    rows = pa.table(_values(table))
    key = CATEGORIES[table.key].format("CAST(g AS INTEGER)")
    key = f"CASE WHEN g > 0 THEN {key} END" if table.null_key else key
    label = "(y = 'true')" if table.label == "flag" else "y"
    columns = ["id", f"{key} AS g", *(_sql(column) for column in table.columns), f"{label} AS y", "w", "h"]
    con.execute("SET TimeZone = 'UTC'")  # in which the catalog has its texts, whatever the machine's is
    con.register("random_rows", rows)
    con.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT {', '.join(columns)} FROM random_rows ORDER BY id")
    con.unregister("random_rows")


def columns(role: str, name: str, types: tuple[str, ...]) -> st.SearchStrategy[Column]:
    return st.builds(
        Column, st.just(name), st.just(role), st.sampled_from(types), st.sampled_from(SHAPES), st.booleans()
    )


#: One group of tens of rows, and others of one row, of few, of more.
SIZES = st.builds(
    lambda first, others: (first, *others),
    st.sampled_from([40, 90]),
    st.lists(st.sampled_from([40, 1, 2, 7, 90, 160]), max_size=4),
)


@st.composite
def tables(draw: st.DrawFn, labels: tuple[str, ...] = LABELS, arrays: bool = True) -> Table:
    """Draw a table with one of these kinds of label; some have a column of ``arrays``."""
    numbers = [draw(columns("number", f"x{n}", NUMBERS)) for n in range(draw(st.integers(1, 3)))]
    categories = [draw(columns("category", f"c{n}", tuple(CATEGORIES))) for n in range(draw(st.integers(0, 2)))]
    pairs = [draw(columns("array", "a0", ARRAYS))] if arrays and draw(st.booleans()) else []
    lists = [draw(columns("list", "l0", tuple(LISTS)))] if draw(st.integers(0, 2)) == 2 else []
    return Table(
        seed=draw(st.integers(0, 10_000)),
        sizes=draw(SIZES),
        key=draw(st.sampled_from([kind for kind in CATEGORIES if kind != "BOOLEAN"])),
        columns=(*numbers, *categories, *pairs, *lists),
        label=draw(st.sampled_from(labels)),
        null_key=draw(st.booleans()),
        other_classes=draw(st.booleans()),
        repeated=draw(st.booleans()),
        unlabelled=draw(st.booleans()),
    )
