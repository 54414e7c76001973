from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import duckdb
import nbformat
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.terminal.interactiveshell import TerminalInteractiveShell
from nbclient import NotebookClient

import grouplearn
from grouplearn.frontends.notebook.magics import SqlMagics, parameters_in

SETUP = "CREATE TABLE t AS SELECT (i % 3)::INTEGER AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i)"
TRAIN = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g OVER GRID (l2 IN (0, 1))"
ENDLESS_TRAIN = "TRAIN MODEL slow USING mlp PREDICT y FEATURES (x) FROM t GROUP BY g WITH (epochs = 10000000)"
INTERRUPTED_LATER = """
import os, signal, threading, time
def interrupt():
    global sent
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.5, interrupt).start()
"""
STOPPED_AT = (
    "import time\nseconds = time.monotonic() - sent\nprint('stopped', seconds < 10)  # 2 s where nothing else runs"
)
JUPYSQL = [
    "con = grouplearn.connect()\n%gl con\n%load_ext sql\n%config SqlMagic.displaycon = False\n%sql con",
    f"%sql {SETUP}",
    f"%sql {TRAIN.replace('MODEL m', 'MODEL theirs')}",
    "%sql SELECT sum(a) + 39 AS total FROM df",
    "%sql TRAIN MODEL bad USING linear_regresion PREDICT y FROM t",
    INTERRUPTED_LATER.replace("0.5", "1.5") + f"get_ipython().run_line_magic('sql', '{ENDLESS_TRAIN}')",
    STOPPED_AT,
    "%sql SELECT 40 + 4 AS alive",
    "%sql grouplearn:///by_url.duckdb --alias url",
    f"%sql {SETUP}",
    f"%%sql\n{TRAIN.replace('MODEL m', 'MODEL by_url')}",
    "%sql SELECT count(*) + 42 AS n FROM by_url WHERE is_best",
    INTERRUPTED_LATER.replace("0.5", "1.5") + f"get_ipython().run_line_magic('sql', '{ENDLESS_TRAIN}')",
    STOPPED_AT,
    "%sql SELECT 40 + 6 AS alive",
    "shown = %sql SHOW MODELS\nprint('shown', [row[0] for row in shown])",
    "%sql SELECT CAST('wrong' AS INTEGER)",
    "%sql SELECT 40 + 8 AS after",
    "type(get_ipython().find_line_magic('sql').__self__).__name__",
]
CELLS = [
    "%load_ext grouplearn",
    f"%%sql\n{SETUP};",
    "import pandas as pd\nfrontier = 100\ndf = pd.DataFrame({'a': [1, 2]})",
    f"%%gl\nEXPLAIN {TRAIN.replace('MODEL m', 'MODEL seen')}",
    "%gl SELECT '<div class=\"grouplearn-plan\"><b>' AS plan",
    f"%%gl lines <<\nEXPLAIN {TRAIN.replace('MODEL m', 'MODEL seen')}",
    "print(lines.fetchall()[0])",
    "%%gl\n-- a comment; and 'a $word'\nSELECT count(*) AS n, 'a<b' AS s, NULL AS z FROM t WHERE x < $frontier",
    f"%%gl best <<\n{TRAIN}",
    "print(type(best).__name__, best.columns[0], len(best.fetchall()))",
    "%gl FROM m ORDER BY ALL",
    "model = _.model",
    "import grouplearn\nmine = grouplearn.connect(progress=None)",
    f"mine.execute({SETUP!r})\nmine.sql({TRAIN!r})",
    "mine.sql('SELECT 1 AS not_a_model')",
    "mine.model('m')",
    "%matplotlib inline\naxes = model.plot.importance()",
    "%sql one << SELECT sum(a) AS total FROM df",
    "one.fetchall()",
    "%%gl\nTRAIN MODEL broken\nUSING linear_regresion PREDICT y FROM t",
    "%%gl\nSELECT $nowhere",
    f"%%gl\n{SETUP.replace('TABLE t', 'TABLE again')};\nSELECT 1 AS last",
    INTERRUPTED_LATER
    + "get_ipython().run_line_magic('gl', 'SELECT count(*) FROM range(100000000000) a, range(1000) b')",
    "%gl SELECT 'alive' AS state",
    INTERRUPTED_LATER.replace("0.5", "1.5") + f"get_ipython().run_cell_magic('gl', '', '{ENDLESS_TRAIN}')",
    "%gl SELECT count(*) AS left_behind FROM duckdb_views() WHERE view_name LIKE 'slow%'",
    INTERRUPTED_LATER.replace("0.5", "1.5")
    + f"mine.execute({ENDLESS_TRAIN!r})  # in a cell of Python, from which Ctrl-C is a KeyboardInterrupt",
    STOPPED_AT,
    "mine.execute('SELECT 40 + 3').fetchall()",
    *JUPYSQL,
]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """One run of the notebook in a real kernel; the outputs of its cells."""
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    node = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": ""}})
    # Elsewhere than in the repository, whose folder sql/ would hide JupySQL's module of that name.
    folder = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
    NotebookClient(node, timeout=60, allow_errors=True, kernel_name="python3", resources=folder).execute()
    return [cell["outputs"] for cell in node["cells"]]


