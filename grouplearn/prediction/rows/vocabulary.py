"""What a model needs to read rows: the layout of a row's line of numbers, groups by their keys, categories.

A category is its place in its group's list, so that lines are equally wide for all groups: numbers, then places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.dataset import FloatArray
from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.categories.bins import GroupBins
from grouplearn.data.encoding.registry import encoder_of, widths_of
from grouplearn.models.forms.form import Layout
from grouplearn.prediction.rows.known_values import Codes, KnownValues
from grouplearn.prediction.rows.routes import Routes

#: Most entries of a table with all groups' category places; for more, sorted pairs are searched.
_MOST = 1 << 22


class OwnPositions:
    """Each category's place in each group's list, for categories of all groups in one list.

    ``rest`` is the category that stands for texts that a group does not list.
    """

    def __init__(self, lists: Sequence[tuple[str, ...]], rest: str | None = None) -> None:
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
        self._rest: FloatArray | None = None
        if rest is not None:
            self._rest = np.array([own.index(rest) if rest in own else np.nan for own in apart])

    def of(self, group: Codes, codes: Codes, texts: Any) -> FloatArray:
        """Return the place of each row's category in its group's list, NaN if it is not there; ``codes`` are those of ``texts``
        as read, a column."""
        found = self._listed(group, codes)
        if self._rest is None:
            return found
        other = np.isnan(found) & (group >= 0) & np.asarray(texts.is_valid())
        return np.where(other, self._rest[self._list[group]], found)

    def _listed(self, group: Codes, codes: Codes) -> FloatArray:
        known = (group >= 0) & (codes >= 0)
        pairs = np.where(known, self._list[group] * self._width + codes, self._width - 1)
        if self._table is not None:
            found: FloatArray = self._table[pairs]
            return found
        at = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        return np.where(self._pairs[at] == pairs, self._at[at], np.nan)


class WideOwnPositions:
    """Each column's place among a wide item's columns in each group, by column number."""

    def __init__(self, fitted: Sequence[FittedItem], columns: int) -> None:
        self._columns = columns
        self._pairs = np.concatenate(
            [np.int64(group) * columns + encoder_of(own.item).numbers(own) for group, own in enumerate(fitted)]
        )
        self._starts = np.concatenate([[0], np.cumsum(widths_of(fitted))])

    def of(self, group: Codes, numbers: Codes) -> FloatArray:
        """Return the place of each row's column (-1: none) among its group's, NaN if it is not there."""
        pairs = np.where((group >= 0) & (numbers >= 0), group.astype(np.int64) * self._columns + numbers, -1)
        at = np.searchsorted(self._pairs, pairs)
        found = np.append(self._pairs, -2)[at] == pairs
        return np.where(found, at - self._starts[group], np.nan)


@dataclass(frozen=True, slots=True)
class Categories:
    """An item's categories: places in the groups' lists, as texts and as values of a column.

    ``values`` is None if only DuckDB can tell a value's text.
    """

    places: OwnPositions
    texts: KnownValues
    values: KnownValues | None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a model's rows are read with: layout, groups by their keys, each item's categories or bins, and columns of wide
    items."""

    definition: ModelDefinition
    layout: Layout
    routes: Routes
    categories: Mapping[int, Categories]
    wide: Mapping[int, WideOwnPositions]
    bins: Mapping[int, GroupBins]

    @classmethod
    def of(
        cls,
        definition: ModelDefinition,
        levels: Sequence[int],
        keys: Sequence[tuple[str | None, ...]],
        fitted: Sequence[tuple[FittedItem, ...]],
        cursor: duckdb.DuckDBPyConnection,
    ) -> Vocabulary | None:
        """Return the reader for groups of these levels, keys and items; None if only DuckDB can read them."""
        if any(entry.item.is_list for entry in definition.items):  # lines have a fixed width
            return None
        routes = Routes.of(definition, levels, keys, cursor)
        if routes is None or not levels:
            return None
        categories = {}
        for number, entry in enumerate(definition.items):
            if entry.item.is_named:
                places = OwnPositions(
                    [own[number].categories for own in fitted], encoder_of(entry.item).rest(entry.item)
                )
                values = KnownValues.of(places.categories, entry.type, cursor)
                texts = KnownValues(pa.array(places.categories, pa.string()))
                categories[number] = Categories(places, texts, values)
        wide = {
            number: WideOwnPositions([own[number] for own in fitted], entry.item.buckets)
            for number, entry in enumerate(definition.items)
            if entry.item.kind == "hash" and encoder_of(entry.item).wide
        }
        bins = {
            number: GroupBins([own[number] for own in fitted])
            for number, entry in enumerate(definition.items)
            if entry.item.kind == "binned"
        }
        return cls(definition, Layout.of(definition), routes, categories, wide, bins)
