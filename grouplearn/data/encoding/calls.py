"""How encoders are called in FEATURES: ``name(column, ..., option := value)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """A function in FEATURES that makes features of its columns, possibly fitted on training rows.

    ``options`` may follow the columns by name; ``last`` is the option that an unnamed last argument gives; ``needed`` is
    the error without it, with the ``hint``. Every ``together`` arguments form one item. ``within`` is the encoder whose
    calls may be nested.
    """

    name: str
    options: tuple[str, ...] = ("scope",)
    last: str | None = None
    needed: str = ""
    hint: str = ""
    together: int = 1
    within: str | None = None

    @property
    def example(self) -> str:
        """A call on a column ``x``."""
        return f"{self.name}(x{', 64' if self.needed else ''})"


CALLS: Mapping[str, Call] = {
    call.name: call
    for call in (
        Call("zscore", ("scope", "impute"), within="impute"),
        Call("minmax", ("scope", "impute"), within="impute"),
        Call("impute", ("scope", "method"), "method"),
        Call("onehot"),
        Call("ordinal"),
        Call("multihot"),
        Call(
            "hash",
            ("buckets",),
            "buckets",
            "the number of buckets",
            "For example hash(column, 64); DuckDB's own function is main.hash(column).",
        ),
        Call(
            "sparse",
            ("columns",),
            "columns",
            "the number of columns",
            "For example sparse(indices, values, 1000).",
            together=2,
        ),
    )
}