def cell(notebook: list[Any], start: str) -> Any:
    return notebook[next(index for index, source in enumerate(CELLS) if source.startswith(start))]


def test_jupysql_shows_our_answers_through_a_url_and_goes_on_after_an_error(notebook: list[Any]) -> None:
    assert cell(notebook, "shown = %sql")[-1]["text"] == "shown ['by_url']\n"
    assert "48" in str(cell(notebook, "%sql SELECT 40 + 8"))


def html_of(outputs: Any) -> str:
    return next(output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {}))


def html_of_any(outputs: Any) -> str | None:
    pages = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    return pages[-1] if pages else None


def test_a_result_is_a_table_with_types(notebook: list[Any]) -> None:
    shown = html_of(cell(notebook, "%%gl\n-- a comment"))
    assert re.search(r">n<br><small[^>]*>bigint</small>", shown)
    assert ">200</td>" in shown
    assert "a&lt;b" in shown
    assert "NULL</span>" in shown
    assert "1 row<" in shown


def test_explain_is_a_page_with_a_chart(notebook: list[Any]) -> None:
    page = html_of(cell(notebook, "%%gl\nEXPLAIN"))
    assert page.startswith('<div class="grouplearn-plan">')
    assert "<svg" in page


def test_a_users_text_is_no_page_and_a_variable_keeps_the_lines(notebook: list[Any]) -> None:
    assert "&lt;b&gt;" in html_of(cell(notebook, "%gl SELECT '<div"))
    assert cell(notebook, "print(lines")[0]["text"] == "('less than a second, 6 models of 3 groups, 300 rows',)\n"


def test_commands_show_nothing(notebook: list[Any]) -> None:
    assert cell(notebook, "%%sql\nCREATE") == []


def test_train_shows_progress_that_ends_as_one_line_and_assigns_its_result(notebook: list[Any]) -> None:
    outputs = cell(notebook, "%%gl best")
    assert len(outputs) == 1
    assert re.search(r"m \| groups 3/3 \| trials 6/6 \| .* best rmse .* local", outputs[0]["data"]["text/plain"])
    assert cell(notebook, "print(type(best)")[0]["text"] == "DuckDBPyRelation g 3\n"


def test_best_trials_are_marked(notebook: list[Any]) -> None:
    rows = html_of(cell(notebook, "%gl FROM m")).split("<tr")[2:]
    assert len(rows) == 6
    assert sum('class="best"' in row for row in rows) == 3


def test_python_variables_are_tables_and_parameters(notebook: list[Any]) -> None:
    assert cell(notebook, "one.fetchall")[0]["data"]["text/plain"] == "[(3,)]"


