"""What a reference to a model means in ``predict``: a name or an identity, possibly qualified."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb

from grouplearn.catalog import naming
from grouplearn.catalog.checks.tables import SCHEMA
from grouplearn.catalog.combinations import Combination, combination_at
from grouplearn.catalog.lookup import search_path
from grouplearn.catalog.lookup.attached import Attachments, attachments_of
from grouplearn.catalog.lookup.callers import callers
from grouplearn.catalog.lookup.search_path import Place
from grouplearn.catalog.models import load_by_id, load_definition
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import databases_with_models, table
from grouplearn.errors import data_error
from grouplearn.sqltext import folded, literal

#: What only queries of our own name a model by.
_IDENTITY = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Identifies a model: its database, and its identity there, as a copied database has the same ones.
Key = tuple[str, str]
#: Its database, identity, schema and name.
Entry = tuple[str, str, str, str]


def is_identity(reference: str, catalog: str | None, model: str) -> bool:
    """Return whether a reference is the identity of a model, which may be qualified by its database."""
    *qualifiers, last = name_parts(reference)
    return last == model and [*map(folded, qualifiers)] in ([], [folded(catalog or "")])


def name_parts(reference: str) -> list[str]:
    """Return the parts of ``[catalog.][schema.]name``, each possibly double-quoted; there is always one."""
    found = re.findall(r'"((?:[^"]|"")*)"|([^.]+)', reference)
    return [(quoted.replace('""', '"') or plain) for quoted, plain in found] or [reference]


def meant_by(reference: str, here: Attachments) -> list[tuple[Place, str]]:
    """Return the places and names of the models that a reference may mean, in order; a name itself may have dots."""
    *qualifiers, name = name_parts(reference)
    places = [(place, name) for place in naming.places(qualifiers, here)]
    return [*places, *((place, reference) for place in naming.places((), here) if qualifiers)]


@dataclass(frozen=True, slots=True)
class Reference:
    """What a reference may mean where ``predict`` is called with it.

    ``here`` is what is attached, with the default database and schema of that place. ``models`` are the committed models of
    that name; ``by_place``: which one is meant depends on the place: the place of a view or macro if it is ``in_view``.
    """

    here: Attachments
    models: Sequence[Entry]
    by_place: bool = False
    in_view: bool = False

    @property
    def place(self) -> str:
        """The database and schema, to be shown."""
        return f"{self.here.database}.{self.here.schema}"


def where_called(
    con: duckdb.DuckDBPyConnection,
    reference: str,
    text: str | None = None,
    without: Collection[Key] = (),
    written: Sequence[Entry] = (),
) -> Reference:
    """Look up where ``predict`` is called with a reference, and the models of that name.

    A name in a view or macro is looked for where the view or macro is, and nowhere else unless the session looks there, too.
    ``text`` is the running query, if it is known. ``without`` are models that the transaction has changed, and ``written``
    are those as they are now. Raises DataError where the reference may mean several models and nothing tells which.
    """
    here, models = attachments_of(con), _alike(con, reference, without)
    every = [*models, *((entry[0] or here.database, *entry[1:]) for entry in written)]
    *qualifiers, last = name_parts(reference)
    has_database = len(qualifiers) > 1 or {folded(each.name) for each in here.users} & {*map(folded, qualifiers)}
    if not every or has_database or _IDENTITY.fullmatch(last):
        return Reference(here, models)
    if len(every) == 1 and among(every, meant_by(reference, here)) and not _has_other_schemas(con, here):
        return Reference(here, models)
    found: dict[Entry | None, Reference] = {}
    for place in sorted(callers(con, reference, text), key=lambda place: place or ()):
        seen = here if place is None else _seen_from(place, here)
        meant = among(every, meant_by(reference, seen))
        if place and not meant and place in map(_folded, search_path.current(here)):
            seen, meant = here, among(every, meant_by(reference, here))
        found.setdefault(meant[0] if meant else None, Reference(seen, models, by_place=True, in_view=seen is not here))
    if len(found) > 1 and (None not in found or found[None].in_view):
        raise _ambiguous(reference, found)
    return found[None] if None in found else next(iter(found.values()))


def _has_other_schemas(con: duckdb.DuckDBPyConnection, here: Attachments) -> bool:
    """Return whether there are schemas in which the session does not look, whose views and macros may call ``predict``."""
    made = con.execute(
        "SELECT database_name, schema_name FROM system.main.duckdb_schemas() WHERE NOT internal"
    ).fetchall()
    ours = (here.database, SCHEMA)
    every = {*map(_folded, (*made, *((each.name, "main") for each in here.users)))}
    return bool(every - {*map(_folded, (*search_path.current(here), ours))})


def _folded(place: Place) -> Place:
    return folded(place[0]), folded(place[1])


def _seen_from(place: Place, here: Attachments) -> Attachments:
    """Return what is attached as a view at a place sees it."""
    database = next((each.name for each in here.users if folded(each.name) == place[0]), here.database)
    return replace(here, database=database, schema=place[1], search_path="")


def _ambiguous(reference: str, found: Mapping[Entry | None, Reference]) -> Exception:
    models = sorted((entry for entry in found if entry), key=lambda entry: (found[entry].in_view, entry[0], *entry[2:]))
    names = [naming.with_database((entry[0], *entry[2:])) for entry in models]
    if (lost := found.get(None)) is not None:
        names.append(f"one that {lost.place} lacks")
    unclear = "a view or macro means the one of its own database, and predict cannot tell which of them calls it"
    remedy = f"Write the name with its database, in views, too: predict({literal(names[len(models) > 1])}, ...)."
    return data_error(f'model "{reference}" may be {" or ".join(names)}: {unclear}\n\nHint: {remedy}')


def find(
    con: duckdb.DuckDBPyConnection, reference: str, sought: Reference | None = None, catalog: str | None = None
) -> StoredModel:
    """Return the committed model that ``[database.][schema.]name`` or ``[database.]identity`` means.

    ``sought`` is from ``where_called``. It is looked for in the database ``catalog`` alone if that is given. Raises DataError
    when there is none.
    """
    sought = sought or where_called(con, reference)
    here, models = sought.here, [entry for entry in sought.models if catalog in (None, entry[0])]
    found = [entry for entry in models if is_identity(reference, entry[0], entry[1])]
    # A copied database has the same identities, maybe for other models: as for SQL, the default database comes first.
    found = [entry for entry in found if entry[0] == here.database] or found
    if len(found) > 1:
        places = ", ".join(sorted(naming.reference((entry[0], *entry[2:]), here) for entry in found))
        way_out = "USE one of them, or DETACH all but one; a macro takes database := 'other'."
        raise data_error(f'model "{found[0][3]}" is in several databases: {places}\n\nHint: {way_out}')
    found = found or among(models, meant_by(reference, here))
    if found and (model := load_by_id(con, *found[0][:2])) is not None:
        return model
    if _IDENTITY.fullmatch(name_parts(reference)[-1]):
        remedy = "Run it again, after COMMIT or ROLLBACK where BEGIN came before."
        raise data_error(
            f"the model was replaced or dropped after this query or its transaction began\n\nHint: {remedy}"
        )
    others = [(database, schema, name) for database, _, schema, name in _some(con) if catalog in (None, database)]
    for place, name in meant_by(reference, here):
        if catalog in (None, place[0]) and (several := combination_at(con, *place, name)) is not None:
            raise _of_several(con, reference, several)
    hint = naming.hint(reference, others, here)
    known = {naming.reference(model, here) for model in others if folded(model[2]) != folded(reference)}
    told = f"\n\nHint: {hint}" if hint else naming.listed(sorted(known))
    view = f" in {sought.place}, where the view or macro is that calls predict" if sought.in_view else ""
    raise data_error(f'model "{reference}" does not exist{view}{told}')


def _of_several(con: duckdb.DuckDBPyConnection, reference: str, several: Combination) -> Exception:
    first = several.members[0]
    model = load_definition(con, first.catalog, first.schema, first.name)
    suffixes = [each.suffix for each in model.definition.output.endpoints] if model is not None else []
    function, of = ("forecast", "group") if "_forecast" in suffixes else ("predict", "row")
    calls = " or ".join(f"{function}({literal(each.name)}, ...)" for each in several.members)
    remedy = f"Write FROM {several.location.name}_{function}(...), which chooses for each {of}, or {calls}."
    return data_error(f'model "{reference}" is of several learners, and {function} takes one\n\nHint: {remedy}')


def among(models: Sequence[Entry], meant: Sequence[tuple[Place, str]]) -> list[Entry]:
    """Return the models at the first of the places that has any."""
    return [entry for where in meant for entry in models if naming.is_at(*where, (entry[0], *entry[2:]))]


def _alike(con: duckdb.DuckDBPyConnection, reference: str, without: Collection[Key]) -> list[Entry]:
    """Return the committed models whose name or identity, or its last part, is the reference, except ``without``."""
    last = name_parts(reference)[-1]
    names = ", ".join(f"lower({literal(each)})" for each in dict.fromkeys((last, reference)))
    own = f"lower(model_name) IN ({names}) OR model::VARCHAR = {literal(last)}"
    return [each for each in _some(con, own) if each[:2] not in without]


def committed(con: duckdb.DuckDBPyConnection, meant: Sequence[tuple[Place, str]], without: Collection[Key]) -> bool:
    """Return whether a committed model other than ``without`` is meant."""
    names = ", ".join(f"lower({literal(name)})" for name in dict.fromkeys(name for _, name in meant))
    models = _some(con, f"lower(model_name) IN ({names})") if meant else []
    return bool(among([each for each in models if each[:2] not in without], meant))


def _some(con: duckdb.DuckDBPyConnection, own: str = "true") -> list[Entry]:
    """Return committed models of all databases, at most ``naming.MOST_READ`` of each."""
    parts = [
        f"(SELECT DISTINCT {literal(catalog)}, model::VARCHAR, schema_name, model_name FROM {table(catalog, 'models')}"
        f" WHERE {own} LIMIT {naming.MOST_READ})"
        for catalog in databases_with_models(con)
    ]
    return con.execute(" UNION ALL ".join(parts)).fetchall() if parts else []
