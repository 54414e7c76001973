"""Trees: LightGBM's text, which SQL reads as sets of leaves or as nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.encoder import OnnxGraph
from grouplearn.data.encoding.registry import encoder_of, widths_of
from grouplearn.data.shard import Matrix
from grouplearn.kernels.scoring import Link
from grouplearn.kernels.trees import Forests
from grouplearn.learners import registry
from grouplearn.learners.trees import offset
from grouplearn.learners.trees.contributions import contributions_of
from grouplearn.learners.trees.leaf_sets import LEAVES, PARTS
from grouplearn.learners.trees.lightgbm import objectives
from grouplearn.learners.trees.nodes import (
    LEAF,
    FeatureColumns,
    Nodes,
    count_leaves,
    nodes_of,
    parse_forests,
    with_leaves,
    with_negated,
)
from grouplearn.learners.trees.scoring import GroupTrees, compile_forests, has_linear_leaves
from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.form import (
    Best,
    Checks,
    Contributions,
    FormWithSql,
    FunctionSql,
    GroupModel,
    IntArray,
    Layout,
    Prediction,
    SqlForm,
    StoredRows,
    every,
    once,
)
from grouplearn.models.forms.trees.leaf_tables import MOST_CASES, MOST_SLOTS, GroupForest, leaf_tables
from grouplearn.models.forms.trees.leaves import LeafSets
from grouplearn.models.forms.trees.onnx_trees import tree_scores
from grouplearn.models.forms.trees.walks import TreeWalks
from grouplearn.models.outputs.link import Link as ScoreLink

#: Bytes of model texts parsed together: their lines, words and numbers take some 20 times as much.
_TOGETHER_BYTES = 1 << 22
#: Most nodes of a model's trees, and most that are walked: above it DuckDB would no longer look them up by number alone.
MOST_NODES, MOST_WALKED = 2_000_000, 1_000_000
#: Most splits on the way to a leaf: the macro has a join for each.
MOST_DEPTH = 64


def feature_columns(fitted: Sequence[FittedItem], starts: Sequence[int]) -> FeatureColumns:
    """Return what trees read for each feature column, where a row's items begin at ``starts``.

    A one-hot or hashed item is one number in the row, its category; an array is one per value.
    """
    slots, categories = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for item, width, start in zip(fitted, widths_of(fitted), starts, strict=True):
        of_one = _is_of_one(item)
        slots.append(np.full(width, start) if of_one else start + np.arange(width))
        categories.append(np.arange(width) if of_one else np.full(width, -1))
    return FeatureColumns(np.concatenate(slots), np.concatenate(categories))


def _is_of_one(item: FittedItem) -> bool:
    return encoder_of(item.item).role == "indicator"


def _in_order(fitted: Sequence[FittedItem]) -> FeatureColumns:
    """Return a row's columns with items one after the other."""
    widths = [1 if _is_of_one(item) else width for item, width in zip(fitted, widths_of(fitted), strict=True)]
    return feature_columns(fitted, [0, *np.cumsum(widths)[:-1].tolist()][: len(fitted)])


@dataclass(frozen=True, slots=True)
class _Forest:
    """The trees of the best models of ``groups``, ``trees`` of them for ``outputs``, and their nodes.

    ``mirrored``: the nodes are followed by those of the same trees with negated values.
    """

    groups: tuple[int, ...]
    trees: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: Nodes
    mirrored: bool = False


def _of_same_columns(best: Sequence[Best]) -> list[list[Best]]:
    """Return the models grouped by the columns that their trees read; each group of few texts becomes nodes together."""
    lists: list[list[Best]] = []
    last: dict[tuple[bytes, bytes], tuple[list[Best], int]] = {}
    keys: dict[int, tuple[bytes, bytes]] = {}  # for many groups that share their items
    for each in best:
        size = len(each.artifact.text)
        if id(each.fitted) not in keys:
            columns = _in_order(each.fitted)
            keys[id(each.fitted)] = columns.slot.tobytes(), columns.category.tobytes()
        key = keys[id(each.fitted)]
        alike, so_far = last.get(key, ([], 0))
        if not alike or so_far + size > _TOGETHER_BYTES:
            alike, so_far = [], 0
            lists.append(alike)
        alike.append(each)
        last[key] = alike, so_far + size
    return lists


