"""``m_drift(src)``: how far rows are from those that a model was trained on, as SQL over what is stored of these.

With shares p then and q now of the same parts, the population stability index is Σ (q − p)·ln(q/p), each share at least
``_LEAST``. Parts of numbers end at stored quantiles, those of categories are the stored ones and all others. The
Kolmogorov-Smirnov distance is the greatest difference between the shares of values up to a quantile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.numbers.time_step import Step
from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.routed import (
    BEST,
    GROUP,
    ROWS,
    group_of_level,
    item_alias,
    level_sql,
    rows_cte,
)
from grouplearn.models.outputs.output import Endpoint, Output, StoredModel
from grouplearn.sqltext import identifier, literal

#: Shares count as at least this: the logarithm of 0 is infinite.
_LEAST = "0.0001"
_PLACED, _KNOWN, _VALUES, _COUNTED, _NUMBERS, _CATEGORIES = (
    f"__grouplearn_{name}" for name in ("placed", "known", "values", "counted", "numbers", "categories")
)
#: Where parts of numbers end, and the shares up to there. If many values are the least one, what is below it is a part, too.
_ENDS = "CASE WHEN low = quantiles[1] THEN list_prepend(nextafter(low, '-inf'::DOUBLE), quantiles) ELSE quantiles END"
_SHARES = "CASE WHEN low = quantiles[1] THEN list_prepend(0.0, shares) ELSE shares END"


def is_profiled(item: Item) -> bool:
    """Return whether the values of an item are described: numbers and categories.

    Lists and arrays have many values in a row, hashes have no names, and the steps of a series always go on.
    """
    return item.is_named or (item.is_number and item.encoder != Step.name)


def profiled(definition: ModelDefinition, kind: str) -> Iterator[int]:
    """Yield the places, from 0, of the described items that are numbers, or those that are categories."""
    items = [each.item for each in definition.items]
    of_kind = [item.is_number if kind == "numeric" else item.is_named for item in items]
    return (place for place, item in enumerate(items) if of_kind[place] and is_profiled(item))


def feature_sql(definition: ModelDefinition, place: str) -> str:
    """Return the SQL of the name of the item at a place, from 1."""
    return f"([{', '.join(literal(entry.item.name) for entry in definition.items)}]::VARCHAR[])[{place}]"


def _drift_sql(model: StoredModel, relation: str) -> str:
    """Return the SELECT of a row per group and described item, with what ``relation`` has of it."""
    definition = cast(ModelDefinition, model.definition)
    ctes = [
        rows_cte(definition, relation, "1 AS __grouplearn_row_of_source", listed=False),
        f"{BEST} AS (SELECT * FROM {model.table('groups')} AND best IS NOT NULL)",
        f"{_PLACED} AS ({_placed(definition)})",
        f"{_KNOWN} AS (SELECT *, {_ENDS} AS ends, {_SHARES} AS upto FROM {model.table('profiles')})",
        f"{_NUMBERS} AS ({_of_numbers(list(profiled(definition, 'numeric')))})",
        *_of_categories(list(profiled(definition, "category"))),
    ]
    found = f"(FROM {_NUMBERS} UNION ALL BY NAME FROM {_CATEGORIES})"
    keys = "".join(f"{sql} AS {identifier(name)}, " for name, sql in definition.key_columns("g.keys"))
    return (
        f"WITH {', '.join(ctes)} SELECT {keys}{level_sql(definition, 'g.level')} AS model_level,"
        f" {feature_sql(definition, 'k.item')} AS feature,"
        " CASE WHEN k.categories IS NULL THEN 'number' ELSE 'category' END AS kind,"
        " k.n_rows AS rows_then, coalesce(f.rows_now, 0) AS rows_now,"
        " k.n_missing / k.n_rows AS missing_then, (f.rows_now - f.present) / f.rows_now AS missing_now, f.psi, f.ks, f.unseen"
        f" FROM {_KNOWN} AS k JOIN {BEST} AS g ON g.group_id = k.group_id"
        f" LEFT JOIN {found} AS f ON f.group_id = k.group_id AND f.item = k.item"
        f" WHERE {model.reachable} IS NULL AND {_described(definition)} ORDER BY g.level ASC, g.group_id ASC, k.item ASC"
    )


def _described(definition: ModelDefinition) -> str:
    """Return SQL that is true, or raises if no feature is described."""
    message = (
        f"too little is stored of what the features of model {definition.name} were like: TRAIN ... WITH (profile = true)"
        " describes numbers and categories"
    )
    known = "count(*) FILTER (quantiles IS NOT NULL OR categories IS NOT NULL) > 0"
    return f"(SELECT CASE WHEN {known} THEN true ELSE error({literal(message)}) END FROM {_KNOWN})"


def _placed(definition: ModelDefinition) -> str:
    """Return the query of rows, each once for every group that it belongs to."""
    parts = []
    for level in range(len(definition.sets)):
        group, join = group_of_level(definition, BEST, level)
        parts.append(f"SELECT r.*, {group} AS {GROUP} FROM {ROWS} AS r {join}")
    return f"SELECT * FROM ({' UNION ALL '.join(parts)}) WHERE {GROUP} IS NOT NULL"


def _values(places: Sequence[int], kind: str) -> str:
    """Return the query of the values of some items as rows: ``group_id``, ``item`` and ``value``."""
    numbers = ", ".join(str(place + 1) for place in places)
    values = ", ".join(map(item_alias, places))
    lists = f"unnest([{numbers}]::INTEGER[]) AS item, unnest([{values}]::{kind}[]) AS value"
    return f"SELECT {GROUP} AS group_id, {lists} FROM {_PLACED}"


def _of_numbers(places: Sequence[int]) -> str:
    """Return the query of what numbers are now: their shares up to the end of each part, by one histogram for all parts."""
    # DuckDB's histogram has one more part, of what is above.
    counted = (
        "SELECT v.group_id, v.item, count(*) AS rows_now, count(*) FILTER (isfinite(v.value)) AS present,"
        " histogram(v.value, CASE WHEN len(k.ends) > 0 THEN k.ends ELSE [0.0] END) FILTER (isfinite(v.value)) AS parts,"
        f" any_value(k.ends) AS ends, any_value(k.upto) AS upto FROM ({_values(places, 'DOUBLE')}) AS v"
        f" JOIN {_KNOWN} AS k ON k.group_id = v.group_id AND k.item = v.item GROUP BY v.group_id, v.item"
    )
    summed = "list_transform(ends, lambda e, i: list_sum(map_values(parts)[1:i]) / present)"
    shares = f"SELECT *, {summed} AS now FROM ({counted})"
    bounded = f"SELECT *, list_concat([0.0], upto, [1.0]) AS p, list_concat([0.0], now, [1.0]) AS q FROM ({shares})"
    each = _index("p[i + 1] - p[i]", "q[i + 1] - q[i]")
    return (
        "SELECT group_id, item, rows_now, present, CASE WHEN len(ends) > 0 AND present > 0"
        f" THEN list_sum(list_transform(range(1, len(p)), lambda i: {each})) END AS psi,"
        " CASE WHEN present > 0 THEN list_max(list_transform(now, lambda q, i: abs(q - upto[i]))) END AS ks"
        f" FROM ({bounded})"
    )


def _of_categories(places: Sequence[int]) -> Iterator[str]:
    """Yield the CTEs of what categories are now."""
    yield (
        f"{_VALUES} AS (SELECT group_id, item, value, count(*) AS n FROM ({_values(places, 'VARCHAR')})"
        " GROUP BY group_id, item, value)"
    )
    yield (
        f"{_COUNTED} AS (SELECT group_id, item, sum(n)::BIGINT AS rows_now,"
        f" coalesce(sum(n) FILTER (value IS NOT NULL), 0)::BIGINT AS present FROM {_VALUES} GROUP BY group_id, item)"
    )
    listed = (
        "SELECT group_id, item, n_rows - n_missing AS known, unnest(categories) AS value, unnest(counts) AS n,"
        f" unnest(range(len(counts))) AS place FROM {_KNOWN}"
    )
    shares = (
        "SELECT c.group_id, c.item, l.place, l.n / l.known AS p, coalesce(v.n, 0) / nullif(c.present, 0) AS q"
        f" FROM {_COUNTED} AS c JOIN ({listed}) AS l ON l.group_id = c.group_id AND l.item = c.item"
        f" LEFT JOIN {_VALUES} AS v ON v.group_id = c.group_id AND v.item = c.item AND v.value = l.value"
    )
    index = _index("p", "q")
    rest = (
        f"SELECT group_id, item, sum({index} ORDER BY place) AS psi, 1 - sum(p ORDER BY place) AS p,"
        f" 1 - sum(q ORDER BY place) AS q FROM ({shares}) GROUP BY group_id, item"
    )
    # The rest is no part where neither has any of it.
    psi = f"SELECT group_id, item, psi + CASE WHEN greatest(p, q) > 1e-9 THEN {index} ELSE 0 END AS psi FROM ({rest})"
    numbers = ", ".join(str(place + 1) for place in places)
    lists = ", ".join(f"categories[{place + 1}]" for place in places)
    seen = (
        "SELECT group_id, item, unnest(seen) AS value FROM (SELECT group_id,"
        f" unnest([{numbers}]::INTEGER[]) AS item, unnest([{lists}]::VARCHAR[][]) AS seen FROM {BEST})"
    )
    unseen = (
        "SELECT v.group_id, v.item, coalesce(sum(v.n) FILTER (s.value IS NULL), 0)::BIGINT AS n"
        f" FROM {_VALUES} AS v LEFT JOIN ({seen}) AS s ON s.group_id = v.group_id AND s.item = v.item AND s.value = v.value"
        " WHERE v.value IS NOT NULL GROUP BY v.group_id, v.item"
    )
    yield (
        f"{_CATEGORIES} AS (SELECT c.*, p.psi, u.n / nullif(c.present, 0) AS unseen FROM {_COUNTED} AS c"
        f" LEFT JOIN ({psi}) AS p ON p.group_id = c.group_id AND p.item = c.item"
        f" LEFT JOIN ({unseen}) AS u ON u.group_id = c.group_id AND u.item = c.item)"
    )


def _index(then: str, now: str) -> str:
    """Return the SQL of a part's summand of the population stability index."""
    p, q = (f"greatest({share}, {_LEAST})" for share in (then, now))
    return f"({q} - {p}) * ln({q} / {p})"


#: The macro of every model that compares rows with those of its training.
DRIFT = Endpoint(
    "_drift",
    (("src", None),),
    "How the values of each feature in a table differ from those that each group was trained on.",
    predicts=False,
    reads=True,
    select=_drift_sql,
)


def endpoints_of(output: Output) -> tuple[Endpoint, ...]:
    """Return the macros of models with such an output."""
    return (*output.endpoints, DRIFT)
