"""Lists as flat arrays, and the design matrices that encoders make of them, against plain Python."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from grouplearn.data import encoders, list_columns
from grouplearn.data.dataset import Dataset, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.registry import features_of
from grouplearn.data.files.checksums import Damaged
from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.data.list_columns import elements, lengths, lists_of
from grouplearn.data.lists import Lists
from grouplearn.runtime.ray.job_rows import shared_files
from grouplearn.train.rows.chosen import feature_blocks
from grouplearn.train.rows.sources import joined, pick

WORDS = ("", "a", "b", "it's", "z", 'é"x')


def rows_of_words(seed: int, n_rows: int = 200) -> list[list[str | None] | None]:
    draw = random.Random(seed)
    some = [*WORDS, None]
    return [None if draw.random() < 0.1 else draw.choices(some, k=draw.randrange(6)) for _ in range(n_rows)]


def coded(rows: Sequence[Sequence[str | None] | None]) -> list_columns.Opened:
    column = pa.array(rows, pa.list_(pa.string()))
    code = {word: place for place, word in enumerate(WORDS)}
    codes = [-1 if each is None else code[each] for each in elements(column).to_pylist()]
    return lengths(column), np.array(codes, np.int32), None


def dataset(lists: Lists, dictionaries: tuple[tuple[str, ...], ...]) -> Dataset:
    n = len(lists.bounds)
    return Dataset(
        numeric=np.zeros((n, 0), np.float32),
        codes=np.zeros((n, 0), np.int32),
        y=np.zeros(n),
        weight=np.ones(n),
        split=np.zeros(n, np.int16),
        dictionaries=dictionaries,
        lists=lists,
    )


def dense(x: object) -> np.ndarray:
    return np.asarray(x.toarray() if hasattr(x, "toarray") else x)


@pytest.mark.parametrize("dense_columns", [0, 512])
def test_multihot_is_1_for_each_element_that_training_rows_have(dense_columns: int) -> None:
    rows = rows_of_words(1)
    data = dataset(lists_of([coded(rows)]), (WORDS,))
    item = Item("w", "categories", 0, "multihot")
    train = np.arange(0, 40, 2)
    fitted = encoders.fit(item, data, train)
    known = sorted({word for row in train for word in rows[row] or () if word is not None})
    assert fitted.categories == tuple(known)
    assert (*features_of([fitted]),) == tuple(f"w={word}" for word in known)
    assert not feature_blocks([fitted])[0].pure
    x = encoders.encode([fitted], encoders.columns_of(data, slice(None)), dense_columns)
    expected = [[float(word in (row or ())) for word in known] for row in rows]
    assert dense(x).tolist() == expected
    assert isinstance(x, np.ndarray) == (dense_columns > 0)


@pytest.mark.parametrize("dense_columns", [0, 512])
def test_hash_counts(dense_columns: int) -> None:
    draw = random.Random(2)
    rows = [draw.choices(range(-1, 5), k=draw.randrange(7)) for _ in range(300)]
    counts = np.array([len(row) for row in rows])
    codes = np.array([code for row in rows for code in row], np.int32)
    data = dataset(lists_of([(counts, codes, None)]), ((),))
    fitted = encoders.fit(Item("h", "hashes", 0, "hash", buckets=5), data, slice(None))
    x = encoders.encode([fitted], encoders.columns_of(data, slice(None)), dense_columns)
    assert dense(x).tolist() == [[float(row.count(bucket)) for bucket in range(5)] for row in rows]


@pytest.mark.parametrize("dense_columns", [0, 512])
def test_sparse_puts_values_at_indices(dense_columns: int) -> None:
    draw = random.Random(3)
    rows = [
        {draw.randrange(9): draw.choice((0.0, -1.5, 0.1, 1e300)) for _ in range(draw.randrange(5))} for _ in range(300)
    ]
    counts = np.array([len(row) for row in rows])
    codes = np.array([index for row in rows for index in row], np.int32)
    values = np.array([value for row in rows for value in row.values()])
    data = dataset(lists_of([(counts, codes, values)]), ((),))
    fitted = encoders.fit(Item("s", "entries", 0, "sparse", buckets=9), data, slice(None))
    assert next(features_of([fitted])) == "s[1]"
    x = encoders.encode([fitted], encoders.columns_of(data, slice(None)), dense_columns)
    assert x.dtype == np.float64
    assert dense(x).tolist() == [[row.get(index, 0.0) for index in range(9)] for row in rows]
    if not dense_columns:
        assert x.has_sorted_indices
        assert x.nnz == sum(value != 0 for value in values)


def test_rows_by_number_and_joined_parts_have_the_same_lists() -> None:
    first, second = rows_of_words(4), rows_of_words(5)
    lists = lists_of([coded(first), coded(second)])
    order = np.random.default_rng(0).permutation(len(first))
    parts = [lists.rows(order[:50]), lists.rows(slice(0, 0)).packed(), lists.rows(order[50:])]
    joined = Lists.joined(parts)
    for number, rows in enumerate((first, second)):
        counts, codes, _ = joined.item(number)
        expected = coded([rows[row] for row in order])
        assert counts.tolist() == expected[0].tolist()
        assert codes.tolist() == expected[1].tolist()
    assert joined.entries.size == lists.entries.size
    assert lists.rows(slice(3, 5)).packed().entries.size < lists.entries.size


def test_damaged_lists_are_found() -> None:
    items = [Item("w", "categories", 0, "multihot")]
    lists = lists_of([coded(rows_of_words(6))])
    assert dataset(lists, (WORDS,)).validation_error(items) is None
    assert dataset(lists, (WORDS[:2],)).validation_error(items) == "an entry of a list has no name"
    beyond = Lists(lists.bounds + 1, lists.entries, lists.amounts)
    assert dataset(beyond, (WORDS,)).validation_error(items) == "a list has entries that are not there"
    assert (
        dataset(Lists(lists.bounds[:, ::-1], lists.entries, lists.amounts), (WORDS,)).validation_error(items)
        is not None
    )
    assert dataset(lists, (WORDS, WORDS)).validation_error([*items, Item("v", "categories", 1, "multihot")]) is not None
    assert dataset(lists, (WORDS,)).validation_error([]) == "there are lists, and no names for them"


def test_pure_blocks_have_at_most_one_nonzero_in_a_row() -> None:
    pure = {
        Item("x", "numeric", 0): True,
        Item("x", "numeric", 0, "zscore"): True,
        Item("x", "category", 0, "onehot"): True,
        Item("x", "category", 0, "ordinal"): True,
        Item("x", "hash", 0, "hash", buckets=8): True,
        Item("x", "array", 0, "array", buckets=3): False,
        Item("x", "categories", 0, "multihot"): False,
        Item("x", "hashes", 0, "hash", buckets=8): False,
        Item("x", "entries", 0, "sparse", buckets=8): False,
    }
    assert {item: feature_blocks([FittedItem(item, categories=("a", "b"))])[0].pure for item in pure} == pure


def test_rows_in_files_are_opened_with_their_lists_in_part_too(tmp_path: Path) -> None:
    data = dataset(lists_of([coded(rows_of_words(7)), coded(rows_of_words(8))]), (WORDS, WORDS))
    with RunDirectory(tmp_path) as directory:
        files = shared_files(data, directory)
        opened = files.rows(20, 60).open()
        assert (
            opened.validation_error([Item("v", "categories", 0, "multihot"), Item("w", "categories", 1, "multihot")])
            is None
        )
        picked = joined([pick(opened, np.array([0, 5, 39])), pick(data, slice(3, 6))])
        opened.forget_pages()
    whole = data.lists
    assert picked.lists is not None
    assert whole is not None
    for number in range(2):
        expected = whole.rows(np.array([20, 25, 59, 3, 4, 5])).item(number)
        found = picked.lists.item(number)
        assert [each.tolist() for each in found] == [each.tolist() for each in expected]


def test_files_of_lists_that_end_too_early_are_damaged(tmp_path: Path) -> None:
    data = dataset(lists_of([coded(rows_of_words(9))]), (WORDS,))
    with RunDirectory(tmp_path) as directory:
        files = shared_files(data, directory)
        path = directory.path / "entries.npy"
        path.write_bytes(path.read_bytes()[:-4])
        with pytest.raises(Damaged, match="ends before its rows do"):
            files.open()
