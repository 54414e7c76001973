"""Prediction by trees as one SELECT without walking: for each number of a row the set of leaves to which it may come.

A row's numbers are looked up among the bounds of their cases by bisection, a case has a set of leaves per tree, as bits, and
the leaf of a row is the one bit that all its numbers' sets have. Everything is looked up in lists that are the same for all
rows: DuckDB copies lists that it joins. This takes a fifth of the time of a walk, and does not grow with depth.
"""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.catalog.records import ModelDefinition
from grouplearn.catalog.sql_forms import SqlForm
from grouplearn.learners.trees.leaf_sets import LEAVES, PARTS
from grouplearn.prediction.forms.items import encoded_cte, groups_cte, listed
from grouplearn.prediction.forms.routed import (
    BEST,
    GROUP,
    NUMBER,
    NUMBERED_ROW,
    ROUTED,
    CatalogTables,
    Extra,
    linked,
    reachable,
    routed_cte,
    rows_cte,
)
from grouplearn.prediction.forms.trees import (
    ADDED,
    SLOTS,
    UNIT,
    parameters_cte,
    scored_cte,
    slots_cte,
    sums_sql,
    unit_cte,
)

_CASES, _STARTS, _BOUNDS, _WORDS, _LEAVES, _LISTS = (
    f"__grouplearn_{part}" for part in ("cases", "starts", "bounds", "words", "leaves", "lists")
)

#: All leaves of a part.
_ALL = (1 << LEAVES) - 1


def leaves_select(
    definition: ModelDefinition,
    model: str,
    relation: str,
    catalog_tables: CatalogTables,
    form: SqlForm,
    extras: Sequence[Extra] = (),
) -> str:
    """Return the SELECT that predicts with trees; columns as in ``linear_select``."""
    own = f"WHERE model = '{model}'::UUID"
    leaves = f"{catalog_tables('leaves')} {own}"
    ctes = [
        rows_cte(definition, relation, NUMBERED_ROW, extras, listed(definition)),
        groups_cte(model, catalog_tables),
        routed_cte(definition, BEST, reachable(definition, model, catalog_tables), "MATERIALIZED "),
        parameters_cte(definition),
        encoded_cte(definition, finite=False),
        slots_cte(definition),
        unit_cte(f"(SELECT unnest(addends) AS value FROM {leaves})"),
        *_case_ctes(f"{catalog_tables('cases')} {own}", form),
        *_leaf_ctes(leaves, several=definition.label.scores_classes),
        f"{ADDED} AS ({_sums(definition, form)})",
        scored_cte(definition),
    ]
    return f"WITH {', '.join(ctes)} {linked(definition, extras)}"


def _case_ctes(cases: str, form: SqlForm) -> list[str]:
    """Return the CTEs of the cases of groups that rows have: in one order, as lists, and where each number's cases begin.

    ``n`` counts the bounds of a number, ``b`` is the place of its first case, that of a missing number.
    """
    here = f"group_id IN (SELECT {GROUP} FROM {ROUTED})"
    order = "ORDER BY slot, group_id, bound NULLS FIRST"
    first = f"sum(len(sets)) OVER ({order} ROWS UNBOUNDED PRECEDING) - len(sets)"
    numbered = (
        f"SELECT group_id, slot, bound, sets, CAST(row_number() OVER ({order}) AS INTEGER) AS place,"
        f" CAST({first} AS INTEGER) AS first FROM {cases} AND {here}"
    )
    starts = ", ".join(
        f"min(place) FILTER (slot = {slot}) AS b{slot}, CAST(count(*) FILTER (slot = {slot}) - 2 AS INTEGER) AS n{slot}"
        for slot in form.slots
    )
    return [
        f"{_CASES} AS MATERIALIZED ({numbered})",
        f"{_STARTS} AS (SELECT group_id, {starts} FROM {_CASES} GROUP BY group_id)",
        f"{_BOUNDS} AS MATERIALIZED (SELECT list(bound ORDER BY place) AS bounds, list(first ORDER BY place) AS firsts"
        f" FROM {_CASES})",
        f"{_WORDS} AS MATERIALIZED (SELECT flatten(list(sets ORDER BY place)) AS words FROM {_CASES})",
    ]


def _leaf_ctes(leaves: str, *, several: bool) -> list[str]:
    """Return the CTEs of the leaves of groups that rows have: how many parts are before a group's, and the lists of all."""
    here = f"group_id IN (SELECT {GROUP} FROM {ROUTED})"
    parts = f"CAST(sum(words) OVER (ORDER BY group_id ROWS UNBOUNDED PRECEDING) - words AS INTEGER) * {PARTS} AS parts"
    outputs = "list_transform(l.outputs, lambda o: g.classes[o + 1])" if several else "[]::INTEGER[]"
    join = f" JOIN {BEST} AS g ON g.group_id = l.group_id" if several else ""
    units = "list_transform(l.addends, lambda v: CAST(v * many AS HUGEINT))"
    return [
        f"{_LEAVES} AS MATERIALIZED (SELECT l.group_id, l.words, l.parts, {units} AS units, {outputs} AS outputs"
        f" FROM (SELECT *, {parts} FROM {leaves} AND {here}) AS l{join} CROSS JOIN {UNIT})",
        f"{_LISTS} AS MATERIALIZED (SELECT flatten(list(units ORDER BY group_id)) AS units,"
        f" flatten(list(outputs ORDER BY group_id)) AS outputs FROM {_LEAVES})",
    ]


