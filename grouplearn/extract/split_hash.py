"""Two hashes of each row of FROM by which a split is drawn.

All columns count equally: changing which are features, label or weight does not move rows between parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grouplearn.bind.arrays import array_type
from grouplearn.bind.sql.checker import Column
from grouplearn.data.encoding import types

#: Numbers are hashed in single precision, so that a last bit moves no row. The factor (2^(1/12)) moves integers and short
#: fractions away from the boundaries of rounding.
_ROUNDED = "TRY_CAST(TRY_CAST({} AS DOUBLE) * 1.0594630943592953 AS FLOAT)"


@dataclass(frozen=True, slots=True)
class SplitHash:
    """SQL over FROM's columns, named ``c0, c1, ...``.

    ``rounded`` is equal for the same values in other types and with other last bits; ``exact`` tells these apart.
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
        return types.bytewise(
            f"CAST({name} AS VARCHAR)", "VARCHAR"
        )  # an ENUM's hash depends on its position in the type
    array = array_type(type_name)
    if array and not array.is_bytes:
        return f"TRY_CAST({name} AS FLOAT[])"
    return types.bytewise(name, type_name)


def _loses(type_name: str) -> bool:
    """Whether values of the type are rounded."""
    array = array_type(type_name)
    element = array.element if array and not array.is_bytes else type_name
    return types.kind(element) == "numeric" and not types.fits_float(element)
