"""Framed messages between the extension and this process on a socket, as in ``udfs/native/channel/channel.hpp``."""

from __future__ import annotations

import enum
import socket
import struct

#: The version that both sides must share; raised with every change, here and in ``channel.hpp``.
PROTOCOL = 8
_HEADER = struct.Struct("=QQ")
#: Largest frame, and the step in which memory is allocated, so that a wrong header costs little.
_LARGEST, _PART = 1 << 40, 1 << 26


class FrameKind(enum.IntEnum):
    """The content of a frame."""

    # from the database
    STATEMENT = 1
    PREDICT = 2
    SCHEMA = 3
    BATCH = 4
    END = 5
    ERROR = 6
    VERSION = 7
    SETTLE = 8
    # to the database
    QUERY = 10
    APPEND = 11
    OPEN = 12
    CLOSE = 13
    ANSWER = 14
    FAILED = 15
    PREDICTED = 17
    # both ways, first: the protocol
    GREETING = 16


class Gone(ConnectionError):
    """The database's end of a channel is closed, or sends invalid frames."""


class Malformed(ValueError):
    """The body of a frame does not match its kind."""


_KINDS = frozenset(FrameKind)


class Channel:
    """One statement's socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def send(self, kind: FrameKind, *parts: bytes | bytearray | memoryview) -> None:
        """Send a frame with the concatenated ``parts`` as its body."""
        try:
            self._socket.sendall(_HEADER.pack(kind, sum(map(len, parts))))
            for part in parts:
                self._socket.sendall(part)
        except OSError as error:
            raise Gone from error

    def receive(self) -> tuple[FrameKind, bytearray]:
        """Wait for a frame and return its kind and body."""
        kind, size = _HEADER.unpack(self._exactly(_HEADER.size))
        if kind not in _KINDS or size > _LARGEST:
            raise Gone("a frame that is not understood")
        return FrameKind(kind), self._exactly(size)

    def _exactly(self, size: int) -> bytearray:
        body = bytearray()
        while len(body) < size:
            part = bytearray(min(size - len(body), max(_PART, len(body))))
            self._fill(memoryview(part))
            body = body + part if body else part
        return body

    def _fill(self, rest: memoryview) -> None:
        while rest:
            try:
                got = self._socket.recv_into(rest)
            except OSError as error:
                raise Gone from error
            if not got:
                raise Gone
            rest = rest[got:]

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def text(value: str) -> bytes:
    """Return a text as in a body: its length in bytes, and UTF-8."""
    return blob(value.encode())


def blob(value: bytes) -> bytes:
    """Return bytes as in a body, after their length."""
    return struct.pack("=Q", len(value)) + value


class Body:
    """Reads the numbers and texts in the body of a frame one after another."""

    def __init__(self, content: bytes | bytearray | memoryview) -> None:
        self._content = memoryview(content)
        self._at = 0

    def number(self) -> int:
        """Return the next number (8 bytes)."""
        return self.numbers(1)[0]

    def numbers(self, count: int) -> tuple[int, ...]:
        """Return the next ``count`` numbers (8 bytes each)."""
        return struct.unpack(f"={count}q", self._take(8 * count))

    def blob(self) -> memoryview:
        """Return the next bytes, which follow their length."""
        return self._take(self.number())

    def text(self) -> str:
        """Return the next text."""
        return str(self.blob(), "utf-8")

    def rest(self) -> memoryview:
        """Return all remaining bytes."""
        return self._content[self._at :]

    def left(self) -> int:
        """Return the number of remaining bytes."""
        return len(self._content) - self._at

    def _take(self, size: int) -> memoryview:
        if not 0 <= size <= self.left():
            raise Malformed("a message is shorter than it says")
        self._at += size
        return self._content[self._at - size : self._at]
