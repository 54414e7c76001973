"""The local runtime: same bits on any number of threads, failures isolated, cancellation in time."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.promptness import STOPS_WITHIN_SECONDS
from helpers.runtime_jobs import Watcher, changed, job, models, units

import grouplearn
from grouplearn.data.dataset import Group
from grouplearn.failures import NotInstalled, StatementInterrupted
from grouplearn.kernels.library import threads
from grouplearn.learners import registry
from grouplearn.learners.contract.requirement import Requirement
from grouplearn.learners.linear.learners import LOGISTIC_REGRESSION
from grouplearn.learners.linear.newton import NewtonSolver
from grouplearn.runtime.local import LocalRuntime
from grouplearn.runtime.runtimes import runtime
from grouplearn.schedule.task_parallel import GroupTaskParallel, ModelTaskParallel
from grouplearn.train.unit import train_unit

LEARNERS: dict[str, tuple[dict[str, Any], ...]] = {
    "logistic_regression": ({"l2": 0.1}, {"l1": 1.0}),
    "gbdt": ({"num_iterations": 8}, {"num_iterations": 8, "learning_rate": 0.5}),
    "mlp": ({"learning_rate": 0.01}, {"learning_rate": 0.1}),
}


def never() -> bool:
    return False


@pytest.mark.parametrize("learner", LEARNERS)
def test_models_are_bitwise_those_of_a_loop(learner: str) -> None:
    a_job = job(learner, LEARNERS[learner], epochs=3)
    plan = units(a_job)
    loop = models(tuple(train_unit(a_job, unit, None, lambda epochs: None, never) for unit in plan))
    for tasks in (GroupTaskParallel, ModelTaskParallel):
        for workers in (1, 2, 4):
            results = LocalRuntime().run(a_job, tasks(plan), workers, Watcher(), never)
            assert models(results) == loop


def test_results_come_in_unit_order_with_times_and_workers() -> None:
    a_job, watcher = job(groups=6), Watcher()
    results = runtime("local").run(a_job, ModelTaskParallel(units(a_job, True)), 3, watcher, never)
    assert [result.unit.id for result in results] == list(range(12))
    assert sorted(watcher.units) == list(range(12))
    assert watcher.epochs == sum(trial.epochs for result in results for trial in result.trials)
    assert all(0 <= result.started <= result.ended for result in results)
    assert {result.worker for result in results} <= {0, 1, 2}
    by_worker = sorted((result.worker, result.started, result.ended) for result in results)
    for (worker, _, ended), (next_worker, started, _) in itertools.pairwise(by_worker):
        assert worker != next_worker or ended <= started, "a worker ran two units at once"


def test_workers_without_work_have_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    start = threading.Thread.start

    def noted(self: threading.Thread) -> None:
        begun.append(self.name)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", noted)
    a_job = job(groups=2)
    results = LocalRuntime().run(a_job, GroupTaskParallel(units(a_job)), 3000, Watcher(), never)
    assert len(results) == 2
    assert len(begun) == 2


def test_a_worker_has_the_cores_of_those_that_have_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """All four of them train while eight cores are shared; each alone has them all; without cores to lend it has its own."""
    seen: list[int] = []
    together = threading.Barrier(4)

    def noted(*given: Any) -> Any:
        together.wait(10)
        seen.append(threads())
        together.wait(10)
        return train_unit(*given)

    a_job = job(groups=4)
    monkeypatch.setattr("grouplearn.runtime.worker.train_unit", noted)
    LocalRuntime(cores=8).run(a_job, GroupTaskParallel(units(a_job)), 4, Watcher(), never)
    LocalRuntime().run(a_job, GroupTaskParallel(units(a_job)), 4, Watcher(), never)
    assert seen == [2] * 4 + [1] * 4
    together = threading.Barrier(1)
    for here in (False, True):
        seen.clear()
        LocalRuntime(here=here, cores=8).run(a_job, GroupTaskParallel(units(a_job)), 1, Watcher(), never)
        assert seen == [8] * 4
    assert threads() == 1


@pytest.mark.parametrize("search", ["", "OVER HYPERBAND (learning_rate IN (0.1, 0.2, 0.3))"])
def test_more_workers_than_units_are_not_asked_for(monkeypatch: pytest.MonkeyPatch, search: str) -> None:
    """On Ray each of them would be a process."""
    asked: list[int] = []
    run = LocalRuntime.run

    def noted(self: LocalRuntime, a_job: Any, operator: Any, workers: int, *others: Any) -> Any:
        asked.append(workers)
        return run(self, a_job, operator, workers, *others)

    monkeypatch.setattr(LocalRuntime, "run", noted)
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i % 2 AS g, i % 7 AS x, hash(i) % 2 = 0 AS y FROM range(60) r(i)")
        options = "operator = 'group_task_parallel', executor = 'local', workers = 3000, epochs = 2"
        con.execute(f"TRAIN MODEL m USING mlp PREDICT y FEATURES (x) FROM t GROUP BY g {search} WITH ({options})")
    assert asked
    assert max(asked) <= 20


def test_a_failing_group_fails_alone() -> None:
    a_job = job(groups=3)
    label = a_job.dataset.y.copy()
    label[60:120] = 1.0
    label[130] = np.nan
    groups = (*a_job.groups, Group(3, 0, ("empty",), ()))
    a_job = changed(a_job, groups=groups, dataset=replace(a_job.dataset, y=label), null_label="error")
    results = LocalRuntime().run(a_job, GroupTaskParallel(units(a_job)), 1, Watcher(), never)
    assert [{trial.reason for trial in result.trials} for result in results] == [
        {None},
        {"the label is true in all of the group's 40 training rows"},
        {"the label is NULL in 1 of 60 rows; hint: ON NULL LABEL SKIP leaves such rows out"},
        {"the group has no rows"},
    ]


class Stubborn(NewtonSolver):
    """Spends a minute in one step, in Python, without looking up."""

    def step(self, *arguments: Any) -> Any:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            time.sleep(0.01)
        return super().step(*arguments)


class Endless(NewtonSolver):
    """Short steps without end."""

    def step(self, problem: Any, configs: Any, state: Any, sums: Any) -> Any:
        time.sleep(0.01)
        return replace(state, done=state.done & False)

    def losses(self, state: Any) -> Any:
        return np.zeros(state.done.shape)


@pytest.mark.parametrize("solver", [Stubborn, Endless])
@pytest.mark.parametrize("workers", [1, 3])
def test_cancelling_stops_within_two_seconds(
    monkeypatch: pytest.MonkeyPatch, solver: type[NewtonSolver], workers: int
) -> None:
    monkeypatch.setattr(registry, "LEARNERS", {"logistic_regression": solver(LOGISTIC_REGRESSION, ())})
    a_job = job(epochs=100_000)
    asked = time.monotonic() + 0.3
    with pytest.raises(StatementInterrupted, match="training was interrupted; nothing was stored"):
        LocalRuntime().run(a_job, GroupTaskParallel(units(a_job)), workers, Watcher(), lambda: time.monotonic() > asked)
    assert time.monotonic() - asked < STOPS_WITHIN_SECONDS
    assert not [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("grouplearn") and thread.name != "grouplearn-interrupt"
    ]


def test_ctrl_c_stops_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LEARNERS", {"logistic_regression": Endless(LOGISTIC_REGRESSION, ())})

    def interrupt() -> bool:
        raise KeyboardInterrupt

    a_job = job(epochs=100_000)
    with pytest.raises(StatementInterrupted):
        LocalRuntime().run(a_job, GroupTaskParallel(units(a_job)), 1, Watcher(), interrupt)
    assert not [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("grouplearn") and thread.name != "grouplearn-interrupt"
    ]


def test_a_broken_observer_is_not_swallowed_and_leaves_no_thread() -> None:
    class Broken(Watcher):
        def unit_done(self, result: Any) -> None:
            raise LookupError("observer")

    a_job = job()
    with pytest.raises(LookupError, match="observer"):
        LocalRuntime().run(a_job, GroupTaskParallel(units(a_job)), 2, Broken(), never)
    assert not [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("grouplearn") and thread.name != "grouplearn-interrupt"
    ]


def test_numerical_libraries_are_limited_during_a_run_and_restored_after() -> None:
    import threadpoolctl

    def blas_threads() -> set[int]:
        return {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}

    class Looking(Watcher):
        seen: set[int] = set()  # noqa: RUF012 - one instance

        def unit_done(self, result: Any) -> None:
            self.seen |= blas_threads()

    before, a_job, looking = blas_threads(), job(), Looking()
    LocalRuntime().run(a_job, GroupTaskParallel(units(a_job)), 1, looking, never)
    assert looking.seen == {1}
    assert blas_threads() == before


def test_a_learner_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = registry.learner("logistic_regression")
    requires = Requirement("no_such_module", "grouplearn[magic]")
    monkeypatch.setattr(learner, "declaration", replace(learner.declaration, requires=requires))
    a_job = job()
    with pytest.raises(NotInstalled) as error:
        LocalRuntime().run(a_job, GroupTaskParallel(units(a_job)), 1, Watcher(), never)
    assert error.value.hint == 'pip install "grouplearn[magic]"'


def test_unknown_runtimes_are_refused() -> None:
    with pytest.raises(KeyError, match="cloud"):
        runtime("cloud")
