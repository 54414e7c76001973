"""Finds and ends the processes of a session: everything that Ray starts stays in its driver's session."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

#: How long killed processes may take to disappear.
END_SECONDS = 5.0
_PROC = Path("/proc")


def of_session(session: int) -> list[int]:
    """Return the living processes of a session, its leader included; empty if the system does not list them."""
    found = []
    for status in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            # pid (command) state ppid pgrp session ...: a command may have spaces and brackets
            state, _, _, owner = status.read_text().rsplit(")", 1)[1].split()[:4]
            if int(owner) == session and state not in "ZX":
                found.append(int(status.parent.name))
    return found


def processes_named(session: int, names: Sequence[str]) -> list[int]:
    """Return the living processes of a session whose program has one of these names."""
    found = []
    for process in of_session(session):
        with suppress(OSError):
            if (_PROC / str(process) / "comm").read_text().strip() in names:
                found.append(process)
    return found


def end_session(session: int, spared: int | None = None) -> None:
    """Kill the living processes of a session except ``spared``, and return when they are gone."""
    deadline = time.monotonic() + END_SECONDS
    while processes := [each for each in of_session(session) if each != spared]:
        for process in processes:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)


def end_leftovers(session: int, directory: Path) -> None:
    """Kill those processes of an ended session that have files in ``directory`` open; its number may be in use again."""
    for process in of_session(session):
        if _uses(process, directory):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def _uses(process: int, directory: Path) -> bool:
    try:
        links = [os.readlink(each) for each in (_PROC / str(process) / "fd").iterdir()]
    except OSError:
        return False
    return any(link.startswith(f"{directory}/") for link in links)
