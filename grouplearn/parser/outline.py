"""The words and brackets of one statement, read once, so that each question about a place in it takes constant time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from grouplearn.interrupting import with_checks
from grouplearn.parser.lexer.statement_split import CLOSING, OPENING
from grouplearn.parser.lexer.tokens import Kind, Token

#: Words that stand after the brackets of ``WITH c(a) AS``, ``WITH RECURSIVE c AS (...) USING KEY (a)``.
_WITHIN_WITH = ("AS", "USING")


class Outline:
    """The tokens of a statement, whose brackets need not match; positions are indexes into ``tokens``.

    ``words`` are the tokens in upper case, empty for other tokens than words; ``depths`` say in how many brackets each stands.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.words: list[str] = []
        self.depths: list[int] = []
        self._places: dict[str, list[int]] = {}
        self._closing: dict[int, int] = {}
        self._after_ctes: dict[int, int] = {}
        self._read()

    def _read(self) -> None:
        opened: list[int] = []
        waiting: list[list[int]] = [[]]  # in each open bracket the words WITH whose queries have not ended
        closed = False
        for position, token in enumerate(with_checks(self.tokens)):
            symbol = token.text if token.kind is Kind.SYMBOL else ""
            word = "" if symbol else token.word
            if symbol in CLOSING and opened:
                self._closing[opened.pop()] = position
                waiting.pop()
            self.words.append(word)
            self.depths.append(len(opened))
            if word:
                self._places.setdefault(word, []).append(position)
                if closed and word not in _WITHIN_WITH:
                    self._after_ctes.update(dict.fromkeys(waiting[-1], position))
                    waiting[-1].clear()
                if word == "WITH":
                    waiting[-1].append(position)
            elif symbol in OPENING:
                opened.append(position)
                waiting.append([])
            closed = symbol == ")"

    def after_ctes(self, position: int) -> int | None:
        """Return the place of the statement after ``WITH name AS (...), ...``, None if no such clause begins at a position."""
        return self._after_ctes.get(position)

    def end(self, position: int) -> int:
        """Return where the bracket closes that stands before a position, or the end."""
        return self._closing.get(position - 1, len(self.tokens))

    def has(self, word: str, low: int, high: int) -> bool:
        """Return whether a word is among the tokens from ``low`` to ``high``."""
        places = self._places.get(word, [])
        at = bisect_left(places, low)
        return at < len(places) and places[at] < high

    def begins(self, position: int, *words: str) -> bool:
        """Return whether these words stand at a position."""
        return tuple(self.words[position : position + len(words)]) == words

    def after_replace(self, position: int) -> int:
        """Return the place after a verb at a position, and after ``OR REPLACE``."""
        return position + (3 if self.begins(position + 1, "OR", "REPLACE") else 1)
