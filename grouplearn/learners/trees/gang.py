"""Communication in a LightGBM gang: its two collective operations, over Unix sockets in the gang's private directory.

LightGBM's own network listens on every interface of the machine while members connect. Instead LightGBM is given our
functions for the two operations that all others consist of, and other users can reach nothing.

    reduce-scatter: block b of the result is sum over r of block b of member r, and is for member b
    all-gather:     the result is the blocks of all members, and is for all
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from grouplearn.learners.contract.control import Gang
from grouplearn.learners.gang_sockets import connected, exchange
from grouplearn.learners.trees.lightgbm.library import call

_SIZES = ctypes.POINTER(ctypes.c_int32)
_Reduce = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int32)
#: LightGBM's ``ReduceScatterFunction`` and ``AllgatherFunction`` (``meta.h``); the last argument of the first is a reference.
_ReduceScatter = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int, _SIZES, _SIZES, ctypes.c_int, ctypes.c_void_p, ctypes.c_int32,
    ctypes.POINTER(_Reduce),
)  # fmt: skip
_AllGather = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int32, _SIZES, _SIZES, ctypes.c_int, ctypes.c_void_p, ctypes.c_int32
)


@contextmanager
def network(gang: Gang) -> Iterator[None]:
    """Connect LightGBM, which has one network per thread, to the other members of a gang; raises NoGang."""
    with connected(gang) as others:
        members = _Members(gang, others)
        # Kept until the network is freed: LightGBM has only their addresses.
        reduce_scatter, all_gather = _ReduceScatter(members.reduce_scatter), _AllGather(members.all_gather)
        functions = (ctypes.cast(each, ctypes.c_void_p) for each in (reduce_scatter, all_gather))
        call("LGBM_NetworkInitWithFunctions", gang.size, gang.rank, *functions)
        try:
            yield
        finally:
            call("LGBM_NetworkFree")


class _Members:
    """The collective operations as LightGBM calls them: on addresses, and without a way to report errors."""

    def __init__(self, gang: Gang, others: Mapping[int, socket.socket]) -> None:
        self._gang, self._others = gang, others

    def reduce_scatter(
        self, own: int, _n: int, width: int, starts: Any, sizes: Any, _count: int, result: int, _r: int, reduce: Any
    ) -> None:
        """Reduce this member's block over all members, in the order of their ranks."""
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
        """Concatenate the blocks of all members; the input may overlap the output."""
        block = bytearray(_view(own, n_bytes))
        parts = {other: _view(result + starts[other], sizes[other]) for other in self._others}
        self._exchanged(dict.fromkeys(self._others, memoryview(block)), parts)
        ctypes.memmove(result + starts[self._gang.rank], _address(block), n_bytes)

    def _exchanged(self, sent: dict[int, memoryview], taken: dict[int, memoryview]) -> None:
        """Exchange bytes with all others at the same time; does not return if one of them is gone."""
        try:
            exchange(self._others, sent, taken)
        except OSError:
            self._wait_for_the_end()

    def _wait_for_the_end(self) -> NoReturn:
        """Wait to be ended by the run: another member died or failed, and LightGBM cannot be told."""
        time.sleep(self._gang.seconds)
        os._exit(1)


def _view(address: int, size: int) -> memoryview:
    """Return bytes at an address, possibly none."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B") if size else memoryview(b"")


def _address(values: bytearray) -> int:
    return ctypes.addressof((ctypes.c_char * len(values)).from_buffer(values))
