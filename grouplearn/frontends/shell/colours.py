"""SQL syntax colours, for the prompt and for ``-echo``."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pygments import highlight
from pygments.formatters import TerminalFormatter
from pygments.lexers.sql import SqlLexer
from pygments.token import Keyword, Name

from grouplearn.frontends.completion import OUR_WORDS


class SqlColours(SqlLexer):  # type: ignore[misc]  # pygments has no types
    """SQL as pygments colours it, with our words as keywords."""

    def get_tokens_unprocessed(self, text: str) -> Iterable[tuple[int, object, str]]:
        """Yield (position, token type, text)."""
        for position, kind, value in super().get_tokens_unprocessed(text):
            yield position, Keyword if kind is Name and value.upper() in OUR_WORDS else kind, value


def coloured(text: str) -> str:
    """Return ``text`` with terminal colours when standard output is a terminal."""
    if not sys.stdout.isatty():
        return text
    coloured_text: str = highlight(text, SqlColours(stripnl=False), TerminalFormatter())
    return coloured_text.rstrip("\n")
