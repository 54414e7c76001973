"""What a text may have meant that neither we nor DuckDB can read: a statement of ours, misspelt."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from grouplearn.errors import ParseError
from grouplearn.messages import likeness
from grouplearn.parser.lexer.cursor import shown
from grouplearn.parser.lexer.split import HEAD_LENGTH
from grouplearn.parser.lexer.tokens import Kind, Token, lex

_STATEMENTS = tuple(
    tuple(words.split())
    for words in (
        "TRAIN MODEL",
        "CREATE MODEL",
        "SHOW MODELS",
        "SHOW LEARNERS",
        "SHOW RUNS",
        "DESCRIBE MODEL",
        "DESCRIBE LEARNER",
        "DESC MODEL",
        "DESC LEARNER",
        "DROP MODEL",
        "DROP RUN",
        "ALTER MODEL",
        "EVALUATE MODEL",
        "RESUME MODEL",
        "RETRY FAILED MODEL",
        "EXPORT MODEL",
        "IMPORT MODEL",
        "CALIBRATE LEARNER",
        "RESET CALIBRATION",
    )
)
#: Verbs of ours that no statement of DuckDB's begins with: what follows them need not be near.
_OURS_ALONE = frozenset({"EVALUATE", "RESUME", "RETRY"})
_SIMILAR = 0.7


def misspelt(text: str, start: int = 0, stop: int | None = None) -> ParseError | None:
    """Return what is wrong with ``text[start:stop]`` if its first words are near to a statement of ours, None if they are not.

    It must be neither ours nor one that DuckDB can read: ``DROP MODLE m``, ``TRIAN MODEL m ...``, ``RETRY MODEL m``.
    """
    tokens = _first_words(tuple(islice(lex(text, start, stop), HEAD_LENGTH)))
    words = [token.text.upper() if token.is_identifier else "" for token in tokens]
    meant = max(_STATEMENTS, key=lambda statement: _nearness(words, statement))
    if _nearness(words, meant) == 0:
        return None
    wrong = next((place for place, word in enumerate(meant) if words[place : place + 1] != [word]), None)
    if wrong is None:
        return None
    token = tokens[wrong] if wrong < len(tokens) else Token(Kind.END, "", tokens[-1].end, tokens[-1].end)
    found = "the end of the statement" if token.kind is Kind.END else shown(token)
    message = f"expected {' '.join(meant[wrong:])}, not {found}"
    return ParseError(message, text=text, span=token.span, hint=f"Did you mean {' '.join(meant)}?")


def _first_words(head: Sequence[Token]) -> Sequence[Token]:
    """Return the tokens after ``EXPLAIN [ANALYZE] [(...)]``, without ``OR REPLACE`` after the first."""
    if head and head[0].word == "EXPLAIN":
        head = head[explained(head) :]
    replaces = [token.word for token in head[1:3]] == ["OR", "REPLACE"]
    return (*head[:1], *head[3:]) if replaces else head


def explained(head: Sequence[Token]) -> int:
    """Return the position after ``EXPLAIN [ANALYZE] [(...)]``."""
    position = 1
    if len(head) > 1 and head[1].word in ("ANALYZE", "ANALYSE"):
        position = 2
    if len(head) > position and head[position].is_symbol("("):
        closing = (place for place in range(position, len(head)) if head[place].is_symbol(")"))
        position = next(closing, len(head) - 1) + 1
    return position


def _nearness(words: Sequence[str], statement: Sequence[str]) -> float:
    """Return how near the first two words are to those of a statement; 0 if it is not likely what they mean."""
    verb, subject = (likeness(*pair) for pair in zip((*words, "", "")[:2], statement[:2], strict=True))
    alone = words[:1] == [statement[0]] and statement[0] in _OURS_ALONE and words[1:2] != [""]
    return verb + subject if alone or min(verb, subject) >= _SIMILAR else 0
