"""What a split is drawn by: two hashes of each row of FROM, whatever a statement makes of its columns.

All columns count, and none more than another: which of them are features, the label or the weight moves no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grouplearn.bind.arrays import array_type
from grouplearn.bind.sql import types
from grouplearn.bind.sql.checker import Column

#: Numbers are told apart in single precision, so that a last bit moves no row. Whole numbers and short fractions would lie
#: just between two such values: the factor (2^(1/12)) takes them away from there.
_ROUNDED = "TRY_CAST(TRY_CAST({} AS DOUBLE) * 1.0594630943592953 AS FLOAT)"


@dataclass(frozen=True, slots=True)
class SplitHash:
    """SQL over the columns of FROM, named ``c0, c1, ...``.

    ``rounded`` is the same for the same values in other types and with other last bits; ``exact`` tells apart what is one
    value there.
    """

    rounded: str
    exact: str

    @classmethod
    def of(cls, columns: Sequence[Column], seed: int) -> SplitHash:
        """Return the hashes of rows with these columns."""
        rounded = [str(seed), *(_rounded(f"c{number}", column.type) for number, column in enumerate(columns))]
        exact = ["0", *(f"c{number}" for number, column in enumerate(columns) if _loses(column.type))]
        return cls(f"hash({', '.join(rounded)})", f"hash({', '.join(exact)})")


def _rounded(name: str, type_name: str) -> str:
    if types.kind(type_name) == "numeric":
        return _ROUNDED.format(name)
    if type_name.startswith("ENUM("):
        return f"CAST({name} AS VARCHAR)"  # the hash of an ENUM is that of its place in the list
    array = array_type(type_name)
    if array and not array.is_bytes:
        return f"TRY_CAST({name} AS FLOAT[])"
    return name


def _loses(type_name: str) -> bool:
    """Whether values of the type are rounded."""
    array = array_type(type_name)
    element = array.element if array and not array.is_bytes else type_name
    return types.kind(element) == "numeric" and not types.fits_float(element)
