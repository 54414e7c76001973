"""One of two classes with its ``probability``, or of more with ``probabilities``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.data.encoding.encoder import OnnxGraph
from grouplearn.models.metrics.classes import CLASSES
from grouplearn.models.metrics.judging import OF_CLASSES, OF_TWO_CLASSES
from grouplearn.models.outputs.link import LINKS, Link
from grouplearn.models.outputs.onnx_model import OnnxModel
from grouplearn.models.outputs.output import EXPLAIN, PERMUTATION, PREDICT, BoolArray, Endpoint, Output, Scored
from grouplearn.models.state import FloatArray
from grouplearn.sqltext import literal

#: e to what a score is below the highest, 0 where that is nearly subnormal, as in training: else rows that tie there would
#: have an order.
_POWER = "CASE WHEN {0} - __grouplearn_highest < -707.7 THEN 0 ELSE exp({0} - __grouplearn_highest) END"


class Classes(Output):
    """A class; ``classes`` are the label's values as text, castable to ``label_type``."""

    metrics = CLASSES
    endpoints: tuple[Endpoint, ...] = (PREDICT, EXPLAIN, PERMUTATION, *OF_CLASSES)

    def __init__(self, classes: Sequence[str], label_type: str) -> None:
        self.classes, self.label_type = tuple(classes), label_type
        self._texts = pa.array(self.classes, pa.string())
        self._repeated = pa.array([], pa.string())

    def values(self) -> list[str]:
        """Return the classes as SQL constants of the label's type."""
        return [f"CAST({literal(name)} AS {self.label_type})" for name in self.classes]

    def value(self) -> int | None:
        """Raise ValueError: a class is not a number."""
        raise ValueError("is a classifier: predict() has its prediction and probabilities")

    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        """Return the class and the probabilities of all."""
        return self._fields(self.chosen(np.where(missing[:, None], 0, outputs)), outputs, missing)

    def _fields(self, number: Any, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        """Return the classes of these numbers and the probabilities of all."""
        return {
            "prediction": self._texts.take(pa.array(number, mask=missing)),
            "probabilities": _maps(self._keys(len(outputs)), outputs, missing),
        }

    @classmethod
    def of(cls, classes: Sequence[str], label_type: str) -> Classes:
        """Return the output for a label with these classes."""
        return cls(classes, label_type)

    @abstractmethod
    def chosen(self, outputs: FloatArray) -> Any:
        """Return the number of the predicted class, from probabilities (n, classes)."""

    def _keys(self, n_rows: int) -> Any:
        """Return the classes repeated for at least this many rows; cached, as chunks have equal sizes."""
        repeated = self._repeated
        if len(repeated) < n_rows * len(self.classes):
            repeated = self._texts.take(pa.array(np.tile(np.arange(len(self.classes)), n_rows)))
            self._repeated = repeated  # another thread may have stored a shorter one
        return repeated


class TwoClasses(Classes):
    """The second of two classes if its probability, the logistic function of the score, is above the threshold.

    A label with a single class still has two probabilities, but no group has a model.
    """

    width = 2
    endpoints: tuple[Endpoint, ...] = (PREDICT, EXPLAIN, PERMUTATION, *OF_TWO_CLASSES)

    @property
    def has_threshold(self) -> bool:
        """Whether there are two classes."""
        return len(self.classes) == 2

    def select(self, scored: Scored) -> str:
        """Return the class and the probability of the second class."""
        p = "__grouplearn_p"
        source = f"(SELECT *, {scored.probability} AS {p} FROM {scored.relation})"
        prediction = self._class_of(p, scored.threshold)
        columns = f"{scored.head}, {prediction} AS prediction, {p} AS probability, {scored.level} AS model_level"
        return f"SELECT {columns} FROM {source}"

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        """Return the class by threshold, and the field ``probability``."""
        del judged
        p = f"{predicted}.probability"
        value = (
            self._class_of(p, threshold) if self.has_threshold else f"CAST({predicted}.prediction AS {self.label_type})"
        )
        return f"{value} AS prediction", f"{p} AS probability"

    def held_out(self, outputs: Sequence[str], threshold: str) -> Sequence[tuple[str, str]]:
        """Return the class by threshold, and the probability of the second one."""
        return [("prediction", self._class_of(outputs[1], threshold)), ("probability", outputs[1])]

    def _class_of(self, probability: str, threshold: str) -> str:
        """Return the class for a probability."""
        if not self.has_threshold:  # a single class: every group has failed
            return f"CAST(NULL AS {self.label_type})"
        negative, positive = self.values()
        return f"CASE WHEN {probability} > {threshold} THEN {positive} WHEN {probability} <= {threshold} THEN {negative} END"

    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        """Return the probabilities of both classes."""
        del classes
        return np.column_stack([1 - score[:, 0], score[:, 0]])

    def chosen(self, outputs: FloatArray) -> Any:
        """Return 1 where the second class has more than half."""
        return (outputs[:, 1] > 0.5).astype(np.int64)

    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        """Return the class, the probability of the second one, and the probabilities of both."""
        return self.fields_above(outputs, missing, np.float64(0.5))

    def fields_above(self, outputs: FloatArray, missing: BoolArray, threshold: Any) -> Mapping[str, pa.Array]:
        """Return ``fields`` with the second class where its probability is above a threshold, or that of the row (n,)."""
        number = (np.where(missing, 0.0, outputs[:, 1]) > threshold).astype(np.int64)
        probability = pa.array(np.ascontiguousarray(outputs[:, 1]), mask=missing)
        return {**self._fields(number, outputs, missing), "probability": probability}

    def probability(self) -> int | None:
        """Return the place of the second class."""
        return 1

    def onnx(self, graph: OnnxGraph, model: OnnxModel) -> None:
        """Add the class and the probability of the second one."""
        p = model.known(graph, graph.add("Sigmoid", model.scores()))
        positive = graph.add("Cast", graph.add("Greater", p, graph.number(model.threshold)), to=7)
        graph.output(_named(graph, self.classes[:2], positive, graph.add("IsNaN", p)), "prediction", "STRING", 1)
        graph.output(p, "probability", "DOUBLE", 1)


class SeveralClasses(Classes):
    """The class with the highest score; probabilities are the softmax of scores, or shares of their logistic functions.

    A group without some classes has scores, and positive probabilities, only for its own.
    """

    def __init__(self, classes: Sequence[str], label_type: str) -> None:
        super().__init__(classes, label_type)
        self.n_scores = len(self.classes)

    @property
    def width(self) -> int:
        """A probability for each class."""
        return len(self.classes)

    def select(self, scored: Scored) -> str:
        """Return the class and a map from each class to its probability."""
        numbers = range(len(self.classes))
        highest = f"greatest({', '.join(f'__grouplearn_s{number}' for number in numbers)})"
        shifted = f"SELECT *, {highest} AS __grouplearn_highest FROM {scored.relation}"
        # exp(s - max) cannot overflow; a class unknown to the group has no score and probability 0.
        power = _POWER if scored.link == "softmax" else LINKS["logistic"]
        powers = ", ".join(f"coalesce({power.format(f'__grouplearn_s{number}')}, 0)" for number in numbers)
        powered = f"SELECT *, [{powers}] AS __grouplearn_powers FROM ({shifted})"
        # A lambda would compute the total for every element.
        totalled = f"SELECT *, list_sum(__grouplearn_powers) AS __grouplearn_total FROM ({powered})"
        known = "isfinite(__grouplearn_highest)"
        place = "list_position(__grouplearn_powers, list_max(__grouplearn_powers))"
        prediction = f"CASE WHEN {known} THEN ([{', '.join(self.values())}])[{place}] END"
        texts = ", ".join(literal(name) for name in self.classes)
        shares = "list_transform(__grouplearn_powers, lambda power: power / __grouplearn_total)"
        probabilities = f"CASE WHEN {known} THEN map([{texts}], {shares}) END"
        return (
            f"SELECT {scored.head}, {prediction} AS prediction, {probabilities} AS probabilities,"
            f" {scored.level} AS model_level FROM ({totalled})"
        )

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        """Return the class, and the field ``probabilities``."""
        del threshold, judged
        value = f"CAST({predicted}.prediction AS {self.label_type})"
        return f"{value} AS prediction", f"{predicted}.probabilities AS probabilities"

    def held_out(self, outputs: Sequence[str], threshold: str) -> Sequence[tuple[str, str]]:
        """Return the first of the most probable classes, and the map from each class to its probability."""
        del threshold
        listed, texts = f"[{', '.join(outputs)}]", ", ".join(literal(name) for name in self.classes)
        place, known = f"list_position({listed}, list_max({listed}))", f"{outputs[0]} IS NOT NULL"
        return [
            ("prediction", f"CASE WHEN {known} THEN ([{', '.join(self.values())}])[{place}] END"),
            ("probabilities", f"CASE WHEN {known} THEN map([{texts}], {listed}) END"),
        ]

    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        """Return the probability of each class, 0 for those that the group does not have."""
        every = np.zeros((len(score), len(self.classes)))
        every[:, list(classes)] = score
        return every

    def chosen(self, outputs: FloatArray) -> Any:
        """Return the most probable class, the first of equal ones."""
        return np.argmax(outputs, axis=1)

    def onnx(self, graph: OnnxGraph, model: OnnxModel) -> None:
        """Add the class and the probabilities of all classes of the label."""
        p = model.known(graph, _shares(graph, model.link(), model.scores()))
        chosen = graph.add("ArgMax", p, axis=1, keepdims=1)
        nothing = graph.add("IsNaN", graph.add("ReduceSum", p, graph.constant(np.array([1]))))
        names = [self.classes[number] for number in model.classes]
        graph.output(_named(graph, names, chosen, nothing), "prediction", "STRING", 1)
        every = self._of_every_class(graph, p, model.classes)
        graph.output(every, "probabilities", "DOUBLE", len(self.classes))

    def _of_every_class(self, graph: OnnxGraph, p: str, own: Sequence[int]) -> str:
        """Return the probabilities of all classes of the label, 0 for those that the group does not have."""
        if len(own) == len(self.classes):
            return p
        spread = np.zeros((len(own), len(self.classes)))
        spread[np.arange(len(own)), list(own)] = 1.0
        return graph.add("MatMul", p, graph.constant(spread))


def _shares(graph: OnnxGraph, link: Link, scores: str) -> str:
    """Return the probabilities of classes; a group with two has trees of one class against the other."""
    if link != "one_vs_all":
        return graph.add("Softmax", scores, axis=1)
    shares = graph.add("Sigmoid", scores)
    total = graph.add("ReduceSum", shares, graph.constant(np.array([1])), keepdims=1)
    return graph.add("Div", shares, total)


def _named(graph: OnnxGraph, names: Sequence[str], chosen: str, nothing: str) -> str:
    """Return the names of chosen classes, the empty text where there is nothing."""
    number = graph.add("Where", nothing, graph.constant(np.array(len(names), dtype=np.int64)), chosen)
    texts: npt.NDArray[Any] = np.array([*names, ""], dtype=object)
    return graph.add("Gather", graph.constant(texts), number, axis=0)


def _maps(keys: Any, outputs: FloatArray, missing: BoolArray) -> Any:
    """Return a map class -> probability per row, NULL without a prediction; ``keys`` are the repeated classes."""
    lengths = np.where(missing, 0, outputs.shape[1])
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    values = pa.array(outputs[~missing].ravel())
    maps = pa.MapArray.from_arrays(offsets, keys.slice(0, len(values)), values)
    return pc.if_else(pa.array(~missing), maps, None) if missing.any() else maps
