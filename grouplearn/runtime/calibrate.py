"""CALIBRATE: coefficients of the cost model, measured on this machine with small synthetic groups and real units."""

from __future__ import annotations

import functools
import math
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.failures import NotMeasured, StatementInterrupted
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.cost import Coefficients
from grouplearn.learners.contract.learner import Learner
from grouplearn.models.label import simplest
from grouplearn.plan.cost.coefficients import Machine
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import Job, TrainingLimits, TrainingTarget, UnitResult, group_of
from grouplearn.train.rows.prepare import prepare
from grouplearn.train.single_thread import blas_on_one_thread, import_learner, openmp_on_one_thread
from grouplearn.train.unit import train_unit

#: Measured shapes: rows, features, configs, number of epochs (or boosting rounds) at most.
SHAPES = (
    (64, 8, 1, 4),
    (64, 8, 8, 4),
    (64, 8, 8, 12),
    (512, 32, 4, 4),
    (256, 16, 2, 8),
    (2048, 8, 1, 12),
    (2048, 8, 4, 12),
    (4096, 32, 1, 4),
    (4096, 2, 4, 4),
    (8192, 2, 2, 4),
    (2048, 32, 4, 4),
    (8192, 16, 1, 4),
    (8192, 16, 8, 4),
    (8192, 32, 2, 12),
)
#: A shape is measured repeatedly for at least so many seconds, at most so often; the fastest time counts.
_LEAST_SECONDS, _MOST_REPEATS = 0.05, 7
_TRANSFERRED = 1 << 25
_ROUND_TRIPS = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured unit: the factors of the cost model's coefficients, and its seconds."""

    gradient: float
    row: float
    update: float
    step: float
    read: float
    config: float
    group: float
    seconds: float


def measure_learner(learner: Learner, cancelled: Callable[[], bool]) -> Coefficients:
    """Return a learner's single-thread coefficients; raises NotInstalled, StatementInterrupted, NotMeasured."""
    if learner.cost.unmeasured:
        raise NotMeasured(f"{learner.way} {learner.cost.unmeasured}: EXPLAIN ANALYZE TRAIN corrects its estimates")
    import_learner(learner)
    try:
        with blas_on_one_thread(), openmp_on_one_thread():
            _measure(learner, SHAPES[0], cancelled)  # warm up: a process's first unit also loads and compiles
            samples = [_measure(learner, shape, cancelled) for shape in SHAPES]
    except Interrupted:
        raise StatementInterrupted("calibration was interrupted; nothing was stored") from None
    return replace(fitted(samples), typical_epochs=learner.cost.coefficients.typical_epochs)


def fitted(samples: Iterable[Sample]) -> Coefficients:
    """Return the coefficients c >= 0 that minimise ``Σ ((features . c - seconds) / seconds)²``: relative errors count."""
    from scipy.optimize import nnls  # slow to import, and no TRAIN needs it

    measured = list(samples)
    seconds = np.array([max(each.seconds, 1e-9) for each in measured])
    features = np.array(
        [[each.gradient, each.row, each.update, each.step, each.read, each.config, each.group] for each in measured]
    )
    scaled = features / seconds[:, None]
    size = np.maximum(np.linalg.norm(scaled, axis=0), 1e-300)
    solution, _ = nnls(scaled / size, np.ones(len(measured)))
    gradient, row, update, step, read, config, group = (float(value) for value in solution / size)
    return Coefficients(gradient, row, update, step, read, config, group)


def _measure(learner: Learner, shape: tuple[int, int, int, int], cancelled: Callable[[], bool]) -> Sample:
    rows, width, configs, epochs = shape
    job = _job(learner, rows, width, configs, epochs)
    unit = Unit(0, 0, tuple(range(configs)))
    prepared = prepare(job, group_of(job, 0))
    least, spent, result = math.inf, 0.0, None
    for _ in range(_MOST_REPEATS):
        if cancelled():
            raise Interrupted
        began = time.thread_time()  # does not count other work on the machine
        result = train_unit(job, unit, prepared, lambda _: None, cancelled)
        seconds = time.thread_time() - began
        least, spent = min(least, seconds), spent + seconds
        if spent >= _LEAST_SECONDS:
            break
    return _sample(learner, job, result, width, least)


def _sample(learner: Learner, job: Job, result: UnitResult | None, width: int, seconds: float) -> Sample:
    trials = result.trials if result else ()
    failed = next((trial.reason for trial in trials if trial.status == "failed"), None)
    if failed or not trials:
        raise NotMeasured(f"{learner.way} cannot be calibrated: {failed or 'no unit ended'}")
    rows = job.dataset.n_rows
    passes = [(job.configs[trial.config], max(1, trial.epochs)) for trial in trials]
    return Sample(
        gradient=rows * width * sum(count for _, count in passes),
        row=rows * sum(count for _, count in passes),
        update=sum(count * learner.cost.updates(config, rows, width) for config, count in passes),
        step=max(count * learner.cost.steps(config, rows) for config, count in passes),
        read=rows * learner.cost.read_values(width) + learner.cost.solving(rows, width),
        config=len(trials),
        group=1,
        seconds=seconds,
    )


