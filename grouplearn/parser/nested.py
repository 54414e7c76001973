"""Our statements inside a statement of DuckDB's, and after a WITH clause.

``FROM (SHOW MODELS)``, ``CREATE TABLE e AS EVALUATE MODEL m ON t``, ``INSERT INTO e WITH c AS (...) EVALUATE ...``:
statements that return rows may stand in place of a query. ``WITH c AS (...) TRAIN MODEL ... FROM c``: the clause becomes
part of the source, as a stored statement has no other place for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from grouplearn.interrupting import with_checks
from grouplearn.messages import Span
from grouplearn.parser.lexer.cursor import Cursor
from grouplearn.parser.lexer.tokens import SPACES, Token, lex, unquote
from grouplearn.parser.manage import parse_describe, parse_evaluate, parse_explain, parse_show
from grouplearn.parser.outline import Outline
from grouplearn.parser.statements import (
    EvaluateModel,
    Listing,
    Nested,
    OurStatement,
    Parameter,
    Sql,
    TrainModel,
)
from grouplearn.parser.train import parse_train
from grouplearn.sqltext import folded

#: Blanks before the next word, or a comment, whose end is not looked for.
_GAP = rf"[{SPACES}]*+(?:--|/\*|"
#: A statement without any of these pairs of words goes to DuckDB without further checks.
_MAY_HAVE_OURS = re.compile(
    rf"\b(?:show|desc|describe|evaluate|train|create)\b{_GAP}(?:models?|learners?|runs|functions)\b"
    rf"|or\b{_GAP}replace\b{_GAP}model\b)))",
    re.IGNORECASE,
)


def parse_nested(text: str, start: int, stop: int) -> OurStatement | None:
    """Return the statement ``text[start:stop]``, which does not begin with one of ours, or None if it contains none."""
    if _MAY_HAVE_OURS.search(text, start, stop) is None:
        return None
    outline = Outline([*with_checks(lex(text, start, stop))])
    if (begun := _begun_after_with(outline)) is not None:
        return begun(Cursor(text, start, stop))
    places = [*_candidates(outline)]
    return _parse_places(Cursor(text, start, stop), outline, places) if places else None


# --- WITH c AS (...) TRAIN ------------------------------------------------------------------------------------------


def _begun_after_with(outline: Outline) -> Callable[[Cursor], OurStatement] | None:
    """Return the parser of ``[EXPLAIN] WITH ... TRAIN`` or ``WITH ... EVALUATE``, None for other statements."""
    explained = outline.begins(0, "EXPLAIN")
    first = outline.words.index("WITH") if explained and "WITH" in outline.words else 0
    after = outline.after_ctes(first)
    if after is None or not outline.begins(outline.after_replace(after), "MODEL"):
        return None
    match outline.words[after]:
        case "TRAIN" | "CREATE":
            return partial(parse_explain, train=_parse_train) if explained else _parse_train
        case "EVALUATE" if not explained:
            return _parse_evaluate
    return None


def _parse_train(cursor: Cursor) -> TrainModel:
    """Read ``WITH c AS (...), ... TRAIN ...``; the clause becomes part of the source."""
    ctes = _parse_ctes(cursor)
    statement = parse_train(cursor)
    return replace(statement, source=_source_with(ctes, statement.source))


def _parse_evaluate(cursor: Cursor) -> EvaluateModel:
    ctes = _parse_ctes(cursor)
    statement = parse_evaluate(cursor)
    return replace(statement, source=_source_with(ctes, statement.source))


def _parse_ctes(cursor: Cursor) -> Sql:
    low = cursor.index
    cursor.index = Outline(cursor.tokens).after_ctes(low) or low
    return cursor.sql(low, cursor.index)


def _source_with(ctes: Sql, source: Sql, where: Sql | None = None) -> Sql:
    """Return ``(WITH ... SELECT * FROM source [WHERE ...]) AS alias``; the alias may qualify its columns."""
    predicate: tuple[str | Sql, ...] = ("\nWHERE (", where, "\n)") if where else ()
    parts = ("(", ctes, "\nSELECT * FROM ", source, *predicate, ")", _alias(source.text))
    text, parameters = _joined(parts)
    return Sql(text, source.span, parameters, Span(ctes.span.start, (where or source).span.end))


def _joined(parts: Iterable[str | Sql]) -> tuple[str, tuple[Parameter, ...]]:
    """Return the concatenation of parts, and its parameters."""
    text, parameters = "", list[Parameter]()
    for part in parts:
        if isinstance(part, Sql):
            parameters += _moved(part, len(text))
        text += part.text if isinstance(part, Sql) else part
    return text, tuple(parameters)


def _moved(fragment: Sql, by: int) -> Iterator[Parameter]:
    for parameter in fragment.parameters:
        yield Parameter(parameter.name, parameter.start + by, parameter.end + by)


def _alias(source: str) -> str:
    """Return `` AS name`` for a source that is one named table; for several tables, nothing."""
    tokens = [*lex(source)]
    names = [token for token in tokens if token.is_identifier]
    others = [token for token in tokens if not token.is_identifier and not token.is_symbol(".")]
    words = [token for token in names if token.word == "AS"]
    dots = sum(token.is_symbol(".") for token in tokens)
    alone = not others and names and len(names) - len(words) - dots in (1, 2)
    return f" AS {names[-1].text}" if alone else ""


# --- FROM (SHOW MODELS) ---------------------------------------------------------------------------------------------


def _is_train(outline: Outline, position: int, stop: int) -> bool:
    model = outline.after_replace(position)
    verb = outline.words[position] in ("TRAIN", "CREATE")
    return verb and outline.begins(model, "MODEL") and outline.has("USING", model, stop)


def _candidates(outline: Outline) -> Iterator[int]:
    """Yield where one of our statements may begin: after an opening bracket, CREATE ... AS, INSERT ..."""
    tokens, words = outline.tokens, outline.words
    first, after = words[0] if words else "", prepared(tokens)
    inserts = first == "INSERT" or (after is not None and words[after] == "INSERT")
    stores = first in ("CREATE", "PREPARE")
    for position in range(1, len(tokens)):
        if not words[position]:
            continue
        bare = outline.depths[position] == 0 and (inserts or (stores and words[position - 1] == "AS"))
        bracketed = not words[position - 1] and tokens[position - 1].is_symbol("(")
        if (bare or bracketed) and _is_ours(outline, position, outline.end(position)):
            yield position


def prepared(tokens: Sequence[Token]) -> int | None:
    """Return where the statement begins that PREPARE stores, None if there is none."""
    if not tokens or tokens[0].word != "PREPARE":
        return None
    after = next((place for place, token in enumerate(tokens, start=1) if token.word == "AS"), len(tokens))
    return after if after < len(tokens) else None


def _is_ours(outline: Outline, position: int, stop: int) -> bool:
    match outline.words[position : position + 2]:
        case ["SHOW", "MODELS" | "LEARNERS" | "RUNS"]:
            return stop == position + 2
        case ["SHOW", "FUNCTIONS"]:
            return outline.begins(position + 2, "OF")
        case ["DESCRIBE" | "DESC", "MODEL" | "LEARNER"]:
            return stop > position + 2 and outline.tokens[position + 2].is_identifier
    verb = outline.after_ctes(position) or position
    evaluates = outline.begins(verb, "EVALUATE", "MODEL") and outline.has("ON", verb, stop)
    return evaluates or _is_train(outline, verb, stop)


def _parse_places(cursor: Cursor, outline: Outline, candidates: Sequence[int]) -> Nested:
    """Read our statements that begin at ``candidates``; the text between them stays DuckDB's."""
    parts: list[Sql | Listing] = []
    copied, end = 0, len(cursor.tokens) - 1
    places = [*_places(cursor, candidates)]
    for place, stop in places:
        _refuse(cursor, outline, place, stop)
        listing = _parse_listing(cursor.within(place, stop))
        if isinstance(listing, EvaluateModel):
            listing = replace(listing, seen=_seen_rows(cursor, place, listing, places))
        parts += [cursor.sql(copied, place), listing]
        copied = stop
    if copied < end:
        parts.append(cursor.sql(copied, end))
    return Nested(tuple(parts))


