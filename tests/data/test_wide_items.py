"""Wide items: of the columns that they may have those that rows set, which are columns of the narrow form."""

from __future__ import annotations

import numpy as np
import pytest

from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, Item
from grouplearn.data.encoding import registry, wide
from grouplearn.data.encoding.encoder import FittedItem
from grouplearn.data.lists import Lists

BUCKETS = 300
NARROW = (
    Item("code", "hash", 0, "hash", buckets=BUCKETS),
    Item("counts", "hashes", 0, "hash", buckets=BUCKETS),
    Item("values", "entries", 1, "sparse", buckets=BUCKETS),
)


def widened(item: Item) -> Item:
    encoder = registry.widened(registry.encoder_of(item), 1 << 20)
    assert encoder.wide
    return Item(item.name, item.kind, item.column, encoder.name, buckets=item.buckets)


def dataset(seed: int, rows: int, most: int) -> Dataset:
    """Rows of a code, of a list with repeated elements and NULLs, and of a list of indices with values, some of them 0."""
    draw = np.random.default_rng(seed)
    entries, amounts, bounds = [], [], []
    at = 0
    for _ in range(rows):
        listed = draw.integers(-1, most, draw.integers(0, 5))
        indexed = draw.permutation(most)[: draw.integers(0, 4)]
        bounds.append((at, at + listed.size, at + listed.size + indexed.size))
        at += listed.size + indexed.size
        entries += [listed, indexed]
        amounts += [np.ones(listed.size), draw.integers(-1, 2, indexed.size).astype(float)]
    return Dataset(
        numeric=np.zeros((rows, 0), np.float32),
        codes=draw.integers(-1, most, (rows, 1)).astype(np.int32),
        y=np.zeros(rows),
        weight=np.ones(rows),
        split=np.zeros(rows, np.int16),
        dictionaries=((), (), ()),
        lists=Lists(np.array(bounds), np.concatenate(entries).astype(np.int32), np.concatenate(amounts)),
    )


def encoded(fitted: list[FittedItem], data: Dataset, dense_columns: int) -> np.ndarray:
    x = encoders.encode(fitted, encoders.columns_of(data, slice(None)), dense_columns)
    return x if isinstance(x, np.ndarray) else x.toarray()


@pytest.mark.parametrize("dense_columns", [0, 10_000])
@pytest.mark.parametrize("rows", [5, 2000])  # few are searched for, for many there is a table
def test_columns_are_those_that_are_set(rows: int, dense_columns: int) -> None:
    data, other = dataset(1, rows, 200), dataset(2, rows, BUCKETS)
    narrow = [encoders.fit(item, data, slice(None)) for item in NARROW]
    own = [encoders.fit(widened(item), data, slice(None)) for item in NARROW]
    names = [*registry.features_of(narrow)]
    kept = [names.index(name) for name in registry.features_of(own)]
    assert len(kept) == sum(registry.widths_of(own)) < len(names)
    for each in (data, other):  # what others set is of no column where these rows did not
        whole, part = encoded(narrow, each, dense_columns), encoded(own, each, dense_columns)
        assert (whole[:, kept] == part).all()
    unset = np.setdiff1d(np.arange(len(names)), kept)
    assert not encoded(narrow, data, dense_columns)[:, unset].any()
    assert encoded(narrow, other, dense_columns)[:, unset].any()


def test_no_column_is_set() -> None:
    data = dataset(3, 4, 10)
    empty = [encoders.fit(widened(item), data, slice(0, 0)) for item in NARROW]
    assert (registry.widths_of(empty), [*registry.features_of(empty)]) == ([0, 0, 0], [])
    assert encoded(empty, data, 10).shape == (4, 0)


@pytest.mark.parametrize("item", NARROW)
def test_few_columns_are_not_wide(item: Item) -> None:
    encoder = registry.encoder_of(item)
    assert registry.widened(encoder, wide.WIDE_COLUMNS) is encoder
    assert registry.widened(encoder, wide.WIDE_COLUMNS + 1).shown == encoder.name
