"""Compiled kernels of every kind that this processor runs; a checkout has only the best one from the start."""

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from grouplearn.kernels.build import builds, compiling
from helpers.one_at_a_time import one_at_a_time
from helpers.thorough import THOROUGH


@functools.cache
def compiled() -> Mapping[str, Path]:
    """Return the library of each build that this processor runs, best first; one test worker of all compiles the missing ones.

    A third of the time compiles them with few optimizations, none of which may change a bit; ``make thorough`` has all.
    """
    names = builds.available()
    with one_at_a_time("kernels") as folder:
        if THOROUGH:
            compiling.compile_builds(names)
        return {name: _library(name, folder) for name in names}


def _library(build: str, folder: Path) -> Path:
    """Return the checkout's own library, which is optimized as users have it, or one in the folder."""
    own, quick = compiling.path_of(build), compiling.path_of(build, folder)
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
