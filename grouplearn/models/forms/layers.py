"""Prediction by small networks as one SELECT: a layer is a list of units, each a dot product of lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from grouplearn.data.encoding.encoder import OnnxGraph
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.kernels.networks import ACTIVATIONS
from grouplearn.learners.neural.mlp_model import Networks
from grouplearn.models.definition import ItemColumn, ModelDefinition
from grouplearn.models.forms.form import (
    Best,
    Checks,
    FormWithSql,
    FunctionSql,
    GroupModel,
    Prediction,
    SqlForm,
    StoredRows,
    affine,
    every,
    once,
)
from grouplearn.models.forms.items import (
    encoded_cte,
    encoders_sql,
    groups_cte,
    inputs_sql,
    is_number,
    listed,
    numbers,
    picked_sql,
    position_join,
)
from grouplearn.models.forms.routed import (
    BEST,
    ENCODED,
    GROUP,
    PARAMETERS,
    SCORED,
    PredictedRows,
    item_alias,
    linked,
    reachable,
    routed_cte,
    rows_cte,
    score_sql,
    sortable_row,
    sum_sql,
)
from grouplearn.models.label import NUMBER
from grouplearn.models.state import FloatArray
from grouplearn.sqltext import literal

_LAYERS = "__grouplearn_layers"
#: Most weights of one network, which every row carries, and of all groups' networks.
MOST_WEIGHTS, MOST_WEIGHTS_IN_ALL = 20_000, 5_000_000
#: Most layers of a network: the macro has a step for each.
MOST_LAYERS = 8


def _parameters(definition: ModelDefinition, depth: int) -> str:
    weights = "[]"
    if numbers(definition):
        weights = picked_sql(definition, numbers(definition), "w", "g.")
    columns = {
        "id": "g.group_id",
        "level": "g.level",
        "classes": "g.classes",
        "layers": "l1.layers",
        "activation": "l1.activation",
        "w1": f"list_transform(l1.weights, lambda w: {weights})",
        **{f"w{layer}": f"l{layer}.weights" for layer in range(2, depth + 1)},
        **{f"b{layer}": f"l{layer}.bias" for layer in range(1, depth + 1)},
    }
    named = [f"{sql} AS {_own(name)}" for name, sql in columns.items()]
    joins = " ".join(
        f"LEFT JOIN {_LAYERS} AS l{layer} ON l{layer}.group_id = g.group_id AND l{layer}.layer = {layer}"
        for layer in range(1, depth + 1)
    )
    named += encoders_sql(definition, finite=True, groups="g.")
    return f"{PARAMETERS} AS (SELECT {', '.join(named)} FROM {BEST} AS g {joins})"


def _own(name: str) -> str:
    """Return the name of an added column, which cannot be one of the source."""
    return f"__grouplearn_{name}"


def _scored(definition: ModelDefinition, depth: int) -> str:
    source = _inputs(definition)
    for layer in range(1, depth + 1):
        source = f"SELECT *, {_affine(definition, layer)} AS {_own(f'z{layer}')} FROM ({source})"
        if layer < depth:
            source = f"SELECT *, {_activated(layer)} AS {_own(f'a{layer}')} FROM ({source})"
    source = f"SELECT *, {_last(depth)} AS {_own('z')} FROM ({source})"
    if definition.label.scores_classes:
        outputs = [f"{_own('z')}[list_position({_own('classes')}, {each})]" for each in range(len(definition.classes))]
    else:
        outputs = [f"{_own('z')}[1]"]
    scores = [f"{score_sql([sql], definition)} AS {_own(f's{each}')}" for each, sql in enumerate(outputs)]
    return f"{SCORED} AS (SELECT *, {', '.join(scores)} FROM ({source}))"


def _last(depth: int) -> str:
    """Return the outputs: the network's last layer."""
    cases = " ".join(f"WHEN {layer} THEN {_own(f'z{layer}')}" for layer in range(1, depth + 1))
    return f"CASE {_own('layers')} {cases} END"


def _inputs(definition: ModelDefinition) -> str:
    """Return rows with their group's network, their numbers as ``x``, and category contributions ``e{item}``.

    A missing number is NaN, which makes every unit NaN.
    """
    joins, columns = [], []
    for number, entry in enumerate(definition.items):
        if not is_number(entry):
            joins.append(_units_join(entry, number))
            columns.append(f"j{number}.units AS {_own(f'e{number}')}")
        elif entry.item.kind == "category":
            joins.append(position_join(number))
    if numbers(definition):
        columns.append(f"{inputs_sql(definition, numbers(definition), finite=True)} AS {_own('x')}")
    return f"SELECT {', '.join(['r.*', *columns])} FROM {ENCODED} AS r {' '.join(joins)}"


