"""Statements that read a model in several queries read one model, whatever other connections train meanwhile."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pytest

import grouplearn
from grouplearn.catalog.checks import invalid_rows
from grouplearn.catalog.overview import Overview
from grouplearn.exchange import exporting
from grouplearn.statements import models
from grouplearn.statements.databases import Databases

matplotlib.use("agg")

TRAIN = "TRAIN OR REPLACE MODEL m USING {} PREDICT y * {} AS y FEATURES (x) FROM t GROUP BY g"
LEARNERS = {
    "in SQL": "linear_regression",
    "by predict": "gbdt",
}


@pytest.fixture(params=LEARNERS)
def con(request: pytest.FixtureRequest) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as opened:
        opened.execute("CREATE TABLE t AS SELECT i % 5 AS g, i % 11 AS x, i AS y FROM range(500) AS r(i)")
        opened.learner = LEARNERS[request.param]
        opened.execute(TRAIN.format(opened.learner, 1)).fetchall()
        yield opened


def replaced_after(
    monkeypatch: pytest.MonkeyPatch, con: grouplearn.Connection, owner: Any, name: str, runs: int = 1
) -> list[str]:
    """Let another connection train the model again as soon as a function of ours has run for the first time, or more ``runs``."""
    function, times = getattr(owner, name), []

    def and_train(*arguments: Any, **options: Any) -> Any:
        found = function(*arguments, **options)
        times.append(name)
        if len(times) == runs:
            trains = threading.Thread(target=lambda: con.cursor().execute(TRAIN.format(con.learner, 2)).fetchall())
            trains.start()
            trains.join()
        return found

    monkeypatch.setattr(owner, name, and_train)
    return times


def export(kind: str) -> Callable[[grouplearn.Connection, Path], object]:
    def run(con: grouplearn.Connection, folder: Path) -> object:
        con.execute(f"EXPORT MODEL m TO '{folder}/{kind}' (FORMAT {kind}, OVERWRITE)")
        files = sorted(path for path in (folder / kind).rglob("*") if path.is_file() and path.suffix != ".json")
        assert files
        return [path.read_bytes() for path in files]

    return run


READING: dict[str, tuple[Callable[[grouplearn.Connection, Path], object], Any, str]] = {
    "EVALUATE": (lambda con, _: con.execute("EVALUATE MODEL m ON t").fetchall(), models, "refuse_invalid_rows"),
    "EVALUATE, at its end": (lambda con, _: con.execute("EVALUATE MODEL m ON t").fetchall(), models, "evaluate_sql"),
    "DESCRIBE": (lambda con, _: con.execute("DESCRIBE MODEL m").fetchall(), models.models, "describe_sql"),
    "EXPORT sql": (export("sql"), exporting, "check"),
    "EXPORT onnx": (export("onnx"), exporting, "check"),
    "EXPORT native": (export("native"), exporting, "check"),
    "report": (lambda con, _: con.model("m").report(), Overview, "_facts"),
    "repr": (lambda con, _: repr(con.model("m")), invalid_rows, "check"),
    "a plot": (
        lambda con, _: sorted(patch.get_width() for patch in con.model("m").plot.importance().patches),
        Overview,
        "_facts",
    ),
}


@pytest.mark.examples(4)
@pytest.mark.parametrize("reading", READING)
def test_what_is_read_is_one_model(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    read, owner, name = READING[reading]
    before = read(con, tmp_path)
    times = replaced_after(monkeypatch, con, owner, name)
    assert read(con, tmp_path) == before
    assert times == [name]
    read(con, tmp_path)  # the model that there is now


def test_a_model_in_python_is_the_one_that_there_is(con: grouplearn.Connection) -> None:
    model = con.model("m")
    con.execute(TRAIN.format(con.learner, 2)).fetchall()
    assert "PREDICT y * 2 AS y" in model.statement
    assert len(model.trials.fetchall()) == 5
    assert "y * 2" in model.report()
    assert model.plot.importance().patches
    con.execute("DROP MODEL m")
    with pytest.raises(grouplearn.Error, match="unknown model"):
        model.report()


def test_retry_beside_train_says_what_has_happened(con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    con.execute("UPDATE t SET y = NULL WHERE g = 0")
    con.execute(TRAIN.format(con.learner, 1)).fetchall()
    replaced_after(monkeypatch, con, Databases, "model", runs=2)  # the first looks for data frames
    con.execute("UPDATE t SET y = x WHERE g = 0")
    with pytest.raises(
        grouplearn.Error, match='model "m" was trained anew or dropped meanwhile, so nothing was stored'
    ):
        con.execute("RETRY FAILED MODEL m")
