"""``FEATURES (item, ...)``: plain SQL expressions, encoder calls, and AUTO; ``FEATURES AUTO [EXCEPT (column, ...)]``."""

from dataclasses import replace

from grouplearn.data.encoding.encoder_calls import EncoderCall
from grouplearn.data.encoding.registry import CALLS
from grouplearn.parser.lexer.cursor import Cursor
from grouplearn.parser.lexer.tokens import Kind
from grouplearn.parser.statements import Feature, Name, Option, Sql
from grouplearn.sqltext import identifier

#: The item whose features are chosen by type and values of each column.
AUTO = "AUTO"
_COLUMNS = "For example AUTO EXCEPT (customer_id, comment)."


def parse_features(cursor: Cursor) -> tuple[Feature, ...]:
    """Read AUTO or the bracketed list after FEATURES."""
    start = cursor.peek()
    if cursor.at(AUTO):
        low = cursor.index
        cursor.advance()
        if cursor.accept("EXCEPT") or cursor.accept("EXCLUDE"):
            cursor.open_bracket(f"AUTO {cursor.peek(-1).word}", _COLUMNS)
        return (_parse_auto(cursor, low, cursor.index),)
    hint = "FEATURES takes a list in brackets, FEATURES (a, zscore(b), onehot(c)), or AUTO."
    low, high = cursor.open_bracket("FEATURES", hint)
    if low == high:
        cursor.fail("FEATURES is empty", start, "Leave FEATURES out to use every column that is not otherwise used.")
    return tuple(_parse_item(cursor, *item) for item in cursor.items(low, high))


def _parse_auto(cursor: Cursor, low: int, high: int) -> Feature:
    """Read ``AUTO [EXCEPT (column, ...)]``, which stands in ``tokens[low:high]``."""
    span, argument = cursor.span(low, high), cursor.sql(low, low + 1)
    if high == low + 1:
        return Feature((argument,), auto_except=(), span=span)
    if cursor.tokens[low + 1].word not in ("EXCEPT", "EXCLUDE"):
        cursor.fail("only EXCEPT may follow AUTO", cursor.tokens[low + 1], _COLUMNS)
    if not cursor.is_bracketed(low + 2, high):
        cursor.fail("AUTO EXCEPT takes columns in brackets", cursor.span(low, high), _COLUMNS)
    columns = []
    for first, last in cursor.items(low + 3, high - 1):
        if last != first + 1 or not cursor.tokens[first].is_identifier:
            is_words = all(token.is_identifier for token in cursor.tokens[first:last])
            quoted = (
                f"Write a name with blanks in double quotes: AUTO EXCEPT ({identifier(cursor.sql(first, last).text)})."
            )
            cursor.fail(
                "AUTO EXCEPT takes names of columns", cursor.span(first, last), quoted if is_words else _COLUMNS
            )
        columns.append(cursor.name_of(cursor.tokens[first]))
    if not columns:
        cursor.fail("AUTO EXCEPT names no column", cursor.span(low, high), "AUTO alone takes every column.")
    return Feature((argument,), auto_except=tuple(columns), span=span)


def take_alias(cursor: Cursor, low: int, high: int) -> tuple[int, Name | None]:
    """Return the end of the expression in ``tokens[low:high]`` and the name after its outermost ``AS``."""
    tokens = cursor.tokens
    if high - low > 2 and tokens[low].is_identifier and tokens[low + 1].is_symbol(":", ":="):
        hint = f"Write {cursor.sql(low + 2, high).text} AS {tokens[low].text}."
        cursor.fail("a name stands after its expression", cursor.span(low, low + 2), hint)
    if tokens[high - 1].word == "AS":
        cursor.fail("a name is missing after AS", tokens[high - 1])
    marks = [position for position in cursor.outermost(low, high) if tokens[position].word == "AS"]
    if not marks:
        return high, None
    if marks[0] == low:
        cursor.fail("an expression is missing before AS", tokens[low])
    if not tokens[marks[0] + 1].is_identifier:
        cursor.fail("expected a name after AS", tokens[marks[0] + 1])
    if marks[0] + 2 < high:
        cursor.fail("nothing may follow the name after AS", cursor.span(marks[0] + 2, high))
    return marks[0], cursor.name_of(tokens[marks[0] + 1])


