"""The handler of each of our statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.parser.statements import (
    AddTrial,
    Calibrate,
    DescribeLearner,
    DescribeModel,
    DropModel,
    DropRun,
    DropVersion,
    EvaluateModel,
    ExplainRefresh,
    ExplainTrain,
    ExportModel,
    ImportModel,
    RefreshModel,
    RenameModel,
    ResetCalibration,
    ResumeModel,
    RetryFailed,
    SetOption,
    ShowFunctions,
    ShowLearners,
    ShowModels,
    ShowRuns,
    StopTrial,
    TrainModel,
    UseVersion,
)
from grouplearn.statements import models, runs, settings, several, train, versions
from grouplearn.statements import transfer as transferring
from grouplearn.statements.again.explain import explain_refresh
from grouplearn.statements.again.refresh import refresh
from grouplearn.statements.context import StatementContext

#: Each takes the statement, its checker and its context, and returns a SELECT of the result.
HANDLERS: Mapping[type, Callable[[Any, SqlChecker, StatementContext], str]] = {
    TrainModel: several.train,
    ExplainTrain: several.explain,
    ResumeModel: train.resume,
    RetryFailed: train.retry,
    RefreshModel: refresh,
    ExplainRefresh: explain_refresh,
    ShowModels: models.show_models,
    ShowFunctions: models.show_functions,
    ShowLearners: models.show_learners,
    DescribeModel: models.describe_model,
    DescribeLearner: models.describe_learner,
    DropModel: models.drop,
    RenameModel: models.rename,
    StopTrial: models.stop_trial,
    AddTrial: models.add_trial,
    UseVersion: versions.use_version,
    DropVersion: versions.drop_version,
    EvaluateModel: models.evaluate,
    ShowRuns: lambda _, checker, at: runs.show(at, checker),
    DropRun: lambda statement, checker, at: runs.drop(statement, at.databases.current_file(), checker),
    ExportModel: transferring.export_model,
    ImportModel: transferring.import_model,
    Calibrate: settings.calibrate,
    ResetCalibration: settings.reset_calibration,
    SetOption: settings.set_option,
}
