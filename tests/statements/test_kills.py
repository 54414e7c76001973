"""The user's process is killed at random instants, again and again, and RESUME ends with the models of an undisturbed run.

``make thorough`` has one instant of one kind of run; ``GROUPLEARN_KILLS=50`` has as many as that, and prints what they cost.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest
from helpers.hearing import heard

import grouplearn
from grouplearn.data.files.run_directory import runs_of
from grouplearn.statements.workflow import durable
from grouplearn.train.results import ledger

KILLS = int(os.environ.get("GROUPLEARN_KILLS", "3"))
#: Seconds that a busy machine may take to notice that it is time to write.
SLACK = 3.0
GROUPS = 8
TRAIN = "TRAIN MODEL m USING {} WITH (durable = true, workers = 2, {})"
FEATURES = "FEATURES (zscore(a), b) FROM t GROUP BY g"
STATEMENTS = {
    "folds": TRAIN.format(
        f"mlp PREDICT y {FEATURES} OVER GRID (learning_rate IN (0.01, 0.001)) VALIDATE FOLDS 3", "epochs = 30"
    ),
    "trees": TRAIN.format(f"gbdt PREDICT y {FEATURES} OVER GRID (num_leaves IN (4, 8, 16))", "num_iterations = 150"),
    "search": TRAIN.format(
        f"mlp PREDICT y {FEATURES} OVER PBT (learning_rate BETWEEN 1e-4 AND 1 LOG)",
        "epochs = 12, interval = 4, seed = 2",
    ),
}
MODELS = "SELECT group_id, config, sha256 FROM grouplearn.artifacts ORDER BY ALL"
TABLE = "SELECT * EXCLUDE (seconds) FROM m ORDER BY ALL"
#: A user's process: it says when it begins, with what TRAIN imports at hand, and notes every unit that it has trained.
PROCESS = """
import os, sys, time
import grouplearn
from grouplearn.train.results import checkpoints, ledger
checkpoints.SAVE_SECONDS = 0.2
add, log = ledger.Ledger.add, os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def noted(self, result):
    add(self, result)
    os.write(log, f"{result.unit.id} {time.time()}\\n".encode())
