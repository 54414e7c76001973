"""What is outside the database (directories, a cluster, data frames) and which of it DuckDB's settings allow.

``enable_external_access``, ``allowed_directories``, ``allowed_paths`` and ``disabled_filesystems`` mean for our statements
what they mean for COPY. They are read on the user's connection when a statement begins; DuckDB itself checks each path.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import duckdb

from grouplearn import sqltext
from grouplearn.errors import AccessRefused, BindError
from grouplearn.messages import Span

#: Fully qualified, so that a macro in the database cannot replace them.
_SETTING, _GLOB = "system.main.current_setting", "system.main.glob"
#: A file name for asking about a directory: if this one is allowed, all are.
_ANY_FILE = "-"


def setting(connection: duckdb.DuckDBPyConnection, name: str) -> Any:
    """Return the value of one of DuckDB's settings."""
    return connection.execute(f"SELECT {_SETTING}({sqltext.string(name)})").fetchall()[0][0]


class ExternalAccess:
    """What a statement on ``connection`` may use outside the database."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    @cached_property
    def closed(self) -> str | None:
        """Why not everything is open, None if it is."""
        if self._may_read(os.path.join(os.sep, _ANY_FILE)):
            return None
        enabled = setting(self._connection, "enable_external_access")
        return "LocalFileSystem is among the disabled_filesystems" if enabled else "enable_external_access is false"

    def refusal(self, directory: str | os.PathLike[str]) -> str | None:
        """Return why files in a directory may not be used, None if they may."""
        if self.closed is None or self._may_read(os.path.join(os.path.abspath(directory), _ANY_FILE)):
            return None
        return self.closed

    def _may_read(self, file: str) -> bool:
        try:
            # Only described, not run: an error would abort the user's transaction.
            _ = self._connection.sql(f"FROM {_GLOB}({sqltext.string(file)})").columns
        except duckdb.PermissionException:
            return False
        return True

    def refuse(self, directory: str | os.PathLike[str], text: str, span: Span | None) -> None:
        """Raise AccessRefused where files in a directory may not be used."""
        reason = self.refusal(directory)
        if reason is not None:
            message = f'directory "{os.fspath(directory)}" may not be used: {reason}'
            hint = "SET allowed_directories = [...], before access is disabled, says what may be used all the same."
            raise AccessRefused(message, text=text, span=span, hint=hint)

    def refuse_all(self, what: str, text: str, span: Span | None) -> None:
        """Raise AccessRefused for something that is not a file, unless everything is allowed."""
        if self.closed is not None:
            message = f"{what} is outside of the database, and may not be used: {self.closed}"
            raise AccessRefused(message, text=text, span=span)

    def refuse_locked(self, text: str, span: Span, name: str) -> None:
        """Raise BindError where settings are locked, as DuckDB does for its own."""
        if setting(self._connection, "lock_configuration"):
            message = f'Cannot change configuration option "{name}" - the configuration has been locked'
            raise BindError(message, text=text, span=span)
