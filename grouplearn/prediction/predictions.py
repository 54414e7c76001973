"""What ``predict`` returns: a struct per row, made of the outputs of a model."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.catalog.records import ModelDefinition
from grouplearn.catalog.views import level_names
from grouplearn.data.dataset import FloatArray
from grouplearn.errors import data_error
from grouplearn.learners.contract.problem import Task
from grouplearn.prediction.known_values import Codes

#: What ``predict`` returns, as Arrow: ``asking.PREDICTION``.
ARROW_TYPE = pa.struct(
    [
        ("prediction", pa.string()),
        ("value", pa.float64()),
        ("probability", pa.float64()),
        ("probabilities", pa.map_(pa.string(), pa.float64())),
        ("model_level", pa.string()),
        ("group_id", pa.int32()),
        ("predicted", pa.list_(pa.float64())),
    ]
)


class Part(enum.IntEnum):
    """What is wanted of a prediction; ``udfs/native/predicting.cpp`` and ``udfs/predict.sql`` have the same numbers."""

    ALL = 0
    VALUE = 1
    PROBABILITY = 2

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of what is wanted."""
        return ARROW_TYPE if self is Part.ALL else pa.float64()


class Predictions:
    """Makes structs for the groups of a model, whose numbers and levels are given."""

    def __init__(self, definition: ModelDefinition, numbers: Sequence[int], levels: Sequence[int]) -> None:
        self._definition = definition
        self._numbers = np.array([*numbers, -1], dtype=np.int32)
        self._levels = np.array([*levels, -1], dtype=np.int32)
        self._level_names = pa.array(level_names(definition), pa.string())
        self._classes = pa.array(definition.classes, pa.string())
        self._repeated = pa.array([], pa.string())

    @property
    def width(self) -> int:
        """Outputs per row: the value, or a probability per class (of a label with one class there are still two)."""
        if self._definition.label_length:
            return self._definition.label_length
        return {Task.REGRESSION: 1, Task.BINARY: 2}.get(self._definition.task, len(self._definition.classes))

    def of(self, outputs: FloatArray, group: Codes, part: Part) -> Any:
        """Return what is wanted of outputs (n, width), NaN where there is none, of groups' places (-1: none).

        Raises DataError where the value of a class is wanted.
        """
        if part is Part.ALL:
            return self._structs(outputs, group)
        definition = self._definition
        missing: npt.NDArray[np.bool_] = np.logical_or.reduce(np.isnan(outputs), axis=1)
        if part is Part.VALUE and definition.classes and not definition.label_length and not missing.all():
            raise data_error(
                f'predict_value is for regression, and model "{definition.name}" is a classifier: '
                "predict() has its prediction and probabilities"
            )
        told = {Part.VALUE: Task.REGRESSION, Part.PROBABILITY: Task.BINARY}[part]
        if definition.task is not told or definition.label_length:
            return pa.nulls(len(outputs), part.type)
        return pa.array(np.ascontiguousarray(outputs[:, part - 1]), mask=missing)

    def _structs(self, outputs: FloatArray, group: Codes) -> Any:
        definition, n_rows = self._definition, len(outputs)
        missing: npt.NDArray[np.bool_] = np.logical_or.reduce(np.isnan(outputs), axis=1)
        levels, numbers = self._levels[group], self._numbers[group]
        ungrouped = group < 0
        columns = {
            "model_level": self._level_names.take(pa.array(levels, mask=ungrouped)),
            "group_id": pa.array(numbers, mask=ungrouped),
        }
        if definition.label_length:
            columns["predicted"] = _list_array(outputs, missing)
        elif definition.task is Task.REGRESSION:
            columns["value"] = pa.array(np.ascontiguousarray(outputs[:, 0]), mask=missing)
            columns["prediction"] = columns["value"].cast(pa.string())
        else:
            columns |= self._of_classes(outputs, missing)
        fields = list(ARROW_TYPE)
        return pa.StructArray.from_arrays(
            [columns[field.name] if field.name in columns else pa.nulls(n_rows, field.type) for field in fields],
            fields=fields,
        )

    def _keys(self, n_rows: int) -> Any:
        """Return the classes, over and over again for at least so many rows: chunks have the same numbers of rows."""
        repeated = self._repeated
        if len(repeated) < n_rows * len(self._classes):
            repeated = self._classes.take(pa.array(np.tile(np.arange(len(self._classes)), n_rows)))
            self._repeated = repeated  # another thread's, maybe shorter, may be there by now
        return repeated

    def _of_classes(self, outputs: FloatArray, missing: npt.NDArray[np.bool_]) -> dict[str, Any]:
        if self._definition.task is Task.BINARY:
            number = (outputs[:, 1] > 0.5).astype(np.int64)
            columns = {"probability": pa.array(np.ascontiguousarray(outputs[:, 1]), mask=missing)}
        else:
            number, columns = np.argmax(np.where(missing[:, None], 0, outputs), axis=1), {}
        columns["prediction"] = self._classes.take(pa.array(number, mask=missing))
        columns["probabilities"] = _maps(self._keys(len(outputs)), outputs, missing)
        return columns


def _list_array(values: FloatArray, missing: npt.NDArray[np.bool_]) -> Any:
    """Return rows (n, L) as lists, NULL where ``missing``."""
    offsets = np.concatenate([[0], np.cumsum(np.where(missing, 0, values.shape[1]))]).astype(np.int32)
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[~missing].ravel()), mask=mask)


def _maps(keys: Any, outputs: FloatArray, missing: npt.NDArray[np.bool_]) -> Any:
    """Return a map class -> probability per row, NULL where nothing is predicted; ``keys`` are the classes again and again."""
    lengths = np.where(missing, 0, outputs.shape[1])
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    values = pa.array(outputs[~missing].ravel())
    maps = pa.MapArray.from_arrays(offsets, keys.slice(0, len(values)), values)
    return pc.if_else(pa.array(~missing), maps, None) if missing.any() else maps
