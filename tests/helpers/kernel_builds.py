"""Compiled kernels of every kind that this processor runs; a checkout has only the best one from the start."""

import fcntl
import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from grouplearn.kernels.build import builds, compiling
from helpers.thorough import THOROUGH

#: Where tests keep what they compile, beside the checkout's own, which are optimized as users have them.
FOLDER = Path(__file__).parents[2] / "build" / "kernels"


@functools.cache
def compiled() -> Mapping[str, Path]:
    """Return the library of each build that this processor runs, best first; one test worker of all compiles the missing ones.

    A third of the time compiles them with few optimizations, none of which may change a bit; ``make thorough`` has all.
    """
    names = builds.available()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if THOROUGH:
            compiling.compile_builds(names)
        return {name: _library(name) for name in names}


def _library(build: str) -> Path:
    own = compiling.path_of(build)
    quick = FOLDER / own.name
    if compiling.is_built_from(own, compiling.fingerprint()):
        return own
    if not compiling.is_built_from(quick, compiling.fingerprint()):
        compiling.compile_library(quick, (*compiling.builds()[build], "-O1"), compiling.units())
    return quick


@contextmanager
def findable() -> Iterator[None]:
    """Have this process find what tests compiled."""
    own, libraries = compiling.path_of, compiled()
    with patch.object(compiling, "path_of", lambda build: libraries.get(build) or own(build)):
        yield
