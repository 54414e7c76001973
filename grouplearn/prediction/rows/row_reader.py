"""Rows of one Arrow type as lines of numbers: plain columns directly, only other expressions by SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.bind.arrays import ArrayType, reading
from grouplearn.catalog.checks.damage import damaged, shown
from grouplearn.catalog.checks.fragments import column_name
from grouplearn.catalog.records import ItemColumn, ModelDefinition
from grouplearn.data import arrays
from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.types import as_text_of
from grouplearn.errors import data_error
from grouplearn.kernels.number_columns import NumberReader, is_readable
from grouplearn.models.definition import ROW
from grouplearn.models.forms.routed import item_alias, item_sql, key_alias, key_sql, key_value
from grouplearn.prediction.rows.known_values import Codes
from grouplearn.prediction.rows.routes import codes_with_null
from grouplearn.prediction.rows.vocabulary import Vocabulary
from grouplearn.sqltext import folded

#: Evaluates a query over the rows, made by a function of the rows' name, and returns its columns.
Evaluate = Callable[[Callable[[str], str]], Sequence[Any]]
_NUMBERS, _BYTES = reading(ArrayType("DOUBLE", None)), reading(ArrayType("UTINYINT", None, is_bytes=True))
#: The relation's column with row numbers.
INDEX = "__grouplearn_index"
#: Most digits of a decimal that is not stored as HUGEINT.
_DIGITS = 18


class RowReader:
    """Reads rows of one struct type.

    ``exact``: the type has parts whose values Arrow changes; columns of these are evaluated by SQL.
    """

    def __init__(self, vocabulary: Vocabulary, kind: pa.StructType, *, exact: bool) -> None:
        self._vocabulary, self._kind, self._exact = vocabulary, kind, exact
        definition, starts = vocabulary.definition, vocabulary.layout.starts
        names = [folded(field.name) for field in kind]
        self._places = {name: place for place, name in enumerate(names) if names.count(name) == 1}
        self._evaluated = is_evaluated(kind)
        self._keys = _present(self._key(number) for number in range(len(definition.keys)))
        self._items = _present(self._item(number, entry) for number, entry in enumerate(definition.items))
        numeric = [number for number in self._items if definition.items[number].item.kind == "numeric"]
        self._numbers = NumberReader(
            kind, [self._items[number] for number in numeric], [starts[number] for number in numeric]
        )
        self._others = [number for number in self._items if definition.items[number].item.kind != "numeric"]
        self._odd_keys = [number for number in range(len(definition.keys)) if number not in self._keys]
        self._odd_items = [number for number in range(len(definition.items)) if number not in self._items]

    def reads(self, kind: pa.StructType, *, exact: bool) -> bool:
        """Return whether it can read these rows."""
        return self._exact == exact and self._kind.equals(kind, check_metadata=True)

    def read(self, rows: Any, evaluate: Evaluate) -> tuple[FloatArray, Codes] | None:
        """Return the lines (n, width) of rows without NULLs, and the place of each row's group, -1 for none.

        None if a row without a group is an error, which DuckDB then reports.
        """
        vocabulary = self._vocabulary
        odd = iter(evaluate(self._query) if self._odd_keys or self._odd_items else ())
        codes: list[Codes] = []
        for number, known in enumerate(vocabulary.routes.known):
            if number in self._keys:
                codes.append(codes_with_null(known, rows.field(self._keys[number])))
            else:
                own = codes_with_null(known, next(odd))
                codes.append(np.where(np.asarray(next(odd)), np.int32(-1), own))
        group = vocabulary.routes.places(codes, len(rows))
        if group is None:
            return None
        x = np.zeros((len(rows), vocabulary.layout.width))
        self._numbers.read(rows, x)
        for number in self._others:
            self._write(x, number, rows.field(self._items[number]), group, by_sql=self._evaluated)
        for number in self._odd_items:
            self._write(x, number, next(odd), group, by_sql=True)
        return x, group

    def _write(self, x: FloatArray, number: int, column: Any, group: Codes, *, by_sql: bool) -> None:
        definition = self._vocabulary.definition
        try:
            self._written(x, number, column, group, by_sql)
        except pa.ArrowException:
            item = definition.items[number].item
            why = f"item {shown(item.name)} is {item.kind}, and its expression gives {column.type}"
            raise damaged(definition.catalog, definition.name, "models", why) from None

    def _written(self, x: FloatArray, number: int, column: Any, group: Codes, by_sql: bool) -> None:
        item, at = self._vocabulary.definition.items[number].item, self._vocabulary.layout.starts[number]
        if item.kind == "array":
            x[:, at : at + item.buckets] = array_values(self._vocabulary.definition, item, column)
        elif item.is_named:
            own = self._vocabulary.categories[number]
            known = own.texts if by_sql or own.values is None else own.values
            x[:, at] = own.places.of(group, known.codes(column), column)
        elif item.kind == "binned":
            values = column.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
            places = self._vocabulary.bins[number].places(group, values)
            x[:, at] = np.where((group < 0) | (places < 0), np.nan, places)
        elif item.kind == "hash":
            buckets = bucket_numbers(self._vocabulary.definition, item, column)
            wide = self._vocabulary.wide.get(number)
            x[:, at] = np.where(buckets < 0, np.nan, buckets) if wide is None else wide.of(group, buckets)
        else:
            values = column.cast(pa.float64()).fill_null(np.nan)
            x[:, at] = values.to_numpy(zero_copy_only=False)

    def _query(self, relation: str) -> str:
        definition = self._vocabulary.definition
        keys = [(definition.keys[number], number) for number in self._odd_keys]
        inner = [f"{key_sql(key)} AS {key_alias(number)}" for key, number in keys]
        inner += [f"{item_sql(definition.items[number])} AS {item_alias(number)}" for number in self._odd_items]
        outer = []
        for key, number in keys:
            value = key_value(key, number)
            outer += [
                f"{value} AS value{number}",
                f"{value} IS NULL AND r.{key_alias(number)} IS NOT NULL AS odd{number}",
            ]
        outer += [f"r.{item_alias(number)}" for number in self._odd_items]
        rows = f"SELECT {', '.join(inner)}, {INDEX} FROM {relation} AS {ROW}"
        return f"SELECT {', '.join(outer)} FROM ({rows}) AS r ORDER BY r.{INDEX} ASC"

    def _key(self, number: int) -> tuple[int, int | None]:
        key = self._vocabulary.definition.keys[number]
        place = None if key.sql.startswith("CAST(") else self._column(key.sql)
        taken = place is not None and self._vocabulary.routes.known[number].takes(self._kind.field(place))
        return number, place if taken else None

    def _item(self, number: int, entry: ItemColumn) -> tuple[int, int | None]:
        """Return an item's number and the place of its plain column, None for another expression."""
        if self._evaluated and entry.item.kind != "numeric":
            return number, self._places.get(item_alias(number))
        if entry.item.is_number:
            place = self._column(entry.sql)
            good = place is not None and not self._kind.field(place).metadata
            return number, place if good and is_readable(self._kind.field(place).type) else None
        if entry.item.kind == "array":
            of_bytes = entry.type == "BLOB"
            place = self._column(_between(entry.sql, _BYTES if of_bytes else _NUMBERS))
            return number, place if place is not None and self._is_array(place, of_bytes) else None
        if entry.item.is_named:
            values = self._vocabulary.categories[number].values
            place = self._column(_between(entry.sql, as_text_of(entry.type)))
            return number, place if place is not None and values and values.takes(self._kind.field(place)) else None
        return number, None

    def _is_array(self, place: int, is_bytes: bool) -> bool:
        field = self._kind.field(place)
        if field.metadata or is_bytes:
            return False
        lists = (pa.types.is_list, pa.types.is_fixed_size_list, pa.types.is_large_list)
        return any(test(field.type) for test in lists) and is_readable(field.type.value_type)

    def _column(self, sql: str) -> int | None:
        """Return the place of the column that SQL names, None if it is another expression or unknown."""
        name = column_name(sql)
        place = None if name is None else self._places.get(folded(name))
        return None if place is None or (self._exact and _is_changed(self._kind.field(place).type)) else place


