"""Prediction by small networks as one SELECT: a layer is a list of units, each a dot product of lists."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.catalog.records import ItemColumn, ModelDefinition
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.prediction.forms.items import (
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
from grouplearn.prediction.forms.routed import (
    BEST,
    ENCODED,
    GROUP,
    PARAMETERS,
    SCORED,
    CatalogTables,
    Extra,
    item_alias,
    linked,
    reachable,
    routed_cte,
    rows_cte,
    score_sql,
    sortable_row,
    sum_sql,
)

_LAYERS = "__grouplearn_layers"


def layers_select(
    definition: ModelDefinition,
    model: str,
    relation: str,
    catalog_tables: CatalogTables,
    depth: int,
    extras: Sequence[Extra] = (),
) -> str:
    """Return the SELECT that predicts with networks; columns as in ``linear_select``.

    ``depth`` is the most layers of a network; networks with fewer finish earlier. Numbers enter as a list, a category as
    the list of its contributions to the units of the first layer.
    """
    layers = f"SELECT * FROM {catalog_tables('layers')} WHERE model = '{model}'::UUID"
    ctes = [
        rows_cte(definition, relation, sortable_row(extras), extras, listed(definition)),
        groups_cte(model, catalog_tables),
        routed_cte(definition, BEST, reachable(definition, model, catalog_tables)),
        f"{_LAYERS} AS ({layers})",
        _parameters(definition, depth),
        encoded_cte(definition, finite=True),
        _scored(definition, depth),
    ]
    return f"WITH {', '.join(ctes)} {linked(definition, extras)}"


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
