"""Finds misspelt statements of ours in text that neither our parser nor DuckDB's can read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from grouplearn.errors import ParseError
from grouplearn.interrupting import with_checks
from grouplearn.messages import Span
from grouplearn.parser.lexer.cursor import shown
from grouplearn.parser.lexer.statement_split import HEAD_LENGTH
from grouplearn.parser.lexer.tokens import Kind, Token, lex

_STATEMENTS = tuple(
    tuple(words.split())
    for words in (
        "TRAIN MODEL",
        "CREATE MODEL",
        "SHOW MODELS",
        "SHOW LEARNERS",
        "SHOW RUNS",
        "SHOW FUNCTIONS OF",
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
        "REFRESH MODEL",
        "EXPORT MODEL",
        "IMPORT MODEL",
        "CALIBRATE LEARNER",
        "RESET CALIBRATION",
    )
)
#: Verbs of ours that no statement of DuckDB's begins with: what follows them need not be near.
_OURS_ALONE = frozenset({"EVALUATE", "RESUME", "RETRY"})


def misspelt(text: str, start: int = 0, stop: int | None = None) -> ParseError | None:
    """Return what is wrong with ``text[start:stop]`` if its first words are near to a statement of ours, None if they are not.

    It must be neither ours nor one that DuckDB can read: ``DROP MODLE m``, ``TRIAN MODEL m ...``, ``RETRY MODEL m``.
    """
    tokens = _first_words(tuple(islice(lex(text, start, stop), HEAD_LENGTH)))
    if [token.word for token in tokens[:2]] == ["PREDICT", "MODEL"]:
        return _prediction(text, tokens)
    meant = next((statement for statement in _STATEMENTS if _is_near(tokens, statement)), None)
    if meant is None:
        return None
    words = [token.word for token in tokens]
    wrong = next((place for place, word in enumerate(meant) if words[place : place + 1] != [word]), None)
    if wrong is None:
        return _meant_for_others(text, start, stop)
    token = tokens[wrong] if wrong < len(tokens) else Token(Kind.END, "", tokens[-1].end, tokens[-1].end)
    found = "the end of the statement" if token.kind is Kind.END else shown(token)
    message = f"expected {' '.join(meant[wrong:])}, not {found}"
    return ParseError(message, text=text, span=token.span, hint=f"Did you mean {' '.join(meant)}?")


def for_without_using(text: str, start: int, stop: int | None) -> Token | None:
    """Return the FOR of ``TRAIN MODEL m PREDICT t.y FOR t``, a statement of the extension pql; None if it has USING, too."""
    if [token.word for token in islice(lex(text, start, stop), 2)] != ["TRAIN", "MODEL"]:
        return None
    found, depth = None, 0
    for token in with_checks(lex(text, start, stop)):
        depth += token.is_symbol("(", "[", "{") - token.is_symbol(")", "]", "}")
        if depth == 0 and token.word in ("FOR", "USING"):
            if token.word != "FOR":
                return None
            found = found or token
    return found


def _meant_for_others(text: str, start: int, stop: int | None) -> ParseError | None:
    token = for_without_using(text, start, stop)
    if token is None:
        return None
    message = "TRAIN ... FOR is a statement of the extension pql, which is not loaded"
    hint = "Did you mean TRAIN MODEL m USING linear_regression PREDICT y FROM t?"
    return ParseError(message, text=text, span=token.span, hint=hint)


def _prediction(text: str, tokens: Sequence[Token]) -> ParseError:
    """Return the error for ``PREDICT MODEL m ON t``."""
    model, source = (
        (text[token.start : token.end] for token in (*tokens[2:3], *tokens[4:5])) if len(tokens) > 4 else ("m", "t")
    )
    hint = (
        f"{model}_predict is a table: FROM {model}_predict({source}) has the rows of {source} with their predictions."
    )
    message = "predictions are a query, not a statement"
    return ParseError(message, text=text, span=Span(tokens[0].start, tokens[1].end), hint=hint)


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


def _is_near(tokens: Sequence[Token], statement: Sequence[str]) -> bool:
    """Whether the first two words are likely those of a statement; ``udfs/native/statements/statements.cpp`` judges likewise."""
    if not tokens:
        return False
    verb, *after = tokens[:2]
    if verb.word == statement[0] in _OURS_ALONE and all(token.is_identifier for token in after):
        return True
    return len(after) == 1 and _has_one_slip(verb.word, statement[0]) and _has_one_slip(after[0].word, statement[1])


def _has_one_slip(word: str, meant: str) -> bool:
    """Whether at most one letter is missing, added or replaced, or two neighbours are swapped."""
    pairs = enumerate(zip(word, meant, strict=False))
    same = next((place for place, (one, other) in pairs if one != other), min(len(word), len(meant)))
    rest, wanted = word[same:], meant[same:]
    replaced, added, missing = rest[1:] == wanted[1:], rest[1:] == wanted, rest == wanted[1:]
    return replaced or added or missing or (rest[1::-1] == wanted[:2] and rest[2:] == wanted[2:])
