"""All encoders, by their call in FEATURES or as those of plain expressions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from grouplearn.data.dataset import Item
from grouplearn.data.encoding import wide
from grouplearn.data.encoding.categories.bins import Bins
from grouplearn.data.encoding.categories.cross import Cross, WideCross
from grouplearn.data.encoding.categories.hash import Hash, WideHash
from grouplearn.data.encoding.categories.onehot import OneHot, WideOneHot
from grouplearn.data.encoding.categories.ordinal import Ordinal
from grouplearn.data.encoding.categories.target import Target
from grouplearn.data.encoding.columns import SqlColumn
from grouplearn.data.encoding.encoder import Encoder, FittedItem
from grouplearn.data.encoding.encoder_calls import EncoderCall
from grouplearn.data.encoding.lists.hashed_list import HashedList, WideHashedList
from grouplearn.data.encoding.lists.listed import Listed
from grouplearn.data.encoding.lists.multihot import MultiHot, WideMultiHot
from grouplearn.data.encoding.lists.sparse import Sparse, WideSparse
from grouplearn.data.encoding.numbers.array import Array
from grouplearn.data.encoding.numbers.impute import Imputed
from grouplearn.data.encoding.numbers.minmax import MinMax
from grouplearn.data.encoding.numbers.number import Number
from grouplearn.data.encoding.numbers.offset import Offset
from grouplearn.data.encoding.numbers.parts import Part
from grouplearn.data.encoding.numbers.robust import Robust
from grouplearn.data.encoding.numbers.time_step import Step
from grouplearn.data.encoding.numbers.zscore import ZScore

_NUMBERS = (Number(), Imputed(), ZScore(), MinMax(), Robust(), Array(), Step(), Part(), Offset())
_CATEGORIES = (OneHot(), WideOneHot(), Cross(), WideCross(), Bins(), Ordinal(), Target(), Hash(), WideHash())
_LISTS = (MultiHot(), HashedList(), Sparse(), WideMultiHot(), WideHashedList(), WideSparse())
ENCODERS: tuple[Encoder, ...] = (*_NUMBERS, *_CATEGORIES, *_LISTS)
#: Encoders by kind and name.
BY_NAME: Mapping[tuple[str, str], Encoder] = {(each.kind, each.name): each for each in ENCODERS}
#: The calls of FEATURES, by name.
CALLS: Mapping[str, EncoderCall] = {each.call.name: each.call for each in ENCODERS if each.call}


def encoder_of(item: Item) -> Encoder:
    """Return an item's encoder."""
    return BY_NAME[item.kind, item.encoder]


def widths_of(fitted: Iterable[FittedItem]) -> list[int]:
    """Return the numbers of feature columns of fitted items."""
    return [encoder_of(each.item).fitted_width(each) for each in fitted]


def features_of(fitted: Iterable[FittedItem]) -> Iterator[str]:
    """Yield the names of the feature columns of fitted items."""
    for each in fitted:
        yield from encoder_of(each.item).features(each)


def called(name: str) -> tuple[Encoder, ...]:
    """Return the encoders of a call; the column decides between them."""
    return tuple(each for each in ENCODERS if each.call and each.call.name == name and not each.wide)


def widened(encoder: Encoder, columns: int) -> Encoder:
    """Return the encoder for a linear model: the wide form, if there is one, for many columns."""
    if columns <= wide.WIDE_COLUMNS:
        return encoder
    return next(
        (each for each in ENCODERS if each.wide and (each.kind, each.call) == (encoder.kind, encoder.call)),
        encoder,
    )


def automatic(column: SqlColumn) -> Encoder | None:
    """Return the encoder of a column without a call: number, one-hot category, or array."""
    return next((encoder for encoder in ENCODERS if encoder.is_meant(column)), None)


def takers(column: SqlColumn) -> tuple[Encoder, ...]:
    """Return the encoders that a hint names for a column, with or without a call."""
    return tuple(each for each in ENCODERS if each.suggested and not each.wide and each.takes(column))


def of_list(item: Item) -> Listed:
    """Return the encoder of a list item."""
    encoder = encoder_of(item)
    if not isinstance(encoder, Listed):
        raise TypeError(f"{item.name} is no list")
    return encoder
