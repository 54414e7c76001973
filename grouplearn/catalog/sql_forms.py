"""Which models predict in SQL alone, and the tables that this reads: trees as sets of leaves or nodes, networks as layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.catalog.checks.damage import damaged
from grouplearn.catalog.leaf_sets import MOST_CASES, MOST_SLOTS, Grown, leaf_tables
from grouplearn.catalog.records import ModelDefinition, RunOutcome
from grouplearn.catalog.schema import first_row, table
from grouplearn.data.encoders import FittedItem
from grouplearn.interrupting import watched
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import VectorLearner
from grouplearn.learners.neural.mlp_model import Networks
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
from grouplearn.models.state import Artifact

#: Bytes of model texts parsed together: their lines, words and numbers take some 20 times as much.
_TOGETHER_BYTES = 1 << 22
#: Most nodes of a model's trees, and most that are walked: above it DuckDB would no longer look them up by number alone.
MOST_NODES, MOST_WALKED = 2_000_000, 1_000_000
#: Most splits on the way to a leaf: the macro has a join for each.
MOST_DEPTH = 64
#: Most weights of one network, which every row carries, and of all groups' networks.
MOST_WEIGHTS, MOST_WEIGHTS_IN_ALL = 20_000, 5_000_000
#: Why only linear models have SQL for lists.
_OF_LISTS = "it takes lists, of which only linear models have SQL"
#: Most encoded features of a row in SQL, as a list.
MOST_FEATURES = 4_096
#: Most layers of a network: the macro has a step for each.
MOST_LAYERS = 8


@dataclass(frozen=True, slots=True)
class SqlForm:
    """How a model's macro predicts: with ``linear`` weights, by ``trees`` (at most ``depth`` splits and ``width`` trees),
    by ``leaves`` (at most ``depth`` cases of each of ``slots``, and ``width`` words), through the ``layers`` of networks
    (at most ``depth``), by ``vectors``, or with the ``function`` predict because of ``reason``."""

    kind: Literal["linear", "trees", "leaves", "layers", "vectors", "function"]
    depth: int = 0
    width: int = 0
    reason: str = ""
    slots: tuple[int, ...] = ()

    @property
    def of_trees(self) -> bool:
        """Whether the model's trees are in SQL."""
        return self.kind in ("trees", "leaves")

    @property
    def described(self) -> str:
        """The text of DESCRIBE MODEL."""
        return f"function predict: {self.reason}" if self.kind == "function" else "SQL"

    @property
    def tables(self) -> tuple[str, ...]:
        """The catalog tables that the macro reads."""
        of_kind = {
            "linear": ("artifacts",),
            "trees": ("trees", "nodes"),
            "leaves": ("leaves",),
            "layers": ("layers",),
            "vectors": ("factors",),
        }
        return ("groups", *of_kind[self.kind]) if self.kind in of_kind else ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """A model's form and its rows of the catalog tables."""

    form: SqlForm
    tables: tuple[tuple[str, Any], ...] = ()


LINEAR = Prediction(SqlForm("linear"))


def prediction_of(definition: ModelDefinition, outcome: RunOutcome) -> Prediction:
    """Return how a newly trained model will predict."""
    if definition.linear:
        return LINEAR
    models = watched(outcome.found.best_models())
    return of_best(definition, [Best(group.id, facts.fitted, artifact) for group, facts, artifact in models])


@dataclass(frozen=True, slots=True)
class Best:
    """The best model of a group."""

    group: int
    fitted: Sequence[FittedItem]
    artifact: Artifact


def of_best(definition: ModelDefinition, best: Sequence[Best]) -> Prediction:
    """Return how a model will predict whose groups have these best models."""
    if definition.linear:
        return LINEAR
    reason = _always_function(definition)
    if reason:
        return _function(reason)
    if registry.form(definition.learner) == "vectors":
        return _vectors(definition, best)
    if _takes_lists(definition):
        return _function(_OF_LISTS)
    return _trees(definition, best) if registry.form(definition.learner) == "trees" else _layers(best)


def _takes_lists(definition: ModelDefinition) -> bool:
    return any(entry.item.is_list for entry in definition.items)


def _always_function(definition: ModelDefinition) -> str:
    if registry.form(definition.learner) not in ("trees", "layers", "vectors"):
        return f"SQL has no form of {definition.learner}"
    if definition.label_length:
        return "it predicts arrays"
    if registry.form(definition.learner) == "vectors" and definition.output.vectors is None:
        return f"SQL has no form of {' and '.join(definition.output.shown)} by vectors"
    if registry.has_linear_leaves(definition.learner, definition.configs):
        return "its leaves are linear models"
    if len(registry.links(definition.learner, definition.configs, definition.label)) > 1:
        return "its configurations have objectives on different scales"
    return ""


