"""What each item adds to the score of a linear model, as one SELECT: w·(x - mean of x over the rows of the group's training).

Means are those of ``profiles``. A hash, a list and an array are not described there and count from 0, as does everything where
nothing is stored.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from grouplearn.data.encoding.registry import encoder_of
from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.drift import is_profiled
from grouplearn.models.forms.explained import ADDED, BASELINE, METHOD, SCORE
from grouplearn.models.forms.items import encoded_cte, encoders_sql, inputs_sql, is_number, listed, numbers, picked_sql
from grouplearn.models.forms.linear.weights import (
    joins_sql,
    known_sql,
    linked_sql,
    place_sql,
    weights_of_values,
    weights_sql,
)
from grouplearn.models.forms.routed import (
    BEST,
    ENCODED,
    LEVEL,
    NUMBERED_ROW,
    PARAMETERS,
    SCORED,
    Extra,
    PredictedRows,
    best_cte,
    linked,
    reachable,
    routed_cte,
    rows_cte,
)
from grouplearn.sqltext import literal

_KNOWN, _MEANS, _ADDED = (f"__grouplearn_{name}" for name in ("known", "means", "each"))
_X, _MEAN = "__grouplearn_x", "__grouplearn_mean"


def explained_select(rows: PredictedRows) -> str:
    """Return the SELECT of the columns of ``explained``, beside the group, the extras and the output's columns."""
    definition = rows.definition
    outputs = range(definition.output.n_scores)
    apart = any(entry.item.is_list for entry in definition.items)
    ctes = [
        rows_cte(definition, rows.relation, NUMBERED_ROW, rows.extras, listed(definition)),
        best_cte(rows),
        routed_cte(definition, BEST, reachable(rows), "MATERIALIZED " if apart else ""),
        f"{_KNOWN} AS (SELECT * FROM {rows.table('profiles')})",
        f"{_MEANS} AS ({_means(definition)})",
        _parameters(definition, outputs),
        encoded_cte(definition, finite=True),
        f"{_ADDED} AS ({_added(definition, outputs)})",
        f"{SCORED} AS ({_scored(definition, outputs)})",
    ]
    columns = (Extra(name, "") for name in (SCORE, BASELINE, ADDED, METHOD))
    return f"WITH {', '.join(ctes)} {linked(replace(rows, extras=[*rows.extras, *columns]))}"


def order(definition: ModelDefinition) -> list[int]:
    """Return the places of the items in the order of their contributions: numbers, then all others."""
    return [*numbers(definition), *_others(definition)]


def _others(definition: ModelDefinition) -> list[int]:
    return [number for number, entry in enumerate(definition.items) if not is_number(entry)]


def _means(definition: ModelDefinition) -> str:
    """Return the query of the means of encoded numbers by group: a map from the places of items."""
    described = [number for number in numbers(definition) if is_profiled(definition.items[number].item)]
    at = f"k.item IN ({', '.join(str(number + 1) for number in described) or 'NULL'})"
    fill, center, scale = (f"g.{name}[k.item]" for name in ("fills", "centers", "scales"))
    filled = f"(coalesce(k.mean, 0) * (k.n_rows - k.n_missing) + {fill} * k.n_missing) / k.n_rows"
    number = f"(CASE WHEN {fill} IS NULL THEN k.mean ELSE {filled} END - coalesce({center}, 0)) / coalesce({scale}, 1)"
    place = "list_position(g.categories[k.item], c)"
    value = f"coalesce(g.category_values[k.item][{place}], {fill}, {place} - 1)"  # only encodings that are numbers have a fill
    of_categories = f"list_sum(list_transform(k.categories, lambda c, i: {value} * k.counts[i])) / list_sum(k.counts)"
    mean = f"CASE WHEN k.categories IS NULL THEN {number} ELSE {of_categories} END"
    return (
        f"SELECT k.group_id, map_from_entries(list({{key: k.item, value: {mean}}})) AS means"
        f" FROM {_KNOWN} AS k JOIN {BEST} AS g ON g.group_id = k.group_id WHERE {at} GROUP BY k.group_id"
    )