def _encoder_at(cursor: Cursor, position: int) -> str | None:
    """Return the encoder called at ``position``; ``main.hash(x)`` is not one."""
    token = cursor.tokens[position]
    called = token.kind is Kind.WORD and cursor.tokens[position + 1].is_symbol("(")
    qualified = position > 0 and cursor.tokens[position - 1].is_symbol(".")
    name = token.text.lower()
    return name if called and not qualified and name in CALLS else None


def _is_call(cursor: Cursor, low: int, high: int) -> bool:
    """Whether ``tokens[low:high]`` is one encoder call and nothing else."""
    return _encoder_at(cursor, low) is not None and high - low > 2 and cursor.closing[low + 1] == high - 1


def _reject_nested(cursor: Cursor, low: int, high: int) -> None:
    for position in range(low, high):
        name = _encoder_at(cursor, position)
        if name is not None:
            cursor.fail(
                f"{name} must be the outermost call of a FEATURES item",
                cursor.tokens[position],
                "DuckDB's own function is main.hash(...)."
                if name == "hash"
                else f"Only {_nested()} nest an encoder in another.",
            )


def _nested() -> str:
    """Return the calls that may have another in them, in words."""
    calls = [f"{call.name}({call.within}(...))" for call in CALLS.values() if call.within]
    return " and ".join([", ".join(calls[:-1]), calls[-1]] if calls[1:] else calls)


def _parse_item(cursor: Cursor, low: int, high: int) -> Feature:
    span = cursor.span(low, high)
    if cursor.tokens[low].word == AUTO and (high == low + 1 or cursor.tokens[low + 1].is_identifier):
        return _parse_auto(cursor, low, high)
    end, alias = take_alias(cursor, low, high)
    if not _is_call(cursor, low, end):
        _reject_nested(cursor, low, end)
        return Feature((cursor.sql(low, end),), alias=alias, span=span)
    return replace(_parse_call(cursor, low), alias=alias, span=span)


def _parse_call(cursor: Cursor, low: int) -> Feature:
    """Read the encoder call at ``low``: its columns, then its options."""
    token = cursor.tokens[low]
    encoder = Name(token.text.lower(), token.span)
    ranges = cursor.items(low + 2, cursor.closing[low + 1])
    positional = [item for item in ranges if not _is_option(cursor, *item)]
    options = [_parse_option(cursor, *item) for item in ranges if _is_option(cursor, *item)]
    if positional != ranges[: len(positional)]:
        cursor.fail("a column stands after an option", cursor.span(*positional[-1]), "Write the options last.")
    if not positional:
        cursor.fail(f"{encoder.value} has no columns", encoder.span, f"For example {encoder.value}(column).")
    for low, high in positional:
        if named := [place for place in cursor.outermost(low, high) if cursor.tokens[place].word == "AS"]:
            hint = f"Write {encoder.value}(...) {cursor.sql(named[0], high).text}."
            cursor.fail("a name stands after the whole item", cursor.span(named[0], high), hint)
    arguments, options = _arguments(cursor, encoder, positional, options)
    _reject_repeated(cursor, options)
    return Feature(arguments, encoder, tuple(options))


def _arguments(
    cursor: Cursor, encoder: Name, ranges: list[tuple[int, int]], options: list[Option]
) -> tuple[tuple[Sql, ...], list[Option]]:
    call = CALLS[encoder.value]
    if call.within and any(_is_within(cursor, call, *item) for item in ranges):
        return _imputed(cursor, encoder, ranges, options)
    for item in ranges:
        _reject_nested(cursor, *item)
    arguments = [cursor.sql(*item) for item in ranges]
    if call.together is None and len(arguments) < call.fewest:
        cursor.fail(f"{call.name} takes two or more columns, here is one", encoder.span, call.hint)
    options = _with_unnamed(cursor, encoder, arguments, options)
    if call.together and len(arguments) % call.together:
        cursor.fail(f"{call.name} takes {call.together} columns, here are {len(arguments)}", encoder.span, call.hint)
    return tuple(arguments), options


