import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.parser.lexer.keywords import RESERVED
from grouplearn.parser.lexer.statement_split import HEAD_LENGTH, Lines, split
from grouplearn.parser.lexer.tokens import Kind, lex
from grouplearn.parser.parse import is_complete

PIECES = [
    *[
        "'",
        '"',
        "`",
        "$",
        "$$",
        "$a$",
        "$1",
        "$1_1",
        "?_1",
        "$b",
        "?",
        "--",
        "\n",
        "\r",
        "/*",
        "*/",
        "e'",
        "E'",
        "x'",
        "\\",
        ";",
    ],
    *["a", "é", "1", ".", "1e5", " ", "_", "+", "*", "/", "=", "<", ":", "(", ")", "[", "{", "-", "select", "€$", "😀"],
    *["''", '""', "%", "!", "\0", "#", "@"],
]
nasty = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(nasty)
@settings(max_examples=375, deadline=None)
def test_strings_and_semicolons_are_where_duckdb_sees_them(text: str) -> None:
    at_byte = {len(text[:position].encode()): position for position in range(len(text))}
    theirs = [(at_byte[byte], kind.name) for byte, kind in duckdb.tokenize(text)]
    ours = list(lex(text))
    limit = next((token.start for token in ours if token.kind is Kind.BROKEN), len(text))
    strings = {start for start, kind in theirs if kind == "string_const" and start < limit}
    semicolons = {start for start, kind in theirs if kind == "operator" and text[start] == ";" and start < limit}
    assert {token.start for token in ours if token.kind is Kind.STRING} == strings
    assert {token.start for token in ours if token.is_symbol(";")} == semicolons


@given(st.one_of(nasty, st.text()))
def test_tokens_are_slices_in_order_and_pieces_are_the_text(text: str) -> None:
    position = 0
    for token in lex(text):
        assert token.text == text[token.start : token.end]
        assert position <= token.start < token.end
        position = token.end
    assert "".join(text[piece.start : piece.end] for piece in split(text)) == text


def ends(text: str) -> list[int]:
    """Where statements end, judged by every token."""
    found, depth = [], 0
    for token in lex(text):
        if token.is_symbol(";") and depth == 0:
            found.append(token.end)
        depth = max(0, depth + token.is_symbol("(", "[", "{") - token.is_symbol(")", "]", "}"))
    return found


@given(nasty, nasty)
@settings(max_examples=375, deadline=None)
def test_long_statements_end_where_short_ones_do(before: str, text: str) -> None:
    for whole in (f"{before} {'a, ' * HEAD_LENGTH} {text}", before + "1 " * HEAD_LENGTH + text):
        found = [piece.end for piece in split(whole) if piece.stop < piece.end]
        assert found == ends(whole)


@given(st.lists(st.one_of(nasty, st.sampled_from([";", "'", "*/", "$$", "/* /*", "(;", ")"]))))
@settings(max_examples=375, deadline=None)
def test_a_script_read_by_lines_is_complete_where_its_text_is(lines: list[str]) -> None:
    read, text = Lines(), ""
    for line in lines:
        text += f"{line}\n"
        if read.end_with(f"{line}\n"):
            assert read.text() == text
            assert is_complete(text)
            read, text = Lines(), ""
        else:
            assert not is_complete(text) or ";" not in line
    assert read.text() == text


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("x$$;$$", [Kind.WORD, Kind.SYMBOL, Kind.BROKEN]),
        ("+$$;$$", [Kind.SYMBOL, Kind.STRING]),
        ("$é$ ; $é$", [Kind.STRING]),
        ("$A$ $a$ ; $A$", [Kind.STRING]),
        ('`a``;b` "c"";d"', [Kind.QUOTED, Kind.QUOTED]),
        ("E'\\';' e'a''b\\\\'", [Kind.STRING, Kind.STRING]),
        ("'a\\' b", [Kind.STRING, Kind.WORD]),
        ("/* a /* ; */ ' */ b", [Kind.WORD]),
        ("/*/ ; */ b -- ;\r c", [Kind.WORD, Kind.WORD]),
        ("? ?2 $1 $name $1and", [*[Kind.PARAMETER] * 5, Kind.WORD]),
        ("a\u00a0b\ufeffc", [Kind.WORD] * 3),
        ("1.5e-3 .5 1_000 t.x", [*[Kind.NUMBER] * 3, Kind.WORD, Kind.SYMBOL, Kind.WORD]),
    ],
)
def test_kinds(text: str, kinds: list[Kind]) -> None:
    assert [token.kind for token in lex(text)] == kinds


def test_reserved_words_are_duckdbs() -> None:
    rows = duckdb.sql("SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'").fetchall()
    assert {name for (name,) in rows} == RESERVED
