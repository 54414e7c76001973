"""Arrays of columns become rows of numbers, all of one length."""

import numpy as np
import pyarrow as pa
import pytest

from grouplearn.data import arrays, encoders
from grouplearn.data.arrays import LengthError
from grouplearn.data.dataset import Item
from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.columns import Columns
from grouplearn.data.encoding.registry import features_of
from grouplearn.data.shard import BLOCK_ROWS


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float64(), 2)])
def test_lists_are_rows_and_nulls_are_missing(kind: pa.DataType) -> None:
    column = pa.array([[1, 2], None, [3, None]], kind)
    expected = [[1, 2], [np.nan, np.nan], [3, np.nan]]
    np.testing.assert_array_equal(arrays.numbers(column, 2), expected)
    np.testing.assert_array_equal(arrays.numbers(column.slice(1), 2), expected[1:])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_are_scaled_unless_they_are_classes(kind: pa.DataType) -> None:
    column = pa.array([b"xx", b"\x00\xff", None, b"\x33\x01"], kind).slice(1)
    np.testing.assert_array_equal(arrays.numbers(column, 2), [[0, 1], [np.nan, np.nan], [0.2, 1 / 255]])
    np.testing.assert_array_equal(arrays.numbers(column, 2, byte_scale=1.0)[2], [51, 1])


def test_another_length_is_counted() -> None:
    for column in (pa.array([[1.0], [1.0, 2.0], None, []]), pa.array([b"a", b"ab", None, b""])):
        with pytest.raises(LengthError) as error:
            arrays.numbers(column, 1)
        assert error.value.rows == 2


def test_empty_columns_have_no_rows() -> None:
    assert arrays.numbers(pa.array([], pa.list_(pa.float64())), 3).shape == (0, 3)
    assert arrays.numbers(pa.array([], pa.binary()), 3).shape == (0, 3)
    assert np.isnan(arrays.numbers(pa.array([None, None], pa.binary()), 3)).all()


def test_classes_are_numbered_by_value() -> None:
    values = np.array([[10.0, -1.0], [np.nan, 11.0]])
    np.testing.assert_array_equal(arrays.class_numbers(values, ("-1", "2", "10")), [[2, 0], [np.nan, np.nan]])
    assert np.isnan(arrays.class_numbers(values, ())).all()


def test_blocks_of_rows_with_long_arrays_are_shorter() -> None:
    x, picture = Item("x", "numeric", 0), Item("picture", "array", 1, "array", buckets=3 * 32 * 32)
    assert arrays.block_rows([x], BLOCK_ROWS) == BLOCK_ROWS
    assert arrays.block_rows([x, picture], BLOCK_ROWS) == 2**18 // 3072
    assert arrays.block_rows([Item("huge", "array", 0, "array", buckets=2**20)], BLOCK_ROWS) == 32


def test_an_array_is_beside_other_columns_dense_and_sparse() -> None:
    picture = FittedItem(Item("p", "array", 1, "array", buckets=2))
    columns = [FittedItem(Item("z", "numeric", 3), center=1.0), picture, FittedItem(Item("x", "numeric", 0))]
    assert [*features_of(columns)] == ["z", "p[1]", "p[2]", "x"]
    numeric = np.array([[1.0, 2.0, 0.0, 4.0], [5.0, np.nan, 7.0, 8.0]])
    expected = [[3.0, 2.0, 0.0, 1.0], [7.0, np.nan, 7.0, 5.0]]
    codes = np.empty((2, 0), dtype=np.int32)
    rows = Columns(numeric, codes, None, ())
    np.testing.assert_array_equal(encoders.encode(columns, rows), expected)
    np.testing.assert_array_equal(encoders.encode(columns, rows, dense_columns=1).toarray(), expected)
