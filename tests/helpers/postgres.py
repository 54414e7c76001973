"""A Postgres server of one's own in a directory, for tests of exported SQL: where Debian's package postgresql is."""

from __future__ import annotations

import csv
import io
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Where distributions put the programs of the server, which are not on the path.
_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
_TYPES = {"DOUBLE": "double precision", "FLOAT": "real", "VARCHAR": "text", "TIMESTAMP_NS": "timestamp"}
NULL = "<null>"


def programs() -> Path | None:
    """Return the directory with ``initdb`` and ``pg_ctl``, None if there is none."""
    found = shutil.which("pg_ctl")
    places = [Path(found).parent] if found else []
    places += [place for pattern in _PLACES for place in sorted(Path("/").glob(pattern[1:]), reverse=True)]
    return next((place for place in places if (place / "initdb").exists() and (place / "psql").exists()), None)


class Postgres:
    """A running server without a port, and its one database."""

    def __init__(self, programs: Path, home: Path) -> None:
        self._programs, self._home = programs, home

    def run(self, sql: str) -> str:
        """Run a script and return what it prints; raises AssertionError with the server's words."""
        command = [
            self._programs / "psql",
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            self._home,
            "-U",
            "tests",
            "postgres",
        ]
        ran = subprocess.run(command, input=sql, capture_output=True, text=True, check=False, encoding="utf-8")
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def rows(self, query: str) -> list[dict[str, str | None]]:
        """Return the rows of a query as texts by column."""
        told = self.run(f"COPY ({query}) TO STDOUT (FORMAT csv, HEADER, NULL '{NULL}')")
        return [
            {name: None if text == NULL else text for name, text in row.items()}
            for row in csv.DictReader(io.StringIO(told))
        ]

    def load(self, con: Any, table: str) -> None:
        """Copy a table of DuckDB's, by its name."""
        described = con.execute(f"DESCRIBE {table}").fetchall()
        columns = ", ".join(f"{_quoted(name)} {_TYPES.get(kind, kind)}" for name, kind, *_ in described)
        file = self._home / f"{table}.csv"
        con.execute(f"COPY {table} TO '{file}' (FORMAT csv, HEADER, NULL '{NULL}')")
        self.run(f"DROP TABLE IF EXISTS {_quoted(table)} CASCADE; CREATE TABLE {_quoted(table)} ({columns});")
        self.run(f"\\copy {_quoted(table)} FROM '{file}' (FORMAT csv, HEADER, NULL '{NULL}')")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def served(home: Path) -> Iterator[Postgres]:
    """Serve a new database in a directory, which is removed at the end; as another user where we are root, who may not."""
    found = programs()
    assert found is not None
    user: dict[str, Any] = {}
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    data, options = home / "data", f"-k {home} -c listen_addresses='' -F"
    quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "cwd": "/", **user}
    subprocess.run([found / "initdb", "-D", data, "-A", "trust", "-E", "UTF8", "--locale=C", "-U", "tests"], **quiet)
    subprocess.run([found / "pg_ctl", "-D", data, "-o", options, "-l", home / "log", "-w", "start"], **quiet)
    try:
        yield Postgres(found, home)
    finally:
        subprocess.run([found / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"], **quiet)