def _units_join(entry: ItemColumn, number: int) -> str:
    """Return the join for a category's contributions to the units of the first layer."""
    count, value = encoder_of(entry.item).columns_sql(entry.item, f"g.categories[{number + 1}]")
    each = (
        f"SELECT g.group_id, g.starts[{number + 1}] AS start, unnest({value}) AS value,"
        f" unnest(range({count})) AS position FROM {BEST} AS g"
    )
    units = "list_transform(l.weights, lambda w: w[c.start + c.position + 1])"
    source = f"SELECT c.group_id, c.value, {units} AS units FROM ({each}) AS c JOIN {_LAYERS} AS l"
    on = f"j{number}.group_id = r.{GROUP} AND j{number}.value = r.{item_alias(number)}"
    return f"LEFT JOIN ({source} ON l.group_id = c.group_id AND l.layer = 1) AS j{number} ON {on}"


def _affine(definition: ModelDefinition, layer: int) -> str:
    """Return the units before activation; NULL beyond the last layer of a network."""
    weights, bias = _own(f"w{layer}"), f"{_own(f'b{layer}')}[i]"
    if layer > 1:
        return f"list_transform({weights}, lambda w, i: {bias} + list_dot_product(w, {_own(f'a{layer - 1}')}))"
    terms = [bias]
    if numbers(definition):
        terms.append(f"list_dot_product(w, {_own('x')})")
    terms += [
        f"coalesce({_own(f'e{number}')}[i], 0)" for number, entry in enumerate(definition.items) if not is_number(entry)
    ]
    return f"list_transform({weights}, lambda w, i: {sum_sql(terms)})"


def _activated(layer: int) -> str:
    cases = " ".join(f"WHEN '{name}' THEN {sql}" for name, sql in _ACTIVATIONS.items())
    return f"list_transform({_own(f'z{layer}')}, lambda v: CASE {_own('activation')} {cases} END)"


def _polynomial(coefficients: Sequence[float]) -> str:
    """Return a polynomial in |v|, highest power first, by Horner's rule."""
    text = f"{coefficients[0]!r}::DOUBLE"
    for coefficient in coefficients[1:]:
        text = f"({text} * abs(v) + {coefficient!r}::DOUBLE)"
    return text


#: Φ(-|v|) to 15 digits: a ratio of polynomials times exp(-v²/2), beyond 7.07 a continued fraction (J. F. Hart et al.,
#: Computer Approximations, 1968, 5666), as DuckDB has no error function.
_ABOVE = _polynomial(
    (
        3.52624965998911e-02,
        0.700383064443688,
        6.37396220353165,
        33.912866078383,
        112.079291497871,
        221.213596169931,
        220.206867912376,
    )
)
_BELOW = _polynomial(
    (
        8.83883476483184e-02,
        1.75566716318264,
        16.064177579207,
        86.7807322029461,
        296.564248779674,
        637.333633378831,
        793.826512519948,
        440.413735824752,
    )
)
_FRACTION = "(abs(v) + 1 / (abs(v) + 2 / (abs(v) + 3 / (abs(v) + 4 / (abs(v) + 0.65)))))"
_POWER = "exp(-v * v / 2)"  # outside CASE some databases would compute it, and refuse, where it is too small
NORMAL_TAIL = (
    f"CASE WHEN abs(v) > 37 THEN 0 WHEN abs(v) < 7.07106781186547 THEN {_POWER} * ({_ABOVE} / {_BELOW})"
    f" ELSE {_POWER} * (1 / ({_FRACTION} * 2.506628274631)) END"
)
_ACTIVATIONS = {
    "relu": "greatest(v, 0)",
    "tanh": "tanh(v)",
    "gelu": f"v * CASE WHEN v > 0 THEN 1 - {NORMAL_TAIL} ELSE {NORMAL_TAIL} END",
    "sigmoid": "1 / (1 + exp(-v))",
}