def test_an_error_is_its_message_with_the_caret_and_no_traceback(notebook: list[Any]) -> None:
    (output,) = cell(notebook, "%%gl\nTRAIN MODEL broken")
    assert output["output_type"] == "error"
    assert output["ename"] == "BindError"
    text = "\n".join(output["traceback"])
    assert "LINE 2: USING linear_regresion PREDICT y FROM t\n              ^^^^^^^^^^^^^^^^" in text
    assert 'Did you mean "linear_regression"?' in text
    assert "Traceback" not in text
    assert ".py" not in text


def test_an_unknown_parameter_is_named(notebook: list[Any]) -> None:
    (output,) = cell(notebook, "%%gl\nSELECT $nowhere")
    assert output["traceback"] == ["$nowhere is not a variable of this notebook"]


def test_the_last_of_several_statements_is_shown(notebook: list[Any]) -> None:
    assert "last" in html_of(cell(notebook, "%%gl\nCREATE TABLE again"))


def test_interrupting_the_kernel_stops_a_statement_and_nothing_else(notebook: list[Any]) -> None:
    (output,) = cell(notebook, INTERRUPTED_LATER)
    assert output["traceback"] == ["Interrupted"]
    assert "alive" in html_of(cell(notebook, "%gl SELECT 'alive'"))


def test_interrupting_the_kernel_stops_train_and_leaves_nothing(notebook: list[Any]) -> None:
    stopped = next(index for index, source in enumerate(CELLS) if ENDLESS_TRAIN in source)
    outputs = notebook[stopped]
    assert outputs[-1]["traceback"] == ["Training was interrupted; nothing was stored"]
    assert all("slow | stopped" in output["data"]["text/plain"] for output in outputs[:-1])
    assert ">0</td>" in html_of(notebook[stopped + 1])


def test_ctrl_c_in_a_cell_of_python_is_a_keyboard_interrupt(notebook: list[Any]) -> None:
    stopped = next(index for index, source in enumerate(CELLS) if "mine.execute" in source and ENDLESS_TRAIN in source)
    assert notebook[stopped][-1]["ename"] == "KeyboardInterrupt"
    assert notebook[stopped + 1][0]["text"] == "stopped True\n"
    assert notebook[stopped + 2][0]["data"]["text/plain"] == "[(43,)]"


def test_model_tables_of_python_are_shown_too(notebook: list[Any]) -> None:
    trained, other, handle = (
        html_of_any(cell(notebook, start)) for start in ("mine.execute(", "mine.sql('SELECT 1", "mine.model")
    )
    assert trained is not None
    assert trained.startswith('<div class="grouplearn-table">')
    assert other is not None
    assert "grouplearn" not in other  # but DuckDB's own table
    assert handle is not None
    assert handle.count('class="best"') == 3


def test_a_shown_model_has_plots(notebook: list[Any]) -> None:
    assert "image/png" in cell(notebook, "%matplotlib")[0]["data"]


def jupysql(notebook: list[Any]) -> list[Any]:
    return notebook[-len(JUPYSQL) :]


def test_jupysql_takes_our_connection(notebook: list[Any]) -> None:
    outputs = jupysql(notebook)
    for place in (0, 1, 2, 3, -1):
        assert not [output for output in outputs[place] if output["output_type"] == "error"]
    assert "valid_rmse" in str(outputs[2])
    assert "42" in str(outputs[3])
    assert outputs[-1][0]["data"]["text/plain"] == "'SqlMagic'"


def test_jupysql_shows_our_error_with_its_caret(notebook: list[Any]) -> None:
    shown = str(jupysql(notebook)[4])
    assert "^^^^^^^^^^^^^^^^" in shown
    assert "Did you mean" in shown


def test_jupysql_takes_our_url(notebook: list[Any]) -> None:
    outputs = jupysql(notebook)
    for place in (8, 9, 10, 11):
        assert not [output for output in outputs[place] if output["output_type"] == "error"], outputs[place]
    assert "valid_rmse" in str(outputs[10])
    assert "45" in str(outputs[11])


