"""Split groups on a real Ray cluster of this machine: same bits, gangs, lost workers, what each worker fetches."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from helpers.promptness import STOPS_WITHIN_SECONDS
from helpers.ray_watch import workers_below
from helpers.runtime_jobs import Watcher, changed, job, models
from helpers.scripted import Scripted, runs
from helpers.split_jobs import BLOCK, CASES, OWN, assert_same, n_blocks, plan, split_job, whole
from helpers.thorough import THOROUGH

import grouplearn
from grouplearn.data.dataset import ARRAYS
from grouplearn.models.label import TWO_CLASSES
from grouplearn.plan import physical
from grouplearn.runtime.ray import job_rows as ray_rows
from grouplearn.runtime.ray.job_rows import JobRows, bare, cut_rows, stored
from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.runtime.runtimes import runtime
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.sharded.data_parallel import DataParallel
from grouplearn.schedule.task_parallel import GroupTaskParallel, ModelTaskParallel
from grouplearn.schedule.workload import Workload
from grouplearn.train.rows.sources import dataset_bytes, pick
from grouplearn.train.unit import train_unit


def never() -> bool:
    return False


#: One of each way in which steps follow each other, and with ``make thorough`` others of them.
SPLIT = ("linear, folds", "binary, patience", "mlp, binary, patience", "network, masks")
MORE = ("multinomial", "mlp, regression", "network, binary, patience")


@pytest.mark.examples(1)
@pytest.mark.parametrize("case", SPLIT + MORE if THOROUGH else SPLIT)
def test_split_between_actors_is_whole_bit_by_bit(on_ray: RayRuntime, case: str) -> None:
    a_job = CASES[case]
    units = plan(a_job)
    scripted, watcher = Scripted(a_job, units, runs(n_blocks(a_job), 2)), Watcher()
    results = list(on_ray.run(a_job, scripted, 2, watcher, never))
    assert_same(results, whole(a_job, units))
    assert watcher.units == [unit.id for unit in units]
    assert all(result.fetched > 0 for result in results)
    assert sum(result.loaded for result in results) > 0
    assert {step.worker for step in results[0].steps} == {0, 1}


@pytest.mark.examples(1)
@pytest.mark.parametrize("patience", [2, None])
def test_lightgbm_in_a_gang_is_as_good_as_alone(on_ray: RayRuntime, patience: int | None) -> None:
    """Bins come from each member's rows and leaves from sums in another order: equal to 0.02 of the log-loss."""
    configs = ({"num_iterations": 12, "min_data_in_leaf": 5}, {"num_iterations": 6, "learning_rate": 0.3})
    a_job = split_job("gbdt", TWO_CLASSES, configs, metric="log_loss", patience=patience)
    units = [Unit(0, 1, (0,)), Unit(1, 1, (1,))]
    results = on_ray.run(a_job, Scripted(a_job, units, runs(n_blocks(a_job), 2), "gang"), 2, Watcher(), never)
    for ours, theirs in zip(results, whole(a_job, units), strict=True):
        (our_trial,), (their_trial,) = ours.trials, theirs.trials
        assert (our_trial.status, our_trial.reason) == ("done", None)
        assert ours.facts == theirs.facts
        assert our_trial.train["log_loss"] == pytest.approx(their_trial.train["log_loss"], abs=0.05)
        assert our_trial.valid["log_loss"] == pytest.approx(their_trial.valid["log_loss"], abs=0.05)
        assert our_trial.valid["log_loss"] < 0.6
        assert our_trial.curve[our_trial.epochs - 1].valid_metric == pytest.approx(our_trial.valid["log_loss"])
        assert {step.kind for step in ours.steps} == {"boost"}
        assert our_trial.artifact is not None


