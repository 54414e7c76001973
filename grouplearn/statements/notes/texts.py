"""Notes on texts: numbers that became classes, and values that differ only by case or blanks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from grouplearn.bind.sql import types
from grouplearn.catalog.records import ModelDefinition
from grouplearn.sqltext import identifier, literal
from grouplearn.train.job import Job
from grouplearn.visible import visible

#: Of a key or category with more values no two are compared.
_MOST_COMPARED = 100_000
#: So many whole numbers may be names of classes: stars, grades, weekdays.
_FEW_CLASSES = 10
_NUMBER = re.compile(r"\s*[-+]?[$€£]?\s*\d[\d.,' ]*\s*[%$€£]?\s*")
_THOUSANDS = re.compile(r"[^,]*\d(,\d{3})+(\.\d+)?\D*")
_DOUBT = re.compile(r"[%$€£,]")


def numbers_as_classes(definition: ModelDefinition) -> Iterator[str]:
    """Yield the note on a label whose classes are numbers written as text, with the cast that makes them numbers."""
    classes, name = definition.classes, definition.target_name
    if name is None or definition.label_type != "VARCHAR":
        return
    numbers = [text for text in classes if _NUMBER.fullmatch(text)]
    if len(numbers) < max(2, 0.9 * len(classes)):
        return
    if len(classes) <= _FEW_CLASSES and not any(map(_DOUBT.search, numbers)):
        return
    cast = _as_number(
        identifier(name) if not name.isidentifier() else name, numbers, all_are=len(numbers) == len(classes)
    )
    found = next((text for text in numbers if _DOUBT.search(text)), numbers[0])
    yield f"{len(classes)} classes such as {_shown(found)} are numbers written as text: PREDICT {cast} learns a number"


def _as_number(text: str, numbers: Sequence[str], *, all_are: bool) -> str:
    """Return SQL that makes a number of such texts."""
    commas = [number for number in numbers if "," in number]
    if commas and not all(map(_THOUSANDS.fullmatch, commas)):
        text = f"replace({text}, ',', '.')"
        removed = "%$€£ "
    else:
        removed = "%$€£, '"
    unwanted = "".join(sign for sign in removed if any(sign in number for number in numbers))
    text = f"translate({text}, {literal(unwanted)}, '')" if unwanted else text
    return f"CAST({text} AS DOUBLE)" if all_are else f"TRY_CAST({text} AS DOUBLE)"


def alike_values(job: Job, definition: ModelDefinition) -> Iterator[str]:
    """Yield notes on classes, keys and categories that differ only by case or blanks."""
    if definition.label_type is not None and types.has_text(definition.label_type):
        yield from _alike("classes", definition.classes, "PREDICT", definition.target_name or "")
    for place, key in enumerate(definition.keys):
        if types.has_text(key.type):
            yield from _alike("keys", (group.keys[place] for group in job.groups), "GROUP BY", key.name)
    for item in job.items:
        if item.kind == "category":
            yield from _alike("categories", job.dataset.dictionary(item), "FEATURES", item.name)


def _alike(what: str, texts: Iterable[str | None], clause: str, name: str) -> Iterator[str]:
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
        together = f"{clause} lower(trim({shown_name(name)}))"
        yield f"{what} {_shown(first)} and {_shown(second)}{more} differ only by case or blanks: {together} takes them together"


def shown_name(name: str) -> str:
    """Return a name as a user writes it in SQL."""
    return name if name.isidentifier() else identifier(name)


def _shown(text: str) -> str:
    return literal(visible(text if len(text) <= 30 else f"{text[:29]}…"))
