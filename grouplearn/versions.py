"""The versions in use, in a line: ``SELECT grouplearn_version()`` adds that of DuckDB."""

from __future__ import annotations

import functools
import importlib.metadata

from grouplearn.kernels.build import builds


@functools.cache
def described() -> str:
    """Return the package with its version, and the kernel build for this processor."""
    return f"grouplearn {importlib.metadata.version('grouplearn')} (kernels: {builds.name()})"
