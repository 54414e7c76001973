"""A form: what a finished model consists of, and how it predicts in SQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from grouplearn.data.encoding.encoder import FittedItem, NoForm, OnnxGraph
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.data.shard import Matrix
from grouplearn.kernels.scoring import LANES, LinearModels
from grouplearn.kernels.scoring import Link as KernelLink
from grouplearn.kernels.trees import Forests
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.calibration import Calibration
from grouplearn.models.definition import ROW, ModelDefinition
from grouplearn.models.forms.routed import GROUP, SHOWN, Extra, PredictedRows, threshold_sql
from grouplearn.models.outputs.link import Link
from grouplearn.models.outputs.output import SelectsRows
from grouplearn.models.state import Artifact, FloatArray
from grouplearn.sqltext import identifier, literal

#: Why only linear models have SQL for lists.
OF_LISTS = "it takes lists, and only linear models of lists have SQL"
#: A flaw in words, and an aggregate over the model's rows of a table that is true if they do not have it.
Checks = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupModel:
    """A group's predicting model: its encoders, its classes, the artifact, the number of its config, and the threshold."""

    id: int
    level: int
    keys: tuple[str | None, ...]
    fitted: tuple[FittedItem, ...]
    classes: tuple[int, ...]
    artifact: Artifact
    config: int
    threshold: float = 0.5
    calibration: Calibration | None = None


@dataclass(frozen=True, slots=True)
class Best:
    """The best model of a group."""

    group: int
    fitted: Sequence[FittedItem]
    artifact: Artifact


IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Contributions:
    """What each of M items adds to the score of rows: ``added`` (n, M) to the ``baseline`` (n,), by a method."""

    added: FloatArray
    baseline: FloatArray
    method: str


class SqlForm(ABC):
    """How a model's macro predicts."""

    #: The catalog tables that the macro reads.
    tables: tuple[str, ...] = ()
    #: Why it predicts by the function ``predict``; the empty text if it predicts in plain SQL.
    reason: str = ""
    #: Plain SQL takes many times as long as the function.
    is_slow: bool = False

    @property
    def described(self) -> str:
        """The text of DESCRIBE MODEL."""
        return f"function predict: {self.reason}" if self.reason else "SQL"

    @abstractmethod
    def select(self, rows: PredictedRows) -> str:
        """Return the SELECT of rows with the output's columns and ``model_level``."""

    def explained(self, rows: PredictedRows) -> str | None:  # noqa: ARG002 - some have it
        """Return the query of what each item adds to the score of each row; None if only our function knows it."""
        return None


@dataclass(frozen=True, slots=True)
class FunctionSql(SqlForm):
    """By the function ``predict``."""

    reason: str

    def select(self, rows: PredictedRows) -> str:
        """Return the SELECT that calls the function for each row."""
        return function_select(rows.definition, f"predict({literal(rows.model)}, {ROW})", rows.relation, rows.extras)


def function_select(definition: ModelDefinition, call: str, relation: str, extras: Sequence[Extra] = ()) -> str:
    """Return the SELECT that predicts the rows of ``relation`` through a function; ``call`` is its call for one row."""
    columns = ", ".join([f"{ROW}.*", *(f"({extra.sql}\n) AS {identifier(extra.name)}" for extra in extras)])
    inner = f"SELECT {columns}, {call} AS __grouplearn_p FROM {relation} AS {ROW}"
    predicted = "__grouplearn_p"
    shown = definition.output.columns(predicted, threshold_sql(definition, extras), judged=bool(extras))
    if definition.threshold_metric:  # without a threshold given, the function knows that of the group
        by_given, *others = shown
        own = f"CAST({predicted}.prediction AS {definition.label_type})"
        shown = [f"coalesce({by_given.removesuffix(' AS prediction')}, {own}) AS prediction", *others]
    head = [f"{predicted}.group_id AS {GROUP}", *(identifier(extra.name) for extra in extras)] if extras else [SHOWN]
    return f"SELECT {', '.join([*head, *shown])}, {predicted}.model_level AS model_level FROM ({inner})"


