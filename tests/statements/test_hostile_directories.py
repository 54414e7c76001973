"""A directory beside the database, in a home or for all users, that somebody else has prepared: nothing of his is touched."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.dying_runs import answer, dies

import grouplearn
from grouplearn.data.files.own_files import NotOwn, own_directory, own_file, replace_file
from grouplearn.data.files.run_directory import RunDirectory, durable_runs, remove_stale, runs_of
from grouplearn.errors import TrainingError
from grouplearn.extract import extract
from grouplearn.frontends.native import install
from grouplearn.frontends.report import command as report_command
from grouplearn.frontends.shell import prompt
from grouplearn.statements.workflow import durable
from grouplearn.train.results import ledger

ID = "123e4567-e89b-42d3-a456-426614174000"
#: What looks like ours to a hasty eye, and what has our names: none of it is removed where it is not in our own directory.
OURS = (f"run-{ID}", f"durable-{ID}", f"gone-run-{ID}", f"gone-durable-{ID}")
NOT_OURS = ("run-1", "run-photos", "gone-photos", f"gone-{ID}", f"run-{ID}.bak", f"durable-{ID.upper()}", "durable-x")
TRAIN = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g"
SECONDS = 20.0


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "shop.duckdb"


@pytest.fixture
def con(database: Path) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(database, progress=False) as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 2 AS g, i * 1.0 AS x, i * 2.0 AS y FROM range(200) AS r(i)")
        yield connection


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory of somebody's, with everything in it that might be taken for ours."""
    for name in (*OURS, *NOT_OURS):
        (tmp_path / "victim" / name).mkdir(parents=True)
        (tmp_path / "victim" / name / "pid").touch()
        (tmp_path / "victim" / name / "precious").touch()
    return tmp_path / "victim"


def content(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def in_time(work: Callable[[], object]) -> None:
    """Run something that must not wait for ever."""
    caught: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "it waits for somebody who never comes"
    if caught:
        raise caught[0]


def test_a_link_beside_the_database_leads_nowhere(con: grouplearn.Connection, database: Path, victim: Path) -> None:
    before = content(victim)
    runs_of(str(database)).symlink_to(victim)
    assert len(con.execute(TRAIN).fetchall()) == 2, "it needs no directory"
    for statement in ("SHOW RUNS", "RESUME MODEL m", f"DROP RUN '{ID[:8]}'"):
        with pytest.raises(TrainingError, match="the runs of this database are not looked for: it is a link"):
            con.execute(statement)
    con.execute("DROP MODEL m")
    with pytest.raises(TrainingError, match=r"no directory for them could be made: .* it is a link"):
        con.execute(f"{TRAIN} WITH (durable = true)")
    assert content(victim) == before


def test_rows_are_not_put_behind_a_link(
    con: grouplearn.Connection, database: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(victim)
    runs_of(str(database)).symlink_to(victim)
    monkeypatch.setattr(extract, "memory_limit", lambda given=None: 0)
    with pytest.raises(TrainingError) as caught:
        con.execute(TRAIN)
    assert str(caught.value) == (
        "the rows do not fit in memory, and no directory for them could be made: [Errno 1] it is a link: "
        f"'{database}.grouplearn'\n\nHint: make that place writable, or raise the memory limit"
    )
    assert content(victim) == before


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.chmod(0o777), "other users may write to it"),
        (lambda path: path.chmod(0o770), "other users may write to it"),
        pytest.param(
            lambda path: os.chown(path, 65534, 65534),
            "it is another user's",
            marks=pytest.mark.skipif(os.getuid() != 0, reason="only root gives directories away"),
        ),
    ],
)
def test_a_directory_that_others_may_change_is_left_alone(
    con: grouplearn.Connection, database: Path, victim: Path, spoil: Callable[[Path], None], why: str
) -> None:
    parent = victim.rename(runs_of(str(database)))
    spoil(parent)
    before = content(parent)
    con.execute(TRAIN)
    with pytest.raises(TrainingError) as caught:
        con.execute("SHOW RUNS")
    assert str(caught.value) == (
        f"the runs of this database are not looked for: {why}\nDirectory: {parent}\n\n"
        "Hint: Runs are in a directory that is yours, and that only you may write to (chmod 700)."
    )
    assert content(parent) == before


def test_only_names_that_we_give_are_removed_and_links_are_not_followed(database: Path, victim: Path) -> None:
    parent = runs_of(str(database))
    parent.mkdir(mode=0o700)
    other = f"run-{ID[:-1]}1"
    for name in (f"run-{ID}", f"gone-run-{ID}", *NOT_OURS):
        shutil.copytree(victim / name, parent / name)
        (parent / name).chmod(0o700)
    (parent / f"run-{ID}" / "inside").symlink_to(victim)
    (parent / other).symlink_to(victim)
    (parent / f"gone-{other}").symlink_to(victim)
    before = content(victim)
    remove_stale(parent)
    assert sorted(path.name for path in parent.iterdir()) == sorted([*NOT_OURS, other, f"gone-{other}"])
    assert durable_runs(parent) == []
    assert content(victim) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root could remove what is another user's")