def _job(learner: Learner, rows: int, width: int, configs: int, epochs: int) -> Job:
    """Return a job of one group of normal features and a noisy linear label."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(rows, width))
    score = x @ rng.normal(size=width) + rng.normal(size=rows)
    kind = simplest(learner.declaration.labels)
    empty = np.empty((rows, 0), dtype=np.int32)
    # Positive, for learners of counts and rates, and within few orders of magnitude.
    label = (score > 0).astype(float) if kind.has_classes else np.exp(score / np.sqrt(4 * (1 + width)))
    split = (np.arange(rows) % 10 == 0).astype(np.int16)  # configurations that compete hold out 10% of a group
    dataset = Dataset(x, empty, label, np.ones(rows), split, (), ("false", "true") if kind.has_classes else ())
    return Job(
        learner=learner.declaration.name,
        configs=_configs(learner, configs, epochs),
        items=tuple(Item(f"x{column}", "numeric", column) for column in range(width)),
        groups=(Group(0, 0, (), ((0, rows),)),),
        dataset=dataset,
        target=TrainingTarget(kind, registry.output_class(learner, kind).metrics.default),
        training=TrainingLimits(epochs=epochs),
    )


def _configs(learner: Learner, count: int, epochs: int) -> tuple[Config, ...]:
    """Return configs of one pack: the defaults, with different penalties if there are any."""
    names = {parameter.name for parameter in learner.declaration.hyperparameters}
    base = {parameter.name: parameter.default for parameter in learner.declaration.hyperparameters}
    if "num_iterations" in names:
        base["num_iterations"] = epochs
    penalty = next((name for name in ("l2", "lambda_l2") if name in names), None)
    return tuple(base | ({penalty: 0.1 * (number + 1)} if penalty else {}) for number in range(count))


# --- the machine -------------------------------------------------------------------------------------------------------


def measure_machine() -> Machine:
    """Return this machine's coefficients; those of Ray keep their defaults, as no cluster is started."""
    latency, network = _loopback()
    load, encode = _load_seconds()
    return replace(
        Machine(),
        load=load,
        encode=encode,
        memory=_memory_bandwidth(),
        disk=_disk_bandwidth(),
        network=network,
        latency=latency,
    )


def _load_seconds() -> tuple[float, float]:
    """Return the seconds of loading rows: fixed, and per value."""
    seconds = []
    for rows in (16, 16_384):
        job = _job(registry.learner(registry.names()[0]), rows, 32, 1, 1)
        job = replace(job, items=tuple(replace(item, encoder="zscore") for item in job.items))
        seconds.append(_least(functools.partial(prepare, job, job.groups[0]), clock=time.thread_time))
    encode = max(seconds[1] - seconds[0], 0.0) / (16_384 * 32)
    return seconds[0], encode


def _memory_bandwidth() -> float:
    values = np.ones(_TRANSFERRED // 4)  # far larger than any cache
    return float(values.nbytes / _least(values.sum))


def _disk_bandwidth() -> float:
    data = os.urandom(_TRANSFERRED)

    def write() -> None:
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    return _TRANSFERRED / _least(write)


def _loopback() -> tuple[float, float]:
    """Return the seconds of a short message and the bytes per second of a long one, over TCP on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=_echo, args=(server,), daemon=True)
        answering.start()
        with socket.create_connection(server.getsockname(), timeout=30) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            began = time.perf_counter()
            for _ in range(_ROUND_TRIPS):
                client.sendall(b"x")
                client.recv(1)
            latency = (time.perf_counter() - began) / (2 * _ROUND_TRIPS)
            began = time.perf_counter()
            client.sendall(bytes(_TRANSFERRED))
            client.recv(1)
            seconds = time.perf_counter() - began
        answering.join(timeout=30)
    return latency, _TRANSFERRED / seconds


def _echo(server: socket.socket) -> None:
    """Answer every short message, then take a long one and answer once."""
    other, _ = server.accept()
    with other:
        other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_ROUND_TRIPS):
            other.sendall(other.recv(1))
        left = _TRANSFERRED
        while left > 0:
            received = len(other.recv(1 << 20))
            if not received:
                return
            left -= received
        other.sendall(b"x")


def _least(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    seconds = []
    for _ in range(3):
        began = clock()
        work()
        seconds.append(clock() - began)
    return max(min(seconds), 1e-9)
