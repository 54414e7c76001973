"""What learners of packages and users import: stable, other paths are no API. See docs/how-to/models/own-learner.md."""

from __future__ import annotations

from grouplearn.data.encoding.encoder import OnnxGraph
from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack, StoredShard, Totals
from grouplearn.learners.contract.config import Config, Conflict, Hyperparameter, Value, solver_named
from grouplearn.learners.contract.control import Boosted, Diverged, Gang, Interrupted, Stop
from grouplearn.learners.contract.cost import BatchCost, Coefficients, Cost
from grouplearn.learners.contract.learner import Declaration, Learner, Vector, VectorLearner
from grouplearn.learners.contract.optional import (
    ChecksManyModels,
    ExplainsTraining,
    GrowsTrees,
    HasImportance,
    HasLossMetric,
    HasObjectives,
    IsMadeOfFunctions,
    JoinsClasses,
    NeedsWholeGroups,
    NotesConstantModels,
    ProvesConvergence,
    RefusesConfigs,
    ScoresRuns,
)
from grouplearn.learners.contract.problem import FeatureBlock, Problem
from grouplearn.learners.contract.requirement import Requirement
from grouplearn.learners.contract.stacks import StackLearner
from grouplearn.learners.contract.ways import (
    AlgebraicLearner,
    AveragingLearner,
    BatchesLearner,
    DataParallelLearner,
    Piece,
    SamplingLearner,
    SequentialLearner,
    Visit,
)
from grouplearn.models.forms.form import Form
from grouplearn.models.label import LABELLED, NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.metrics.classes import CLASSES
from grouplearn.models.metrics.metric import (
    TARGET,
    Asked,
    Family,
    Judged,
    Metric,
    MetricSums,
    Scores,
    mean_of,
    summed,
)
from grouplearn.models.metrics.values import VALUES
from grouplearn.models.outputs.link import Link
from grouplearn.models.outputs.onnx_model import OnnxModel
from grouplearn.models.outputs.output import PREDICT, BoolArray, Endpoint, Output, Scored, list_array
from grouplearn.models.outputs.vectors import FEATURES, VectorSql, VectorView
from grouplearn.models.state import Artifact, State, Tensors, has_tensors_of, shape_flaw

__all__ = [
    "CLASSES", "FEATURES", "LABELLED", "NUMBER", "PREDICT", "SEVERAL_CLASSES", "TARGET", "TWO_CLASSES", "VALUES",
    "AlgebraicLearner", "Artifact", "Asked", "AveragingLearner", "BatchCost", "BatchesLearner", "BoolArray", "Boosted",
    "ChecksManyModels", "Coefficients", "Config", "Conflict", "Cost", "DataParallelLearner", "Declaration", "Diverged",
    "Endpoint", "ExplainsTraining", "Family", "FeatureBlock", "FloatArray", "Form", "Gang", "GrowsTrees", "HasImportance",
    "HasLossMetric", "HasObjectives", "Hyperparameter", "Interrupted", "IsMadeOfFunctions", "JoinsClasses", "Judged", "Label",
    "Learner", "Link", "Matrix", "Metric", "MetricSums", "NeedsWholeGroups", "NotesConstantModels", "OnnxGraph", "OnnxModel",
    "Output", "Piece", "Problem", "ProvesConvergence", "RefusesConfigs", "Requirement", "SamplingLearner", "Scored", "Scores",
    "ScoresRuns", "SequentialLearner", "Shard", "Stack", "StackLearner", "State", "Stop", "StoredShard", "Tensors", "Totals",
    "Value", "Vector", "VectorLearner", "VectorSql", "VectorView", "Visit", "has_tensors_of", "list_array", "mean_of",
    "shape_flaw", "solver_named", "summed",
]  # fmt: skip
