"""Durable runs: whatever dies, RESUME ends with the models of an undisturbed run, and nothing is trained twice."""

from __future__ import annotations

import datetime
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest
from dying_runs import answer, dies, units_trained

import grouplearn
from grouplearn import durable
from grouplearn.data.run_directory import RunDirectory, runs_of
from grouplearn.errors import BindError, Cancelled, ModelExists
from grouplearn.runtime import ledger
from grouplearn.runtime.ledger import Ledger

GROUPS = 6
TRAIN = (
    "TRAIN MODEL m USING {learner} PREDICT y FEATURES (zscore(a), b) FROM t GROUP BY g {search} "
    "WITH (durable = true, {options})"
)
STATEMENTS = {
    "mlp": TRAIN.format(
        learner="mlp", search="OVER GRID (learning_rate IN (0.01, 0.001)) VALIDATE FOLDS 4", options="epochs = 2"
    ),
    "gbdt": TRAIN.format(learner="gbdt", search="OVER GRID (num_leaves IN (4, 8))", options="num_iterations = 3"),
    "folds": TRAIN.format(
        learner="gbdt", search="OVER GRID (num_leaves IN (4, 8)) VALIDATE FOLDS 2", options="num_iterations = 3"
    ),
    "gathered": TRAIN.format(learner="logistic_regression", search="OVER GRID (l2 IN (1, 2))", options="seed = 1"),
}
MODELS = "FROM (SELECT * EXCLUDE (model) FROM grouplearn.artifacts) ORDER BY ALL"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "d.duckdb"
    with duckdb.connect(str(file)) as con:
        con.execute(
            f"CREATE TABLE t AS SELECT i % {GROUPS} AS g, hash(i) % 1000 / 1000 AS a, hash(i + 7) % 1000 / 1000 AS b, "
            "hash(i) % 1700 + hash(i + 3) % 900 > 1000 AS y FROM range(1200) r(i)"
        )
    return file


@pytest.fixture
def prompt_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "FLUSH_SECONDS", 0.0)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return units_trained(monkeypatch)


def undisturbed(path: Path, statement: str) -> list[Any]:
    answer(path, statement)
    models = answer(path, MODELS)
    answer(path, "DROP MODEL m")
    return models


@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.usefixtures("prompt_ledger")
def test_a_run_that_died_is_resumed_with_the_same_models(
    path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    models = undisturbed(path, STATEMENTS[kind])
    every = sorted(trained)
    for deaths in range(1, len(every)):
        trained.clear()
        dies(path, monkeypatch, STATEMENTS[kind], deaths)
        assert len(trained) == deaths
        found = answer(path, "RESUME MODEL m WITH (workers = 1)")
        assert sorted(trained) == every, "every unit once"
        assert answer(path, MODELS) == models
        assert len(found) == GROUPS
        answer(path, "DROP MODEL m")
        assert not runs_of(str(path)).exists()


@pytest.mark.usefixtures("prompt_ledger")
def test_a_run_dies_again_and_again(path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    models = undisturbed(path, STATEMENTS["mlp"])
    every = sorted(trained)
    trained.clear()
    for deaths in range(1, len(every)):
        dies(
            path, monkeypatch, STATEMENTS["mlp"] if deaths == 1 else f"RESUME MODEL m WITH (workers = {deaths})", deaths
        )
    answer(path, "RESUME MODEL m")
    assert sorted(trained) == every
    assert answer(path, MODELS) == models


def test_a_process_that_was_killed(path: Path) -> None:
    statement = TRAIN.format(learner="gbdt", search="", options="num_iterations = 1000, workers = 1")
    models = undisturbed(path, statement)
    code = (
        "import grouplearn, sys; from grouplearn.runtime import ledger; ledger.FLUSH_SECONDS = 0.0\n"
        "grouplearn.connect(sys.argv[1], progress=False).execute(sys.argv[2])"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path), statement])
    try:
        wait_for(lambda: list(runs_of(str(path)).glob("*/units-*.segment")), process)
        (run,) = durable.runs(str(path))
        assert run.alive
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    ((shown, model, status, done, units, seconds, began, on_disk),) = answer(path, "SHOW RUNS")
    assert (shown, model, status, units) == (run.id, "m", "unfinished", 6)
    assert 1 <= done <= 6
    assert 0 <= seconds < (datetime.datetime.now() - began).total_seconds() < 600
    assert re.fullmatch(r"[0-9.]+ [kM]B", on_disk)
    assert len(answer(path, "RESUME MODEL m")) == GROUPS
    assert answer(path, MODELS) == models
    assert answer(path, "SHOW RUNS") == []
    assert not runs_of(str(path)).exists()


