"""RETRY and RESUME start no other processes because a file says so, only where the user asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from helpers.dying_runs import answer, dies
from helpers.thorough import some

from grouplearn.errors import BindError
from grouplearn.runtime.local import LocalRuntime
from grouplearn.statements.workflow import scheduled, training

TRAIN = "TRAIN MODEL m USING {} PREDICT y FEATURES (x) FROM t GROUP BY g ON NULL LABEL ERROR WITH ({})"
#: What the user does, and where the models are trained then.
ASKS = {
    "nothing": ([], "", "local"),
    "auto": ([], " WITH (executor = 'auto')", "local"),
    "with": ([], " WITH (executor = 'ray')", "ray"),
    "set": (["SET grouplearn_executor = 'ray'"], "", "ray"),
    "set auto": (["SET grouplearn_executor = 'auto'"], "", "local"),
    "trust": (["SET grouplearn_trust = true"], "", "ray"),
    "trust and local": (["SET grouplearn_trust = true"], " WITH (executor = 'local')", "local"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "d.duckdb"
    with duckdb.connect(str(found)) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 2 AS g, i * 0.01 AS x, CASE WHEN i <> 3 THEN x END AS y FROM range(60) AS r(i)"
        )
    return found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the names of the runtimes on which units are run; none of them is other processes."""
    found: list[str] = []

    def runtime(name: str, *_: Any, **__: Any) -> LocalRuntime:
        found.append(name)
        return LocalRuntime()

    monkeypatch.setattr(scheduled, "runtime", runtime)
    monkeypatch.setattr(training, "get_ready", lambda *_: None)
    return found


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("verb", "asks"), [("RESUME", asks) for asks in ASKS] + [("RETRY FAILED", asks) for asks in some([*ASKS], 4)]
)
def test_who_asks(path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch, verb: str, asks: str) -> None:
    settings, options, place = ASKS[asks]
    statement = TRAIN.format("linear_regression", "executor = 'ray', durable = true")
    if verb == "RESUME":
        dies(path, monkeypatch, statement, 0)
    else:
        answer(path, statement, "UPDATE t SET y = 1 WHERE y IS NULL")
    assert set(started) == {"ray"}
    started.clear()
    answer(path, *settings, f"{verb} MODEL m{options}")
    assert set(started) == {place}


@pytest.mark.parametrize("verb", ["RESUME", "RETRY FAILED"])
def test_an_operator_that_needs_other_processes(
    path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    statement = TRAIN.format("gbdt", "operator = 'data_parallel', workers = 1, num_iterations = 2, durable = true")
    if verb == "RESUME":
        dies(path, monkeypatch, statement, 0)
    else:
        answer(path, statement, "UPDATE t SET y = 1 WHERE y IS NULL")
    started.clear()
    with pytest.raises(BindError) as caught:
        answer(path, f"{verb} MODEL m")
    assert str(caught.value).startswith("operator data_parallel runs learners that train on ")
    assert str(caught.value).endswith(
        "\n\nHint: WITH (executor = 'ray') starts other processes, and SET grouplearn_trust = true does what the file says."
    )
    assert started == []
