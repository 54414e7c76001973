"""What runs here, in a line: what ``SELECT grouplearn_version()`` says before the version of DuckDB."""

from __future__ import annotations

import grouplearn


def described() -> str:
    """Return the package and its version: the place for whatever else decides what a model's numbers are."""
    return f"grouplearn {grouplearn.__version__}"