def _sums(definition: ModelDefinition, form: SqlForm) -> str:
    """Return the sums of each row's leaves, a column per output."""
    sets = " & ".join(f"w.words[r.f{slot} + k.k + 1]" for slot in form.slots)
    # A filter on places would become the condition of a join, which copies the list for each row.
    word = f"CASE WHEN k.k < r.words THEN {sets} ELSE 0 END"
    words = (
        f"SELECT r.{NUMBER}, r.parts + k.k * {PARTS} AS part, {word} AS word FROM ({_located(form)}) AS r"
        f" CROSS JOIN range({form.width}) AS k(k) CROSS JOIN {_WORDS} AS w"
    )
    found = _of_outputs(words) if definition.label.scores_classes else _of_one_output(words)
    return f"SELECT u.{NUMBER}, {sums_sql(definition, 'u.units', 'u.output')} FROM ({found}) AS u GROUP BY u.{NUMBER}"


def _of_one_output(words: str) -> str:
    """Return what the leaves of each word add: one row per word, as sorting rows out takes longer than adding them."""
    shifted = [f"(w.word >> {LEAVES * each}) & {_ALL}" for each in range(PARTS)]
    leaves = ", ".join(f"{leaf} AS leaf{each}" for each, leaf in enumerate(shifted))
    units = " + ".join(
        f"CASE WHEN p.leaf{each} > 0 THEN {_units(f'p.part + {each}', f'p.leaf{each}')} ELSE 0 END"
        for each in range(PARTS)
    )
    parts = f"SELECT w.{NUMBER}, w.part, {leaves} FROM ({words}) AS w"
    return f"SELECT p.{NUMBER}, {units} AS units, 0 AS output FROM ({parts}) AS p CROSS JOIN {_LISTS} AS l"


def _of_outputs(words: str) -> str:
    """Return what each leaf adds to which output."""
    parts = (
        f"SELECT w.{NUMBER}, w.part + h.h AS part, (w.word >> CAST({LEAVES} * h.h AS BIGINT)) & {_ALL} AS leaf"
        f" FROM ({words}) AS w CROSS JOIN range({PARTS}) AS h(h)"
    )
    return (
        f"SELECT p.{NUMBER}, {_units('p.part', 'p.leaf')} AS units, l.outputs[p.part + 1] AS output"
        f" FROM ({parts}) AS p CROSS JOIN {_LISTS} AS l WHERE p.leaf <> 0"
    )


def _units(part: str, leaf: str) -> str:
    """Return the units of the leaf that is the one bit of ``leaf``; a part to which the row does not come has none."""
    return f"l.units[({part}) * {LEAVES} + bit_count({leaf} - 1) + 1]"


def _located(form: SqlForm) -> str:
    """Return the rows with the place of the first word of each number's case, minus 1, and their group's words and parts."""
    slots = form.slots
    numbers = ", ".join(f"s.x[{slot}] AS x{slot}, t.b{slot}, t.n{slot}, 0 AS p{slot}" for slot in slots)
    rows = (
        f"SELECT s.{NUMBER}, l.words, l.parts, {numbers} FROM {SLOTS} AS s JOIN {_STARTS} AS t ON t.group_id = s.{GROUP}"
        f" JOIN (SELECT group_id, words, parts FROM {_LEAVES}) AS l ON l.group_id = s.{GROUP}"
    )
    # Each step joins the list anew: DuckDB would merge projections, which name the place of the step before several times.
    kept = f"r.{NUMBER}, r.words, r.parts"
    for power in reversed(range(max(form.depth - 2, 0).bit_length())):
        numbers = ", ".join(f"r.x{slot}, r.b{slot}, r.n{slot}, {_step(slot, 1 << power)}" for slot in slots)
        rows = f"SELECT {kept}, {numbers} FROM ({rows}) AS r CROSS JOIN {_BOUNDS} AS l"
    first = "l.firsts[CASE WHEN r.x{0} IS NULL THEN r.b{0} ELSE r.b{0} + 1 + r.p{0} END] AS f{0}"
    firsts = ", ".join(first.format(slot) for slot in slots)
    return f"SELECT {kept}, {firsts} FROM ({rows}) AS r CROSS JOIN {_BOUNDS} AS l"


def _step(slot: int, step: int) -> str:
    """Return a step of the bisection: p counts bounds below the number x."""
    below = f"r.p{slot} + {step} <= r.n{slot} AND l.bounds[r.b{slot} + r.p{slot} + {step}] < r.x{slot}"
    return f"CASE WHEN {below} THEN r.p{slot} + {step} ELSE r.p{slot} END AS p{slot}"
