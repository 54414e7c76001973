"""The form of every message: what is wrong, where (``LINE n`` and a caret under the whole token), what is allowed, a hint."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grouplearn.visible import visible, visible_lines


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range of character offsets ``[start, end)`` into the text of one statement."""

    start: int
    end: int


#: A number of rows in a reason: ``each of the 20 rows``, ``8 of 40 rows``, ``3 training rows``.
ROW_COUNT = r"(the group's only|\b[0-9][0-9,]*( of [0-9][0-9,]*)?) (training )?rows?\b"


def without_counts(reason: str) -> str:
    """Return a reason without numbers of rows: reasons that differ in these alone are one."""
    return re.sub(ROW_COUNT, "rows", reason)


def render(message: str, text: str | None, span: Span | None, hint: str | None = None) -> str:
    """Return ``message``, the line of ``text`` that holds ``span`` with carets under the whole token, and the hint.

    A span over several lines is underlined to the end of its first line. Long lines are cut around the token. Hidden
    characters and terminal control characters are made visible: names and values may contain any.
    """
    parts = [visible_lines(message)]
    if text is not None and span is not None:
        parts.append("\n".join(_source_lines(text, span)))
    if hint:
        parts.append(f"Hint: {visible_lines(hint)}")
    return "\n\n".join(parts)


_LINE_WIDTH = 120


def _source_lines(text: str, span: Span) -> tuple[str, str]:
    line_start = text.rfind("\n", 0, span.start) + 1
    line_end = text.find("\n", span.start)
    line_end = len(text) if line_end < 0 else line_end
    number = text.count("\n", 0, span.start) + 1
    line = text[line_start:line_end].removesuffix("\r").replace("\t", " ")
    column = span.start - line_start
    width = max(1, min(span.end, line_end) - span.start)
    if len(line) > _LINE_WIDTH:
        cut = max(0, column - _LINE_WIDTH // 3)
        line = ("..." if cut else "") + line[cut : cut + _LINE_WIDTH]
        column = column - cut + (3 if cut else 0)
        width = max(1, min(width, len(line) - column))
    before, token = f"LINE {number}: {visible(line[:column])}", visible(line[column : column + width])
    after = visible(line[column + width :])
    return before + token + after, " " * sum(map(cells, before)) + "^" * max(1, sum(map(cells, token)))


def cells(character: str) -> int:
    """Return the terminal columns of a character: two for wide ones, none for combining and control characters."""
    if character.isascii():
        return int(character.isprintable())
    if unicodedata.category(character) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def did_you_mean(name: str, allowed: Iterable[str], written: Mapping[str, str] | None = None) -> str | None:
    """Return ``Did you mean "x"?`` for what ``name`` is likely short for or a slip of, as ``written``; None if for nothing."""
    own = name.casefold()
    by_folded = {candidate.casefold(): candidate for candidate in allowed}
    found = _swapped(own, by_folded) or difflib.get_close_matches(own, by_folded, n=1, cutoff=0.9)
    found = found or _beginning(own, by_folded) or difflib.get_close_matches(own, by_folded, n=1, cutoff=0.6)
    names = [(written or {}).get(by_folded[each], by_folded[each]) for each in found]
    shown = [each if '"' in each else f'"{each}"' for each in names]
    return f"Did you mean {' or '.join(shown)}?" if shown else None


def likeness(word: str, meant: str) -> float:
    """Return how near two words are, 1 if they are equal."""
    return difflib.SequenceMatcher(None, word, meant).ratio()


def _swapped(name: str, allowed: Iterable[str]) -> list[str]:
    """Return a name of which two neighbouring letters are swapped, which difflib holds for no nearer than one replaced."""
    swaps = {name[:place] + name[place : place + 2][::-1] + name[place + 2 :] for place in range(len(name) - 1)}
    return [each for each in allowed if each in swaps][:1]


def _beginning(name: str, allowed: Iterable[str]) -> list[str]:
    """Return the names that begin so, unless the beginning is too short, or common, to say what is meant."""
    found = [each for each in allowed if each.startswith(name)] if len(name) >= 3 else []
    return found if len(found) <= 3 else []
