"""A database file with a small table of three groups."""

from __future__ import annotations

from pathlib import Path

import grouplearn


def three_groups(directory: Path, rows: int) -> Path:
    """Make the file and return its path: ``t`` has columns g, x and y."""
    file = directory / "d.duckdb"
    with grouplearn.connect(file, progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 3 AS g, hash(i) % 100 / 10 AS x, x + hash(i, 1) % 7 AS y"
            f" FROM range({rows}) AS r(i)"
        )
    return file
