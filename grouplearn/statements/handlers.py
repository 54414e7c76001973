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
    EvaluateModel,
    ExplainTrain,
    ExportModel,
    ImportModel,
    RenameModel,
    ResetCalibration,
    ResumeModel,
    RetryFailed,
    SetOption,
    ShowLearners,
    ShowModels,
    ShowRuns,
    StopTrial,
    TrainModel,
)
from grouplearn.statements import models, settings, several, train
from grouplearn.statements import resume as resuming
from grouplearn.statements import transfer as transferring
from grouplearn.statements.context import StatementContext

#: Each takes the statement, its checker and its context, and returns a SELECT of the result.
HANDLERS: Mapping[type, Callable[[Any, SqlChecker, StatementContext], str]] = {
    TrainModel: several.train,
    ExplainTrain: several.explain,
    ResumeModel: train.resume,
    RetryFailed: train.retry,
    ShowModels: models.show_models,
    ShowLearners: models.show_learners,
    DescribeModel: models.describe_model,
    DescribeLearner: models.describe_learner,
    DropModel: models.drop,
    RenameModel: models.rename,
    StopTrial: models.stop_trial,
    AddTrial: models.add_trial,
    EvaluateModel: models.evaluate,
    ShowRuns: lambda _, checker, at: resuming.show(at, checker),
    DropRun: lambda statement, checker, at: resuming.drop(statement, at.databases.current_file(), checker),
    ExportModel: transferring.export_model,
    ImportModel: transferring.import_model,
    Calibrate: settings.calibrate,
    ResetCalibration: settings.reset_calibration,
    SetOption: settings.set_option,
}
