"""Prediction by small networks as one SELECT: a layer is a list of units, each a scalar product of lists."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.catalog.predict_items import array_sql, encoders_sql, groups_cte, joined, number_sql, position_join
from grouplearn.catalog.predict_sql import (
    BEST,
    GROUP,
    PARAMETERS,
    ROUTED,
    SCORED,
    Extra,
    item_alias,
    linked,
    reachable,
    routed_cte,
    rows_cte,
    score_sql,
)
from grouplearn.catalog.records import ItemColumn, ModelDefinition
from grouplearn.learners.base import Task
from grouplearn.plan.definition import ROW
from grouplearn.sqltext import identifier

_LAYERS = "__grouplearn_layers"


def layers_select(
    definition: ModelDefinition,
    model: str,
    relation: str,
    catalog_tables: str,
    depth: int,
    extras: Sequence[Extra] = (),
) -> str:
    """Return the SELECT that predicts with networks; columns as in ``linear_select``.

    ``depth`` is the most layers of a network: one with fewer is done before. Numbers enter as a list, a category as the
    list of what it adds to each unit of the first layer.
    """
    layers = f"SELECT * FROM {catalog_tables}.layers WHERE model = '{model}'::UUID"
    ctes = [
        rows_cte(definition, relation, ROW, extras),
        groups_cte(model, catalog_tables),
        routed_cte(definition, BEST, reachable(definition, model, catalog_tables)),
        f"{_LAYERS} AS ({layers})",
        _parameters(definition, depth),
        _scored(definition, depth, extras),
    ]
    return f"WITH {', '.join(ctes)} {linked(definition, extras)}"


def _is_number(entry: ItemColumn) -> bool:
    return entry.item.encoder not in ("onehot", "hash")


def _parameters(definition: ModelDefinition, depth: int) -> str:
    picked = joined(_weights(entry, place) for place, entry in enumerate(definition.items, 1) if _is_number(entry))
    first = f"list_transform(l1.weights, lambda w: {picked}) AS w1, l1.bias AS b1"
    others = [f"l{layer}.weights AS w{layer}, l{layer}.bias AS b{layer}" for layer in range(2, depth + 1)]
    columns = ["g.group_id", "g.level", "g.classes", "l1.layers", "l1.activation", first, *others]
    joins = " ".join(
        f"LEFT JOIN {_LAYERS} AS l{layer} ON l{layer}.group_id = g.group_id AND l{layer}.layer = {layer}"
        for layer in range(1, depth + 1)
    )
    columns += encoders_sql(definition)
    return f"{PARAMETERS} AS (SELECT {', '.join(columns)} FROM {BEST} AS g {joins})"


def _weights(entry: ItemColumn, place: int) -> tuple[bool, str]:
    """Return a unit's weights of an item's numbers."""
    first = f"g.starts[{place}] + 1"
    if entry.item.kind == "array":
        return True, f"w[{first} : {first} + {entry.item.buckets - 1}]"
    return False, f"w[{first}]"


def _scored(definition: ModelDefinition, depth: int, extras: Sequence[Extra]) -> str:
    kept = [ROW, GROUP, *(identifier(extra.name) for extra in extras)]
    source = _inputs(definition, kept)
    for layer in range(1, depth + 1):
        source = f"SELECT *, {_affine(definition, layer)} AS z{layer} FROM ({source})"
        if layer < depth:
            source = f"SELECT *, {_activated(layer)} AS a{layer} FROM ({source})"
    source = f"SELECT *, {_last(depth)} AS z FROM ({source})"
    if definition.task is Task.MULTICLASS:
        outputs = [f"z[list_position(classes, {each})]" for each in range(len(definition.classes))]
    else:
        outputs = ["z[1]"]
    scores = [f"{score_sql([sql], definition.task)} AS __grouplearn_s{each}" for each, sql in enumerate(outputs)]
    return f"{SCORED} AS (SELECT {', '.join([*kept, 'level AS __grouplearn_level', *scores])} FROM ({source}))"


def _last(depth: int) -> str:
    """Return the outputs: those of the last layer of the network, where all numbers are known."""
    cases = " ".join(f"WHEN {layer} THEN z{layer}" for layer in range(1, depth + 1))
    return f"CASE WHEN known THEN CASE layers {cases} END END"


def _inputs(definition: ModelDefinition, kept: Sequence[str]) -> str:
    """Return rows with the network of their group, ``x`` of their numbers, whether all are ``known``, and ``e{item}``."""
    numbers, known, joins, columns = [], ["true"], [], []
    for number, entry in enumerate(definition.items):
        if not _is_number(entry):
            joins.append(_units_join(entry, number))
            columns.append(f"j{number}.units AS e{number}")
            continue
        if entry.item.kind == "category":
            joins.append(position_join(number))
        is_list, sql, is_known = _number(definition, number)
        numbers.append((is_list, sql))
        known.append(is_known)
    inputs = [f"{' AND '.join(known)} AS known", f"{joined(numbers)} AS x"]
    selected = ", ".join([*(f"r.{name}" for name in kept), "p.*", *inputs, *columns])
    return (
        f"SELECT {selected} FROM {ROUTED} AS r LEFT JOIN {PARAMETERS} AS p ON p.group_id = r.{GROUP} {' '.join(joins)}"
    )


def _number(definition: ModelDefinition, number: int) -> tuple[bool, str, str]:
    """Return whether an item is a list, its numbers, and whether they are known.

    list_dot_product refuses a NULL even in a row that a CASE leaves out, so what is missing is 0, and no CASE is around.
    """
    entry = definition.items[number]
    if entry.item.kind == "array":
        values, length = array_sql(definition, number), entry.item.buckets
        finite = f"list_transform({values}, lambda v: CASE WHEN isfinite(v) THEN v ELSE 0 END)"
        zeros = f"list_transform(range({length}), lambda v: CAST(0 AS DOUBLE))"
        known = f"coalesce(len(list_filter({values}, lambda v: isfinite(v))) = {length}, false)"
        return True, f"coalesce({finite}, {zeros})", known
    sql = f"j{number}.position" if entry.item.kind == "category" else number_sql(entry, number, finite=True)
    return False, f"coalesce({sql}, 0)", f"({sql} IS NOT NULL)"


def _units_join(entry: ItemColumn, number: int) -> str:
    """Return the join that finds what a category adds to each unit of the first layer."""
    count = str(entry.item.buckets) if entry.item.kind == "hash" else f"len(g.categories[{number + 1}])"
    value = f"range({count})" if entry.item.kind == "hash" else f"g.categories[{number + 1}]"
    each = (
        f"SELECT g.group_id, g.starts[{number + 1}] AS start, unnest({value}) AS value,"
        f" unnest(range({count})) AS position FROM {BEST} AS g"
    )
    units = "list_transform(l.weights, lambda w: w[c.start + c.position + 1])"
    source = f"SELECT c.group_id, c.value, {units} AS units FROM ({each}) AS c JOIN {_LAYERS} AS l"
    on = f"j{number}.group_id = r.{GROUP} AND j{number}.value = r.{item_alias(number)}"
    return f"LEFT JOIN ({source} ON l.group_id = c.group_id AND l.layer = 1) AS j{number} ON {on}"


def _affine(definition: ModelDefinition, layer: int) -> str:
    """Return the units before their activation; NULL beyond the last layer of a network."""
    if layer > 1:
        return f"list_transform(w{layer}, lambda w, i: b{layer}[i] + list_dot_product(w, a{layer - 1}))"
    terms = ["b1[i]"]
    if any(map(_is_number, definition.items)):
        terms.append("list_dot_product(w, x)")
    terms += [f"coalesce(e{number}[i], 0)" for number, entry in enumerate(definition.items) if not _is_number(entry)]
    return f"list_transform(w1, lambda w, i: {' + '.join(terms)})"


def _activated(layer: int) -> str:
    cases = " ".join(f"WHEN '{name}' THEN {sql}" for name, sql in _ACTIVATIONS.items())
    return f"list_transform(z{layer}, lambda v: CASE activation {cases} END)"


def _polynomial(coefficients: Sequence[float]) -> str:
    """Return a polynomial in |v|, highest power first, by Horner's rule."""
    text = f"{coefficients[0]!r}::DOUBLE"
    for coefficient in coefficients[1:]:
        text = f"({text} * abs(v) + {coefficient!r}::DOUBLE)"
    return text


#: Φ(-|v|) to 15 digits, a ratio of polynomials times exp(-v²/2), and beyond 7.07 a continued fraction (J. F. Hart et al.,
#: Computer Approximations, 1968, 5666): DuckDB has no error function.
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
_TAIL = (
    "exp(-v * v / 2) * CASE WHEN abs(v) > 37 THEN 0"
    f" WHEN abs(v) < 7.07106781186547 THEN {_ABOVE} / {_BELOW} ELSE 1 / ({_FRACTION} * 2.506628274631) END"
)
_ACTIVATIONS = {
    "relu": "greatest(v, 0)",
    "tanh": "tanh(v)",
    "gelu": f"v * CASE WHEN v > 0 THEN 1 - {_TAIL} ELSE {_TAIL} END",
    "sigmoid": "1 / (1 + exp(-v))",
}
