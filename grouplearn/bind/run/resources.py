"""Checks of the settings for the Ray runtime: where its workers are, and how long to wait for them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from grouplearn import sqltext

#: Default and smallest number of seconds without a heartbeat after which a worker is given up.
DEFAULT_TIMEOUT, LEAST_TIMEOUT = 60.0, 1.0
_MOST_PORT = 65_535


def check_address(value: Any) -> str:
    """Return an address of a Ray cluster: ``'auto'``, or ``'host:port'``; raises ValueError."""
    message = f"must be 'auto' or 'host:port' such as '10.0.0.5:6379', got {sqltext.shown(value)}"
    if not isinstance(value, str):
        raise ValueError(message)
    if value.lower() == "auto":
        return "auto"
    host, _, port = value.rpartition(":")
    right = bool(host) and not host.isspace() and "/" not in host and port.isascii() and port.isdigit()
    if not right or not 0 < int(port) <= _MOST_PORT:
        raise ValueError(message)
    return value


def check_timeout(value: Any) -> float:
    """Return a number of seconds, at least ``LEAST_TIMEOUT``; raises ValueError."""
    number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not number or not LEAST_TIMEOUT <= value < math.inf:
        raise ValueError(f"must be a number of seconds, at least {LEAST_TIMEOUT:g}, got {sqltext.shown(value)}")
    return float(value)
