"""A string of several statements -> one piece per statement."""

from typing import NamedTuple

from grouplearn.interrupting import watched
from grouplearn.parser.lexer.tokens import Kind, Token, lex

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
    head: list[Token] = []
    start = depth = 0
    for token in watched(lex(text)):
        if token.kind is Kind.SYMBOL:
            if token.text in OPENING:
                depth += 1
            elif token.text in CLOSING:
                depth = max(0, depth - 1)
            elif token.text == ";" and depth == 0:
                pieces.append(TextPiece(start, token.start, token.end, tuple(head)))
                start = token.end
                head.clear()
                continue
        if len(head) < HEAD_LENGTH:
            head.append(token)
    if start < len(text):
        pieces.append(TextPiece(start, len(text), len(text), tuple(head)))
    return tuple(pieces)
