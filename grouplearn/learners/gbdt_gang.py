"""How the members of a LightGBM gang talk: its two collective operations, over Unix sockets in the gang's private directory.

LightGBM's own network listens on every interface of the machine while members connect. Here nothing listens that anybody but
this user could reach: LightGBM is given functions of ours for the two operations that all others of it are made of.

    reduce-scatter: block b of the result is sum over r of block b of member r, and is for member b
    all-gather:     the result is the blocks of all members, and is for all
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NoReturn

from grouplearn.learners.base import Gang
from grouplearn.learners.gbdt_library import call

_SIZES = ctypes.POINTER(ctypes.c_int32)
_Reduce = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int32)
#: LightGBM's ``ReduceScatterFunction`` and ``AllgatherFunction`` (``meta.h``): the first one's last argument is a reference.
_ReduceScatter = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int, _SIZES, _SIZES, ctypes.c_int, ctypes.c_void_p, ctypes.c_int32,
    ctypes.POINTER(_Reduce),
)  # fmt: skip
_AllGather = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int32, _SIZES, _SIZES, ctypes.c_int, ctypes.c_void_p, ctypes.c_int32
)
#: How often a member looks whether another one listens yet.
_POLL_SECONDS = 0.002
_RANK_BYTES = 4


class NoGang(Exception):
    """Not all members of a gang came."""


@contextmanager
def network(gang: Gang) -> Iterator[None]:
    """Connect LightGBM, of which a thread has one network, to the other members of a gang; raises NoGang."""
    with _connected(gang) as others:
        members = _Members(gang, others)
        # Held until the network is freed: LightGBM has only their addresses.
        reduce_scatter, all_gather = _ReduceScatter(members.reduce_scatter), _AllGather(members.all_gather)
        functions = (ctypes.cast(each, ctypes.c_void_p) for each in (reduce_scatter, all_gather))
        call("LGBM_NetworkInitWithFunctions", gang.size, gang.rank, *functions)
        try:
            yield
        finally:
            call("LGBM_NetworkFree")


@contextmanager
def _connected(gang: Gang) -> Iterator[dict[int, socket.socket]]:
    """Give a socket for each other member: one listens for those of higher rank and calls those of lower."""
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
    """Return a short path of a directory where the system has one: that of a socket may have 100 bytes."""
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


class _Members:
    """The collective operations, as LightGBM calls them: on addresses, and without a way to say that they failed."""

    def __init__(self, gang: Gang, others: Mapping[int, socket.socket]) -> None:
        self._gang, self._others = gang, others

    def reduce_scatter(
        self, own: int, _n: int, width: int, starts: Any, sizes: Any, _count: int, result: int, _r: int, reduce: Any
    ) -> None:
        """Reduce this member's block of all members, in the order of their ranks."""
        rank = self._gang.rank
        blocks = {other: _view(own + starts[other], sizes[other]) for other in self._others}
        parts = {other: bytearray(sizes[rank]) for other in self._others}
        self._exchanged(blocks, {other: memoryview(part) for other, part in parts.items()})
        parts[rank] = bytearray(_view(own + starts[rank], sizes[rank]))
        addresses = [_address(parts[each]) for each in sorted(parts)]
        for other in addresses[1:]:
            reduce[0](other, addresses[0], width, sizes[rank])
        ctypes.memmove(result, addresses[0], sizes[rank])

    def all_gather(self, own: int, n_bytes: int, starts: Any, sizes: Any, _count: int, result: int, _n: int) -> None:
        """Put the blocks of all members beside each other; the own one may lie where another is to be."""
        block = bytearray(_view(own, n_bytes))
        parts = {other: _view(result + starts[other], sizes[other]) for other in self._others}
        self._exchanged(dict.fromkeys(self._others, memoryview(block)), parts)
        ctypes.memmove(result + starts[self._gang.rank], _address(block), n_bytes)

    def _exchanged(self, sent: dict[int, memoryview], taken: dict[int, memoryview]) -> None:
        """Send to and take from all others at the same time; does not return once one of them is gone."""
        try:
            _exchange(self._others, sent, taken)
        except OSError:
            self._wait_for_the_end()

    def _wait_for_the_end(self) -> NoReturn:
        """Another member died or has failed, and LightGBM cannot be told: the run ends those who wait for it."""
        time.sleep(self._gang.seconds)
        os._exit(1)


def _exchange(others: Mapping[int, socket.socket], sent: dict[int, memoryview], taken: dict[int, memoryview]) -> None:
    """Move bytes both ways until all are there; raises OSError where somebody is gone."""
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
    """Return what is left to be moved after as much as goes now."""
    with suppress(BlockingIOError):
        moved = move(left) if left else 0
        if left and not moved:
            raise ConnectionResetError("another member is gone")
        return left[moved:]
    return left


def _view(address: int, size: int) -> memoryview:
    """Return bytes at an address, of which there may be none."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B") if size else memoryview(b"")


def _address(values: bytearray) -> int:
    return ctypes.addressof((ctypes.c_char * len(values)).from_buffer(values))
