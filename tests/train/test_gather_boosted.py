"""Groups boosted in one call are the groups boosted alone, to the last bit: texts, curves, metrics, importance, reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.runtime_jobs import changed, job

from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.data.files.plain_values import from_bytes, to_bytes
from grouplearn.layout.ragged import Ragged
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Interrupted
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.schedule.messages import Unit
from grouplearn.train import gather
from grouplearn.train.job import Job
from grouplearn.train.results.ledger import RESULT_KINDS
from grouplearn.train.results.result_checks import is_sound
from grouplearn.train.results.trials import TrialResult
from grouplearn.train.unit import train_unit

pytest.importorskip("lightgbm")

#: Rows of groups: none that trees can split, one, and enough for some leaves.
SIZES = (45, 1, 30, 2, 60, 7, 41, 5, 90, 22)
METRIC = {NUMBER: "rmse", TWO_CLASSES: "log_loss", SEVERAL_CLASSES: "log_loss"}


def a_table(label: Label, seed: int, *, odd: bool, weights: bool) -> Dataset:
    """Return rows with a category and, where ``odd``, values that are missing, infinite, zero and very small."""
    random, n = np.random.default_rng(seed), sum(SIZES)
    x = random.normal(size=(n, 3)) * [1.0, 1e3, 1e-3]
    codes = random.integers(0, 5, (n, 1)).astype(np.int32)
    score = x[:, 0] + 0.5 * codes[:, 0] + random.normal(size=n)
    y = score if label == NUMBER else np.digitize(score, [1.0] if label == TWO_CLASSES else [0.5, 1.0, 2.0])
    y = np.asarray(y, np.float64)
    if odd:
        for value in (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-36, -1e-35, 1e300):
            x[random.integers(0, n, 12), random.integers(0, 3, 12)] = value
        codes[random.integers(0, n, 10), 0] = -1
        y[:45] = y[0]
        y[random.integers(0, n, 4)] = np.nan
    weight = random.choice([1.0, 0.5, 2.25, 0.0], n) if weights else np.ones(n)
    split = random.integers(0, 3, n).astype(np.int16)
    names = {TWO_CLASSES: ("a", "b"), SEVERAL_CLASSES: ("a", "b", "c", "d")}.get(label, ())
    return Dataset(x, codes, y, weight, split, (("p", "q", "r", "s", "t"),), names)


def a_job(label: Label, configs: Sequence[Config], seed: int = 0, learner: str = "gbdt", **options: Any) -> Job:
    dataset = a_table(label, seed, odd=options.pop("odd", False), weights=options.pop("weights", False))
    ends = np.cumsum(SIZES).tolist()
    groups = tuple(
        Group(g, 0, (str(g),), ((end - size, end),)) for g, (size, end) in enumerate(zip(SIZES, ends, strict=True))
    )
    complete = registry.learner(learner).filled  # type: ignore[attr-defined]
    return changed(
        job(groups=1),
        learner=learner,
        label=label,
        configs=tuple(complete({"num_iterations": 6, "min_data_in_leaf": 3, **config}) for config in configs),
        items=(*(Item(f"x{column}", "numeric", column) for column in range(3)), *options.pop("items", ())),
        groups=groups,
        dataset=dataset,
        metric=options.pop("metric", METRIC[label]),
        epochs=1,
        **options,
    )


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The groups of a gathered unit that had to train alone."""
    found: list[int] = []

    def noted(a_job: Job, unit: Unit, *others: Any) -> Any:
        together, left = gather.train_stacks(a_job, unit, *others)
        found.extend(unit.groups[place] for place in left)
        return together, left

    monkeypatch.setattr("grouplearn.train.unit.train_stacks", noted)
    return found


def assert_as_alone(given: Job, fold: int = -1) -> None:
    unit = Unit(0, 0, tuple(range(len(given.configs))), fold=fold, others=tuple(range(1, len(SIZES))))
    together = train_unit(given, unit, None, lambda _: None, lambda: False)
    for group in unit.groups:
        result = train_unit(given, unit.of(group), None, lambda _: None, lambda: False)
        assert together.facts.get(group) == result.facts.get(group)
        for one, other in zip(together.trials.only(group), result.trials, strict=True):
            assert _plain(one, fold) == _plain(other, fold), (group, one.config)


def _plain(trial: TrialResult, fold: int) -> tuple[Any, ...]:
    """Return what a trial is but for its time; the bits of its numbers, of metrics that there are."""

    def bits(values: Any) -> dict[str, str]:
        return {name: float(value).hex() for name, value in values.items() if not math.isnan(value)}

    curve = [(point.epoch, repr(point.train_loss), float(point.valid_metric).hex()) for point in trial.curve]
    text = None if trial.artifact is None or fold >= 0 else trial.artifact.text
    return (
        *(trial.config, trial.status, trial.reason, trial.epochs, trial.converged),
        *(bits(trial.train), bits(trial.valid), curve if fold < 0 else [], text, trial.importance),
    )


