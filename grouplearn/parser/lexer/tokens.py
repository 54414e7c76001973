"""A lexer that splits text exactly as DuckDB's does, and never fails.

sqlglot's tokenizer is unsuitable: it raises on unterminated quotes, reads ``x$$`` as an identifier and the start of a
string, does not know backtick identifiers, and does not end comments at a carriage return.
"""

import enum
import re
from collections.abc import Iterator
from typing import NamedTuple

from grouplearn.messages import Span

SPACES = " \t\n\v\f\r\u00a0\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff"
"""DuckDB's white space, as the inside of a character class."""

_NOT_IN_WORDS = SPACES + r"""!%&*+/:<=>@\\^|~()\[\]{},?\-#'";.`"""
_WORD = rf"[^{_NOT_IN_WORDS}$0-9][^{_NOT_IN_WORDS}]*+"
_TAG = r"[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*+"

_SPACE = rf"[{SPACES}]++ | --[^\r\n]*+"
_STRING = r"""[eE]'(?:[^'\\]++|\\.|'')*+' | [nNxXbB]?'[^']*+(?:''[^']*+)*+'"""
_QUOTED = r"""\"[^"]*+(?:""[^"]*+)*+" | `[^`]*+(?:``[^`]*+)*+`"""
_UNCLOSED = r"""[eEnNxXbB]?' | " | `"""
_DOLLAR = rf"\$(?:{_TAG})?\$"
_NUMBER = r"(?:[0-9]|\.[0-9])(?:[0-9.]|_(?=[0-9.])|[eE][+-]?(?=[0-9.]))*+"
_TOKEN = re.compile(
    rf"""
      (?P<space> {_SPACE} )
    | (?P<comment> /\* )
    | (?P<string> {_STRING} )
    | (?P<quoted> {_QUOTED} )
    | (?P<unclosed> {_UNCLOSED} )
    | (?P<dollar> {_DOLLAR} )
    | (?P<parameter> \$(?![eEnNxXbB]'){_WORD} | [$?][0-9](?:[0-9]|_(?=[0-9]))*+ (?![eE][+-]?[0-9]|\.[0-9]) | \? )
    | (?P<number> {_NUMBER} )
    | (?P<word> {_WORD} )
    | (?P<symbol> -\>\>? | :: | (?:(?!/\*)[*/<>=~!@%^&|:\\])++ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
#: What says nothing about where a statement ends; in brackets, a semicolon says nothing, either.
_LITERAL = rf"{_SPACE} | {_STRING} | {_QUOTED} | {_NUMBER}"
_OTHER = rf"(?!{_UNCLOSED}|{_DOLLAR}|/\*)(?: {_WORD} | [^()\[\]{{}};] )"
_BRACKETED = rf"[(\[{{] (?: {_LITERAL} | ; | {_OTHER} )*+ [)\]}}]"
_TWICE_BRACKETED = rf"[(\[{{] (?: {_LITERAL} | {_BRACKETED} | ; | {_OTHER} )*+ [)\]}}]"
#: What does say it, and all that stands before the next of it in one match.
_EDGE = re.compile(
    rf"""
      (?P<space> (?: {_LITERAL} | {_TWICE_BRACKETED} | {_OTHER} )++ )
    | (?P<comment> /\* )
    | (?P<unclosed> {_UNCLOSED} )
    | (?P<dollar> {_DOLLAR} )
    | (?P<symbol> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


class Kind(enum.Enum):
    """What a token is."""

    WORD = enum.auto()
    QUOTED = enum.auto()
    STRING = enum.auto()
    NUMBER = enum.auto()
    PARAMETER = enum.auto()
    SYMBOL = enum.auto()
    BROKEN = enum.auto()
    END = enum.auto()


class Token(NamedTuple):
    """A token and its half-open range in the text; BROKEN is a quote or comment that does not end."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def span(self) -> Span:
        """The token's range."""
        return Span(self.start, self.end)

    @property
    def word(self) -> str:
        """The word in upper case; empty if it is not an unquoted ASCII word."""
        return self.text.upper() if self.kind is Kind.WORD and self.text.isascii() else ""

    @property
    def is_identifier(self) -> bool:
        """Whether the token is a word or a quoted identifier."""
        return self.kind in (Kind.WORD, Kind.QUOTED)

    def is_symbol(self, *symbols: str) -> bool:
        """Whether the token is one of these operators or brackets."""
        return self.kind is Kind.SYMBOL and self.text in symbols


_KINDS = {
    "string": Kind.STRING,
    "quoted": Kind.QUOTED,
    "parameter": Kind.PARAMETER,
    "number": Kind.NUMBER,
    "word": Kind.WORD,
    "symbol": Kind.SYMBOL,
}


def lex(text: str, start: int = 0, end: int | None = None) -> Iterator[Token]:
    """Yield the tokens of ``text[start:end]`` without white space and comments; offsets are into ``text``."""
    return _matched(_TOKEN, text, start, len(text) if end is None else end)


def edges(text: str, start: int) -> Iterator[Token]:
    """Yield the brackets and semicolons of ``text[start:]`` that decide where a statement ends, and what does not end.

    ``start`` is not inside a token. Brackets that close again are left out, and what they have in them: making a token takes
    many times as long as passing over it. Some strings are among the tokens.
    """
    return _matched(_EDGE, text, start, len(text))


def _matched(pattern: re.Pattern[str], text: str, position: int, stop: int) -> Iterator[Token]:
    while position < stop:
        for match in pattern.finditer(text, position, stop):
            group = match.lastgroup
            kind = _KINDS.get(group) if group else None
            begin, position = match.span()
            if kind is not None:
                yield Token(kind, text[begin:position], begin, position)
            elif group != "space":
                closed = _closing(text, match, stop)
                position = closed or stop
                if closed is None:
                    yield Token(Kind.BROKEN, text[begin:position], begin, position)
                elif group == "dollar":
                    yield Token(Kind.STRING, text[begin:position], begin, position)
                break  # nothing inside is a token


def _closing(text: str, opening: re.Match[str], stop: int) -> int | None:
    if opening.lastgroup == "unclosed":
        return None
    if opening.lastgroup == "dollar":
        found = text.find(opening.group(), opening.end(), stop)
        return None if found < 0 else found + len(opening.group())
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, opening.end(), stop):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return None


def opening(token: Token) -> str:
    """Return what begins a string, quoted name or comment that does not end, as often as comments are open in each other."""
    if token.text.startswith("/*"):
        edges = [edge.group() for edge in _COMMENT_EDGE.finditer(token.text)]
        return "/*" * (edges.count("/*") - edges.count("*/"))
    if token.text.startswith("$"):
        return token.text[: token.text.index("$", 1) + 1]
    return token.text[: 1 if token.text[0] in "'\"`" else 2]


def unquote(token: Token) -> str:
    """Return the name of a word or quoted identifier."""
    if token.kind is Kind.QUOTED:
        quote = token.text[0]
        return token.text[1:-1].replace(quote * 2, quote)
    return token.text
