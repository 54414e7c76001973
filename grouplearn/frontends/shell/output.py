"""How the shell prints a result: DuckDB's own boxes, and text formats for other programs.

DuckDB turns values into text (``CAST(... AS VARCHAR)``, ``to_json``), so every type reads as DuckDB writes it. In output
for people, hidden characters and terminal control sequences are made visible. CSV is exact unless printed on a terminal;
JSON, which has its own escapes, always.
"""

from __future__ import annotations

import io
import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, TextIO

import duckdb

from grouplearn.sqltext import four_digits, identifier, literal
from grouplearn.statements.result_sql import measures
from grouplearn.visible import in_json, visible, visible_lines

Row = tuple[str | None, ...]


#: Columns of our answers that hold sentences.
SENTENCES = ("error", "reason", "note")
#: Columns of REFRESH's answer before n_rows that tell no groups apart.
_OF_REFRESH = ("status", "rows_added")
#: Sentences of a column that are printed below a box, and what they may differ in to count as one.
_REMARKS = 10
_NUMBER = re.compile(r"\d[\d,.]*")
#: The width of a box outside a terminal.
_WIDTH = 120
#: DuckDB's escapes for NUL, the bell and ESC, which we write as Python does.
_OWN_ESCAPES = re.compile(r"\\[0ae]")


@dataclass(slots=True)
class OutputFormat:
    """The settings of ``.mode``, ``.maxrows`` and ``.maxwidth``; ``max_width`` None means the terminal's."""

    mode: str = "duckbox"
    max_rows: int = 40
    max_width: int | None = None


def print_relation(relation: duckdb.DuckDBPyRelation, layout: OutputFormat, is_plan: bool = False) -> None:
    """Print the rows of ``relation``; a plan, unless for a program, as it is drawn."""
    if is_plan and layout.mode == "duckbox":
        for row in relation.fetchall():
            print(visible_lines(row[-1]))
        print()
    elif layout.mode == "duckbox":
        print(box_of(relation, layout))
    else:
        MODES[layout.mode](relation, sys.stdout)


def box_of(relation: duckdb.DuckDBPyRelation, layout: OutputFormat) -> str:
    """Return DuckDB's own box; hidden characters in names and text are escaped first.

    DuckDB shows some of them in its own way and miscounts the width of others; inside lists and structs they are left to it.
    """
    box = _drawn(relation, layout)
    if visible_lines(box) != box or _OWN_ESCAPES.search(box):
        box = _drawn(_escaped(relation, box), layout)
    return visible_lines(box).removesuffix("\n")


def print_answer(relation: duckdb.DuckDBPyRelation, layout: OutputFormat) -> None:
    """Print the answer of our statement; sentences that do not fit into its box stand whole below it."""
    box = box_of(relation, layout)
    found = {name: _sentences(relation, name) for name in SENTENCES}
    long = {
        name: remarks
        for name, remarks in found.items()
        if any(sentence not in box for sentences, _ in remarks.values() for sentence in sentences)
    }
    if long:
        shown = ", ".join(identifier(name) for name in relation.columns if name not in long)
        box = box_of(relation.project(shown), layout)
    print(box)
    for name, remarks in long.items():
        lines = [_remark(name, sentences, groups) for sentences, groups in remarks.values()]
        for line in lines[:_REMARKS]:
            print(textwrap.fill(line, layout.max_width or _WIDTH, break_long_words=False, break_on_hyphens=False))
        if lines[_REMARKS:]:
            print(f'{name}: and {len(lines) - _REMARKS:,} more; ".mode line" before the statement shows all')
    if long:
        print()


