"""Groups of a sequential learner that train side by side are the groups trained alone, to the last bit where batches are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runtime_jobs import Watcher, dataset, models

from grouplearn.data.dataset import Group, Item
from grouplearn.learners.base import Config, Interrupted, Task
from grouplearn.learners.mlp import Mlp
from grouplearn.runtime import abreast
from grouplearn.runtime.gather import train_gathered
from grouplearn.runtime.job import Job, UnitResult
from grouplearn.runtime.local import LocalRuntime
from grouplearn.runtime.outcome import merge
from grouplearn.runtime.unit import failed_unit, train_unit
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.task_parallel import GroupTaskParallel

#: In batches of 8: one row, part of a batch, whole batches, a batch and a row.
SIZES = (30, 3, 80, 41, 64, 12, 17)
GRID: tuple[Config, ...] = (
    {"learning_rate": 0.02, "batch_size": 8, "hidden_layers": (6,)},
    {"learning_rate": 0.005, "batch_size": 8, "hidden_layers": (6,), "l2": 2.0, "dropout": 0.2},
    {"learning_rate": 0.3, "batch_size": 8, "hidden_layers": (6,), "l1": 0.1},
)
UNIT = Unit(5, 0, (0, 1, 2), others=tuple(range(1, len(SIZES))))


def some_groups(task: Task = Task.BINARY, **options: Any) -> Job:
    random = np.random.default_rng(2)
    n = sum(SIZES)
    x = random.normal(size=(n, 4))
    score = x[:, 0] * x[:, 1] + random.normal(size=n)
    y = {
        Task.REGRESSION: 50 + 7 * score,
        Task.BINARY: (score > 0).astype(float),
        Task.MULTICLASS: np.digitize(score, [-0.5, 0.5]).astype(float),
    }[task]
    ends = np.cumsum(SIZES).tolist()
    names = {Task.REGRESSION: (), Task.BINARY: ("a", "b"), Task.MULTICLASS: ("a", "b", "c")}[task]
    return Job(
        learner="mlp",
        task=task,
        configs=GRID,
        items=tuple(Item(f"x{column}", "numeric", column, "zscore") for column in range(4)),
        groups=tuple(Group(g, 0, (str(g),), ((end - size, end),)) for g, (size, end) in enumerate(zip(SIZES, ends, strict=True))),
        dataset=dataset(x, y, weight=random.uniform(0.5, 2, n), split=np.arange(n) % 5 == 4, classes=names),
        metric="rmse" if task is Task.REGRESSION else "log_loss",
        seed=3,
        epochs=4,
    )  # fmt: skip


def configured(a_job: Job, **values: Any) -> Job:
    return replace(a_job, configs=tuple({**config, **values} for config in a_job.configs))


def together(a_job: Job, unit: Unit = UNIT) -> tuple[UnitResult, ...]:
    result = train_gathered(a_job, unit, lambda _: None, lambda: False)
    assert result.trials == ()
    assert [part.unit for part in result.parts] == [unit.of(group) for group in unit.groups]
    return result.parts


def alone(a_job: Job, unit: Unit = UNIT) -> tuple[UnitResult, ...]:
    return tuple(train_unit(a_job, unit.of(group), None, lambda _: None, lambda: False) for group in unit.groups)


def assert_close(ours: Sequence[UnitResult], theirs: Sequence[UnitResult], tolerance: float) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        for one, another in zip(mine.trials, other.trials, strict=True):
            assert (one.config, one.status, one.epochs) == (another.config, another.status, another.epochs)
            if one.artifact is None or another.artifact is None:
                assert one.reason == another.reason != ""
                continue
            for name, value in another.artifact.tensors.items():
                scale = max(1.0, float(np.abs(value).max()))
                np.testing.assert_allclose(one.artifact.tensors[name], value, rtol=0, atol=tolerance * scale)
            assert one.valid == pytest.approx(another.valid, rel=100 * tolerance, abs=100 * tolerance, nan_ok=True)


@pytest.fixture
def never_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> UnitResult:
        raise AssertionError("a group trains alone")

    monkeypatch.setattr(abreast, "train_unit", refuse)


VARIANTS: dict[str, dict[str, Any]] = {
    "adam": {},
    "sgd": {"configs": tuple({**config, "optimizer": "sgd", "momentum": 0.5} for config in GRID)},
    "deep": {"configs": tuple({**config, "hidden_layers": (5, 3), "activation": "gelu"} for config in GRID)},
    "linear": {"configs": tuple({**config, "hidden_layers": None} for config in GRID)},
    "double": {"configs": tuple({**config, "precision": "double", "activation": "tanh"} for config in GRID)},
    "early stopping": {"patience": 1, "epochs": 12},
    "class weights": {"class_weight": "balanced"},
}


@pytest.mark.usefixtures("never_alone")
@pytest.mark.parametrize("task", Task)
@pytest.mark.parametrize("variant", VARIANTS)
def test_side_by_side_gives_the_bits_of_alone(task: Task, variant: str) -> None:
    a_job = replace(some_groups(task), **VARIANTS[variant])
    ours, theirs = together(a_job), alone(a_job)
    assert models(ours) == models(theirs)
    assert [result.facts for result in ours] == [result.facts for result in theirs]
    if variant == "early stopping":  # so that some configs of some groups are done while others go on
        assert len({trial.epochs for result in ours for trial in result.trials}) > 3


@pytest.mark.usefixtures("never_alone")
@pytest.mark.parametrize(("precision", "tolerance"), [("double", 1e-12), ("single", 1e-5)])
@pytest.mark.parametrize("task", Task)
def test_batches_that_are_filled_up_further_differ_by_rounding(task: Task, precision: str, tolerance: float) -> None:
    """A batch of more rows than a group has is filled up to 32 rows alone, and beside a larger group to 64."""
    a_job = configured(some_groups(task), batch_size=100, precision=precision)
    assert_close(together(a_job), alone(a_job), tolerance)


@pytest.mark.usefixtures("never_alone")
@pytest.mark.parametrize("lost", ["held out", "without a weight", "without a feature"])
def test_groups_whose_training_rows_rank_otherwise_than_all_rows_learn_from_their_own(lost: str) -> None:
    """The longest groups train on the fewest rows."""
    a_job = some_groups()
    data, left = a_job.dataset, dict(zip(range(len(SIZES)), (6, 3, 2, 9, 4, 11, 17), strict=True))
    kept = np.concatenate([np.arange(size) < left[group] for group, size in enumerate(SIZES)])
    y = (data.numeric[:, 0] > 0) ^ (np.repeat(np.arange(len(SIZES)), SIZES) % 2 == 1)  # neighbours learn the opposite
    numeric = np.where(kept[:, None] | (lost != "without a feature"), data.numeric, np.nan)
    split = (~kept & (lost == "held out")).astype(np.int16)
    weight = np.where(kept | (lost != "without a weight"), data.weight, 0.0)
    data = replace(data, y=y.astype(float), numeric=numeric, split=split, weight=weight)
    a_job = configured(replace(a_job, dataset=data), precision="double")
    assert_close(together(a_job), alone(a_job), 1e-12)


@pytest.mark.usefixtures("never_alone")
def test_a_unit_of_more_groups_than_stand_abreast_trains_them_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    a_job = some_groups()
    expected = alone(a_job)
    seen: list[int] = []
    train_stack = Mlp.train_stack

    def spy(self: Mlp, problems: Any, *others: Any) -> Any:
        seen.append(len(problems))
        return train_stack(self, problems, *others)

    monkeypatch.setattr(Mlp, "train_stack", spy)
    monkeypatch.setattr(Mlp, "abreast", lambda *_: 3)
    assert models(together(a_job)) == models(expected)
    assert seen == [3] * a_job.epochs + [3] * a_job.epochs + [1] * a_job.epochs


@pytest.mark.usefixtures("never_alone")
def test_groups_of_several_blocks_visit_them_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grouplearn.data.shard.BLOCK_ROWS", 20)
    monkeypatch.setattr("grouplearn.runtime.chosen_rows.BLOCK_ROWS", 20, raising=False)
    a_job = some_groups(Task.REGRESSION)
    assert models(together(a_job)) == models(alone(a_job))


@pytest.mark.usefixtures("never_alone")
def test_a_fold_is_a_unit_of_its_own_and_outcomes_are_those_of_alone() -> None:
    a_job = replace(some_groups(Task.REGRESSION), folds=2)
    a_job = replace(a_job, dataset=replace(a_job.dataset, split=(np.arange(sum(SIZES)) % 2).astype(np.int16)))
    units = [replace(UNIT, id=number, fold=fold) for number, fold in enumerate((0, 1, -1))]
    results = [train_gathered(a_job, unit, lambda _: None, lambda: False) for unit in units]
    singles = [result for unit in units for result in alone(a_job, unit)]
    (ours, packs), (theirs, _) = (merge(a_job, each, greater_is_better=False) for each in (results, singles))
    assert not packs
    assert [(each.group, each.facts, each.best) for each in ours] == [
        (each.group, each.facts, each.best) for each in theirs
    ]
    for one, other in zip(ours, theirs, strict=True):
        assert [trial.valid for trial in one.trials] == [trial.valid for trial in other.trials]


def test_bad_groups_fail_with_their_own_reasons_and_disturb_no_other() -> None:
    """One class alone, a label that is not a number, and features so large that every network diverges."""
    a_job = some_groups()
    y, numeric = a_job.dataset.y.copy(), a_job.dataset.numeric.copy()
    y[:30] = 1.0
    y[31] = np.inf
    numeric[113:154] *= 1e300
    a_job = replace(
        a_job,
        items=tuple(Item(item.name, "numeric", item.column) for item in a_job.items),
        dataset=replace(a_job.dataset, y=y, numeric=numeric),
    )
    ours = together(a_job)
    assert models(ours) == models(alone(a_job))
    assert [{trial.status for trial in result.trials} for result in ours] == [
        {"failed"}, {"failed"}, {"done"}, {"failed"}, {"done"}, {"done"}, {"done"},
    ]  # fmt: skip
    assert "diverged" in (ours[3].trials[0].reason or "")


def test_what_breaks_a_stack_trains_group_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    a_job = some_groups()
    expected = models(alone(a_job))
    train_stack = Mlp.train_stack

    def breaks(self: Mlp, problems: Any, *others: Any) -> Any:
        if len(problems) > 1:
            raise MemoryError
        return train_stack(self, problems, *others)

    monkeypatch.setattr(Mlp, "train_stack", breaks)
    assert models(together(a_job)) == expected


def test_groups_of_another_width_stand_beside_their_like() -> None:
    """One-hot items have one column per category of the group."""
    a_job = some_groups()
    codes = (np.arange(sum(SIZES)) % 3).astype(np.int32)[:, None]
    codes[: SIZES[0]] = 0
    data = replace(a_job.dataset, codes=codes, dictionaries=(("p", "q", "r"),))
    a_job = replace(a_job, dataset=data, items=(*a_job.items, Item("kind", "category", 0, "onehot")))
    ours = together(a_job)
    assert {len(result.facts.features) for result in ours if result.facts} == {5, 7}
    assert models(ours) == models(alone(a_job))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_gives_the_same_models_on_any_number_of_workers(workers: int) -> None:
    a_job, watcher = some_groups(), Watcher()
    halves = [Unit(0, 0, (0, 1, 2), others=(1, 2, 3)), Unit(1, 4, (0, 1, 2), others=(5, 6))]
    results = LocalRuntime().run(a_job, GroupTaskParallel(halves), workers, watcher, lambda: False)
    parts = tuple(part for result in results for part in result.parts)
    assert models(parts) == models(alone(a_job))
    assert watcher.epochs == sum(trial.epochs for part in parts for trial in part.trials)
    assert {result.failed for result in results} == {0}
    best = [
        min(trial.valid.get("log_loss", np.inf) for part in result.parts for trial in part.trials) for result in results
    ]
    assert [result.best("log_loss", False) for result in results] == best


def test_it_stops_when_cancelled() -> None:
    with pytest.raises(Interrupted):
        train_gathered(some_groups(), UNIT, lambda _: None, lambda: True)


def test_a_unit_that_fails_as_a_whole_has_a_failed_result_per_group() -> None:
    result = failed_unit(UNIT, "no memory")
    assert [part.unit.group for part in result.parts] == list(range(len(SIZES)))
    assert result.failed == len(SIZES) * 3
    alone_outcomes, packs = merge(some_groups(), [result], greater_is_better=False)
    assert not packs
    assert {trial.reason for outcome in alone_outcomes for trial in outcome.trials} == {"no memory"}
