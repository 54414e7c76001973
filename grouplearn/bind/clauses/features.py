"""FEATURES bound: each item becomes one or more scalar columns of the extract, typed and named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grouplearn import sqltext
from grouplearn.bind.arrays import ArrayType, array_type
from grouplearn.bind.clauses.feature_advice import NONE_LEFT, FeatureSuggestion, refusal, unfit
from grouplearn.bind.sql.checker import Column, SqlChecker
from grouplearn.bind.sql.expressions import Replay, first_column, star
from grouplearn.bind.sql.leaks import LabelLeaks
from grouplearn.data.dataset import Item
from grouplearn.data.encoding import types
from grouplearn.data.encoding.categories.hash import MAX_WIDE
from grouplearn.data.encoding.columns import SqlColumn, woven
from grouplearn.data.encoding.encoder import INTERCEPT, Encoder
from grouplearn.data.encoding.encoder_calls import EncoderOption
from grouplearn.data.encoding.registry import CALLS, automatic, called, takers, widened
from grouplearn.errors import BindError
from grouplearn.learners.contract.learner import Learner
from grouplearn.messages import Span, did_you_mean
from grouplearn.models.definition import ItemColumn
from grouplearn.models.forms.forms import declared_form
from grouplearn.parser.statements import Feature, Sql

#: A label with more distinct values than this is not a class label.
MAX_CLASSES = 1000
#: Most items: DuckDB's planning time grows with their square.
MAX_ITEMS = 10_000

_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_UNKNOWN_FUNCTION = re.compile(r'Scalar Function with name "?(\w+)"? does not exist!')
#: Only an expression that matches this may stand for several columns.
_STARRED = re.compile(r"\*|columns", re.IGNORECASE)


def _name(text: str) -> str:
    """Return the name of an item without an alias: a column without its quotes, any other expression as written."""
    return text[1:-1].replace('""', '"') if _QUOTED.fullmatch(text) else text


def _together(feature: Feature) -> int:
    """Return how many arguments of a call form one item."""
    together = CALLS[feature.encoder.value].together if feature.encoder else 1
    return len(feature.arguments) if together is None else together


def _needs(encoders: Sequence[Encoder]) -> str:
    """Return what a column without a call lacks, given the encoders that take it."""
    return "which needs an encoder" if encoders else "which no encoder takes"


@dataclass(frozen=True, slots=True)
class BoundItem:
    """An item: its definition, its SQL over the statement's FROM, and whether its encoder was chosen by us.

    ``source`` is the user's expression; ``array`` its array type, None for a single value. ``fits_float``: FLOAT holds its
    numbers exactly. ``whole``: it is read as the text of the expression's whole numbers.
    """

    stored: ItemColumn
    extract: Sql
    span: Span
    source: Sql
    automatic: bool = False
    array: ArrayType | None = None
    fits_float: bool = False
    whole: bool = False

    @property
    def read(self) -> Sql:
        """Its values as rows are read: whole numbers as such, of which the text is made once each."""
        return self.source if self.whole else self.extract


def sized(items: Sequence[BoundItem], lengths: Sequence[int]) -> tuple[BoundItem, ...]:
    """Return the items with the lengths of their arrays, and their places among the numeric columns moved to match.

    Before: x, image of 3 values, z in columns 0, 1, 2. After: in columns 0, 1 (to 3), 4.
    """
    if all(bound.array is None for bound in items):
        return tuple(items)
    placed, at = [], 0
    for bound, length in zip(items, lengths, strict=True):
        item = bound.stored.item
        if item.is_numeric:
            item = replace(item, column=at, buckets=length if item.kind == "array" else item.buckets)
            at += length
        placed.append(replace(bound, stored=replace(bound.stored, item=item)))
    return tuple(placed)


def all_fit_float(items: Sequence[BoundItem]) -> bool:
    """Whether FLOAT holds all numbers of the items exactly; categories do not count."""
    return all(item.fits_float for item in items if item.stored.item.is_numeric)


@dataclass(frozen=True, slots=True)
class _Scalar:
    """One scalar column before its encoder is known."""

    name: str
    type: str
    sql: Sql


class FeatureBinder:
    """Binds FEATURES items against the columns of the source.

    ``used`` are (folded) names of columns used elsewhere, which a star does not include; ``leaks`` are refused.
    """

    def __init__(
        self,
        checker: SqlChecker,
        source: Sequence[str | Sql],
        replay: Replay,
        learner: Learner,
        leaks: LabelLeaks,
        used: frozenset[str],
    ) -> None:
        self._leaks, self._used = leaks, used
        self._learner = learner
        self._checker = checker
        self._source = tuple(source)
        self._replay = replay
        self._items: list[BoundItem] = []
        self._form = declared_form(learner)
        self._names = {INTERCEPT} if self._form.has_one_weight_per_column else set[str]()
        self._counts: dict[str, int] = {"numeric": 0, "codes": 0, "lists": 0}
        #: What stands without an encoder, and the error for the first of it that needs one.
        self._candidates: list[FeatureSuggestion] = []
        self._refused: Exception | None = None

    def bind(self, features: Sequence[Feature]) -> tuple[BoundItem, ...]:
        """Return the items of explicit FEATURES."""
        arguments = [argument for feature in features for argument in feature.arguments]
        described = iter(self._described(arguments))
        for feature in features:
            scalars = [
                scalar for argument in feature.arguments for scalar in self._scalars(feature, argument, next(described))
            ]
            together = _together(feature)
            for start in range(0, len(scalars), together):
                self._add(feature, scalars[start : start + together])
        return self._usable(features)

    def _described(self, arguments: Sequence[Sql]) -> Iterator[Sequence[Column]]:
        """Yield the columns of each argument, with one query for all if there is no error and each is one column."""
        listed: list[str | Sql] = []
        for argument in arguments:
            listed += [",", argument] if listed else [argument]
        together, _ = self._checker.tried("SELECT", *listed, *self._source)
        if len(together) == len(arguments):
            yield from ((column,) for column in together)
        else:
            yield from map(self._columns_of, arguments)

    def _columns_of(self, argument: Sql) -> Sequence[Column]:
        try:
            return self._checker.describe("SELECT", argument, *self._source)
        except BindError as error:
            unknown = _UNKNOWN_FUNCTION.match(error.message)
            hint = did_you_mean(unknown[1], CALLS) if unknown else None
            if unknown is None or hint is None:
                raise
            raise self._checker.error(unknown[0], error.span, hint) from None  # not a function of DuckDB's

    def _usable(self, features: Sequence[Feature]) -> tuple[BoundItem, ...]:
        """Return the items; raises one error for all columns that need an encoder."""
        flawed = [each for each in self._candidates if each.why is not None]
        if flawed:
            own = None if types.is_untyped(flawed[0].type) else self._refused
            raise refusal(self._checker, self._source, features, self._candidates, own)
        return tuple(self._items)

    def _scalars(self, feature: Feature, argument: Sql, columns: Sequence[Column]) -> list[_Scalar]:
        several = star(self._checker, argument) if _STARRED.search(argument.text) else None
        if several and several.as_is:
            kept = [column for column in columns if sqltext.folded(column.name) not in self._used]
            if not kept:
                raise self._checker.error("no column is left to be a feature", argument.span, NONE_LEFT)
            named = self._columns(several.table, kept, argument.span)
            return [_Scalar(column.name, column.type, name) for column, name in zip(kept, named, strict=True)]
        if several or len(columns) != 1:
            hint = "Write the expressions one by one; only *, t.* and COLUMNS(...) alone may stand for several columns."
            message = f"this item gives {len(columns)} columns"
            if several:
                message = "this item changes the columns that it stands for"
            raise self._checker.error(message, argument.span, hint)
        self._leaks.refuse(argument)
        alone = len(feature.arguments) == _together(feature)
        name = feature.alias.value if feature.alias and alone else _name(argument.text.strip())
        return [_Scalar(name, columns[0].type, argument)]

    def _columns(self, table: str, columns: Sequence[Column], span: Span) -> list[Sql]:
        """Return columns that the statement does not name explicitly."""
        self._refuse_more(len(columns), span)
        names = [sqltext.identifier(column.name) for column in columns]
        if table:
            return [Sql(f"{sqltext.identifier(table)}.{name}", span) for name in names]
        self._replay.refuse_ambiguous_among([column.name for column in columns], span)
        return [Sql(name, span) for name in names]

    def _refuse_more(self, count: int, span: Span) -> None:
        """Raise BindError if this many further items would be too many."""
        if len(self._items) + count > MAX_ITEMS:
            message = f"FEATURES takes {MAX_ITEMS:,} items, and here are {len(self._items) + count:,}"
            hint = "An array counts as one item: gbdt, mlp and registered networks take columns such as DOUBLE[]."
            raise self._checker.error(message, span, hint)

    def _add(self, feature: Feature, scalars: Sequence[_Scalar]) -> None:
        """Add the item of one column, or of several columns that one encoder takes."""
        call = sqltext.folded(feature.encoder.value) if feature.encoder else None
        options = self._options(feature, call)
        columns = [types.column_of(scalar.type) for scalar in scalars]
        column = replace(columns[0], others=tuple(columns[1:]))
        encoder = next(filter(lambda each: each.takes(column), called(call)), None) if call else automatic(column)
        if call is None:
            self._candidates.append(
                FeatureSuggestion(scalars[0].name, scalars[0].sql, scalars[0].type, scalars[0].sql.span)
            )
        if encoder is None:
            self._refuse_or_note(call, scalars, column)
            return
        declared = CALLS[call].options if call else ()
        given = {each.name: options.get(each.name, each.default) for each in declared}
        for own in encoder.divided(column, given):
            self._add_item(feature, encoder, scalars, column, own)

    def _add_item(
        self,
        feature: Feature,
        encoder: Encoder,
        scalars: Sequence[_Scalar],
        column: SqlColumn,
        options: Mapping[str, Any],
    ) -> None:
        """Add an item of a column, or of several, with all options of its encoder's call."""
        declared = encoder.call.options if encoder.call and feature.encoder else ()
        fields: dict[str, Any] = {each.sets: options[each.name] for each in declared if each.sets}
        n_columns = fields.setdefault("buckets", 0)
        if self._form.has_one_weight_per_column:
            encoder = widened(encoder, n_columns)
        if encoder.most is not None and n_columns > encoder.most:
            self._refuse_columns(feature, encoder, n_columns)
        own = [(each.name, options[each.name]) for each in declared if not each.sets]
        item = Item(
            name=self._unique(encoder.named([scalar.name for scalar in scalars], options)),
            kind=encoder.kind,
            column=0,
            encoder=encoder.name,
            options=tuple((name, value) for name, value in own if value is not None),
            **fields,
        )
        self._refuse_flaw(feature, encoder, item)
        bound = self._bound(replace(item, column=self._next(item)), encoder, scalars, column)
        self._refuse_more(1, bound.span or feature.span)
        self._items.append(replace(bound, automatic=feature.encoder is None and encoder.call is not None))

    def _refuse_flaw(self, feature: Feature, encoder: Encoder, item: Item) -> None:
        """Raise BindError for options of which each is allowed, but not all of them together."""
        flaw = encoder.validation_error(dict(item.options))
        if flaw is not None:
            raise self._checker.error(f"{encoder.shown}: {flaw}", feature.options[0].value.span)

    def _refuse_columns(self, feature: Feature, encoder: Encoder, n_columns: int) -> None:
        """Raise BindError for more columns than the learner takes."""
        option = next(each for each in feature.options if sqltext.folded(each.name.value) == encoder.size)
        message = (
            f"{self._learner.declaration.name} takes at most {encoder.most:,} columns of one item, got {n_columns:,}"
        )
        raise self._checker.error(message, option.value.span, f"Linear learners take up to {MAX_WIDE:,}.")

    def _refuse_or_note(self, call: str | None, scalars: Sequence[_Scalar], column: SqlColumn) -> None:
        """Raise the error for a call; a column that needs an encoder is reported with all others."""
        error = self._unsupported(call, scalars, column)
        if call is not None:
            raise error
        self._refused = self._refused or error
        self._candidates[-1] = unfit(self._candidates[-1], f"has type {column.type}, {_needs(takers(column))}")

    def _unsupported(self, call: str | None, scalars: Sequence[_Scalar], column: SqlColumn) -> Exception:
        """Return the error for a column that the call, or a plain expression, does not take; its hint names an encoder that
        does."""
        scalar = scalars[0]
        if call and (untyped := next((each for each in scalars if types.is_untyped(each.type)), None)):
            message = f"{call} of {untyped.name}, which is NULL in every row"
            return self._checker.error(
                message, untyped.sql.span, types.about(untyped.sql.text.strip(), types.advice(untyped.type))
            )
        others = () if column.others else takers(column)
        hint = types.about(scalar.sql.text, self._written(others, scalar.type))
        if call and (others or column.others):
            what = " and ".join(f"{each.name}, which is {each.type}" for each in scalars)
            takes = f"{call} takes {called(call)[0].taken}"
            return self._checker.error(
                f"{call} of {what}", scalar.sql.span, f"{takes}; {hint}." if others else f"{takes}."
            )
        hint = f"{hint[0].upper()}{hint[1:]}." if others else types.about(scalar.sql.text, types.advice(scalar.type))
        message = f'feature "{scalar.name}" has type {scalar.type}, {_needs(others)}'
        return self._checker.error(message, scalar.sql.span, hint)

    @staticmethod
    def _written(encoders: Sequence[Encoder], type_name: str) -> str:
        """Return how to write a feature ``x`` of this type with an encoder that takes it, as the end of a sentence."""
        *first, last = dict.fromkeys(each.call.example if each.call else "x" for each in encoders) or ("",)
        written = f"for this type write {', '.join(first)}{' or ' if first else ''}{last}"
        inner = types.inside(type_name)
        return written if inner is None or any(each.call is None for each in encoders) else f"{written}, or {inner}"

    def _options(self, feature: Feature, call: str | None) -> dict[str, Any]:
        """Return the options that the statement gives."""
        allowed = {option.name: option for option in CALLS[call].options} if call else {}
        values: dict[str, Any] = {}
        for given in feature.options:
            name = sqltext.folded(given.name.value)
            if name not in allowed:
                names = ", ".join(allowed) or "none"
                message = f'unknown option "{given.name.value}" of {call}\nOptions: {names}'
                raise self._checker.error(message, given.name.span, did_you_mean(name, allowed))
            values[name] = self._value(str(call), allowed[name], given.value)
        return values

    def _value(self, call: str, option: EncoderOption, given: Sql) -> Any:
        """Return a constant value that the option allows."""
        column = first_column(self._checker, given)
        if column is not None:
            message = f'{option.begins} {option.allowed}, and "{column}" is a column'
            hint = option.hint.format(column=column, call=call) or None
            if sqltext.folded(column) in option.choices:
                hint = f"Write '{column}' with single quotes."
            raise self._checker.error(message, given.span, hint)
        value = self._checker.constant(given)
        try:
            return option.checked(value)
        except ValueError:
            message = f"{option.begins} {option.allowed}, got {sqltext.shown(value)}"
            raise self._checker.error(message, given.span, did_you_mean(str(value), option.choices)) from None

    def _bound(self, item: Item, encoder: Encoder, scalars: Sequence[_Scalar], column: SqlColumn) -> BoundItem:
        read, first = encoder.reading(column, item), scalars[0]
        stored = woven(read.replayed, [self._replay.stored(scalar.sql) for scalar in scalars])
        array = array_type(first.type) if encoder.role == "array" else None
        number = first.type if array is None else array.element
        computed = array is not None and array.is_bytes  # a byte is divided by 255
        return BoundItem(
            stored=ItemColumn(item, stored, first.type),
            extract=Sql(woven(read.extract, [scalar.sql.text for scalar in scalars]), first.sql.span),
            span=first.sql.span,
            source=first.sql,
            array=array,
            fits_float=item.is_numeric and types.fits_float(number) and not computed,
            whole=item.is_named and read.extract == column.text and types.fits_bigint(column.type),
        )

    def _unique(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self._names:
            candidate, number = f"{name}_{number}", number + 1
        self._names.add(candidate)
        return candidate

    def _next(self, item: Item) -> int:
        """Return the place of an item among those that share an array of the dataset."""
        place = "codes" if item.is_coded else "lists" if item.is_list else "numeric"
        self._counts[place] += 1
        return self._counts[place] - 1
