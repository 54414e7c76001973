"""Optional packages of learners."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package and our extra that installs it; ``loads`` loads what is used of it, None: it is imported."""

    package: str
    extra: str
    loads: Callable[[], object] | None = None

    @property
    def installed(self) -> bool:
        """Whether the package is found; it may still fail to load."""
        return importlib.util.find_spec(self.package) is not None

    @property
    def install_hint(self) -> str:
        """The command that installs it."""
        return f'pip install "{self.extra}"'

    def load(self) -> None:
        """Load it; raises ImportError, or OSError if its shared library does not load."""
        if self.loads is None:
            importlib.import_module(self.package)
        else:
            self.loads()
