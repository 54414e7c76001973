"""Scores of small networks: the units of a layer are rows, each a weighted sum of those of the layer before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from grouplearn.learners.neural.mlp_model import Networks
from grouplearn.models.dialects.databases import NotInDialect
from grouplearn.models.dialects.encoded_rows import GROUP, encode_rows
from grouplearn.models.dialects.exported import ExportedModel
from grouplearn.models.dialects.scored import logistic
from grouplearn.models.dialects.scores.inputs import INPUTS, add_inputs, add_scored, kept, scores, with_group
from grouplearn.models.dialects.scores.linear import unit_joins, weight_tables, weighted_sum
from grouplearn.models.forms.form import GroupModel
from grouplearn.models.forms.layers import MOST_LAYERS, MOST_WEIGHTS, NORMAL_TAIL
from grouplearn.sqltext import identifier

#: Most weights of all networks.
MOST_WEIGHTS_IN_ALL = 1_000_000


def layer_scores(model: ExportedModel) -> None:
    """Add the tables of weights, and the steps to rows with scores."""
    networks = {group.id: Networks.of(group.artifact) for group in model.groups}
    depth = _checked(networks)
    encode_rows(model, finite=True, numbered=True)
    add_inputs(model)
    of_networks = model.table(
        "networks",
        [("group_id", "BIGINT"), ("layers", "BIGINT"), ("activation", "VARCHAR")],
        ((group, len(network.weights), network.activation) for group, network in networks.items()),
    )

    def first(group: GroupModel) -> tuple[Sequence[int], Any, Any]:
        weights, biases = networks[group.id].weights, networks[group.id].biases
        return _units(model, group, networks[group.id], 0), weights[0][0], biases[0][0, 0]

    joins = " ".join(unit_joins(model, "i", weight_tables(model, first), None))
    of_group = f"JOIN {of_networks} AS n ON n.group_id = i.{GROUP}"
    apart = f"{with_group(model, 'i')}, n.layers, n.activation, w.unit"
    model.query.step(
        "layer_1", f"SELECT {apart}, {weighted_sum(model, 'i', None)} AS z FROM {INPUTS} AS i {of_group} {joins}"
    )
    if depth > 1:
        _add_layers(model, networks, depth)
    _add_outputs(model, depth)


def _checked(networks: dict[int, Networks]) -> int:
    """Return the number of layers of the deepest network; raises NotInDialect."""
    sizes = [sum(weights[0].size for weights in network.weights) for network in networks.values()]
    depth = max(len(network.weights) for network in networks.values())
    if max(sizes) > MOST_WEIGHTS:
        raise NotInDialect(f"a network has {max(sizes):,} weights, and SQL takes {MOST_WEIGHTS:,}")
    if sum(sizes) > MOST_WEIGHTS_IN_ALL:
        raise NotInDialect(f"its networks have {sum(sizes):,} weights, and a script takes {MOST_WEIGHTS_IN_ALL:,}")
    if depth > MOST_LAYERS:
        raise NotInDialect(f"a network has {depth} layers, and SQL takes {MOST_LAYERS}")
    return depth


def _units(model: ExportedModel, group: GroupModel, network: Networks, layer: int) -> Sequence[int]:
    """Return the numbers of a layer's units; those of the last are the classes of the group."""
    is_last = layer == len(network.weights) - 1
    classes = is_last and model.definition.label.scores_classes
    return group.classes if classes else range(len(network.weights[layer][0]))


def _add_layers(model: ExportedModel, networks: dict[int, Networks], depth: int) -> None:
    """Add the table of the weights of further layers, and a step for each."""

    def rows() -> Iterator[Sequence[Any]]:
        for group in model.groups:
            network = networks[group.id]
            for layer in range(1, len(network.weights)):
                for place, unit in enumerate(_units(model, group, network, layer)):
                    bias = network.biases[layer][0, 0][place]
                    for before, weight in enumerate(network.weights[layer][0][place]):
                        yield group.id, layer + 1, unit, before, weight, bias

    kinds = [(name, "BIGINT") for name in ("group_id", "layer", "unit", "unit_before")]
    table = model.table("layers", [*kinds, ("weight", "DOUBLE"), ("bias", "DOUBLE")], rows())
    for layer in range(2, depth + 1):
        apart = f"{with_group(model, 'a')}, a.layers, a.activation"
        model.query.step(
            f"active_{layer - 1}",
            f"SELECT {apart}, a.unit, {_activated('a.z')} AS v FROM layer_{layer - 1} AS a WHERE a.layers >= {layer}",
        )
        on = f"w.group_id = a.{GROUP} AND w.layer = {layer} AND w.unit_before = a.unit"
        model.query.step(
            f"layer_{layer}",
            f"SELECT {apart}, w.unit, SUM(a.v * w.weight) + MIN(w.bias) AS z FROM active_{layer - 1} AS a"
            f" JOIN {table} AS w ON {on} GROUP BY {apart}, w.unit",
        )


def _activated(z: str) -> str:
    tail = re.sub(r"\bv\b", z, NORMAL_TAIL)
    return (
        f"CASE a.activation WHEN 'relu' THEN CASE WHEN {z} > 0 THEN {z} WHEN {z} <= 0 THEN 0 END"
        f" WHEN 'tanh' THEN TANH({z}) WHEN 'sigmoid' THEN {logistic(z)}"
        f" WHEN 'gelu' THEN {z} * CASE WHEN {z} > 0 THEN 1 - {tail} ELSE {tail} END END"
    )


def _add_outputs(model: ExportedModel, depth: int) -> None:
    """Add the step of rows with the last layer's units as scores."""
    last = " UNION ALL ".join(
        f"SELECT {kept(model, 'a')}, a.unit, a.z FROM layer_{layer} AS a WHERE a.layers = {layer}"
        for layer in range(1, depth + 1)
    )
    outputs = ", ".join(
        f"MAX(CASE WHEN a.unit = {place} THEN a.z END) AS {identifier(name)}"
        for place, name in enumerate(scores(model))
    )
    model.query.step("outputs", last)
    model.query.step("sums", f"SELECT {kept(model, 'a')}, {outputs} FROM outputs AS a GROUP BY {kept(model, 'a')}")
    add_scored(model, "sums", scores(model))
