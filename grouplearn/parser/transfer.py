"""The statements that move models: EXPORT MODEL, IMPORT MODEL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grouplearn.parser.lexer.cursor import Cursor
from grouplearn.parser.lexer.tokens import Kind, Token, unquote
from grouplearn.parser.statements import ExportModel, ImportModel, Name, Sql
from grouplearn.parser.train import parse_amount

_EXAMPLE = "For example (FORMAT onnx, OVERWRITE)."
_OPTIONS = ("FORMAT", "DIALECT", "SOURCE", "OVERWRITE")
_EXAMPLES = {
    "FORMAT": _EXAMPLE,
    "DIALECT": "For example (FORMAT sql, DIALECT 'postgres').",
    "SOURCE": "For example (FORMAT sql, DIALECT 'postgres', SOURCE 'shop.orders').",
}


def parse_export(cursor: Cursor) -> ExportModel:
    """``EXPORT MODEL name TO 'dir' [(FORMAT f [, DIALECT d [, SOURCE 't']] [, OVERWRITE])]``."""
    cursor.expect("EXPORT", "MODEL")
    name = cursor.model_name()
    cursor.expect("TO", hint="For example EXPORT MODEL m TO 'directory' (FORMAT onnx).")
    directory = _parse_directory(cursor)
    if not cursor.peek().is_symbol("("):
        cursor.expect_end("options in brackets or the end of the statement")
        return ExportModel(name, directory)
    options = _parse_export_options(cursor)
    cursor.expect_end()
    return ExportModel(name, directory, **options)


def parse_import(cursor: Cursor) -> ImportModel:
    """``IMPORT [OR REPLACE] MODEL [IF NOT EXISTS] name FROM 'dir'``."""
    cursor.expect("IMPORT")
    replace = cursor.accept("OR", "REPLACE")
    cursor.expect("MODEL")
    condition = cursor.span(cursor.index, cursor.index + 1)
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if replace and if_not_exists:
        cursor.fail("OR REPLACE and IF NOT EXISTS exclude each other", condition)
    name = cursor.model_name()
    cursor.expect("FROM", hint="For example IMPORT MODEL m FROM 'directory'.")
    directory = _parse_directory(cursor)
    cursor.expect_end()
    return ImportModel(name, directory, replace, if_not_exists)


def _parse_directory(cursor: Cursor) -> Sql:
    """Read a string, a parameter or an expression in brackets."""
    token = cursor.peek()
    if token.kind is Kind.STRING:
        cursor.advance()
        return cursor.sql(cursor.index - 1, cursor.index)
    if token.kind is not Kind.PARAMETER and not token.is_symbol("("):
        cursor.unexpected("a directory", "Give its name in single quotes, a parameter, or an expression in brackets.")
    return parse_amount(cursor, "a directory")


def _parse_export_options(cursor: Cursor) -> dict[str, Any]:
    """Read the options, and return them by the names of the statement's fields."""
    low, high = cursor.open_bracket("the directory")
    if low == high:
        cursor.fail("the options are empty", cursor.span(low - 1, high + 1), _EXAMPLE)
    found: dict[str, Any] = {}
    for start, stop in cursor.items(low, high):
        option = cursor.tokens[start]
        if option.word not in _OPTIONS:
            hint = cursor.suggest(option, _OPTIONS) or f"The options are {', '.join(_OPTIONS)}."
            cursor.fail(f'"{option.text}" is not an option of EXPORT MODEL', option, hint)
        field = option.word.lower()
        if field in found:
            cursor.fail(f"{option.word} is given twice", option)
        if option.word == "OVERWRITE":
            found[field] = _parse_overwrite(cursor, cursor.tokens[start + 1 : stop])
        elif option.word == "SOURCE":
            found[field] = _parse_source(cursor, start, stop)
        else:
            found[field] = _parse_word(cursor, option, cursor.tokens[start + 1 : stop])
    return found


def _parse_word(cursor: Cursor, option: Token, values: Sequence[Token]) -> Name:
    """Read a word, which may be in single quotes."""
    if len(values) != 1:
        cursor.fail(f"{option.word} takes one word", values[1] if values else option, _EXAMPLES[option.word])
    value = values[0]
    word = value.text.strip("'") if value.kind is Kind.STRING else unquote(value)
    return Name(word.lower(), value.span)


def _parse_source(cursor: Cursor, start: int, stop: int) -> Sql:
    """Read a string or a parameter."""
    if stop == start + 1:
        cursor.fail("SOURCE takes the name of a table in single quotes", cursor.tokens[start], _EXAMPLES["SOURCE"])
    return cursor.sql(start + 1, stop)


def _parse_overwrite(cursor: Cursor, values: Sequence[Token]) -> bool:
    words = [value.word for value in values]
    if words not in ([], ["TRUE"], ["FALSE"]):
        cursor.fail("OVERWRITE is true or false", values[0], "OVERWRITE alone means true.")
    return words != ["FALSE"]
