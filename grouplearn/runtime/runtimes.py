"""Runtimes by name, imported on demand."""

from __future__ import annotations

import functools
from collections.abc import Callable

from grouplearn.runtime.ray.settings import Cluster
from grouplearn.train.job import Runtime


@functools.cache
def runtime(name: str, cluster: Cluster | None = None, *, here: bool = False, cores: int = 1) -> Runtime:
    """Return the process's runtime of the given name, one of ``operators.RUNTIMES``; KeyError otherwise.

    The Ray runtime starts Ray with the first run and keeps it for later runs of any session; ``shutdown()`` stops it before
    the process ends. ``cluster`` says where it finds its workers, by default on this machine. With ``here`` the local
    runtime trains in the calling thread; its idle workers lend others their part of the ``cores``.
    """
    if name == "local":
        from grouplearn.runtime.local import LocalRuntime

        return LocalRuntime(here=here, cores=cores)
    if name == "ray":
        from grouplearn.runtime.ray.runtime import RayRuntime

        return RayRuntime(cluster)
    raise KeyError(name)


def get_ready(name: str, cluster: Cluster, cancelled: Callable[[], bool]) -> None:
    """Start a runtime that is slow to start; raises if it cannot."""
    if name == "ray":
        from grouplearn.runtime.ray.runtime import RayRuntime

        RayRuntime(cluster).prepare(cancelled)
