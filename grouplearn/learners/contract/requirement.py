"""What a learner computes with that need not be installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package and the extra of ours that installs it; ``loads`` loads what is used of it, None: the package is imported."""

    package: str
    extra: str
    loads: Callable[[], object] | None = None

    @property
    def installed(self) -> bool:
        """Whether the package is there; it may still fail to load."""
        return importlib.util.find_spec(self.package) is not None

    @property
    def install_hint(self) -> str:
        """The command that installs it."""
        return f'pip install "{self.extra}"'

    def load(self) -> None:
        """Load it; raises ImportError, or OSError for a shared library that does not load."""
        if self.loads is None:
            importlib.import_module(self.package)
        else:
            self.loads()
