"""Where unqualified names are looked up: DuckDB's setting ``search_path``, now and when a model was trained.

A stored path is untrusted data: it is compared with the current one, never set or used as SQL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grouplearn.catalog.lookup.attached import Attachments
from grouplearn.models.definition import SearchPath
from grouplearn.sqltext import folded, identifier, string

#: A database and a schema.
Place = tuple[str, str]
#: An entry of the search path, and a part of one; blanks belong to names.
_ENTRY = re.compile(r'(?:"(?:[^"]|"")*"|[^,"])+')
_PART = re.compile(r'"(?:[^"]|"")*"|[^."]+')
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Most entries of a path, and characters of each, in an error.
_SHOWN, _CHARACTERS = 5, 60


def _entries(attachments: Attachments) -> list[list[str]]:
    """Return the setting's entries: a database and a schema, or a schema of the default database."""
    return [names for names in map(_names_of, _ENTRY.findall(attachments.search_path)) if 0 < len(names) < 3]


def _names_of(entry: str) -> list[str]:
    """Return the names in an entry, in which a name with a dot, comma or quote is quoted."""
    return [part[1:-1].replace('""', '"') if part[:1] == '"' else part for part in _PART.findall(entry) if part]


def current(attachments: Attachments) -> tuple[Place, ...]:
    """Return the databases and schemas of the setting, or the default ones where it is empty."""
    own = attachments.database  # an entry of one name is a schema, even if a database has that name
    found = tuple((own, names[0]) if len(names) == 1 else (names[0], names[1]) for names in _entries(attachments))
    return found or ((attachments.database, attachments.schema),)


def stored(attachments: Attachments, own: str) -> SearchPath:
    """Return the path as stored: database ``own`` without its name, which is another wherever its file is attached."""
    same = folded(own)
    return tuple((None if folded(name) == same else name, schema) for name, schema in current(attachments))


def resolved(path: SearchPath, own: str) -> tuple[Place, ...]:
    """Return a stored path for a model that is in database ``own`` now."""
    return tuple((own if database is None else database, schema) for database, schema in path)


def searched(path: Sequence[Place]) -> tuple[Place, ...]:
    """Return, folded and in order, all places where DuckDB looks for an unqualified name."""
    own = path[0][0]
    every = (("temp", "main"), *path, (own, "main"), ("system", "main"), ("system", "pg_catalog"))
    return tuple((folded(database), folded(schema)) for database, schema in (*every, ("system", "information_schema")))


def here(attachments: Attachments) -> tuple[Place, ...]:
    """Return, folded and in order, all places where DuckDB looks for an unqualified name now."""
    return searched(current(attachments))


def shown(path: Sequence[Place]) -> str:
    """Return a path for an error message."""
    names = [cut(".".join(map(_name, place))) for place in path[:_SHOWN]]
    return ", ".join([*names, *(["..."] if len(path) > _SHOWN else [])])


def cut(text: str) -> str:
    """Return untrusted text, cut for an error message."""
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}..."


def advice(path: Sequence[Place], now: Attachments) -> str:
    """Return how to set the search path to this one; names from a file are quoted and few."""
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
