"""``grouplearn:///file.duckdb``: SQLAlchemy engines whose connections understand our statements.

::

    engine = sqlalchemy.create_engine("grouplearn:///sales.duckdb")   # grouplearn:///:memory: for one in memory
    with engine.begin() as con:
        con.exec_driver_sql("TRAIN MODEL demand USING linear_regression PREDICT units FROM sales GROUP BY region")
    pandas.read_sql("FROM demand WHERE is_best", engine)

The dialect is duckdb-engine's, but with our connections, and with DuckDB's catalog functions instead of a PostgreSQL
catalog, of which DuckDB has only parts. Rows are read as a statement runs, as by other drivers for PostgreSQL: DuckDB
forgets those that are unread at COMMIT or at the next statement. ``stream_results`` and ``yield_per`` leave them unread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from grouplearn.bind.sql.builtins import pristine_database
from grouplearn.errors import not_installed
from grouplearn.frontends.python.dbapi import wrap
from grouplearn.prediction.prediction import predictor_for

try:
    import duckdb_engine
    from duckdb_engine.datatypes import ISCHEMA_NAMES, Map, Struct
    from sqlalchemy import event, exc, text, types
    from sqlalchemy.dialects.postgresql import ARRAY
    from sqlalchemy.dialects.postgresql.base import ischema_names
    from sqlalchemy.engine.cursor import FullyBufferedCursorFetchStrategy
    from sqlalchemy.engine.default import DefaultDialect
except ImportError as error:
    raise not_installed("a grouplearn:// URL", "duckdb-engine", "sqlalchemy") from error

#: A name without schema is in the current schema, or temporary.
_HERE = """(lower(schema_name) = lower(coalesce(:schema, current_schema()))
 AND lower(database_name) = lower(coalesce(:database, current_database()))
 OR :schema IS NULL AND database_name = 'temp')"""
_NAMED = f"{_HERE} AND lower(table_name) = lower(:name)"


#: DuckDB's only level, under the name that SQLAlchemy has for it.
_SNAPSHOT = "SNAPSHOT"


class _Execution(duckdb_engine.Dialect.execution_ctx_cls):  # type: ignore[misc]
    """Reads all rows of a statement at once, unless they are wanted as a stream."""

    def post_exec(self) -> None:
        super().post_exec()
        description = self.cursor.description
        if description and not self.execution_options.get("stream_results"):
            self.cursor_fetch_strategy = FullyBufferedCursorFetchStrategy(self.cursor, description)


class Dialect(duckdb_engine.Dialect):  # type: ignore[misc]  # duckdb-engine has no types for SQLAlchemy 2.1
    """duckdb-engine's dialect over a :class:`grouplearn.Connection`; ``name`` stays ``duckdb``, as its SQL does."""

    driver = "grouplearn"
    supports_statement_cache = False
    execution_ctx_cls = _Execution

    def connect(self, *arguments: Any, **options: Any) -> Any:
        """Open a DuckDB connection as duckdb-engine does, with its options, and wrap it."""
        opened = super().connect(*arguments, **options)
        # The wrapper hides its connection, which a bound method gives access to.
        return duckdb_engine.ConnectionWrapper(wrap(opened.interrupt.__self__))

    def get_isolation_level_values(self, *_: Any) -> Sequence[str]:
        """Return what ``isolation_level`` can be."""
        return "AUTOCOMMIT", _SNAPSHOT

    def get_default_isolation_level(self, *_: Any) -> str:
        """Return the level of a new connection."""
        return _SNAPSHOT

    def get_isolation_level(self, dbapi_connection: Any) -> str:
        """Return the level of a connection."""
        return "AUTOCOMMIT" if dbapi_connection.autocommit else _SNAPSHOT

    def set_isolation_level(self, dbapi_connection: Any, level: str) -> None:
        """Let each statement commit itself, or none."""
        dbapi_connection.autocommit = level == "AUTOCOMMIT"

    def do_begin(self, connection: Any) -> None:
        """Begin a transaction, unless each statement is its own."""
        if not connection.autocommit:
            super().do_begin(connection)

    def do_commit(self, connection: Any) -> None:
        """Commit the transaction, unless each statement is its own."""
        if not connection.autocommit:
            super().do_commit(connection)

    def get_table_names(self, connection: Any, schema: str | None = None, **_: Any) -> list[str]:
        """Return the schema's tables; by default the current schema's, so not those of schema grouplearn."""
        return self._names(connection, "SELECT table_name FROM system.main.duckdb_tables()", schema)

    def get_view_names(self, connection: Any, schema: str | None = None, **_: Any) -> list[str]:
        """Return the schema's views, which include models."""
        return self._names(connection, "SELECT view_name FROM system.main.duckdb_views()", schema)

    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **_: Any
    ) -> list[dict[str, Any]]:
        """Return the columns of a table or view."""
        query = (
            "SELECT column_name, data_type, is_nullable, column_default, comment FROM system.main.duckdb_columns()"
            f" WHERE {_NAMED} ORDER BY column_index ASC"
        )
        rows = self._rows(connection, query, schema, table_name)
        if not rows:
            raise exc.NoSuchTableError(table_name)
        names = ("name", "type", "nullable", "default", "comment")
        columns = [dict(zip(names, row, strict=True)) for row in rows]
        return [{**column, "type": sql_type(column["type"]), "autoincrement": False} for column in columns]

    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **_: Any
    ) -> dict[str, Any]:
        """Return the primary key; no columns when there is none."""
        found = self._constraints(connection, "PRIMARY KEY", table_name, schema)
        name, columns = found[0][:2] if found else (None, [])
        return {"name": name, "constrained_columns": list(columns)}

    def get_unique_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **_: Any
    ) -> list[dict[str, Any]]:
        """Return the UNIQUE constraints."""
        found = self._constraints(connection, "UNIQUE", table_name, schema)
        return [{"name": row[0], "column_names": list(row[1])} for row in found]

    def get_check_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **_: Any
    ) -> list[dict[str, Any]]:
        """Return the CHECK constraints."""
        found = self._constraints(connection, "CHECK", table_name, schema)
        return [{"name": row[0], "sqltext": row[2]} for row in found]

    def get_foreign_keys(
        self, connection: Any, table_name: str, schema: str | None = None, **_: Any
    ) -> list[dict[str, Any]]:
        """Return the foreign keys; in DuckDB both tables are in one schema."""
        found = self._constraints(connection, "FOREIGN KEY", table_name, schema)
        return [
            {
                "name": row[0],
                "constrained_columns": list(row[1]),
                "referred_schema": schema,
                "referred_table": row[3],
                "referred_columns": list(row[4]),
                "options": {},
            }
            for row in found
        ]

    def get_table_comment(
        self, connection: Any, table_name: str, schema: str | None = None, **_: Any
    ) -> dict[str, Any]:
        """Return the comment of a table or view."""
        # The function for views calls the name differently.
        described = (
            "(SELECT database_name, schema_name, table_name, comment FROM system.main.duckdb_tables() UNION ALL"
            " SELECT database_name, schema_name, view_name, comment FROM system.main.duckdb_views())"
        )
        rows = self._rows(connection, f"SELECT comment FROM {described} WHERE {_NAMED}", schema, table_name)
        return {"text": rows[0][0] if rows else None}

    get_multi_columns = DefaultDialect.get_multi_columns
    get_multi_pk_constraint = DefaultDialect.get_multi_pk_constraint
    get_multi_unique_constraints = DefaultDialect.get_multi_unique_constraints
    get_multi_check_constraints = DefaultDialect.get_multi_check_constraints
    get_multi_foreign_keys = DefaultDialect.get_multi_foreign_keys
    get_multi_table_comment = DefaultDialect.get_multi_table_comment

    def get_multi_indexes(self, connection: Any, **options: Any) -> Any:
        """Return no indexes: they are internal to DuckDB."""
        return self._default_multi_reflect(self.get_indexes, connection, **options)

    def get_indexes(self, *_: Any, **__: Any) -> list[Any]:
        """Return none."""
        return []

    def get_multi_table_options(self, connection: Any, **options: Any) -> Any:
        """Return no options: DuckDB's tables have none."""
        return self._default_multi_reflect(self.get_table_options, connection, **options)

    def get_table_options(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return none."""
        return {}

    def get_temp_table_names(self, *_: Any, **__: Any) -> list[str]:
        """Return no tables besides those of :meth:`get_table_names`."""
        return []

    get_temp_view_names = get_materialized_view_names = get_temp_table_names

    def get_schema_names(self, connection: Any, **options: Any) -> list[str]:
        """Return the schemas of all databases, qualified."""
        _refuse_hidden(connection)
        return list(super().get_schema_names(connection, **options))

    def get_table_oid(self, connection: Any, table_name: str, schema: str | None = None, **options: Any) -> int:
        """Return the number of a table or view; raises NoSuchTableError."""
        _refuse_hidden(connection)
        return int(super().get_table_oid(connection, table_name, schema, **options))

    def _names(self, connection: Any, query: str, schema: str | None) -> list[str]:
        return [
            row[0] for row in self._rows(connection, f"{query} WHERE NOT internal AND {_HERE} ORDER BY 1 ASC", schema)
        ]

    def _constraints(self, connection: Any, kind: str, name: str, schema: str | None) -> Sequence[Any]:
        query = (
            "SELECT constraint_name, constraint_column_names, expression, referenced_table, referenced_column_names"
            f" FROM system.main.duckdb_constraints() WHERE constraint_type = '{kind}' AND {_NAMED} ORDER BY constraint_index ASC"
        )
        return self._rows(connection, query, schema, name)

    def _rows(self, connection: Any, query: str, schema: str | None, name: str | None = None) -> Sequence[Any]:
        _refuse_hidden(connection)
        database, schema = self.identifier_preparer._separate(schema)
        values = {"database": database, "schema": schema, **({} if name is None else {"name": name})}
        return list(connection.execute(text(query), values))


@event.listens_for(Dialect, "handle_error")  # type: ignore[untyped-decorator]
def _keep_connection(context: Any) -> None:
    """Keep a connection on which Ctrl-C was pressed: it is as good as before, and a database in memory would be lost with it."""
    if isinstance(context.original_exception, KeyboardInterrupt):
        context.is_disconnect = False


def _refuse_hidden(connection: Any) -> None:
    """Raise NotTrusted if a macro of a file would replace a function that describes its tables."""
    native = connection.connection.dbapi_connection.native
    predictor_for(native).guard.refuse_hidden(native)


def sql_type(name: str) -> types.TypeEngine[Any]:
    """Return SQLAlchemy's type for a DuckDB type name such as ``STRUCT(a DECIMAL(10,2)[], b ENUM('x'))``."""
    try:
        with pristine_database() as con:  # DuckDB's default connection would install the extension of a type
            return _type(duckdb.sqltype(name, connection=con))
    except duckdb.Error:  # a type of the user's or of an extension
        return _PLAIN.get(name.casefold(), types.NullType)()


def _type(kind: Any) -> types.TypeEngine[Any]:
    match kind.id:
        case "decimal":
            return types.Numeric(*(value for _, value in kind.children))
        case "enum":
            return types.Enum(*kind.children[0][1])
        case "list" | "array":
            inner = _type(kind.children[0][1])  # SQLAlchemy counts nesting as dimensions
            if isinstance(inner, ARRAY):
                return ARRAY(inner.item_type, dimensions=(inner.dimensions or 1) + 1)
            return ARRAY(inner)
        case "struct":
            return Struct({field: _type(child) for field, child in kind.children})
        case "map":
            return Map(*(_type(child) for _, child in kind.children))
        case "timestamp with time zone":
            return types.TIMESTAMP(timezone=True)
        case _:
            return _PLAIN.get(str(kind).casefold(), types.NullType)()


_PLAIN: dict[str, Any] = {
    **ischema_names,
    **ISCHEMA_NAMES,
    "double": types.Double,
    "blob": types.LargeBinary,
    "json": types.JSON,
    "uuid": types.Uuid,
}
