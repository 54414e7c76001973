"""Numbers that are written as text: ``12%``, ``28,000``, ``€ 3,50``, ``1.234,5``; and texts in place of a missing number."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grouplearn.sqltext import literal

_MONEY = "(?:[$€£¥]|EUR|USD|GBP|CHF)"
_AMOUNT = rf"\s*[-+]?(?:{_MONEY}\s*)?[-+]?{{}}\s*(?:%|{_MONEY})?\s*"
#: Numbers with a decimal point, and with a decimal comma: each may have a sign of money or percents, and signs for thousands.
WITH_POINT = _AMOUNT.format(r"(?:[0-9]+|[1-9][0-9]{0,2}(?:[,' ][0-9]{3})+)(?:\.[0-9]*)?")
WITH_COMMA = _AMOUNT.format(r"(?:[0-9]+|[1-9][0-9]{0,2}(?:[.' ][0-9]{3})+)(?:,[0-9]*)?")
#: What no number has in SQL, whether its fraction follows a point or a comma.
SIGNS = r"[%$€£¥' ]|EUR|USD|GBP|CHF"
#: What files have in place of a missing value, in small letters and without blanks around it.
MISSING = ("", "-", "--", "?", "na", "n/a", "nan", "null", "none", "k.a.")
#: The share of texts that are numbers where the others mean that there is none.
_MOST = 0.9


def is_missing(text: str) -> bool:
    """Return whether a text stands for a missing value."""
    return text.strip().casefold() in MISSING


def signed(texts: Sequence[str]) -> str | None:
    """Return the first number with a sign for thousands, percents or money, which no name of a class would have."""
    numbers = (text for text in texts if re.fullmatch(WITH_POINT, text) or re.fullmatch(WITH_COMMA, text))
    return next((text for text in numbers if "," in text or re.search(SIGNS, text.strip())), None)


def number_sql(sql: str, *, commas: bool, decimal_comma: bool, signs: str) -> str:
    """Return SQL of a number's text as SQL reads it, given the SQL of a text that may have commas and these signs."""
    if signs:
        sql = f"translate({sql}, {literal(signs)}, '')"
    if decimal_comma:
        return f"replace(replace({sql}, '.', ''), ',', '.')"
    # 0,750 has no comma after a thousand: it stays, and is no number.
    return rf"regexp_replace({sql}, ',([0-9]{{3}})\b', '\1', 'g')" if commas else sql


def cast_of_numbers(sql: str, texts: Sequence[str]) -> str | None:
    """Return SQL that makes numbers of texts, given the SQL of one; None unless nearly all are numbers."""
    with_point = [text for text in texts if re.fullmatch(WITH_POINT, text)]
    with_comma = [text for text in texts if re.fullmatch(WITH_COMMA, text)]
    decimal_comma = len(with_comma) > len(with_point)
    numbers = with_comma if decimal_comma else with_point
    if len(numbers) < max(2, _MOST * len(texts)):
        return None
    commas = any("," in each for each in numbers)
    signs = "".join(sorted({sign for each in numbers for sign in re.findall(SIGNS, each.strip())}))
    sql = number_sql(sql, commas=commas, decimal_comma=decimal_comma, signs=signs)
    return f"CAST({sql} AS DOUBLE)" if len(numbers) == len(texts) else f"TRY_CAST({sql} AS DOUBLE)"
