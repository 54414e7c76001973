"""Items of rows from the view of each row's group: numbers, and places of categories in the group's own list."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoders import Columns
from grouplearn.data.encoding.encoder import FittedItem
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.data.list_columns import lists_of
from grouplearn.models.forms.form import Layout
from grouplearn.prediction.rows.known_values import Codes, KnownValues
from grouplearn.prediction.rows.list_reader import PlacesOf, list_entries
from grouplearn.prediction.rows.row_reader import array_values, bucket_numbers
from grouplearn.prediction.rows.vocabulary import OwnPositions


class OwnColumns:
    """Makes rows' columns in the layout of ``Dataset``, with codes for the ``dictionaries`` of each row's group.

    ``fitted`` are each group's items.
    """

    def __init__(self, definition: ModelDefinition, fitted: Sequence[tuple[FittedItem, ...]]) -> None:
        self._definition, self._fitted = definition, fitted
        self._items = [entry.item for entry in definition.items]
        self._known: dict[int, tuple[KnownValues, OwnPositions]] = {}

    @cached_property
    def dictionaries(self) -> list[list[Sequence[str]]]:
        """For each group, the categories of each column of codes, then of lists."""
        places = {(item.is_list, item.column): number for number, item in enumerate(self._items) if not item.is_numeric}
        return [[own[number].categories for _, number in sorted(places.items())] for own in self._fitted]

    def of_lines(self, x: FloatArray) -> Columns:
        """Return lines of numbers, not yet encoded, in which categories are places already."""
        numeric, codes = _empty(self._items, len(x))
        for item, start in zip(self._items, Layout.of(self._definition).starts, strict=True):
            if item.numbers:
                numeric[:, item.column : item.column + item.numbers] = x[:, start : start + item.numbers]
            else:
                codes[:, item.column] = np.nan_to_num(x[:, start], nan=-1)
        return Columns(numeric, codes, None, ())

    def of_columns(self, columns: Sequence[Any], group: Codes) -> Columns:
        """Return evaluated items of rows of these groups: first all numbers as one list, if any, then the others."""
        numbers = [item.column for item in self._items if item.kind == "numeric"]
        others = [(number, item) for number, item in enumerate(self._items) if item.kind != "numeric"]
        n_rows = len(columns[0]) if columns else 0
        numeric, codes = _empty(self._items, n_rows)
        if numbers:
            values = columns[0].flatten().cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
            numeric[:, numbers] = values.reshape(n_rows, len(numbers))
        listed = []
        for (number, item), column in zip(others, columns[1:] if numbers else columns, strict=True):
            if item.kind == "array":
                numeric[:, item.column : item.column + item.buckets] = array_values(self._definition, item, column)
            elif item.kind == "binned":
                values = column.cast(pa.float64()).fill_null(np.nan)
                numeric[:, item.column] = values.to_numpy(zero_copy_only=False)
            elif item.kind == "hash":
                codes[:, item.column] = bucket_numbers(self._definition, item, column)
            elif item.is_list:
                listed.append(list_entries(self._definition, item, column, self._places_of(number, group)))
            else:
                codes[:, item.column] = self._placed(number, group, column.cast(pa.string()))
        return Columns(numeric, codes, lists_of(listed) if listed else None, ())

    def _places_of(self, number: int, group: Codes) -> PlacesOf:
        return lambda texts, counts: self._placed(number, np.repeat(group, counts), texts)

    def _placed(self, number: int, group: Codes, texts: Any) -> npt.NDArray[np.int32]:
        """Return the places of texts in the lists of their rows' groups; -1 for none, or without a group."""
        if not self._fitted:
            return np.full(len(texts), -1, np.int32)
        if number not in self._known:
            item = self._items[number]
            places = OwnPositions([own[number].categories for own in self._fitted], encoder_of(item).rest(item))
            self._known[number] = KnownValues(pa.array(places.categories, pa.string())), places
        known, places = self._known[number]
        return np.nan_to_num(places.of(group, known.codes(texts), texts), nan=-1).astype(np.int32)


def _empty(items: Sequence[Item], n_rows: int) -> tuple[FloatArray, npt.NDArray[np.int32]]:
    """Return numbers and codes of items in the layout of ``Dataset``, all missing."""
    n_numeric = max((item.column + item.numbers for item in items if item.numbers), default=0)
    n_codes = 1 + max((item.column for item in items if item.is_coded), default=-1)
    return np.full((n_rows, n_numeric), np.nan), np.full((n_rows, n_codes), -1, dtype=np.int32)
