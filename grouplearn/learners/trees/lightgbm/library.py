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
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Matrix
from grouplearn.models.state import FloatArray

if TYPE_CHECKING:
    from grouplearn.learners.trees.lightgbm.data import DataSet

_FLOAT32, _FLOAT64, _INT32, _INT64 = range(4)
_TYPES: dict[Any, int] = {np.float32: _FLOAT32, np.float64: _FLOAT64, np.int32: _INT32, np.int64: _INT64}
_PROBABILITIES, _RAW_SCORES = 0, 1
_SPLITS, _GAIN = 0, 1

#: Initial buffer size for a model text; longer ones are written twice.
_TEXT_BYTES = 1 << 15

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
    "LGBM_DatasetFree": (_HANDLE,),
    "LGBM_BoosterCreate": (_HANDLE, _TEXT, _OUT),
    "LGBM_BoosterLoadModelFromString": (_TEXT, _OUT, _OUT),
    "LGBM_BoosterMerge": (_HANDLE, _HANDLE),
    "LGBM_BoosterAddValidData": (_HANDLE, _HANDLE),
    "LGBM_BoosterUpdateOneIter": (_HANDLE, _OUT),
    "LGBM_BoosterGetCurrentIteration": (_HANDLE, _OUT),
    "LGBM_BoosterNumModelPerIteration": (_HANDLE, _OUT),
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


class Booster:
    """Trees of a model text, or being boosted on a data set; made by ``on`` and ``of_text``."""

    def __init__(self) -> None:
        self.handle = ctypes.c_void_p()
        #: Objects that the library points to but does not own.
        self._sets: list[DataSet] = []

    @classmethod
    def on(cls, data: DataSet, parameters: Mapping[str, Any]) -> Booster:
        """Return a booster without trees for the training rows."""
        made = cls()
        made._sets.append(data)
        columns = {key: value for key, value in data.parameters.items() if key == "categorical_column"}
        call("LGBM_BoosterCreate", data.handle, joined({**parameters, **columns}), ctypes.byref(made.handle))
        return made

    @classmethod
    def of_text(cls, text: bytes) -> Booster:
        """Return the booster of a model text, which must be trusted."""
        made, rounds = cls(), ctypes.c_int()
        call("LGBM_BoosterLoadModelFromString", text, ctypes.byref(rounds), ctypes.byref(made.handle))
        return made

    def __del__(self) -> None:
        free("LGBM_BoosterFree", self)

    def merge(self, other: Booster) -> None:
        """Take over another booster's trees."""
        call("LGBM_BoosterMerge", self.handle, other.handle)

    def watch(self, data: DataSet) -> None:
        """Also measure the metric on these rows."""
        self._sets.append(data)
        call("LGBM_BoosterAddValidData", self.handle, data.handle)

    def update(self) -> bool:
        """Boost one round; return whether it found no split."""
        stalled = ctypes.c_int()
        call("LGBM_BoosterUpdateOneIter", self.handle, ctypes.byref(stalled))
        return bool(stalled.value)

    @property
    def iterations(self) -> int:
        """Number of iterations in the booster."""
        return self._count("LGBM_BoosterGetCurrentIteration")

    @property
    def n_outputs(self) -> int:
        """Trees per iteration."""
        return self._count("LGBM_BoosterNumModelPerIteration")

    def _count(self, name: str) -> int:
        count = ctypes.c_int()
        call(name, self.handle, ctypes.byref(count))
        return count.value

    def watched_metric(self) -> float:
        """Return the metric on the watched rows."""
        value, count = ctypes.c_double(), ctypes.c_int()
        call("LGBM_BoosterGetEval", self.handle, 1, ctypes.byref(count), ctypes.byref(value))
        return value.value

    def running(self, place: int) -> FloatArray:
        """Return current predictions for training rows (``place`` 0) or watched rows (1): shape (n, n_outputs)."""
        count = ctypes.c_int64()
        call("LGBM_BoosterGetNumPredict", self.handle, place, ctypes.byref(count))
        predicted = np.empty(count.value)
        call("LGBM_BoosterGetPredict", self.handle, place, ctypes.byref(count), address(predicted))
        return predicted.reshape((-1, self.n_outputs), order="F")

    def predict(self, x: Matrix, *, raw: bool = False, rounds: int = -1) -> FloatArray:
        """Return values or probabilities, or ``raw`` scores, of the first ``rounds`` (-1: all): shape (n, n_outputs)."""
        rows, outputs, count = MatrixArguments(x), self.n_outputs, ctypes.c_int64()
        predicted = np.empty((rows.n_rows, outputs))
        if not rows.n_rows:
            return predicted
        wanted = (_RAW_SCORES if raw else _PROBABILITIES, 0, rounds, b"num_threads=1")
        result = (ctypes.byref(count), address(predicted))
        call(f"LGBM_BoosterPredictFor{rows.kind}", self.handle, *rows.arguments, *wanted, *result)
        return predicted

    def gain(self) -> FloatArray:
        """Return the total gain of the splits on each feature."""
        gain = np.empty(self._count("LGBM_BoosterGetNumFeature"))
        call("LGBM_BoosterFeatureImportance", self.handle, -1, _GAIN, address(gain))
        return gain

    def to_text(self, iterations: int = -1) -> str:
        """Return the model of the first iterations (-1: all), as ``lightgbm.Booster.model_to_string`` does."""
        room = _TEXT_BYTES
        while True:
            text, length = ctypes.create_string_buffer(room), ctypes.c_int64()
            wanted = (0, iterations, _SPLITS, room, ctypes.byref(length), text)
            call("LGBM_BoosterSaveModelToString", self.handle, *wanted)
            if length.value <= room:
                return text.value.decode() + "\npandas_categorical:null\n"
            room = length.value


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


def free(name: str, owner: DataSet | Booster) -> None:
    """Free what ``owner.handle`` points to, unless making it failed."""
    if getattr(owner, "handle", None):
        getattr(library(), name)(owner.handle)