def test_what_another_user_has_in_a_place_for_all_stays(tmp_path: Path, victim: Path) -> None:
    victim.chmod(0o1777)
    for name in (f"run-{ID}", f"gone-run-{ID}"):
        os.chown(victim / name, 65534, 65534)
    before = content(victim)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grouplearn.data.files.run_directory.MANIFEST", "pid")  # durable ones are spared
        remove_stale(victim)
    gone = f"gone-durable-{ID}"
    assert content(victim) == [path for path in before if not path.startswith(gone)]


@pytest.mark.examples(3)
@pytest.mark.parametrize("kind", ["run", "durable"])
@pytest.mark.parametrize("names", [("pid",), ("pid", "manifest"), ("manifest",)])
def test_a_pipe_does_not_make_a_statement_wait(
    con: grouplearn.Connection, database: Path, kind: str, names: tuple[str, ...]
) -> None:
    run = runs_of(str(database)) / f"{kind}-{ID}"
    run.mkdir(parents=True, mode=0o700)
    run.parent.chmod(0o700)
    for name in ("pid", "manifest"):
        (run / name).touch()
    for name in names:
        (run / name).unlink()
        os.mkfifo(run / name)
    in_time(lambda: con.execute(TRAIN))
    in_time(lambda: con.execute("SHOW RUNS"))


def test_a_lock_that_is_a_link_or_has_another_name_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    run = tmp_path / "runs" / f"durable-{ID}"
    run.mkdir(parents=True, mode=0o700)
    run.parent.chmod(0o700)
    for make in (lambda to: (run / "pid").symlink_to(to), lambda to: os.link(to, run / "pid")):
        make(tmp_path / "precious")
        with pytest.raises(NotOwn):
            RunDirectory.reopened(run)
        (run / "pid").unlink()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_run_that_somebody_made_up_reads_and_writes_no_other_file(tmp_path: Path) -> None:
    """A directory unpacked with its database is this user's: what is in it is still not what it seems."""
    (tmp_path / "precious").write_text("precious")
    run = tmp_path / f"durable-{ID}"
    run.mkdir()
    (run / "units-000001.draft").symlink_to(tmp_path / "precious")
    ledger.write(run / "units-000001.segment", b"results")
    assert ledger.checked(run / "units-000001.segment") == b"results"
    assert (tmp_path / "precious").read_text() == "precious"
    os.mkfifo(run / "units-000002.segment")
    (run / "units-000003.segment").symlink_to("/dev/zero")
    for number in (2, 3):
        in_time(lambda number=number: ledger.checked(run / f"units-00000{number}.segment"))
        assert ledger.checked(run / f"units-00000{number}.segment") is None


def test_a_resumed_run_does_not_write_through_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop.duckdb"
    (tmp_path / "precious").write_text("precious")
    answer(path, "CREATE TABLE t AS SELECT i % 4 AS g, i * 1.0 AS x, sin(i) AS y FROM range(400) AS r(i)")
    dies(path, monkeypatch, f"{TRAIN} WITH (durable = true)", 0)
    (run,) = durable_runs(runs_of(str(path)))
    for number in range(1, 9):
        (run / f"units-{number:06d}.draft").symlink_to(tmp_path / "precious")
    assert len(answer(path, "RESUME MODEL m")) == 4
    assert (tmp_path / "precious").read_text() == "precious"


def test_rows_of_a_run_that_are_links_or_pipes_are_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop.duckdb"
    answer(path, "CREATE TABLE t AS SELECT i % 4 AS g, i * 1.0 AS x, sin(i) AS y FROM range(400) AS r(i)")
    dies(path, monkeypatch, f"{TRAIN} WITH (durable = true)", 0)
    (run,) = durable_runs(runs_of(str(path)))
    (run / "y.npy").rename(tmp_path / "y.npy")
    (run / "y.npy").symlink_to(tmp_path / "y.npy")
    with pytest.raises(TrainingError, match=r"the rows of run .* are damaged"):
        in_time(lambda: answer(path, "RESUME MODEL m"))
    (run / "y.npy").unlink()
    os.mkfifo(run / "y.npy")
    with pytest.raises(TrainingError, match=r"the rows of run .* are damaged"):
        in_time(lambda: answer(path, "RESUME MODEL m"))


