"""Prediction by trees as one SELECT without walking: for each number of a row the set of leaves to which it may come.

A row's numbers are looked up among the bounds of their cases by bisection, a case has a set of leaves per tree, as bits, and
the leaf of a row is the one bit that all its numbers' sets have. Everything is looked up in lists that are the same for all
rows: DuckDB copies lists that it joins. DuckDB takes 2,048 rows with one word of their sets at a time, and a word of all cases
lies together. This takes a tenth of the time of a walk, and does not grow with depth.
"""

from __future__ import annotations

from dataclasses import dataclass

from grouplearn.learners.trees.leaf_sets import LEAVES, PARTS
from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.form import SqlForm
from grouplearn.models.forms.routed import BEST, GROUP, NUMBER, ROUTED, PredictedRows
from grouplearn.models.forms.trees.walks import ADDED, SLOTS, UNIT, summed_select, sums_sql, unit_cte

_GROUPS, _BOUNDS, _SETS, _UNITS = (f"__grouplearn_{part}" for part in ("leaves", "bounds", "sets", "units"))

#: All leaves of a part, and of two.
_ALL, _BOTH = (1 << LEAVES) - 1, (1 << 2 * LEAVES) - 1


@dataclass(frozen=True, slots=True)
class LeafSets(SqlForm):
    """By sets of leaves: at most ``depth`` cases of each of ``slots``, and ``width`` words."""

    depth: int
    width: int
    slots: tuple[int, ...]
    tables = ("groups", "leaves")
    is_slow = True

    def select(self, rows: PredictedRows) -> str:
        """Return the SELECT that looks leaves up."""
        leaves = rows.table("leaves")
        sums = [
            unit_cte(f"(SELECT unnest(addends) AS value FROM {leaves})"),
            *_list_ctes(leaves, self, several=rows.definition.label.scores_classes),
            f"{ADDED} AS ({_sums(rows.definition, self)})",
        ]
        return summed_select(rows, sums)


def _list_ctes(leaves: str, form: LeafSets, *, several: bool) -> list[str]:
    """Return the CTEs of the groups that rows have: the lists of all, and where each group's and number's begin.

    ``n`` counts the bounds of a number, ``b`` is the place of its first case, that of a missing number. The word ``k`` of the
    case at place p is at place p + ``shift`` + k * ``cases``.
    """
    here = f"{leaves} AND group_id IN (SELECT {GROUP} FROM {ROUTED})"

    def before(name: str) -> str:
        return f"(sum(len({name})) OVER before - len({name}))::BIGINT"

    starts = ", ".join(
        f"bounds + starts[{place}] + 1 AS b{slot}, (starts[{place + 1}] - starts[{place}] - 2)::BIGINT AS n{slot}"
        for place, slot in enumerate(form.slots, start=1)
    )
    lengths = ", ".join(f"{before(name)} AS {name}" for name in ("bounds", "sets", "outputs"))
    counted = (
        f"SELECT group_id, starts, len(bounds) AS cases, len(outputs) AS words, {lengths} FROM {here}"
        " WINDOW before AS (ORDER BY group_id ROWS UNBOUNDED PRECEDING)"
    )
    outputs = "list_transform(l.outputs, lambda o: g.classes[o + 1])" if several else "[]::INTEGER[]"
    join = f" JOIN {BEST} AS g ON g.group_id = l.group_id" if several else ""
    units = "list_transform(l.addends, lambda v: CAST(v * many AS HUGEINT))"
    added = f"SELECT l.group_id, {units} AS units, {outputs} AS outputs FROM (FROM {here}) AS l{join} CROSS JOIN {UNIT}"

    def joined(name: str) -> str:
        return f"flatten(list({name} ORDER BY group_id)) AS {name}"

    return [
        f"{_GROUPS} AS MATERIALIZED (SELECT group_id, words, cases, sets - bounds AS shift, outputs AS word, {starts}"
        f" FROM ({counted}))",
        f"{_BOUNDS} AS MATERIALIZED (SELECT {joined('bounds')} FROM {here})",
        f"{_SETS} AS MATERIALIZED (SELECT {joined('sets')} FROM {here})",
        f"{_UNITS} AS MATERIALIZED (SELECT {joined('units')}, {joined('outputs')} FROM ({added}))",
    ]


