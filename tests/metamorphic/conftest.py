"""Counts the statements that were tried, on whatever worker, and says so at the end of ``make fuzz``."""

from __future__ import annotations

import os
from typing import Any

import pytest
import random_statements

_STATEMENTS = "statements"
_tried: list[int] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    written: Any = getattr(session.config, "workeroutput", None)
    if written is not None:
        written[_STATEMENTS] = random_statements.WRITTEN[0]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _tried.append(node.workeroutput.get(_STATEMENTS, 0))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if "GROUPLEARN_EXPLORE" in os.environ:
        terminalreporter.write_line(f"{sum(_tried) + random_statements.WRITTEN[0]:,} random statements")
