"""The line to the grouplearn process: who speaks at its ends, in which version, and from where it is started."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from native_builds import built

from grouplearn.errors import data_error
from grouplearn.frontends.native import serving, worker
from grouplearn.frontends.native.build import OURS
from grouplearn.frontends.native.frames import PROTOCOL, Body, Channel, FrameKind, Gone, Malformed
from grouplearn.frontends.native.remote import error_of
from grouplearn.interrupting import check_interrupt

#: In the place of the process: answers each frame with one of its own.
ANSWERING = """#!{python}
import socket, struct, sys
from grouplearn.frontends.native.frames import PROTOCOL, Channel, Gone, FrameKind, text
with socket.socket(fileno=int(sys.argv[-1])) as control:
    while True:
        message, handed, _, _ = socket.recv_fds(control, 16, 1)
        if not message:
            break
        if handed:
            channel = Channel(socket.socket(fileno=handed[0]))
            try:
                channel.receive()
                {answer}
            except Gone:  # nothing more was asked
                pass
"""
ASKS = """
import duckdb, os, sys
if len(sys.argv) > 2:
    os.chdir(sys.argv[2])
with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
    connection.execute(f"LOAD '{sys.argv[1]}'")
    for _ in range(2):
        try:
            print(len(connection.execute("SHOW LEARNERS").fetchall()) > 3)
        except duckdb.Error as error:
            print(error)
"""


def asked(*arguments: str, **environment: str) -> str:
    """Return what a python with the extension says to a statement of ours."""
    command = [sys.executable, "-c", ASKS, str(built(duckdb.__version__)), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            'channel.send(FrameKind.GREETING, struct.pack("=Q", PROTOCOL + 1), text("9.9.9"))',
            f"IO Error: this build of the extension is of grouplearn {OURS}, and the grouplearn 9.9.9 of {{python}} is newer",
        ),
        (
            'channel.send(FrameKind.GREETING, struct.pack("=Q", PROTOCOL - 1), text("0.0.9"))',
            f"IO Error: this build of the extension is of grouplearn {OURS}, and the grouplearn 0.0.9 of {{python}} is older",
        ),
        (  # what a process said, from before there was a greeting, to a request that is too short
            'channel.send(FrameKind.FAILED, text("Invalid Input"), text("error: unpack_from requires a buffer"))',
            f"IO Error: this build of the extension is of grouplearn {OURS}, and the grouplearn of {{python}} is older",
        ),
    ],
)
def test_a_package_of_another_protocol_is_named(tmp_path: Path, answer: str, told: str) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(ANSWERING.format(python=sys.executable, answer=answer))
    stand_in.chmod(0o755)
    seen = asked(GROUPLEARN_PYTHON=str(stand_in))
    assert seen.count(told.format(python=stand_in)) == 2
    assert "pip install --upgrade grouplearn" in seen
    assert "make extension" in seen


GREETS = 'channel.send(FrameKind.GREETING, struct.pack("=Q", PROTOCOL), text("1.0")); channel.receive(); '


@pytest.mark.parametrize("kind", ["FATAL", "INTERNAL"])
def test_what_ends_the_database_of_the_process_does_not_end_this_one(tmp_path: Path, kind: str) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(
        ANSWERING.format(
            python=sys.executable, answer=f"{GREETS}channel.send(FrameKind.FAILED, text('{kind}'), text('lost'))"
        )
    )
    stand_in.chmod(0o755)
    first, second = asked(GROUPLEARN_PYTHON=str(stand_in)).splitlines()
    assert first == "Invalid Input Error: lost"
    assert "a message that is not understood" in second  # by the stand-in, so that the database still asks it


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
def test_the_process_does_not_end_the_transaction_of_a_statement(tmp_path: Path, statement: str) -> None:
    stand_in = tmp_path / "python"
    query = f"channel.send(FrameKind.QUERY, struct.pack('=II', 0, 0), text('{statement}')); "
    said = "channel.send(FrameKind.FAILED, text('IO'), text(repr(bytes(channel.receive()[1]))))"
    stand_in.write_text(ANSWERING.format(python=sys.executable, answer=GREETS + query + said))
    stand_in.chmod(0o755)
    assert "the transaction is the statement's" in asked(GROUPLEARN_PYTHON=str(stand_in))


def test_a_line_for_which_no_file_could_be_opened_ends_no_other() -> None:
    ours, its = socket.socketpair()
    with its:
        ours.sendall(struct.pack("=QQ", 1, 7))  # a line, and no socket beside it
        ours.sendall(struct.pack("=QQ", 2, 7))  # its interrupt
        ours.close()
        assert worker._serve(its) == []


@pytest.fixture
def ends() -> Iterator[tuple[Channel, serving.ChannelServer]]:
    """The extension's end of a line, and what serves the other one."""
    ours, its = socket.socketpair()
    served = serving.ChannelServer(Channel(its), serving.Host())

    def serve() -> None:
        with pytest.raises(Gone):
            served.serve()
        its.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with ours:
        yield Channel(ours), served
        ours.shutdown(socket.SHUT_WR)
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def line(ends: tuple[Channel, serving.ChannelServer]) -> Channel:
    return ends[0]


