"""The grouplearn process: started by the extension, it serves every connection of one host process and ends with it."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import struct
import sys
import threading
from typing import TYPE_CHECKING

from grouplearn.frontends.native.frames import Channel, Gone

if TYPE_CHECKING:
    from grouplearn.frontends.native.serving import Line

_CONTROL = struct.Struct("=QQ")
_OPENED, _INTERRUPTED, _FORGOTTEN = 1, 2, 3
_PATIENCE_S = 5


def main() -> None:
    """Serve the control socket whose number is the only argument, until its other end closes."""
    # The terminal's Ctrl-C reaches the database's process, which passes on what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # we were started with it blocked
    with socket.socket(fileno=int(sys.argv[1])) as control:
        lines = _serve(control)
    # Nobody is left to hear of what runs; what was started for it (a cluster, say) is stopped, in a limited time.
    watchdog = threading.Timer(_PATIENCE_S, os._exit, (1,))
    watchdog.daemon = True
    watchdog.start()
    for line in lines:
        line.interrupt()
    # Not by the interpreter's own end: it would stop threads in the middle of C++.
    atexit._run_exitfuncs()
    os._exit(0)


def _serve(control: socket.socket) -> list[Line]:
    from grouplearn.frontends.native.serving import Host, Line

    host = Host()
    lines: dict[int, Line] = {}
    while True:
        message, handed, _, _ = socket.recv_fds(control, _CONTROL.size, 1)
        if len(message) < _CONTROL.size:
            return list(lines.values())
        what, number = _CONTROL.unpack(message)
        if what == _OPENED:
            if not handed:  # no file could be opened here: the host finds the line closed, and tells that statement
                continue
            channel = Channel(socket.socket(fileno=handed[0]))
            lines[number] = Line(channel, host)
            threading.Thread(target=_answer, args=(lines, number, channel), daemon=True).start()
        elif what == _INTERRUPTED:
            if (line := lines.get(number)) is not None:  # or it has ended
                line.interrupt()
        elif what == _FORGOTTEN:
            host.instances.pop(number, None)


def _answer(lines: dict[int, Line], number: int, channel: Channel) -> None:
    try:
        lines[number].serve()
    except Gone:  # the statement is over
        return
    finally:
        del lines[number]
        channel.close()


if __name__ == "__main__":
    main()
