"""What a process that a test has started says first."""

from __future__ import annotations

import os
import subprocess
from typing import Any


def heard(process: subprocess.Popen[Any]) -> str:
    """Return the next line, and read no byte beyond it: ``communicate`` does not find what ``readline`` has read ahead."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
        line += byte
    return line.decode()
