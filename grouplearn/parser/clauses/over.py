"""``OVER GRID (...)``, ``OVER RANDOM (...)`` and the search procedures: the search space."""

from typing import get_args

from grouplearn.messages import Span
from grouplearn.parser.lexer.cursor import Cursor
from grouplearn.parser.statements import Between, InList, Name, Search, SearchMethod, Sql

_METHODS: dict[str, SearchMethod] = {method.upper(): method for method in get_args(SearchMethod)}


def parse_search(cursor: Cursor) -> Search:
    """Read what follows OVER."""
    start = cursor.peek()
    if start.word not in _METHODS:
        *others, last = _METHODS
        cursor.unexpected(f"{', '.join(others)} or {last} after OVER", cursor.suggest(start, _METHODS))
    cursor.advance()
    low, high = cursor.open_bracket(f"OVER {start.word}", f"For example OVER {start.word} (l2 IN (0.1, 1)).")
    if low == high:
        cursor.fail("empty grid: no hyperparameter is listed", cursor.span(low - 1, high + 1))
    is_grid = start.word == "GRID"
    dimensions = tuple(_parse_dimension(cursor, *item, is_grid) for item in cursor.items(low, high))
    _reject_repeated(cursor, dimensions)
    return Search(_METHODS[start.word], dimensions, Span(start.start, cursor.tokens[high].end))


def _parse_dimension(cursor: Cursor, low: int, high: int, is_grid: bool) -> InList | Between:
    resume, cursor.index = cursor.index, low
    parameters, is_row = _parse_parameters(cursor)
    token = cursor.peek()
    if cursor.index < high and cursor.accept("IN"):
        dimension: InList | Between = _parse_in(cursor, parameters, is_row, high)
    elif cursor.index < high and cursor.accept("BETWEEN"):
        if is_grid:
            cursor.fail("BETWEEN is a range, and a grid needs values", token, "Use IN (...), or OVER RANDOM (...).")
        if is_row:
            cursor.fail("BETWEEN takes one hyperparameter", cursor.tokens[low])
        dimension = _parse_between(cursor, parameters[0], high)
    else:
        wanted = "IN (...)" if is_grid else "IN (...) or BETWEEN ... AND ..."
        name = parameters[0].value
        cursor.unexpected(f"{wanted} after the hyperparameter", f"For example {name} IN (1, 2).")
    if cursor.index < high:
        cursor.unexpected('"," or ")"')
    cursor.index = resume
    return dimension


def _parse_parameters(cursor: Cursor) -> tuple[tuple[Name, ...], bool]:
    if not cursor.peek().is_symbol("("):
        return (cursor.hyperparameter("a hyperparameter"),), False
    low, high = cursor.open_bracket("OVER")
    resume, names = cursor.index, []
    for start, stop in cursor.items(low, high):
        cursor.index = start
        names.append(cursor.hyperparameter("a hyperparameter"))
        if cursor.index < stop:
            cursor.unexpected('"," or ")"')
    if not names:
        cursor.fail("no hyperparameter is named", cursor.tokens[low - 1])
    cursor.index = resume
    return tuple(names), True


def _parse_in(cursor: Cursor, parameters: tuple[Name, ...], is_row: bool, high: int) -> InList:
    if not (cursor.index < high and cursor.peek().is_symbol("(")):
        cursor.unexpected('"(" after IN', "Write the values in brackets: IN (1, 2) or IN (SELECT ...).")
    low, stop = cursor.open_bracket("IN")
    if cursor.is_query(low, stop):
        return InList(parameters, subquery=cursor.sql(low - 1, stop + 1))
    items = cursor.items(low, stop)
    if not items:
        cursor.fail(f'empty grid: "{parameters[0].value}" has no values', cursor.span(low - 1, stop + 1))
    rows = is_row and len(parameters) > 1
    return InList(parameters, tuple(_parse_point(cursor, *item, len(parameters) if rows else 0) for item in items))


def _parse_point(cursor: Cursor, low: int, high: int, width: int) -> tuple[Sql, ...]:
    if not width:
        return (cursor.sql(low, high),)
    values = cursor.items(low + 1, high - 1) if cursor.is_bracketed(low, high) else []
    if len(values) != width:
        hint = f"Each value is a row of {width}: ({', '.join(['...'] * width)})."
        cursor.fail(f"expected a row of {width} values", cursor.span(low, high), hint)
    return tuple(cursor.sql(*value) for value in values)


def _parse_between(cursor: Cursor, parameter: Name, high: int) -> Between:
    low, tokens = cursor.index, cursor.tokens
    middle = next((place for place in cursor.outermost(low, high) if tokens[place].word == "AND"), high)
    if middle == high:
        cursor.index = high
        cursor.unexpected("AND after the lower bound", f"For example {parameter.value} BETWEEN 0.1 AND 10 LOG.")
    log = tokens[high - 1].word == "LOG" and high - 1 > middle + 1
    upper = high - 1 if log else high
    for start, stop, bound in ((low, middle, "lower"), (middle + 1, upper, "upper")):
        if start == stop:
            cursor.fail(f"the {bound} bound is missing", tokens[middle])
    cursor.index = high
    return Between(parameter, cursor.sql(low, middle), cursor.sql(middle + 1, upper), log)


def _reject_repeated(cursor: Cursor, dimensions: tuple[InList | Between, ...]) -> None:
    seen: set[tuple[str | None, str]] = set()
    for dimension in dimensions:
        for name in (dimension.parameter,) if isinstance(dimension, Between) else dimension.parameters:
            if name.qualified in seen:
                cursor.fail(f'the hyperparameter "{name.value}" is listed twice', name.span)
            seen.add(name.qualified)
