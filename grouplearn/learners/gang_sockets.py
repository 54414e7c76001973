"""Communication in a gang: Unix sockets in its private directory, which other users cannot reach."""

from __future__ import annotations

import functools
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.learners.contract.control import Gang

#: How often a member checks whether another one listens yet.
_POLL_SECONDS = 0.002
_RANK_BYTES = 4


class NoGang(Exception):
    """Not all members of a gang came."""


@contextmanager
def joined(gang: Gang) -> Iterator[Gang]:
    """Yield the gang connected to the other members; raises NoGang."""
    with connected(gang) as links:
        yield replace(gang, links=links)


@contextmanager
def connected(gang: Gang) -> Iterator[dict[int, socket.socket]]:
    """Yield a socket for each other member: it listens for those of higher rank and calls those of lower rank."""
    deadline = time.monotonic() + gang.seconds
    with ExitStack() as stack:
        place = _short(stack, gang.directory)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(f"{place}/{gang.rank}")
        listener.listen(gang.size)
        others = {rank: stack.enter_context(_called(f"{place}/{rank}", gang, deadline)) for rank in range(gang.rank)}
        while len(others) < gang.size - 1:
            listener.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                other, _ = listener.accept()
            except TimeoutError:
                raise NoGang(_absent(gang)) from None
            stack.enter_context(other)
            others[int.from_bytes(other.recv(_RANK_BYTES, socket.MSG_WAITALL), "little")] = other
        for other in others.values():
            other.setblocking(False)
        yield others


def _short(stack: ExitStack, directory: str) -> str:
    """Return a short path of a directory if the system has one: a socket's path may have only 100 bytes."""
    if not os.path.isdir("/proc/self/fd"):
        return directory
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, descriptor)
    return f"/proc/self/fd/{descriptor}"


def _called(path: str, gang: Gang, deadline: float) -> socket.socket:
    """Return a socket to the member that listens, or will listen, at ``path``."""
    own = socket.socket(socket.AF_UNIX)
    while True:
        try:
            own.connect(path)
            own.sendall(gang.rank.to_bytes(_RANK_BYTES, "little"))
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > deadline:
                own.close()
                raise NoGang(_absent(gang)) from None
            time.sleep(_POLL_SECONDS)
        else:
            return own


def _absent(gang: Gang) -> str:
    return f"another worker of the same model did not come within {gang.seconds:g} s"


def gathered(gang: Gang, own: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return the arrays of all members, equal in shape and type, in the order of their ranks; raises OSError.

    Every member calls it with its own.
    """
    sent = np.ascontiguousarray(own)
    found = [sent if rank == gang.rank else np.empty_like(sent) for rank in range(gang.size)]
    given = sent.data.cast("B")
    taken = {rank: found[rank].data.cast("B") for rank in gang.links}
    exchange(gang.links, dict.fromkeys(gang.links, given), taken)
    return found


def summed(gang: Gang, own: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the sum of the arrays of all members, added in the order of their ranks, so that all get the same bits."""
    return functools.reduce(np.add, gathered(gang, own))


def share(rows: int, part: int, parts: int) -> tuple[int, int]:
    """Return where one of several equal parts of rows begins and ends."""
    return part * rows // parts, (part + 1) * rows // parts


def rows_of_all(gang: Gang, own: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the rows (n, ...) of all members, in the order of their ranks; members may have different numbers of them."""
    sizes = [int(size[0]) for size in gathered(gang, np.array([len(own)]))]
    padded = np.zeros((max(sizes), *own.shape[1:]), own.dtype)
    padded[: len(own)] = own
    return np.concatenate([rows[:size] for rows, size in zip(gathered(gang, padded), sizes, strict=True)])


def exchange(others: Mapping[int, socket.socket], sent: dict[int, memoryview], taken: dict[int, memoryview]) -> None:
    """Exchange bytes until all are transferred; raises OSError if a peer is gone."""
    poll, ranks = select.poll(), {other.fileno(): rank for rank, other in others.items()}

    def watch(rank: int) -> None:
        events = (select.POLLOUT if sent[rank] else 0) | (select.POLLIN if taken[rank] else 0)
        poll.register(others[rank], events)
        if not events:
            poll.unregister(others[rank])
            del ranks[others[rank].fileno()]

    for rank in others:
        watch(rank)
    while ranks:
        for descriptor, _ in poll.poll():
            rank = ranks[descriptor]
            sent[rank] = _moved(others[rank].send, sent[rank])
            taken[rank] = _moved(others[rank].recv_into, taken[rank])
            watch(rank)


def _moved(move: Callable[[memoryview], int], left: memoryview) -> memoryview:
    """Return what is left after transferring as much as possible now."""
    with suppress(BlockingIOError):
        moved = move(left) if left else 0
        if left and not moved:
            raise ConnectionResetError("another member is gone")
        return left[moved:]
    return left
