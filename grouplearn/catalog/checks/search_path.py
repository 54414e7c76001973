"""Where unqualified names are looked for: DuckDB's setting ``search_path`` now, and as it was when a model was trained.

A stored path is data of whoever made the file. It is compared with where names are looked for now, and never set nor made SQL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grouplearn.bind.definition import SearchPath
from grouplearn.catalog.checks.attached import Attachments
from grouplearn.sqltext import folded, identifier, string

#: A database and a schema.
Place = tuple[str, str]
#: An entry of the search path, and a part of one; blanks are parts of names.
_ENTRY = re.compile(r'(?:"(?:[^"]|"")*"|[^,"])+')
_PART = re.compile(r'"(?:[^"]|"")*"|[^."]+')
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Entries of a path, and characters of each, that an error shows.
_SHOWN, _CHARACTERS = 5, 60


def _entries(attachments: Attachments) -> list[list[str]]:
    """Return the entries of the setting: a database and a schema, or a schema of the default database."""
    return [names for names in map(_names_of, _ENTRY.findall(attachments.search_path)) if 0 < len(names) < 3]


def _names_of(entry: str) -> list[str]:
    """Return the names of an entry of the search path, which has quotes where a name has a dot, a comma or a quote."""
    return [part[1:-1].replace('""', '"') if part[:1] == '"' else part for part in _PART.findall(entry) if part]


def current(attachments: Attachments) -> tuple[Place, ...]:
    """Return the databases and schemas of the setting, or the default ones where it is empty."""
    own = attachments.database  # an entry of one name is a schema, though there be a database of that name
    found = tuple((own, names[0]) if len(names) == 1 else (names[0], names[1]) for names in _entries(attachments))
    return found or ((attachments.database, attachments.schema),)


def stored(attachments: Attachments, own: str) -> SearchPath:
    """Return the path as a model of database ``own`` keeps it: that one has another name wherever its file is attached so."""
    same = folded(own)
    return tuple((None if folded(name) == same else name, schema) for name, schema in current(attachments))


def resolved(path: SearchPath, own: str) -> tuple[Place, ...]:
    """Return a stored path of a model that is in database ``own`` now."""
    return tuple((own if database is None else database, schema) for database, schema in path)


def searched(path: Sequence[Place]) -> tuple[Place, ...]:
    """Return, folded, all places in which DuckDB looks for an unqualified name, in order."""
    own = path[0][0]
    every = (("temp", "main"), *path, (own, "main"), ("system", "main"), ("system", "pg_catalog"))
    return tuple((folded(database), folded(schema)) for database, schema in (*every, ("system", "information_schema")))


def here(attachments: Attachments) -> tuple[Place, ...]:
    """Return, folded, all places in which DuckDB looks for an unqualified name now, in order."""
    return searched(current(attachments))


def shown(path: Sequence[Place]) -> str:
    """Return a path as an error shows it."""
    names = [cut(".".join(map(_name, place))) for place in path[:_SHOWN]]
    return ", ".join([*names, *(["..."] if len(path) > _SHOWN else [])])


def cut(text: str) -> str:
    """Return what an error shows of a text of a file."""
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}..."


def advice(path: Sequence[Place], now: Attachments) -> str:
    """Return what lets names be looked for in a path; those of a file are quoted, and few."""
    attached = {"temp", *(folded(each.name) for each in now.users)}
    missing = next((database for database, _ in path if folded(database) not in attached), None)
    if "..." in shown(path):
        return "SET search_path to what it was."
    first = "" if missing is None else f"ATTACH database {_name(missing)} under that name. "
    return f"{first}{_statement(path)} looks for them there again."


def _statement(path: Sequence[Place]) -> str:
    if len(path) > 1:
        return f"SET search_path = {string(','.join('.'.join(map(_name, place)) for place in path))}"
    ((database, schema),) = path
    return f"USE {_name(database)}" + ("" if schema == "main" else f".{_name(schema)}")


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else identifier(name)
