"""Selects the kernel library of this process: the best one that its processor runs and that is compiled, or
``$GROUPLEARN_KERNELS``.

All compute the same bits, see ``source/lanes/lanes.hpp``.
"""

from __future__ import annotations

import ctypes
import functools
import os

from grouplearn.failures import Failure
from grouplearn.kernels.build import compiling

#: Environment variable that forces a build.
VARIABLE = "GROUPLEARN_KERNELS"
_REMEDY = "Install grouplearn again, or run python -m grouplearn.kernels.build.compiling"


class KernelsMissing(Failure):
    """There is no compiled library for this machine, or not the requested one."""


@functools.cache
def name() -> str:
    """Return the build in use: avx512, avx2, neon or portable."""
    wanted = os.environ.get(VARIABLE)
    possible = available()
    if wanted:
        if wanted not in possible:
            message = f"the environment variable {VARIABLE} is {wanted!r}, which this machine does not run"
            raise KernelsMissing(message, hint=f"It runs {', '.join(possible)}; without the variable, {possible[0]}.")
        return wanted
    return next((build for build in possible if compiling.path_of(build).exists()), possible[0])


def available() -> list[str]:
    """Return the builds that this processor supports, best first; a checkout may have compiled only one of them."""
    if not compiling.path_of(compiling.PROCESSOR).exists():
        raise _missing(compiling.PROCESSOR)
    return compiling.supported()


def _missing(build: str) -> KernelsMissing:
    remedy = _REMEDY if build == compiling.PROCESSOR else f"{_REMEDY} {build}"
    return KernelsMissing(
        f"the compiled part of grouplearn is not there: {compiling.path_of(build).name}", hint=f"{remedy}."
    )


@functools.cache
def _load(build: str) -> ctypes.CDLL:
    path = compiling.path_of(build)
    if not path.exists():
        raise _missing(build)
    loaded = ctypes.CDLL(str(path))
    # Calls with outdated argument lists would crash the process.
    tell = getattr(loaded, "fingerprint", None)
    if tell is not None:
        tell.restype = ctypes.c_char_p
    if tell is None or tell() != compiling.fingerprint().encode():
        raise KernelsMissing(f"{path.name} was compiled from other sources", hint=f"{_REMEDY} {build}.")
    return loaded


@functools.cache
def library() -> ctypes.CDLL:
    """Return the library in use."""
    return _load(name())
