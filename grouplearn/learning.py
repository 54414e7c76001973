"""What learners of packages and users import: stable, other paths are no API. See docs/how-to/models/own-learner.md."""

from __future__ import annotations

from grouplearn.data.encoding.encoder import OnnxGraph
from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack, StoredShard, Totals
from grouplearn.learners.contract.config import Config, Conflict, Hyperparameter, Value, solver_named
from grouplearn.learners.contract.control import Boosted, Diverged, Gang, Interrupted, Stop
from grouplearn.learners.contract.cost import BatchCost, Coefficients, Cost
from grouplearn.learners.contract.learner import Declaration, Form, Learner, Vector, VectorLearner
from grouplearn.learners.contract.optional import (
    ChecksManyModels,
    ExplainsTraining,
    GrowsTrees,
    HasImportance,
    HasLossMetric,
    HasObjectives,
    HasOutput,
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
from grouplearn.models.label import LABELLED, NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.metrics.metric import TARGET
from grouplearn.models.outputs.link import Link
from grouplearn.models.outputs.onnx import OnnxModel
from grouplearn.models.outputs.output import BoolArray, Output, Scored, list_array
from grouplearn.models.outputs.vectors import FEATURES, VectorSql, VectorView
from grouplearn.models.state import Artifact, State, Tensors, has_tensors_of, shape_flaw

__all__ = [
    "FEATURES", "LABELLED", "NUMBER", "SEVERAL_CLASSES", "TARGET", "TWO_CLASSES", "AlgebraicLearner", "Artifact",
    "AveragingLearner", "BatchCost", "BatchesLearner", "BoolArray", "Boosted", "ChecksManyModels", "Coefficients", "Config",
    "Conflict", "Cost", "DataParallelLearner", "Declaration", "Diverged", "ExplainsTraining", "FeatureBlock", "FloatArray",
    "Form", "Gang", "GrowsTrees", "HasImportance", "HasLossMetric", "HasObjectives", "HasOutput", "Hyperparameter",
    "Interrupted", "IsMadeOfFunctions", "JoinsClasses", "Label", "Learner", "Link", "Matrix", "NeedsWholeGroups",
    "NotesConstantModels", "OnnxGraph", "OnnxModel", "Output", "Piece", "Problem", "ProvesConvergence", "RefusesConfigs",
    "Requirement", "SamplingLearner", "Scored", "ScoresRuns", "SequentialLearner", "Shard", "Stack", "StackLearner", "State",
    "Stop", "StoredShard", "Tensors", "Totals", "Value", "Vector", "VectorLearner", "VectorSql", "VectorView", "Visit",
    "has_tensors_of", "list_array", "shape_flaw", "solver_named",
]  # fmt: skip
