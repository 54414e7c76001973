"""How much SQL a model may have for another session to read it: counted before a parser is asked.

What a stranger's file has is bounded by this, and so is what TRAIN takes, whose model is a stranger's to the next session.
"""

from __future__ import annotations

import re

#: Most characters of a type that a model has: it stands in its SQL several times. An ENUM of 40,000 values has as many.
LONGEST_TYPE = 1 << 19
#: What texts of catalogs may have at most to be given to a parser: the stack of DuckDB's ends at some 16,000 operators one in the
#: other, or 32,000 sources of a FROM; parentheses in FROM take time by the cube of their depth.
_MOST_CHARACTERS, _MOST_TOKENS, _MOST_WORDS, _MOST_LEVELS = 1 << 20, 20_000, 4_000, 100
#: Where nothing of this is, quotes are what they look like: texts between dollars, with backslashes, comments.
_UNCLEAR = re.compile(r"\$[^$]*\$|[eE]'|--|/\*")
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
#: Of digits those of ASCII alone are none of names for DuckDB.
_TOKEN = re.compile(r"(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<word>[^\W0-9]\w*|[^\w\s,])|[0-9]+(?:\.[0-9]+)?|,")
#: Words, numbers and commas of all expressions of a model together: DuckDB makes a tree of 25 times their size.
MOST_TOGETHER = 200_000


def tokens(text: str) -> int:
    """Return how many words, numbers and commas SQL has, counted without parsing it."""
    return sum(1 for _ in _TOKEN.finditer(text))


def excess(text: str, within: int = 0) -> str | None:
    """Return why SQL of a stranger's is not to be parsed, None where it may be: counted without parsing it, and never too low.

    It is said of a text ``within`` so many levels of a few words. Words are names, keywords and signs; numbers, texts and commas
    count as tokens alone, so that long lists have room.
    """
    if len(text) > _MOST_CHARACTERS:
        return f"is too long: more than {_MOST_CHARACTERS:,} characters"
    clear = _UNCLEAR.search(text) is None
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
