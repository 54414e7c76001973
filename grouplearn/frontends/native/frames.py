"""Framed messages between the extension and this process, on a socket: the same as in ``udfs/native/channel.hpp``."""

from __future__ import annotations

import enum
import socket
import struct

_HEADER = struct.Struct("=QQ")


class Kind(enum.IntEnum):
    """What a frame holds."""

    # from the database
    STATEMENT = 1
    PREDICT = 2
    SCHEMA = 3
    BATCH = 4
    END = 5
    ERROR = 6
    # to the database
    QUERY = 10
    APPEND = 11
    OPEN = 12
    CLOSE = 13
    ANSWER = 14
    FAILED = 15
    PREDICTED = 16


class Gone(ConnectionError):
    """The database's end of a channel is closed."""


class Channel:
    """One statement's socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def send(self, kind: Kind, *parts: bytes | bytearray | memoryview) -> None:
        """Send one frame whose body is ``parts`` one after another."""
        try:
            self._socket.sendall(_HEADER.pack(kind, sum(map(len, parts))))
            for part in parts:
                self._socket.sendall(part)
        except OSError as error:
            raise Gone from error

    def receive(self) -> tuple[Kind, bytearray]:
        """Wait for one frame and return its kind and body."""
        kind, size = _HEADER.unpack(self._exactly(_HEADER.size))
        return Kind(kind), self._exactly(size)

    def _exactly(self, size: int) -> bytearray:
        body = bytearray(size)
        rest = memoryview(body)
        while rest:
            try:
                got = self._socket.recv_into(rest)
            except OSError as error:
                raise Gone from error
            if not got:
                raise Gone
            rest = rest[got:]
        return body

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def text(value: str) -> bytes:
    """Return a text as a body holds it: its length in bytes, and UTF-8."""
    return blob(value.encode())


def blob(value: bytes) -> bytes:
    """Return bytes as a body holds them: their length before them."""
    return struct.pack("=Q", len(value)) + value


class Body:
    """Numbers and texts taken from the body of a frame one after another."""

    def __init__(self, content: bytes | bytearray | memoryview) -> None:
        self._content = memoryview(content)
        self._at = 0

    def number(self) -> int:
        """Return the next number of eight bytes."""
        (value,) = struct.unpack_from("=q", self._content, self._at)
        self._at += 8
        return int(value)

    def blob(self) -> memoryview:
        """Return the next bytes that have their length before them."""
        size = self.number()
        self._at += size
        return self._content[self._at - size : self._at]

    def text(self) -> str:
        """Return the next text."""
        return str(self.blob(), "utf-8")

    def rest(self) -> memoryview:
        """Return what has not been taken."""
        return self._content[self._at :]
