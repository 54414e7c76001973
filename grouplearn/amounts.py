"""Readable numbers: two digits, with their unit."""

from __future__ import annotations

import re

from grouplearn.visible import visible

_SPACES = re.compile(r"(?:[ \t\n]|\r\n)+")


def two_digits(value: float) -> float:
    """Return the value rounded to two digits."""
    return float(f"{value:.2g}")


def rounded_seconds(seconds: float) -> str:
    """Return a readable duration: ``0.36 s``, ``12 s``, ``3.2 min``."""
    if seconds < 90:
        return f"{two_digits(seconds):g} s"
    return f"{two_digits(seconds / 60):g} min" if seconds < 5400 else f"{two_digits(seconds / 3600):g} h"


def amount_of_bytes(count: float) -> str:
    """Return ``0 B``, ``1.2 kB``, ``35 MB``: decimal, like the memory limit."""
    for unit in ("B", "kB", "MB", "GB"):
        if two_digits(count) < 1000:
            return f"{two_digits(count):g} {unit}"
        count /= 1000
    return f"{two_digits(count):g} TB"


def share(value: float) -> str:
    """Return ``31%``."""
    return f"{value:.0%}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return the word's singular or plural for a count."""
    return one if count == 1 else many or one + "s"


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return ``3 groups``."""
    return f"{count:,} {plural(count, one, many)}"


def on_one_line(text: str, most: int = 0) -> str:
    """Return a text without line breaks and hidden characters, cut at ``most`` characters (0: not cut)."""
    line = visible(_SPACES.sub(" ", text).strip(" "))
    return line if not most or len(line) <= most else line[: most - 1] + "…"
