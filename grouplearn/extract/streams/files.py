"""Files in FROM that can be read once: standard input, descriptors, and pipes with a name."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grouplearn.parser.lexer.tokens import Kind, Token, lex, unquote

#: The database may run in another process, which has descriptors of its own.
_DESCRIPTOR = re.compile(r"/dev/(?:stdin|fd/\d+)|/proc/(?:self|\d+)/fd/\d+")
_READER = re.compile(r"read_\w+", re.IGNORECASE)
#: The words before a file's name that stands for a table.
_BEFORE_TABLE = ("", "FROM", "JOIN")


@dataclass(frozen=True, slots=True)
class OneTimeFile:
    """A call such as ``read_csv('/dev/stdin')``, or a path in its place: the name that it gives its columns, and its range."""

    name: str
    text: str
    start: int
    end: int


def is_one_time(path: str) -> bool:
    """Whether the bytes of a file are gone once they are read."""
    if _DESCRIPTOR.fullmatch(path):
        return True
    try:
        kind = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


def one_time_files(text: str) -> Iterator[OneTimeFile]:
    """Yield the files that can be read once in what follows FROM or WHERE."""
    tokens, before = list(lex(text)), ""
    for place, token in enumerate(tokens):
        if token.is_identifier and _READER.fullmatch(token.text) and _is_call(tokens, place):
            last = _closing(tokens, place + 1)
            if any(_names_one(each, Kind.STRING) for each in tokens[place:last]):
                end = tokens[last].end
                yield OneTimeFile(token.text, text[token.start : end], token.start, end)
        elif before in _BEFORE_TABLE and _names_one(token, Kind.STRING, Kind.QUOTED):
            stem = os.path.basename(_path(token)).partition(".")[0]
            yield OneTimeFile(stem, token.text, token.start, token.end)
        before = token.word or token.text


def _is_call(tokens: Sequence[Token], place: int) -> bool:
    return place + 1 < len(tokens) and tokens[place + 1].is_symbol("(")


def _closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the place of the bracket that closes the one at ``opening``."""
    depth = 0
    for place in range(opening, len(tokens)):
        depth += tokens[place].is_symbol("(") - tokens[place].is_symbol(")")
        if depth == 0:
            return place
    return len(tokens) - 1


def _names_one(token: Token, *kinds: Kind) -> bool:
    return token.kind in kinds and is_one_time(_path(token))


def _path(token: Token) -> str:
    return token.text[1:-1].replace("''", "'") if token.kind is Kind.STRING else unquote(token)
