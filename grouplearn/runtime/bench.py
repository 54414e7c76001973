"""What a worker is, in any runtime: it keeps the rows it was told to load, and trains units on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from grouplearn.learners.base import Interrupted
from grouplearn.runtime.gather import train_gathered
from grouplearn.runtime.job import Job, UnitResult
from grouplearn.runtime.prepare import GroupFailed, Prepared, prepare
from grouplearn.runtime.unit import failed_unit, group_of, reason_of, train_unit
from grouplearn.schedule.messages import Unit

#: Least time between two reports of progress from one worker.
REPORT_SECONDS = 0.1


class Bench:
    """One worker's state: of the loaded group, the rows prepared for the fold that was used last."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._group: int | None = None
        self._fold: int | None = None
        self._prepared: Prepared | GroupFailed | None = None

    def load(self, group: int) -> None:
        """Make ``group`` the one that is worked on; its rows are prepared with its first unit."""
        self.release()
        self._group = group

    def release(self) -> None:
        """Forget the rows."""
        self._group = self._fold = self._prepared = None

    def run(
        self, unit: Unit, worker: int, began: float, report: Callable[[int], None], cancelled: Callable[[], bool]
    ) -> UnitResult:
        """Train one unit; ``began`` is the ``time.time()`` of the run's beginning. Raises Interrupted and nothing else."""
        started = time.time()
        throttled = Throttle(report)
        if unit.others or unit.folds:
            result = train_gathered(self._job, unit, throttled.add, cancelled)
        else:
            prepared = self._prepare(unit)
            if isinstance(prepared, GroupFailed):
                result = failed_unit(unit, str(prepared))
            else:
                result = train_unit(self._job, unit, prepared, throttled.add, cancelled)
        throttled.flush()
        return replace(result, worker=worker, started=started - began, ended=time.time() - began)

    def _prepare(self, unit: Unit) -> Prepared | GroupFailed:
        if unit.group != self._group:
            self.load(unit.group)
        if self._prepared is None or self._fold != unit.fold:
            self._prepared = None  # frees one fold's rows before the next are made
            self._fold = unit.fold
            self._prepared = _prepared_or_failed(self._job, unit)
        return self._prepared


def _prepared_or_failed(job: Job, unit: Unit) -> Prepared | GroupFailed:
    try:
        with np.errstate(all="ignore"):
            return prepare(job, group_of(job, unit.group), unit.fold)
    except GroupFailed as error:
        return error
    except Interrupted:
        raise
    except Exception as error:
        return GroupFailed(reason_of(error))


class Throttle:
    """Gathers counts and passes on their sum at most every ``REPORT_SECONDS``."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self._report = report
        self._count = 0
        self._reported = time.monotonic()

    def add(self, count: int) -> None:
        """Count ``count`` more."""
        self._count += count
        if time.monotonic() - self._reported >= REPORT_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Pass on what was not passed on yet."""
        if self._count:
            self._report(self._count)
        self._count = 0
        self._reported = time.monotonic()
