"""Names and values that a terminal would obey, or that nobody can see, through every writer: shown escaped, kept exact."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pexpect
import pytest
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.figure import Figure

import grouplearn
from grouplearn.frontends.progress import Tally
from grouplearn.frontends.shell.output import OutputFormat, box_of
from grouplearn.frontends.shell.shell import main
from grouplearn.messages import Span, render
from grouplearn.train.job import RunSummary
from grouplearn.visible import in_file_name, in_json, visible

GROUPLEARN = str(Path(sys.executable).parent / "grouplearn")
#: A title, a cleared screen, a line rewritten, an 8-bit escape, what follows reversed, no width, half a formula.
NAME = "k\x1b]0;x\x07\x1b[2J\r\x9b31m\u202e\u200b$b^$"
VALUES = (NAME, "\n", "\0 NUL", 'it\'s "quoted"', "\r", "\r\n", "\x85 \u2028", "$0-$50", "_hidden")
#: What no writer for people may put out; \n and \t only stand where a writer has put them.
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e\u2028]")
QUOTED = '"' + NAME + '"'


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("visible") / "shop.duckdb"
    with grouplearn.connect(str(path), progress=None) as con:
        con.execute(f"CREATE TABLE t (y DOUBLE, c VARCHAR, {QUOTED} VARCHAR)")
        con.native.executemany(
            "INSERT INTO t VALUES (?, ?, ?)",
            [(number % 7 * 1.5 + place, value, value) for place, value in enumerate(VALUES) for number in range(20)],
        )
        con.execute(f'CREATE TABLE "{NAME} t" AS SELECT 1 AS {QUOTED}')
        con.execute(
            f"TRAIN MODEL {QUOTED} USING mlp PREDICT y + 0 AS y FEATURES (y * 2 AS x, onehot(c)) FROM t GROUP BY {QUOTED}"
            " WITH (epochs = 2)"
        )
    return path


@pytest.fixture
def con(database: Path) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(str(database), read_only=True, progress=None) as connection:
        yield connection


def shell(database: Path, *arguments: str) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        main([*arguments[:1], "-readonly", str(database), *arguments[1:]])
    return out.getvalue(), err.getvalue()


STATEMENTS = [
    f"FROM {QUOTED}",
    "FROM t",
    f"SELECT {QUOTED} FROM t",
    "SHOW MODELS",
    f"DESCRIBE MODEL {QUOTED}",
    f"EXPLAIN TRAIN MODEL n USING linear_regression PREDICT y FEATURES ({QUOTED}) FROM t GROUP BY {QUOTED}",
    f"EXPLAIN SELECT {QUOTED} FROM t",
    ".tables",
    ".schema",
    ".models",
]


@pytest.mark.examples(2)
@pytest.mark.parametrize("mode", ["-duckbox", "-box", "-line", "-markdown"])
def test_what_people_read_has_nothing_that_a_terminal_obeys(database: Path, mode: str) -> None:
    for statement in STATEMENTS:
        if statement != ".schema":  # SQL for a program, where it does not go to a terminal
            options = [] if mode == "-duckbox" else [mode]
            out, err = shell(database, *(options or ["-no-stdin"]), "-echo", "-c", statement)
            assert (RAW.findall(out), err) == ([], ""), statement
            assert "\\x1b" in out or "\\e" in out or ".tables" not in statement


def test_csv_and_json_in_a_pipe_are_exact(database: Path) -> None:
    query = f"SELECT DISTINCT {QUOTED} FROM t ORDER BY ALL ASC"
    rows = list(csv.reader(io.StringIO(shell(database, "-csv", "-c", query)[0], newline="")))
    assert [row[0] for row in rows] == [NAME, *sorted(VALUES)]
    for mode in ("-json", "-jsonlines"):
        out = shell(database, mode, "-c", query)[0]
        assert RAW.findall(out) == []
        read = json.loads(out) if mode == "-json" else list(map(json.loads, out.splitlines()))
        assert [row[NAME] for row in read] == sorted(VALUES)
    assert NAME in shell(database, "-csv", "-c", ".schema")[0]


def test_csv_on_a_terminal_is_for_a_person(database: Path) -> None:
    options = ["-csv", "-readonly", str(database), "-c", f"SELECT {QUOTED} FROM t", "-c", ".schema"]
    child = pexpect.spawn(GROUPLEARN, options, encoding="utf-8", timeout=60)
    child.expect(pexpect.EOF)
    seen = child.before.replace("\r\n", "\n")
    assert RAW.findall(seen) == []
    assert visible(NAME) in seen


ERRORS = [
    f"SELECT {QUOTED} FROM nothing",
    f"EXPLAIN TRAIN MODEL n USING {QUOTED} PREDICT y FROM t",
    "EXPLAIN TRAIN MODEL n USING linear_regression PREDICT nothing FROM t",
    f"EXPLAIN TRAIN MODEL n USING linear_regression PREDICT y FROM {QUOTED}",
    f"EXPLAIN TRAIN MODEL n USING linear_regression PREDICT y FROM t WITH ({QUOTED} = 1)",
    f"EXPLAIN TRAIN MODEL n USING logistic_regression PREDICT {QUOTED} FROM t WITH (positive_class = 'a')",
    f"DROP MODEL n{NAME[1:2]}",
    "SELECT predict('" + NAME + "x', t) FROM t",
    f"SELECT error('{NAME}')",
]


@pytest.mark.parametrize("statement", ERRORS)
def test_errors_show_names_escaped(database: Path, statement: str) -> None:
    out, err = shell(database, "-box", "-c", statement)
    assert (out, RAW.findall(err)) == ("", [])
    assert err
    notebook = notebook_error(database, statement)
    assert RAW.findall(notebook) == []


def notebook_error(database: Path, statement: str) -> str:
    running = InteractiveShell.instance()
    running.run_line_magic("load_ext", "grouplearn")
    running.run_line_magic("grouplearn", f"{database} --readonly")
    try:
        running.run_cell_magic("gl", "", statement)
    except Exception as error:
        return "\n".join(error._render_traceback_())  # type: ignore[attr-defined]
    raise AssertionError("no error")


def test_the_caret_stands_under_the_cells_that_are_shown() -> None:
    text = f"SELECT '\x1b[2J\u202e' AS a,\r\n '\x1b' {NAME} FROM t\r"
    start = text.index(NAME)
    message, line, caret = render("what", text, Span(start, start + len(NAME))).replace("\n\n", "\n").split("\n")
    assert (message, line) == ("what", f"LINE 2:  '\\x1b' {visible(NAME)} FROM t")
    assert line[caret.index("^") : caret.rindex("^") + 1] == visible(NAME)


def test_our_errors_keep_their_message_exact(con: grouplearn.Connection) -> None:
    with pytest.raises(grouplearn.BindError) as caught:
        con.execute(f"EXPLAIN TRAIN MODEL n USING {QUOTED} PREDICT y FROM t")
    assert NAME in caught.value.message
    assert RAW.findall(str(caught.value)) == []
    with pytest.raises(duckdb.Error) as caught:  # through DuckDB, out of a function of ours
        con.execute(f"SELECT predict('{NAME}x', t) FROM t").fetchall()
    assert "does not exist" in str(caught.value)
    assert RAW.findall(str(caught.value)) == []


def test_plans_are_text_for_people_and_json_is_exact(con: grouplearn.Connection) -> None:
    train = f"TRAIN MODEL {QUOTED} USING linear_regression PREDICT y FEATURES (c) FROM t GROUP BY {QUOTED}"
    lines = [line for (line,) in con.execute(f"EXPLAIN {train}").fetchall()]
    assert RAW.findall("".join(lines)) == []
    assert any("\\x1b[2J" in line for line in lines)
    ((page,),) = con.execute(f"EXPLAIN (FORMAT html) {train}").fetchall()
    assert RAW.findall(page) == []
    ((plan,),) = con.execute(f"EXPLAIN (FORMAT json) {train}").fetchall()
    assert RAW.findall(plan) == []
    assert NAME in values_in(json.loads(plan))


def values_in(document: object) -> str:
    """Return every text of a JSON document."""
    if isinstance(document, dict):
        return " ".join(map(values_in, document.values()))
    return " ".join(map(values_in, document)) if isinstance(document, list) else str(document)


def test_notebooks_pages_and_the_name_of_a_report(
    con: grouplearn.Connection, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = con.model(NAME)
    pages = [model.report(), model._repr_html_(), repr(model)]
    running = InteractiveShell.instance()
    running.run_line_magic("load_ext", "grouplearn")
    running.run_line_magic("grouplearn", f"{database} --readonly")
    for statement in [f"FROM {QUOTED} ORDER BY ALL", "FROM t", "SHOW MODELS", STATEMENTS[5]]:
        answer = running.run_cell_magic("gl", "", statement)
        pages += [repr(answer), answer._repr_html_()]
    assert RAW.findall("".join(pages)) == []
    monkeypatch.chdir(tmp_path)
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    assert (main(["report", str(database), NAME]), err.getvalue()) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == [f"{in_file_name(NAME)}.html"]
    assert RAW.findall(out.getvalue() + in_file_name(NAME)) == []


def test_plots_draw_names_letter_by_letter(con: grouplearn.Connection) -> None:
    plots = con.model(NAME).plot
    for axes in (plots.curves(), plots.schedule(), plots.importance()):
        figure = axes.figure
        assert isinstance(figure, Figure)
        figure.savefig(io.BytesIO())  # half a formula raised here
        texts = [text.get_text() for text in axes.findobj() if hasattr(text, "get_text")]
        assert RAW.findall("".join(texts)) == []
    legend = plots.curves().get_legend()
    shown = [text.get_text() for text in legend.get_texts()]
    assert len(shown) == len(VALUES)
    assert any(text.endswith(r"\$0-\$50") for text in shown)


def test_progress_lines() -> None:
    summary = RunSummary(NAME, 2, 4, 40, "auc", True, "gap", "local", 2)
    tally = Tally(summary)
    lines = tally.line() + tally.ending()
    assert RAW.findall(lines) == []
    assert "\\x1b" in lines


def test_letters_of_every_script_are_shown_as_they_are() -> None:
    for text in ("naïve", "日本語", "עברית", "العربية", "\u0646\u200c\u0627", "👨‍👩‍👧", "e\u0301", "❤️"):
        assert visible(text) == text
    assert visible("a\ud800\U000e0041") == "a\\ud800\\U000e0041"
    assert json.loads(in_json(json.dumps("\x9b\U000e0041\n", ensure_ascii=False))) == "\x9b\U000e0041\n"


def test_a_box_has_room_for_what_is_escaped() -> None:
    con = duckdb.connect()
    hidden = con.sql("SELECT 'a\x1b[2J\0\a' AS \"k\u202e\", 'x\u202ey\u200bz' AS v, '\\e' AS v, ['\x1b'] AS l, 1 AS n")
    lines = box_of(hidden, OutputFormat()).splitlines()
    assert {len(line) for line in lines} == {len(lines[0])}
    assert lines[1].split() == ["│", "k\\u202e", "│", "v", "│", "v", "│", "l", "│", "n", "│"]
    assert lines[2].split() == ["│", "varchar", "│", "varchar", "│", "varchar", "│", "varchar[]", "│", "int32", "│"]
    assert "a\\x1b[2J\\x00\\x07 │ x\\u202ey\\u200bz │ \\e " in lines[4]
    assert [column.strip() for column in box_of(con.sql("SELECT '中' AS a"), OutputFormat()).split("│")[5:6]] == ["中"]
