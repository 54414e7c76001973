"""A run's directory whose manifest or ledger says anything, with right digests: errors of ours, and nothing is run.

``GROUPLEARN_EXPLORE=1`` tries every value in every place, for hours; else some places get one each.
"""

from __future__ import annotations

import copy
import datetime
import hashlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from helpers.dying_runs import answer, dies
from helpers.thorough import enough

from grouplearn.errors import Error, TrainingError
from grouplearn.statements.workflow import durable
from grouplearn.train.results import checkpoints as states
from grouplearn.train.results import ledger

#: Seconds after which a statement is interrupted, and within which it ends then.
PATIENCE, GRACE = 2.0, 8.0
#: Places of a file in which something is put where not all are tried.
CASES = enough(12, 3)
TRAIN = (
    "TRAIN MODEL m USING {} PREDICT {} FEATURES ({}) FROM t GROUP BY g {} WITH (durable = true, executor = 'local', {})"
)
STATEMENTS = {
    "mlp": TRAIN.format(
        "mlp", "y", "zscore(a), b", "OVER GRID (learning_rate IN (0.01, 0.1))", "epochs = 2, workers = 1"
    ),
    "mop": TRAIN.format("mlp", "a", "b", "", "epochs = 2, workers = 2, operator = 'mop', early_stopping = 2"),
    "gbdt": TRAIN.format(
        "gbdt", "y", "a, hash(k, 4)", "VALIDATE FOLDS 2", "num_iterations = 2, class_weight = 'balanced'"
    ),
    "linear": TRAIN.format(
        "logistic_regression",
        "y",
        "a, onehot(k, scope := 'all'), impute(b, 'mean')",
        "OVER GRID (l2 IN (1, 2))",
        "class_weight = map {'true': 2, 'false': 1}",
    ),
    "asha": TRAIN.format(
        "mlp",
        "y",
        "a, b",
        "OVER ASHA (learning_rate BETWEEN 0.001 AND 0.1 LOG, hidden_layers IN ([3], [4]))",
        "epochs = 4, trials = 4",
    ),
    "pbt": TRAIN.format("mlp", "a", "b", "OVER PBT (l2 BETWEEN 0 AND 1)", "epochs = 4, trials = 3, interval = 2"),
}
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 2**31, 2**63, 2**64, 10**30, 1e308, -1e308, 0.5, float("inf"), float("nan")),
    *("", "x", "../../x", "a\0b", "'", "ray", "auto", "\u202e", "\ud800", "y" * 100_000),
    "1); COPY (SELECT 1) TO 'ran.csv'; SELECT (1",
    "(SELECT count(*) FROM read_csv('/etc/hostname'))",
    *([], {}, [[[[]]]], {"again": 0}, {"again": -1}, {"again": 10**9}, {"tuple": []}, {"tuple": [{"tuple": [1]}]}),
    *(
        {"map": []},
        {"map": [[1]]},
        {"map": [["x", 1]]},
        {"array": "0"},
        {"bytes": "0"},
        {"array": "../x"},
        {"Nothing": {}},
    ),
    *({"Group": {}}, {"Label": {"name": "binary"}}, {"Label": {"name": []}}),
    {"Choices": {"names": {"tuple": []}, "points": {"tuple": []}}},
)


