"""The result of ``predict``: a struct per row, made of a model's outputs."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.dataset import FloatArray
from grouplearn.errors import data_error
from grouplearn.models.calibration import Calibration, calibrated
from grouplearn.models.forms.form import Contributions
from grouplearn.models.forms.routed import level_names
from grouplearn.prediction.rows.known_values import Codes

#: The result of ``predict`` as an Arrow type: ``predicting_connections.PREDICTION``.
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
#: The result of ``forecast`` as an Arrow type: ``predicting_connections.STEPS``.
STEPS_TYPE = pa.list_(
    pa.struct(
        [
            ("step", pa.int32()),
            ("time", pa.string()),
            ("prediction", pa.float64()),
            ("lower", pa.float64()),
            ("upper", pa.float64()),
        ]
    )
)


#: The result of ``grouplearn_explain`` as an Arrow type: ``predicting_connections.EXPLANATION``.
EXPLANATION_TYPE = pa.struct(
    [
        ("prediction", pa.string()),
        ("model_level", pa.string()),
        ("group_id", pa.int32()),
        ("score", pa.float64()),
        ("baseline", pa.float64()),
        ("added", pa.list_(pa.float64())),
        ("method", pa.string()),
    ]
)


class PredictionPart(enum.IntEnum):
    """The requested part of a prediction; ``udfs/native/predicting.cpp`` and ``udfs/predict.sql`` have the same numbers."""

    ALL = 0
    VALUE = 1
    PROBABILITY = 2
    STEPS = 3
    EXPLANATION = 4

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the part."""
        return _TYPES.get(self, pa.float64())


_TYPES = {
    PredictionPart.ALL: ARROW_TYPE,
    PredictionPart.STEPS: STEPS_TYPE,
    PredictionPart.EXPLANATION: EXPLANATION_TYPE,
}


class Predictions:
    """Makes structs for a model's groups, whose numbers and levels are given."""

    def __init__(
        self,
        definition: ModelDefinition,
        numbers: Sequence[int],
        levels: Sequence[int],
        thresholds: Sequence[float] | None = None,
        calibrations: Sequence[Calibration | None] = (),
    ) -> None:
        self._name, self.output = definition.name, definition.output
        self._numbers = np.array([*numbers, -1], dtype=np.int32)
        self._levels = np.array([*levels, -1], dtype=np.int32)
        self._thresholds = None if thresholds is None else np.array([*thresholds, 0.5])
        self._kind = definition.calibrate
        self._calibrations = {place: each for place, each in enumerate(calibrations) if each is not None}
        self._level_names = pa.array(level_names(definition), pa.string())

    def of(self, outputs: FloatArray, group: Codes, part: PredictionPart) -> Any:
        """Return the requested part of outputs (n, width) from groups at these places (-1: none).

        Raises DataError for the value of a class, or the probability of an output without one.
        """
        outputs = self._calibrated(outputs, group)
        missing = self.output.missing(outputs)
        if part is PredictionPart.ALL:
            return self._structs(outputs, missing, group)
        place = None
        try:
            place = self.output.value() if part is PredictionPart.VALUE else self.output.probability()
        except ValueError as error:
            if not missing.all():
                what = (
                    "predict_value is for numbers"
                    if part is PredictionPart.VALUE
                    else "predict_probability is for two classes"
                )
                raise data_error(f'{what}, and model "{self._name}" {error}') from None
        if place is None:
            return pa.nulls(len(outputs), part.type)
        return pa.array(np.ascontiguousarray(outputs[:, place]), mask=missing)

    def _calibrated(self, outputs: FloatArray, group: Codes) -> FloatArray:
        """Return the probabilities of two classes (n, 2) after the calibrations of their groups."""
        if not self._calibrations:
            return outputs
        outputs = outputs.copy()
        for place in np.unique(group).tolist():
            if (own := self._calibrations.get(place)) is not None:
                rows = group == place
                p = calibrated(self._kind or "", own, outputs[rows, 1])
                outputs[rows] = np.column_stack([1 - p, p])
        return outputs

    def _fields(self, outputs: FloatArray, missing: npt.NDArray[np.bool_], group: Codes) -> Mapping[str, pa.Array]:
        if self._thresholds is None:
            return self.output.fields(outputs, missing)
        return self.output.fields_above(outputs, missing, self._thresholds[group])

    def explained(self, outputs: FloatArray, group: Codes, found: Contributions, methods: Sequence[str]) -> Any:
        """Return the explanations of outputs (n, width) as structs; no contributions where nothing is predicted."""
        outputs = self._calibrated(outputs, group)
        missing = self.output.missing(outputs)
        told = self._structs(outputs, missing, group)
        lengths = np.where(missing, 0, found.added.shape[1])
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        known = pa.array(missing)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(found.added[~missing].ravel()), mask=known)
        scores = pa.array(found.baseline + found.added.sum(axis=1), mask=missing)
        baselines, names = pa.array(found.baseline, mask=missing), pa.array(methods, pa.string(), mask=missing)
        own = [told.field(name) for name in ("prediction", "model_level", "group_id")]
        return pa.StructArray.from_arrays([*own, scores, baselines, lists, names], fields=list(EXPLANATION_TYPE))

    def _structs(self, outputs: FloatArray, missing: npt.NDArray[np.bool_], group: Codes) -> Any:
        levels, numbers = self._levels[group], self._numbers[group]
        ungrouped = group < 0
        columns = {
            "model_level": self._level_names.take(pa.array(levels, mask=ungrouped)),
            "group_id": pa.array(numbers, mask=ungrouped),
            **self._fields(outputs, missing, group),
        }
        fields = list(ARROW_TYPE)
        return pa.StructArray.from_arrays(
            [columns[field.name] if field.name in columns else pa.nulls(len(outputs), field.type) for field in fields],
            fields=fields,
        )
