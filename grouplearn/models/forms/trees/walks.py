"""Prediction by trees as one SELECT: every row descends every tree of its group, with a join per level.

Nodes are numbered from 1, so that DuckDB finds one by its number alone; this was faster than recursion, nested CASE and
lambdas over lists, and rows are not kept in memory between levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grouplearn.kernels.trees import TO_GRID
from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.form import SqlForm
from grouplearn.models.forms.items import (
    encoded_cte,
    encoders_sql,
    groups_cte,
    inputs_sql,
    is_looked_up,
    listed,
    position_join,
)
from grouplearn.models.forms.routed import (
    BEST,
    ENCODED,
    GROUP,
    LEVEL,
    NUMBER,
    NUMBERED_ROW,
    PARAMETERS,
    ROUTED,
    SCORED,
    PredictedRows,
    linked,
    reachable,
    routed_cte,
    rows_cte,
    score_sql,
)

SLOTS, UNIT, ADDED = "__grouplearn_slots", "__grouplearn_unit", "__grouplearn_sums"
#: Binary digits of the greatest leaf in units, and bounds for a unit's exponent.
_DIGITS, _LEAST = 100, 1000


@dataclass(frozen=True, slots=True)
class TreeWalks(SqlForm):
    """Down trees of at most ``depth`` splits, at most ``width`` in a group."""

    depth: int = 0
    width: int = 0
    tables = ("groups", "trees", "nodes")
    is_slow = True

    def select(self, rows: PredictedRows) -> str:
        """Return the SELECT with a join per split: a row makes as many steps as the deepest leaf needs, and stays at its leaf."""
        values = f"(SELECT value FROM {rows.table('nodes')})"
        return summed_select(rows, [unit_cte(values), f"{ADDED} AS ({self._sums(rows)})"])

    def _sums(self, rows: PredictedRows) -> str:
        """Return the sums of each row's leaves, a column per output."""
        multiclass = rows.definition.label.scores_classes
        output = "t.classes[(k.place - 1) % len(t.classes) + 1]" if multiclass else "0"
        trees = (
            f"SELECT t.group_id, t.roots, g.classes FROM {rows.tables('trees')} AS t"
            f" JOIN {BEST} AS g ON g.group_id = t.group_id WHERE t.model = '{rows.model}'::UUID"
        )
        # From a product DuckDB knows the number of rows, and looks up nodes by rows, not rows by nodes. Places after a group's
        # last tree have no node.
        walk = (
            f"SELECT s.{NUMBER}, s.x, {output} AS output, t.roots[k.place] AS node FROM {SLOTS} AS s"
            f" JOIN ({trees}) AS t ON t.group_id = s.{GROUP} CROSS JOIN range(1, {self.width + 1}) AS k(place)"
        )
        nodes = f"(SELECT * FROM {rows.table('nodes')}) AS n ON n.node = w.node"
        for _ in range(self.depth):
            walk = f"SELECT w.{NUMBER}, w.x, w.output, {_NEXT} AS node FROM ({walk}) AS w JOIN {nodes}"
        units = f"SELECT node, CAST(value * many AS HUGEINT) AS units FROM {rows.tables('nodes')}, {UNIT}"
        leaves = f"({units} WHERE model = '{rows.model}'::UUID) AS n ON n.node = w.node"
        sums = sums_sql(rows.definition, "n.units", "w.output")
        return f"SELECT w.{NUMBER}, {sums} FROM ({walk}) AS w JOIN {leaves} GROUP BY w.{NUMBER}"


def summed_select(rows: PredictedRows, sums: Sequence[str]) -> str:
    """Return the SELECT that predicts with trees; ``sums`` are the CTEs from the rows' ``SLOTS`` to their sums, ``ADDED``."""
    definition = rows.definition
    ctes = [
        rows_cte(definition, rows.relation, NUMBERED_ROW, rows.extras, listed(definition)),
        groups_cte(rows),
        routed_cte(definition, BEST, reachable(rows), "MATERIALIZED "),
        _parameters_cte(definition),
        encoded_cte(definition, finite=False),
        _slots_cte(definition),
        *sums,
        _scored_cte(definition),
    ]
    return f"WITH {', '.join(ctes)} {linked(rows)}"


def _parameters_cte(definition: ModelDefinition) -> str:
    """Return the CTE of groups with the parameters of their encoders."""
    columns = ["group_id AS __grouplearn_id", f"{BEST}.level AS {LEVEL}", *encoders_sql(definition, finite=False)]
    return f"{PARAMETERS} AS (SELECT {', '.join(columns)} FROM {BEST})"


def _slots_cte(definition: ModelDefinition) -> str:
    """Return the CTE of rows, each with the list of values that nodes test."""
    values = inputs_sql(definition, range(len(definition.items)), finite=False)
    joins = " ".join(position_join(number) for number, entry in enumerate(definition.items) if is_looked_up(entry))
    return f"{SLOTS} AS (SELECT r.{NUMBER}, r.{GROUP}, {values} AS x FROM {ENCODED} AS r {joins})"


def unit_cte(values: str) -> str:
    """Return the CTE with the number of units in 1, for a query of leaves' values: they are summed as multiples of a power of
    2.

    Integers have the same sum in any order, which depends on threads: equal rows must have equal predictions. A unit is
    small enough that leaves within 2 ** 47 of the greatest lose nothing, and sums of 2 ** 26 trees fit.
    """
    power = f"least({_DIGITS} - ceil(log2(max(abs(value)) FILTER (value <> 0))), {_LEAST})"
    return f"{UNIT} AS (SELECT CAST(coalesce(2 ** {power}, 1) AS DOUBLE) AS many FROM {values})"


def sums_sql(definition: ModelDefinition, units: str, output: str) -> str:
    """Return the columns of a row's scores: per output the sum of its units."""
    outputs = range(len(definition.classes) if definition.label.scores_classes else 1)
    sum_of = f"sum({units}) FILTER ({output} = {{}}) / (SELECT many FROM {UNIT})"
    # Equal probabilities are equal here and in the kernels: see on_grid.
    sum_of = f"({sum_of} + {TO_GRID}::DOUBLE) - {TO_GRID}::DOUBLE" if definition.label.has_classes else sum_of
    return ", ".join(f"{sum_of.format(each)} AS s{each}" for each in outputs)


_NEXT = (
    "CASE WHEN n.value IS NOT NULL THEN n.node WHEN w.x[n.slot] BETWEEN n.low AND n.high THEN n.inside"
    " WHEN w.x[n.slot] IS NULL THEN n.missing ELSE n.outside END"
)


def _scored_cte(definition: ModelDefinition) -> str:
    """Return the CTE of rows with their scores."""
    outputs = range(definition.output.n_scores)
    offset = ["o.x[-1]"] if definition.offset else []
    scores = ", ".join(f"{score_sql([f's.s{each}', *offset], definition)} AS __grouplearn_s{each}" for each in outputs)
    offsets = f" LEFT JOIN {SLOTS} AS o ON o.{NUMBER} = r.{NUMBER}" if offset else ""
    return (
        f"{SCORED} AS (SELECT r.*, p.{LEVEL}, {scores} FROM {ROUTED} AS r"
        f" LEFT JOIN {PARAMETERS} AS p ON p.__grouplearn_id = r.{GROUP}"
        f" LEFT JOIN {ADDED} AS s ON s.{NUMBER} = r.{NUMBER}{offsets})"
    )
