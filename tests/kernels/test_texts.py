"""Numbers for texts: those of a dictionary in plain Python, whatever Arrow holds them in."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grouplearn.kernels.texts import Texts, WholeNumbers

TEXTS = st.lists(
    st.none() | st.text(max_size=3) | st.sampled_from(["", "\0", "a\0", "12345678", "123456789", "ä" * 4, "ä" * 40]),
    max_size=80,
)


def expected(texts: list[str | None], known: dict[str, int]) -> list[int]:
    return [-1 if text is None else known.setdefault(text, len(known)) for text in texts]


def check(batches: list[pa.Array], found: Texts) -> None:
    known: dict[str, int] = {}
    for batch in batches:
        assert found.numbered(batch).tolist() == expected(batch.to_pylist(), known)
    assert len(found) == len(known)
    ranks, in_order = found.ranks()
    assert in_order.to_pylist() == sorted(known)
    assert ranks.tolist() == [*(sorted(known).index(text) for text in known), -1]


@given(st.lists(TEXTS, max_size=4), st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]), st.booleans())
def test_numbers_of_texts(batches: list[list[str | None]], kind: pa.DataType, encoded: bool) -> None:
    columns = [pa.array([None, "before", *texts, "after"], kind).slice(2, len(texts)) for texts in batches]
    if encoded:
        columns = [column.cast(pa.string()).dictionary_encode() for column in columns]
    check(columns, Texts())


@pytest.mark.examples(2)
@pytest.mark.parametrize("length", [1, 9, 3000])
def test_tables_grow(build: str, length: int) -> None:
    random = np.random.default_rng(length)
    values, rows = (3_000, 9_000) if length < 3000 else (40, 1_800)
    texts = [f"{number:0{length}}" for number in random.integers(0, values, rows)]
    check([pa.array(texts[first : first + rows // 9]) for first in range(0, rows, rows // 9)], Texts())


def test_a_text_longer_than_there_is_room() -> None:
    check([pa.array(["a", "b" * 100_000, "c"]), pa.array(["c" * 50_000, None, "b" * 100_000])], Texts())


def test_null_alone() -> None:
    check([pa.nulls(3), pa.nulls(2, pa.string()), pa.array([], pa.string())], Texts())


@pytest.mark.parametrize("width", [0, 1, 2, 3, 5])
def test_rows_of_numbers(build: str, width: int) -> None:
    random = np.random.default_rng(width)
    rows = random.integers(-1, 4, (500, width)).astype(np.int32)
    found, known = Texts(), dict[tuple[int, ...], int]()
    numbers = np.concatenate([found.numbered_rows(rows[:100]), found.numbered_rows(rows[100:])])
    assert numbers.tolist() == [known.setdefault(tuple(row), len(known)) for row in rows.tolist()]
    assert [tuple(row) for row in found.rows(width).tolist()] == list(known)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-300, 300),
        (0, 90_000),
        (-600_000, 600_000),
        (-(10**17) + 1, 10**17 - 1),
        (-(2**63), 2**63 - 1),
        (0, 10**18),
        (7, 7),
    ],
)
@pytest.mark.parametrize("type_", [pa.int64(), pa.int32(), pa.uint32(), pa.int8()])
def test_whole_numbers_have_the_order_of_their_texts(low: int, high: int, type_: pa.DataType) -> None:
    """Of all widths that a type has: a minus before digits, 10 between 1 and 2, NULL apart."""
    room = np.iinfo(type_.to_pandas_dtype())
    low, high = max(low, room.min), min(high, room.max)
    random = np.random.default_rng(5)
    values = [low, high, *random.integers(low, high, 3000, endpoint=True).tolist()]
    values += [int(str(each)[: random.integers(2, 20)]) for each in values if abs(each) > 9]
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    column = [None if random.random() < 0.1 else each for each in values if low <= each <= high]
    numbers, texts = WholeNumbers(), Texts()
    begun = 0
    for end in (2, 50, 1000, len(column)):
        batch = pa.array(column, type_)[begun:end]
        ours, theirs = numbers.numbered(batch), texts.numbered(batch.cast(pa.string()))
        assert [each < 0 for each in ours] == [each < 0 for each in theirs]
        seen.append((ours, theirs))
        begun = end
    assert len(numbers) == len(texts)
    (ranks, in_order), (expected, texts_in_order) = numbers.ranks(), texts.ranks()
    assert in_order.to_pylist() == texts_in_order.to_pylist()
    for ours, theirs in seen:
        assert ranks[ours].tolist() == expected[theirs].tolist()


def test_no_whole_numbers_have_no_texts() -> None:
    numbers = WholeNumbers()
    assert numbers.numbered(pa.nulls(3, pa.int16())).tolist() == [-1, -1, -1]
    assert numbers.numbered(pa.array([], pa.int16())).tolist() == []
    ranks, in_order = numbers.ranks()
    assert (ranks.tolist(), in_order.to_pylist()) == ([-1], [])
