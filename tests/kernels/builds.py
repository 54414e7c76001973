"""What a kernel gives in every build that this processor runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
from helpers.kernel_builds import compiled, findable

from grouplearn.kernels import library
from grouplearn.kernels.build import builds

Results = Mapping[str, np.ndarray]


@contextmanager
def running(build: str) -> Iterator[None]:
    """Make a build the one that runs."""
    cached = (builds.name, builds.library, library.function)
    with patch.dict(os.environ, {builds.VARIABLE: build}), findable():
        for each in cached:
            each.cache_clear()
        try:
            yield
        finally:
            for each in cached:
                each.cache_clear()


def in_every_build(compute: Callable[[], Results]) -> Results:
    """Return what ``compute`` gives, which has the same bits in every build; NaN are one."""
    found: dict[str, dict[str, bytes]] = {}
    results: Results = {}
    for build in compiled():
        with running(build):
            results = compute()
        found[build] = {name: np.asarray(each).tobytes() for name, each in results.items()}
    (first, expected), *others = found.items()
    for build, each in others:
        for name, bits in each.items():
            assert bits == expected[name], f"{name} of {build} is not that of {first}"
    return results
