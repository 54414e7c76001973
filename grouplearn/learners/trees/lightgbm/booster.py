"""LightGBM's boosters through its C API."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Matrix
from grouplearn.learners.trees.lightgbm.binned_data import BinnedData
from grouplearn.learners.trees.lightgbm.library import Handle, MatrixArguments, address, call, joined
from grouplearn.models.state import FloatArray

_PROBABILITIES, _RAW_SCORES, _LEAVES = 0, 1, 2
_SPLITS, _GAIN = 0, 1

#: Initial buffer size for a model text; longer ones are written twice.
_TEXT_BYTES = 1 << 15


class Booster(Handle):
    """Trees of a model text, or being boosted on a data set; made by ``on`` and ``of_text``."""

    freed_by = "LGBM_BoosterFree"

    def __init__(self) -> None:
        super().__init__()
        #: Objects that the library points to but does not own.
        self._sets: list[BinnedData] = []

    @classmethod
    def on(cls, data: BinnedData, parameters: Mapping[str, Any]) -> Booster:
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

    def merge(self, other: Booster) -> None:
        """Take over another booster's trees."""
        call("LGBM_BoosterMerge", self.handle, other.handle)

    def watch(self, data: BinnedData) -> None:
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

    def predict(self, x: Matrix, *, raw: bool = False, first: int = 0, rounds: int = -1) -> FloatArray:
        """Return values, probabilities or ``raw`` scores (n, n_outputs) of so many ``rounds`` (-1: all) from the ``first`` on."""
        rows, outputs, count = MatrixArguments(x), self.n_outputs, ctypes.c_int64()
        predicted = np.empty((rows.n_rows, outputs))
        if not rows.n_rows:
            return predicted
        wanted = (_RAW_SCORES if raw else _PROBABILITIES, first, rounds, b"num_threads=1")
        result = (ctypes.byref(count), address(predicted))
        call(f"LGBM_BoosterPredictFor{rows.kind}", self.handle, *rows.arguments, *wanted, *result)
        return predicted

    def leaves(self, x: Matrix) -> npt.NDArray[np.int32]:
        """Return the number of the leaf to which each row comes in each tree, (n, trees)."""
        rows, trees, count = MatrixArguments(x), self._count("LGBM_BoosterNumberOfTotalModel"), ctypes.c_int64()
        found = np.empty((rows.n_rows, trees))
        if rows.n_rows:
            wanted = (_LEAVES, 0, -1, b"num_threads=1")
            result = (ctypes.byref(count), address(found))
            call(f"LGBM_BoosterPredictFor{rows.kind}", self.handle, *rows.arguments, *wanted, *result)
        return found.astype(np.int32)

    def refit(self, leaves: npt.NDArray[np.int32]) -> None:
        """Renew leaf values by the training rows, which come to these leaves (n, trees)."""
        given = np.ascontiguousarray(leaves)
        call("LGBM_BoosterRefit", self.handle, address(given), *given.shape)

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