def failure(line: Channel) -> str:
    kind, body = line.receive()
    assert kind is FrameKind.FAILED
    failed = Body(body)
    return f"{failed.text()} Error: {failed.text()}"


def test_a_statement_hears_of_an_interrupt_while_it_is_parsed(
    ends: tuple[Channel, serving.ChannelServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    line, served = ends

    def parse(*_: object) -> None:
        served.interrupt()
        check_interrupt()

    monkeypatch.setattr(serving, "parse_piece", parse)
    line.send(FrameKind.GREETING, struct.pack("=Q", PROTOCOL))
    line.receive()
    for _ in range(2):
        line.send(FrameKind.STATEMENT, struct.pack("=QQQQQQQq", 1, 1, 1, 1, 0, 0, 0, 0))
        assert failure(line).startswith("INTERRUPT Error: the statement was interrupted")


@pytest.mark.parametrize("kind", [FrameKind.STATEMENT, FrameKind.PREDICT])
def test_a_build_from_before_there_was_a_greeting_is_told_so(line: Channel, kind: FrameKind) -> None:
    line.send(kind, struct.pack("=QQ", 1, 1))
    told = failure(line)
    assert told.startswith(
        f"Not implemented Error: this build of the extension is older than the grouplearn {OURS} of "
    )
    assert "Build it again (make extension" in told


def test_a_greeting_is_answered(line: Channel) -> None:
    line.send(FrameKind.GREETING, struct.pack("=Q", PROTOCOL))
    kind, body = line.receive()
    greeting = Body(body)
    assert (kind, greeting.number(), greeting.text()) == (FrameKind.GREETING, PROTOCOL, OURS)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        struct.pack("=Q", 1),
        struct.pack("=QQ", 1, 1),
        struct.pack("=QQQQQQQq", 1, 1, 1, 1, 0, 0, 5, -1),
        struct.pack("=QQQQQQQq", 1, 1, 1, 1, 0, 0, 5, 1 << 62),
        struct.pack("=QQQQQQQQ", 1, 1, 1, 1, 0, 0, 4, 4) + b"\xff\xfe\xfd\xfc",
    ],
)
@pytest.mark.parametrize("kind", [FrameKind.STATEMENT, FrameKind.PREDICT, FrameKind.END, FrameKind.QUERY])
def test_a_request_that_is_none_fails_and_the_next_is_answered(line: Channel, kind: FrameKind, body: bytes) -> None:
    line.send(FrameKind.GREETING, struct.pack("=Q", PROTOCOL))
    line.receive()
    line.send(kind, body)
    assert "Error: " in failure(line)
    line.send(FrameKind.GREETING, struct.pack("=Q", PROTOCOL))
    assert line.receive()[0] is FrameKind.GREETING