def _forest(best: Sequence[Best], *, apart: bool) -> _Forest:
    """Return the forest of models with the same columns; ``apart``: a class has its own share."""
    parsed = parse_forests([each.artifact.text for each in best])
    nodes = nodes_of(parsed, _in_order(best[0].fitted))
    counts = (tuple(parsed.trees.tolist()), tuple(parsed.n_outputs.tolist()))
    mirrored = apart and bool((parsed.n_outputs == 1).any())
    return _Forest(tuple(each.group for each in best), *counts, with_negated(nodes) if mirrored else nodes, mirrored)


def _forests(definition: ModelDefinition, best: Sequence[Best]) -> tuple[list[_Forest], int]:
    """Return the forests of models, and the most questions on the way to a leaf."""
    apart = registry.links(definition.learner, definition.configs, definition.label) == {"one_vs_all"}
    forests = [_forest(alike, apart=apart) for alike in _of_same_columns(best)]
    return forests, max((int(forest.nodes.depth.max()) for forest in forests), default=0)


@dataclass(frozen=True, slots=True)
class WalkedTrees:
    """The catalog tables ``trees`` and ``nodes``, without the model, and the most questions on the way to a leaf."""

    roots: Any
    nodes: Any
    depth: int


def walked_trees(definition: ModelDefinition, best: Sequence[Best]) -> WalkedTrees:
    """Return the trees of models as nodes."""
    return _walked(*_forests(definition, best), several=definition.label.scores_classes)


def _walked(forests: Sequence[_Forest], depth: int, *, several: bool) -> WalkedTrees:
    nodes = [forest.nodes for forest in forests]
    nodes += [LEAF] if several and any(1 in forest.outputs for forest in forests) else []
    return WalkedTrees(_roots(forests, several=several), _nodes(nodes), depth)


