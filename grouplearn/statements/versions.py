"""The statements about versions of a model: ALTER MODEL ... USE VERSION and DROP VERSION."""

from __future__ import annotations

from collections.abc import Callable

from grouplearn.bind.alter import bind_version
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog.combinations import combination_of
from grouplearn.catalog.identities import Identity
from grouplearn.catalog.versions import Version, versions_of
from grouplearn.errors import ModelExists
from grouplearn.parser.statements import DropVersion, QualifiedName, UseVersion
from grouplearn.statements import result_sql
from grouplearn.statements.context import StatementContext
from grouplearn.store import versions


def use_version(statement: UseVersion, checker: SqlChecker, at: StatementContext) -> str:
    """Make an earlier version of a model the current one: its views, its macros, its predictions."""
    shown, name = at.databases.in_transaction(), statement.name.name

    def use_it(model: Identity, version: Version) -> str:
        if version.id == model.id:
            return f"model {name} is its version {version.number} already"
        try:
            versions.use(at.connection, model, version, shown=shown)
        except ModelExists as error:
            hint = f"Version {version.number} needs the name: rename or drop the other."
            raise ModelExists(error.message, text=checker.text, span=statement.name.span, hint=hint) from None
        return f"model {name} is now its version {version.number}"

    return result_sql.notice(_changed(statement, use_it, checker, at))


def drop_version(statement: DropVersion, checker: SqlChecker, at: StatementContext) -> str:
    """Delete an earlier version of a model; its row of the history stays."""
    name, written = statement.name.name, checker.text[statement.name.span.start : statement.name.span.end]

    def drop_it(model: Identity, version: Version) -> str:
        if version.id == model.id:
            message = f'version {version.number} of model "{name}" is the current one'
            hint = f"ALTER MODEL {written} USE VERSION comes first; DROP MODEL {written} drops all versions."
            raise checker.error(message, statement.version.span, hint)
        versions.delete(at.connection, model.location.catalog, version.id)
        return f"version {version.number} of model {name} is dropped"

    return result_sql.notice(_changed(statement, drop_it, checker, at))


def _changed(
    statement: UseVersion | DropVersion,
    change: Callable[[Identity, Version], str],
    checker: SqlChecker,
    at: StatementContext,
) -> str:
    """Return what a change of a version of a model says, after it was made; raise if there is no such version."""
    name, databases = statement.name, at.databases
    _refuse_several(name, checker, at)
    catalog = databases.identity(name, checker).location.catalog
    databases.refuse_change(catalog, name.span, checker)

    def change_it() -> str:
        model = databases.identity(name, checker)  # another connection may have made a version
        by_number = {each.number: each for each in versions_of(at.connection, model)}
        listed = ", ".join(
            f"{number} (current)" if each.id == model.id else f"{number}" for number, each in by_number.items()
        )
        return change(model, by_number[bind_version(checker, statement.version, name.name, by_number, listed)])

    return databases.write(catalog, change_it, name.span, checker)


def _refuse_several(name: QualifiedName, checker: SqlChecker, at: StatementContext) -> None:
    """Raise for a model of several learners, and for a part of one: they have no earlier versions."""
    several = at.databases.combination(name)
    if several is None:
        several = combination_of(at.connection, at.databases.identity(name, checker).location)
    if several is not None:
        message = f'model "{several.location.name}" is of several learners, and has no earlier versions'
        raise checker.error(message, name.span, f"TRAIN OR REPLACE MODEL {several.location.name} trains it anew.")
