"""LightGBM's C API, called directly: its Python classes cost more than training a small model.

For 60 rows and 10 trees ``lightgbm.Dataset`` and two ``lightgbm.Booster`` take 2 ms under the interpreter lock, and
importing the package takes a second if scikit-learn is installed. The calls here release the lock, and give the same
models.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import runpy
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Matrix

_FLOAT32, _FLOAT64, _INT32, _INT64 = range(4)
_TYPES: dict[Any, int] = {np.float32: _FLOAT32, np.float64: _FLOAT64, np.int32: _INT32, np.int64: _INT64}

_HANDLE, _TEXT, _INT, _LONG = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int64
_ARRAY, _OUT = ctypes.c_void_p, ctypes.c_void_p
_DENSE = (_ARRAY, _INT, ctypes.c_int32, ctypes.c_int32, _INT)
_SPARSE = (_ARRAY, _INT, _ARRAY, _ARRAY, _INT, _LONG, _LONG, _LONG)
_PREDICTED = (_INT, _INT, _INT, _TEXT, _OUT, _OUT)

#: The argument types of the C functions, as in LightGBM's ``c_api.h``.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "LGBM_DatasetCreateFromMat": (*_DENSE, _TEXT, _HANDLE, _OUT),
    "LGBM_DatasetCreateFromCSR": (*_SPARSE, _TEXT, _HANDLE, _OUT),
    "LGBM_DatasetCreateFromSampledColumn": (_ARRAY, _ARRAY, _INT, _ARRAY, _INT, _INT, _LONG, _TEXT, _OUT),
    "LGBM_DatasetCreateByReference": (_HANDLE, _LONG, _OUT),
    "LGBM_DatasetPushRows": (_HANDLE, _ARRAY, _INT, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32),
    "LGBM_DatasetPushRowsByCSR": (_HANDLE, *_SPARSE, _LONG),
    "LGBM_SampleIndices": (ctypes.c_int32, _TEXT, _ARRAY, _OUT),
    "LGBM_DatasetSetField": (_HANDLE, _TEXT, _ARRAY, _INT, _INT),
    "LGBM_DatasetSetFeatureNames": (_HANDLE, ctypes.POINTER(_TEXT), _INT),
    "LGBM_DatasetFree": (_HANDLE,),
    "LGBM_BoosterCreate": (_HANDLE, _TEXT, _OUT),
    "LGBM_BoosterLoadModelFromString": (_TEXT, _OUT, _OUT),
    "LGBM_BoosterMerge": (_HANDLE, _HANDLE),
    "LGBM_BoosterRefit": (_HANDLE, _ARRAY, ctypes.c_int32, ctypes.c_int32),
    "LGBM_BoosterAddValidData": (_HANDLE, _HANDLE),
    "LGBM_BoosterUpdateOneIter": (_HANDLE, _OUT),
    "LGBM_BoosterGetCurrentIteration": (_HANDLE, _OUT),
    "LGBM_BoosterNumModelPerIteration": (_HANDLE, _OUT),
    "LGBM_BoosterNumberOfTotalModel": (_HANDLE, _OUT),
    "LGBM_BoosterGetNumFeature": (_HANDLE, _OUT),
    "LGBM_BoosterGetEval": (_HANDLE, _INT, _OUT, _OUT),
    "LGBM_BoosterGetNumPredict": (_HANDLE, _INT, _OUT),
    "LGBM_BoosterGetPredict": (_HANDLE, _INT, _OUT, _OUT),
    "LGBM_BoosterPredictForMat": (_HANDLE, *_DENSE, *_PREDICTED),
    "LGBM_BoosterPredictForCSR": (_HANDLE, *_SPARSE, *_PREDICTED),
    "LGBM_BoosterFeatureImportance": (_HANDLE, _INT, _INT, _OUT),
    "LGBM_BoosterSaveModelToString": (_HANDLE, _INT, _INT, _INT, _LONG, _OUT, _OUT),
    "LGBM_BoosterFree": (_HANDLE,),
    "LGBM_NetworkInitWithFunctions": (_INT, _INT, ctypes.c_void_p, ctypes.c_void_p),
    "LGBM_NetworkFree": (),
}


class LightGBMError(Exception):
    """LightGBM's error message."""


@functools.cache
def library() -> ctypes.CDLL:
    """Return LightGBM's shared library, found by the package's ``libpath`` module without importing the rest."""
    package = importlib.util.find_spec("lightgbm")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'lightgbm'", name="lightgbm")
    place = Path(package.origin).with_name("libpath.py")
    loaded: ctypes.CDLL = runpy.run_path(str(place))["_LIB"]
    loaded.LGBM_GetLastError.restype = ctypes.c_char_p
    for name, arguments in _FUNCTIONS.items():
        getattr(loaded, name).argtypes = arguments
    return loaded


def call(name: str, *arguments: Any) -> None:
    """Call a C function; raises LightGBMError if it fails."""
    if getattr(library(), name)(*arguments):
        raise LightGBMError(library().LGBM_GetLastError().decode())


class MatrixArguments:
    """A matrix as arguments of the C API, which keep pointing into it."""

    def __init__(self, x: Matrix) -> None:
        self.n_rows = x.shape[0]
        if not isinstance(x, np.ndarray):
            self.kind, indices = "CSR", x.indices.astype(np.int32, copy=False)
            self._held: tuple[Any, ...] = (x.indptr, indices, x.data)
            numbers = (address(x.data), type_of(x.data), len(x.indptr), len(x.data), x.shape[1])
            self.arguments: tuple[Any, ...] = (address(x.indptr), type_of(x.indptr), address(indices), *numbers)
            return
        by_column = bool(x.flags.f_contiguous)
        data = x if by_column else np.ascontiguousarray(x)
        self.kind, self._held = "Mat", (data,)
        self.arguments = (address(data), type_of(data), *data.shape, int(not by_column))


class Handle:
    """An object of the library, freed with its Python object by the C function ``freed_by``."""

    freed_by: ClassVar[str]

    def __init__(self) -> None:
        self.handle = ctypes.c_void_p()

    def __del__(self) -> None:
        if getattr(self, "handle", None):  # None or absent where making it failed
            getattr(library(), self.freed_by)(self.handle)


def joined(parameters: Mapping[str, Any]) -> bytes:
    """Return parameters in the library's format."""
    return " ".join(f"{name}={value}" for name, value in parameters.items()).encode()


def categorical_columns(columns: Collection[int]) -> dict[str, str]:
    """Return the parameter that names the columns of category codes, if any."""
    return {"categorical_column": ",".join(map(str, sorted(columns)))} if columns else {}


@functools.cache
def addresses(names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the addresses of functions for the C API."""
    return tuple(ctypes.cast(getattr(library(), name), ctypes.c_void_p).value or 0 for name in names)


def address(values: npt.NDArray[Any]) -> int:
    """Return the address of an array."""
    return values.ctypes.data


def type_of(values: npt.NDArray[Any]) -> int:
    """Return the library's number for an array's type."""
    return _TYPES[values.dtype.type]
