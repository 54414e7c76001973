"""Predictions of another database, as texts, compared with those of m_predict."""

import math
from collections.abc import Sequence
from typing import Any

TRUTHS = {"t": "True", "f": "False", "true": "True", "false": "False"}


def assert_predicts_the_same(con: Any, name: str, table: str, rows: Sequence[dict[str, str | None]]) -> None:
    """Compare what a model, whose name may need quotes, adds to the rows of a table here and there, where rows have an id."""
    there = {row["id"]: row for row in rows}
    sources = {row[0] for row in con.execute(f"DESCRIBE {table}").fetchall()}
    schema, _, model = name.rpartition(".")
    here = con.execute(f'FROM {schema}{"." if schema else ""}"{model}_predict"({table})')
    columns = [each[0] for each in here.description]
    found = [dict(zip(columns, row, strict=True)) for row in here.fetchall()]
    assert len(found) == len(there) == len(rows)
    assert any(row["model_level"] is not None for row in found)
    for row in found:
        other = there[str(row["id"])]
        for column, value in row.items():
            assert column in sources or is_same(value, column, other), (column, row, other)


def is_same(value: Any, column: str, there: dict[str, str | None]) -> bool:
    """Whether a value of ours is that of a row there, where a list or a map is several columns."""
    if isinstance(value, dict | list):
        parts = [*value.values()] if isinstance(value, dict) else value
        names = [name for name in there if name.startswith("probability_" if isinstance(value, dict) else column)]
        return len(names) >= len(parts) and all(map(is_same, parts, names, [there] * len(parts)))
    text = there.get(column)
    if value is None or text is None:
        return value is None and text is None
    if isinstance(value, float):
        return math.isclose(float(text), value, rel_tol=1e-9, abs_tol=1e-9)
    return TRUTHS.get(text, text) == str(value) if isinstance(value, bool) else text == str(value)
