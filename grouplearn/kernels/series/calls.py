"""How the kernels of this room get their series and the places of their results."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address

FloatArray = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Notes = npt.NDArray[np.int8]
POINTER, COUNT = ctypes.c_void_p, ctypes.c_int64


class AllSeries(ctypes.Structure):
    """The series of a call, as in ``source/series/series.hpp``."""

    _fields_ = (("y", POINTER), ("start", POINTER), ("count", COUNT), ("season", COUNT))


class Series(NamedTuple):
    """G series one after another: ``y`` (n,), of which series g begins at ``start`` [g], (G + 1,), with seasons of ``season``
    steps."""

    y: FloatArray
    start: Counts
    season: int

    @classmethod
    def of(cls, y: npt.ArrayLike, start: npt.ArrayLike, season: int = 1) -> Series:
        """Return series whose arrays the kernels can read."""
        return cls(np.ascontiguousarray(y, np.float64), np.ascontiguousarray(start, np.int64), season)

    @property
    def n_series(self) -> int:
        """Number of series."""
        return self.start.size - 1

    def given(self) -> AllSeries:
        """Return the series for a kernel; they must live as long."""
        return AllSeries(address(self.y), address(self.start), self.n_series, self.season)


#: The results of each step: the one-step forecast, and what it is made of.
STEPS = ("fitted", "level", "trend", "season")
#: What results consist of that are not in double precision.
_KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("model", "n_values", "n_demands"), np.int64),
    **dict.fromkeys(("converged", "is_multiplicative"), np.bool_),
    "note": np.int8,
}


def room_for(names: Sequence[str], series: Series, horizon: int, **columns: int) -> list[npt.NDArray[Any]]:
    """Return arrays for results of these names: those of ``STEPS`` (n,), ``mean`` and ``deviation`` (G, horizon), and the
    others (G,) or with so many ``columns``."""
    count, columns = series.n_series, {"mean": horizon, "deviation": horizon, **columns}
    shapes = {name: (count, width) for name, width in columns.items()}
    return [
        np.empty(shapes.get(name, count) if name not in STEPS else series.y.size, _KINDS.get(name)) for name in names
    ]


def places(results: tuple[npt.NDArray[Any], ...]) -> ctypes.Array[ctypes.c_void_p]:
    """Return the addresses of results, in the order of the kernel's structure."""
    return (POINTER * len(results))(*map(address, results))
