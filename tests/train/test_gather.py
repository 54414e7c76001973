"""Groups trained side by side are the groups trained alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.runtime_jobs import Watcher, changed, job

from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.failures import StatementInterrupted
from grouplearn.learners import registry
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.runtime.local import LocalRuntime
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.task_parallel import GroupTaskParallel
from grouplearn.train.job import Job, UnitResult
from grouplearn.train.results.outcome import merge
from grouplearn.train.rows.prepare_stack import prepare_stacks
from grouplearn.train.rows.sources import dataset_bytes
from grouplearn.train.unit import train_unit

SIZES = (40, 29, 23, 64, 31, 2, 17)
#: Trained to the last digits, so that the weights of flat objectives can be compared, too.
GRID = tuple(
    {**penalties, "tolerance": 1e-13} for penalties in ({"l2": 1.0}, {"l1": 0.5, "l2": 0.0}, {"l1": 0.1, "l2": 0.1})
)


def small_groups(label: Label = TWO_CLASSES) -> Job:
    random = np.random.default_rng(3)
    n = sum(SIZES)
    x = random.normal(size=(n, 3)) * [1.0, 100.0, 0.01] + [0.0, 500.0, 0.0]
    score = x @ [1.0, 0.02, 30.0] + random.normal(size=n)
    y = (score > 10).astype(float) if label == TWO_CLASSES else np.digitize(score, [9.0, 11.0]).astype(float)
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
        ("a", "b", "c")[: 2 + (label != TWO_CLASSES)],
    )
    items = tuple(Item(f"x{column}", "numeric", column) for column in range(3))
    return changed(
        job(groups=1),
        label=label,
        configs=GRID,
        items=items,
        groups=groups,
        dataset=dataset,
        metric="log_loss",
        epochs=200,
    )


UNIT = Unit(0, 0, (0, 1, 2), others=tuple(range(1, len(SIZES))))


def gathered(a_job: Job, unit: Unit = UNIT) -> dict[int, UnitResult]:
    result = train_unit(a_job, unit, None, lambda _: None, lambda: False)
    facts = {group: {group: result.facts[group]} if group in result.facts else {} for group in unit.groups}
    return {group: UnitResult(unit.of(group), result.trials.only(group), facts[group]) for group in unit.groups}


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
        label = TWO_CLASSES if len(theirs.artifact.tensors["intercept"]) == 1 else SEVERAL_CLASSES
        x = PROBE[:, : theirs.artifact.tensors["weights"].shape[1]]
        scores = [
            registry.learner("logistic_regression").score(label, artifact, x)
            for artifact in (ours.artifact, theirs.artifact)
        ]
        np.testing.assert_allclose(*scores, atol=1e-3)
        # Near its minimum the objective is flat: known to 1e-10, it leaves a single metric some 1e-6 of play, and more on
        # rows that it was not trained on.
        for part, play in (("train", 1e-6), ("valid", 1e-3)):
            assert getattr(ours, part) == pytest.approx(getattr(theirs, part), rel=play, abs=2e-6, nan_ok=True)
        assert ours.curve[-1].train_loss == pytest.approx(theirs.curve[-1].train_loss, rel=1e-7)
        assert ours.curve[-1].valid_metric == pytest.approx(ours.valid.get("log_loss", np.nan), nan_ok=True)


@pytest.mark.parametrize("label", [TWO_CLASSES, SEVERAL_CLASSES])
def test_side_by_side_is_alone(label: Label) -> None:
    a_job = small_groups(label)
    results = gathered(a_job)
    assert list(results) == list(range(len(SIZES)))
    for group, together in results.items():
        assert_same(together, alone(a_job, group))


def test_a_fold_is_a_unit_of_its_own() -> None:
    a_job = changed(small_groups(), folds=2)
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
    y[45] = np.inf
    a_job = replace(a_job, dataset=replace(a_job.dataset, y=y))
    results = gathered(a_job)
    assert {trial.reason for trial in results[0].trials} == {"the label is b in all of the group's 34 training rows"}
    assert "NaN or infinite" in (results[1].trials[0].reason or "")
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
    (result,) = LocalRuntime().run(a_job, GroupTaskParallel([UNIT]), 1, watcher, lambda: False)
    assert sorted(set(result.trials.group.tolist())) == list(range(len(SIZES)))
    assert watcher.epochs == result.trials.epochs.sum()
    assert result.loaded == dataset_bytes(a_job.dataset)
    with pytest.raises(StatementInterrupted):
        LocalRuntime().run(a_job, GroupTaskParallel([UNIT]), 1, watcher, lambda: True)


def test_groups_of_another_shape_train_in_a_stack_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One-hot items have one column per category of the group, so widths differ between groups."""
    a_job = small_groups()
    codes = (np.arange(sum(SIZES)) % 3).astype(np.int32)[:, None]
    codes[: SIZES[0]] = 0
    dataset = replace(a_job.dataset, codes=codes, dictionaries=(("p", "q", "r"),))
    a_job = replace(a_job, dataset=dataset, items=(*a_job.items, Item("kind", "category", 0, "onehot")))
    stacks = prepare_stacks(a_job, a_job.groups).stacks
    assert {stack.problem.n_features for stack in stacks} == {4, 5, 6}
    for group, together in gathered(a_job).items():
        assert_same(together, alone(a_job, group))


def test_configs_of_several_packs_stand_in_one_outcome() -> None:
    """Configs that cannot share a state are units of their own; their outcome is one, configs in order."""
    a_job = small_groups()
    whole = train_unit(a_job, UNIT, None, lambda _: None, lambda: False)
    halves = [
        train_unit(a_job, replace(UNIT, id=number, configs=configs), None, lambda _: None, lambda: False)
        for number, configs in enumerate([(0, 2), (1,)])
    ]
    together, joined = (merge(a_job, results) for results in ([whole], halves))
    np.testing.assert_array_equal(joined.best, together.best)
    for one, other in zip(joined.trials, together.trials, strict=True):
        assert (one.config, one.status) == (other.config, other.status)
        assert one.valid == pytest.approx(other.valid, rel=1e-6, abs=1e-7, nan_ok=True)
        if one.artifact is not None and other.artifact is not None:
            weights = (artifact.tensors["weights"] for artifact in (one.artifact, other.artifact))
            np.testing.assert_allclose(*weights, rtol=1e-4, atol=1e-6)


def test_folds_of_small_groups_are_averaged() -> None:
    a_job = changed(small_groups(), folds=2)
    a_job = replace(a_job, dataset=replace(a_job.dataset, split=(np.arange(sum(SIZES)) % 2).astype(np.int16)))
    units = [replace(UNIT, id=number, fold=fold) for number, fold in enumerate((0, 1, -1))]
    results = [train_unit(a_job, unit, None, lambda _: None, lambda: False) for unit in units]
    singles = [alone(a_job, group, unit) for unit in units for group in unit.groups]
    ours, theirs = (merge(a_job, each) for each in (results, singles))
    assert (ours.groups, ours.facts) == (theirs.groups, theirs.facts)
    for one, other in zip(ours.trials, theirs.trials, strict=True):
        assert (one.status, one.reason) == (other.status, other.reason)
        assert one.valid == pytest.approx(other.valid, rel=1e-5, abs=1e-7, nan_ok=True)
