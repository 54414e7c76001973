"""The one place where hidden and terminal control characters are made visible.

Names and values in users' tables are kept exactly; everything shown to people goes through here: errors, boxes, plans,
progress, pages, plots. Text for other programs (CSV into a pipe, JSON, Arrow, exported SQL) does not.
"""

from __future__ import annotations

import re

#: Control characters; marks that reverse what follows (U+202E) or have no width (U+200B, U+FEFF, soft hyphens, tags); line
#: ends other than \n; surrogates and noncharacters. Joiners (U+200C, U+200D), which Persian, Hindi and emoji families need,
#: and variation selectors are shown unchanged.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)


def visible(text: str, keep: str = "") -> str:
    r"""Return a text with each hidden character as Python writes it (``\x1b``, ``\r``, ``\u202e``), except those in
    ``keep``."""
    return _HIDDEN.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), text)


def visible_lines(text: str) -> str:
    """Return a text of several lines with hidden characters made visible; tabs stay."""
    return visible(text, keep="\n\t")


def in_json(text: str) -> str:
    """Return JSON with hidden characters escaped: the same values, and harmless to a terminal."""
    return _HIDDEN.sub(lambda found: found[0] if found[0] == "\n" else _json_escape(found[0]), text)


def in_file_name(text: str) -> str:
    """Return a text as part of a file name: ``_`` for hidden characters and path separators."""
    return re.sub(r"[/\\]", "_", _HIDDEN.sub("_", text))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
