"""``impute``: a number with what replaces NULL."""

from __future__ import annotations

from typing import ClassVar

from grouplearn.data.encoding.encoder_calls import SCOPE, EncoderCall
from grouplearn.data.encoding.numbers.number import FILL, Number


class Imputed(Number):
    """A number in a call that only replaces NULL."""

    call: ClassVar[EncoderCall | None] = EncoderCall(
        "impute",
        {
            "impute(x)`, `impute(x, 'median')`, `impute(x, constant)": "x, and where it is NULL or infinite the group's mean, its"
            " median (0 where the group has no value), or the constant"
        },
        (SCOPE, FILL),
        unnamed=("method",),
    )
