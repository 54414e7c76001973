"""A model on its way to another database: its groups, its tables there, and a query in steps, each a SELECT over those before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from grouplearn.models.definition import ModelDefinition
from grouplearn.models.dialects.databases import Database, NotInDialect, sqlglot
from grouplearn.models.dialects.plain_tables import PlainTable, quoted
from grouplearn.models.forms.form import GroupModel
from grouplearn.sqltext import identifier

#: Most columns of a table.
MOST_COLUMNS = 1_000
#: The source in a step.
SOURCE = "__grouplearn_source"
_CARRIED = "__grouplearn_carried"


class Query:
    """Steps in the SQL that all databases share, in which expressions of the model are names until the query is written."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._steps: list[str] = []
        self._expressions: dict[str, Any] = {}
        #: The columns that steps add to those of the source.
        self._added: list[str] = []

    def expression(self, tree: Any) -> str:
        """Return the name that stands for an expression."""
        name = f"__grouplearn_expression{len(self._expressions)}"
        self._expressions[name] = tree
        return name  # without quotes, which differ in the SQL of ``own``

    def shared(self, sql: str) -> str:
        """Return the name that stands for an expression in the SQL that all databases share."""
        return self.expression(sqlglot().parse_one(sql))

    def own(self, sql: str) -> str:
        """Return the name that stands for an expression in the database's own SQL, which may have such names."""
        return self.expression(sqlglot().parse_one(sql, read=self.database.name))

    def step(self, name: str, select: str, kind: str = "") -> None:
        """Add a step."""
        self._steps.append(f"{identifier(name)} AS {kind}({select})")

    def added(self, name: str, sql: str) -> str:
        """Return a column that a step adds to rows."""
        self._added.append(name)
        return f"{sql} AS {identifier(name)}"

    def row(self, alias: str) -> str:
        """Return the columns of a row of the source in the first step."""
        if self.database.row == "except":
            return f"{identifier(alias)}.*"
        whole = identifier(alias) if self.database.row == "composite" else f"STRUCT({identifier(alias)}.*)"
        return self.added(_CARRIED, whole)

    def shown(self) -> str:
        """Return the columns of the source in the last SELECT, whose only relation has all added columns."""
        if self.database.row == "except":
            return f"* EXCEPT ({', '.join(map(identifier, self._added))})"
        carried = identifier(_CARRIED)
        return f"({carried}).*" if self.database.row == "composite" else f"{carried}.*"

    def written(self, select: str, source: str) -> str:
        """Return the whole query; ``source`` is the SQL of the source."""
        glot = sqlglot()
        tree = glot.parse_one(f"WITH {', '.join(self._steps)} {select}")
        tree = tree.transform(self._filled, copy=False)
        text = str(tree.sql(dialect=self.database.name, pretty=True, comments=False, identify=True))
        return text.replace(quoted(SOURCE, self.database), source) + self.database.settings

    def _filled(self, node: Any) -> Any:
        exp = sqlglot().exp
        if isinstance(node, exp.Column) and node.name in self._expressions:
            return self._expressions[node.name].copy().transform(self._filled)
        return node


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """A model, the best models of its groups, and what is written of them."""

    definition: ModelDefinition
    groups: Sequence[GroupModel]
    query: Query
    tables: list[PlainTable] = field(default_factory=list)

    @property
    def database(self) -> Database:
        """The database that will predict with it."""
        return self.query.database

    def name(self, suffix: str) -> str:
        """Return the name of one of its tables or views."""
        name = f"{self.definition.name}_{suffix}"
        if len(name.encode()) > self.database.longest:
            raise NotInDialect(
                f"{self.database.title} takes names of at most {self.database.longest} bytes, and {name} has more",
                "Rename the model by ALTER MODEL ... RENAME TO, and export it again.",
            )
        return name

    def table(self, suffix: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[Any]]) -> str:
        """Add a table, and return its name in quotes."""
        if len(columns) > MOST_COLUMNS:
            raise NotInDialect(
                f"a table of the model would have {len(columns):,} columns, and {MOST_COLUMNS:,} are the most"
            )
        self.tables.append(PlainTable(self.name(suffix), columns, rows))
        return identifier(self.name(suffix))
