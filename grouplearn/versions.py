"""What runs here, in a line: what ``SELECT grouplearn_version()`` says before the version of DuckDB."""

from __future__ import annotations

import functools
import importlib.metadata

from grouplearn.kernels.build import builds


@functools.cache
def described() -> str:
    """Return the package and its version, and which build of the kernels this processor runs."""
    return f"grouplearn {importlib.metadata.version('grouplearn')} (kernels: {builds.name()})"
