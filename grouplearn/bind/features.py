"""FEATURES bound: each item becomes one or more scalar columns of the extract, typed and named."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from grouplearn import sqltext
from grouplearn.bind.arrays import ArrayType, array_type, reading
from grouplearn.bind.definition import ItemColumn
from grouplearn.bind.sql import types
from grouplearn.bind.sql.checker import Column, SqlChecker
from grouplearn.bind.sql.expressions import Replay, first_column, star
from grouplearn.data.dataset import Item
from grouplearn.errors import BindError, Span, did_you_mean
from grouplearn.learners.contract.learner import Learner
from grouplearn.parser.lexer.keywords import ENCODERS
from grouplearn.parser.statements import Feature, Sql

#: A text column without an encoder is one-hot encoded up to this many distinct values.
AUTO_ONEHOT_LIMIT = 100
#: A label with more distinct values than this is not a class label.
MAX_CLASSES = 1000
#: More items than this are refused: what DuckDB plans grows with their square.
MAX_ITEMS = 10_000
#: A hash item has at most this many buckets.
MAX_BUCKETS = 1 << 22

_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_UNKNOWN_FUNCTION = re.compile(r'Scalar Function with name "?(\w+)"? does not exist!')
#: Only where this is found may an expression be several columns.
_STARRED = re.compile(r"\*|columns", re.IGNORECASE)
_OPTIONS: dict[str, tuple[str, ...]] = {
    "zscore": ("scope", "impute"),
    "minmax": ("scope", "impute"),
    "impute": ("scope", "method"),
    "onehot": ("scope",),
    "ordinal": ("scope",),
    "hash": ("buckets",),
}


def _name(text: str) -> str:
    """Return the name of an item without an alias: a quoted column without its quotes, any other expression as written."""
    return text[1:-1].replace('""', '"') if _QUOTED.fullmatch(text) else text


@dataclass(frozen=True, slots=True)
class BoundItem:
    """An item: what is stored, its SQL over the statement's own FROM, and whether its encoder was our choice.

    ``source`` is the user's expression; ``array`` says what it is an array of, None for a single value. ``fits_float``: its
    numbers lose nothing as FLOAT.
    """

    stored: ItemColumn
    extract: Sql
    span: Span
    source: Sql
    automatic: bool = False
    array: ArrayType | None = None
    fits_float: bool = False


def all_fit_float(items: Sequence[BoundItem]) -> bool:
    """Whether no number of the items loses anything as FLOAT; categories are none."""
    return all(item.fits_float for item in items if item.stored.item.kind in ("numeric", "array"))


@dataclass(frozen=True, slots=True)
class _Scalar:
    """One scalar column before its encoder is known."""

    name: str
    type: str
    sql: Sql


class FeatureBinder:
    """Binds FEATURES items against the columns of the source.

    Columns that are ``used`` otherwise (folded names) are none of those that a star stands for; ``label``, if there is one, is
    no feature.
    """

    def __init__(
        self,
        checker: SqlChecker,
        source: Sequence[str | Sql],
        replay: Replay,
        learner: Learner,
        label: Sql | None,
        used: frozenset[str],
    ) -> None:
        self._label, self._used = replay.meaning(label) if label else None, used
        self._learner = learner
        self._checker = checker
        self._source = tuple(source)
        self._replay = replay
        self._items: list[BoundItem] = []
        self._names: set[str] = set()
        self._counts: dict[str, int] = {"numeric": 0, "codes": 0}
        self._by_default = False

    def bind(self, features: Sequence[Feature]) -> tuple[BoundItem, ...]:
        """Return the items of explicit FEATURES."""
        arguments = [argument for feature in features for argument in feature.arguments]
        described = iter(self._described(arguments))
        for feature in features:
            for argument in feature.arguments:
                for scalar in self._scalars(feature, argument, next(described)):
                    self._add(feature, scalar)
        return tuple(self._items)

    def _described(self, arguments: Sequence[Sql]) -> Iterator[Sequence[Column]]:
        """Yield the columns of each argument: by one question where nothing is wrong and each is one column."""
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
            hint = did_you_mean(unknown[1], ENCODERS) if unknown else None
            if unknown is None or hint is None:
                raise
            raise self._checker.error(unknown[0], error.span, hint) from None  # DuckDB would mean a function of its own

    def bind_columns(self, columns: Sequence[Column], span: Span) -> tuple[BoundItem, ...]:
        """Return the items of the default FEATURES: these columns as they are."""
        self._by_default = True
        for column, name in zip(columns, self._columns("", columns, span), strict=True):
            self._add(Feature((name,), span=span), _Scalar(column.name, column.type, name))
        return tuple(self._items)

    def _scalars(self, feature: Feature, argument: Sql, columns: Sequence[Column]) -> list[_Scalar]:
        several = star(self._checker, argument) if _STARRED.search(argument.text) else None
        if several and several.as_is:
            kept = [column for column in columns if sqltext.folded(column.name) not in self._used]
            if not kept:
                hint = "The label, GROUP BY keys, the weight and what VALIDATE looks at are none. Name features one by one."
                raise self._checker.error("no column is left to be a feature", argument.span, hint)
            named = self._columns(several.table, kept, argument.span)
            return [_Scalar(column.name, column.type, name) for column, name in zip(kept, named, strict=True)]
        if several or len(columns) != 1:
            hint = "Write the expressions one by one; only *, t.* and COLUMNS(...) alone may stand for several columns."
            message = f"this item gives {len(columns)} columns"
            if several:
                message = "this item changes the columns that it stands for"
            raise self._checker.error(message, argument.span, hint)
        if self._label is not None and self._replay.meaning(argument) == self._label:
            hint = "A model would learn to copy it. Leave it out; FEATURES (*) does so by itself."
            raise self._checker.error("this feature is the label", argument.span, hint)
        name = feature.alias.value if feature.alias and len(feature.arguments) == 1 else _name(argument.text.strip())
        return [_Scalar(name, columns[0].type, argument)]

    def _columns(self, table: str, columns: Sequence[Column], span: Span) -> list[Sql]:
        """Return columns that the statement does not name itself."""
        self._refuse_more(len(columns), span)
        names = [sqltext.identifier(column.name) for column in columns]
        if table:
            return [Sql(f"{sqltext.identifier(table)}.{name}", span) for name in names]
        self._replay.refuse_ambiguous_among([column.name for column in columns], span)
        return [Sql(name, span) for name in names]

    def _refuse_more(self, count: int, span: Span) -> None:
        """Raise BindError when with so many more items there would be too many."""
        if len(self._items) + count > MAX_ITEMS:
            message = f"FEATURES takes {MAX_ITEMS:,} items, and here are {len(self._items) + count:,}"
            hint = "An array counts as one item: gbdt, mlp and registered networks take columns such as DOUBLE[]."
            raise self._checker.error(message, span, hint)

    def _add(self, feature: Feature, scalar: _Scalar) -> None:
        encoder = sqltext.folded(feature.encoder.value) if feature.encoder else None
        options = self._options(feature, encoder)
        kind = types.kind(scalar.type)
        if encoder in ("onehot", "ordinal", "hash") and not types.is_nameless(scalar.type):
            self._add_category(encoder, scalar, options, feature.span)
        elif encoder is None and kind == "category":
            self._add_category("onehot", scalar, options, feature.span, automatic=True)
        elif encoder in (None, "zscore", "minmax", "impute") and kind == "numeric":
            self._add_numeric(encoder, scalar, options, feature.span)
        elif encoder is None and self._learner.form != "linear" and (array := array_type(scalar.type)):
            self._add_array(scalar, array, feature.span)
        else:
            raise self._unsupported(encoder, scalar)

    def _unsupported(self, encoder: str | None, scalar: _Scalar) -> Exception:
        if encoder in ("zscore", "minmax", "impute"):
            hint = f"{encoder} takes numbers; use onehot, ordinal or hash for texts."
            return self._checker.error(f"{encoder} of {scalar.name}, which is {scalar.type}", scalar.sql.span, hint)
        message = f'feature "{scalar.name}" has type {scalar.type}, which no encoder takes'
        if encoder is None and array_type(scalar.type):
            message = f'feature "{scalar.name}" has type {scalar.type}, which {self._learner.name} does not take'
            hint = "gbdt, mlp and registered networks take arrays; or take single values out of it, e.g. x[1]."
            return self._checker.error(message, scalar.sql.span, hint)
        hint = types.advice(scalar.type)
        if self._by_default:
            hint = "Without FEATURES every column is one: list those to learn from, as in FEATURES (a, zscore(b))."
        return self._checker.error(message, scalar.sql.span, hint)

    def _options(self, feature: Feature, encoder: str | None) -> dict[str, Any]:
        allowed = _OPTIONS.get(encoder or "", ())
        values: dict[str, Any] = {}
        for option in feature.options:
            name = sqltext.folded(option.name.value)
            if name not in allowed:
                names = ", ".join(allowed) or "none"
                message = f'unknown option "{option.name.value}" of {encoder}\nOptions: {names}'
                raise self._checker.error(message, option.name.span, did_you_mean(name, allowed))
            if name in ("impute", "method"):
                self._refuse_column(option.value)
            value = self._checker.constant(option.value)
            values[name] = self._checked(name, value, option.value.span)
        return values

    def _refuse_column(self, fill: Sql) -> None:
        """Raise BindError for what replaces missing values and is not the same in every row."""
        column = first_column(self._checker, fill)
        if column is None:
            return
        message = f"missing values are replaced by 'mean', 'median' or a number, and \"{column}\" is a column"
        hint = f"Write impute(a), impute({column}) for two columns, or coalesce(a, {column}) for one."
        if sqltext.folded(column) in ("mean", "median"):
            hint = f"Write '{column}' with single quotes."
        raise self._checker.error(message, fill.span, hint)

    def _checked(self, name: str, value: Any, span: Span) -> Any:
        if name == "scope" and value not in ("group", "all"):
            hint = did_you_mean(str(value), ("group", "all"))
            raise self._checker.error(f"scope must be 'group' or 'all', got {sqltext.shown(value)}", span, hint)
        if name == "buckets" and (not isinstance(value, int) or not 1 <= value <= MAX_BUCKETS):
            raise self._checker.error(
                f"buckets must be a whole number from 1 to {MAX_BUCKETS}, got {sqltext.shown(value)}", span
            )
        if name in ("impute", "method") and value not in ("mean", "median"):
            if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
                message = f"missing values are replaced by 'mean', 'median' or a number, got {sqltext.shown(value)}"
                raise self._checker.error(message, span, did_you_mean(str(value), ("mean", "median")))
            return float(value)
        return value

    def _add_numeric(self, encoder: str | None, scalar: _Scalar, options: dict[str, Any], span: Span) -> None:
        fill = options.get("impute", options.get("method", "mean" if encoder == "impute" else None))
        item = Item(
            name=self._unique(scalar.name),
            kind="numeric",
            column=self._next("numeric"),
            encoder="zscore" if encoder == "zscore" else "minmax" if encoder == "minmax" else "none",
            impute=fill,
            scope=options.get("scope", "group"),
        )
        self._append(item, scalar, span, ("CAST((\n", "\n) AS DOUBLE)"))

    def _add_array(self, scalar: _Scalar, array: ArrayType, span: Span) -> None:
        item = Item(name=self._unique(scalar.name), kind="array", column=self._next("numeric"), encoder="array")
        self._append(item, scalar, span, reading(array), array=array)

    def _add_category(
        self, encoder: str, scalar: _Scalar, options: dict[str, Any], span: Span, automatic: bool = False
    ) -> None:
        kind: Literal["category", "hash"] = "hash" if encoder == "hash" else "category"
        chosen: Literal["onehot", "ordinal", "hash"] = (
            "hash" if encoder == "hash" else "ordinal" if encoder == "ordinal" else "onehot"
        )
        item = Item(
            name=self._unique(scalar.name),
            kind=kind,
            column=self._next("codes"),
            encoder=chosen,
            scope=options.get("scope", "group"),
            buckets=options.get("buckets", 0),
        )
        head, tail = "", ""
        if kind == "hash":
            # md5 gives the same bucket in every DuckDB version and client; DuckDB's own hash() does not promise that.
            head, tail = "CAST(md5_number_lower(", f") % {item.buckets} AS INTEGER)"
        (before, after), (first, last) = types.as_text(scalar.type), types.as_text_of(scalar.type)
        replayed = (head + first, last + tail)
        self._append(item, scalar, span, (head + before, after + tail), replayed, automatic=automatic)

    def _append(
        self,
        item: Item,
        scalar: _Scalar,
        span: Span,
        around: tuple[str, str],
        replayed: tuple[str, str] | None = None,
        *,
        automatic: bool = False,
        array: ArrayType | None = None,
    ) -> None:
        """Add an item: ``around`` is what stands before and after its expression, ``replayed`` where it predicts."""
        stored = self._replay.stored(scalar.sql).join(replayed or around)
        extract = Sql(scalar.sql.text.join(around), scalar.sql.span)
        place = scalar.sql.span or span
        self._refuse_more(1, place)
        number = scalar.type if array is None else array.element
        computed = array is not None and array.is_bytes  # a byte becomes a fraction
        fits_float = item.kind in ("numeric", "array") and types.fits_float(number) and not computed
        self._items.append(
            BoundItem(ItemColumn(item, stored, scalar.type), extract, place, scalar.sql, automatic, array, fits_float)
        )

    def _unique(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self._names:
            candidate, number = f"{name}_{number}", number + 1
        self._names.add(candidate)
        return candidate

    def _next(self, kind: str) -> int:
        self._counts[kind] += 1
        return self._counts[kind] - 1
