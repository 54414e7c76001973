"""Scores of linear models: a weight for each number and category, and an intercept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from grouplearn.data.encoding.registry import encoder_of, widths_of
from grouplearn.models.dialects.databases import NotInDialect
from grouplearn.models.dialects.encoded_rows import ENCODED, GROUP, encode_rows, feature
from grouplearn.models.dialects.exported import ExportedModel
from grouplearn.models.dialects.scored import SCORED, score
from grouplearn.models.forms.form import GroupModel

#: The numbers of a group's units, their weights (k, d) and biases (k,).
Layer = Callable[[GroupModel], tuple[Sequence[int], Any, Any]]
#: Most joins of a query.
MOST_JOINS = 100


def linear_scores(model: ExportedModel) -> None:
    """Add the tables of weights, and the steps to rows with scores."""
    definition, query = model.definition, model.query
    encode_rows(model, finite=True, numbered=False)
    outputs = range(definition.output.n_scores)
    tables = weight_tables(model, _layer)
    joins, scores = [], []
    for output in outputs:
        joins += unit_joins(model, "r", tables, output)
        scores.append(query.added(score(output), weighted_sum(model, "r", output)))
    if len(joins) > MOST_JOINS:
        raise NotInDialect(
            f"the query would have {len(joins)} joins, one for each class and category, and {MOST_JOINS} are the most",
            "Export the model as onnx, or learn from fewer categories: numbers need no join.",
        )
    query.step(SCORED, f"SELECT r.*, {', '.join(scores)} FROM {ENCODED} AS r {' '.join(joins)}")


def _layer(group: GroupModel) -> tuple[Sequence[int], Any, Any]:
    """Return the outputs of a group, their weights (k, d) and intercepts (k,)."""
    weights = group.artifact.tensors["weights"]
    outputs = group.classes if len(weights) > 1 else (0,)
    return outputs, weights, group.artifact.tensors["intercept"]


def weight_tables(model: ExportedModel, layer: Layer) -> tuple[str, str]:
    """Add the tables of the weights of a layer's units, and return their names: for numbers a column each, and for categories a
    table of cells.

    A category of an item has, in a unit, the cell at its place after the unit's first of the item: a join by one number is fast
    in any database.
    """
    items = model.definition.items
    columns = [("group_id", "BIGINT"), ("unit", "BIGINT"), ("bias", "DOUBLE")]
    columns += [
        (f"weight_{at}", "DOUBLE") if is_number(entry) else (f"cells_{at}", "BIGINT")
        for at, entry in enumerate(items, start=1)
    ]
    units: list[Sequence[Any]] = []
    cells: list[tuple[int, float]] = []
    first = 0
    for group in model.groups:
        at = starts(group)
        numbers, weights, biases = layer(group)
        for place, unit in enumerate(numbers):
            row = [group.id, unit, biases[place]]
            for number, fitted in enumerate(group.fitted):
                own = weights[place][at[number] : at[number + 1]]
                if is_number(items[number]):
                    row.append(own[0])
                    continue
                places = encoder_of(fitted.item).numbers(fitted).tolist()
                cells += zip((first + each for each in places), own.tolist(), strict=True)
                row.append(first)
                first += max(fitted.item.buckets, len(places))
            units.append(row)
    table = model.table("weights", columns, units)
    if all(map(is_number, items)):
        return table, ""
    return table, model.table("category_weights", [("cell", "BIGINT"), ("weight", "DOUBLE")], cells)


def starts(group: GroupModel) -> list[int]:
    """Return the first feature column of each item."""
    return [0, *accumulate(widths_of(group.fitted))]


def is_number(entry: Any) -> bool:
    """Return whether an item is one number, not 0s and a 1."""
    return encoder_of(entry.item).role != "indicator"


def unit_joins(model: ExportedModel, row: str, tables: tuple[str, str], unit: int | None) -> list[str]:
    """Return the joins of rows with the weights of a unit; None for all units of their group."""
    weights, categories = tables
    kind, of = ("JOIN", "w") if unit is None else ("LEFT JOIN", f"w{unit}")
    own = "" if unit is None else f" AND {of}.unit = {unit}"
    joins = [f"{kind} {weights} AS {of} ON {of}.group_id = {row}.{GROUP}{own}"]
    for number, entry in enumerate(model.definition.items):
        if not is_number(entry):
            name = _category(number, unit)
            cell = f"{of}.cells_{number + 1} + {row}.{feature(number)}"
            joins.append(f"LEFT JOIN {categories} AS {name} ON {name}.cell = {cell}")
    return joins


def _category(number: int, unit: int | None) -> str:
    return f"c{number + 1}" if unit is None else f"c{number + 1}_{unit}"


def weighted_sum(model: ExportedModel, row: str, unit: int | None) -> str:
    """Return the SQL of a unit's bias and weighted features, with the joins of ``unit_joins``."""
    of = "w" if unit is None else f"w{unit}"
    terms = [f"{of}.bias"]
    for number, entry in enumerate(model.definition.items):
        if is_number(entry):
            terms.append(f"{row}.{feature(number)} * {of}.weight_{number + 1}")
        else:
            terms.append(f"COALESCE({_category(number, unit)}.weight, 0)")
    return " + ".join(terms)
