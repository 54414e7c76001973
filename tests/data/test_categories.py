"""Categories of rows: those that training rows have, in the order of texts, and where the others' are among them."""

from __future__ import annotations

import numpy as np
import pytest

from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, Item

ITEMS = (Item("one", "category", 0, "onehot"), Item("two", "category", 1, "onehot"))
DICTIONARY = tuple(f"text {number:04}" for number in range(900))


def dataset(codes: np.ndarray) -> Dataset:
    rows = len(codes)
    empty = np.zeros((rows, 0), np.float32)
    labels, split = (np.zeros(rows), np.ones(rows)), np.zeros(rows, np.int16)
    return Dataset(empty, codes.astype(np.int32), *labels, split, (DICTIONARY, DICTIONARY))


@pytest.mark.parametrize("missing", [False, True])  # where each row has each item, and where it may not
@pytest.mark.parametrize(
    "known", [3, 40, 900]
)  # few are searched for, for many there is a table, all are the dictionary
def test_a_category_has_the_column_of_its_place_among_those_seen(known: int, missing: bool) -> None:
    draw = np.random.default_rng(known)
    seen = np.sort(draw.permutation(len(DICTIONARY))[:known])
    codes = np.stack([draw.permutation(np.resize(seen, max(known, 8) if known < 900 else 2000)) for _ in ITEMS], axis=1)
    fitted = [encoders.fit(item, dataset(codes), slice(None)) for item in ITEMS]
    for each in fitted:
        assert each.categories == tuple(DICTIONARY[code] for code in seen)
    others = draw.integers(-1, len(DICTIONARY), (500, 2)) if missing else draw.choice(seen, (500, 2))
    expected = np.concatenate([others[:, [column]] == seen for column in range(2)], axis=1)
    columns = encoders.columns_of(dataset(others), slice(None))
    sparse = encoders.encode(fitted, columns, 0)
    assert sparse.has_canonical_format
    np.testing.assert_array_equal(sparse.toarray(), expected)
    np.testing.assert_array_equal(encoders.encode(fitted, columns, 10_000), expected)


def test_rows_without_any_category_have_no_column() -> None:
    fitted = encoders.fit(ITEMS[0], dataset(np.full((20_000, 2), -1)), slice(None))
    assert fitted.categories == ()
    x = encoders.encode([fitted], encoders.columns_of(dataset(np.zeros((3, 2))), slice(None)))
    assert x.shape == (3, 0)
