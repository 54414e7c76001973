"""Which function carries out which of our statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from grouplearn import resuming, transferring
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
from grouplearn.plan.judge import Judge
from grouplearn.statements import models, settings, train
from grouplearn.workplace import Workplace

#: Each takes the statement and where it is carried out, and returns a SELECT whose rows are its result.
HANDLERS: Mapping[type, Callable[[Any, Judge, Workplace], str]] = {
    TrainModel: train.train,
    ExplainTrain: train.explain,
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
    ShowRuns: lambda _, judge, at: resuming.show(at, judge),
    DropRun: lambda statement, judge, at: resuming.drop(statement, at.databases.current_file(), judge),
    ExportModel: transferring.export_model,
    ImportModel: transferring.import_model,
    Calibrate: settings.calibrate,
    ResetCalibration: settings.reset_calibration,
    SetOption: settings.set_option,
}