def _places(cursor: Cursor, candidates: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield [begin, end) of our statements: they end at the bracket that closes them, or with the text."""
    end = 0
    for place in candidates:
        if place < end:  # inside the previous one
            continue
        bracketed = cursor.tokens[place - 1].is_symbol("(")
        end = cursor.closing[place - 1] if bracketed else len(cursor.tokens) - 1
        yield place, end


def _parse_listing(cursor: Cursor) -> Listing:
    match cursor.peek().word:
        case "SHOW":
            return parse_show(cursor)
        case "EVALUATE":
            return parse_evaluate(cursor)
        case "WITH":
            return _parse_evaluate(cursor)
    return parse_describe(cursor)


# --- WITH c AS (...) SELECT ... FROM (EVALUATE MODEL m ON c) --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cte:
    """A query in WITH: its name, and its token positions."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class _With:
    """A WITH clause: its first words and its queries."""

    head: str
    ctes: tuple[_Cte, ...]


def _seen_rows(cursor: Cursor, place: int, statement: EvaluateModel, ours: Sequence[tuple[int, int]]) -> Sql | None:
    """Return the rows of a nested EVALUATE with the WITH queries that they name; None if they name none."""
    names = _names(lex(statement.source.text)) | _names(lex(statement.where.text if statement.where else ""))
    rows: Sql | None = None
    for clause in reversed(_withs_around(cursor, place)):
        chosen: list[_Cte] = []
        for cte in reversed([each for each in clause.ctes if each.high <= place]):
            if cte.name in names:
                chosen.insert(0, cte)
                names |= _names(cursor.tokens[cte.low + 1 : cte.high])
        for cte in chosen:
            if any(cte.low <= low < cte.high for low, _ in ours):
                hint = "CREATE TEMP TABLE ... AS keeps its rows; then EVALUATE reads that."
                message = f"EVALUATE MODEL cannot read {cursor.tokens[cte.low].text}, in which a statement of grouplearn stands"
                cursor.fail(message, statement.source.span, hint)
        if chosen:
            parts = [part for cte in chosen for part in (", ", cursor.sql(cte.low, cte.high))][1:]
            text, parameters = _joined([f"{clause.head} ", *parts])
            ctes = Sql(text, cursor.span(chosen[0].low, chosen[-1].high), parameters)
            rows = _source_with(ctes, rows) if rows else _source_with(ctes, statement.source, statement.where)
    return rows


def _names(tokens: Iterable[Token]) -> frozenset[str]:
    return frozenset(folded(unquote(token)) for token in tokens if token.is_identifier)


def _withs_around(cursor: Cursor, place: int) -> list[_With]:
    """Return the WITH clauses in scope at a position, outermost first."""
    levels: list[list[_With]] = [[]]
    for position, token in enumerate(cursor.tokens[:place]):
        if token.is_symbol("(", "[", "{"):
            levels.append([])
        elif token.is_symbol(")", "]", "}"):
            levels.pop()
        elif token.word == "WITH" and (found := _read_with(cursor, position)) is not None:
            levels[-1].append(found)
    return [clause for level in levels for clause in level]


def _read_with(cursor: Cursor, position: int) -> _With | None:
    """Return the clause that begins with a word WITH, None for other uses (``WITH ORDINALITY``)."""
    tokens, at = cursor.tokens, position + 1
    recursive = tokens[at].word == "RECURSIVE"
    at += recursive
    ctes: list[_Cte] = []
    while tokens[at].is_identifier:
        low = at
        while at < len(tokens) - 1 and tokens[at].word != "AS":
            at = cursor.closing.get(at, at) + 1
        at += 1
        while tokens[at].word in ("NOT", "MATERIALIZED"):
            at += 1
        if not tokens[at].is_symbol("("):
            return None
        at = cursor.closing[at] + 1
        ctes.append(_Cte(folded(unquote(tokens[low])), low, at))
        if not tokens[at].is_symbol(","):
            break
        at += 1
    return _With("WITH RECURSIVE" if recursive else "WITH", tuple(ctes)) if ctes else None


_KEPT = {"VIEW": "a view", "MACRO": "a macro", "FUNCTION": "a macro"}


def _refuse(cursor: Cursor, outline: Outline, place: int, stop: int) -> None:
    """Raise for a nested statement that changes the database, and in a query that is stored to run later."""
    tokens = cursor.tokens
    verb = outline.after_ctes(place) or place
    if _is_train(outline, verb, stop):
        hint = "Run it by itself; then FROM m WHERE is_best, m being the model, has what it answers."
        cursor.fail(f"{tokens[verb].word} MODEL cannot stand inside another statement", tokens[verb], hint)
    words = outline.words[: min(place, 5)]
    kept = next((_KEPT[word] for word in words[1:5] if word in _KEPT), None) if words[0] == "CREATE" else None
    kept = "a prepared statement" if words[0] == "PREPARE" else kept
    if kept is not None:
        message = f"{kept} cannot keep {tokens[verb].word} {tokens[verb + 1].word}, whose query changes with the models"
        cursor.fail(message, cursor.span(verb, verb + 2), "CREATE TABLE ... AS keeps the rows as they are now.")
