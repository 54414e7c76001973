"""What runs here, in a line: what ``SELECT grouplearn_version()`` says before the version of DuckDB."""

from __future__ import annotations

import functools
import importlib.metadata


@functools.cache
def described() -> str:
    """Return the package and its version: the place for whatever else decides what a model's numbers are."""
    return f"grouplearn {importlib.metadata.version('grouplearn')}"