ledger.Ledger.add = noted
con = grouplearn.connect(sys.argv[1], progress=False)
con.execute("EXPLAIN " + sys.argv[4])
print("begins", flush=True)
con.execute(sys.argv[2])
print("ended", flush=True)
"""


@dataclass
class Costs:
    """What the kills cost: units trained again that had ended, seconds from RESUME to the first unit that ends."""

    kills: int = 0
    redone: list[int] = field(default_factory=list)
    recovery: list[float] = field(default_factory=list)
    phases: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """A database in a directory of its own."""

    path: Path

    @property
    def log(self) -> Path:
        return self.path.with_name("units.log")

    @property
    def temporary(self) -> Path:
        return self.path.parent.parent / "temporary"

    def answer(self, statement: str) -> list[Any]:
        with grouplearn.connect(self.path, progress=False) as con:
            return con.execute(statement).fetchall()

    def results(self) -> list[Any]:
        return [self.answer(MODELS), self.answer(TABLE)]

    def logged(self) -> list[tuple[int, float]]:
        lines = self.log.read_text().split("\n") if self.log.exists() else []
        return [(int(unit), float(at)) for unit, _, at in (line.partition(" ") for line in lines) if at]

    def start(self, statement: str) -> subprocess.Popen[str]:
        """Return a process that has just begun the statement."""
        command = [sys.executable, "-c", PROCESS, str(self.path), statement, str(self.log), STATEMENTS["search"]]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        process = subprocess.Popen(command, **pipes, env=environment, start_new_session=True)
        assert heard(process) == "begins\n", process.communicate()[1]
        return process


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("table") / "d.duckdb"
    with duckdb.connect(str(file)) as con:
        con.execute(
            f"CREATE TABLE t AS SELECT i % {GROUPS} AS g, hash(i) % 1000 / 1000 AS a, hash(i + 7) % 1000 / 1000 AS b, "
            "hash(i) % 1700 + hash(i + 3) % 900 > 1000 AS y FROM range(12000) r(i)"
        )
    return file


def place(table: Path, tmp_path: Path, name: str) -> Place:
    (tmp_path / name).mkdir()
    return Place(Path(shutil.copy(table, tmp_path / name)))


def nothing_is_left(process: subprocess.Popen[str], disturbed: Place) -> None:
    """Look for processes, shared memory and temporary files of a process that is gone."""
    session = subprocess.run(["ps", "-o", "pid=", "--sid", str(process.pid)], capture_output=True, text=True)
    assert session.stdout.split() == []
    assert not [file for file in Path("/dev/shm").iterdir() if str(process.pid) in re.findall(r"\d+", file.name)]
    assert list(disturbed.temporary.iterdir()) == []


@pytest.mark.parametrize(
    "kind",
    STATEMENTS if "GROUPLEARN_KILLS" in os.environ else [pytest.param("search", marks=pytest.mark.thorough)],
)
def test_killed_at_random_instants(table: Path, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("lightgbm")
    drawn, statement, costs = random.Random(f"{kind} 7"), STATEMENTS[kind], Costs()
    (tmp_path / "temporary").mkdir()
    reference = place(table, tmp_path, "reference")
    process = reference.start(statement)
    began = time.monotonic()
    process.communicate()
    seconds = time.monotonic() - began
    expected, every = reference.results(), sorted(unit for unit, _ in reference.logged())
    assert len(expected[0]) == len(set(expected[0])) > GROUPS
    number = 0
    while costs.kills < -(-KILLS // len(STATEMENTS)):
        disturbed = place(table, tmp_path, str(number))
        number += 1
        died = disturb(disturbed, statement, drawn, seconds, costs)
        if died:
            finish(disturbed, statement, costs)
        assert sorted({unit for unit, _ in disturbed.logged()}) == every
        assert disturbed.results() == expected
        assert sorted(file.name for file in disturbed.path.parent.iterdir()) == ["d.duckdb", "units.log"]
    report(kind, seconds, costs)


def disturb(disturbed: Place, statement: str, drawn: random.Random, seconds: float, costs: Costs) -> bool:
    """Carry out the statement, and RESUME, killed up to three times; return whether the last process was killed."""
    for attempt in range(drawn.randint(1, 3)):
        unfinished = list(durable.runs(str(disturbed.path)))
        before = len(disturbed.logged())
        process = disturbed.start("RESUME MODEL m" if unfinished else statement)
        time.sleep(drawn.uniform(0, seconds * (1.1 if attempt == 0 else 0.6)))
        process.send_signal(signal.SIGKILL)
        killed = time.time()
        out, _ = process.communicate()
        nothing_is_left(process, disturbed)
        if "ended" in out:
            return False
        costs.kills += 1
        note_phase(disturbed, costs)
        lost_little(disturbed, before, killed)
        if not disturbed.answer("SHOW RUNS") and disturbed.answer("SHOW MODELS"):
            return False
    return True


def note_phase(disturbed: Place, costs: Costs) -> None:
    """Note how far the run was when it died."""
    runs = list(durable.runs(str(disturbed.path)))
    stored = bool(disturbed.answer("SHOW MODELS"))
    phase = "before the run could be resumed" if not runs else "after storing" if stored else "in training"
    costs.phases[phase] = costs.phases.get(phase, 0) + 1


def lost_little(disturbed: Place, before: int, killed: float) -> None:
    """What had ended and is not in the ledger ended just before the process was killed."""
    done = trained(disturbed)
    lost = [at for unit, at in disturbed.logged()[before:] if done is not None and unit not in done]
    assert all(killed - at < ledger.FLUSH_SECONDS + SLACK for at in lost), [killed - at for at in lost]


def trained(disturbed: Place) -> set[int] | None:
    """Return the units that are in the ledger, None where there is none (any more)."""
    for run in durable.runs(str(disturbed.path)):
        assert not run.alive
        return {result.unit.id for segment in ledger.read(run.path) for result in segment.results}
    return None


def finish(disturbed: Place, statement: str, costs: Costs) -> None:
    """RESUME to the end: what is in the ledger is not trained again."""
    done = trained(disturbed)
    if done is None:
        disturbed.log.unlink(missing_ok=True)
        disturbed.start(statement).communicate()
        return
    logged = disturbed.logged()
    process = disturbed.start("RESUME MODEL m")
    began = time.time()
    process.communicate()
    again = disturbed.logged()[len(logged) :]
    assert not done & {unit for unit, _ in again}
    costs.redone.append(len({unit for unit, _ in again} & {unit for unit, _ in logged}))
    if again:
        costs.recovery.append(min(at for _, at in again) - began)
    assert not runs_of(str(disturbed.path)).exists()


def report(kind: str, seconds: float, costs: Costs) -> None:
    if "GROUPLEARN_KILLS" not in os.environ:
        return
    recovery = statistics.median(costs.recovery) if costs.recovery else float("nan")
    redone, most = sum(costs.redone), max(costs.redone, default=0)
    sys.__stdout__.write(
        f"\n{kind}: {costs.kills} kills in runs of {seconds:.1f} s, {costs.phases}; units trained twice: {redone} (at most {most}"
        f" a time); from RESUME to the first unit that ends: median {recovery:.1f} s\n"
    )
