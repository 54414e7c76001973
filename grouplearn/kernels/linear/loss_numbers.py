"""The losses of linear models by their names in ``source/losses/losses.hpp``."""

from __future__ import annotations

import ctypes
import functools

from grouplearn.kernels.library import function


@functools.cache
def number_of(loss: str) -> int:
    """Return the number of a loss in the kernels; KeyError if they have none of that name."""
    named = function("loss_name", ctypes.c_int64, returns=ctypes.c_char_p)
    number = 0
    while (name := named(number)) is not None:
        if name == loss.encode():
            return number
        number += 1
    raise KeyError(loss)
