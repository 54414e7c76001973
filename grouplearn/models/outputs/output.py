"""The form of a prediction: its columns, what ``predict`` returns, its SQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.data.encoding.encoder import NoForm, OnnxGraph
from grouplearn.models.metrics.metric import Family
from grouplearn.models.outputs.link import Link
from grouplearn.models.outputs.onnx_model import OnnxModel
from grouplearn.models.outputs.vectors import VectorSql, VectorView
from grouplearn.models.state import FloatArray

BoolArray = npt.NDArray[np.bool_]
#: Columns that the query of an endpoint reads beside predictions: a row of the source as one value, and its place there.
SOURCE, PLACE = "__grouplearn_source", "__grouplearn_row_place"


@dataclass(frozen=True, slots=True)
class Scored:
    """Rows with scores in SQL: their relation, and the other parts of the final SELECT.

    ``head`` are the first columns, ``level`` the SQL of the level whose model was used, ``link`` the link of scores,
    ``threshold`` the SQL of the probability above which a row is of the positive class. ``judged``: add what EVALUATE
    measures. ``probability`` is the SQL of the probability of the second of two classes.
    """

    relation: str
    head: str
    level: str
    link: Link
    threshold: str
    judged: bool = False
    probability: str = "1 / (1 + exp(-__grouplearn_s0))"


class StoredModel(Protocol):
    """A model in the catalog, as SQL reads it."""

    @property
    def definition(self) -> Any:
        """Its ``ModelDefinition``."""
        ...

    @property
    def reachable(self) -> str:
        """SQL that is NULL, or raises if the tables that were found are not the model's."""
        ...

    def table(self, name: str) -> str:
        """Return a catalog table, and the condition on the model's rows."""
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A table macro of a model, called by the model's name with ``suffix``; ``comment`` begins its comment.

    ``parameters`` are what it takes, by name with the SQL of their defaults, None for what must be given. With ``predicts`` the
    first is a table, whose rows are predicted; with ``reads`` alone it is one whose rows are only read. ``select`` makes the
    query of the model's tables and, with ``predicts``, of the query of predictions beside ``SOURCE``, ``PLACE`` and the label,
    or with ``reads`` of the table; None for the rows with their predictions. ``judges``: it compares predictions with labels,
    or ``explains`` them, and its rows are not those of the table.
    """

    suffix: str
    parameters: tuple[tuple[str, str | None], ...]
    comment: str
    predicts: bool = True
    select: Callable[[StoredModel, str], str] | None = None
    reads: bool = False
    judges: bool = False
    explains: bool = False

    @property
    def call(self) -> str:
        """What stands in the brackets of a call: the parameters that must be given."""
        return ", ".join(name for name, default in self.parameters if default is None)


#: The rows of a table with their predictions.
PREDICT = Endpoint("_predict", (("src", None),), "Rows with ")
#: What each item adds to the score of each row.
EXPLAIN = Endpoint(
    "_explain",
    (("src", None), ("top", "3")),
    "What each feature of a row adds to the score of its prediction, the largest contributions first.",
    judges=True,
    explains=True,
)
#: How much the optimised metric needs each item.
PERMUTATION = Endpoint(
    "_permutation_importance",
    (("src", None), ("repeats", "5")),
    "How much worse the optimised metric is when the values of a feature are shuffled among the rows of each group.",
    judges=True,
    explains=True,
)


class Output(ABC):
    """What a model predicts for a row, computed from the learner's scores.

    In SQL a row's scores are the columns ``__grouplearn_s0``, ... (``n_scores`` of them). In the scorer an output has
    ``width`` numbers, NaN where there is no prediction.
    """

    #: How predictions are judged; the first metric is optimised by default.
    metrics: ClassVar[Family]
    n_scores: int = 1
    #: Columns that tables of predictions always have, before all others.
    shown: tuple[str, ...] = ("prediction",)
    #: The macros of a model.
    endpoints: tuple[Endpoint, ...] = (PREDICT,)
    #: How SQL scores rows by models that are vectors; None if there is no such SQL.
    vectors: VectorSql | None = None
    #: Further numbers of a group in the model table by name: the part of vectors whose values are summed.
    counted: Mapping[str, str] = MappingProxyType({})
    #: Further metrics of EVALUATE by name, weighted means over rows: SQL of a row's value over the columns of ``select`` and the
    #: label ``metric.TARGET``.
    measured: Mapping[str, str] = MappingProxyType({})

    @property
    def views(self) -> tuple[VectorView, ...]:
        """The views of models with such outputs, besides those of every model."""
        return self.vectors.views if self.vectors else ()

    @classmethod
    def of(cls, classes: Sequence[str], label_type: str) -> Output:  # noqa: ARG003 - classes look at them
        """Return the output for a label with ``classes`` of a type."""
        return cls()

    @property
    @abstractmethod
    def width(self) -> int:
        """Least number of values of an output."""

    @property
    def has_threshold(self) -> bool:
        """Whether a probability decides the prediction, so that the macro has a parameter ``threshold``."""
        return False

    @abstractmethod
    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        """Return the output's columns as SQL over the result of ``predict``; ``judged`` as in ``Scored``."""

    def held_out(self, outputs: Sequence[str], threshold: str) -> Sequence[tuple[str, str]]:
        """Return names and SQL of the columns of a prediction over the SQL of its ``outputs``, each NULL without a prediction."""
        del threshold
        return [("prediction", outputs[0])]

    @abstractmethod
    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        """Return the outputs (n, width) for the scores (n, k) of a group with these ``classes``."""

    @abstractmethod
    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        """Return the non-NULL fields of the result of ``predict`` for outputs (n, width)."""

    def fields_above(self, outputs: FloatArray, missing: BoolArray, threshold: Any) -> Mapping[str, pa.Array]:
        """Return ``fields``, where ``has_threshold`` with the threshold of each row (n,)."""
        del threshold
        return self.fields(outputs, missing)

    def onnx(self, graph: OnnxGraph, model: OnnxModel) -> None:  # noqa: ARG002 - some look at it
        """Add the outputs to a graph, where nothing is predicted NaN, an empty text or 0; raises NoForm if it has none."""
        raise NoForm(f"ONNX has no form of {' and '.join(self.shown)} of this learner")

    def steps_ahead(self, definition: Any, relation: str) -> str:  # noqa: ARG002 - forecasts look at them
        """Return the query of the steps after series, see ``horizon.steps_ahead_sql``.

        Raises ValueError, with a reason for users, if the output is no forecast.
        """
        raise ValueError("forecasts nothing")

    def missing(self, outputs: FloatArray) -> BoolArray:
        """Return which rows (n,) have no prediction."""
        missing: BoolArray = np.logical_or.reduce(np.isnan(outputs), axis=1)
        return missing

    def value(self) -> int | None:
        """Return the place in an output of the result of ``predict_value``; None for NULL.

        Raises ValueError, with a reason for users, if the output has no value.
        """
        return None

    def probability(self) -> int | None:
        """Return the place in an output of the result of ``predict_probability``.

        Raises ValueError, with a reason for users, if the output has no probability.
        """
        raise ValueError("is no classifier of two: predict() has what it predicts")


@runtime_checkable
class SelectsRows(Protocol):
    """An output that SQL has a form of."""

    def select(self, scored: Scored) -> str:
        """Return the SELECT of the head, the output's columns and ``model_level`` from rows with scores."""
        ...


def list_array(values: FloatArray, lengths: npt.NDArray[np.int64], missing: BoolArray) -> Any:
    """Return the first ``lengths`` values of each row (n, L) as lists, NULL where ``missing``."""
    kept = np.where(missing, 0, lengths)
    offsets = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
    flat = values[np.arange(values.shape[1]) < kept[:, None]]
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(flat), mask=pa.array(missing) if missing.any() else None
    )