@pytest.mark.parametrize("head", [(99, 0), (1 << 60, 0), (1, 1 << 63), (1, 1 << 41)])
def test_a_head_that_is_none_closes_the_line(line: Channel, head: tuple[int, int]) -> None:
    line._socket.sendall(struct.pack("=QQ", *head))


def test_a_head_that_promises_much_takes_no_memory() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        ours.sendall(struct.pack("=QQ", FrameKind.BATCH, 1 << 39))
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(Gone):
            Channel(its).receive()


def test_a_body_gives_no_more_than_it_has() -> None:
    for content in (b"", bytes(7), struct.pack("=q", 1), struct.pack("=q", -1) + bytes(9)):
        with pytest.raises(Malformed):
            Body(content).blob()


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder with what could be taken for the package, its python, or a module of Python's; each tells that it was run."""
    told = f"open({str(tmp_path / 'sprung')!r}, 'w')"
    for module in ("grouplearn/__init__", "sitecustomize", "usercustomize", "socket", "duckdb/__init__"):
        place = tmp_path / "trap" / f"{module}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(told)
    python = tmp_path / "trap" / "python3"
    python.write_text(f"#!/bin/sh\ntouch {tmp_path / 'sprung'}\n")
    python.chmod(0o755)
    return tmp_path / "trap"


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"PYTHONPATH": "."},
        {"PYTHONPATH": ":"},
        {"PYTHONPATH": "trap:/nonexistent:"},
        {"GROUPLEARN_PYTHON": "python3", "PATH": f".::{Path(sys.executable).parent}:/usr/bin:/bin"},
    ],
)
def test_nothing_in_the_current_directory_is_run(trap: Path, environment: dict[str, str]) -> None:
    """The extension's process stands in the folder; the host went there after its own modules were found."""
    told = asked(str(trap), **environment)
    assert told.endswith("True\nTrue\n")  # after DuckDB's bar where this takes seconds
    assert not (trap.parent / "sprung").exists()


@pytest.mark.parametrize("given", ["./python3", "trap/python3", "python3-that-nobody-has"])
def test_a_python_that_is_meant_from_the_current_directory_is_refused(trap: Path, given: str) -> None:
    told = asked(str(trap), GROUPLEARN_PYTHON=given)
    assert told.count(f"IO Error: GROUPLEARN_PYTHON is {given}, which is neither a whole path nor") == 2
    assert not (trap.parent / "sprung").exists()


def test_the_kind_of_an_error_is_what_duckdbs_message_begins_with() -> None:
    """A name in a message of ours is no kind, whatever DuckDB said that it tells."""
    told = 'model "m" is damaged: in table a.grouplearn.groups, Binder Error: no such type'
    assert serving.described(data_error(told)) == ("Invalid Input", told)
    assert serving.described(duckdb.BinderException("Binder Error: no")) == ("Binder", "no")
    assert serving.described(duckdb.InvalidInputException("Invalid Input Error: a Error: b")) == (
        "Invalid Input",
        "a Error: b",
    )


def test_an_error_at_the_other_end_is_the_exception_that_duckdb_raises_here() -> None:
    with duckdb.connect() as con:
        con.execute("BEGIN TRANSACTION READ ONLY")
        with pytest.raises(duckdb.Error) as raised:
            con.execute("CREATE TABLE t (i INTEGER)")
    assert type(error_of(str(raised.value))) is type(raised.value) is duckdb.TransactionException
    assert type(error_of("Out of Memory Error: failed to allocate")) is duckdb.OutOfMemoryException
    assert type(error_of("INTERRUPT Error: Interrupted!")) is duckdb.InterruptException
    assert type(error_of("no kind at all")) is duckdb.Error
