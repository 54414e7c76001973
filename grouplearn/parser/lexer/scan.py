"""Where a clause's own SQL ends and the next clause begins.

Nothing inside brackets, quotes or CASE ... END starts a clause. Outside them:

- A reserved clause word (FROM, WHERE, GROUP BY, ORDER BY, HAVING, USING, WITH, ON) always starts one, except in its other uses in
  SQL: ``IS DISTINCT FROM``, ``WITHIN GROUP``, ``JOIN ... USING (``, ``USING SAMPLE``, ``WITH ORDINALITY``,
  ``TIMESTAMP WITH TIME ZONE``, a join's ``ON``.
- Any other clause word (PREDICT, TARGET, LABEL, FEATURES, OVER, VALIDATE, OPTIMIZE, KEEP, OPTIONS, PARTITION BY, SERIES BY) is a
  plain identifier where an operand must come (first in a clause, after an operator, a comma, a dot, AND, AS ...) and
  starts a clause elsewhere. So ``PREDICT label``, ``WHERE label > 3`` and ``FROM t AS target`` need no quotes.
"""

import difflib
from typing import NoReturn

from grouplearn.messages import likeness
from grouplearn.parser.lexer.cursor import Cursor
from grouplearn.parser.lexer.keywords import CLAUSES, FOREIGN_CLAUSES, INFIX, PREFIX, SOFT_CLAUSES, quoting
from grouplearn.parser.lexer.tokens import Kind, Token
from grouplearn.parser.statements import Sql

_ON_CLAUSES = {
    "ON MISSING GROUP": ("MISSING", "GROUP"),
    "ON NULL LABEL": ("NULL", "LABEL"),
    "ON GROUP FAILURE": ("GROUP", "FAILURE"),
}
_FIRST_WORDS = {clause.split()[0]: clause for clause in CLAUSES if not clause.startswith("ON ")}
_LOOKALIKES = frozenset({"WITHOUT", "WITHIN", "WHEN", "OUTER", "INTERVAL"})
_SIMILAR = 0.7
_FOREIGN_TO_FEW = FOREIGN_CLAUSES | {"GROUP", "HAVING", "ORDER"}


def fragment(cursor: Cursor, clause: str, stops: frozenset[str] | None = None) -> Sql:
    """Read the SQL of ``clause`` up to the next clause, or up to one of ``stops`` in statements with few clauses."""
    low = cursor.index
    cursor.index = fragment_end(cursor, clause, stops)
    if cursor.index == low:
        wanted = "a table or (query)" if clause in ("FROM", "ON") else "an expression"
        alias = f"To use it as an alias, write AS {clause.lower()}." if clause in ("TARGET", "LABEL") else None
        cursor.unexpected(f"{wanted} after {clause}", alias or (quoting("order") if cursor.at("ORDER") else None))
    return cursor.sql(low, cursor.index)


def fragment_end(cursor: Cursor, clause: str, stops: frozenset[str] | None = None) -> int:
    """Return the position after the SQL that starts at the cursor. Raises ParseError if it cannot be SQL."""
    tokens, position, cases, wants_operand = cursor.tokens, cursor.index, 0, True
    while tokens[position].kind is not Kind.END:
        token = tokens[position]
        dotted = position > cursor.index and tokens[position - 1].is_symbol(".")
        word = "" if dotted else token.word
        if not cases and word:
            if starts_clause(cursor, position, wants_operand) if stops is None else _stops(cursor, position, stops):
                break
            if word == "ON" and stops is None and _is_misspelt_on(cursor, position, in_from=clause == "FROM"):
                break
            _reject_foreign(cursor, position, clause, FOREIGN_CLAUSES if stops is None else _FOREIGN_TO_FEW)
            if not wants_operand and stops is None:
                _reject_misspelt(cursor, position, in_from=clause == "FROM")
        cases = max(0, cases + (word == "CASE") - (word == "END"))
        wants_operand = _wants_operand_after(cursor, position, word, wants_operand, clause)
        position = cursor.closing.get(position, position) + 1
    if wants_operand and position > cursor.index:
        cursor.fail(f"the SQL after {clause} is incomplete", tokens[position - 1])
    return position


def _stops(cursor: Cursor, position: int, stops: frozenset[str]) -> bool:
    """Whether a word, or it and the next, is among ``stops``: the clauses of a statement that has few."""
    word, after = cursor.tokens[position].word, cursor.tokens[position + 1].word
    if word == "WITH" and after in ("ORDINALITY", "TIME"):
        return False
    return word in stops or f"{word} {after}" in stops


def starts_clause(cursor: Cursor, position: int, wants_operand: bool) -> bool:
    """Whether the word at ``position``, outside brackets, starts a clause (see the module)."""
    tokens = cursor.tokens
    word, after = tokens[position].word, tokens[position + 1]
    before = tokens[position - 1]
    if word in ("WHERE", "HAVING", "ORDER"):
        return True
    if word == "FROM":
        return before.word != "DISTINCT"
    if word == "GROUP":
        return before.word != "WITHIN"
    if word == "USING":
        return not after.is_symbol("(") and after.word != "SAMPLE"
    if word == "WITH":
        return after.word not in ("ORDINALITY", "TIME")
    if word == "ON":
        words = tuple(each.word for each in tokens[position + 1 : position + 4])
        return words[:2] in _ON_CLAUSES.values() and words[2:] != ("BY",)
    if word == "AS":
        return after.word in ("SELECT", "WITH") or after.is_symbol("(")
    if word not in SOFT_CLAUSES or wants_operand:
        return False
    if word == "OVER":
        return not (after.is_symbol("(") and before.is_symbol(")"))
    if word == "WITHIN":
        return after.word != "GROUP"
    return word not in ("PARTITION", "SERIES") or after.word == "BY"


