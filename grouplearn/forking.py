"""A fork waits until no other thread imports a module.

In the child that thread is gone and its import never ends: importing the same module there would wait for ever. Our modules
are imported when they are first needed, so a thread's first TRAIN imports for half a second.

Python's own modules that act before and after a fork are imported here: one that is imported while a fork waits would only
act after it.
"""

from __future__ import annotations

import _imp
import contextlib
import os
import threading
import time
from concurrent.futures import thread as _locks_at_fork  # noqa: F401, with logging
from importlib import _bootstrap

#: Longest wait in seconds: an import may itself wait for the thread that forks.
_PATIENCE = 10.0
_PAUSE = 0.001


def _hold_imports() -> None:
    """Wait for the imports of other threads, and keep new ones from beginning."""
    ends = time.monotonic() + _PATIENCE
    _imp.acquire_lock()
    while _others_import() and time.monotonic() < ends:
        _imp.release_lock()
        time.sleep(_PAUSE)
        _imp.acquire_lock()


def _others_import() -> bool:
    """Return whether another thread holds the lock of a module, as it does while it imports it."""
    locks = [found() for found in tuple(getattr(_bootstrap, "_module_locks", {}).values())]
    return any(getattr(lock, "owner", None) not in (None, threading.get_ident()) for lock in locks)


def _release_imports() -> None:
    with contextlib.suppress(RuntimeError):  # the wait was interrupted, and nothing is held
        _imp.release_lock()


def register() -> None:
    """Let every fork of this process wait, also those of others, as they cannot know what we import."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_hold_imports, after_in_parent=_release_imports, after_in_child=_release_imports)
