"""Notes on texts: numbers that became classes, and values that differ only by case or blanks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from grouplearn.bind.clauses.number_texts import cast_of_numbers, is_missing, signed
from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.encoding import types
from grouplearn.learners.series.panel import OWN
from grouplearn.parser.lexer.keywords import NO_COLUMNS
from grouplearn.sqltext import identifier, literal
from grouplearn.train.job import Job
from grouplearn.visible import visible

#: The most values of a key or category that are compared with each other.
_MOST_COMPARED = 100_000
#: A value of a list as DuckDB writes it, in quotes or not.
_VALUE = re.compile(r"(?:^\[|, )(?:'((?:\\.|[^'\\])*)'|([^,\]]*))")
_PLAIN = re.compile(r"[^\W\d]\w*")
#: So many whole numbers may be names of classes: stars, grades, weekdays.
_FEW_CLASSES = 10


def numbers_as_classes(definition: ModelDefinition) -> Iterator[str]:
    """Yield the note on a label whose classes are numbers written as text, with the cast that makes them numbers."""
    classes, sql = definition.classes, definition.target_sql
    if sql is None or definition.label_type != "VARCHAR":
        return
    example, cast = signed(classes), cast_of_numbers(sql.strip(), classes)
    if cast is not None and (example is not None or len(classes) > _FEW_CLASSES):
        such = _shown(example or classes[0])
        yield f"{len(classes)} classes such as {such} are numbers written as text: PREDICT {cast} learns a number"


def missing_as_class(definition: ModelDefinition) -> Iterator[str]:
    """Yield the note on a class that is a text in place of a missing value."""
    if definition.target_sql is not None and definition.label_type == "VARCHAR":
        for each in definition.classes:
            if is_missing(each):
                skipped = f"PREDICT nullif({definition.target_sql.strip()}, {literal(each)})"
                yield f"class {_shown(each)} looks like a missing value: {skipped} skips its rows"


def alike_values(job: Job, definition: ModelDefinition) -> Iterator[str]:
    """Yield notes on classes, keys and categories that differ only by case or blanks."""
    if definition.label_type is not None and types.has_text(definition.label_type):
        yield from _alike("classes", definition.classes, "PREDICT", definition.target_sql or "")
    for place, key in enumerate(definition.keys):
        if types.has_text(key.type):
            yield from _alike("keys", (group.keys[place] for group in job.groups), "GROUP BY", key.sql)
    if definition.series:
        yield from _alike_series(job, definition)
    for entry in definition.items[OWN if definition.series else 0 :]:
        if entry.item.is_named:
            yield from _alike("categories", job.dataset.dictionary(entry.item), "FEATURES", entry.written)


def _alike_series(job: Job, definition: ModelDefinition) -> Iterator[str]:
    """Yield notes on the columns of SERIES BY: a category is the list of their values, as DuckDB writes it."""
    series = [_VALUE.findall(text) for text in job.dataset.dictionary(definition.items[OWN - 1].item)]
    for place, key in enumerate(definition.series):
        if types.has_text(key.type):
            values = (each[place] for each in series if len(each) == len(definition.series))
            texts = (re.sub(r"\\(.)", r"\1", quoted) or plain for quoted, plain in values if plain != "NULL")
            yield from _alike("series", texts, "SERIES BY", key.sql)


def _alike(what: str, texts: Iterable[str | None], clause: str, sql: str) -> Iterator[str]:
    distinct = set(texts) - {None}
    if len(distinct) > _MOST_COMPARED:
        return
    found: dict[str, list[str]] = defaultdict(list)
    for text in distinct:
        if text is not None:
            found[" ".join(text.casefold().split())].append(text)
    several = sorted(sorted(each) for each in found.values() if len(each) > 1)
    if several:
        first, second = several[0][:2]
        more = f" (and {len(several) - 1:,} more)" if len(several) > 1 else ""
        call = f"lower(trim({sql.strip()}))"
        together = f"FEATURES ({call}, ...)" if clause == "FEATURES" else f"{clause} {call}"
        yield f"{what} {_shown(first)} and {_shown(second)}{more} differ only by case or blanks: {together} takes them together"


def shown_name(column: str) -> str:
    """Return the name of a column as a user writes it in SQL."""
    is_plain = _PLAIN.fullmatch(column) and column.casefold() not in NO_COLUMNS
    return column if is_plain else identifier(column)


def _shown(text: str) -> str:
    return literal(visible(text if len(text) <= 30 else f"{text[:29]}…"))
