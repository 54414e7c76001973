"""Sizes of memory as users write them."""

from __future__ import annotations

import re
from typing import Any

from grouplearn.sqltext import shown

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B\s*", re.IGNORECASE)


def check_size(value: Any) -> int:
    """Return the bytes of a size such as '8GB' (10^9) or '8GiB' (2^30), as DuckDB reads it; ValueError otherwise."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be a size such as '8GB' or '500 MiB', got {shown(value)}")
    number, prefix, binary = match.groups()
    size = float(number) * (1024 if binary else 1000) ** " KMGT".index(prefix.upper() or " ")
    if size < 1:
        raise ValueError(f"must be at least one byte, got {shown(value)}")
    return int(size)