@pytest.mark.parametrize(("stopped", "alive"), [(5, "44"), (12, "46")], ids=["connection", "url"])
def test_interrupting_jupysql_stops_train_and_leaves_the_connection(
    notebook: list[Any], stopped: int, alive: str
) -> None:
    outputs = jupysql(notebook)
    assert outputs[stopped][-1]["ename"] == "KeyboardInterrupt"
    assert outputs[stopped + 1][0]["text"] == "stopped True\n"
    assert alive in str(outputs[stopped + 2])


@pytest.fixture
def ipython() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    yield shell
    grouplearn.unload_ipython_extension(shell)
    shell.reset(new_session=False)


def test_sql_is_left_to_whoever_has_it(ipython: InteractiveShell) -> None:
    def theirs(line: str) -> str:
        return "theirs"

    ipython.register_magic_function(theirs, "line", "sql")
    grouplearn.load_ipython_extension(ipython)
    assert ipython.run_line_magic("sql", "SELECT 1") == "theirs"
    assert ipython.run_line_magic("gl", "SELECT 1 AS a").relation.fetchall() == [(1,)]
    grouplearn.unload_ipython_extension(ipython)
    assert ipython.find_line_magic("gl") is None
    assert ipython.run_line_magic("sql", "SELECT 1") == "theirs"
    del ipython.magics_manager.magics["line"]["sql"]


def test_a_header_names_a_connection_and_a_variable(ipython: InteractiveShell, tmp_path: Any) -> None:
    grouplearn.load_ipython_extension(ipython)
    ipython.run_line_magic("grouplearn", str(tmp_path / "x.duckdb"))
    ipython.run_cell_magic("gl", "", "CREATE TABLE here (i INTEGER)")
    assert (tmp_path / "x.duckdb").exists()
    ipython.user_ns["plain"] = duckdb.connect()
    ipython.user_ns["plain"].execute("CREATE TABLE there AS SELECT 5 AS i")
    assert ipython.run_cell_magic("gl", "plain found <<", "SHOW MODELS; FROM there") is None
    assert ipython.user_ns["found"].fetchall() == [(5,)]
    assert ipython.run_line_magic("gl", "plain") is None
    assert repr(ipython.run_line_magic("gl", "FROM there")).count("5") == 1
    with pytest.raises(grouplearn.ProgrammingError, match='"1x <<": write the name of a variable before <<'):
        ipython.run_cell_magic("gl", "1x <<", "SELECT 1")
    with pytest.raises(grouplearn.ProgrammingError, match='"SELECT 1" is not a connection'):
        ipython.run_cell_magic("gl", "SELECT 1", "SELECT 2")


def test_cells_use_files_as_far_as_the_settings_of_their_connection_let_them(
    ipython: InteractiveShell, tmp_path: Any
) -> None:
    grouplearn.load_ipython_extension(ipython)
    ipython.run_line_magic("grouplearn", "")
    ipython.run_cell_magic(
        "gl",
        "",
        "CREATE TABLE t AS SELECT range * 1.0 AS x, range * 2.0 AS y FROM range(20);"
        "TRAIN MODEL m USING linear_regression PREDICT y FROM t; SET enable_external_access = false;",
    )
    ipython.user_ns["frame"] = pd.DataFrame({"x": [1.0, 2.0], "y": [2.0, 4.0]})
    with pytest.raises(grouplearn.AccessRefused, match="may not be used: enable_external_access is false"):
        ipython.run_line_magic("gl", f"EXPORT MODEL m TO '{tmp_path}/m'")
    with pytest.raises(grouplearn.Error, match="Table with name frame does not exist"):
        ipython.run_cell_magic("gl", "", "TRAIN MODEL n USING linear_regression PREDICT y FROM frame")
    ipython.run_line_magic("gl", "SET lock_configuration = true")
    with pytest.raises(grouplearn.BindError, match="the configuration has been locked"):
        ipython.run_line_magic("gl", "SET grouplearn_workers = 2")
    assert list(tmp_path.glob("m*")) == []


