"""An actor of the Ray runtime: a worker with the rows that it maps or fetches, whose products others take."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import threadpoolctl

from grouplearn.data.files.plain_values import to_bytes
from grouplearn.failures import TrainingFailed
from grouplearn.learners.contract.control import Gang
from grouplearn.runtime.ray.cluster import import_ray
from grouplearn.runtime.ray.job_rows import JobRows
from grouplearn.runtime.ray.learner_code import LearnerCode
from grouplearn.runtime.ray.products import FETCH_SECONDS, Made, ProductGone, ProductStore
from grouplearn.runtime.worker import InputCache, NotFetched, Watch, Worker
from grouplearn.schedule.messages import Instruction, Load, Part, Release, Run, RunStep, Step, Unit
from grouplearn.train.job import Job
from grouplearn.train.rows.prepare import GroupOutline
from grouplearn.train.sharded.averaging import Pieces
from grouplearn.train.sharded.descent import Product, Takes
from grouplearn.train.sharded.steps import StepAnswer, product_bytes, taken_of
from grouplearn.train.single_thread import import_learner

#: By unit number: epochs done (counted per config) since the last report.
Epochs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """A run's description for its workers: the job, its rows, and the store of products (None: Ray's).

    ``code`` is the job's learner if that is not built in. The run began at ``time.time()`` = ``began``.
    """

    job: Job
    code: LearnerCode | None
    rows: JobRows
    products: ProductStore | None
    began: float

    def taken_on(self) -> Job:
        """Return the job with its learner; raises TrainingFailed if the learner lacks something."""
        try:
            own = None if self.code is None else self.code.loaded()
        except (ImportError, AttributeError) as error:
            message = f"other processes cannot import what the learner {self.job.learner} needs: {error}"
            hint = (
                "sys.path.insert(0, ...) with the directory of its modules, before TRAIN; or WITH (executor = 'local')"
            )
            raise TrainingFailed(message, hint=hint) from None
        return replace(self.job, own=own)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a worker is: its machine, by Ray's name, and its process."""

    node: str
    process: int


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The inputs of a step: its group's outline, the products that it takes, its gang."""

    outline: Any
    takes: tuple[Made, ...] = ()
    gang: Gang | None = None


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """A finished unit, with its result as bytes that contain no code."""

    result: bytes


@dataclass(frozen=True, slots=True)
class MissingInputs:
    """A step that could not start, as products of other workers are gone or did not arrive in time."""

    step: Step
    makers: tuple[int, ...]


Answer = EncodedResult | StepAnswer | MissingInputs


