"""A string of several statements -> one piece per statement."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from grouplearn.interrupting import CHECK_EVERY, check_interrupt
from grouplearn.parser.lexer.tokens import Kind, Token, edges, lex, opening

HEAD_LENGTH = 24
"""Tokens kept of a piece to tell whose statement it is: enough for ``EXPLAIN (option value, ...) CREATE OR ...``."""

OPENING = frozenset("([{")
CLOSING = frozenset(")]}")


class TextPiece(NamedTuple):
    """``text[start:end]`` up to and including its ``;``; ``stop`` is the offset of the ``;``, or ``end`` without one."""

    start: int
    stop: int
    end: int
    head: tuple[Token, ...]


def split(text: str) -> tuple[TextPiece, ...]:
    """Return the pieces of ``text``, which together are ``text``; a piece with an empty head is blank.

    A ``;`` inside quotes, comments or brackets ends nothing. Stray closing brackets are ignored.
    """
    pieces: list[TextPiece] = []
    start = 0
    while start < len(text):
        pieces.append(_first_piece(text, start))
        start = pieces[-1].end
    return tuple(pieces)


def _first_piece(text: str, start: int) -> TextPiece:
    head: list[Token] = []
    depth = 0
    for count, token in enumerate(_decisive(text, start)):
        if count % CHECK_EVERY == 0:
            check_interrupt()
        if token.kind is Kind.SYMBOL:
            if token.text in OPENING:
                depth += 1
            elif token.text in CLOSING:
                depth = max(0, depth - 1)
            elif token.text == ";" and depth == 0:
                return TextPiece(start, token.start, token.end, tuple(head))
        if count < HEAD_LENGTH:
            head.append(token)
    return TextPiece(start, len(text), len(text), tuple(head))


class Lines:
    """The lines of a script up to the end of a statement, each of which is looked at once."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._unread: list[str] = []
        #: What begins a string or comment that has not ended.
        self._open = ""
        self._depth = 0
        self._is_blank = True

    def is_empty(self) -> bool:
        """Whether there is nothing but white space in them."""
        return not any(map(str.strip, self._lines))

    def text(self) -> str:
        """Return the lines."""
        return "".join(self._lines)

    def end_with(self, line: str) -> bool:
        """Add a line, which has its line end; return whether it ends a statement with its last ``;``, or all is comment."""
        self._lines.append(line)
        self._unread.append(line)
        if ";" not in line:
            return False
        text, self._open = self._open + "".join(self._unread), ""
        self._unread.clear()
        self._is_blank &= next(lex(text), None) is None
        end = self._last_end(text)
        return self._is_blank or (end is not None and next(lex(text, end), None) is None)

    def _last_end(self, text: str) -> int | None:
        """Return the offset after the last ``;`` that ends a statement, None if something is open."""
        end = None
        for token in edges(text, 0):
            if token.kind is Kind.BROKEN:
                self._open = opening(token)
                return None
            if token.kind is not Kind.SYMBOL:
                continue
            if token.text == ";" and self._depth == 0:
                end = token.end
            self._depth = max(0, self._depth + (token.text in OPENING) - (token.text in CLOSING))
        return end


def _decisive(text: str, start: int) -> Iterator[Token]:
    """Yield the first tokens of a statement, then those that decide where it ends."""
    end = start
    for token in islice(lex(text, start), HEAD_LENGTH):
        yield token
        end = token.end
    yield from edges(text, end)
