"""What processes listen on, as the system shows it."""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

#: The state of a socket that listens (TCP), and of one that is bound and connected to nobody (UDP). Ray connects a
#: UDP socket for a moment to learn the machine's address; only the one it is connected to could send to that.
_OPEN = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}


def listening(processes: Iterable[int]) -> set[tuple[str, int]]:
    """Return the addresses and ports of TCP (and UDP, where nobody is connected) on which any of the processes listens."""
    own = {inode for process in processes for inode in _sockets(process)}
    found = set()
    for table, open_state in _OPEN.items():
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in own and words[3] == open_state:
                address, _, port = words[1].partition(":")
                found.add((_readable(address), int(port, 16)))
    return found


def beyond_loopback(found: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return those that another machine could reach."""
    return {each for each in found if not ipaddress.ip_address(each[0]).is_loopback}


def _sockets(process: int) -> set[str]:
    inodes = set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                target = os.readlink(descriptor)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    return inodes


def _readable(address: str) -> str:
    """Return an address of ``/proc/net/tcp``, words of 4 bytes in the machine's order, as people write it."""
    words = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    found = ipaddress.ip_address(packed)
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)
