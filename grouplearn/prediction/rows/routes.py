"""Routes rows to the finest group with a model, by the values of their keys, as the macro's joins do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from grouplearn.catalog.records import ModelDefinition
from grouplearn.prediction.rows.known_values import Codes, KnownValues

#: Most entries of a table of all key combinations; for more, existing groups are searched.
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class _Level:
    """The groups of a grouping set: their places by key combination, as one number.

    ``dense``: an entry per combination, -1 if it is no group, and a final -1.
    """

    keys: tuple[int, ...]
    combinations: npt.NDArray[np.int64]
    places: Codes
    dense: bool

    def find(self, codes: Sequence[Codes], sizes: Sequence[int]) -> Codes:
        """Return the place of each row's group, -1 if there is none."""
        if self.dense and len(self.keys) == 1:
            own: Codes = self.places[codes[self.keys[0]]]  # -1 reads the last entry
            return own
        combined = np.zeros(len(codes[0]) if codes else 0, dtype=np.int64)
        unknown = np.zeros(len(combined), dtype=bool)
        for key in self.keys:
            combined = combined * sizes[key] + codes[key]
            unknown |= codes[key] < 0
        if self.dense:
            found: Codes = self.places[np.where(unknown, 0, combined)]
        else:
            at = np.minimum(np.searchsorted(self.combinations, combined), len(self.combinations) - 1)
            found = np.where(self.combinations[at] == combined, self.places[at], np.int32(-1))
        return np.where(unknown, np.int32(-1), found)


class Routes:
    """A model's groups by their keys as texts; results are places in the order of groups."""

    def __init__(self, definition: ModelDefinition, known: Sequence[KnownValues], sizes: Sequence[int]) -> None:
        self.known, self._sizes = tuple(known), tuple(sizes)
        self._levels: list[_Level] = []
        self._otherwise = np.int32(-1)
        self._must_have_one = definition.missing_group == "error"

    @classmethod
    def of(
        cls,
        definition: ModelDefinition,
        levels: Sequence[int],
        keys: Sequence[tuple[str | None, ...]],
        cursor: duckdb.DuckDBPyConnection,
    ) -> Routes | None:
        """Return the routes to groups of these levels and keys; None if only DuckDB can compare the keys."""
        known, numbers = [], []
        for place, key in enumerate(definition.keys):
            texts = sorted({own[place] for own in keys} - {None}, key=str)
            found = KnownValues.of([text for text in texts if text is not None], key.type, cursor)
            if found is None:
                return None
            known.append(found)
            numbers.append({text: number for number, text in enumerate([*texts, None])})
        sizes = [len(each) for each in numbers]
        made = cls(definition, known, sizes)
        wanted = range(len(definition.sets) if definition.missing_group == "parent" else 1)
        for level in wanted:
            own = definition.sets[level]
            members = [place for place, each in enumerate(levels) if each == level]
            if not own:
                made._otherwise = np.int32(members[0]) if members else made._otherwise
                break  # no level is coarser than all rows
            if math.prod(sizes[key] for key in own) >= 1 << 62:
                return None
            if members:
                codes = np.array([[numbers[key][keys[place][key]] for key in own] for place in members], dtype=np.int64)
                made._levels.append(_level(own, codes, [sizes[key] for key in own], members))
        return made

    def places(self, codes: Sequence[Codes], n_rows: int) -> Codes | None:
        """Return the place of each row's group, -1 for none; None if a row without a group is an error.

        ``codes`` are each key's codes from ``codes_with_null``.
        """
        found = self._levels[0].find(codes, self._sizes) if self._levels else np.full(n_rows, -1, dtype=np.int32)
        for level in self._levels[1:]:
            found = np.where(found < 0, level.find(codes, self._sizes), found)
        if self._otherwise >= 0:
            found = np.where(found < 0, self._otherwise, found)
        return None if self._must_have_one and (found < 0).any() else found


def codes_with_null(known: KnownValues, column: Any) -> Codes:
    """Return each value's code; NULL, which is a group of its own, follows the last known value."""
    codes = known.codes(column)
    if column.null_count:
        codes = np.where(np.asarray(column.is_null()), np.int32(known.count), codes)
    return codes


def _level(keys: tuple[int, ...], codes: npt.NDArray[np.int64], sizes: Sequence[int], members: Sequence[int]) -> _Level:
    combined = np.zeros(len(codes), dtype=np.int64)
    for place, size in enumerate(sizes):
        combined = combined * size + codes[:, place]
    places = np.array(members, dtype=np.int32)
    total = math.prod(sizes)
    if total <= _MOST:
        table = np.full(total + 1, -1, dtype=np.int32)
        table[combined] = places
        return _Level(keys, combined, table, dense=True)
    order = np.argsort(combined, kind="stable")
    return _Level(keys, combined[order], places[order], dense=False)