def _function(reason: str) -> Prediction:
    return Prediction(SqlForm("function", reason=reason))


def feature_columns(fitted: Sequence[FittedItem], starts: Sequence[int]) -> FeatureColumns:
    """Return what trees read for each feature column, where a row's items begin at ``starts``.

    A one-hot or hashed item is one number in the row, its category; an array is one per value.
    """
    slots, categories = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for item, start in zip(fitted, starts, strict=True):
        of_one = _is_of_one(item)
        slots.append(np.full(item.width, start) if of_one else start + np.arange(item.width))
        categories.append(np.arange(item.width) if of_one else np.full(item.width, -1))
    return FeatureColumns(np.concatenate(slots), np.concatenate(categories))


def _is_of_one(item: FittedItem) -> bool:
    return item.encoder.role == "indicator"


def _in_order(fitted: Sequence[FittedItem]) -> FeatureColumns:
    """Return a row's columns with items one after the other."""
    widths = [1 if _is_of_one(item) else item.width for item in fitted]
    return feature_columns(fitted, [0, *np.cumsum(widths)[:-1].tolist()][: len(fitted)])


def _trees(definition: ModelDefinition, best: Sequence[Best]) -> Prediction:
    count = sum(2 * count_leaves(each.artifact.text) for each in best)
    if count > MOST_NODES:
        return _function(f"its trees have {count:,} nodes, and SQL takes {MOST_NODES:,}")
    several = definition.label.scores_classes
    apart = registry.links(definition.learner, definition.configs, definition.label) == {"one_vs_all"}
    forests = [_forest(alike, apart=apart) for alike in _of_same_columns(best)]
    depth = max((int(forest.nodes.depth.max()) for forest in forests), default=0)
    tables = leaf_tables([_grown(forest, several=several) for forest in forests], depth)
    if tables is not None:
        return Prediction(_leaves_form(tables[0][1]), tables)
    if count > MOST_WALKED:
        return _function(f"its trees have {count:,} nodes, and SQL takes {MOST_WALKED:,}")
    if depth > MOST_DEPTH:
        return _function(f"its trees ask {depth} questions in a row, and SQL takes {MOST_DEPTH}")
    roots = _roots(forests, several=several)
    form = SqlForm("trees", depth, max(map(len, roots.column("roots")), default=0))
    nodes = [forest.nodes for forest in forests]
    nodes += [LEAF] if several and any(1 in forest.outputs for forest in forests) else []
    return Prediction(form, (("trees", roots), ("nodes", _nodes(nodes))))


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


def _grown(forest: _Forest, *, several: bool) -> Grown:
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
    return Grown(forest.groups, with_leaves(nodes, added), np.array(roots), group, np.array(output))


def _leaves_form(leaves: Any) -> SqlForm:
    depth, width = (int(pc.max(each).as_py()) for each in (leaves["most"], pc.list_value_length(leaves["outputs"])))
    return SqlForm("leaves", depth, width, slots=tuple(leaves["slots"][0].as_py()))


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


def _vectors(definition: ModelDefinition, best: Sequence[Best]) -> Prediction:
    """Return the vectors of all models; SQL compares a list of a row's features with each."""
    learner = cast(VectorLearner, registry.learner(definition.learner))
    rows = [
        {"group_id": each.group, "part": part, "place": place, "vector": vector.tolist(), "value": value}
        for each in best
        for part, place, vector, value in learner.vectors(each.artifact)
    ]
    small = pa.int32()
    fields = [("group_id", small), ("part", pa.string()), ("place", small), ("vector", pa.list_(pa.float64()))]
    factors = pa.Table.from_pylist(rows, pa.schema([*fields, ("value", pa.float64())]))
    width = max((sum(item.width for item in each.fitted) for each in best), default=0)
    form = SqlForm("vectors")
    if _takes_lists(definition):
        form = SqlForm("function", reason=_OF_LISTS)
    elif width > MOST_FEATURES:
        form = SqlForm("function", reason=f"a row has {width:,} encoded features, and SQL takes {MOST_FEATURES:,}")
    return Prediction(form, (("factors", factors),))