@pytest.fixture(scope="module", params=STATEMENTS)
def died(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a database and a run that died after some units."""
    path = tmp_path_factory.mktemp(request.param) / "d.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 4 AS g, hash(i) % 1000 / 1000 AS a, hash(i + 7) % 1000 / 1000 AS b, "
            "hash(i) % 1700 + hash(i + 3) % 900 > 1000 AS y, 'k' || i % 3 AS k FROM range(240) r(i)"
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "FLUSH_SECONDS", 0.0)
        patch.setattr(states, "SAVE_SECONDS", 0.0)
        dies(path, patch, STATEMENTS[request.param], 3)
    return path.parent


def opened(file: Path) -> tuple[dict[str, Any], bytes, Any]:
    """Return the header of a file of a run, its tensors, and the value that the header says."""
    content = file.read_bytes()[32:]
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    return header, content[8 + size :], json.loads(header["__metadata__"]["value"])


def sealed(header: dict[str, Any], tensors: bytes, value: Any) -> bytes:
    said = json.dumps({**header, "__metadata__": {"value": json.dumps(value)}}).encode()
    said += b" " * (-len(said) % 8)
    content = len(said).to_bytes(8, "little") + said + tensors
    return hashlib.sha256(content).digest() + content


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where a value has others, itself included."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*path, key))


def put(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """Return a value with another one in a place."""
    if not path:
        return other
    changed = copy.copy(value)
    changed[path[0]] = put(changed[path[0]], path[1:], other)
    return changed


def cases(value: Any, kind: str) -> list[tuple[tuple[Any, ...], Any]]:
    """Return places and what is put there: everything everywhere, or one value in each of some places of different kinds."""
    every = list(places(value))
    if "GROUPLEARN_EXPLORE" in os.environ:
        return [(path, other) for path in every for other in HOSTILE]
    draw = random.Random(kind)
    kinds = {tuple(step for step in path if isinstance(step, str)): path for path in every}
    return [(path, draw.choice(HOSTILE)) for path in draw.sample(list(kinds.values()), min(CASES, len(kinds)))]


class _Waited(BaseException):
    """A statement went on after it was interrupted."""


def carried_out(path: Path, *statements: str) -> str | None:
    """Return what is wrong with how statements end, None where it is answered, or refused in words of ours."""
    began, interrupted = time.monotonic(), False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise _Waited
        interrupted = True
        signal.setitimer(signal.ITIMER_REAL, GRACE)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        answer(path, *statements)
    except (Error, duckdb.Error, KeyboardInterrupt):
        pass
    except BaseException as error:
        if interrupted and str(error) == "Query interrupted":  # how DuckDB says it of a query that ran just then
            return None
        return f"{type(error).__name__}: {str(error)[:300]} after {time.monotonic() - began:.1f} s"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None


def tried(died: Path, tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (found,) = died.glob(f"*/durable-*/{file}")
    header, tensors, value = opened(found)
    flaws = []
    for path, other in cases(value, died.name):
        copied = shutil.copytree(died, tmp_path / "d")
        (copied / found.relative_to(died)).write_bytes(sealed(header, tensors, put(value, path, other)))
        flaw = carried_out(copied / "d.duckdb", "SHOW RUNS", "RESUME MODEL m")
        if flaw is not None:
            flaws.append(f"{path} = {str(other)[:60]!r}: {flaw}")
        shutil.rmtree(copied)
    assert not flaws, "\n".join(flaws)
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.examples(3)
def test_a_manifest_that_says_anything(died: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried(died, tmp_path, "manifest", monkeypatch)


@pytest.mark.examples(2)
def test_a_segment_that_says_anything(died: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried(died, tmp_path, "units-000001.segment", monkeypatch)


NAMES = ("units-abc.segment", "units-.segment", "units-\u00b2-1.segment", "units-1_0.segment", "units- 5.segment")
NAMES += (
    "state-abc",
    "state-",
    "state-2",
    "state-000001.x",
    "state-\u0663.0.0.0.1.part",
    "steps-x",
    "command-x",
    "barrier-x",
)
#: What is there in place of a file, and whether the run cannot go on with it.
KINDS = {
    "a directory": lambda path: path.mkdir(),
    "a link": lambda path: path.symlink_to("/etc/passwd"),
    "a link to nothing": lambda path: path.symlink_to("/nowhere"),
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a file": lambda path: path.write_bytes(b"x"),
}
OURS = ("units-000001.segment", "units-000002.segment", "units-000009.draft", "state-000001.0.-1.0.1.part")
OURS += ("state-000001.0.0.0.1.part", "command-000000.noted", "barrier-000001.noted", "steps-abcdefgh")


@pytest.fixture
def run(died: Path, tmp_path: Path) -> Path:
    """The directory of a run that died, a copy of its own; its database is in the directory above that of the runs."""
    (found,) = shutil.copytree(died, tmp_path / "d").glob("*/durable-*")
    return found


@pytest.mark.examples(3)
@pytest.mark.parametrize("died", ["asha"], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_files_of_a_run_that_are_something_else(run: Path, kind: str) -> None:
    for name in (*NAMES, *OURS):
        path = run / name
        path.unlink(missing_ok=True)
        KINDS[kind](path)
    database = run.parent.parent / "d.duckdb"
    assert [row[2] for row in answer(database, "SHOW RUNS")] == ["unfinished"]
    assert len(answer(database, "RESUME MODEL m")) == 4


@pytest.mark.parametrize("died", ["mlp"], indirect=True)
@pytest.mark.parametrize(("kind", "what"), [("a link", "a link"), ("a pipe", "not a regular file")])
def test_a_run_that_cannot_be_held_is_named(run: Path, kind: str, what: str) -> None:
    (run / "pid").unlink()
    KINDS[kind](run / "pid")
    database = run.parent.parent / "d.duckdb"
    answer(database, "SHOW RUNS")
    with pytest.raises(TrainingError, match=rf"^run .{{8}} cannot be held: it is {what}\nFile: .*/pid\n"):
        answer(database, "RESUME MODEL m")


def test_times_that_no_calendar_has() -> None:
    """A file of an archive may be of any second, which some file systems keep."""

    class Far(type(Path())):  # type: ignore[misc]
        def stat(self, **_: Any) -> Any:
            return SimpleNamespace(st_mtime=1e15)

    found = durable.UnreadableRun(Far("/nowhere"), False, "damaged").began
    assert datetime.datetime.fromtimestamp(found, datetime.UTC).year == 9999


@pytest.mark.parametrize("died", ["mlp"], indirect=True)
@pytest.mark.parametrize("other", [1e308, 10**30, 0, -1, 2.5, "32", None])
def test_hyperparameters_are_within_their_ranges(run: Path, other: Any) -> None:
    header, tensors, value = opened(run / "manifest")
    place = next(path for path in places(value) if path[-1:] == (0,) and get(value, path) == "batch_size")
    changed = put(value, (*place[:-1], 1), other)
    (run / "manifest").write_bytes(sealed(header, tensors, changed))
    assert [row[2] for row in answer(run.parent.parent / "d.duckdb", "SHOW RUNS")] == ["damaged"]


def get(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


COMMANDS = (
    b"x",
    {"StopCommand": {"trial": 10**30}},
    {"AddCommand": {"config": {"map": []}, "parent": 99}},
    {"Segment": {}},
)
COMMANDS += (
    {"_Polled": {"barrier": 1, "first": -5, "last": 10**20}},
    {"AddCommand": {"config": {"map": [["l2", "x"]]}}},
)


@pytest.mark.parametrize("died", ["asha"], indirect=True)
def test_wishes_that_nobody_could_have(run: Path) -> None:
    for number, command in enumerate(COMMANDS):
        content = sealed({}, b"", command) if isinstance(command, dict) else command
        for name in (f"command-{number:06d}.noted", f"barrier-{number:06d}.noted"):
            (run / name).write_bytes(content)
    assert len(answer(run.parent.parent / "d.duckdb", "RESUME MODEL m")) == 4


def test_a_file_that_memory_has_no_room_for_is_not_read(tmp_path: Path) -> None:
    ledger.write(tmp_path / "kept", b"something", "")
    assert ledger.checked(tmp_path / "kept") == b"something"
    os.truncate(tmp_path / "kept", 1 << 42)
    assert ledger.checked(tmp_path / "kept") is None


@pytest.mark.parametrize("died", ["linear"], indirect=True)
@pytest.mark.parametrize("place", ["type", "sql"])
def test_what_a_run_says_of_a_model_that_is_stored_becomes_no_sql_unseen(run: Path, place: str) -> None:
    """A run of the identity of a stored model is one whose transaction has not ended: what it stored is shown."""
    database = run.parent.parent / "d.duckdb"
    stored = "TRAIN MODEL there USING linear_regression PREDICT a FEATURES (b) FROM t GROUP BY g"
    identity = answer(database, stored, "SELECT model::VARCHAR FROM grouplearn.models")[0][0]
    evil = f"VARCHAR) FROM t; COPY (SELECT 1) TO '{run.parent.parent}/ran.csv'; SELECT CAST('' AS VARCHAR"
    header, tensors, value = opened(run / "manifest")
    fields = ("name", "sql", "type")
    path = next(each for each in places(value) if each[-1:] == ("KeyColumn",))
    names = get(value, path)
    inside = names if isinstance(names, dict) else {name: names[number] for number, name in enumerate(fields)}
    key = place if isinstance(names, dict) else fields.index(place)
    assert inside["type"] == "BIGINT"
    (run / "manifest").write_bytes(sealed(header, tensors, put(value, (*path, key), evil)))
    (run / "pid").unlink(missing_ok=True)
    (run / "pid").symlink_to("/etc/hostname")  # without which it would be tidied up
    run.rename(run.parent / f"durable-{identity}")
    with pytest.raises(Error, match=r"is not (a type|one expression)"):
        answer(database, "RESUME MODEL m")
    assert not (run.parent.parent / "ran.csv").exists()


@pytest.mark.parametrize("died", ["linear"], indirect=True)
def test_a_run_that_makes_a_model_which_cannot_be_stores_none(run: Path) -> None:
    header, tensors, value = opened(run / "manifest")
    path = next(each for each in places(value) if each[-1:] == ("KeyColumn",))
    key = "type" if isinstance(get(value, path), dict) else 2
    assert get(value, (*path, key)) == "BIGINT"
    (run / "manifest").write_bytes(sealed(header, tensors, put(value, (*path, key), "DATE")))
    database = run.parent.parent / "d.duckdb"
    for _ in range(2):
        with pytest.raises(Error, match='the value of key "g" is not of its type in a group'):
            answer(database, "RESUME MODEL m")
        assert answer(database, "SHOW MODELS") == []