@dataclass(frozen=True, slots=True)
class LayersSql(SqlForm):
    """Through the layers of networks, at most ``depth``."""

    depth: int = 1
    tables = ("groups", "layers")

    def select(self, rows: PredictedRows) -> str:
        """Return the SELECT with a step per layer; networks with fewer finish earlier.

        Numbers enter as a list, a category as the list of its contributions to the units of the first layer.
        """
        definition = rows.definition
        ctes = [
            rows_cte(definition, rows.relation, sortable_row(rows.extras), rows.extras, listed(definition)),
            groups_cte(rows),
            routed_cte(definition, BEST, reachable(rows)),
            f"{_LAYERS} AS (SELECT * FROM {rows.table('layers')})",
            _parameters(definition, self.depth),
            encoded_cte(definition, finite=True),
            _scored(definition, self.depth),
        ]
        return f"WITH {', '.join(ctes)} {linked(rows)}"


class Layers(FormWithSql):
    """``weight_i`` and ``bias_i`` of a small network's layers, and its ``activation``."""

    name = "layers"
    tables = ("layers",)

    def rows(self, definition: ModelDefinition, best: Sequence[Best]) -> Prediction:
        """Return a row per layer, unless the networks are too large for SQL."""
        del definition
        networks = [(each.group, Networks.of(each.artifact)) for each in best]
        sizes = [sum(weights[0].size for weights in network.weights) for _, network in networks]
        depth = max((len(network.weights) for _, network in networks), default=1)
        if max(sizes, default=0) > MOST_WEIGHTS:
            return Prediction(FunctionSql(f"a network has {max(sizes):,} weights, and SQL takes {MOST_WEIGHTS:,}"))
        if sum(sizes) > MOST_WEIGHTS_IN_ALL:
            return Prediction(
                FunctionSql(f"its networks have {sum(sizes):,} weights, and SQL takes {MOST_WEIGHTS_IN_ALL:,}")
            )
        if depth > MOST_LAYERS:
            return Prediction(FunctionSql(f"a network has {depth} layers, and SQL takes {MOST_LAYERS}"))
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
        return Prediction(LayersSql(depth), (("layers", pa.Table.from_pylist(rows, schema)),))

    def read(self, definition: ModelDefinition, rows: StoredRows) -> SqlForm:
        """Return the SQL form for the deepest network."""
        del definition
        if rows.first("groups", "count(best)") == 0:
            return LayersSql()
        found = rows.greatest("layers", {"layers": (1, MOST_LAYERS)})
        return LayersSql(found[0]) if found else FunctionSql("its size")

    def checks(self, definition: ModelDefinition) -> Mapping[str, Checks]:
        """Return the checks of layers."""
        del definition
        whole = "list_transform(weights, lambda unit: list_count(unit))"
        fits = f"len(weights) = len(bias) AND list_count(bias) = len(bias) AND list_min({whole}) = len(weights[1])"
        return {
            "layers": {
                "two rows are the same layer": once("group_id", "layer"),
                "a layer is beyond its network": every("layer >= 1 AND layer <= layers"),
                "a layer has an unknown activation": every(f"activation IN ({', '.join(map(literal, ACTIVATIONS))})"),
                "the units of a layer differ in their number of weights, or the layer does not have one bias per unit": every(
                    f"len(weights) > 0 AND {fits} AND list_max({whole}) = len(weights[1])"
                ),
            }
        }

    def raw_scores(self, group: GroupModel, x: FloatArray) -> FloatArray:
        """Return the last layer's units."""
        return Networks.of(group.artifact).predict(NUMBER, x)[:, 0]

    def onnx_scores(self, graph: OnnxGraph, definition: ModelDefinition, group: GroupModel, x: str) -> str:
        """Add layer after layer."""
        del definition
        network = Networks.of(group.artifact)
        for place, (weights, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
            x = affine(graph, x if not place else _onnx_activated(graph, network.activation, x), weights[0], bias[0, 0])
        return x


def _onnx_activated(graph: OnnxGraph, name: str, z: str) -> str:
    if name != "gelu":
        return graph.add({"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}[name], z)
    # z·Φ(z) = z·(1 + erf(z/√2))/2; onnxruntime's erf is in single precision only.
    single = graph.add("Cast", graph.add("Mul", z, graph.number(np.sqrt(0.5))), to=1)
    erf = graph.doubles(graph.add("Erf", single))
    return graph.add("Mul", z, graph.add("Mul", graph.add("Add", erf, graph.number(1.0)), graph.number(0.5)))