def _sentences(relation: duckdb.DuckDBPyRelation, name: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return the sentences of a column that differ in more than numbers: each as it is, and the groups that it is about.

    The columns before ``n_rows`` tell groups apart, as far as they vary.
    """
    if name not in relation.columns or "n_rows" not in relation.columns:
        return {}
    keys = relation.columns[: relation.columns.index("n_rows")]
    rows = relation.project(", ".join(f"CAST({identifier(each)} AS VARCHAR)" for each in (name, *keys))).fetchall()
    vary = [
        key for place, key in enumerate(keys, 1) if len({row[place] for row in rows}) > 1 and key not in _OF_REFRESH
    ]
    found: dict[str, tuple[list[str], list[str]]] = {}
    for sentence, *values in rows:
        if sentence is not None:
            known = dict(zip(keys, values, strict=True))
            sentences, groups = found.setdefault(_NUMBER.sub("0", sentence), ([], []))
            sentences.append(sentence)
            groups.append(", ".join(f"{key} {known[key] or 'NULL'}" for key in vary))
    return found


def _remark(name: str, sentences: Sequence[str], groups: Sequence[str]) -> str:
    about = f", {groups[0]}" if groups[0] else ""
    others = f" and {len(groups) - 1:,} {'more' if len(set(sentences)) == 1 else 'alike'}" if groups[1:] else ""
    return visible_lines(f"{name}{about}{others}: {sentences[0]}")


def _drawn(relation: duckdb.DuckDBPyRelation, layout: OutputFormat) -> str:
    with redirect_stdout(io.StringIO()) as drawn:
        relation.show(max_rows=layout.max_rows, max_width=layout.max_width)
    return drawn.getvalue()


def _escaped(relation: duckdb.DuckDBPyRelation, box: str) -> duckdb.DuckDBPyRelation:
    """Return the rows with hidden characters, and those that DuckDB escapes in a box, escaped by us."""
    hidden = sorted({each for each in box if visible(each, keep="\n") != each} | {*"\0\a\x1b"})
    columns = []
    for place, (name, kind) in enumerate(zip(relation.columns, relation.types, strict=True), start=1):
        text = f"#{place}"
        for each in hidden if str(kind) == "VARCHAR" else ():
            text = f"system.main.replace({text}, system.main.chr({ord(each)}), {literal(visible(each))})"
        columns.append(f"{text} AS {identifier(visible(name))}")
    return relation.project(", ".join(columns))


def exactly(text: str, out: TextIO) -> str:
    """Return a text unchanged for programs, escaped if ``out`` is a terminal."""
    return visible_lines(text) if out.isatty() else text


def for_people(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the answer of our statement with its measures rounded to four digits, without columns that are NULL throughout."""
    names = relation.columns
    rounded = measures(names, [str(kind) for kind in relation.types])
    rows, *known = relation.aggregate("count(*), count(COLUMNS(*))").fetchall()[0]
    shown = [name for name, count in zip(names, known, strict=True) if count or not rows]
    return relation.project(", ".join(four_digits(name) if name in rounded else identifier(name) for name in shown))


def _texts(relation: duckdb.DuckDBPyRelation) -> Iterator[Row]:
    return iter(relation.project("CAST(COLUMNS(*) AS VARCHAR)").iter_rows())


def _write_csv(relation: duckdb.DuckDBPyRelation, out: TextIO) -> None:
    print(exactly(",".join(_csv_field(name) for name in relation.columns), out), file=out)
    for row in _texts(relation):
        print(exactly(",".join(_csv_field(value) for value in row), out), file=out)


def _csv_field(value: str | None) -> str:
    """NULL is empty and the empty string quoted, so that they differ."""
    if value is None:
        return ""
    if value == "" or any(character in value for character in ',"\r\n'):
        return '"' + value.replace('"', '""') + '"'
    return value


def _json_rows(relation: duckdb.DuckDBPyRelation) -> Iterator[str]:
    keys = [json.dumps(name, ensure_ascii=False) for name in relation.columns]
    for row in relation.project("CAST(to_json(COLUMNS(*)) AS VARCHAR)").iter_rows():
        values = (f"{key}:{_json_value(value)}" for key, value in zip(keys, row, strict=True))
        yield in_json("{" + ",".join(values) + "}")


def _json_value(value: str | None) -> str:
    """Return a value as DuckDB's JSON; NaN and infinities, which JSON lacks, become null."""
    if value is None:
        return "null"
    if "NaN" not in value and "Infinity" not in value:
        return value
    return json.dumps(_finite(json.loads(value)), ensure_ascii=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value


def _write_json(relation: duckdb.DuckDBPyRelation, out: TextIO) -> None:
    separator = "["
    for row in _json_rows(relation):
        out.write(separator + row)
        separator = ",\n"
    print("]" if separator != "[" else "[]", file=out)


def _write_jsonlines(relation: duckdb.DuckDBPyRelation, out: TextIO) -> None:
    for row in _json_rows(relation):
        print(row, file=out)


def _write_markdown(relation: duckdb.DuckDBPyRelation, out: TextIO) -> None:
    header = [_markdown_cell(name) for name in relation.columns]
    rows = [[_markdown_cell(value) for value in row] for row in _texts(relation)]
    right = [is_number(kind) for kind in relation.types]
    widths = _widths([header, *rows])
    print(_joined(header, widths, right, "| ", " | ", " |"), file=out)
    rules = ["-" * (width + 1) + (":" if number else "-") for width, number in zip(widths, right, strict=True)]
    print("|" + "|".join(rules) + "|", file=out)
    for row in rows:
        print(_joined(row, widths, right, "| ", " | ", " |"), file=out)


def _markdown_cell(value: str | None) -> str:
    return "" if value is None else visible_lines(value).replace("|", "\\|").replace("\n", "<br>")


def _write_box(relation: duckdb.DuckDBPyRelation, out: TextIO) -> None:
    header = [_one_line(name) for name in relation.columns]
    rows = [[_one_line(value) for value in row] for row in _texts(relation)]
    right = [is_number(kind) for kind in relation.types]
    widths = _widths([header, *rows])
    bars = ["─" * (width + 2) for width in widths]
    print("┌" + "┬".join(bars) + "┐", file=out)
    print(_joined(header, widths, [False] * len(header), "│ ", " │ ", " │"), file=out)
    print("├" + "┼".join(bars) + "┤", file=out)
    for row in rows:
        print(_joined(row, widths, right, "│ ", " │ ", " │"), file=out)
    print("└" + "┴".join(bars) + "┘", file=out)


def _one_line(value: str | None) -> str:
    return "NULL" if value is None else visible(value)


def _write_line(relation: duckdb.DuckDBPyRelation, out: TextIO) -> None:
    names = [visible(name) for name in relation.columns]
    width = max(map(_display_width, names), default=0)
    labels = [" " * (width - _display_width(name)) + name for name in names]
    for number, row in enumerate(_texts(relation)):
        if number:
            print(file=out)
        for label, value in zip(labels, row, strict=True):
            print(f"{label} = {'NULL' if value is None else visible_lines(value)}", file=out)


def is_number(kind: Any) -> bool:
    """Whether a DuckDB type is right-aligned."""
    name = str(kind)
    return name.startswith("DECIMAL") or name in _NUMBERS


_NUMBERS = frozenset(
    f"{sign}{name}" for sign in ("", "U") for name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
) | {"FLOAT", "DOUBLE"}


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_display_width, column)) for column in zip(*rows, strict=True)]


def _joined(
    cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], start: str, between: str, end: str
) -> str:
    padded = []
    for cell, width, number in zip(cells, widths, right, strict=True):
        space = " " * (width - _display_width(cell))
        padded.append(space + cell if number else cell + space)
    return start + between.join(padded) + end


def _display_width(text: str) -> int:
    """Return the terminal columns of a text: wide characters take two."""
    if text.isascii():
        return len(text)
    from prompt_toolkit.utils import get_cwidth

    return get_cwidth(text)


MODES: dict[str, Callable[[duckdb.DuckDBPyRelation, TextIO], None]] = {
    "box": _write_box,
    "csv": _write_csv,
    "json": _write_json,
    "jsonlines": _write_jsonlines,
    "line": _write_line,
    "markdown": _write_markdown,
}
MODE_NAMES = ("duckbox", *MODES)
#: Modes for people, not programs.
BOXES = ("duckbox", "box")