@pytest.mark.examples(1)
@pytest.mark.parametrize(("learner", "shape"), [("mlp", {"hidden_layers": (6,)}), ("own", {"width": 6, "l2": 0.1})])
def test_networks_in_a_gang_are_as_good_as_alone(on_ray: RayRuntime, learner: str, shape: dict[str, Any]) -> None:
    configs = tuple({"learning_rate": rate, **shape, "batch_size": 16} for rate in (0.02, 0.005))
    network = OWN if learner == "own" else None
    a_job = split_job(learner, TWO_CLASSES, configs, epochs=6, metric="log_loss", class_weight="balanced", own=network)
    units = [Unit(0, 1, (0, 1))]
    (ours,) = on_ray.run(a_job, Scripted(a_job, units, runs(n_blocks(a_job), 2), "gang"), 2, Watcher(), never)
    (theirs,) = whole(a_job, units)
    for our_trial, their_trial in zip(ours.trials, theirs.trials, strict=True):
        assert (our_trial.status, our_trial.reason) == ("done", None)
        for metrics in ("train", "valid"):
            assert getattr(our_trial, metrics)["log_loss"] == pytest.approx(
                getattr(their_trial, metrics)["log_loss"], abs=0.05
            )
        assert len(our_trial.curve) == 6
        assert our_trial.curve[-1].train_loss == pytest.approx(their_trial.curve[-1].train_loss, abs=0.05)


