"""ONNX graphs in double precision: adding nodes and constants, and the encoders of a model's items."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.registry import encoder_of

#: Operator set versions: 18 has all operators on doubles, 5 has TreeEnsemble.
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
    """A graph that grows node by node; values are known by name, ``inputs`` are those of the inputs."""

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
        """Add an output with its own name, followed by ``_`` if an input has that name."""
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
        """Add a constant of one double."""
        return self.constant(np.array(value, dtype=np.float64))

    def tensor(self, values: npt.ArrayLike) -> Any:
        """Return values as an attribute of a node."""
        return self._onnx.numpy_helper.from_array(np.asarray(values))

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and return its name."""
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

    A number is a DOUBLE, NaN for NULL; a category a STRING, NULL being any text that was not in training; a hashed item the
    INT64 number of its bucket, -1 for NULL; an array several DOUBLEs. With ``finite`` infinite numbers count as missing.
    """
    pieces = [piece for item in fitted for piece in encoder_of(item.item).onnx(graph, item, finite)]
    return graph.add("Concat", *pieces, axis=1) if len(pieces) > 1 else pieces[0]
