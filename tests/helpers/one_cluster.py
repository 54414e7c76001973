"""Which files' tests share a cluster of Ray, of which each takes five seconds of a core to start and to end."""

from __future__ import annotations

from pathlib import Path

#: One process carries them out, one after the other, where several carry out the tests.
FILES = frozenset({"test_ray_steps", "test_coordinate_ray", "test_averaging_ray", "test_mop_ray", "test_pushes_ray"})


def scope(file: str) -> str:
    """Return the name of what one process carries out: the file, or all of those that share a cluster."""
    return "one cluster" if Path(file).stem in FILES else file
