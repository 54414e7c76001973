"""Groups of k-means and PCA trained side by side are, bit for bit, the groups trained alone; so are packs of some configs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.runtime_jobs import changed
from test_gather import SIZES, UNIT, alone, gathered, small_groups

from grouplearn.data.files.plain_values import from_bytes, to_bytes
from grouplearn.models.label import CLUSTERING, PROJECTION
from grouplearn.train.job import Job, UnitResult
from grouplearn.train.results.ledger import RESULT_KINDS
from grouplearn.train.results.outcome import merge
from grouplearn.train.results.result_checks import is_sound
from grouplearn.train.results.trials import TrialResult
from grouplearn.train.unit import train_unit

CASES = {
    "kmeans": (CLUSTERING, "inertia", tuple({"k": k, "n_init": 2, "tolerance": 1e-4} for k in (2, 3, 5))),
    "pca": (PROJECTION, "explained_variance", tuple({"n_components": each} for each in (None, 1, 2))),
}


@pytest.fixture(params=CASES)
def a_job(request: pytest.FixtureRequest) -> Job:
    """A job one of whose groups is of one row in training, another of equal rows, a third of rows whose distances overflow."""
    label, metric, configs = CASES[request.param]
    whole = small_groups()
    numeric, ends = whole.dataset.numeric.copy(), np.cumsum(SIZES)
    numeric[ends[1] : ends[2]] = 3.0
    numeric[ends[3] : ends[3] + 2] = [[1e200] * 3, [-1.7e308] * 3]
    dataset = replace(whole.dataset, numeric=numeric, classes=())
    return changed(whole, learner=request.param, label=label, configs=configs, metric=metric, dataset=dataset)


def same(one: TrialResult, other: TrialResult) -> None:
    assert (one.config, one.status, one.reason) == (other.config, other.status, other.reason)
    if one.artifact is None or other.artifact is None:
        assert one.artifact is other.artifact
        return
    assert one.artifact.tensors.keys() == other.artifact.tensors.keys()
    for name, tensor in one.artifact.tensors.items():
        beside = other.artifact.tensors[name]
        assert (tensor.shape, tensor.tobytes()) == (beside.shape, beside.tobytes())
    assert (dict(one.train), dict(one.valid)) == (dict(other.train), dict(other.valid))
    assert (one.epochs, one.converged) == (other.epochs, other.converged)
    np.testing.assert_allclose(
        [point.train_loss for point in one.curve], [point.train_loss for point in other.curve], rtol=1e-13, atol=1e-290
    )


def test_side_by_side_is_alone(a_job: Job) -> None:
    results = gathered(a_job)
    statuses = set()
    for group, together in results.items():
        single = alone(a_job, group)
        assert together.facts == single.facts
        for one, other in zip(together.trials, single.trials, strict=True):
            same(one, other)
            statuses.add(one.status)
    assert statuses == {"done", "failed"}


def test_configs_of_several_packs_stand_in_one_outcome(a_job: Job) -> None:
    whole = train_unit(a_job, UNIT, None, lambda _: None, lambda: False)
    parts = [
        train_unit(a_job, replace(UNIT, id=number, configs=configs), None, lambda _: None, lambda: False)
        for number, configs in enumerate([(0, 2), (1,)])
    ]
    together, joined = (merge(a_job, results) for results in ([whole], parts))
    np.testing.assert_array_equal(joined.best, together.best)
    for one, other in zip(joined.trials, together.trials, strict=True):
        same(one, other)
    models = {group.id: artifact for group, _, artifact in together.best_models()}
    for group, config in zip(together.groups, together.best.tolist(), strict=True):
        best = next((trial for trial in together.trials.only(group.id) if trial.config == config), None)
        assert (best is None) == (group.id not in models)
        if best is not None and best.artifact is not None:
            for name, tensor in best.artifact.tensors.items():
                assert models[group.id].tensors[name].tobytes() == tensor.tobytes()


def test_results_come_back_from_bytes_and_damaged_ones_do_not(a_job: Job) -> None:
    result = train_unit(a_job, UNIT, None, lambda _: None, lambda: False)
    read = from_bytes(to_bytes(result), RESULT_KINDS)
    assert isinstance(read, UnitResult)
    assert is_sound(a_job, read)
    models, *others = read.trials.models
    for flawed in (
        replace(models, tensors={name: each.part(0, len(each) - 1) for name, each in models.tensors.items()}),
        replace(models, tensors={name: each.none(len(each)) for name, each in models.tensors.items()}),
        replace(models, places=models.places + len(read.trials)),
    ):
        assert not is_sound(a_job, replace(read, trials=replace(read.trials, models=(flawed, *others))))
    for name in ("group", "config", "status", "train", "seconds"):
        short = replace(read.trials, **{name: getattr(read.trials, name)[1:]})
        assert not is_sound(a_job, replace(read, trials=short)), name
