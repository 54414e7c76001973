"""Items with so many columns that most are never set: a group stores the numbers of those that its training rows set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.columns import IntArray
from grouplearn.data.encoding.encoder import Encoder, FittedItem
from grouplearn.sqltext import literal

#: An item of a linear model with more columns than this is a wide one.
WIDE_COLUMNS = 4096
#: A lookup table of all columns is built if it has at most this many entries per number looked up.
_TABLE = 4


def is_nearly_wide(columns: int) -> bool:
    """Whether an estimate of the columns may be on either side of ``WIDE_COLUMNS``."""
    return WIDE_COLUMNS // 2 <= columns <= 2 * WIDE_COLUMNS


class WideCategories(Encoder):
    """Categories, of which a model stores those with a weight."""

    wide: ClassVar[bool] = True

    def numbers_sql(self, numbers: str, at: str) -> str:
        """Return the categories."""
        return f"unnest(list_select({at}, list_transform({numbers}, lambda number: number + 1)))"

    def named_sql(self, item: Item, value: str) -> str:
        """Return item=category."""
        return f"{literal(item.name + '=')} || {value}"


class Wide(Encoder):
    """Column numbers become places among the group's columns; a column without a place has weight 0."""

    wide: ClassVar[bool] = True

    def needs_fit(self, item: Item) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def fit(self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str]) -> FittedItem:  # noqa: ARG002
        """Find the columns that training rows set."""
        return FittedItem(item, columns=np.unique(values[values >= 0]).astype(np.int64).tobytes())

    def place(self, fitted: FittedItem, codes: npt.NDArray[np.int32]) -> IntArray:
        """Return the places of column numbers, -1 for those that the group does not have."""
        known, buckets = self.numbers(fitted), fitted.item.buckets
        if not known.size:
            return np.full(codes.size, -1, np.int64)
        if buckets <= _TABLE * codes.size:
            table = np.full(buckets + 1, -1, np.int32)  # the last entry is for -1
            table[known] = np.arange(known.size, dtype=np.int32)
            return table[codes].astype(np.int64)
        at = np.minimum(np.searchsorted(known, codes), known.size - 1)
        return np.where(known[at] == codes, at, -1)
