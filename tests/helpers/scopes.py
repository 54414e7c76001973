"""What one process carries out where several do the tests: a file, the files that share a cluster, or part of a long file."""

from __future__ import annotations

import zlib
from pathlib import Path

#: Files whose tests share a cluster of Ray, which takes five seconds of a core to start and to end.
ONE_CLUSTER = frozenset(
    {"test_ray_steps", "test_coordinate_ray", "test_averaging_ray", "test_mop_ray", "test_pushes_ray"}
)
#: In how many parts a file is carried out whose tests have nothing in common.
PARTS = {"test_slt": 4}


def scope(nodeid: str) -> str:
    """Return the name of what carries out a test."""
    file = nodeid.partition("::")[0]
    stem = Path(file).stem
    if stem in ONE_CLUSTER:
        return "one cluster"
    return f"{file} {zlib.crc32(nodeid.encode()) % PARTS[stem]}" if stem in PARTS else file
