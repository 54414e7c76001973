"""How much SQL a model may contain, counted before a parser reads it.

The limits apply to models from untrusted files, and to TRAIN, as its models may be opened in another session.
"""

from __future__ import annotations

import re

#: Most characters of a model's type, which appears in its SQL several times. An ENUM of 40,000 values has as many.
LONGEST_TYPE = 1 << 19
#: Limits of catalog text that a parser may read: DuckDB's stack overflows at some 16,000 nested operators or 32,000 sources
#: in FROM; parentheses in FROM take time cubic in their depth.
_MOST_CHARACTERS, _MOST_TOKENS, _MOST_WORDS, _MOST_LEVELS = 1 << 20, 20_000, 4_000, 100
#: Quoted text and names, and what makes later quotes mean something else: dollar-quoted text, text with backslashes, comments.
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|(?P<unclear>\$[^$]*\$|[eE]'|--|/\*)""")
#: For DuckDB only ASCII digits cannot begin a name.
_TOKEN = re.compile(r"(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<word>[^\W0-9]\w*|[^\w\s,])|[0-9]+(?:\.[0-9]+)?|,")
#: Most tokens of all expressions of a model together: DuckDB's tree is 25 times their size.
MOST_TOGETHER = 200_000


def tokens(text: str) -> int:
    """Return how many words, numbers and commas SQL has, counted without parsing it."""
    return sum(1 for _ in _TOKEN.finditer(text))


def excess(text: str, within: int = 0) -> str | None:
    """Return why untrusted SQL must not be parsed, None if it may be: counted without parsing, and never too low.

    The text is meant to stand ``within`` so many levels of a few words each. Names, keywords and signs count as words;
    numbers, strings and commas only as tokens, so that long lists are allowed.
    """
    if len(text) > _MOST_CHARACTERS:
        return f"is too long: more than {_MOST_CHARACTERS:,} characters"
    clear = not any(found["unclear"] for found in _QUOTED.finditer(text))
    if clear:
        text = _QUOTED.sub(lambda found: " 0 " if found[0][0] == "'" else " q ", text)
    count, words, level = 0, 4 * within, within
    for found in _TOKEN.finditer(text):
        count += 1
        words += found.lastgroup in ("word", "open")
        level += (found.lastgroup == "open") - (found.lastgroup == "close" and clear)
        if level > _MOST_LEVELS:
            return f"is nested too deeply: more than {_MOST_LEVELS} levels"
    if words > _MOST_WORDS:
        return f"is too long: more than {_MOST_WORDS:,} words"
    return f"is too long: more than {_MOST_TOKENS:,} words, numbers and commas" if count > _MOST_TOKENS else None