@pytest.mark.parametrize("magic", ["gl", "sql"])
def test_variables_in_a_line_are_values_as_in_a_cell(ipython: InteractiveShell, magic: str) -> None:
    grouplearn.load_ipython_extension(ipython)
    ipython.run_line_magic("grouplearn", "")
    ipython.run_line_magic(magic, "CREATE TABLE t AS SELECT 'anna' AS name")
    evil = "1; DROP TABLE t; SELECT 2"
    ipython.user_ns |= {"evil": evil, "always": "name OR true"}

    def rows(line: str) -> Any:
        return ipython.run_line_magic(magic, line).relation.fetchall()

    assert rows("SELECT $evil") == [(evil,)]
    assert rows("FROM t WHERE name = $always") == []
    assert rows("SELECT {'evil': 1} AS s, $$ {evil} $evil $$ AS d") == [({"evil": 1}, " {evil} $evil ")]
    ipython.run_line_magic(magic, "found << SELECT $evil")
    assert ipython.user_ns["found"].fetchall() == [(evil,)]
    for header in ("$evil", "{evil}"):
        with pytest.raises(grouplearn.ProgrammingError, match=re.escape(f'"{header}" is not a connection')):
            ipython.run_cell_magic(magic, header, "SELECT 1")
    assert rows("FROM t") == [("anna",)]


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("'unclosed", r"'unclosed: a quote is not closed, or a backslash .*\n\nUsage: %grouplearn \[path\]"),
        ("--nothing", r"Usage: %grouplearn \[path\] \[--readonly\]"),
        ("a b", r"Usage: %grouplearn"),
        ("x\ud800", r'a path of a database cannot have the character "\\ud800": "x\\ud800"'),
        ("x\0y", r'a path of a database cannot have the character "\\x00": "x\\x00y"'),
    ],
)
def test_a_database_that_cannot_be_opened_is_a_message(
    ipython: InteractiveShell, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    grouplearn.load_ipython_extension(ipython)
    with pytest.raises(grouplearn.ProgrammingError, match=message) as error:
        ipython.run_line_magic("grouplearn", line)
    assert hasattr(error.value, "_render_traceback_")
    assert list(tmp_path.iterdir()) == []


def test_keywords_and_halves_of_surrogates_are_messages(ipython: InteractiveShell) -> None:
    grouplearn.load_ipython_extension(ipython)
    for words in ("import <<", "None <<"):
        with pytest.raises(grouplearn.ProgrammingError, match=f'"{words}": write the name of a variable before <<'):
            ipython.run_cell_magic("gl", words, "SELECT 1")
        with pytest.raises(grouplearn.ProgrammingError, match=f'"{words}": write the name of a variable before <<'):
            ipython.run_line_magic("gl", f"{words} SELECT 1")
    for text in ("SELECT '\ud800'", "SHOW MODELS; SELECT $\ud800"):
        with pytest.raises(
            grouplearn.ProgrammingError, match=r'"\\ud800" is half of a surrogate pair(.|\n)*\^'
        ) as error:
            ipython.run_cell_magic("gl", "", text)
        assert hasattr(error.value, "_render_traceback_")


def test_ipython_is_not_loaded_to_mark_our_magics() -> None:
    from IPython.core.magic import MAGIC_NO_VAR_EXPAND_ATTR

    assert getattr(SqlMagics.run, MAGIC_NO_VAR_EXPAND_ATTR)
    code = "import sys, grouplearn.frontends.notebook.magics; print('IPython' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_parameters_are_found_outside_strings_and_comments() -> None:
    assert parameters_in("SELECT 'é$a', $b, $$ $c $$, $b /* $d */ + $e1 -- $f\n + $1") == ["b", "e1"]


def test_a_terminal_is_shown_the_text_of_a_plan() -> None:
    magics = SqlMagics(TerminalInteractiveShell(simple_prompt=True))
    magics.run("", "CREATE TABLE t AS SELECT i AS x, i AS y FROM range(9) AS r(i)")
    plan = repr(magics.run("EXPLAIN TRAIN MODEL m USING linear_regression PREDICT y FROM t"))
    assert re.match(r"(less than a second|about .*), \d+ models? of .*\nLogical plan\n", plan)
    assert "<html" not in plan
