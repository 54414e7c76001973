"""What a model reads rows with: where items stand in a row's line of numbers, its groups by their keys, its categories.

A category is its place in its group's list. So a line is as wide for every group: numbers, then places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.dataset import FloatArray
from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.kernels.scoring import LANES
from grouplearn.prediction.rows.known_values import Codes, KnownValues
from grouplearn.prediction.rows.routes import Routes

#: The places of categories of all groups are one table of at most so many entries; of more, sorted pairs are searched.
_MOST = 1 << 22


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each item of a model begins in a row's line: numbers, filled up to lots of ``LANES``, then categories."""

    starts: tuple[int, ...]
    n_numbers: int
    width: int

    @classmethod
    def of(cls, definition: ModelDefinition) -> Layout:
        """Return the layout: numeric items in their order, ordinal places and arrays, and last one-hot and hashed items."""
        items = [entry.item for entry in definition.items]
        later = [number for number, item in enumerate(items) if encoder_of(item).role == "indicator"]
        numeric = [number for number, item in enumerate(items) if item.kind == "numeric"]
        between = [number for number in range(len(items)) if number not in {*later, *numeric}]
        starts, at = [0] * len(items), 0
        for number in (*numeric, *between):
            starts[number] = at
            at += items[number].buckets if items[number].kind == "array" else 1
        n_numbers = -(-at // LANES) * LANES
        for place, number in enumerate(later):
            starts[number] = n_numbers + place
        return cls(tuple(starts), n_numbers, n_numbers + len(later))


class Places:
    """The place of each category in the list of each group, given the categories of all groups in one list."""

    def __init__(self, lists: Sequence[tuple[str, ...]]) -> None:
        apart: dict[tuple[str, ...], int] = {}
        self._list = np.array([apart.setdefault(own, len(apart)) for own in lists], dtype=np.int64)
        self.categories = sorted({category for own in apart for category in own})
        number = {category: place for place, category in enumerate(self.categories)}
        self._width = len(self.categories) + 1
        pairs = np.array([place * self._width + number[text] for own, place in apart.items() for text in own], np.int64)
        at = np.array([position for own in apart for position in range(len(own))], dtype=np.float64)
        self._table: FloatArray | None = None
        if len(apart) * self._width <= _MOST or not len(pairs):
            self._table = np.full(len(apart) * self._width, np.nan)
            self._table[pairs] = at
        order = np.argsort(pairs, kind="stable")
        self._pairs, self._at = pairs[order], at[order]

    def of(self, group: Codes, codes: Codes) -> FloatArray:
        """Return the place of each row's category in the list of its group, NaN where it is not there."""
        known = (group >= 0) & (codes >= 0)
        pairs = np.where(known, self._list[group] * self._width + codes, self._width - 1)
        if self._table is not None:
            found: FloatArray = self._table[pairs]
            return found
        at = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        return np.where(self._pairs[at] == pairs, self._at[at], np.nan)


class WidePlaces:
    """The place of each column of a wide item among those of each group, by their numbers."""

    def __init__(self, fitted: Sequence[FittedItem], columns: int) -> None:
        self._columns = columns
        self._pairs = np.concatenate([np.int64(group) * columns + own.numbers for group, own in enumerate(fitted)])
        self._starts = np.concatenate([[0], np.cumsum([own.width for own in fitted])])

    def of(self, group: Codes, numbers: Codes) -> FloatArray:
        """Return the place of each row's column, -1 for none, among those of its group, NaN where it is not there."""
        pairs = np.where((group >= 0) & (numbers >= 0), group.astype(np.int64) * self._columns + numbers, -1)
        at = np.searchsorted(self._pairs, pairs)
        found = np.append(self._pairs, -2)[at] == pairs
        return np.where(found, at - self._starts[group], np.nan)


@dataclass(frozen=True, slots=True)
class Categories:
    """The categories of an item: places in the lists of groups, and the categories as texts and as values of a column.

    ``values`` is None where only DuckDB says which text a value of the column is.
    """

    places: Places
    texts: KnownValues
    values: KnownValues | None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the rows of a model are read with: its layout, the groups by their keys, the categories of each item, and the columns
    of wide ones."""

    definition: ModelDefinition
    layout: Layout
    routes: Routes
    categories: Mapping[int, Categories]
    wide: Mapping[int, WidePlaces]

    @classmethod
    def of(
        cls,
        definition: ModelDefinition,
        levels: Sequence[int],
        keys: Sequence[tuple[str | None, ...]],
        fitted: Sequence[tuple[FittedItem, ...]],
        cursor: duckdb.DuckDBPyConnection,
    ) -> Vocabulary | None:
        """Return what reads rows for groups of these levels, keys and items; None where only DuckDB can."""
        if any(entry.item.is_list for entry in definition.items):  # a line has as many numbers as another
            return None
        routes = Routes.of(definition, levels, keys, cursor)
        if routes is None or not levels:
            return None
        categories = {}
        for number, entry in enumerate(definition.items):
            if entry.item.kind == "category":
                places = Places([own[number].categories for own in fitted])
                values = None if entry.type is None else KnownValues.of(places.categories, entry.type, cursor)
                texts = KnownValues(pa.array(places.categories, pa.string()))
                categories[number] = Categories(places, texts, values)
        wide = {
            number: WidePlaces([own[number] for own in fitted], entry.item.buckets)
            for number, entry in enumerate(definition.items)
            if entry.item.kind == "hash" and encoder_of(entry.item).wide
        }
        return cls(definition, Layout.of(definition), routes, categories, wide)