CATEGORY = (Item("c", "category", 0, "ordinal"),)
GRIDS: dict[str, tuple[Config, ...]] = {
    "one": ({},),
    "prefixes": ({"num_iterations": 2}, {"num_iterations": 5, "learning_rate": 0.3}, {"num_iterations": 9}),
    "bins": ({"max_bin": 4}, {"max_bin": 255}, {"max_bin": 4, "num_leaves": 3}),
    "bagging": ({"bagging_fraction": 0.5, "bagging_freq": 1}, {"bagging_fraction": 0.02, "bagging_freq": 1}),
    "random": ({"extra_trees": True, "feature_fraction": 0.5}, {"data_sample_strategy": "goss"}),
    "dart": ({"boosting": "dart", "num_iterations": 3}, {"boosting": "dart"}),
    "linear": ({"linear_tree": True},),
    "quantized": ({"use_quantized_grad": True},),
}


@pytest.mark.examples(6)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("label", METRIC)
def test_together_is_alone(label: Label, grid: str, alone: list[int]) -> None:
    assert_as_alone(a_job(label, GRIDS[grid], items=CATEGORY))
    if grid == "one":  # of a number there is no other; of classes one has too few rows for both
        assert len(set(alone)) <= {NUMBER: 0, TWO_CLASSES: 3, SEVERAL_CLASSES: 3}[label]


@pytest.mark.examples(6)
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("label", METRIC)
def test_rows_of_all_kinds(label: Label, seed: int, weights: bool) -> None:
    items = CATEGORY if seed % 2 else (Item("c", "category", 0, "onehot"),)
    given = a_job(label, GRIDS["prefixes"], seed, odd=True, weights=weights, items=items)
    assert_as_alone(given)
    assert_as_alone(changed(given, class_weight="balanced", holds_out=False))


@pytest.mark.examples(2)
@pytest.mark.parametrize("metric", ["log_loss", "auc", "accuracy", "f1"])
@pytest.mark.parametrize("label", [TWO_CLASSES, SEVERAL_CLASSES])
def test_curves_of_any_metric(label: Label, metric: str) -> None:
    """What LightGBM measures itself, and what is measured of its predictions; held-out rows may be of one class, or none."""
    for seed in range(2):
        assert_as_alone(a_job(label, GRIDS["prefixes"], seed, metric=metric))
        ova = ({"objective": "multiclassova"},) if label == SEVERAL_CLASSES else ({"scale_pos_weight": 2.0},)
        assert_as_alone(a_job(label, ova, seed, metric=metric, weights=True))


@pytest.mark.parametrize("metric", ["rmse", "mae", "r2", "mape", "pinball", "poisson_deviance"])
def test_curves_of_numbers(metric: str) -> None:
    assert_as_alone(a_job(NUMBER, ({"alpha": 0.3}, {"alpha": 0.7, "objective": "quantile"}), metric=metric))


@pytest.mark.examples(5)
@pytest.mark.parametrize(
    "objective",
    ["regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma", "tweedie", "cross_entropy"],
)
def test_every_objective(objective: str) -> None:
    given = a_job(NUMBER, ({"objective": objective},))
    assert_as_alone(given)
    y = np.abs(given.dataset.y) / np.abs(given.dataset.y).max()
    assert_as_alone(replace(given, dataset=replace(given.dataset, y=y)))


@pytest.mark.parametrize("label", METRIC)
def test_folds(label: Label) -> None:
    given = changed(a_job(label, GRIDS["prefixes"]), folds=3)
    for fold in (0, 2, -1):
        assert_as_alone(given, fold)


@pytest.mark.parametrize("label", METRIC)
def test_forests(label: Label, alone: list[int]) -> None:
    assert_as_alone(a_job(label, ({}, {"num_leaves": 4}), learner="random_forest"))
    assert 4 not in alone


def test_labels_that_single_precision_does_not_hold_fail_as_alone(alone: list[int]) -> None:
    given = a_job(NUMBER, GRIDS["one"])
    y = given.dataset.y.copy()
    y[:45] += 1e9
    y[46:76] *= 1e300
    given = replace(given, dataset=replace(given.dataset, y=y))
    assert_as_alone(given)
    assert {0, 2} <= set(alone)
    assert 4 not in alone


def test_single_precision_features_and_constraints_by_name() -> None:
    given = a_job(NUMBER, ({"monotone_constraints": '{"x0": 1}'}, {"interaction_constraints": '[["x0","x1"],["x2"]]'}))
    assert_as_alone(given)
    numeric = given.dataset.numeric.astype(np.float32)
    assert_as_alone(replace(given, dataset=replace(given.dataset, numeric=numeric)))


def test_a_pack_is_kept_and_gone_on_from() -> None:
    given = a_job(NUMBER, GRIDS["prefixes"])
    unit = Unit(0, 0, (0, 1, 2), others=tuple(range(1, len(SIZES))))
    result = train_unit(given, unit, None, lambda _: None, lambda: False)
    again = from_bytes(to_bytes(result), RESULT_KINDS)
    assert is_sound(given, again)
    for one, other in zip(result.trials, again.trials, strict=True):
        assert _plain(one, -1) == _plain(other, -1)
    (models, *_) = result.trials.models
    for odd in (models.tensors["text"].values[::-1], np.zeros(models.tensors["text"].values.size)):
        damaged = replace(models, tensors={"text": Ragged(odd, models.tensors["text"].start)})
        assert not is_sound(given, replace(result, trials=replace(result.trials, models=(damaged,))))


def test_it_stops_soon_and_leaves_nothing_behind() -> None:
    given = a_job(NUMBER, ({"num_iterations": 100_000},))
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    with pytest.raises(Interrupted):
        train_unit(given, Unit(0, 0, (0,), others=tuple(range(1, len(SIZES)))), None, lambda _: None, cancelled)
