"""Failures of layers that know no database: learners, data, kernels, schedules and runtimes.

``grouplearn.errors`` has DB-API errors for them, as which sessions raise them (``errors.as_database_errors``).
"""

from __future__ import annotations

from grouplearn.messages import render


class WrongValue(ValueError):
    """A value that is not allowed in its place; the hint names one that may be meant."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Failure(Exception):
    """Something that ends a statement: what is wrong, and what may help."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(render(message, None, None, hint))
        self.message, self.hint = message, hint


class TrainingFailed(Failure):
    """The run as a whole failed; a failing group alone never raises."""


class StatementInterrupted(Failure):
    """The user interrupted the statement; the database is unchanged."""


class NotInstalled(Failure):
    """An optional package is not installed; the hint holds the exact install command."""


class NotMeasured(Failure):
    """A learner's cost cannot be measured, or measurements cannot be used."""


class WrongData(Failure):
    """Given or stored data cannot be used."""


def not_installed(what: str, packages: str, extra: str) -> NotInstalled:
    """Return the failure that ``what`` needs packages that are not installed, with our extra that installs them."""
    return NotInstalled(f"{what} needs {packages}, which is not installed", hint=f'pip install "grouplearn[{extra}]"')
