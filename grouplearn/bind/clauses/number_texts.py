"""Numbers that are written as text: ``12%``, ``28,000``, ``€ 3,50``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grouplearn.sqltext import literal

_NUMBER = re.compile(r"\s*[-+]?[$€£]?\s*\d[\d,' ]*(\.\d+)?\s*[%$€£]?\s*")
_THOUSANDS = re.compile(r"[^,\d]*[1-9]\d{0,2}(,\d{3})+(\.\d+)?\D*")
_SIGNS = re.compile(r"[%$€£,]")
#: The share of texts that are numbers where the others mean that there is none.
_MOST = 0.9


def signed(texts: Sequence[str]) -> str | None:
    """Return the first number with a sign for thousands, percents or money, which no name of a class would have."""
    return next((text for text in texts if _SIGNS.search(text) and _NUMBER.fullmatch(text)), None)


def cast_of_numbers(sql: str, texts: Sequence[str]) -> str | None:
    """Return SQL that makes numbers of texts, given the SQL of one; None unless nearly all are numbers."""
    numbers = [text for text in texts if _NUMBER.fullmatch(text)]
    if len(numbers) < max(2, _MOST * len(texts)):
        return None
    commas = [number for number in numbers if "," in number]
    decimal = bool(commas) and not all(map(_THOUSANDS.fullmatch, commas))
    unwanted = "".join(sign for sign in ("%$€£ '" if decimal else "%$€£, '") if any(sign in each for each in numbers))
    sql = f"replace({sql}, ',', '.')" if decimal else sql
    sql = f"translate({sql}, {literal(unwanted)}, '')" if unwanted else sql
    return f"CAST({sql} AS DOUBLE)" if len(numbers) == len(texts) else f"TRY_CAST({sql} AS DOUBLE)"