def test_deepar_in_a_gang_forecasts_as_alone(on_ray: RayRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members draw the same windows, and sum their gradients: models differ by rounding."""
    del on_ray
    monkeypatch.setattr(physical, "BLOCK_ROWS", 32)
    train = (
        "TRAIN MODEL {} USING deepar PREDICT units ORDER BY month SERIES BY store FEATURES (price) FROM sales WITH (horizon = 4,"
        " epochs = 2, batches_per_epoch = 4, batch_size = 9, hidden_units = 8, n_samples = 2000 {})"
    )
    with grouplearn.connect(progress=None) as con:
        con.execute(
            "CREATE TABLE sales AS SELECT s AS store, i AS month, 10 * s + i % 12 + hash(i, s) % 7 AS units, hash(i) % 4 AS price"
            " FROM range(30) AS r(i), range(1, 6) AS q(s) WHERE i < 30 - 2 * s"
        )
        con.execute(train.format("alone", ""))
        con.execute(train.format("gang", ", executor = 'ray', operator = 'data_parallel', workers = 2"))
        split = con.execute("SELECT DISTINCT worker FROM grouplearn.units WHERE kind = 'boost'").fetchall()
        assert len(split) == 2
        for columns, macro in (("prediction, lower, upper", "forecast"), ("prediction", "fitted")):
            alone, gang = (
                np.array(con.execute(f"SELECT store, {columns} FROM {name}_{macro}()").fetchall(), np.float64)
                for name in ("alone", "gang")
            )
            np.testing.assert_allclose(gang, alone, rtol=1e-3)
            assert (macro, len(gang)) in (("forecast", 20), ("fitted", 115))
        with pytest.raises(
            grouplearn.Error, match=r"operator data_parallel does not run .*gbdt, because several workers cannot"
        ):
            con.execute(
                "TRAIN MODEL m USING gbdt PREDICT units ORDER BY month SERIES BY store FEATURES (lags(1)) FROM sales"
                " WITH (executor = 'ray', operator = 'data_parallel')"
            )


def test_a_learner_that_knows_no_gangs_says_so(on_ray: RayRuntime) -> None:
    a_job = CASES["linear"]
    units = [Unit(0, 1, (0,))]
    (result,) = on_ray.run(a_job, Scripted(a_job, units, runs(n_blocks(a_job), 2), "gang"), 2, Watcher(), never)
    assert result.trials[0].reason == "linear_regression cannot train one model on several workers at the same time"


class Killer(Watcher):
    """Kills one of Ray's workers when the first epochs of the second unit are told of."""

    killed = 0

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        super().epochs_done(unit, epochs)
        if unit.id == 1 and not self.killed:
            self.killed = max(workers_below())
            os.kill(self.killed, signal.SIGKILL)


@pytest.mark.examples(1)
@pytest.mark.parametrize("case", ["binary, patience", "mlp, regression"])
def test_a_worker_killed_between_steps_is_replaced_and_the_bits_stay(on_ray: RayRuntime, case: str) -> None:
    a_job = changed(CASES[case], epochs=40, patience=None)
    units = [Unit(0, 1, (0, 1)), Unit(1, 1, (1, 2)), Unit(2, 1, (2,))]
    scripted, killer = Scripted(a_job, units, runs(n_blocks(a_job), 2)), Killer()
    results = list(on_ray.run(a_job, scripted, 2, killer, never))
    assert killer.killed
    assert scripted.restarts >= 1
    assert_same(results, whole(a_job, units))


def test_a_gang_that_loses_a_member_is_started_again(on_ray: RayRuntime) -> None:
    # More of them than pass until the first are heard of and the kill is felt: epochs are told of now and then.
    a_job = split_job("mlp", TWO_CLASSES, ({"batch_size": 4},), epochs=80)
    scripted = Scripted(a_job, [Unit(1, 1, (0,))], runs(n_blocks(a_job), 2), "gang")
    killer = Killer()
    (result,) = on_ray.run(a_job, scripted, 2, killer, never)
    assert killer.killed
    assert scripted.restarts == 2, "both members are gone: the other waits for the first inside a library"
    assert [trial.status for trial in result.trials] == ["done"]


def test_a_gang_that_loses_a_member_forms_again_at_its_size(on_ray: RayRuntime) -> None:
    a_job = split_job("mlp", TWO_CLASSES, ({"batch_size": 4},), epochs=12)
    rows = tuple(group.n_rows for group in a_job.groups)
    machine = DataParallel([Unit(1, 1, (0,))], Workload("sequential", rows, 2, a_job.training.epochs, BLOCK))
    killer = Killer()
    (result,) = on_ray.run(a_job, machine, 2, killer, never)
    assert killer.killed
    assert [trial.status for trial in result.trials] == ["done"]
    assert [step.kind for step in result.steps] == ["descend", "descend"]
    assert {len(step.blocks) for step in result.steps if step.blocks} == {n_blocks(a_job) // 2}


@pytest.mark.thorough
def test_a_lightgbm_gang_that_loses_a_member_is_started_again(on_ray: RayRuntime) -> None:
    configs = ({"num_iterations": 3000, "min_data_in_leaf": 2},)
    a_job = split_job("gbdt", TWO_CLASSES, configs, metric="log_loss")
    scripted = Scripted(a_job, [Unit(1, 1, (0,))], runs(n_blocks(a_job), 2), "gang")
    killed = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while scripted.script is None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.5)
        killed.append(max(workers_below()))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    (result,) = on_ray.run(a_job, scripted, 2, Watcher(), never)
    thread.join()
    assert [trial.status for trial in result.trials] == ["done"]
    assert scripted.restarts == 2


def test_members_of_a_gang_that_are_done_take_other_units(on_ray: RayRuntime) -> None:
    """Two units in a gang, one after the other: the second is instructed while nobody waits for the first."""
    configs = ({"num_iterations": 5}, {"num_iterations": 5, "learning_rate": 0.3})
    a_job = split_job("gbdt", TWO_CLASSES, configs, metric="log_loss")
    units = [Unit(0, 1, (0,)), Unit(1, 1, (1,)), Unit(2, 1, (0,))]
    results = on_ray.run(a_job, Scripted(a_job, units, runs(n_blocks(a_job), 2), "gang"), 2, Watcher(), never)
    assert [result.unit for result in results] == units
    first, _, again = models(results)
    assert first == again


def test_a_unit_that_kills_its_workers_is_given_up(on_ray: RayRuntime) -> None:
    a_job = changed(CASES["mlp, regression"], epochs=4000)
    scripted = Scripted(a_job, [Unit(0, 1, (0,))], runs(n_blocks(a_job), 2))
    stop = threading.Event()

    def kill() -> None:
        while not stop.wait(0.3):
            if scripted.script is not None:
                for worker in workers_below()[:1]:
                    os.kill(worker, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        (result,) = on_ray.run(a_job, scripted, 2, Watcher(), never)
    finally:
        stop.set()
        thread.join()
    assert {trial.reason for trial in result.trials} == {
        "the worker process died 3 times while training it (out of memory?)"
    }


def test_workers_load_the_rows_of_their_blocks_alone(on_ray: RayRuntime) -> None:
    a_job = CASES["linear"]
    (result,) = on_ray.run(a_job, Scripted(a_job, [Unit(0, 1, (0,))], runs(n_blocks(a_job), 2)), 2, Watcher(), never)
    (facts,) = result.facts.values()
    used = facts.n_train + facts.n_valid
    per_row = dataset_bytes(a_job.dataset) // a_job.dataset.n_rows
    assert result.loaded == used * per_row
    loads = [step.loaded for step in result.steps if step.loaded]
    assert len(loads) == 2
    assert max(loads) < 0.7 * result.loaded


def test_whole_groups_count_what_they_load(on_ray: RayRuntime) -> None:
    a_job = job(groups=3)
    group_bytes = dataset_bytes(a_job.dataset) // 3
    units = [Unit(2 * group + index, group, (index,)) for group in range(3) for index in range(2)]
    for labels, loads in ((GroupTaskParallel, 3), (ModelTaskParallel, 6)):
        results = on_ray.run(a_job, labels(units), 1, Watcher(), never)
        assert sum(result.loaded for result in results) == loads * group_bytes
        local = runtime("local").run(a_job, labels(units), 1, Watcher(), never)
        assert sum(result.loaded for result in local) == loads * group_bytes


def test_rows_are_cut_where_groups_end_unless_one_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    a_job = job(groups=10, rows=60)
    per_row = dataset_bytes(a_job.dataset) // 600
    for rows, expected in ((10_000, [(0, 600)]), (130, [(0, 120), (120, 240), (240, 360), (360, 480), (480, 600)])):
        monkeypatch.setattr(ray_rows, "CHUNK_BYTES", rows * per_row)
        assert cut_rows(a_job) == expected
    monkeypatch.setattr(ray_rows, "CHUNK_BYTES", 50 * per_row)
    chunks = cut_rows(a_job)
    assert max(stop - start for start, stop in chunks) <= 60
    assert [start for start, _ in chunks[1:]] == [stop for _, stop in chunks[:-1]]
    assert (chunks[0][0], chunks[-1][1]) == (0, 600)


class Store:
    """Ray's object store, as far as rows go."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def put(self, value: Any) -> int:
        self.kept.append(value)
        return len(self.kept) - 1

    def get(self, number: int, timeout: float) -> Any:
        return self.kept[number]


def test_fetched_rows_are_those_of_the_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    monkeypatch.setattr(ray_rows, "CHUNK_BYTES", 2000)
    monkeypatch.setattr(ray_rows, "import_ray", lambda: store)
    a_job = CASES["linear, folds"]
    job_there, source = JobRows(None, True, stored(store, bare(a_job), a_job.dataset)).of(bare(a_job))
    assert len(store.kept) > 10
    numbers = np.random.default_rng(0).permutation(a_job.dataset.n_rows)[:50]
    for some in (np.sort(numbers), np.arange(a_job.dataset.n_rows)):
        taken, expected = source.take(some), pick(a_job.dataset, some)
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(taken, name), getattr(expected, name))
        assert taken.dictionaries == a_job.dataset.dictionaries
    moved, loaded = source.job_of([1])
    assert loaded == dataset_bytes(moved.dataset)
    assert job_there.dataset.n_rows == 0
    unit = Unit(0, 1, (0, 1), fold=1)
    ours, theirs = (train_unit(each, unit, None, lambda _: None, never) for each in (moved, a_job))
    assert ours.facts == theirs.facts
    assert models((ours,)) == models((theirs,))


def test_cancelling_a_split_group_stops_in_time(on_ray: RayRuntime) -> None:
    from grouplearn.failures import StatementInterrupted

    a_job = changed(CASES["mlp, regression"], epochs=100_000)
    scripted = Scripted(a_job, [Unit(0, 1, (0,))], runs(n_blocks(a_job), 2))
    watcher, asked = Watcher(), list[float]()

    def cancelled() -> bool:
        if watcher.epochs > 20 and not asked:
            asked.append(time.monotonic())
        return bool(asked)

    with pytest.raises(StatementInterrupted):
        on_ray.run(a_job, scripted, 2, watcher, cancelled)
    assert time.monotonic() - asked[0] < STOPS_WITHIN_SECONDS
