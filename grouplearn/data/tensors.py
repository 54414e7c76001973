"""Bytes as named tensors: what safetensors reads, with one error for all that cannot be."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import safetensors
import safetensors.numpy


class NotTensors(ValueError):
    """Bytes are no tensors, or of a kind that is not written here."""


def named_tensors(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a safetensors file; raises NotTensors.

    The library holds header, places and sizes against the bytes that there are before it makes any array; kinds of numbers
    that numpy has not are an error of ours.
    """
    try:
        return dict(safetensors.numpy.load(data))
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
        raise NotTensors(f"it is no file of tensors: {error}") from None