def _parameters(definition: ModelDefinition, outputs: range) -> str:
    """Return the CTE of groups with their encoders, and each output's intercept and weights of numbers."""
    columns = [
        "b.group_id AS __grouplearn_id",
        f"best AS __grouplearn_config, level AS {LEVEL}",
        *encoders_sql(definition, finite=True),
    ]
    chosen = numbers(definition)
    for output in outputs:
        columns.append(f"intercept[{place_sql(definition, output)}] AS __grouplearn_b{output}")
        if chosen:
            picked = picked_sql(definition, chosen, weights_sql(definition, output), "")
            columns.append(
                f"(CASE WHEN {known_sql(definition, output)} THEN {picked} END)[:] AS __grouplearn_w{output}"
            )
    columns += [f"flatten([{', '.join(_mean_pieces(definition))}]) AS {_MEAN}"] if chosen else []
    described = any(is_profiled(entry.item) for entry in definition.items)
    known = "CASE WHEN d.group_id IS NULL THEN 'linear, from 0' ELSE 'linear' END" if described else "'linear, from 0'"
    columns.append(f"{known} AS {METHOD}")
    joins = f" LEFT JOIN (SELECT DISTINCT group_id FROM {_KNOWN}) AS d ON d.group_id = b.group_id"
    joins += f" LEFT JOIN {_MEANS} AS m ON m.group_id = b.group_id"
    for number in _others(definition):
        if is_profiled(definition.items[number].item):
            columns += [f"coalesce(m{number}.m{output}, 0) AS __grouplearn_m{number}_{output}" for output in outputs]
            joins += f" LEFT JOIN ({_mean_weights(definition, number, outputs)}) AS m{number} ON m{number}.group_id = b.group_id"
    return f"{PARAMETERS} AS (SELECT {', '.join(columns)} FROM {BEST} AS b{joins})"


def _mean_pieces(definition: ModelDefinition) -> list[str]:
    """Return lists of the means of numbers; one that is not described counts from 0."""
    pieces = []
    for number in numbers(definition):
        item = definition.items[number].item
        zeros = f"list_transform(range({item.buckets if item.kind == 'array' else 1}), lambda i: 0.0::DOUBLE)"
        pieces.append(f"[coalesce(m.means[{number + 1}], 0)]" if is_profiled(item) else zeros)
    return pieces


def _mean_weights(definition: ModelDefinition, number: int, outputs: range) -> str:
    """Return the query of the mean contribution of an item's categories by group: shares times weights."""
    own = f"SELECT * FROM {_KNOWN} WHERE item = {number + 1}"
    shares = f"SELECT group_id, unnest(categories) AS value, unnest(counts) / n_rows AS share FROM ({own})"
    weights = weights_of_values(definition, number, outputs)
    sums = ", ".join(f"sum(s.share * w.w{output}) AS m{output}" for output in outputs)
    joined = f"SELECT w.group_id, {sums}, sum(s.share) AS known FROM ({weights}) AS w JOIN ({shares}) AS s"
    found = f"{joined} ON s.group_id = w.group_id AND s.value = w.value GROUP BY w.group_id"
    rest = encoder_of(definition.items[number].item).rest(definition.items[number].item)
    if rest is None:
        return found
    # All rows but those of listed categories, and those without any, have the one that stands for the rest.
    unlisted = "(1 - k.n_missing / k.n_rows - coalesce(f.known, 0))"
    with_rest = ", ".join(
        f"coalesce(f.m{each}, 0) + coalesce({unlisted} * w.w{each}, 0) AS m{each}" for each in outputs
    )
    return (
        f"SELECT k.group_id, {with_rest} FROM ({own}) AS k LEFT JOIN ({found}) AS f ON f.group_id = k.group_id"
        f" LEFT JOIN (SELECT * FROM ({weights}) WHERE value = {literal(rest)}) AS w ON w.group_id = k.group_id"
    )


