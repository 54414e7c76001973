"""Units that train in rounds: cells cut by a rule, curves, early stopping, limits of time, checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.runtime_jobs import changed, dataset, job, models, one_group

from grouplearn.data import shard
from grouplearn.learners.contract.control import Interrupted
from grouplearn.models.label import TWO_CLASSES
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.rounds.cells import MOST_CELLS, cells_of
from grouplearn.train.job import Job, UnitResult
from grouplearn.train.results.checkpoints import Checkpointer, Timer
from grouplearn.train.unit import train_unit

SOLVER = {"solver": "coordinate_descent"}


def train(a_job: Job, cancelled: Any = lambda: False) -> UnitResult:
    return train_unit(a_job, Unit(0, 0, tuple(range(len(a_job.configs)))), None, lambda _: None, cancelled)


def rows_of(n: int = 400, **options: Any) -> Job:
    random = np.random.default_rng(2)
    x = random.normal(size=(n, 3))
    y = (x @ [1, -1, 0.5] + random.logistic(size=n) > 0) * 1.0
    split = np.arange(n) % 4 == 0 if options.pop("judged", False) else np.zeros(n)
    data = dataset(x, y, split=split, classes=("false", "true"))
    configs = ({**SOLVER, "l2": 1.0}, {**SOLVER, "l1": 2.0})
    return one_group(data, TWO_CLASSES, configs=configs, epochs=200, **options)


@pytest.mark.parametrize("n_blocks", [0, 1, 2, 63, 64, 65, 1000, 4097])
def test_cells_are_runs_of_blocks_by_their_number_alone(n_blocks: int) -> None:
    cells = cells_of(n_blocks)
    assert len(cells) <= MOST_CELLS
    assert [block for cell in cells for block in range(cell.first, cell.last)] == [*range(n_blocks)]
    assert len({cell.last - cell.first for cell in cells[:-1]}) <= 1


@pytest.mark.parametrize("block_rows", [shard.BLOCK_ROWS, 50, 3])
def test_a_group_of_many_cells_has_curves_that_end_at_its_minimum(block_rows: int) -> None:
    a_job = rows_of(block_rows=block_rows)
    found, usual = train(a_job), train(replace(a_job, configs=({"l2": 1.0}, {"l1": 2.0})))
    for trial, other in zip(found.trials, usual.trials, strict=True):
        assert trial.status == "done"
        assert trial.epochs == len(trial.curve)
        assert trial.curve[-1].train_loss == pytest.approx(other.curve[-1].train_loss, rel=1e-6)
        assert trial.artifact is not None
        assert other.artifact is not None
        np.testing.assert_allclose(
            trial.artifact.tensors["weights"], other.artifact.tensors["weights"], rtol=1e-2, atol=1e-3
        )


def test_what_is_judged_after_each_epoch_trains_to_the_same_bits() -> None:
    """With held-out rows epochs are gone through one at a time, without them many at once."""
    judged = rows_of(judged=True)
    kept = np.flatnonzero(judged.dataset.split == 0)
    data = dataset(judged.dataset.numeric[kept], judged.dataset.y[kept], classes=("false", "true"))
    alone = one_group(data, TWO_CLASSES, configs=judged.configs, epochs=200)
    for trial, other in zip(train(judged).trials, train(alone).trials, strict=True):
        assert all(np.isfinite(point.valid_metric) for point in trial.curve)
        assert [point.train_loss for point in trial.curve] == [point.train_loss for point in other.curve]
        assert trial.artifact is not None
        assert other.artifact is not None
        assert trial.artifact.tensors["weights"].tobytes() == other.artifact.tensors["weights"].tobytes()


def test_patience_ends_training_and_keeps_the_best() -> None:
    stopped = train(rows_of(judged=True, patience=1)).trials
    for trial in stopped:
        values = [point.valid_metric for point in trial.curve]
        assert trial.epochs == 1 + int(np.argmin(values))
        assert trial.valid["log_loss"] == min(values)


def test_a_pack_is_its_configs_and_one_that_breaks_fails_alone() -> None:
    a_job = replace(rows_of(), configs=tuple({**SOLVER, "l2": value} for value in (0.1, 1.0, 10.0)))
    together = models((train(a_job),))
    for number in range(3):
        assert (
            models((train(replace(a_job, configs=a_job.configs[number : number + 1])),))[0][1:] == together[number][1:]
        )


def test_no_epoch_begins_when_time_is_up_and_cancelling_interrupts() -> None:
    assert {trial.status for trial in train(rows_of(deadline=0.0)).trials} == {"stopped"}
    with pytest.raises(Interrupted):
        train(rows_of(), cancelled=lambda: True)


def test_a_pack_goes_on_from_what_was_kept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a_job = changed(rows_of(judged=True), states=str(tmp_path))
    straight = models((train(changed(a_job, states=None)),))
    monkeypatch.setattr(Timer, "due", lambda _: True)
    kept: list[int] = []
    keep = Checkpointer.keep

    def dies(self: Checkpointer, reached: Any) -> None:
        keep(self, reached)
        kept.append(1)
        if len(kept) == 3:
            raise Interrupted

    monkeypatch.setattr(Checkpointer, "keep", dies)
    with pytest.raises(Interrupted):
        train(a_job)
    assert [*tmp_path.iterdir()]
    assert models((train(a_job),)) == straight
    assert len(kept) < 3 + 2 * len(straight[0][6])


def test_labels_that_cannot_be_are_a_failed_trial_with_its_reason() -> None:
    data = dataset([[1.0], [2.0], [3.0]], [1.0, -2.0, 3.0])
    found = train(one_group(data, learner="poisson_regression", configs=(SOLVER,)))
    assert found.trials[0].status == "failed"
    assert "the label is negative in 1 row" in str(found.trials[0].reason)


def test_a_job_of_several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    a_job = job(configs=({**SOLVER, "l2": 0.5},), epochs=200)
    usual = job(configs=({"l2": 0.5},), epochs=200)
    for group in range(4):
        one, other = (
            train_unit(each, Unit(0, group, (0,)), None, lambda _: None, lambda: False) for each in (a_job, usual)
        )
        assert one.trials[0].train["log_loss"] == pytest.approx(other.trials[0].train["log_loss"], rel=1e-5)
