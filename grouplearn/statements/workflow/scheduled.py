"""What executes and observes a run: the same for TRAIN, RETRY and RESUME, for grids and searches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from grouplearn.data.processors import processors
from grouplearn.interrupting import run_in_thread
from grouplearn.plan import operator_choice
from grouplearn.plan.cost.coefficients import Rates
from grouplearn.plan.operator_choice import Choice
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.runtime.ray.settings import Cluster
from grouplearn.runtime.runtimes import runtime
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.operators import most_workers, operator
from grouplearn.schedule.workload import Workload
from grouplearn.statements.workflow.trial_control import TrialControl
from grouplearn.train.job import Job, Observer, Progress, UnitResult
from grouplearn.train.results.ledger import Ledger
from grouplearn.train.rows.counted import with_training_rows

#: Most estimated seconds of work that run in the calling thread; never users' code, for which there are no estimates.
_SMALL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Scheduled:
    """How units are run: the operator and the runtime by name, and the operator's workload.

    ``rates`` are used to estimate the units made during a search; estimates order units, and change no model.
    """

    operator: str
    executor: str
    workload: Workload
    cluster: Cluster | None = None
    rates: Rates = field(default_factory=Rates)

    @classmethod
    def of(cls, physical: PhysicalPlan, choice: Choice) -> Scheduled:
        """Return how a plan is run by what was chosen."""
        workload = physical.workload(operator_choice.threads(physical, choice), choice.workers)
        placement = physical.bound.options.placement
        cluster = Cluster(placement.address, placement.worker_timeout)
        return cls(choice.operator, choice.executor, workload, cluster, physical.rates)

    def run(
        self, job: Job, units: tuple[Unit, ...], observer: Observer, cancelled: Callable[[], bool]
    ) -> tuple[UnitResult, ...]:
        """Run units, in the calling thread if they are little work; raises Cancelled."""
        shared = self.executor != "ray"  # RESUME may have changed the executor
        workload = with_training_rows(replace(self.workload, rows_shared=shared), job)
        schedule = run_in_thread(lambda: operator(self.operator, units, workload), len(units))
        workers = most_workers(self.operator, units, self.workload.workers)
        small = job.own is None and sum(unit.cost for unit in units) <= _SMALL_SECONDS
        cores = min(self.workload.workers, processors())
        place = runtime(self.executor, self.cluster, here=small, cores=cores)
        return place.run(job, schedule, workers, observer, cancelled)


@dataclass(frozen=True, slots=True)
class RunControls:
    """What observes and controls a run: progress display, cancellation, commands to a search, and the ledger.

    With a ``ledger`` every finished unit is soon on disk, and units on disk are not run again.
    """

    progress: Progress | None = None
    cancelled: Callable[[], bool] = lambda: False
    control: TrialControl | None = None
    ledger: Ledger | None = None
