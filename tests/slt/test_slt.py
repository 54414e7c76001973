"""Runs the scripts in tests/slt: SQL and what a user sees, readable without knowing Python.

A script is a list of records separated by lines ``====``. A record is an optional ``#`` comment, a head line, SQL, and
after a line ``----`` what is expected:

    statement            runs, and gives nothing to compare
    error                the full error message, caret included
    query                rows as tab-separated values, in order; ``query sorted`` compares them sorted
    explain              one text column, compared line by line

Numbers have six digits; those of an answer of TRAIN, RETRY, RESUME or REFRESH four, as the metrics of iterated models differ in
their last digits from processor to processor. ``<ignore>`` in an expected line stands for any text. ``GROUPLEARN_COMPLETE=1
pytest tests/slt/test_slt.py`` writes what was seen into the scripts; read the diff before you believe it.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import grouplearn

SCRIPTS = sorted(Path(__file__).parent.glob("*.slt"))
_TRAINS = re.compile(r"\s*(?:TRAIN|CREATE\s+MODEL|RETRY|RESUME|REFRESH)\b", re.IGNORECASE)
COMPLETE = os.environ.get("GROUPLEARN_COMPLETE") == "1"


@dataclass
class Record:
    comment: str
    head: str
    sql: str
    expected: str


def read(path: Path) -> list[Record]:
    records = []
    for text in re.split(r"^====\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        body = text.strip("\n")
        if not body:
            continue
        lines = body.split("\n")
        first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
        rest = "\n".join(lines[first + 1 :])
        sql, _, expected = rest.partition("\n----")
        records.append(Record("\n".join(lines[:first]), lines[first], sql, expected.strip("\n")))
    return records


def write(path: Path, records: list[Record]) -> None:
    texts = []
    for record in records:
        parts = [record.comment] if record.comment else []
        parts += [record.head, record.sql]
        if record.expected or record.head != "statement":
            parts += ["----", record.expected]
        texts.append("\n".join(parts).rstrip("\n") + "\n")
    path.write_text("====\n".join(texts), encoding="utf-8")


def run(connection: grouplearn.Connection, record: Record) -> str:
    if record.head == "error":
        with pytest.raises(grouplearn.Error) as caught:
            connection.execute(record.sql).fetchall()
        return str(caught.value)
    rows = connection.execute(record.sql).fetchall()
    if record.head == "statement":
        return ""
    digits = 4 if _TRAINS.match(record.sql) else 6
    lines = ["\t".join(show(value, digits) for value in row) for row in rows]
    return "\n".join(sorted(lines) if record.head == "query sorted" else lines)


def show(value: object, digits: int) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):  # the residuals of an exact fit are 0 on one processor and 9e-15 on another
        return "0" if abs(value) < 1e-13 else f"{value:.{digits}g}"
    return str(value)


def same(seen: str, expected: str) -> bool:
    if "<ignore>" not in expected:
        return seen.rstrip() == expected.rstrip()
    pattern = ".*".join(re.escape(part) for part in expected.rstrip().split("<ignore>"))
    return re.fullmatch(pattern, seen.rstrip()) is not None


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a script writes files
    records = read(path)
    with grouplearn.connect(":memory:", progress=False) as connection:
        for record in records:
            seen = run(connection, record)
            if COMPLETE and not same(seen, record.expected):
                record.expected = seen
            assert same(seen, record.expected), (
                f"{path.name}: {record.sql}\n--- expected\n{record.expected}\n--- seen\n{seen}"
            )
    if COMPLETE:
        write(path, records)


def test_there_are_scripts() -> None:
    assert SCRIPTS