def _sums(definition: ModelDefinition, form: LeafSets) -> str:
    """Return the sums of each row's leaves, a column per output.

    What a word adds is one row: sorting rows out takes longer than adding them.
    """
    places = ", ".join(f"r.c{slot}" for slot in form.slots)
    lists = "units, outputs" if definition.label.scores_classes else "units"
    # DuckDB reads the right side of a product anew for each 2,048 rows of the left: the lists are joined before the words.
    joined = f"SELECT r.*, s.sets, u.* FROM ({_located(form)}) AS r CROSS JOIN {_SETS} AS s CROSS JOIN {_UNITS} AS u"
    words = (
        f"SELECT r.{NUMBER}, {places}, r.sets, {lists}, r.word + k.k AS word, r.shift + k.k * r.cases AS shift,"
        f" k.k < r.words AS is_own FROM ({joined}) AS r CROSS JOIN range({form.width}) AS k(k)"
    )
    # A filter on words would become the condition of a join, which copies the list for each row.
    sets = " & ".join(f"r.sets[r.c{slot} + r.shift]" for slot in form.slots)
    kept = f"{NUMBER}, word, {lists}"
    found = f"SELECT {kept}, CASE WHEN r.is_own THEN {sets} END AS found FROM ({words}) AS r"
    halves = f"CAST(found & {_BOTH} AS BIGINT) AS low, CAST(found >> {2 * LEAVES} AS BIGINT) AS high"
    leaves = ", ".join(
        f"{half} & {_ALL} AS leaf{number}, {half} >> {LEAVES} AS leaf{number + 1}"
        for number, half in ((0, "low"), (2, "high"))
    )
    parts = f"SELECT {kept}, {leaves} FROM (SELECT {kept}, {halves} FROM ({found}))"
    output = "p.outputs[p.word + 1]" if definition.label.scores_classes else "0"
    units = " + ".join(map(_units, range(PARTS)))
    added = f"SELECT p.{NUMBER}, {units} AS units, {output} AS output FROM ({parts}) AS p"
    return f"SELECT u.{NUMBER}, {sums_sql(definition, 'u.units', 'u.output')} FROM ({added}) AS u GROUP BY u.{NUMBER}"


def _units(part: int) -> str:
    """Return the units of the leaf that is the one bit of a part; without a bit, the last of the part, which are 0."""
    leaf = f"bit_count((p.leaf{part} - 1) & {_ALL})"
    return f"p.units[p.word * {PARTS * (LEAVES + 1)} + {part * (LEAVES + 1) + 1} + {leaf}]"


def _located(form: LeafSets) -> str:
    """Return the rows with the place of each number's case, ``c``, and their group's words."""
    slots = form.slots
    kept = f"r.{NUMBER}, r.words, r.cases, r.shift, r.word"
    numbers = ", ".join(f"r.x[{slot}] AS x{slot}, b{slot}, n{slot}, 0::BIGINT AS p{slot}" for slot in slots)
    rows = f"SELECT {kept}, {numbers} FROM (FROM {SLOTS} AS s JOIN {_GROUPS} AS t ON t.group_id = s.{GROUP}) AS r"
    # Each step joins the list anew: DuckDB would merge projections, which name the place of the step before several times.
    for power in reversed(range(max(form.depth - 2, 0).bit_length())):
        numbers = ", ".join(f"r.x{slot}, r.b{slot}, r.n{slot}, {_step(slot, 1 << power)}" for slot in slots)
        rows = f"SELECT {kept}, {numbers} FROM ({rows}) AS r CROSS JOIN {_BOUNDS} AS l"
    case = "CASE WHEN r.x{0} IS NULL THEN r.b{0} ELSE r.b{0} + 1 + r.p{0} END AS c{0}"
    return f"SELECT {kept}, {', '.join(map(case.format, slots))} FROM ({rows}) AS r"


def _step(slot: int, step: int) -> str:
    """Return a step of the bisection: p counts bounds below the number x."""
    below = f"r.p{slot} + {step} <= r.n{slot} AND l.bounds[r.b{slot} + r.p{slot} + {step}] < r.x{slot}"
    return f"CASE WHEN {below} THEN r.p{slot} + {step} ELSE r.p{slot} END AS p{slot}"