def _added(definition: ModelDefinition, outputs: range) -> str:
    """Return the query of rows with each output's contributions ``c``, in the order of ``order``, and its baseline."""
    chosen = numbers(definition)
    source = f"FROM {ENCODED} AS r {' '.join(joins_sql(definition, outputs))}"
    others = {
        output: [_of_category(definition, number, output) for number in _others(definition)] for output in outputs
    }
    inputs = [f"{inputs_sql(definition, chosen, finite=True)} AS {_X}"] if chosen else []
    lists = [f"[{', '.join(others[output])}]::DOUBLE[] AS __grouplearn_o{output}" for output in outputs]
    columns = ", ".join(["r.*", *inputs, *lists])
    found = []
    for output in outputs:
        added, base = f"__grouplearn_o{output}", [f"__grouplearn_b{output}"]
        if chosen:
            added = f"list_concat({_of_numbers(definition, output)}, {added})"
            base.append(f"list_sum(list_transform({_MEAN}, lambda m, i: m * __grouplearn_w{output}[i]))")
        base += [
            f"__grouplearn_m{number}_{output}"
            for number in _others(definition)
            if is_profiled(definition.items[number].item)
        ]
        found += [f"{added} AS __grouplearn_c{output}", f"{' + '.join(base)} AS __grouplearn_a{output}"]
    return f"SELECT *, {', '.join(found)} FROM (SELECT {columns} {source})"


def _of_category(definition: ModelDefinition, number: int, output: int) -> str:
    """Return what an item that is not a number adds to an output."""
    mean = f" - r.__grouplearn_m{number}_{output}" if is_profiled(definition.items[number].item) else ""
    return f"coalesce(j{number}.w{output}, 0){mean}"


def _of_numbers(definition: ModelDefinition, output: int) -> str:
    """Return the list of what the numbers add to an output; an array's values together are one."""
    product = f"lambda x, i: (x - {_MEAN}[i]) * __grouplearn_w{output}[i]"
    each = f"list_transform({_X}, {product})"
    items = [definition.items[number].item for number in numbers(definition)]
    if all(item.kind != "array" for item in items):
        return each
    widths = [item.buckets if item.kind == "array" else 1 for item in items]
    ends = [*accumulate(widths)]
    sums = [f"list_sum(({each})[{end - width + 1}:{end}])" for width, end in zip(widths, ends, strict=True)]
    return f"[{', '.join(sums)}]"


def _scored(definition: ModelDefinition, outputs: range) -> str:
    """Return the query of rows with their scores, and the contributions to the score of what is predicted."""
    scores = [f"__grouplearn_a{output} + coalesce(list_sum(__grouplearn_c{output}), 0)" for output in outputs]
    if not definition.label.scores_classes:
        scores = [f"nullif({score}, 'nan'::DOUBLE)" for score in scores]
    raw = ", ".join(f"{score} AS __grouplearn_t{output}" for output, score in zip(outputs, scores, strict=True))
    source = f"SELECT *, {raw} FROM {_ADDED}"
    every = {name: f"[{', '.join(f'__grouplearn_{name}{output}' for output in outputs)}]" for name in "tac"}
    place = f"list_position({every['t']}, list_max({every['t']}))" if definition.label.scores_classes else "1"
    linked_scores = [
        f"{linked_sql(definition, f'r.__grouplearn_t{output}')} AS __grouplearn_s{output}" for output in outputs
    ]
    columns = [
        f"({every[name]})[{place}] AS {column}" for name, column in zip("tac", (SCORE, BASELINE, ADDED), strict=True)
    ]
    return f"SELECT r.*, {', '.join([*linked_scores, *columns])} FROM ({source}) AS r"
