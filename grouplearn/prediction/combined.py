"""The view and the macros of several learners: for each group those of the learner that is best on the rows held out.

The first of equally good learners is taken; learners of which no rows were held out come last, and among them the errors on
the rows that they learned from choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from grouplearn.catalog import views
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import table
from grouplearn.catalog.views import JUDGED, KEYS, LEVEL
from grouplearn.models.definition import ROW, ModelDefinition
from grouplearn.models.forms.routed import GROUP, ROUTED, SHOWN, CatalogTables, routed_cte, rows_cte
from grouplearn.models.outputs.output import EXPLAIN, Endpoint
from grouplearn.prediction.macro import Rows, database_prefix, endpoint_query, parameters_of
from grouplearn.sqltext import identifier, literal

_CHOSEN, _PART = "__grouplearn_chosen", "__grouplearn_part{}"
#: The place of a learner among the others, and its name.
PLACE, LEARNER = "__grouplearn_place", "__grouplearn_learner"
#: The order of the learners of a group.
ORDER = f"{JUDGED} ASC NULLS LAST, {PLACE} ASC"
#: The place of a row in its source. Members leave out our other columns, whose names begin with two underscores.
_NUMBER = "grouplearn_row_number"


def columns_beside_keys(definition: ModelDefinition, *own: str) -> list[str]:
    """Return the names, in SQL, of the group columns, and of columns of ``own``, each numbered if a group column has its name."""
    keys = views.distinct(key.name for key in definition.keys)
    return [identifier(name) for name in (*keys, *(views.distinct([*keys, each])[-1] for each in own))]


def view_sql(members: Sequence[StoredModel]) -> tuple[str, str]:
    """Return the query of the model table of several learners, and its comment."""
    first = members[0].definition
    parts = []
    for place, member in enumerate(members):
        query, comment = views.view_sql(member.definition, member.id, None, "", views.compared(member.definition))
        learner = literal(member.definition.shown_learner)
        parts.append(f"SELECT {place} AS {PLACE}, {learner} AS {LEARNER}, * FROM ({query})")
    *keys, learner, best = columns_beside_keys(first, "learner", "is_best")
    ranked = f"row_number() OVER (PARTITION BY {LEVEL}, {KEYS}, {best} ORDER BY {ORDER}) = 1"
    hidden = ", ".join([PLACE, LEARNER, LEVEL, KEYS, JUDGED, *keys])
    columns = [*keys, f"{LEARNER} AS {learner}"]
    columns.append(f"* EXCLUDE ({hidden}) REPLACE ({best} AND {ranked} AS {best})")
    told = " Where is_best, the learner is the best of its group."
    return f"SELECT {', '.join(columns)} FROM ({' UNION ALL BY NAME '.join(parts)})", comment + told


def macro_sql(members: Sequence[StoredModel], name: str, endpoint: Endpoint, database: str | None) -> tuple[str, str]:
    """Return the statement that creates a macro of several learners, as ``macro.macro_sql`` does of one model."""
    every = replace(members[0].definition, items=tuple(item for each in members for item in each.definition.items))
    parameters, relation = parameters_of(every, endpoint)
    others = [parameter for each in members for parameter in parameters_of(each.definition, endpoint)[0][1:]]
    place = every.free_parameter("database")
    databases = [f"{each.definition.free_parameter('database')} := NULL" for each in members]
    parameters = list(dict.fromkeys([*parameters, *others, f"{place} := NULL", *databases]))
    head = f"CREATE MACRO {name}({', '.join(parameters)}) AS TABLE "
    prefix = database_prefix(every, database)
    chosen = _chosen(members, lambda table: f"query_table({prefix} || {literal(f'grouplearn.{table}')})")
    queries = [
        endpoint_query(
            member,
            endpoint,
            database,
            Rows(_PART.format(number)) if endpoint.predicts else Rows("", _groups_of(number)),
        )
        for number, member in enumerate(members)
    ]
    if not endpoint.predicts:
        return head, f"WITH {chosen} {' UNION ALL '.join(f'FROM ({query})' for query in queries)}"
    keyed = _keyed(every)
    ctes = [
        chosen,
        rows_cte(keyed, relation, f"{ROW}.*, row_number() OVER () AS {_NUMBER}"),
        routed_cte(keyed, _CHOSEN, otherwise="0", kind="MATERIALIZED "),
        *(
            f"{_PART.format(number)} AS (SELECT {SHOWN} FROM {ROUTED} WHERE {GROUP} = {number})"
            for number, _ in enumerate(members)
        ),
    ]
    predicted = " UNION ALL ".join(f"FROM ({query})" for query in queries)
    if endpoint == EXPLAIN:
        numbered = f"SELECT * EXCLUDE ({_NUMBER}) REPLACE ({_NUMBER} AS row_number) FROM ({predicted})"
        return head, f"WITH {', '.join(ctes)} {numbered} ORDER BY row_number ASC, abs(contribution) DESC"
    if endpoint.judges:
        return head, f"WITH {', '.join(ctes)} {predicted}"
    return head, f"WITH {', '.join(ctes)} SELECT * EXCLUDE ({_NUMBER}) FROM ({predicted}) ORDER BY {_NUMBER} ASC"


def rows_of_learners(members: Sequence[StoredModel], rows: str) -> list[str]:
    """Return the query of the ``rows`` (a query in parentheses) that each learner predicts; the first has those of no group."""
    keyed, chosen = _keyed(members[0].definition), _chosen(members, partial(table, members[0].location.catalog))
    routed = f"WITH {chosen}, {rows_cte(keyed, rows, f'{ROW}.*')}, {routed_cte(keyed, _CHOSEN, otherwise='0')}"
    return [f"{routed} SELECT {SHOWN} FROM {ROUTED} WHERE {GROUP} = {number}" for number, _ in enumerate(members)]


def _keyed(definition: ModelDefinition) -> ModelDefinition:
    """Return a definition that routes rows to groups, and computes no features."""
    missing: Literal["parent", "null"] = "parent" if definition.missing_group == "parent" else "null"
    return replace(definition, items=(), missing_group=missing)


def _chosen(members: Sequence[StoredModel], tables: CatalogTables) -> str:
    """Return the CTE of the groups that have a model: their level and keys, and as ``group_id`` the number of their learner."""
    parts = []
    for number, member in enumerate(members):
        same = "t.model = g.model AND t.group_id = g.group_id AND t.config = g.best"
        parts.append(
            f"SELECT {number} AS {PLACE}, g.level, g.keys, {member.definition.judged_sql('t')} AS {JUDGED}"
            f" FROM {tables('groups')} AS g"
            f" JOIN {tables('trials')} AS t ON {same} WHERE g.model = '{member.id}'::UUID AND t.model = '{member.id}'::UUID"
        )
    # Names are qualified, as DuckDB puts a macro's parameter ``level`` in place of a column of that name.
    ranked = f"row_number() OVER (PARTITION BY p.level, p.keys ORDER BY {ORDER}) = 1"
    every = " UNION ALL ".join(parts)
    return f"{_CHOSEN} AS (SELECT p.{PLACE} AS group_id, p.level, p.keys FROM ({every}) AS p QUALIFY {ranked})"


def _groups_of(number: int) -> str:
    """Return the format of the table of groups without those for which another learner is chosen."""
    same = "c.level = g.level AND c.keys IS NOT DISTINCT FROM g.keys"
    return f"(SELECT g.* FROM {{}} AS g SEMI JOIN {_CHOSEN} AS c ON c.group_id = {number} AND {same})"