class RayWorker:
    """The actor: it carries out orders and counts epochs that it has not reported yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: Counter[int] = Counter()

    def begin(self, setup: WorkerSetup, worker: int) -> Address:
        """Prepare for a run as worker number ``worker``."""
        job = setup.taken_on()
        import_learner(job.trainer)
        self._threads = threadpoolctl.ThreadpoolController()
        self._trainer = Worker(*setup.rows.of(job))
        self._worker, self._began, self._products = worker, setup.began, setup.products
        self._outlines: dict[tuple[int, int], GroupOutline] = {}
        self._taken = InputCache()
        return Address(import_ray().get_runtime_context().get_node_id(), os.getpid())

    def follow(self, orders: Sequence[Instruction], supplies: StepInputs | None = None) -> Any:
        """Carry out orders, the last of which is a Run or RunStep; return its answer and the epochs not reported yet.

        If products are in Ray's store, the product is a second return value; if it is in pieces, each piece is a further one.
        """
        product: Product | None = None
        pieces = 1
        with self._threads.limit(limits=1):
            for order in orders:
                match order:
                    case Load(_, group, blocks):
                        self._trainer.load(group, blocks)
                    case Release(_, group):
                        self._trainer.release(group)
                    case Run(_, unit):
                        answer: Answer = EncodedResult(to_bytes(self._trainer.run(unit, self._watch(unit))))
                    case RunStep(_, step) if supplies is not None:
                        answer, product = self._step(step, supplies)
                        pieces = step.pieces
        told = (answer, self.progress())
        if self._products is not None or supplies is None or supplies.gang is not None:
            return told
        if pieces == 1:
            return told, product
        return (told, *(product.pieces if isinstance(product, Pieces) else [None] * pieces))

    def conclude(self, step: Step, evaluations: tuple[Product, ...]) -> tuple[StepAnswer, Epochs]:
        """Return the result of a gang's unit; this worker is the first member."""
        moved = sum(product_bytes(each) for each in evaluations[1:])
        with self._threads.limit(limits=1):
            answer = self._trainer.conclude(step, evaluations, moved, self._watch(step.unit))
        return answer, self.progress()

    def _step(self, step: Step, supplies: StepInputs) -> tuple[StepAnswer | MissingInputs, Product | None]:
        outline, watch = self._outline(step.unit, supplies), self._watch(step.unit)
        if supplies.gang is not None:
            return self._trainer.join(step, outline, supplies.gang, watch), None
        if step.round is not None:
            takes = Takes(lambda number, piece: self._take_one(supplies.takes[number].taken(piece), piece))
            try:
                answer = self._trainer.step(step, outline, takes, 0, watch)
            except NotFetched as error:
                return MissingInputs(step, (error.maker,)), None
        else:
            fetched = self._take(step, supplies.takes)
            if isinstance(fetched, MissingInputs):
                return fetched, None
            answer = self._trainer.step(step, outline, *fetched, watch)
        if answer.product is not None and self._products is not None:
            self._products.put(step.id, answer.product)
        return replace(answer, product=None), answer.product

    def _outline(self, unit: Unit, supplies: StepInputs) -> GroupOutline:
        key = (unit.group, unit.fold)
        if key not in self._outlines:
            self._outlines[key] = import_ray().get(supplies.outline, timeout=FETCH_SECONDS)
        return self._outlines[key]

    def _take(self, step: Step, takes: Sequence[Made]) -> tuple[list[Product], int] | MissingInputs:
        """Return the products and the bytes of those made by other workers; or which workers' products are missing."""
        here = self._taken.of(step)
        if here is not None:
            return here, 0
        products, gone = [], []
        for made in takes:
            try:
                products.append(self._fetch(made))
            except (ProductGone, import_ray().exceptions.RayError):
                gone.append(made.worker)
        if gone:
            return MissingInputs(step, tuple(gone))
        self._taken.keep(step, products)
        others = [each for each, made in zip(products, takes, strict=True) if made.worker != self._worker]
        return products, sum(product_bytes(product) for product in others)

    def _take_one(self, made: Made, piece: Part | None) -> tuple[Product, int]:
        try:
            product = taken_of(self._fetch(made), piece)
        except (ProductGone, import_ray().exceptions.RayError):
            raise NotFetched(made.worker) from None
        return product, product_bytes(product) if made.worker != self._worker else 0

    def _fetch(self, made: Made) -> Product:
        if self._products is not None:
            return self._products.get(made.step, made.piece)
        if isinstance(made.product, tuple):
            return Pieces(tuple(import_ray().get(list(made.product), timeout=FETCH_SECONDS)))
        product: Product = import_ray().get(made.product, timeout=FETCH_SECONDS)
        return product

    def _watch(self, unit: Unit) -> Watch:
        def report(epochs: int) -> None:
            with self._lock:
                self._epochs[unit.id] += epochs

        return Watch(self._worker, self._began, report, lambda: False)

    def progress(self) -> Epochs:
        """Return the epochs done since the last call; answering shows that the worker lives."""
        with self._lock:
            epochs = tuple(self._epochs.items())
            self._epochs.clear()
        return epochs

    def rest(self) -> None:
        """Release the job, so that no memory of it is held."""
        del self._trainer, self._outlines, self._taken
        gc.collect()  # mapped files that were deleted take memory until nothing refers to them


@dataclass
class WorkerHandle:
    """The driver's handle of one actor; ``asked`` is when it was last asked for progress (monotonic seconds)."""

    actor: Any
    asked: float = 0.0
    address: Address | None = None
    orders: list[Instruction] = field(default_factory=list)


def new_actor(ray: Any, options: dict[str, Any]) -> Any:
    """Return a new actor; on a private cluster it reserves no core, as the user chooses the number of workers."""
    return ray.remote(RayWorker).options(max_concurrency=2, max_restarts=0, **options).remote()