def test_new_directories_are_for_this_user_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        with RunDirectory(tmp_path / "runs") as directory:
            modes = [stat.S_IMODE(path.stat().st_mode) for path in (directory.path, directory.path.parent)]
            lock = stat.S_IMODE((directory.path / "pid").stat().st_mode)
    finally:
        os.umask(mask)
    assert modes == [0o700, 0o700]
    assert lock == 0o600


def test_a_place_for_all_users_will_do_when_each_may_only_remove_his_own(tmp_path: Path) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(NotOwn, match="other users may write to it"), own_directory(place):
        pass
    place.chmod(0o1777)
    with own_directory(place):
        pass
    if os.getuid() == 0:
        os.chown(place, 65534, 65534)
        with pytest.raises(NotOwn, match="it is another user's"), own_directory(place):
            pass


def test_the_prompt_keeps_its_history_in_a_file_that_only_the_user_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".grouplearn_history"
    path.touch(mode=0o644)
    path.chmod(0o644)
    prompt._history()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.unlink()
    os.mkfifo(path)
    in_time(prompt._history)
    path.unlink()
    (tmp_path / "other").touch()
    path.symlink_to(tmp_path / "other")
    prompt._history()
    assert capsys.readouterr().err.splitlines()[-1] == f"What you type is not kept in {path}: it is a link."


def test_a_calibration_does_not_write_through_a_link_and_does_not_wait_for_a_pipe(
    con: grouplearn.Connection, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("precious")
    path = Path(os.environ["GROUPLEARN_CALIBRATION"])
    path.symlink_to(tmp_path / "precious")
    with pytest.raises(grouplearn.Error, match=r"the calibration in .* cannot be used: .*it is a link"):
        con.execute(TRAIN)
    con.execute("RESET CALIBRATION")
    assert not path.is_symlink()
    os.mkfifo(path)
    with pytest.raises(grouplearn.Error, match=r"cannot be used: .*it is not a regular file"):
        in_time(lambda: con.execute(TRAIN))
    path.unlink()
    path.symlink_to(tmp_path / "precious")
    replace_file(path, b"ours")
    assert (path.read_bytes(), path.is_symlink()) == (b"ours", False)
    assert (tmp_path / "precious").read_text() == "precious"
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith(".cal")) == []


def test_a_report_that_names_itself_does_not_write_through_a_link(
    con: grouplearn.Connection, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute(TRAIN)
    con.close()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "m.html").symlink_to("precious")
    assert report_command.main([str(database), "m"]) == 0
    assert (tmp_path / "precious").read_text() == "precious"
    assert "<html" in (tmp_path / "m.html").read_text()
    (tmp_path / "mine.html").symlink_to("precious")
    assert report_command.main([str(database), "m", "-o", "mine.html"]) == 0
    assert "<html" in (tmp_path / "precious").read_text(), "where the user says, it goes"


def test_an_extension_is_not_installed_where_others_may_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = tmp_path / "grouplearn.duckdb_extension"
    built.write_bytes(b"... grouplearn.frontends.native.worker ...")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(install, "built_versions", lambda: ["9.9.9"])
    build_for = install.build_for
    monkeypatch.setattr(
        install, "build_for", lambda version, folder=None: build_for(version, folder) if folder else built
    )
    folder = tmp_path / ".duckdb" / "extensions"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert install.main() == 1
    assert f"nothing was written to {folder}: every user may write to it" in capsys.readouterr().err
    folder.chmod(0o755)
    assert install.main() == 0
    target = build_for("9.9.9", folder)
    assert target.read_bytes() == built.read_bytes()
    target.unlink()
    os.mkfifo(target)
    in_time(lambda: install.main())
    assert stat.S_ISFIFO(target.lstat().st_mode), "it is not of ours"


def test_two_that_clear_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    for number in range(60):
        run = tmp_path / "runs" / f"run-{ID[:-2]}{number:02d}"
        (run / "deep").mkdir(parents=True)
        run.chmod(0o700)
        (run / "pid").touch()
    (tmp_path / "runs").chmod(0o700)
    program = (
        "import sys\nfrom pathlib import Path\nfrom grouplearn.data.files.run_directory import remove_stale\n"
        "remove_stale(Path(sys.argv[1]))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "runs")]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[1] for process in started] == ["", "", ""]
    assert not (tmp_path / "runs").exists()


def test_files_are_opened_as_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with own_file(tmp_path / "file", "rb") as file:
        assert file.read() == b"content"
    os.link(tmp_path / "file", tmp_path / "second")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("file")
    flaws = {"second": "several names", "link": "it is a link", "directory": "it is not a regular file"}
    for name, flaw in flaws.items():
        with pytest.raises(NotOwn, match=flaw):
            own_file(tmp_path / name, "rb")
    assert durable.UnreadableRun(tmp_path, False, "damaged").n_bytes >= 14
