"""ONNX graphs in double precision: nodes and constants as they are added, and the encoders of a model's items."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.encoders import FittedItem

#: The operator sets that the graphs use: 18 has all operators on doubles, 5 has TreeEnsemble.
OPSET, ML_OPSET = 18, 5
_IR_VERSION = 10
ROWS = "rows"


class OnnxMissing(ImportError):
    """The package onnx is not installed."""

    hint = "pip install 'grouplearn[onnx]'"


def onnx() -> Any:
    """Return the package; raises OnnxMissing."""
    try:
        import onnx as package
    except ImportError:
        raise OnnxMissing("FORMAT onnx needs the package onnx, which is not installed") from None
    return package


class Graph:
    """A graph that grows node by node; values are known by their names, of which ``inputs`` are those of its inputs."""

    def __init__(self, inputs: Collection[str]) -> None:
        self._onnx = onnx()
        self._taken = frozenset(inputs)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, kind: str, width: int = 1) -> str:
        """Add an input (rows, width) of type DOUBLE, INT64 or STRING."""
        self._inputs.append(self._value(name, kind, width))
        return name

    def output(self, value: str, name: str, kind: str, width: int) -> None:
        """Give a value out under a name of its own, with ``_`` after it where an input has that name."""
        name = self._apart(name)
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._value(name, kind, width))

    def _apart(self, name: str) -> str:
        """Return a name that no input has."""
        while name in self._taken:
            name += "_"
        return name

    def _value(self, name: str, kind: str, width: int) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, getattr(self._onnx.TensorProto, kind), [ROWS, width])

    def constant(self, values: npt.ArrayLike) -> str:
        """Add a constant: doubles, integers or texts."""
        array = np.asarray(values)
        name = self._apart(f"constant_{len(self._constants)}")
        array = array.astype(object) if array.dtype.kind in "US" else array
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def number(self, value: float) -> str:
        """Add a constant that is one double."""
        return self.constant(np.array(value, dtype=np.float64))

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and return the name of that."""
        name = self._apart(f"value_{len(self._nodes)}")
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def doubles(self, value: str) -> str:
        """Return a value cast to double."""
        return self.add("Cast", value, to=self._onnx.TensorProto.DOUBLE)

    def content(self, name: str, text: str) -> bytes:
        """Return the model, checked."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._constants, doc_string=text)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        model = helper.make_model(graph, producer_name="grouplearn", opset_imports=opsets, ir_version=_IR_VERSION)
        self._onnx.checker.check_model(model)
        return bytes(model.SerializeToString())


def encoded(graph: Graph, fitted: Sequence[FittedItem], finite: bool) -> str:
    """Add an input per item and return the feature columns (rows, width), NaN where missing.

    A number is a DOUBLE, NaN for NULL; a category a STRING, any text that the model has not seen for NULL; a hashed item
    the INT64 number of its bucket, -1 for NULL; an array as many DOUBLEs. With ``finite`` infinite numbers are missing.
    """
    pieces = [piece for item in fitted for piece in _piece(graph, item, finite)]
    return graph.add("Concat", *pieces, axis=1) if len(pieces) > 1 else pieces[0]


def _piece(graph: Graph, fitted: FittedItem, finite: bool) -> list[str]:
    item = fitted.item
    if item.kind == "array":
        return [graph.input(item.name, "DOUBLE", item.buckets)]
    if item.kind == "numeric":
        return [_number(graph, fitted, graph.input(item.name, "DOUBLE"), finite)]
    if item.kind == "hash":
        place = graph.input(item.name, "INT64")
        return [_indicators(graph, place, item.buckets)]
    place = positions(graph, fitted, graph.input(item.name, "STRING"))
    if item.encoder == "ordinal":
        unknown = graph.add("Less", place, graph.constant(np.array(0, dtype=np.int64)))
        return [graph.add("Where", unknown, graph.number(np.nan), graph.doubles(place))]
    return [_indicators(graph, place, len(fitted.categories))] if fitted.categories else []


def positions(graph: Graph, fitted: FittedItem, texts: str) -> str:
    """Return the 0-based places of categories (int64), -1 for one that is none."""
    known = fitted.categories or ("",)
    places = list(range(len(fitted.categories))) or [-1]
    options: dict[str, Any] = {"keys_strings": list(known), "values_int64s": places, "default_int64": -1}
    return graph.add("LabelEncoder", texts, domain="ai.onnx.ml", **options)


def _indicators(graph: Graph, place: str, count: int) -> str:
    return graph.doubles(graph.add("Equal", place, graph.constant(np.arange(count, dtype=np.int64)[None])))


def _number(graph: Graph, fitted: FittedItem, x: str, finite: bool) -> str:
    if fitted.fill is not None or finite:
        bad = graph.add("Or", graph.add("IsNaN", x), graph.add("IsInf", x))
        x = graph.add("Where", bad, graph.number(np.nan if fitted.fill is None else fitted.fill), x)
    if (fitted.center, fitted.scale) == (0.0, 1.0):
        return x
    return graph.add("Div", graph.add("Sub", x, graph.number(fitted.center)), graph.number(fitted.scale))
