"""Groups trained side by side are the groups trained alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from runtime_jobs import Watcher, job

from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.errors import Cancelled
from grouplearn.learners.base import Task
from grouplearn.learners.logistic_regression import LogisticRegression
from grouplearn.runtime.gather import train_gathered
from grouplearn.runtime.job import Job, UnitResult
from grouplearn.runtime.local import LocalRuntime
from grouplearn.runtime.rows import dataset_bytes
from grouplearn.runtime.unit import train_unit
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.task_parallel import operator

SIZES = (40, 29, 23, 64, 31, 2, 17)
#: Trained to the last digits, so that the weights of flat objectives can be compared, too.
GRID = tuple(
    {**penalties, "tolerance": 1e-13} for penalties in ({"l2": 1.0}, {"l1": 0.5, "l2": 0.0}, {"l1": 0.1, "l2": 0.1})
)


def small_groups(task: Task = Task.BINARY) -> Job:
    random = np.random.default_rng(3)
    n = sum(SIZES)
    x = random.normal(size=(n, 3)) * [1.0, 100.0, 0.01] + [0.0, 500.0, 0.0]
    score = x @ [1.0, 0.02, 30.0] + random.normal(size=n)
    y = (score > 10).astype(float) if task is Task.BINARY else np.digitize(score, [9.0, 11.0]).astype(float)
    ends = np.cumsum(SIZES).tolist()
    groups = tuple(
        Group(g, 0, (str(g),), ((end - size, end),)) for g, (size, end) in enumerate(zip(SIZES, ends, strict=True))
    )
    split = np.zeros(n, dtype=np.int16)
    split[::7] = 1
    dataset = Dataset(
        x,
        np.empty((n, 0), dtype=np.int32),
        y,
        random.uniform(0.5, 2, n),
        split,
        (),
        ("a", "b", "c")[: 2 + (task is not Task.BINARY)],
    )
    items = tuple(Item(f"x{column}", "numeric", column) for column in range(3))
    return replace(
        job(groups=1),
        task=task,
        configs=GRID,
        items=items,
        groups=groups,
        dataset=dataset,
        metric="log_loss",
        epochs=200,
    )


UNIT = Unit(0, 0, (0, 1, 2), others=tuple(range(1, len(SIZES))))


def gathered(a_job: Job, unit: Unit = UNIT) -> dict[int, UnitResult]:
    result = train_gathered(a_job, unit, lambda _: None, lambda: False)
    return {part.unit.group: part for part in result.parts}


def alone(a_job: Job, group: int, unit: Unit = UNIT) -> UnitResult:
    return train_unit(a_job, unit.of(group), None, lambda _: None, lambda: False)


PROBE = np.random.default_rng(1).normal(size=(50, 6)) * [1.0, 100.0, 0.01, 1, 1, 1] + [0.0, 500.0, 0.0, 0, 0, 0]


def assert_same(together: UnitResult, single: UnitResult) -> None:
    assert together.unit == single.unit
    assert together.facts == single.facts
    for ours, theirs in zip(together.trials, single.trials, strict=True):
        assert (ours.config, ours.status, ours.reason) == (theirs.config, theirs.status, theirs.reason)
        if theirs.artifact is None:
            continue
        task = Task.BINARY if len(theirs.artifact.tensors["intercept"]) == 1 else Task.MULTICLASS
        x = PROBE[:, : theirs.artifact.tensors["weights"].shape[1]]
        scores = [LogisticRegression().score(task, artifact, x) for artifact in (ours.artifact, theirs.artifact)]
        np.testing.assert_allclose(*scores, atol=1e-3)
        for metrics in ("train", "valid"):
            # Near its minimum the objective is flat: known to 1e-13, it leaves a single metric some 1e-7 of play.
            assert getattr(ours, metrics) == pytest.approx(getattr(theirs, metrics), rel=1e-6, abs=1e-7, nan_ok=True)
        assert ours.curve[-1].train_loss == pytest.approx(theirs.curve[-1].train_loss, rel=1e-9)
        assert ours.curve[-1].valid_metric == pytest.approx(theirs.valid.get("log_loss", np.nan), nan_ok=True)


@pytest.mark.parametrize("task", [Task.BINARY, Task.MULTICLASS])
def test_side_by_side_is_alone(task: Task) -> None:
    a_job = small_groups(task)
    results = gathered(a_job)
    assert list(results) == list(range(len(SIZES)))
    for group, together in results.items():
        assert_same(together, alone(a_job, group))


def test_a_fold_is_a_unit_of_its_own() -> None:
    a_job = replace(small_groups(), folds=2)
    a_job = replace(a_job, dataset=replace(a_job.dataset, split=(np.arange(sum(SIZES)) % 2).astype(np.int16)))
    unit = replace(UNIT, fold=1)
    for group, together in gathered(a_job, unit).items():
        single = alone(a_job, group, unit)
        assert [trial.valid for trial in together.trials] == [
            pytest.approx(trial.valid, rel=1e-6, abs=1e-9, nan_ok=True) for trial in single.trials
        ]


def test_a_bad_group_fails_alone_with_its_own_reason() -> None:
    a_job = small_groups()
    y = a_job.dataset.y.copy()
    y[:40] = 1.0
    y[45] = np.nan
    a_job = replace(a_job, dataset=replace(a_job.dataset, y=y))
    results = gathered(a_job)
    assert {trial.reason for trial in results[0].trials} == {"the label is b in all of the group's 34 training rows"}
    assert "not finite" in (results[1].trials[0].reason or "")
    assert {trial.status for trial in results[3].trials} == {"done"}


def test_a_group_that_breaks_the_stack_leaves_the_others_untouched() -> None:
    a_job = small_groups()
    numeric = a_job.dataset.numeric.copy()
    numeric[1, 0] = 1e300
    a_job = replace(a_job, dataset=replace(a_job.dataset, numeric=numeric))
    results = gathered(a_job)
    for group, together in results.items():
        assert_same(together, alone(a_job, group))
    assert results[0].trials[0].status == "failed"
    assert results[3].trials[0].status == "done"


def test_a_run_tells_of_every_group_and_can_be_cancelled() -> None:
    a_job, watcher = small_groups(), Watcher()
    results = LocalRuntime().run(a_job, operator("group_task_parallel", [UNIT]), 1, watcher, lambda: False)
    assert [result.unit.group for result in results] == list(range(len(SIZES)))
    assert all(result.unit.others == () for result in results)
    assert [result.loaded > 0 for result in results] == [True] + [False] * (len(SIZES) - 1)
    assert results[0].loaded == dataset_bytes(a_job.dataset)
    with pytest.raises(Cancelled):
        LocalRuntime().run(a_job, operator("group_task_parallel", [UNIT]), 1, watcher, lambda: True)


def test_groups_of_another_shape_train_in_a_stack_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One-hot items have one column per category of the group, so widths differ between groups."""
    a_job = small_groups()
    codes = (np.arange(sum(SIZES)) % 3).astype(np.int32)[:, None]
    codes[: SIZES[0]] = 0
    dataset = replace(a_job.dataset, codes=codes, dictionaries=(("p", "q", "r"),))
    a_job = replace(a_job, dataset=dataset, items=(*a_job.items, Item("kind", "category", 0, "onehot")))
    widths: list[int] = []
    init = LogisticRegression.init
    monkeypatch.setattr(
        LogisticRegression,
        "init",
        lambda self, problem, configs: widths.append(problem.n_features) or init(self, problem, configs),
    )
    results = gathered(a_job)
    assert set(widths) == {4, 5, 6}
    monkeypatch.undo()
    for group, together in results.items():
        assert_same(together, alone(a_job, group))
