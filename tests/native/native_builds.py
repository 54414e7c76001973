"""Builds of the extension for the tests."""

from pathlib import Path

import pytest

from grouplearn.frontends.native.build import BuildError, build


def built(version: str) -> Path:
    """Return the build for a DuckDB version; a machine that cannot build skips, and says why."""
    try:
        return build(version)
    except BuildError as error:
        pytest.skip(f"the extension cannot be built here: {error}")
