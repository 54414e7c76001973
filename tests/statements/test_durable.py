"""Durable runs: whatever dies, RESUME ends with the models of an undisturbed run, and nothing is trained twice."""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from helpers.dying_runs import answer, dies, units_trained
from helpers.runtime_jobs import changed
from helpers.thorough import some

import grouplearn
from grouplearn.data.dataset import ARRAYS
from grouplearn.data.files import checksums
from grouplearn.data.files.plain_values import from_bytes, to_bytes
from grouplearn.data.files.run_directory import RunDirectory, runs_of
from grouplearn.errors import BindError, Cancelled, ModelExists, TrainingError
from grouplearn.plan import physical
from grouplearn.statements.workflow import durable
from grouplearn.statements.workflow.manifest import FORMAT, KINDS, Manifest
from grouplearn.train.results import ledger
from grouplearn.train.results.ledger import Ledger

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
    "wide": TRAIN.format(
        learner="logistic_regression", search="OVER GRID (l2 IN (1, 2))", options="solver = 'coordinate_descent'"
    ).replace("zscore(a), b", "zscore(a), hash([b, g], 10000000) AS h, hash(b, 5000)"),
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


@pytest.mark.examples(2)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.usefixtures("prompt_ledger")
def test_a_run_that_died_is_resumed_with_the_same_models(
    path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    models = undisturbed(path, STATEMENTS[kind])
    every = sorted(trained)
    before = shutil.copy(path, path.with_name("before.duckdb"))
    for deaths in some(range(1, len(every)), 3 if kind == "folds" else 2):
        shutil.copy(before, path)  # for less than a DROP MODEL after each
        trained.clear()
        dies(path, monkeypatch, STATEMENTS[kind], deaths)
        assert len(trained) == deaths
        found = answer(path, "RESUME MODEL m WITH (workers = 1)")
        assert sorted(trained) == every, "every unit once"
        assert answer(path, MODELS) == models
        assert len(found) == GROUPS
        assert not runs_of(str(path)).exists()


@pytest.mark.usefixtures("prompt_ledger")
def test_groups_whose_rows_lie_in_many_places_are_resumed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = STATEMENTS["gbdt"].replace("GROUP BY g", "GROUP BY CUBE (g, b > 0.5)")
    models = undisturbed(path, statement)
    dies(path, monkeypatch, statement, 5)
    answer(path, "RESUME MODEL m WITH (workers = 1)")
    assert answer(path, MODELS) == models


@pytest.mark.examples(1)
@pytest.mark.usefixtures("prompt_ledger")
@pytest.mark.parametrize("deaths", [4, 1])
def test_packs_over_blocks_go_on_beside_fewer_others(path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int) -> None:
    """What a pack learns, and its folds' metrics, do not depend on the packs of its group that are left."""
    monkeypatch.setattr(physical, "BLOCK_ROWS", 32)
    search = "HAVING g < 3 OVER GRID (hidden_layers IN ([4], [8], [3])) VALIDATE FOLDS 2"
    statement = TRAIN.format(learner="mlp", search=search, options="epochs = 2, workers = 2, operator = 'gap'")
    table = "SELECT * EXCLUDE (seconds) FROM m ORDER BY ALL"
    answer(path, statement)
    expected = [answer(path, query) for query in (MODELS, table)]
    answer(path, "DROP MODEL m")
    dies(path, monkeypatch, statement, deaths)
    answer(path, "RESUME MODEL m")
    assert [answer(path, query) for query in (MODELS, table)] == expected


@pytest.mark.thorough
@pytest.mark.usefixtures("prompt_ledger")
def test_a_run_dies_again_and_again(path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    models = undisturbed(path, STATEMENTS["mlp"])
    every = sorted(trained)
    trained.clear()
    for deaths in some(range(1, len(every)), 5):
        dies(
            path, monkeypatch, STATEMENTS["mlp"] if deaths == 1 else f"RESUME MODEL m WITH (workers = {deaths})", deaths
        )
    answer(path, "RESUME MODEL m")
    assert sorted(trained) == every
    assert answer(path, MODELS) == models


def test_a_process_that_was_killed(path: Path) -> None:
    statement = TRAIN.format(learner="gbdt", search="VALIDATE NONE", options="num_iterations = 500, workers = 1")
    models = undisturbed(path, statement)
    code = (
        "import grouplearn, sys; from grouplearn.train.results import ledger; ledger.FLUSH_SECONDS = 0.0\n"
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
    assert 0 <= seconds < (now_utc() - began).total_seconds() < 600
    assert on_disk > 1000
    assert len(answer(path, "RESUME MODEL m")) == GROUPS
    assert answer(path, MODELS) == models
    assert answer(path, "SHOW RUNS") == []
    assert not runs_of(str(path)).exists()


def now_utc() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


def wait_for(condition: Any, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, "the process ended before it could be killed"
        assert time.monotonic() < ends
        time.sleep(0.01)


def sealed(path: Path, content: bytes) -> None:
    """Write what a file of a run says, with its digest, as somebody who means harm would."""
    path.write_bytes(hashlib.sha256(content).digest() + content)


FORGERIES = {
    "trees beyond the features": lambda content: content.replace(b"split_feature=0", b"split_feature=9"),
    "trees in circles": lambda content: re.sub(rb"left_child=-?\d", lambda found: found[0][:-1] + b"0", content),
    "nothing": lambda _: b"",
    "another value": lambda _: to_bytes((1, 2)),
    "a field of another type": lambda content: re.sub(rb'(\\"seconds\\":)[0-9.e-]+', rb"\g<1>true", content),
    "a group that is not there": lambda content: re.sub(rb'(\\"group\\":)\d', rb"\g<1>9", content),
}


@pytest.mark.usefixtures("prompt_ledger")
def test_a_segment_with_a_right_digest_that_cannot_be_is_trained_again(
    path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = undisturbed(path, STATEMENTS["gbdt"])
    units = len(trained)
    dies(path, monkeypatch, STATEMENTS["gbdt"], 3)
    died = shutil.copytree(runs_of(str(path)), path.with_name("died"))
    segment = next(iter(sorted(runs_of(str(path)).glob("*/units-*.segment"))))
    content = segment.read_bytes()[32:]
    for name, forge in FORGERIES.items():
        forged = forge(content)
        assert forged != content
        sealed(segment, forged)
        trained.clear()
        with grouplearn.connect(path, progress=False) as con:
            con.execute("RESUME MODEL m")
            assert len(trained) == units - 2, name
            assert con.execute(MODELS).fetchall() == models, name
            con.execute("DROP MODEL m")
        shutil.copytree(died, runs_of(str(path)))


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


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


DAMAGES = {
    "flipped": (flipped, "its bytes from 0 on are not those that were written"),
    "cut": (lambda file: os.truncate(file, 100), "it has 100 bytes and had {}"),
    "empty": (lambda file: file.write_bytes(b""), "it has 0 bytes and had {}"),
    "gone": (Path.unlink, "it is not there"),
    "longer": (lambda file: os.truncate(file, file.stat().st_size + 8), "it has {longer} bytes and had {}"),
    "unreadable": (lambda file: (file.unlink(), file.mkdir()), "it <ignore>"),
}


def test_rows_that_are_damaged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is trained on them, or on files that are no arrays any more; what was trained stays for the day they are mended."""
    dies(path, monkeypatch, STATEMENTS["gathered"], 0)
    (run,) = durable.runs(str(path))
    for (damage, (inflict, how)), name in zip(DAMAGES.items(), [*ARRAYS, "y"], strict=True):
        file = run.path / f"{name}.npy"
        content = file.read_bytes()
        inflict(file)
        with pytest.raises(TrainingError) as caught:
            answer(path, "RESUME MODEL m")
        told = how.format(f"{len(content):,}", longer=f"{len(content) + 8:,}")
        before, _, after = (
            f"the rows of run {run.id} are damaged, so nothing was trained\nFile: {file}: {told}\n\n"
            f"LINE 1: RESUME MODEL m\n                     ^\n\nHint: DROP RUN '{run.id}', and TRAIN again."
        ).partition("<ignore>")
        assert str(caught.value).startswith(before)
        assert str(caught.value).endswith(after)
        if damage == "unreadable":
            file.rmdir()
        file.write_bytes(content)
    assert len(answer(path, "RESUME MODEL m")) == GROUPS


@pytest.mark.usefixtures("prompt_ledger")
def test_an_interrupt_while_rows_are_checked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be many: of a TRAIN nothing is left, of a run everything."""
    dies(path, monkeypatch, STATEMENTS["mlp"], 2)
    crc32 = zlib.crc32
    with grouplearn.connect(path, progress=False) as con, monkeypatch.context() as patch:
        patch.setattr(zlib, "crc32", lambda data: (con.interrupt(), crc32(data))[1])
        with pytest.raises(Cancelled, match="training was interrupted; 2 of its units are kept"):
            con.execute("RESUME MODEL m")
        (run,) = durable.runs(str(path))
        with pytest.raises(Cancelled, match="training was interrupted; nothing was stored"):
            con.execute(OR_REPLACE.replace("MODEL m", "MODEL n"))
        assert [each.id for each in durable.runs(str(path))] == [run.id]
    assert len(answer(path, "RESUME MODEL m")) == GROUPS


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


NEWER = "TRAIN {}MODEL m USING linear_regression PREDICT a FEATURES (b) FROM t"
OR_REPLACE = STATEMENTS["gathered"].replace("TRAIN MODEL", "TRAIN OR REPLACE MODEL")
LEARNER = "SELECT learner FROM grouplearn.models"


@pytest.mark.parametrize("before", [(), (NEWER.format(""),)])
def test_a_newer_model_is_not_overwritten_unless_told_to(
    path: Path, monkeypatch: pytest.MonkeyPatch, before: tuple[str, ...]
) -> None:
    """Trained after the run began, or trained anew: an unfinished OR REPLACE speaks of the model that was there then."""
    answer(path, "SELECT 1", *before)
    dies(path, monkeypatch, OR_REPLACE, 0)
    answer(path, NEWER.format("OR REPLACE "))
    (run,) = durable.runs(str(path))
    with pytest.raises(ModelExists) as caught:
        answer(path, "RESUME MODEL main.m")
    assert str(caught.value) == (
        f'model "m" is newer than its unfinished run, which began {began(run)}\n\n'
        "LINE 1: RESUME MODEL main.m\n                     ^^^^^^\n\n"
        f"Hint: RESUME OR REPLACE MODEL main.m overwrites it; DROP RUN '{run.id}' gives up the run."
    )
    assert answer(path, LEARNER) == [("linear_regression",)]
    assert len(answer(path, "RESUME OR REPLACE MODEL m")) == GROUPS
    assert answer(path, LEARNER) == [("logistic_regression",)]
    assert not runs_of(str(path)).exists()


def began(run: durable.UnfinishedRun) -> str:
    return datetime.datetime.fromtimestamp(run.manifest.began).isoformat(" ", "seconds")


@pytest.mark.examples(2)
@pytest.mark.parametrize("between", ["SELECT 1", "DROP MODEL m", "ALTER MODEL m RENAME TO n"])
def test_the_model_that_was_there_is_replaced(path: Path, monkeypatch: pytest.MonkeyPatch, between: str) -> None:
    answer(path, NEWER.format(""))
    dies(path, monkeypatch, OR_REPLACE, 0)
    answer(path, between)
    assert len(answer(path, "RESUME MODEL m")) == GROUPS


def test_a_model_that_comes_while_a_run_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(path, monkeypatch, OR_REPLACE, 0)
    with grouplearn.connect(path, progress=False) as con, monkeypatch.context() as patch:
        flush = Ledger.flush

        def overtaken(self: Ledger) -> None:
            if not con.execute("FROM duckdb_views() WHERE view_name = 'm'").fetchall():
                con.cursor().execute(NEWER.format(""))
            flush(self)

        patch.setattr(Ledger, "flush", overtaken)
        with pytest.raises(ModelExists, match="is newer than its unfinished run"):
            con.execute("RESUME MODEL m")
    assert answer(path, LEARNER) == [("linear_regression",)]
    assert len(answer(path, "RESUME OR REPLACE MODEL m")) == GROUPS


def test_what_is_no_model_is_never_overwritten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(path, monkeypatch, OR_REPLACE, 0)
    answer(path, "CREATE VIEW m_weights AS SELECT 1 AS x")
    (run,) = durable.runs(str(path))
    for statement in ("RESUME MODEL m", "RESUME OR REPLACE MODEL m"):
        with pytest.raises(ModelExists, match=f"Hint: Rename that, or DROP RUN '{run.id}' gives up the run"):
            answer(path, statement)
    assert answer(path, "FROM m_weights") == [(1,)]


def test_a_run_whose_model_came_in_between(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


#: Bytes of a file that holds an array, in place of others of it, and how it differs then.
HEADERS = {
    "key": (b"'descr'", b"'xescr'", "it is no array of rows"),
    "objects": (b"'<f8'", b"'|O' ", "it is an array of object (1200,), not of 1200 rows of float64"),
    "brackets": (b"False", b"Fa(se", "it is no array of rows"),
    "longer": (b"(1200,)", b"(9999,)", "it ends before its rows do"),
    "much longer": (b"(1200,), } ", b"(10**99,), }", "it is no array of rows"),
    "longest": (b"(1200,), }            ", b"(9223372036854775807,)", "it is no array of rows"),
    "before its beginning": (b"(1200,)", b"(-120,)", "it is an array of float64 (-120,), not of 1200 rows of float64"),
    "a truth": (b"(1200,)", b"(True,)", "it is an array of float64 (True,), not of 1200 rows of float64"),
    "a text": (b"(1200,)", b"('00',)", "it is no array of rows"),
    "version": (b"\x93NUMPY\x01", b"\x93NUMPY\x03", "it is no array of rows"),
    "a zip": (b"\x93NUMPY", b"PK\x05\x06AB", "it is no array of rows"),
    "brackets in brackets": (b"{", b"[" * 60 + b"{", "it is no array of rows"),
    "shorter": (b"(1200,)", b"(1100,)", "it is an array of float64 (1100,), not of 1200 rows of float64"),
    "other numbers": (b"'<f8'", b"'<i8'", "it is an array of int64 (1200,), not of 1200 rows of float64"),
    "magic": (b"\x93NUMPY", b"\x93NUMPX", "it is no array of rows"),
    "a class": (np.float64(1).tobytes(), np.float64(7).tobytes(), "a class has no name"),
}


def test_rows_that_cannot_be_with_right_checksums(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(path, monkeypatch, STATEMENTS["gathered"], 0)
    (run,) = durable.runs(str(path))
    file = run.path / "y.npy"
    content = file.read_bytes()
    with grouplearn.connect(path, progress=False) as con:
        for old, new, how in HEADERS.values():
            assert old in content
            file.write_bytes(content.replace(old, new, 1))
            sums = checksums.measured([run.path / each.name for each in run.manifest.sums], lambda: None)
            saying(lambda manifest, sums=sums: replace(manifest, sums=sums))(run.path / "manifest")
            with pytest.raises(TrainingError, match=re.escape(f": {how}\n")):
                con.execute("RESUME MODEL m")


def damaged(manifest: Path) -> None:
    manifest.write_bytes(manifest.read_bytes()[:-1] + b"?")


def of_another_version(manifest: Path) -> None:
    content = ledger.checked(manifest)
    assert content is not None
    written, other = (f'"format":{number}'.encode().replace(b'"', b'\\"') for number in (FORMAT, FORMAT + 1))
    assert content.count(written) == 1
    ledger.write(manifest, content.replace(written, other))


def of_other_fields(manifest: Path) -> None:
    content = ledger.checked(manifest)
    assert content is not None
    ledger.write(manifest, content.replace(b"replaced", b"displace"))


def of_groups_that_are_not_there(manifest: Path) -> None:
    content = ledger.checked(manifest)
    assert content is not None
    written = b'"group":0'.replace(b'"', b'\\"')
    assert written in content
    ledger.write(manifest, content.replace(written, written[:-1] + b"9"))


def saying(change: Callable[[Manifest], Manifest]) -> Callable[[Path], None]:
    """Return what makes a manifest say something else, as whoever has the directory can."""

    def harm(manifest: Path) -> None:
        content = ledger.checked(manifest)
        assert content is not None
        ledger.write(manifest, to_bytes(change(from_bytes(content, KINDS))))

    return harm


def defining(**others: Any) -> Callable[[Path], None]:
    return saying(lambda manifest: replace(manifest, definition=replace(manifest.definition, **others)))


def of_first_group(**others: Any) -> Callable[[Path], None]:
    def change(manifest: Manifest) -> Manifest:
        first, *rest = manifest.job.groups
        return replace(manifest, job=replace(manifest.job, groups=(replace(first, **others), *rest)))

    return saying(change)


HARMS: list[tuple[Any, str]] = [
    (saying(lambda manifest: replace(manifest, operator="nonsense")), "damaged"),
    (saying(lambda manifest: replace(manifest, executor="nonsense")), "damaged"),
    (saying(lambda manifest: replace(manifest, job=replace(manifest.job, learner="../other"))), "damaged"),
    (saying(lambda manifest: replace(manifest, job=changed(manifest.job, metric="zz"))), "damaged"),
    (saying(lambda manifest: replace(manifest, job=changed(manifest.job, metrics=("zz",)))), "damaged"),
    (defining(metric="zz"), "damaged"),
    (defining(metric="zz", metrics=("zz",)), "damaged"),
    (defining(missing_group=None), "of another version"),
    (defining(sets=((7,),)), "damaged"),
    (defining(classes=("a", "a")), "damaged"),
    (defining(seed=1 << 80), "damaged"),
    (of_first_group(level=1), "damaged"),
    (of_first_group(id=1), "damaged"),
    (of_first_group(keys=()), "damaged"),
    (of_first_group(ranges=((0, 1201),)), "damaged"),
    (of_groups_that_are_not_there, "damaged"),
    (damaged, "damaged"),
    (lambda manifest: manifest.write_bytes(b""), "damaged"),
    (lambda manifest: (manifest.unlink(), manifest.mkdir()), "damaged"),
    (of_another_version, "of another version"),
    (of_other_fields, "of another version"),
]


def test_runs_that_cannot_be_read_are_shown_and_dropped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(path, monkeypatch, STATEMENTS["gathered"], 0)
    (run,) = durable.runs(str(path))
    readable = shutil.copytree(runs_of(str(path)), path.with_name("readable"))
    with grouplearn.connect(path, progress=False) as con:
        for harm, flaw in HARMS:
            harm(run.path / "manifest")
            ((shown, model, status, done, units, seconds, when, on_disk),) = con.execute("SHOW RUNS").fetchall()
            assert (shown, model, status, done, units, seconds) == (run.id, None, flaw, None, None, None)
            assert 0 <= (now_utc() - when).total_seconds() < 600
            assert on_disk > 1000
            with pytest.raises(BindError, match=rf"\nRuns that cannot be resumed: {run.id} \({flaw}\)\n"):
                con.execute("RESUME MODEL m")
            assert con.execute(f"DROP RUN '{run.id}'").fetchall() == [(f"run {run.id} is dropped",)]
            assert not runs_of(str(path)).exists()
            shutil.copytree(readable, runs_of(str(path)))


@pytest.mark.usefixtures("prompt_ledger")
def test_the_schedule_goes_on_where_it_ended(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker does one thing at a time, before and after a death."""
    dies(path, monkeypatch, STATEMENTS["mlp"].replace("epochs = 2", "epochs = 2, workers = 1"), 4)
    answer(path, "RESUME MODEL m")
    query = "SELECT max(started) < max(ended), count(*) FROM grouplearn.units"
    assert answer(path, query)[0][0]
    overlaps = (
        "SELECT count(*) FROM (SELECT DISTINCT unit, started, ended FROM grouplearn.units) AS a JOIN (SELECT DISTINCT unit,"
        " started, ended FROM grouplearn.units) AS b ON a.unit < b.unit AND a.started < b.ended AND b.started < a.ended"
    )
    assert answer(path, overlaps) == [(0,)]
    assert answer(path, "SELECT max(ended) <= any_value(seconds) FROM grouplearn.units, grouplearn.models") == [(True,)]


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
            *("VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "BIGINT", "DOUBLE", "TIMESTAMP", "BIGINT"),
        ]
        assert con.fetchall() == []