def _wants_operand_after(cursor: Cursor, position: int, word: str, wanted: bool, clause: str) -> bool:
    tokens = cursor.tokens
    token = tokens[position]
    if token.kind is Kind.SYMBOL:
        return position not in cursor.closing and not _is_postfix(cursor, position, wanted)
    if wanted or not word:
        return wanted and word in PREFIX
    if word == "ZONE":
        return tokens[position - 2].word == "AT"
    if word == "ESCAPE":
        return clause != "FROM"
    if word == "SAMPLE":
        return tokens[position - 1].word == "USING"
    return word in INFIX


def _is_postfix(cursor: Cursor, position: int, wanted: bool) -> bool:
    """Whether a symbol ends an operand: ``5!``, the ``*`` of ``t.*``, the ``%`` of ``TABLESAMPLE 10%``."""
    token, tokens = cursor.tokens[position], cursor.tokens
    if wanted:
        return token.is_symbol("*")
    sampled = tokens[max(0, position - 2)].word in ("TABLESAMPLE", "SAMPLE")
    return token.is_symbol("!") or (token.is_symbol("%") and sampled)


def _reject_foreign(cursor: Cursor, position: int, clause: str, foreign: frozenset[str]) -> None:
    token = cursor.tokens[position]
    if token.word in foreign and cursor.tokens[position - 1].word != "WITHIN":
        if position == cursor.index and clause not in ("FROM", "ON") and token.word != "SELECT":
            cursor.unexpected(f"an expression after {clause}", quoting(token.text))
        word = f"{token.word} BY" if token.word in ("ORDER", "GROUP") else token.word
        place = clause if clause in ("FROM", "ON") or word == "SELECT" else "FROM"
        query = "SELECT ..." if word == "SELECT" else f"SELECT ... {word} ..."
        cursor.fail(
            f"{word} is not a clause of this statement", token, f"Put the query in brackets: {place} ({query})."
        )


def _reject_misspelt(cursor: Cursor, position: int, in_from: bool) -> None:
    """Raise for a word like ``FEATURE`` in ``PREDICT late FEATURE (a)``, where SQL allows none.

    In FROM a word after a table may be its alias, so there it must also be followed by an operand.
    """
    token, after = cursor.tokens[position], cursor.tokens[position + 1]
    if token.word == "HORIZON" and after.kind in (Kind.NUMBER, Kind.PARAMETER):
        steps = after.text
        hint = f"WITH (horizon = {steps}) forecasts so many steps; VALIDATE ROLLING 3 HORIZON {steps} judges so many."
        cursor.fail("HORIZON stands after VALIDATE ROLLING", token, hint)
    if not token.word or token.word in INFIX | _FIRST_WORDS.keys() | _LOOKALIKES:
        return
    starts_operand = after.kind in (Kind.WORD, Kind.QUOTED, Kind.NUMBER, Kind.STRING, Kind.PARAMETER)
    likely = not in_from or after.is_symbol("(") or after.word == "BY" or (starts_operand and not _is_known(after))
    similar = difflib.get_close_matches(token.word, _FIRST_WORDS, n=1, cutoff=_SIMILAR)
    if likely and similar:
        cursor.fail(f'"{token.text}" is not a clause', token, f"Did you mean {_FIRST_WORDS[similar[0]]}?")


def nearest_on_clause(cursor: Cursor, position: int) -> tuple[str, float]:
    """Return the clause that the words after ON come nearest to, and how near the nearer word is, up to 1."""
    words = [token.word for token in cursor.tokens[position + 1 : position + 3]]
    found = {
        clause: [likeness(word, meant) for word, meant in zip(words, pair, strict=False)]
        for clause, pair in _ON_CLAUSES.items()
    }
    nearest = max(found, key=lambda clause: sum(found[clause]))
    return nearest, max(found[nearest])


def _is_misspelt_on(cursor: Cursor, position: int, in_from: bool) -> bool:
    """Whether an ON is none of a join's and followed by words like those of our clauses."""
    joins = _joins_without_condition(cursor, position) if in_from else 0
    return not joins and nearest_on_clause(cursor, position)[1] >= _SIMILAR


def _joins_without_condition(cursor: Cursor, position: int) -> int:
    """Return how many joins of the FROM at the cursor have had neither ON nor USING before ``position``."""
    tokens, count = cursor.tokens, 0
    for place in cursor.outermost(cursor.index, position):
        word, after = tokens[place].word, tokens[place + 1]
        count += word == "JOIN" and tokens[place - 1].word not in _UNCONDITIONAL
        count -= word == "ON" or (word == "USING" and after.is_symbol("("))
    return count


_UNCONDITIONAL = frozenset({"CROSS", "NATURAL", "POSITIONAL"})
_JOINS = frozenset({"LEFT", "RIGHT", "FULL", "INNER", "SEMI", "ANTI", "CROSS", "NATURAL", "POSITIONAL", "ASOF", "AT"})


def _is_known(token: Token) -> bool:
    return token.word in INFIX | _JOINS | SOFT_CLAUSES | {"WHERE", "GROUP", "HAVING", "WITH", "PIVOT", "UNPIVOT"}


def reject_unknown_clause(cursor: Cursor) -> NoReturn:
    """Raise for a token in the place of a clause that is none."""
    token = cursor.peek()
    similar = difflib.get_close_matches(token.word, _FIRST_WORDS, n=1, cutoff=_SIMILAR) if token.word else []
    hint = f"Did you mean {_FIRST_WORDS[similar[0]]}?" if similar else f"The clauses are {', '.join(CLAUSES)}."
    cursor.unexpected("a clause", hint)
