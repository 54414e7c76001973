"""Where the Ray runtime finds its workers, and how long it waits for them: what sessions may set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cluster:
    """``address``: None for a private cluster on this machine, ``'auto'`` for the one that runs here, else ``'host:port'``.

    A worker that gives no sign of life for ``worker_timeout`` seconds is given up, and what it did runs elsewhere.
    """

    address: str | None = None
    worker_timeout: float = 60.0
