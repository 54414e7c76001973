"""Rows of every type that the extension and its process send each other, packed as either does."""

import datetime
import decimal

import pyarrow as pa

from grouplearn.frontends.native.arrow_frames import packed_batch, packed_schema
from grouplearn.frontends.native.frames import blob


def batches() -> list[pa.RecordBatch]:
    """Return small batches, with NULLs in them, that have all types between them."""
    text, number = pa.array(["a", None, "größe", ""]), pa.array([1.5, None, -0.0, float("nan")])
    struct = pa.array([{"a": 1, "b": ["x", None]}, None, {"a": None, "b": None}, {"a": 4, "b": []}])
    union = pa.UnionArray.from_sparse(pa.array([0, 1, 0, 1], pa.int8()), [pa.array([1, 2, 3, 4]), text])
    columns = {
        "text": text,
        "large_text": text.cast(pa.large_string()),
        "bytes": text.cast(pa.binary()),
        "flag": pa.array([True, None, False, True]),
        "number": number,
        "small": pa.array([1, None, 3, 4], pa.int8()),
        "float": number.cast(pa.float32()),
        "decimal": pa.array(
            [decimal.Decimal("1.25"), None, decimal.Decimal(0), decimal.Decimal(-1)], pa.decimal128(30, 2)
        ),
        "day": pa.array([datetime.date(2020, 1, 1), None, None, datetime.date(1970, 1, 1)]),
        "time": pa.array([1, None, 3, 4], pa.time64("us")),
        "at": pa.array([1, None, 3, 4], pa.timestamp("us", tz="UTC")),
        "span": pa.array([(1, 2, 3), None, (0, 0, 0), (4, 5, 6)], pa.month_day_nano_interval()),
        "id": pa.array([bytes(16), None, bytes(16), b"x" * 16], pa.binary(16)),
        "list": pa.array([[1, 2], None, [], [None]]),
        "large_list": pa.array([["x"], None, [], ["y", None]], pa.large_list(pa.string())),
        "fixed_list": pa.array([[1, 2], None, [3, 4], [5, None]], pa.list_(pa.int32(), 2)),
        "struct": struct,
        "map": pa.array([[("a", 1.0)], None, [], [("b", None)]], pa.map_(pa.string(), pa.float64())),
        "enum": text.dictionary_encode(),
        "nothing": pa.nulls(4),
        "union": union,
    }
    whole = pa.record_batch(list(columns.values()), names=list(columns))
    alone = [pa.record_batch([column], names=[name]) for name, column in columns.items()]
    sliced = [pa.record_batch([column.slice(1, 2)], names=[f"part of {name}"]) for name, column in columns.items()]
    return [whole, *alone, *sliced, pa.record_batch([struct.slice(0, 0)], names=["none"])]


def corpus() -> bytes:
    """Return the batches for ``frames_walker.cpp``."""
    return b"".join(blob(packed_schema(each.schema)) + blob(b"".join(packed_batch(each))) for each in batches())