def _grown(forest: _Forest, *, several: bool) -> GroupForest:
    """Return the trees of a forest as ``_roots`` has them; each leaf of value 0 is a tree of its own, after the other nodes."""
    nodes, last = forest.nodes, len(forest.nodes.slot)
    roots: list[int] = []
    output: list[int] = []
    counts: list[int] = []
    added = 0
    for count, n_outputs, end in zip(forest.trees, forest.outputs, np.cumsum(forest.trees).tolist(), strict=True):
        own = nodes.roots[end - count : end].tolist()
        given = [place % n_outputs for place in range(count)]
        if several and n_outputs == 1:
            other = [root + last // 2 for root in own] if forest.mirrored else [last + added]
            added += not forest.mirrored
            own, given = other + own, [0] * len(other) + [1] * count
        roots += own
        output += given
        counts.append(len(own))
    group = np.repeat(np.arange(len(counts)), counts)
    return GroupForest(forest.groups, with_leaves(nodes, added), np.array(roots), group, np.array(output))


def _leaves_form(leaves: Any) -> LeafSets:
    depth, width = (int(pc.max(each).as_py()) for each in (leaves["most"], pc.list_value_length(leaves["outputs"])))
    return LeafSets(depth, width, tuple(leaves["slots"][0].as_py()))


def _roots(forests: Sequence[_Forest], *, several: bool) -> Any:
    """Return where the trees of each group begin; with ``several`` classes, those of each class.

    For two classes LightGBM's trees score the second: the first gets a leaf of value 0, the last of all nodes, and then
    nothing; or, in a mirrored forest, the same trees with negated values.
    """
    rows: list[dict[str, Any]] = []
    first, zero = 1, 1 + sum(len(forest.nodes.slot) for forest in forests)
    for forest in forests:
        nodes, ends = forest.nodes, np.cumsum(forest.trees).tolist()
        for group, count, n_outputs, end in zip(forest.groups, forest.trees, forest.outputs, ends, strict=True):
            own = slice(end - count, end)
            roots, outputs = (nodes.roots[own] + first).tolist(), n_outputs
            if several and outputs == 1:
                half = len(nodes.slot) // 2
                other = [root + half for root in roots] if forest.mirrored else [zero, *[None] * (count - 1)]
                roots, outputs = [root for pair in zip(other, roots, strict=True) for root in pair], 2
            depth = int(nodes.depth[own].max())
            rows.append({"group_id": group, "outputs": outputs, "roots": roots, "depth": depth})
        first += len(nodes.slot)
    small = pa.int32()
    fields = [("group_id", small), ("outputs", small), ("roots", pa.list_(small)), ("depth", small)]
    return pa.Table.from_pylist(rows, pa.schema(fields))


def _nodes(forests: Sequence[Nodes]) -> Any:
    """Return the nodes of all forests, numbered from 1."""
    base = np.cumsum([0, *(len(nodes.slot) for nodes in forests)])

    def joined(name: str, shift: bool = False) -> Any:
        parts = [
            getattr(nodes, name) + (start + 1 if shift else 0) for nodes, start in zip(forests, base, strict=False)
        ]
        return np.concatenate(parts) if parts else np.empty(0)

    value, slot = joined("value"), joined("slot")
    leaf, total = ~np.isnan(value), int(base[-1])
    return pa.table(
        {
            "node": pa.array(np.arange(1, total + 1), pa.int32()),
            "slot": pa.array(slot.astype(np.int32) + 1, mask=leaf),
            **{name: pa.array(joined(name), pa.float64(), mask=leaf) for name in ("low", "high")},
            **{name: pa.array(joined(name, shift=True).astype(np.int32)) for name in ("inside", "outside", "missing")},
            "value": pa.array(value, mask=~leaf),
        }
    )


def _check_trees() -> Checks:
    return {"two rows are the same group": once("group_id")}


def _check_nodes() -> Checks:
    finite = "value IS NULL OR isfinite(value)"
    return {"two rows are the same node": once("node"), "the value of a leaf is not finite": every(finite)}


def _check_leaves() -> Checks:
    lists = ("slots", "starts", "bounds", "sets", "addends", "outputs")
    whole = " AND ".join(f"list_count({name}) = len({name})" for name in lists)
    ascend = (
        "list_sort(starts) = starts AND starts[1] = 0 AND starts[-1] = len(bounds) AND len(starts) = len(slots) + 1"
    )
    fits = f"len(sets) = len(bounds) * len(outputs) AND len(addends) = len(outputs) * {PARTS * (LEAVES + 1)}"
    return {
        "two rows are the same group": once("group_id"),
        "two groups test different numbers": "count(DISTINCT slots) <= 1",
        "a set or a leaf is missing": every(f"{whole} AND {fits}"),
        "the cases of a number differ from those of its group": every(ascend),
        "what a leaf adds is not finite": every(
            "list_count(list_filter(addends, lambda v: isfinite(v))) = len(addends)"
        ),
    }


def _no_sql(reason: str) -> Prediction:
    return Prediction(FunctionSql(reason))


class Trees(FormWithSql):
    """LightGBM's text of a forest."""

    name = "trees"
    tables = ("trees", "nodes", "leaves")
    artifact = "lightgbm"
    handles_missing = True

    def without_sql(self, definition: ModelDefinition) -> str:
        """Return why there is no SQL: leaves may be linear models."""
        if registry.has_linear_leaves(definition.learner, definition.configs) and not definition.label_length:
            return "its leaves are linear models"
        return super().without_sql(definition)

    def rows(self, definition: ModelDefinition, best: Sequence[Best]) -> Prediction:
        """Return trees as sets of leaves, or as nodes that are walked, unless there are too many for SQL."""
        count = sum(2 * count_leaves(each.artifact.text) for each in best)
        if count > MOST_NODES:
            return _no_sql(f"its trees have {count:,} nodes, and SQL takes {MOST_NODES:,}")
        several = definition.label.scores_classes
        forests, depth = _forests(definition, best)
        tables = leaf_tables([_grown(forest, several=several) for forest in forests], depth)
        if tables is not None:
            return Prediction(_leaves_form(tables[0][1]), tables)
        if count > MOST_WALKED:
            return _no_sql(f"its trees have {count:,} nodes, and SQL takes {MOST_WALKED:,}")
        if depth > MOST_DEPTH:
            return _no_sql(f"its trees ask {depth} questions in a row, and SQL takes {MOST_DEPTH}")
        walked = _walked(forests, depth, several=several)
        form = TreeWalks(depth, max(map(len, walked.roots.column("roots")), default=0))
        return Prediction(form, (("trees", walked.roots), ("nodes", walked.nodes)))

    def read(self, definition: ModelDefinition, rows: StoredRows) -> SqlForm:
        """Return the SQL form that the tables allow."""
        del definition
        if rows.first("groups", "count(best)") == 0:
            return TreeWalks()
        most = {"most": (2, MOST_CASES), "len(outputs)": (1, MOST_NODES), "len(slots)": (1, MOST_SLOTS)}
        if leaves := rows.greatest("leaves", most):
            slots = rows.first("leaves", "min(slots)") or ()
            return LeafSets(leaves[0], leaves[1], tuple(slot for slot in slots if slot is not None))
        trees = rows.greatest("trees", {"depth": (0, MOST_DEPTH), "len(roots)": (1, MOST_NODES)})
        return TreeWalks(trees[0], trees[1]) if trees else FunctionSql("its size")

    def checks(self, definition: ModelDefinition) -> Mapping[str, Checks]:
        """Return the checks of trees, of their nodes, and of sets of leaves."""
        del definition
        return {"trees": _check_trees(), "nodes": _check_nodes(), "leaves": _check_leaves()}

    def compiled(
        self, definition: ModelDefinition, groups: Sequence[GroupModel], layout: Layout
    ) -> tuple[Forests, Link] | None:
        """Return the forests of all groups; None if one has no LightGBM text, or its trees are others."""
        if any(group.artifact.format != "lightgbm" for group in groups):
            return None
        known: dict[tuple[int, ...], FeatureColumns] = {}
        models = []
        for group in groups:
            widths = tuple(widths_of(group.fitted))
            if widths not in known:
                known[widths] = feature_columns(group.fitted, layout.starts)
            models.append(GroupTrees(group.artifact.text, known[widths], group.classes))
        return compile_forests(models, definition.label, len(definition.classes))

    def contributions(
        self, definition: ModelDefinition, group: GroupModel, x: Matrix, chosen: IntArray, item: IntArray
    ) -> Contributions | None:
        """Return the Shapley values of trees; None if leaves are linear models."""
        text = group.artifact.text
        if has_linear_leaves(text):
            return None
        trees, count = contributions_of(text), len(group.fitted)
        if definition.label.scores_classes and len(trees.means) < len(
            group.classes
        ):  # two classes of more: trees score the second
            sign = np.where(chosen > 0, 1.0, -1.0)
            added = trees(x, np.zeros_like(chosen), item, count) * sign[:, None]
            return Contributions(added, trees.means[0] * sign, "tree shap")
        added = trees(x, chosen, item, count)
        if definition.offset:
            added[:, -1] += offset.of_rows(x)
        return Contributions(added, trees.means[chosen], "tree shap")

    def without_onnx(self, definition: ModelDefinition) -> str | None:
        """Return why there is no graph: leaves may be linear models."""
        if registry.has_linear_leaves(definition.learner, definition.configs):
            return "the leaves of its trees are linear models"
        return super().without_onnx(definition)

    def link(self, definition: ModelDefinition, group: GroupModel) -> ScoreLink:
        """Return the link of a group's model, which may differ between groups."""
        del definition
        return objectives.in_text(group.artifact.text).link

    def onnx_scores(self, graph: OnnxGraph, definition: ModelDefinition, group: GroupModel, x: str) -> str:
        """Add the trees."""
        outputs = len(group.classes) if definition.label.scores_classes else 1
        scores = tree_scores(graph, group.artifact.text, x, outputs)
        if not definition.offset:
            return scores
        last = graph.constant(np.array([sum(widths_of(group.fitted)) - 1]))
        return graph.add("Add", scores, graph.add("Gather", x, last, axis=1))
