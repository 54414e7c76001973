"""Runtimes by name, imported when they are asked for."""

from __future__ import annotations

import functools

from grouplearn.runtime.job import Runtime

#: The values of ``WITH (executor = ...)`` besides 'auto'.
RUNTIMES = ("local", "ray")


@functools.cache
def runtime(name: str) -> Runtime:
    """Return the process's runtime of the given name, one of ``RUNTIMES``; KeyError otherwise.

    The Ray runtime starts Ray and its actors with the first run and keeps them for the next, whatever session it is of;
    ``shutdown()`` stops them before the process ends.
    """
    if name == "local":
        from grouplearn.runtime.local import LocalRuntime

        return LocalRuntime()
    if name == "ray":
        from grouplearn.runtime.ray import RayRuntime

        return RayRuntime()
    raise KeyError(name)
