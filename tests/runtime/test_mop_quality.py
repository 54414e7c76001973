"""Networks that hop learn as well as serial SGD: digits, the same epochs, means over seeds."""

from __future__ import annotations

import statistics

import numpy as np
from helpers.runtime_jobs import Watcher, changed, dataset
from sklearn.datasets import load_digits

from grouplearn.data.dataset import Group, Item
from grouplearn.models.label import SEVERAL_CLASSES
from grouplearn.runtime.local import LocalRuntime
from grouplearn.schedule.messages import Operator, Unit
from grouplearn.schedule.mop.hopper import Mop
from grouplearn.schedule.task_parallel import GroupTaskParallel
from grouplearn.schedule.workload import Hops, Workload
from grouplearn.train.job import Job, TrainingLimits, TrainingTarget, UnitResult

BLOCK, WORKERS, SEEDS = 128, 4, range(3)
UNITS = [Unit(number, 0, (number,), cost=1.0) for number in range(4)]


def digits() -> Job:
    """All 1,797 images in an order of chance, a fifth of them held out."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    data = dataset(
        images[order] / 16,
        labels[order],
        split=np.arange(len(labels)) % 5 == 0,
        classes=tuple(str(digit) for digit in range(10)),
    )
    configs = tuple(
        {"hidden_layers": (width,), "learning_rate": rate, "batch_size": 16}
        for width in (16, 32)
        for rate in (0.01, 0.003)
    )
    items = tuple(Item(f"p{number}", "numeric", number) for number in range(64))
    groups = (Group(0, 0, (), ((0, len(labels)),)),)
    return Job(
        *("mlp", configs, items, groups, data, TrainingTarget(SEVERAL_CLASSES, "accuracy")),
        training=TrainingLimits(epochs=6),
        block_rows=BLOCK,
    )


def accuracy(results: tuple[UnitResult, ...]) -> float:
    return max(trial.valid["accuracy"] for result in results for trial in result.trials)


def test_the_metric_of_serial_sgd_is_reached() -> None:
    """The order of the visits is planned, so that the test does not depend on timing; noise: two standard errors."""
    job = digits()
    work = Workload("sequential", (job.dataset.n_rows,), WORKERS, job.training.epochs, BLOCK, hops=Hops("vector"))
    found: dict[str, list[float]] = {"serial": [], "mop": []}
    for seed in SEEDS:
        seeded = changed(job, seed=seed)
        machines: dict[str, tuple[Operator, int]] = {
            "serial": (GroupTaskParallel(UNITS), 1),
            "mop": (Mop(UNITS, work), WORKERS),
        }
        for name, (machine, workers) in machines.items():
            results = LocalRuntime().run(seeded, machine, workers, Watcher(), lambda: False)
            found[name].append(accuracy(results))
            shards = {step.blocks for result in results for step in result.steps if step.kind == "train"}
            assert len(shards) == (WORKERS if name == "mop" else 0)
    serial, hopped = (statistics.fmean(values) for values in found.values())
    error = sum(statistics.variance(values) / len(SEEDS) for values in found.values()) ** 0.5
    assert serial > 0.93
    assert hopped >= serial - max(2 * error, 0.005)
