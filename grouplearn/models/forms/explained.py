"""``m_explain(src, top := 3)``: what each FEATURES item adds to the score of each row, as rows: its largest contributions.

``baseline`` and all contributions of a row add up to its score: the number itself, the log of a mean, the log odds of the
positive class, or the score of the predicted one of several classes.
"""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.models.definition import ROW, ModelDefinition
from grouplearn.models.forms.routed import Extra, ModelTables
from grouplearn.models.metrics.judging import whole_parameter
from grouplearn.models.outputs.output import PLACE, SOURCE
from grouplearn.sqltext import identifier, literal

#: The columns of an explained row: its score, the baseline, the list of contributions, and the method.
SCORE, BASELINE, ADDED, METHOD = (f"__grouplearn_{name}" for name in ("score", "baseline", "added", "method"))
#: The list of the items' values as text.
VALUES = "__grouplearn_values"
_EACH, _TOP, _SHOWN = (f"__grouplearn_{name}" for name in ("each", "top", "shown"))
_OTHERS = "(others)"


def values_sql(definition: ModelDefinition) -> str:
    """Return the SQL of the list of a row's items as text."""
    texts = (f"CAST(({entry.expression}\n) AS VARCHAR)" for entry in definition.items)
    return f"[{', '.join(texts)}]::VARCHAR[]"


def explained_by_function(definition: ModelDefinition, call: str, relation: str, extras: Sequence[Extra]) -> str:
    """Return the query of explained rows of ``relation`` through a function; ``call`` is its call for one row."""
    columns = ", ".join(f"({extra.sql}\n) AS {identifier(extra.name)}" for extra in extras)
    inner = f"SELECT {columns}, {call} AS __grouplearn_p FROM {relation} AS {ROW}"
    names = ", ".join(identifier(extra.name) for extra in extras)
    p = "__grouplearn_p"
    return (
        f"SELECT {names}, CAST({p}.prediction AS {definition.label_type}) AS prediction, {p}.score AS {SCORE},"
        f" {p}.baseline AS {BASELINE}, {p}.added AS {ADDED}, {p}.method AS {METHOD}, {p}.model_level AS model_level"
        f" FROM ({inner})"
    )


def long_rows(model: ModelTables, explained: str, order: Sequence[int]) -> str:
    """Return the query of a row per source row and shown item, from the query of explained rows with ``SOURCE``, ``PLACE`` and
    ``VALUES``; ``order`` are the places of the items in the order of their contributions.

    Items beyond the parameter ``top`` are one row, ``(others)``. A row without a prediction has one row without an item.
    """
    definition = model.definition
    names = ", ".join(literal(definition.items[number].item.name) for number in order)
    places = ", ".join(str(number + 1) for number in order)
    entry = (
        f"{{size: -abs(c), place: ([{places}]::INTEGER[])[i], feature: ([{names}]::VARCHAR[])[i],"
        f" value: {VALUES}[([{places}]::INTEGER[])[i]], contribution: c}}"
    )
    each = f"CASE WHEN prediction IS NOT NULL THEN list_sort(list_transform({ADDED}, lambda c, i: {entry})) END"
    listed = f"SELECT *, {each} AS {_EACH}, {whole_parameter(model, 'top', nullable=True)} AS {_TOP} FROM ({explained})"
    rest = (
        f"{{size: 0.0::DOUBLE, place: 0::INTEGER, feature: {literal(_OTHERS)}, value: NULL::VARCHAR,"
        f" contribution: list_sum(list_transform({_EACH}[{_TOP} + 1:], lambda e: e.contribution))}}"
    )
    cut = f"CASE WHEN len({_EACH}) > {_TOP} THEN list_append({_EACH}[:{_TOP}], {rest}) ELSE {_EACH} END"
    every = f"coalesce({cut}, [NULL])"
    ranks = f"generate_subscripts({every}, 1) AS __grouplearn_rank"
    shown = f"SELECT *, unnest({every}) AS {_SHOWN}, {ranks} FROM ({listed})"
    known = "CASE WHEN prediction IS NOT NULL THEN {} END"
    return (
        f"SELECT unnest({SOURCE}), {PLACE} AS row_number, prediction, {known.format(SCORE)} AS score,"
        f" {known.format(BASELINE)} AS baseline, {_SHOWN}.feature AS feature, {_SHOWN}.value AS value,"
        f" {_SHOWN}.contribution AS contribution, {known.format(METHOD)} AS method, model_level FROM ({shown})"
        f" ORDER BY {PLACE} ASC, __grouplearn_rank ASC"
    )