def _layers(best: Sequence[Best]) -> Prediction:
    networks = [(each.group, Networks.of(each.artifact)) for each in best]
    sizes = [sum(weights[0].size for weights in network.weights) for _, network in networks]
    depth = max((len(network.weights) for _, network in networks), default=1)
    if max(sizes, default=0) > MOST_WEIGHTS:
        return _function(f"a network has {max(sizes):,} weights, and SQL takes {MOST_WEIGHTS:,}")
    if sum(sizes) > MOST_WEIGHTS_IN_ALL:
        return _function(f"its networks have {sum(sizes):,} weights, and SQL takes {MOST_WEIGHTS_IN_ALL:,}")
    if depth > MOST_LAYERS:
        return _function(f"a network has {depth} layers, and SQL takes {MOST_LAYERS}")
    rows = [
        {
            "group_id": group,
            "layer": place + 1,
            "layers": len(network.weights),
            "activation": network.activation,
            "weights": network.weights[place][0].tolist(),
            "bias": network.biases[place][0, 0].tolist(),
        }
        for group, network in networks
        for place in range(len(network.weights))
    ]
    numbers, small = pa.list_(pa.float64()), pa.int32()
    fields = [("group_id", small), ("layer", small), ("layers", small), ("activation", pa.string())]
    schema = pa.schema([*fields, ("weights", pa.list_(numbers)), ("bias", numbers)])
    return Prediction(SqlForm("layers", depth), (("layers", pa.Table.from_pylist(rows, schema)),))


def _bounded(
    con: duckdb.DuckDBPyConnection,
    catalog: str,
    where: str,
    name: str,
    part: str,
    limits: Mapping[str, tuple[int, int]],
) -> list[int]:
    """Return the greatest of some numbers of a table, nothing if it has no row of the model.

    A macro has a step for each: no model with an SQL form exceeds ``limits``, so no more are accepted from a file.
    """
    ends = ", ".join(f"min({number}), max({number})" for number in limits)
    counts = " + ".join(f"count(*) - count({number})" for number in limits)
    row = first_row(con, f"SELECT count(*), {counts}, {ends} FROM {table(catalog, part)} {where}")
    if row is None or not row[0]:
        return []
    for place, (number, (least, most)) in enumerate(limits.items()):
        low, high = row[2 + 2 * place : 4 + 2 * place]
        if row[1] or low < least or high > most:
            outside = "NULL" if row[1] else low if low < least else high
            raise damaged(catalog, name, part, f"{number} is {outside}, and it is {least:,} to {most:,}")
    return [int(row[3 + 2 * place]) for place in range(len(limits))]


def stored_form(con: duckdb.DuckDBPyConnection, catalog: str, model: str, definition: ModelDefinition) -> SqlForm:
    """Return how a stored model's macro predicts."""
    if definition.linear:
        return LINEAR.form
    where = f"WHERE model = '{model}'::UUID"
    reason = _always_function(definition)
    if not reason and _takes_lists(definition):
        return SqlForm("function", reason=_OF_LISTS)
    if (
        not reason
        and registry.form(definition.learner) != "vectors"
        and first_row(con, f"SELECT 1 FROM {table(catalog, 'groups')} {where} AND best IS NOT NULL") is None
    ):
        return SqlForm("trees") if registry.form(definition.learner) == "trees" else SqlForm("layers", 1)
    if not reason and registry.form(definition.learner) == "vectors":
        widest = first_row(con, f"SELECT max(len(features)) FROM {table(catalog, 'groups')} {where}")
        if widest and (widest[0] or 0) <= MOST_FEATURES:
            return SqlForm("vectors")
        reason = f"a row has more encoded features than the {MOST_FEATURES:,} that SQL takes"
    bounded = partial(_bounded, con, catalog, where, definition.name)
    most = {"most": (2, MOST_CASES), "len(outputs)": (1, MOST_NODES), "len(slots)": (1, MOST_SLOTS)}
    if leaves := bounded("leaves", most):
        slots = first_row(con, f"SELECT min(slots) FROM {table(catalog, 'leaves')} {where}")
        numbers = [slot for slot in (slots[0] if slots else ()) if slot is not None]
        return SqlForm("leaves", leaves[0], leaves[1], slots=tuple(numbers))
    trees = bounded("trees", {"depth": (0, MOST_DEPTH), "len(roots)": (1, MOST_NODES)})
    if trees:
        return SqlForm("trees", depth=trees[0], width=trees[1])
    layers = bounded("layers", {"layers": (1, MOST_LAYERS)})
    if layers:
        return SqlForm("layers", depth=layers[0])
    return SqlForm("function", reason=reason or "its size")
