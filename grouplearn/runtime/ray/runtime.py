"""The Ray runtime: a child process drives Ray, this one runs the schedule and keeps the results."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from grouplearn.data.dataset import DatasetFiles
from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.failures import StatementInterrupted, TrainingFailed, not_installed
from grouplearn.learners import registry
from grouplearn.learners.contract.control import Interrupted
from grouplearn.runtime.ray.coordinator import Coordinator
from grouplearn.runtime.ray.job_rows import bare, place_for, shared_files
from grouplearn.runtime.ray.learner_code import LearnerCode, learner_code
from grouplearn.runtime.ray.settings import Cluster
from grouplearn.runtime.ray.supervised.pipe import Begin, Broken, Orders, RunEvents, StopRun
from grouplearn.runtime.ray.supervised.supervisor import CHILDREN, Child, ChildLost
from grouplearn.schedule.messages import Operator
from grouplearn.train.group_table import GroupTable
from grouplearn.train.job import Job, Observer, UnitResult
from grouplearn.train.rows.sources import dataset_bytes

#: A run is given up after so many deaths of Ray without a completed unit or step in between.
DEATHS = 3
#: Seconds of silence that are normal on a busy machine: the driver reports twice a second.
LEAST_SILENCE = 3.0
_STEPS = "steps-"


class RayRuntime:
    """Runs units on a Ray cluster, by default a private one with this machine's cores.

    It starts with the first run, in a child process that is kept for further runs until ``shutdown``.
    """

    name = "ray"

    def __init__(self, cluster: Cluster | None = None) -> None:
        self._cluster = cluster or Cluster()

    def prepare(self, cancelled: Callable[[], bool]) -> None:
        """Begin to start Ray; wait only for an existing cluster, and raise TrainingFailed if it does not answer."""
        _check_installed()
        child, fit = CHILDREN.take(self._cluster.address), False
        try:
            if self._cluster.address is not None:
                child.connect(cancelled)
            fit = True
        except ChildLost as lost:
            raise _died(lost, 1) from None
        except (Interrupted, KeyboardInterrupt):
            raise StatementInterrupted("training was interrupted; nothing was stored") from None
        finally:
            CHILDREN.give_back(child, fit=fit)

    def run(
        self, job: Job, operator: Operator, workers: int, observer: Observer, cancelled: Callable[[], bool]
    ) -> tuple[UnitResult, ...]:
        """Run every unit and return the results in unit order.

        A lost worker is replaced and its unit run again, and so is a lost cluster. Raises StatementInterrupted within 2 s of
        ``cancelled()`` being true or of Ctrl-C, NotInstalled without Ray, TrainingFailed when it cannot go on.
        """
        registry.check_installed(job.trainer)
        _check_installed()
        try:
            with _prepared(job) as sent:
                return self._run(sent, Coordinator(operator, observer, time.time()), max(1, workers), cancelled)
        except (Interrupted, KeyboardInterrupt):
            raise StatementInterrupted("training was interrupted; nothing was stored") from None

    def shutdown(self) -> None:
        """Stop Ray, unless another run of this process still uses it."""
        CHILDREN.end_idle(self._cluster.address)

    def _run(
        self, sent: _Sent, coordinator: Coordinator, workers: int, cancelled: Callable[[], bool]
    ) -> tuple[UnitResult, ...]:
        deaths = 0
        while not coordinator.finished:
            ended = coordinator.ended
            try:
                self._try(sent, coordinator, workers, cancelled)
            except ChildLost as lost:
                coordinator.catch_up()
                deaths = 1 if coordinator.ended > ended else deaths + 1
                if deaths >= DEATHS:
                    raise _died(lost, deaths) from None
                coordinator.cluster_lost(kept=self._cluster.address is None)
        return coordinator.results

    def _try(self, sent: _Sent, coordinator: Coordinator, workers: int, cancelled: Callable[[], bool]) -> None:
        """Run on one child until the last unit is done; raises ChildLost."""
        child, fit = CHILDREN.take(self._cluster.address), False
        number = next(child.runs)
        try:
            child.connect(cancelled)
            child.send(self._begin(sent, coordinator, workers, number))
            try:
                child.revive()
                _converse(child, number, coordinator, self._cluster.worker_timeout, cancelled)
                fit = True
            except BaseException as error:
                fit = not isinstance(error, ChildLost) and child.abort(number)
                raise
        finally:
            CHILDREN.give_back(child, fit=fit)

    def _begin(self, sent: _Sent, coordinator: Coordinator, workers: int, number: int) -> Begin:
        return Begin(
            run=number,
            job=replace(sent.job, groups=()),
            groups=GroupTable.of(sent.job.groups),
            rows=replace(sent.rows, directory=os.path.abspath(sent.rows.directory)),  # Ray's working directory differs
            in_memory=sent.in_memory,
            code=sent.code,
            workers=workers,
            first_worker=coordinator.next_worker,
            began=coordinator.began,
            scratch=os.path.abspath(sent.scratch),
            cluster=self._cluster,
            made=coordinator.made,
        )


@dataclass(frozen=True, slots=True)
class _Sent:
    """A job for the child: its rows are in files, and a third-party learner is code."""

    job: Job
    rows: DatasetFiles
    in_memory: bool
    code: LearnerCode | None
    scratch: str


@contextmanager
def _prepared(job: Job) -> Iterator[_Sent]:
    """Put a job's rows where other processes can map them, with a directory for products; all is removed with the context."""
    code, said = learner_code(job.own), bare(job)
    with ExitStack() as stack:
        if job.dataset.files is None:
            shared = stack.enter_context(RunDirectory(place_for(dataset_bytes(job.dataset))))
            passing = stack.enter_context(RunDirectory.beside(None))
            yield _Sent(said, shared_files(job.dataset, shared), True, code, str(passing.path))
        else:
            beside = Path(job.dataset.files.directory)  # machines that see the rows see products, too
            for stale in beside.glob(f"{_STEPS}*"):  # from a process that died, as the run is ours now
                shutil.rmtree(stale, ignore_errors=True)
            passing_path = stack.enter_context(tempfile.TemporaryDirectory(prefix=_STEPS, dir=beside))
            yield _Sent(said, job.dataset.files, False, code, passing_path)


def _converse(
    child: Child, number: int, coordinator: Coordinator, timeout: float, cancelled: Callable[[], bool]
) -> None:
    """Exchange news and orders until the last unit is done; raises ChildLost, also after too long a silence of the child."""
    while not coordinator.finished:
        if cancelled():
            raise Interrupted
        child.watch(max(timeout, LEAST_SILENCE))
        match child.receive():
            case RunEvents(run) as news if run == number:
                orders = coordinator.take(news)
                child.send(StopRun() if coordinator.finished else Orders(orders))
                coordinator.catch_up()
            case Broken(run, message, hint) if run == number:
                raise TrainingFailed(message, hint=hint)


def _check_installed() -> None:
    if importlib.util.find_spec("ray") is None:
        raise not_installed("executor = 'ray'", "the package ray", "ray")


def _died(lost: ChildLost, times: int) -> TrainingFailed:
    words = f": {lost}" if str(lost) else ""
    return TrainingFailed(f"Ray died {times} times in a row{words}", hint="WITH (executor = 'local')")
