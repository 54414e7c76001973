"""Where an EXPORT goes: what others have there, or put there meanwhile, stays; who may read it; what the dead leave."""

import fcntl
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import grouplearn
from grouplearn.exchange import export_target
from grouplearn.exchange.directory_reader import CannotExchange
from grouplearn.exchange.directory_writer import write

LEFT = "0123456789abcdef"


def export(
    place: Path, content: bytes = b"new", overwrite: bool = False, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Write an export of two files, and do something when the first of them is written."""

    def files() -> Iterator[tuple[str, bytes]]:
        yield "a.txt", content
        meanwhile()
        yield "b.txt", content

    write(place, {"format": "test"}, files(), overwrite=overwrite)


def contents(directory: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in directory.iterdir()}


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def draft_in(parent: Path) -> Path:
    (found,) = parent.glob(".*")
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- what stands there ---------------------------------------------------------------------------------------------


def test_what_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "out"

    def others() -> None:
        place.mkdir()
        (place / "thesis.txt").write_text("the only copy")

    with pytest.raises(CannotExchange, match=r'directory ".*/out" is not empty'):
        export(place, meanwhile=others)
    assert contents(place) == {"thesis.txt": b"the only copy"}
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_empty_directory_that_appears_is_taken(tmp_path: Path, overwrite: bool) -> None:
    export(tmp_path / "out", overwrite=overwrite, meanwhile=(tmp_path / "out").mkdir)
    assert names(tmp_path / "out") == ["a.txt", "b.txt", "manifest.json"]
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("name", ["thesis.txt", "a.txt"])
def test_what_is_put_into_an_export_meanwhile_keeps_it_there(tmp_path: Path, name: str) -> None:
    place = tmp_path / "out"
    export(place, b"old")
    with pytest.raises(CannotExchange, match=f"has files that no export made, such as {name}, so it is not replaced"):
        export(place, overwrite=True, meanwhile=lambda: (place / name).write_text("the only copy"))
    assert contents(place)[name] == b"the only copy"
    assert contents(place)["b.txt"] == b"old"
    assert names(tmp_path) == ["out"]


def test_an_export_that_another_made_meanwhile_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "out"
    export(place, b"old")
    export(place, overwrite=True, meanwhile=lambda: export(place, b"other", overwrite=True))
    assert contents(place)["a.txt"] == b"new"
    assert names(tmp_path) == ["out"]


def test_one_that_takes_the_place_at_the_last_moment_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, took, calls = tmp_path / "out", export_target.ExportTarget.take, []

    def late(self: export_target.ExportTarget, name: str) -> bool:
        calls.append(name)
        if len(calls) == 2:  # what stood there was set aside
            took(self, other.name)
        return took(self, name)

    other = tmp_path / "other"
    export(place, b"old")
    export(other, b"other")
    monkeypatch.setattr(export_target.ExportTarget, "take", late)
    export(place, overwrite=True)
    assert contents(place)["a.txt"] == b"new"
    assert names(tmp_path) == ["out"]


def test_many_at_a_time_leave_a_whole_one(tmp_path: Path) -> None:
    def many(content: bytes) -> None:
        try:
            for _ in range(40):
                export(tmp_path / "out", content, overwrite=True)
        except BaseException as error:
            failed.append(error)

    failed: list[BaseException] = []
    threads = [threading.Thread(target=many, args=(content,)) for content in (b"1", b"2", b"3")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    export(tmp_path / "out", overwrite=True)  # only what is as it was written is replaced
    assert names(tmp_path) == ["out"]


def test_what_goes_as_it_is_read_is_not_told_as_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, read = tmp_path / "out", export_target.read_manifest
    export(place, b"old")

    def slow(path: Path, within: int) -> dict[str, Any]:
        monkeypatch.setattr(export_target, "read_manifest", read)
        export(place, b"other", overwrite=True)
        return read(path, within)

    monkeypatch.setattr(export_target, "read_manifest", slow)
    export(place, overwrite=True)
    assert contents(place)["a.txt"] == b"new"
    assert names(tmp_path) == ["out"]


def test_an_interrupt_after_it_took_its_place_leaves_it_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        monkeypatch.setattr(export_target.ExportTarget, "remove", remove)
        raise KeyboardInterrupt

    remove = export_target.ExportTarget.remove
    export(tmp_path / "out", b"old")
    monkeypatch.setattr(export_target.ExportTarget, "remove", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export(tmp_path / "out", overwrite=True)
    assert contents(tmp_path / "out")["a.txt"] == b"new"
    assert names(tmp_path / "out") == ["a.txt", "b.txt", "manifest.json"]


def test_a_strangers_manifest_gives_no_file_away(tmp_path: Path) -> None:
    place, notes = tmp_path / "out", b"mine"
    place.mkdir()
    (place / "notes.txt").write_bytes(notes)
    for size, digest in ((1, ""), (len(notes), ""), (1, hashlib.sha256(notes).hexdigest())):
        listed = [{"name": "notes.txt", "bytes": size, "sha256": digest}]
        (place / "manifest.json").write_text(json.dumps({"program": "grouplearn", "layout": 1, "files": listed}))
        with pytest.raises(CannotExchange, match=r"such as notes.txt, so it is not replaced") as raised:
            export(place, overwrite=True)
        assert "of the size and the SHA-256 that manifest.json says" in str(raised.value.hint)
    assert contents(place)["notes.txt"] == notes


def test_a_file_of_an_export_that_was_changed_stays(tmp_path: Path) -> None:
    place = tmp_path / "out"
    export(place)
    (place / "a.txt").write_bytes(b"wen")
    with pytest.raises(CannotExchange, match=r"such as a.txt, so it is not replaced"):
        export(place, overwrite=True)
    assert contents(place)["a.txt"] == b"wen"


# --- who may read it -----------------------------------------------------------------------------------------------


@pytest.fixture
def umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_nobody_reads_what_is_being_written(tmp_path: Path, umask: Callable[[int], int], mask: int) -> None:
    def look() -> None:
        draft = draft_in(tmp_path)
        seen.extend([mode(draft), mode(draft / "a.txt")])

    seen: list[int] = []
    umask(mask)
    export(tmp_path / "out", meanwhile=look)
    assert seen == [0o700, 0o600]
    assert mode(tmp_path / "out") == 0o777 & ~mask
    assert {mode(file) for file in (tmp_path / "out").iterdir()} == {0o666 & ~mask}


@pytest.mark.parametrize(
    ("before", "mask", "files"), [(0o700, 0, 0o600), (0o750, 0o022, 0o640), (0o2775, 0o077, 0o600), (0o555, 0, 0o644)]
)
@pytest.mark.parametrize("empty", [True, False])
def test_a_directory_is_as_open_as_what_it_replaces(
    tmp_path: Path, umask: Callable[[int], int], before: int, mask: int, files: int, empty: bool
) -> None:
    place = tmp_path / "out"
    if empty:
        place.mkdir()
    else:
        export(place)
    place.chmod(before)
    umask(mask)
    export(place, overwrite=True)
    assert mode(place) == before
    assert {mode(file) for file in place.iterdir()} == {files}
    assert names(tmp_path) == ["out"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives to others")
def test_owner_and_group_stay(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    os.chown(place, 65534, 65533)
    place.chmod(0o770)
    export(place)
    assert {(found.stat().st_uid, found.stat().st_gid) for found in (place, *place.iterdir())} == {(65534, 65533)}
    assert mode(place) == 0o750  # of somebody else's no more than the umask lets


def test_a_group_that_cannot_be_given_is_not_replaced_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    place = tmp_path / "out"
    place.mkdir()
    place.chmod(0o770)
    monkeypatch.setattr(os, "chown", refuse)
    export(place)
    assert mode(place) == 0o700


def test_the_mode_of_a_link_is_not_that_of_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def take(place: export_target.ExportTarget, name: str) -> bool:
        (tmp_path / "out").unlink()
        return took(place, name)

    took = export_target.ExportTarget.take
    monkeypatch.setattr(export_target.ExportTarget, "take", take)
    export(tmp_path / "out", meanwhile=lambda: (tmp_path / "out").symlink_to("nowhere"))
    assert not mode(tmp_path / "out") & stat.S_IWOTH


READ_ONLY = """
import os, sys
from pathlib import Path
from grouplearn.exchange.directory_writer import write

os.chdir(sys.argv[1])
if os.getuid() == 0:
    os.setuid(65534)  # root may write everywhere
write(Path("out"), {}, [], overwrite=False)
os.chmod("out", 0o555)
write(Path("out"), {}, [], overwrite=True)
print(os.listdir("."), oct(os.stat("out").st_mode))
"""


def test_a_directory_that_its_owner_may_only_read_is_replaced(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    run = subprocess.run([sys.executable, "-c", READ_ONLY, str(tmp_path)], capture_output=True, text=True)
    assert run.stdout == "['out'] 0o40555\n", run.stderr


# --- others who may write beside it --------------------------------------------------------------------------------


@pytest.mark.parametrize("swap", ["link", "directory", "nothing"])
def test_a_draft_that_is_swapped_leads_nowhere(tmp_path: Path, swap: str) -> None:
    home, shared = tmp_path / "home", tmp_path / "shared"
    home.mkdir()
    shared.mkdir()
    (home / "b.txt").write_text("mine")

    def attack() -> None:
        draft = draft_in(shared)
        draft.rename(shared / "stolen")
        if swap == "link":
            draft.symlink_to(home)
        elif swap == "directory":
            draft.mkdir()

    with pytest.raises(CannotExchange, match="what was written was moved or replaced") as raised:
        export(shared / "out", meanwhile=attack)
    assert "nobody else may write" in str(raised.value.hint)
    assert contents(home) == {"b.txt": b"mine"}
    assert names(shared / "stolen") == []
    assert not (shared / "out").exists()


@pytest.mark.parametrize("swap", ["link", "others", "used"])
def test_a_draft_that_is_swapped_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: str
) -> None:
    home, make = tmp_path / "home", os.mkdir
    home.mkdir()

    def attacked(name: str, rights: int, *, dir_fd: int) -> None:
        make(name, rights, dir_fd=dir_fd)
        if swap == "link":
            (tmp_path / name).rmdir()
            (tmp_path / name).symlink_to(home)
        elif swap == "used":
            (tmp_path / name / "mine.txt").write_text("mine")
        else:
            monkeypatch.setattr(os, "getuid", lambda: 4321)

    monkeypatch.setattr(os, "mkdir", attacked)
    with pytest.raises(CannotExchange, match="what was written was moved or replaced"):
        export(tmp_path / "out")
    assert names(home) == []
    assert not (tmp_path / "out").exists()


def test_a_planted_file_is_not_written_to(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("mine")
    (tmp_path / "parent").mkdir()
    with pytest.raises(CannotExchange, match="could not be written: File exists"):
        export(
            tmp_path / "parent" / "out",
            meanwhile=lambda: (draft_in(tmp_path / "parent") / "b.txt").symlink_to(other),
        )
    assert other.read_text() == "mine"
    assert names(tmp_path / "parent") == []


# --- a directory that is no more -----------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", ["EXPORT MODEL ridge_value TO 'x'", "IMPORT MODEL n FROM 'x'"])
def test_a_current_directory_that_was_removed(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(grouplearn.Error, match=r'there is no directory "x": the current one, .* was removed') as raised:
        con.execute(statement)
    assert "Name a whole path" in str(raised.value)


# --- what the dead leave -------------------------------------------------------------------------------------------


KILLED = """
import os, signal, sys
from pathlib import Path
from grouplearn.exchange.export_target import ExportTarget
from grouplearn.exchange.directory_writer import write

def end(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def files():
    yield "a.txt", b"half"
    if sys.argv[2] == "writing":
        end()

check, checks = ExportTarget._made_by_export, []
def checked(self, directory, known):
    checks.append(directory)
    return end() if sys.argv[2] == "replacing" and len(checks) == 2 else check(self, directory, known)
ExportTarget._made_by_export = checked
if sys.argv[2] == "removing":
    ExportTarget.remove = end
write(Path(sys.argv[1]), {}, files(), overwrite=True)
"""


@pytest.mark.parametrize("when", ["writing", "replacing", "removing"])
def test_what_a_killed_export_leaves_is_cleared_by_the_next(tmp_path: Path, when: str) -> None:
    place = tmp_path / "out"
    export(place, b"old")
    run = subprocess.run([sys.executable, "-c", KILLED, str(place), when], capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert len(names(tmp_path)) == 2
    assert place.exists() == (when != "replacing")
    with pytest.raises(CannotExchange, match="is not empty"):
        export(place)  # also where nothing was: what stood there is back
    assert names(tmp_path) == ["out"]
    assert contents(place)["a.txt"] == (b"half" if when == "removing" else b"old")
    export(place, overwrite=True)
    assert names(tmp_path) == ["out"]


def test_what_was_set_aside_with_files_of_others_stays(tmp_path: Path) -> None:
    export(tmp_path / "out")
    left = tmp_path / f".out.earlier-{LEFT}"
    export(left)
    (left / "thesis.txt").write_text("the only copy")
    export(tmp_path / "out", overwrite=True)
    assert names(left) == ["a.txt", "b.txt", "manifest.json", "thesis.txt"]


def test_drafts_that_somebody_holds_or_has_just_made_stay(tmp_path: Path) -> None:
    new, other = tmp_path / f".out.draft-{LEFT}", tmp_path / f".out.drafts-{LEFT}"
    new.mkdir()
    other.mkdir()

    def meanwhile() -> None:
        export(tmp_path / "out", b"first")

    with pytest.raises(CannotExchange, match="is not empty"):  # and it did not fail before: its draft was there
        export(tmp_path / "out", meanwhile=meanwhile)
    assert names(tmp_path) == [new.name, other.name, "out"]
    os.utime(new, (0, 0))
    export(tmp_path / "out", overwrite=True)
    assert names(tmp_path) == [other.name, "out"]


def test_an_export_that_took_its_place_as_it_was_looked_at_is_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = tmp_path / f".out.draft-{LEFT}"
    export(draft)
    lock = fcntl.flock

    def taken(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        draft.rename(tmp_path / "out")

    monkeypatch.setattr(fcntl, "flock", taken)
    with pytest.raises(CannotExchange, match="is not empty"):
        export(tmp_path / "out")
    assert names(tmp_path / "out") == ["a.txt", "b.txt", "manifest.json"]


def test_links_are_not_cleared(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.txt").write_text("mine")
    for kind in ("draft", "earlier"):
        (tmp_path / f".out.{kind}-{LEFT}").symlink_to(home)
    export(tmp_path / "out")
    assert contents(home) == {"mine.txt": b"mine"}
    assert names(tmp_path) == [f".out.draft-{LEFT}", f".out.earlier-{LEFT}", "home", "out"]
