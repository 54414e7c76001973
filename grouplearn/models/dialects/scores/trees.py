"""Scores of trees: every row goes down every tree of its group, with a join for each question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from grouplearn.kernels.trees import TO_GRID
from grouplearn.models.dialects.databases import NotInDialect
from grouplearn.models.dialects.encoded_rows import GROUP, encode_rows, feature
from grouplearn.models.dialects.exported import ExportedModel
from grouplearn.models.dialects.scores.inputs import INPUTS, add_inputs, add_scored, features, kept, scores
from grouplearn.models.forms.form import Best
from grouplearn.models.forms.trees.trees import MOST_DEPTH, WalkedTrees, walked_trees
from grouplearn.sqltext import identifier

#: Most nodes.
MOST_NODES = 500_000


def tree_scores(model: ExportedModel) -> None:
    """Add the tables of trees and nodes, and the steps to rows with scores."""
    walked = walked_trees(model.definition, [Best(each.id, each.fitted, each.artifact) for each in model.groups])
    if walked.nodes.num_rows > MOST_NODES:
        raise NotInDialect(f"its trees have {walked.nodes.num_rows:,} nodes, and a script takes {MOST_NODES:,}")
    if walked.depth > MOST_DEPTH:
        raise NotInDialect(f"its trees ask {walked.depth} questions in a row, and a query takes {MOST_DEPTH}")
    encode_rows(model, finite=False, numbered=True)
    add_inputs(model)
    trees, nodes = _trees(model, walked), _nodes(model, walked)
    walk = (
        f"SELECT {kept(model, 'i')}{features(model, 'i')}, t.output, t.root AS node"
        f" FROM {INPUTS} AS i JOIN {trees} AS t ON t.group_id = i.{GROUP}"
    )
    for step in range(walked.depth):
        model.query.step(f"walk_{step}", walk)
        walk = (
            f"SELECT {kept(model, 'w')}{features(model, 'w')}, w.output, {_next(model)} AS node"
            f" FROM walk_{step} AS w JOIN {nodes} AS n ON n.node = w.node"
        )
    model.query.step("leaves", walk)
    sums = ", ".join(f"{_sum(model, place)} AS {identifier(name)}" for place, name in enumerate(scores(model)))
    model.query.step(
        "sums",
        f"SELECT {kept(model, 'w')}, {sums} FROM leaves AS w JOIN {nodes} AS n ON n.node = w.node"
        f" GROUP BY {kept(model, 'w')}",
    )
    add_scored(model, "sums", scores(model))


def _trees(model: ExportedModel, walked: WalkedTrees) -> str:
    classes = {group.id: group.classes if model.definition.label.scores_classes else (0,) for group in model.groups}
    rows = (
        (tree["group_id"], classes[tree["group_id"]][place % tree["outputs"]], root)
        for tree in walked.roots.to_pylist()
        for place, root in enumerate(tree["roots"])
        if root is not None
    )
    return model.table("trees", [("group_id", "BIGINT"), ("output", "BIGINT"), ("root", "BIGINT")], rows)


def _nodes(model: ExportedModel, walked: WalkedTrees) -> str:
    names = {
        "item": "slot",
        "low": "low",
        "high": "high",
        "inside": "inside",
        "outside": "outside",
        "missing": "missing",
    }
    kinds = {"low": "DOUBLE", "high": "DOUBLE", "value": "DOUBLE"}
    columns = {"node": "node", **names, "value": "value"}

    def rows() -> Iterator[Sequence[Any]]:
        yield from zip(*(walked.nodes.column(name).to_pylist() for name in columns.values()), strict=True)

    return model.table("nodes", [(name, kinds.get(name, "BIGINT")) for name in columns], rows())


def _next(model: ExportedModel) -> str:
    """Return the SQL of the node to which a row goes on from a node; it stays at a leaf."""
    cases = " ".join(f"WHEN {at + 1} THEN w.{feature(at)}" for at in range(len(model.definition.items)))
    value = f"CASE n.item {cases} END"
    return (
        f"CASE WHEN n.value IS NOT NULL THEN n.node WHEN {value} BETWEEN n.low AND n.high THEN n.inside"
        f" WHEN {value} IS NULL THEN n.missing ELSE n.outside END"
    )


def _sum(model: ExportedModel, output: int) -> str:
    """Return the sum of an output's leaves; equal probabilities are equal here and in the kernels: see ``on_grid``."""
    total = f"SUM(CASE WHEN w.output = {output} THEN n.value END)"
    total = f"({total} + {TO_GRID}) - {TO_GRID}" if model.definition.label.has_classes else total
    return f"{total} + MAX(w.{feature(len(model.definition.items) - 1)})" if model.definition.offset else total
