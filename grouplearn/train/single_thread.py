"""A unit computes on one thread: limits for numerical libraries."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import threadpoolctl

from grouplearn.failures import NotInstalled
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner


def import_learner(learner: Learner) -> None:
    """Load the learner's package; raises NotInstalled with the install command.

    Must run before threads are limited, as only loaded libraries can be.
    """
    needed = learner.declaration.requires
    if needed is None:
        return
    registry.check_installed(learner)
    try:
        needed.load()
    except (ImportError, OSError) as error:
        message = f"USING {learner.declaration.name} needs the package {needed.package}, which does not load: {error}"
        raise NotInstalled(message, hint=needed.install_hint) from None


class _Libraries:
    """The libraries with threads of their own, cached: finding them takes milliseconds, and only imports load more."""

    def __init__(self) -> None:
        self._modules = 0
        self._found = threadpoolctl.ThreadpoolController()

    def limited(self, kind: str) -> Any:
        """Return a context that limits them to one thread; ``kind`` is ``"blas"`` or ``"openmp"``."""
        if self._modules != (now := len(sys.modules)):
            self._modules, self._found = now, threadpoolctl.ThreadpoolController()
        return self._found.limit(limits=1, user_api=kind)


_LIBRARIES = _Libraries()


class _BlasLimit:
    """The process's limit of BLAS threads, shared by overlapping runs: the first sets it, the last restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limits: Any = None

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._limits is None:
                self._limits = _LIBRARIES.limited("blas")

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._limits is not None:
                self._limits.restore_original_limits()
                self._limits = None


_BLAS_LIMIT = _BlasLimit()


@contextmanager
def blas_on_one_thread() -> Iterator[None]:
    """Limit BLAS to one thread per caller, in the whole process."""
    _BLAS_LIMIT.enter()
    try:
        yield
    finally:
        _BLAS_LIMIT.leave()


@contextmanager
def openmp_on_one_thread() -> Iterator[None]:
    """Limit OpenMP regions that the calling thread enters to one thread; every worker thread needs its own limit."""
    with _LIBRARIES.limited("openmp"):
        yield