def bucket_numbers(definition: ModelDefinition, item: Item, column: Any) -> npt.NDArray[np.int32]:
    """Return bucket numbers, -1 for NULL; they are checked, as their expression and count come with the model."""
    try:
        buckets = np.asarray(column.cast(pa.int64()).fill_null(-1))
    except pa.ArrowException:  # such as fractions
        buckets = np.array([item.buckets])
    if len(buckets) and not -1 <= buckets.min() <= buckets.max() < item.buckets:
        raise damaged(
            definition.catalog,
            definition.name,
            "models",
            f"item {shown(item.name)} has {item.buckets:,} buckets, and its expression gives others",
        )
    return buckets.astype(np.int32)


def array_values(definition: ModelDefinition, item: Item, column: Any) -> FloatArray:
    """Return each row's array values, NaN for NULL; raises DataError for a wrong length."""
    try:
        return arrays.numbers(column, item.buckets)
    except arrays.LengthError as error:
        raise data_error(
            f'model "{definition.name}" takes {item.buckets:,} values of "{item.name}", and {error.rows:,} of'
            " these rows have another number"
        ) from None


def is_evaluated(kind: pa.StructType) -> bool:
    """Return whether rows of this type have a model's keys and items, rather than columns of their source."""
    return any(field.name in (key_alias(0), item_alias(0)) for field in kind)


def _present(found: Iterable[tuple[int, int | None]]) -> dict[int, int]:
    return {number: place for number, place in found if place is not None}


def _between(sql: str, around: tuple[str, str]) -> str:
    """Return the SQL between two texts; if they are not there, something that is no expression."""
    before, after = around
    return sql[len(before) : -len(after)] if sql.startswith(before) and sql.endswith(after) else ""


def _is_changed(kind: pa.DataType) -> bool:
    """Return whether Arrow may change values of this type, one of ``INEXACT_TYPES``."""
    decimal = pa.types.is_decimal(kind) and kind.precision > _DIGITS
    return bool(decimal or pa.types.is_time(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
