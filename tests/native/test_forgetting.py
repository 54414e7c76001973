"""What the process keeps for a database goes when the database does."""

from __future__ import annotations

import gc
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
from native_builds import built, wait_until

from grouplearn.frontends.native import serving, worker
from grouplearn.frontends.native.frames import PROTOCOL, Channel, FrameKind

OPENED, FORGOTTEN = 1, 3
#: In the place of the process: refuses every statement, and writes down what it is told.
REFUSING = """#!{python}
import socket, struct, sys
from grouplearn.frontends.native.frames import PROTOCOL, Channel, FrameKind, text
with socket.socket(fileno=int(sys.argv[-1])) as control, open({log!r}, "w", buffering=1) as log:
    while True:
        message, handed, _, _ = socket.recv_fds(control, 16, 1)
        if not message:
            break
        print(*struct.unpack("=QQ", message), file=log)
        if handed:
            channel = Channel(socket.socket(fileno=handed[0]))
            while channel.receive()[0] is FrameKind.GREETING:
                channel.send(FrameKind.GREETING, struct.pack("=Q", PROTOCOL), text("0"))
            channel.send(FrameKind.FAILED, text("Binder"), text("refused"))
"""
DATABASES = """
import duckdb, sys
for _ in range(2):
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{sys.argv[1]}'")
        try:
            connection.execute("SHOW MODELS")
        except duckdb.BinderException as error:
            assert "refused" in str(error)
"""


def test_the_extension_tells_the_process(tmp_path: Path) -> None:
    log, stand_in = tmp_path / "log", tmp_path / "python"
    stand_in.write_text(REFUSING.format(python=sys.executable, log=str(log)))
    stand_in.chmod(0o755)
    command = [sys.executable, "-c", DATABASES, str(built(duckdb.__version__))]
    environment = {**os.environ, "GROUPLEARN_PYTHON": str(stand_in)}
    subprocess.run(command, check=True, timeout=60, env=environment)
    told = [f"{OPENED} 1", f"{FORGOTTEN} 1", f"{OPENED} 2", f"{FORGOTTEN} 2"]
    assert wait_until(lambda: log.read_text().splitlines() == told), log.read_text()


def instances() -> int:
    gc.collect()
    return sum(type(each) is serving.DatabaseInstance for each in gc.get_objects())


def test_the_process_forgets() -> None:
    control, its_control = socket.socketpair()
    ours, its = socket.socketpair()
    serves = threading.Thread(target=worker._serve, args=(its_control,))
    with control, ours, its_control:
        serves.start()
        socket.send_fds(control, [struct.pack("=QQ", OPENED, 1)], [its.fileno()])
        its.close()
        channel = Channel(ours)
        channel.send(FrameKind.GREETING, struct.pack("=Q", PROTOCOL))
        assert channel.receive()[0] is FrameKind.GREETING
        for database in (7, 8):
            channel.send(FrameKind.PREDICT, struct.pack("=QQ", database, 0))
            assert channel.receive()[0] is FrameKind.FAILED
        assert instances() == 2
        control.sendall(struct.pack("=QQ", FORGOTTEN, 7))
        assert wait_until(lambda: instances() == 1)
        control.shutdown(socket.SHUT_WR)
        serves.join()
