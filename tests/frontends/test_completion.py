"""Completion offers what the statement asks for, in the shell and in notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

import grouplearn
from grouplearn.frontends.completion import completions
from grouplearn.frontends.shell.console import Console
from grouplearn.frontends.shell.prompt import SqlCompleter

TRAIN = "TRAIN MODEL m USING gbdt PREDICT delay FROM flights "


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            'CREATE TABLE flights AS SELECT i % 2 AS carrier, i * 1.0 AS delay, i AS "odd name" FROM range(40) AS r(i)'
        )
        con.execute("TRAIN MODEL late USING linear_regression PREDICT delay FROM flights GROUP BY carrier")
        yield con


def console(con: Any) -> Console:
    """Return the shell's console on a connection."""
    return Console(lambda *_: con)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("TRAIN MODEL m USING pois", ["poisson_regression"]),
        ("TRAIN MODEL m USING gbdt, km", ["kmeans"]),
        ("train or replace model m using random_f", ["random_forest"]),
        ("CALIBRATE LEARNER pc", ["pca"]),
        (TRAIN + "OVER TP", ["TPE"]),
        (TRAIN + "OVER GRID (num_le", ["num_leaves"]),
        (TRAIN + "OVER GRID (num_leaves IN (4, 8), learning_", ["learning_rate"]),
        (TRAIN + "WITH (exec", ["executor"]),
        (TRAIN + "WITH (executor = ", ["'auto'", "'local'", "'ray'"]),
        (TRAIN + "VALIDATE ", ["WHERE", "SAMPLE", "FOLDS", "ROLLING", "NONE"]),
        (TRAIN + "OPTIMIZE gamma", ["gamma_deviance"]),
        (TRAIN + "GROUP BY carr", ["carrier"]),
        ("TRAIN MODEL m USING gbdt PREDICT delay FEATURES (zs", ["zscore"]),
        ("TRAIN MODEL m USING gbdt PREDICT delay FEATURES (AUTO, zscore(del", ["delay"]),
        ("TRAIN MODEL m USING gbdt PREDICT delay FROM flig", ["flights"]),
        ("DROP MODEL IF EXISTS l", ["late"]),
        ("SHOW FUNCTIONS OF l", ["late"]),
        ("SELECT 1; DESCRIBE MODEL ", ["late"]),
        ("DROP TABLE IF EXISTS flig", ["flights"]),
        ("FROM late_pre", ["late_predict"]),
        ("EXPORT MODEL late TO 'x' (FORMAT onn", ["onnx"]),
        ("REFRESH MODEL late WITH (refit_f", ["refit_features"]),
        ("SET grouplearn_ex", ["grouplearn_executor"]),
        ("SELECT odd", ['"odd name"']),
        ("EVALUA", ["EVALUATE"]),
        ("SELECT 'exec", []),
        ("SELECT 12", []),
    ],
)
def test_what_may_stand_at_a_place(con: Any, before: str, expected: list[str]) -> None:
    assert completions(before, con)[1] == expected


def test_a_new_model_has_no_name_to_complete(con: Any) -> None:
    assert completions("TRAIN MODEL l", con)[1][:1] != ["late"]


def test_clauses_that_a_statement_has_are_not_offered_again(con: Any) -> None:
    assert "VALIDATE" in completions(TRAIN + "V", con)[1][:2]
    assert "VALIDATE" not in completions(TRAIN + "VALIDATE FOLDS 3 KEEP BEST 1 V", con)[1][:1]


def test_the_shell_replaces_the_word(con: Any) -> None:
    found = [*SqlCompleter(console(con)).get_completions(Document("DESCRIBE MODEL la"), CompleteEvent())]
    assert [(each.text, each.start_position) for each in found] == [("late", -2)]
    assert [each.text for each in SqlCompleter(console(con)).get_completions(Document(".tim"), CompleteEvent())] == [
        ".timer"
    ]


def test_notebooks_complete_cells_and_lines_of_ours_alone(con: Any) -> None:
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "grouplearn")
    shell.user_ns["con"] = con
    shell.run_cell_magic("gl", "con", "SELECT 1")

    def offered(cell: str) -> list[str]:
        with provisionalcompleter():
            return [each.text for each in shell.Completer.completions(cell, len(cell))]

    try:
        assert offered("%%gl\nDROP MODEL la") == ["late"]
        assert offered("%%gl best <<\nSELECT delay,\n odd") == ['"odd name"']
        assert offered("%gl best << DROP MODEL la") == ["late"]
        assert "late" not in offered("DROP = la")
    finally:
        shell.run_line_magic("unload_ext", "grouplearn")
    assert offered("%%gl\nDROP MODEL la") != ["late"]
