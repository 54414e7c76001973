"""What runs inside an actor of the Ray runtime: a bench, the rows it fetches, the products it hands on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import threadpoolctl

from grouplearn.learners.base import Gang
from grouplearn.runtime.bench import Bench, Watch
from grouplearn.runtime.job import Job, UnitResult
from grouplearn.runtime.prepare import Outline
from grouplearn.runtime.ray_cluster import import_ray
from grouplearn.runtime.ray_rows import FETCH_SECONDS, Chunk, rows_of
from grouplearn.runtime.single_thread import import_learner
from grouplearn.runtime.steps import Product, StepAnswer, product_bytes
from grouplearn.schedule.messages import Instruction, Load, Release, Run, RunStep, Step, Unit

Epochs = tuple[tuple[Unit, int], ...]


@dataclass(frozen=True, slots=True)
class Made:
    """Where the product of a step is."""

    step: int
    worker: int
    product: Any


@dataclass(frozen=True, slots=True)
class Supplies:
    """What a step needs besides its orders: the outline of its group, the products it takes, its gang."""

    outline: Any
    takes: tuple[Made, ...] = ()
    gang: Gang | None = None


@dataclass(frozen=True, slots=True)
class StepMade:
    """A step that ended, its product left in the store."""

    answer: StepAnswer
    product: Any


@dataclass(frozen=True, slots=True)
class Missing:
    """A step that could not start, because products of other workers are gone or did not arrive in time."""

    step: Step
    makers: tuple[int, ...]


class RayWorker:
    """The actor: it follows orders and counts the epochs it has not told of yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: Counter[Unit] = Counter()

    def begin(self, job: Job, chunks: Sequence[Chunk], worker: int, began: float) -> None:
        """Get ready for a run that began at ``time.time()`` = ``began``."""
        import_learner(job.trainer)
        self._threads = threadpoolctl.ThreadpoolController()
        self._bench, self._worker, self._began = Bench(*rows_of(job, chunks)), worker, began
        self._outlines: dict[tuple[int, int], Outline] = {}

    def follow(
        self, orders: Sequence[Instruction], supplies: Supplies | None = None
    ) -> tuple[UnitResult | StepMade | Missing, Epochs]:
        """Follow orders, of which the last is a Run or RunStep; return its answer and the epochs not told of yet."""
        with self._threads.limit(limits=1):
            for order in orders:
                match order:
                    case Load(_, group, blocks):
                        self._bench.load(group, blocks)
                    case Release(_, group):
                        self._bench.release(group)
                    case Run(_, unit):
                        answer: UnitResult | StepMade | Missing = self._bench.run(unit, self._watch(unit))
                    case RunStep(_, step) if supplies is not None:
                        answer = self._step(step, supplies)
        return answer, self.progress()

    def conclude(self, step: Step, evaluations: tuple[Made, ...]) -> tuple[StepMade | Missing, Epochs]:
        """Return the result of a unit that a gang trained, of which this worker is the first member."""
        with self._threads.limit(limits=1):
            fetched = self._take(step, evaluations)
            if isinstance(fetched, Missing):
                return fetched, ()
            answer = self._bench.conclude(step, *fetched, self._watch(step.unit))
        return StepMade(answer, None), self.progress()

    def _step(self, step: Step, supplies: Supplies) -> StepMade | Missing:
        outline = self._outline(step.unit, supplies)
        if supplies.gang is not None:
            return _stored(self._bench.join(step, outline, supplies.gang, self._watch(step.unit)))
        fetched = self._take(step, supplies.takes)
        if isinstance(fetched, Missing):
            return fetched
        takes, moved = fetched
        return _stored(self._bench.step(step, outline, takes, moved, self._watch(step.unit)))

    def _outline(self, unit: Unit, supplies: Supplies) -> Outline:
        key = (unit.group, unit.fold)
        if key not in self._outlines:
            self._outlines[key] = import_ray().get(supplies.outline, timeout=FETCH_SECONDS)
        return self._outlines[key]

    def _take(self, step: Step, takes: Sequence[Made]) -> tuple[list[Product], int] | Missing:
        """Return the products, and the bytes of those that other workers made; or whose could not be fetched."""
        ray, products, gone = import_ray(), [], []
        for made in takes:
            try:
                products.append(ray.get(made.product, timeout=FETCH_SECONDS))
            except ray.exceptions.RayError:
                gone.append(made.worker)
        if gone:
            return Missing(step, tuple(gone))
        others = [each for each, made in zip(products, takes, strict=True) if made.worker != self._worker]
        return products, sum(product_bytes(product) for product in others)

    def _watch(self, unit: Unit) -> Watch:
        def report(epochs: int) -> None:
            with self._lock:
                self._epochs[unit] += epochs

        return Watch(self._worker, self._began, report, lambda: False)

    def progress(self) -> Epochs:
        """Return the epochs done since the last call; that it answers at all says that the worker lives."""
        with self._lock:
            epochs = tuple(self._epochs.items())
            self._epochs.clear()
        return epochs

    def rest(self) -> None:
        """Forget the job, so that the object store can."""
        del self._bench, self._outlines


def _stored(answer: StepAnswer) -> StepMade:
    product = None if answer.product is None else import_ray().put(answer.product)
    return StepMade(replace(answer, product=None), product)


@dataclass
class Hired:
    """The driver's view of one actor; ``asked`` is when it was last asked how far it is (monotonic seconds)."""

    actor: Any
    ready: bool = False
    asked: float = 0.0
    running: Unit | None = None
    orders: list[Instruction] = field(default_factory=list)


def new_actor(ray: Any) -> Any:
    """Return a new actor, which asks for no share of a core: how many there are is the user's choice."""
    return ray.remote(RayWorker).options(num_cpus=0, max_concurrency=2, max_restarts=0).remote()
