"""Packages that cannot stand beside ours in one environment, in folders of their own that a child process looks in first.

They are installed on first use (seconds) and kept in the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def overlay(name: str, *requirements: str, dependencies: bool = True) -> dict[str, str]:
    """Return the environment variables of a process that finds ``requirements``; skips the test where they cannot be had."""
    folder = Path(sys.prefix) / "overlays" / name
    marker = folder / "installed.txt"
    wanted = "\n".join(requirements)
    if not marker.exists() or marker.read_text() != wanted:
        # Python compiles what is imported of them, which takes seconds less than all that is installed does.
        options = ["--quiet", "--no-compile", "--upgrade", "--target", str(folder)]
        options += [] if dependencies else ["--no-deps"]
        made = subprocess.run(
            [sys.executable, "-m", "pip", "install", *options, *requirements], capture_output=True, text=True
        )
        if made.returncode != 0:
            pytest.skip(f"{wanted} cannot be installed here: {made.stderr[-300:]}")
        marker.write_text(wanted)
    return {**os.environ, "PYTHONPATH": str(folder)}
