"""The grouplearn process: the extension starts it; it serves all connections of one host process and ends with it."""

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
    from grouplearn.frontends.native.serving import ChannelServer

_CONTROL = struct.Struct("=QQ")
_OPENED, _INTERRUPTED, _FORGOTTEN = 1, 2, 3
_PATIENCE_S = 5


def main() -> None:
    """Serve the control socket, whose number is the only argument, until its other end closes."""
    # The terminal's Ctrl-C reaches the database's process, which forwards it as needed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # it was blocked when we were started
    with socket.socket(fileno=int(sys.argv[1])) as control:
        servers = _serve(control)
    # Nobody is left to read results; what was started for them (a cluster, say) is stopped within a time limit.
    watchdog = threading.Timer(_PATIENCE_S, os._exit, (1,))
    watchdog.daemon = True
    watchdog.start()
    for server in servers:
        server.interrupt()
    # Not through the interpreter's exit, which would stop threads inside C++ code.
    atexit._run_exitfuncs()
    os._exit(0)


def _serve(control: socket.socket) -> list[ChannelServer]:
    from grouplearn.frontends.native.serving import ChannelServer, Host

    host = Host()
    servers: dict[int, ChannelServer] = {}
    while True:
        message, handed, _, _ = socket.recv_fds(control, _CONTROL.size, 1)
        if len(message) < _CONTROL.size:
            return list(servers.values())
        what, number = _CONTROL.unpack(message)
        if what == _OPENED:
            if not handed:  # no file could be opened here: the host sees the channel closed, and fails that statement
                continue
            channel = Channel(socket.socket(fileno=handed[0]))
            servers[number] = ChannelServer(channel, host)
            threading.Thread(target=_answer, args=(servers, number, channel), daemon=True).start()
        elif what == _INTERRUPTED:
            if (server := servers.get(number)) is not None:  # else it has ended
                server.interrupt()
        elif what == _FORGOTTEN:
            host.instances.pop(number, None)


def _answer(servers: dict[int, ChannelServer], number: int, channel: Channel) -> None:
    try:
        servers[number].serve()
    except Gone:  # the statement is over
        return
    finally:
        del servers[number]
        channel.close()


if __name__ == "__main__":
    main()
