"""A unit computes on one thread: the limits that keep numerical libraries to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import threadpoolctl

from grouplearn.errors import MissingDependency
from grouplearn.learners import registry
from grouplearn.learners.base import Learner


def import_learner(learner: Learner) -> None:
    """Load what the learner computes with; raises MissingDependency with the install command.

    To be done before threads are limited: only loaded libraries can be.
    """
    if learner.requires is None:
        return
    registry.check_installed(learner)
    try:
        learner.requires.load()
    except (ImportError, OSError) as error:
        message = f"USING {learner.name} needs the package {learner.requires.package}, which does not load: {error}"
        raise MissingDependency(message, hint=learner.requires.install_hint) from None


class _BlasLimit:
    """The process's limit of BLAS threads, shared by runs that overlap: the first sets it, the last restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limits: threadpoolctl.threadpool_limits | None = None

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._limits is None:
                self._limits = threadpoolctl.threadpool_limits(limits=1, user_api="blas")

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._limits is not None:
                self._limits.restore_original_limits()
                self._limits = None


_BLAS_LIMIT = _BlasLimit()


@contextmanager
def blas_on_one_thread() -> Iterator[None]:
    """Keep BLAS to one thread per caller, in the whole process."""
    _BLAS_LIMIT.enter()
    try:
        yield
    finally:
        _BLAS_LIMIT.leave()


@contextmanager
def openmp_on_one_thread() -> Iterator[None]:
    """Keep OpenMP regions that the calling thread enters to one thread; every worker thread needs its own limit."""
    with threadpoolctl.threadpool_limits(limits=1, user_api="openmp"):
        yield