@dataclass(frozen=True, slots=True)
class Prediction:
    """How a model's macro predicts, and the model's rows of the catalog tables that it reads."""

    form: SqlForm
    tables: tuple[tuple[str, Any], ...] = ()


class StoredRows(Protocol):
    """The rows of a stored model in the catalog."""

    def greatest(self, name: str, limits: Mapping[str, tuple[int, int]]) -> list[int]:
        """Return the greatest of some numbers of a table, nothing if it has no row of the model.

        Raises DataError if one is outside its limits: a macro has a step for each, and no model that we store exceeds them.
        """
        ...

    def first(self, name: str, expression: str) -> Any:
        """Return an aggregate over the rows of a table."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each item begins in a row's line: numbers, padded to multiples of ``LANES``, then categories."""

    starts: tuple[int, ...]
    n_numbers: int
    width: int

    @classmethod
    def of(cls, definition: ModelDefinition) -> Layout:
        """Return the layout: numeric items in order, ordinal places and arrays, then one-hot and hashed items."""
        items = [entry.item for entry in definition.items]
        later = [number for number, item in enumerate(items) if encoder_of(item).role == "indicator"]
        numeric = [number for number, item in enumerate(items) if item.kind == "numeric"]
        between = [number for number in range(len(items)) if number not in {*later, *numeric}]
        starts, at = [0] * len(items), 0
        for number in (*numeric, *between):
            starts[number] = at
            at += items[number].buckets if items[number].kind == "array" else 1
        n_numbers = -(-at // LANES) * LANES
        for place, number in enumerate(later):
            starts[number] = n_numbers + place
        return cls(tuple(starts), n_numbers, n_numbers + len(later))


class Form:
    """What a finished model consists of; this one has no SQL."""

    #: ``Learner.form``.
    name: ClassVar[str]
    #: The catalog tables that SQL reads it from; ``sql/catalog`` has their DDL.
    tables: ClassVar[tuple[str, ...]] = ()
    #: What an artifact of it is.
    artifact: ClassVar[Literal["tensors", "lightgbm"]] = "tensors"
    #: Learners of packages and users may have it, which a session may not have registered.
    of_any_learner: ClassVar[bool] = False
    #: Rows with a missing feature have a prediction.
    handles_missing: ClassVar[bool] = False
    #: Models are one weight per feature column and output, and an intercept, which are stored as numbers.
    has_one_weight_per_column: ClassVar[bool] = False
    #: Rows are explained by what features were like in training, and not in SQL.
    explains_by_means: ClassVar[bool] = True
    #: A model in training has numbers for each feature column, and may not fit into memory.
    grows_with_columns: ClassVar[bool] = False

    def learner_error(self, learner: Learner) -> str | None:
        """Return what a learner lacks whose models are of this form; None if nothing."""
        del learner
        return None

    def misfit(self, learner: Learner, problem: Problem, artifact: Artifact) -> str | None:
        """Return why a newly finished model is not of this form; None if it is."""
        return learner.validation_error(problem, artifact)

    def prediction(self, definition: ModelDefinition, best: Sequence[Best]) -> Prediction:
        """Return how a model will predict whose groups have these best models."""
        del best
        return Prediction(FunctionSql(self.without_sql(definition)))

    def stored(self, definition: ModelDefinition, rows: StoredRows) -> SqlForm:
        """Return how a stored model predicts."""
        del rows
        return FunctionSql(self.without_sql(definition))

    def without_sql(self, definition: ModelDefinition) -> str:
        """Return why models of a definition have no SQL, the empty text if they may have."""
        return f"SQL has no form of {definition.shown_learner}"

    def checks(self, definition: ModelDefinition) -> Mapping[str, Checks]:  # noqa: ARG002 - some look at it
        """Return what rows of each of ``tables`` must fulfil."""
        return {}

    def compiled(
        self, definition: ModelDefinition, groups: Sequence[GroupModel], layout: Layout
    ) -> tuple[LinearModels | Forests, KernelLink] | None:
        """Return the models of all groups for the scoring kernels, None if these have no such models."""
        del definition, groups, layout
        return None

    def contributions(
        self, definition: ModelDefinition, group: GroupModel, x: Matrix, chosen: IntArray, item: IntArray
    ) -> Contributions | None:
        """Return what each item adds to the ``chosen`` score (n,) of rows (n, d) of a group; None if only scores can tell.

        ``item`` (d,) says to which item a column belongs.
        """
        del definition, group, x, chosen, item
        return None

    def raw_scores(self, group: GroupModel, x: FloatArray) -> FloatArray | None:
        """Return the scores (n, K) of rows (n, d) before the link; None if only predictions are known."""
        del group, x
        return None

    def without_onnx(self, definition: ModelDefinition) -> str | None:
        """Return why a model has no ONNX graph, None if it has."""
        return "it predicts arrays" if definition.label_length else None

    def link(self, definition: ModelDefinition, group: GroupModel) -> Link:
        """Return the link of the scores of a group's model."""
        own = definition.configs[group.config : group.config + 1]
        return min(registry.links(definition.learner, own, definition.label))

    def onnx_scores(self, graph: OnnxGraph, definition: ModelDefinition, group: GroupModel, x: str) -> str:
        """Add the scores (rows, k) of a group's model for features ``x``; raises NoForm if it has none."""
        del graph, group, x
        raise NoForm(f"ONNX has no scores of {definition.shown_learner}")


class FormWithSql(Form, ABC):
    """A form whose models predict in SQL, unless their output, their items or their size forbid it."""

    #: Configurations whose scores have different links may be in one model.
    mixes_links: ClassVar[bool] = False

    def prediction(self, definition: ModelDefinition, best: Sequence[Best]) -> Prediction:
        """Return how a model will predict whose groups have these best models."""
        reason = self.without_sql(definition)
        return Prediction(FunctionSql(reason)) if reason else self.rows(definition, best)

    def stored(self, definition: ModelDefinition, rows: StoredRows) -> SqlForm:
        """Return how a stored model predicts."""
        reason = self.without_sql(definition)
        return FunctionSql(reason) if reason else self.read(definition, rows)

    def without_sql(self, definition: ModelDefinition) -> str:
        """Return why models of a definition have no SQL, the empty text if they may have."""
        if not isinstance(definition.output, SelectsRows):
            named = " and ".join(definition.output.shown)
            return "it predicts arrays" if definition.label_length else f"SQL has no form of {named}"
        if not self.mixes_links and len(registry.links(definition.learner, definition.configs, definition.label)) > 1:
            return "its configurations have objectives on different scales"
        return OF_LISTS if takes_lists(definition) else ""

    @abstractmethod
    def rows(self, definition: ModelDefinition, best: Sequence[Best]) -> Prediction:
        """Return ``prediction`` of models that may have SQL."""

    @abstractmethod
    def read(self, definition: ModelDefinition, rows: StoredRows) -> SqlForm:
        """Return ``stored`` of a model that may have SQL."""


def takes_lists(definition: ModelDefinition) -> bool:
    """Return whether any item is a list."""
    return any(entry.item.is_list for entry in definition.items)


def affine(graph: OnnxGraph, x: str, weights: Any, bias: Any) -> str:
    """Add ``x @ weights.T + bias``."""
    product = graph.add("MatMul", x, graph.constant(np.ascontiguousarray(weights.T, dtype=np.float64)))
    return graph.add("Add", product, graph.constant(np.asarray(bias, dtype=np.float64)[None]))


def every(condition: str) -> str:
    """Return the check that a condition holds in each row."""
    return f"bool_and(coalesce({condition}, false))"


def once(*columns: str) -> str:
    """Return the check that no two rows have the same values."""
    return f"count(*) = count(DISTINCT ({', '.join(columns)}))"
