"""Lists in rows to predict, read like those of training rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.catalog.checks.damage import damaged, shown
from grouplearn.catalog.records import ModelDefinition
from grouplearn.data import list_columns
from grouplearn.data.dataset import Item
from grouplearn.data.encoding.lists.sparse import OUTSIDE
from grouplearn.data.list_columns import Opened
from grouplearn.errors import data_error

#: Finds the places of texts in the category lists of their rows' groups, given the number of texts per row.
PlacesOf = Callable[[Any, npt.NDArray[np.int64]], npt.NDArray[np.int32]]


def list_entries(definition: ModelDefinition, item: Item, column: Any, places: PlacesOf) -> Opened:
    """Return the entries of a list item; raises DataError.

    The expression that makes the list comes with the model, so its result is checked.
    """
    if pa.types.is_null(column.type):  # NULL without a type, as in `{words: NULL}`: no entries
        return np.zeros(len(column), np.int64), np.empty(0, np.int32), np.empty(0) if item.kind == "entries" else None
    try:
        counts, flat = list_columns.lengths(column), list_columns.elements(column)
        if item.kind == "categories":
            return counts, places(flat.cast(pa.string()), counts), None
        if item.kind == "hashes":
            return counts, _buckets(definition, item, list_columns.whole_numbers(flat)), None
        index, values = list_columns.indexed(flat)
    except (pa.ArrowException, AttributeError, ValueError):
        raise _damaged(definition, item, f"is a list of {item.kind}, and its expression gives {column.type}") from None
    return counts, _checked(definition, item, counts, index, values), values


def _buckets(definition: ModelDefinition, item: Item, found: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    if found.size and not -1 <= found.min() <= found.max() < item.buckets:
        raise _damaged(definition, item, f"has {item.buckets:,} buckets, and its expression gives others")
    return found.astype(np.int32)


def _checked(
    definition: ModelDefinition,
    item: Item,
    counts: npt.NDArray[np.int64],
    index: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
) -> npt.NDArray[np.int32]:
    """Return indices that are valid columns and distinct within a row; errors use the words of ``validation_sql``."""
    rows = np.repeat(np.arange(counts.size), counts)
    flaw = None
    if np.isnan(values).any() or (index == -2).any():
        flaw = "NULL or NaN in a list, or lists of different length"
    elif ((index < 0) | (index >= item.buckets)).any():
        flaw = f"{OUTSIDE} from 1 to {item.buckets:,}"
    elif np.unique(rows * item.buckets + index).size < index.size:
        flaw = "an index twice"
    elif np.isinf(values).any():
        flaw = "a value that is NaN or infinite"
    if flaw is not None:
        raise data_error(f'model "{definition.name}" cannot read these rows: the lists of "{item.name}" have {flaw}')
    return index.astype(np.int32)


def _damaged(definition: ModelDefinition, item: Item, why: str) -> Exception:
    return damaged(definition.catalog, definition.name, "models", f"item {shown(item.name)} {why}")