def _with_unnamed(cursor: Cursor, encoder: Name, arguments: list[Sql], options: list[Option]) -> list[Option]:
    """Return the options with those that the last arguments give, which are removed from ``arguments``."""
    call = CALLS[encoder.value]
    given = {each.name.value for each in options}
    unnamed = [option for option in call.last if option.name not in given]
    required = sum(option.required for option in unnamed)
    further = len(arguments) - call.fewest
    if further < required or any(each.required and each.name not in (*given, *call.unnamed) for each in call.options):
        cursor.fail(f"{call.name} needs {call.needed}", encoder.span, call.hint or f"For example {call.example}.")
    taken = min(max(0, further), len(unnamed))
    values = [arguments.pop() for _ in range(taken)][::-1]
    if required and len(arguments) > call.fewest:
        columns = "one column" if call.fewest == 1 else f"{call.fewest} columns"
        several = ", ".join(
            [*"abcdefgh"[: 2 * call.fewest], *(f"{each.name} := {each.example}" for each in unnamed if each.required)]
        )
        hint = f"For several {'columns' if call.fewest == 1 else 'pairs'} write {call.name}({several})."
        cursor.fail(f"{call.name} takes {columns} and {call.needed}", encoder.span, hint)
    named = [Option(Name(each.name, sql.span), sql) for each, sql in zip(unnamed, values, strict=False)]
    return [*named, *options]


def _is_within(cursor: Cursor, call: EncoderCall, low: int, high: int) -> bool:
    return _encoder_at(cursor, low) == call.within and _is_call(cursor, low, high)


def _imputed(
    cursor: Cursor, encoder: Name, ranges: list[tuple[int, int]], options: list[Option]
) -> tuple[tuple[Sql, ...], list[Option]]:
    """Turn ``zscore(impute(a), impute(b))`` into columns a, b and the option ``impute``."""
    arguments: list[Sql] = []
    methods: list[Sql] = []
    for item in ranges:
        if not _is_within(cursor, CALLS[encoder.value], *item):
            hint = f"Write two items: {encoder.value}(impute(a)), {encoder.value}(b)."
            cursor.fail("columns with and without impute cannot share a call", cursor.span(*item), hint)
        inner = _parse_call(cursor, item[0])
        for option in inner.options:
            if option.name.value != "method":
                hint = f"Write it as an option of {encoder.value}."
                cursor.fail(f"impute inside {encoder.value} has only the option method", option.name.span, hint)
        span = cursor.tokens[item[0]].span
        methods.append(inner.options[0].value if inner.options else Sql("'mean'", span))
        if methods[-1] != methods[0]:
            hint = f"Write two items, each with its own {encoder.value}."
            cursor.fail("the impute calls of one item must use one method", span, hint)
        arguments += inner.arguments
    return tuple(arguments), [Option(Name("impute", methods[0].span), methods[0]), *options]


def _is_option(cursor: Cursor, low: int, high: int) -> bool:
    return high - low >= 2 and cursor.tokens[low].is_identifier and cursor.tokens[low + 1].is_symbol(":=", "=>")


def _parse_option(cursor: Cursor, low: int, high: int) -> Option:
    token = cursor.tokens[low]
    if high - low < 3:
        cursor.fail(f'the option "{token.text}" has no value', token)
    _reject_nested(cursor, low + 2, high)
    name = cursor.name_of(token)
    return Option(Name(name.value.lower(), name.span), cursor.sql(low + 2, high))


def _reject_repeated(cursor: Cursor, options: list[Option]) -> None:
    seen: set[str] = set()
    for option in options:
        if option.name.value in seen:
            cursor.fail(f'the option "{option.name.value}" is given twice', option.name.span)
        seen.add(option.name.value)