def wait_for(condition: Any, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, "the process ended before it could be killed"
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.usefixtures("prompt_ledger")
def test_a_damaged_segment_is_trained_again(path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    models = undisturbed(path, STATEMENTS["mlp"])
    units = len(trained)
    dies(path, monkeypatch, STATEMENTS["mlp"], 3)
    segment = next(iter(sorted(runs_of(str(path)).glob("*/units-*.segment"))))
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    trained.clear()
    answer(path, "RESUME MODEL m")
    assert len(trained) == units - 2
    assert answer(path, MODELS) == models


@pytest.mark.usefixtures("prompt_ledger")
def test_an_interrupt_says_how_to_go_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with grouplearn.connect(path, progress=False) as con:
        noted = Ledger.add

        def interrupts(self: Ledger, result: Any) -> None:
            noted(self, result)
            con.interrupt()

        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "add", interrupts)
            with pytest.raises(Cancelled) as caught:
                con.execute(STATEMENTS["mlp"])
        kept = ledger.read(next(runs_of(str(path)).glob("durable-*")))
        units = sum(len(segment.results) for segment in kept)
        assert str(caught.value) == (
            f"training was interrupted; {units} of its units are kept\n\nHint: RESUME MODEL m goes on from there."
        )
        assert len(con.execute("RESUME MODEL m").fetchall()) == GROUPS


def test_the_table_may_be_gone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(path, monkeypatch, STATEMENTS["mlp"], 0)
    answer(path, "DROP TABLE t")
    assert len(answer(path, "RESUME MODEL m")) == GROUPS


def test_a_model_that_came_in_between_is_not_overwritten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(path, monkeypatch, STATEMENTS["mlp"], 0)
    answer(path, "TRAIN MODEL m USING linear_regression PREDICT a FEATURES (b) FROM t")
    with pytest.raises(ModelExists, match="DROP RUN"):
        answer(path, "RESUME MODEL m")
    (run,) = durable.runs(str(path))
    assert answer(path, f"DROP RUN '{run.id}'") == [(f"run {run.id} of model m is dropped",)]
    assert answer(path, f"DROP RUN IF EXISTS '{run.id}'") == [(f"there is no run {run.id}; nothing was dropped",)]
    assert not runs_of(str(path)).exists()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "RESUME MODEL nothing",
            'there is no unfinished run of a model "nothing"\nThere is no unfinished run.\n\n'
            "LINE 1: RESUME MODEL nothing\n                     ^^^^^^^\n\n"
            "Hint: A run is kept WITH (durable = true), or when it is estimated to be long.",
        ),
        (
            "RESUME MODEL m WITH (epochs = 3)",
            '"epochs" is no option of RESUME\nOptions: workers, executor\n\n'
            "LINE 1: RESUME MODEL m WITH (epochs = 3)\n                             ^^^^^^",
        ),
        (
            "DROP RUN 'ab'",
            "unknown run 'ab'\nRuns: {run}\n\nLINE 1: DROP RUN 'ab'\n                 ^^^^",
        ),
    ],
)
def test_errors(path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, message: str) -> None:
    run = ""
    if "nothing" not in statement:
        dies(path, monkeypatch, STATEMENTS["mlp"], 0)
        (found,) = durable.runs(str(path))
        run = found.id
    with pytest.raises(BindError) as caught:
        answer(path, statement)
    assert str(caught.value) == message.format(run=run)


def test_two_who_resume_one_run_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(path, monkeypatch, STATEMENTS["mlp"], 0)
    (found,) = durable.runs(str(path))
    with RunDirectory.reopened(found.path), monkeypatch.context() as patch:
        patch.setattr(durable, "is_locked", lambda _: False)  # it was not yet when the second one looked
        with pytest.raises(BindError, match='somebody else has begun to resume the run of model "m"'):
            answer(path, "RESUME MODEL m")
    assert len(answer(path, "RESUME MODEL m")) == GROUPS


def test_a_run_that_is_watched_while_it_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(path, monkeypatch, STATEMENTS["mlp"], 0)
    (found,) = durable.runs(str(path))
    assert found.n_bytes > 0
    with RunDirectory.reopened(found.path) as ending:
        ending.remove()
    assert found.n_bytes == 0
    assert answer(path, "SHOW RUNS") == []


def test_what_cannot_be_durable_is_refused() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT range AS a, range AS b FROM range(100)")
        with pytest.raises(BindError, match="a run of a database in memory cannot outlive it"):
            con.execute("TRAIN MODEL m USING linear_regression PREDICT a FROM t WITH (durable = true)")
        con.execute("SHOW RUNS")
        assert [str(column[1]) for column in con.description] == [
            *("VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "BIGINT", "DOUBLE", "TIMESTAMP", "VARCHAR"),
        ]
        assert con.fetchall() == []
