"""``GROUP BY``: keys, ROLLUP, CUBE and GROUPING SETS -> grouping sets."""

import itertools
from collections.abc import Iterable

from grouplearn.messages import Span
from grouplearn.parser.clauses.features import take_alias
from grouplearn.parser.lexer.cursor import Cursor
from grouplearn.parser.lexer.tokens import Kind, unquote
from grouplearn.parser.statements import GroupBy, Name, Sql
from grouplearn.sqltext import folded

MOST_SETS = 1_000
"""Each is a case in the SQL that predicts, and DuckDB nests expressions at most 1,000 deep."""
DEEPEST = 100

_Set = frozenset[int]


def parse_group_by(cursor: Cursor, high: int) -> GroupBy:
    """Read ``tokens[cursor.index:high]``, the SQL after GROUP BY, and move past it."""
    low, cursor.index = cursor.index, high
    _limit_nesting(cursor, low, high)
    keys = _Keys(cursor)
    sets = _combined(cursor, [keys.sets_of(*item) for item in cursor.items(low, high)], cursor.span(low, high))
    ordered = sorted(dict.fromkeys(tuple(sorted(chosen)) for chosen in sets), key=len, reverse=True)
    return GroupBy(cursor.sql(low, high), tuple(keys.expressions), tuple(ordered), tuple(keys.aliases))


def _limit_nesting(cursor: Cursor, low: int, high: int) -> None:
    enclosing: list[int] = []
    for position in range(low, high):
        enclosing = [end for end in enclosing if end > position]
        if position in cursor.closing:
            enclosing.append(cursor.closing[position])
        if len(enclosing) > DEEPEST:
            cursor.fail("brackets are nested too deeply", cursor.tokens[position], f"At most {DEEPEST} levels.")


def _combined(cursor: Cursor, items: list[list[_Set]], span: Span) -> Iterable[_Set]:
    """The cross product of the items' sets, as in SQL: ``a, ROLLUP (b)`` is ``(a, b), (a)``."""
    count = 1
    for sets in items:
        count *= len(sets)
    _limit(cursor, count, span)
    return [frozenset[int]().union(*choice) for choice in itertools.product(*items)]


def _limit(cursor: Cursor, count: int, span: Span) -> None:
    if count > MOST_SETS:
        cursor.fail(f"too many grouping sets: {count:,}", span, f"At most {MOST_SETS:,} are allowed.")


class _Keys:
    """The distinct key expressions met so far; two are the same when they differ only in spacing, case or quotes."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.expressions: list[Sql] = []
        self.aliases: list[Name | None] = []
        self._numbers: dict[tuple[str, ...], int] = {}

    def sets_of(self, low: int, high: int) -> list[_Set]:
        """Return the grouping sets of one item."""
        cursor = self.cursor
        word, opened = cursor.tokens[low].word, low + 1
        if word in ("ROLLUP", "CUBE") and cursor.tokens[opened].is_symbol("(") and cursor.closing[opened] == high - 1:
            parts = [self._key_set(*part) for part in cursor.items(opened + 1, high - 1)]
            return self._rollup(parts) if word == "ROLLUP" else self._cube(parts, cursor.span(low, high))
        if word == "GROUPING" and cursor.tokens[low + 1].word == "SETS":
            if not cursor.is_bracketed(low + 2, high):
                cursor.fail('expected "(" after GROUPING SETS', cursor.tokens[low + 1])
            return [chosen for part in cursor.items(low + 3, high - 1) for chosen in self.sets_of(*part)]
        return [self._key_set(low, high)]

    @staticmethod
    def _rollup(parts: list[_Set]) -> list[_Set]:
        return [frozenset[int]().union(*parts[:length]) for length in range(len(parts), -1, -1)]

    def _cube(self, parts: list[_Set], span: Span) -> list[_Set]:
        _limit(self.cursor, 2 ** len(parts), span)
        sizes = range(len(parts), -1, -1)
        return [frozenset[int]().union(*chosen) for size in sizes for chosen in itertools.combinations(parts, size)]

    def _key_set(self, low: int, high: int) -> _Set:
        """Return the keys of ``expr``, ``expr AS name``, ``()`` or the composite ``(a, b)``."""
        cursor = self.cursor
        if cursor.is_bracketed(low, high) and not cursor.is_query(low + 1, high - 1):
            return frozenset().union(*(self._key_set(*part) for part in cursor.items(low + 1, high - 1)))
        end, alias = take_alias(cursor, low, high)
        if end - low == 1 and cursor.tokens[low].kind is Kind.NUMBER:
            hint = "There is no SELECT list to count in; write the expression itself."
            cursor.fail("GROUP BY takes expressions, not positions", cursor.tokens[low], hint)
        return frozenset((self._number(low, end, alias),))

    def _number(self, low: int, high: int, alias: Name | None) -> int:
        cursor = self.cursor
        normal = tuple(
            folded(unquote(token)) if token.is_identifier else token.text for token in cursor.tokens[low:high]
        )
        number = self._numbers.setdefault(normal, len(self.expressions))
        if number == len(self.expressions):
            self.expressions.append(cursor.sql(low, high))
            self.aliases.append(alias)
        elif alias is not None and self.aliases[number] not in (None, alias):
            cursor.fail("this key already has another name", alias.span, "One key has one name.")
        elif alias is not None:
            self.aliases[number] = alias
        return number
