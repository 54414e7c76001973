"""All encoders: those that a call in FEATURES means, and those of plain expressions."""

from __future__ import annotations

from grouplearn.data.dataset import Item
from grouplearn.data.encoding import wide
from grouplearn.data.encoding.categories import CATEGORIES
from grouplearn.data.encoding.columns import SqlColumn
from grouplearn.data.encoding.encoder import Encoder, encoder_of, known, register
from grouplearn.data.encoding.listed import LISTS, Listed
from grouplearn.data.encoding.numbers import NUMBERS

__all__ = ["ENCODERS", "automatic", "called", "encoder_of", "known", "of_list", "takers", "widened"]

ENCODERS: tuple[Encoder, ...] = (*NUMBERS, *CATEGORIES, *LISTS)
register(ENCODERS)


def called(name: str) -> tuple[Encoder, ...]:
    """Return the encoders that a call may mean: which of them depends on the column."""
    return tuple(encoder for encoder in ENCODERS if encoder.call == name and not encoder.wide)


def widened(encoder: Encoder, columns: int) -> Encoder:
    """Return what encodes so many columns for a linear model: where they are many, the wide form if there is one."""
    if columns <= wide.WIDE_COLUMNS:
        return encoder
    return next(
        (each for each in ENCODERS if each.wide and (each.kind, each.call) == (encoder.kind, encoder.call)), encoder
    )


def automatic(column: SqlColumn) -> Encoder | None:
    """Return what encodes a column without a call: a number as it is, a category by one-hot columns, an array."""
    return next((encoder for encoder in ENCODERS if encoder.is_meant(column)), None)


def takers(column: SqlColumn) -> tuple[Encoder, ...]:
    """Return all that encode a column, with a call or without."""
    return tuple(encoder for encoder in ENCODERS if not encoder.wide and encoder.takes(column))


def of_list(item: Item) -> Listed:
    """Return what encodes an item that is a list."""
    encoder = encoder_of(item)
    if not isinstance(encoder, Listed):
        raise TypeError(f"{item.name} is no list")
    return encoder
