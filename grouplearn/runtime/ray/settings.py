"""Settings of the Ray runtime: where its workers are, and how long to wait for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grouplearn.bind.run.resources import DEFAULT_TIMEOUT


@dataclass(frozen=True, slots=True)
class Cluster:
    """``address``: None for a private cluster on this machine, ``'auto'`` for the one that runs here, else ``'host:port'``.

    A worker that does not answer for ``worker_timeout`` seconds is given up, and its work runs elsewhere.
    """

    address: str | None = None
    worker_timeout: float = DEFAULT_TIMEOUT

    @classmethod
    def by_settings(cls, settings: Mapping[str, Any]) -> Cluster:
        """Return the cluster of a session's settings, by their names without prefix."""
        return cls(**{name: settings[name] for name in ("address", "worker_timeout") if name in settings})
