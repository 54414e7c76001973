"""Closed forms of each operator's cost (kingpin 3.1 to 3.3 and 4.6), shown beside the simulated schedules.

Symbols are those of kingpin, table 1: g groups of n_i rows, n rows in all, p workers, s configs, h passes, m bytes of one
model. Times are seconds. Two changes make the total correct for one worker. The idle time of task parallelism has the
weight (1 - 1/p), so that the total is Graham's bound for list scheduling (W/p + (1 - 1/p) * longest task). Reading from
memory has weight 0, as the measured f_grad includes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from grouplearn.learners.contract.cost import Coefficients
from grouplearn.schedule.averages import SEND, STALENESS


class Speeds(Protocol):
    """The speeds of the machines."""

    @property
    def memory(self) -> float:
        """Bytes per second from memory."""
        ...

    @property
    def disk(self) -> float:
        """Bytes per second from disk."""
        ...

    @property
    def network(self) -> float:
        """Bytes per second between workers."""
        ...

    @property
    def latency(self) -> float:
        """Seconds per message."""
        ...

    @property
    def exchange(self) -> float:
        """Seconds per round of a gang."""
        ...


@dataclass(frozen=True, slots=True)
class WorkSizes:
    """The amount of work by group: ``rows`` n_i, ``updates`` η_i of a config and ``steps`` of a pack per pass.

    ``width`` is values per row; ``row_bytes`` and ``model_bytes`` (m) are bytes. ``rounds`` are the rounds per pass, for
    learners in rounds and for averaging, which may send ``gradient_bytes`` in place of each model. ``options`` are those that
    operators declare, by name.
    """

    rows: tuple[int, ...]
    updates: tuple[int, ...]
    steps: tuple[int, ...]
    configs: int
    passes: int
    workers: int
    width: int
    outputs: int
    row_bytes: int
    model_bytes: int
    rounds: int = 1
    gradient_bytes: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Rows in all."""
        return sum(self.rows)

    @property
    def largest(self) -> WorkSizes:
        """The work of the largest group alone."""
        number = max(range(len(self.rows)), key=self.rows.__getitem__, default=None)
        kept = slice(0, 0) if number is None else slice(number, number + 1)
        return replace(self, rows=self.rows[kept], updates=self.updates[kept], steps=self.steps[kept])


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights α, β (of memory and of disk), γ and δ of the total."""

    compute: float = 1.0
    memory: float = 0.0
    disk: float = 1.0
    network: float = 1.0
    idle: float = 1.0


@dataclass(frozen=True, slots=True)
class Parts:
    """The terms of an operator's time, in seconds summed over workers; ``idle`` is the waiting time at the end."""

    compute: float
    memory: float
    disk: float
    network: float
    idle: float

    def total(self, workers: int, weights: Weights | None = None) -> float:
        """Return ``(α comp + β io + γ network) / p + δ idle``."""
        by = weights or Weights()
        io = by.memory * self.memory + by.disk * self.disk
        return (by.compute * self.compute + io + by.network * self.network) / workers + by.idle * self.idle


ClosedForm = Callable[[WorkSizes, Coefficients, Speeds], Parts]


def group_task_parallel(work: WorkSizes, learner: Coefficients, machine: Speeds) -> Parts:
    """``comp = h [s f_grad(n) + Σ (s f_update η_i + f_step steps_i)]``, ``memory = f_mem(s h n)``, ``network = f_net(n)``,
    ``idle = (1 - 1/p) [f_net(n_max) + comp of the largest group]``.
    """
    idle = _wait(work) * (_fetch(work, machine, work.largest.n) + _compute(work.largest, learner))
    return Parts(_compute(work, learner), _memory(work, machine), 0.0, _fetch(work, machine, work.n), idle)


def model_task_parallel(work: WorkSizes, learner: Coefficients, machine: Speeds) -> Parts:
    """As task parallelism over groups, but a task is one config: ``disk = f_disk(max(0, s - p) n)``, ``network = f_net(p n)``,
    ``idle = (1 - 1/p) [f_disk(n_max) + comp of one config of the largest group]``.

    The paper's formula also has a factor s beside s - p. It contradicts the text (rows are loaded s - p times) and is left out.
    """
    disk = _read(work, machine, max(0, work.configs - work.workers) * work.n)
    task = replace(work.largest, configs=1)
    idle = _wait(work) * (_read(work, machine, task.n) + _compute(task, learner))
    compute, network = (
        work.configs * _compute(replace(work, configs=1), learner),
        _fetch(work, machine, work.workers * work.n),
    )
    return Parts(compute, _memory(work, machine), disk, network, idle)


def data_parallel(work: WorkSizes, learner: Coefficients, machine: Speeds) -> Parts:
    """Compute and memory as over groups; every update is a ring all-reduce: ``network = f_net(n) + s h Σ steps_i 2 m (p - 1)``
    bytes, ``idle = s h Σ steps_i [2 (p - 1) latency + exchange]``: linear in configs, passes, batches and groups (kingpin 3.3).

    Bytes and messages of the ring: Patarasu & Yuan 2009.
    """
    updates = work.configs * work.passes * sum(work.steps)
    rounds = 2 * (work.workers - 1)
    network = _fetch(work, machine, work.n) + updates * rounds * work.model_bytes / machine.network
    idle = updates * rounds * machine.latency + (updates * machine.exchange if work.workers > 1 else 0.0)
    return Parts(_compute(work, learner), _memory(work, machine), 0.0, network, idle)


def gap(work: WorkSizes, learner: Coefficients, machine: Speeds) -> Parts:
    """Compute and memory as over groups; ``network = f_net(n) + s h m p`` bytes, ``idle = h latency`` (kingpin 4.6).

    On one worker no group is split, and nothing is sent or waited for.
    """
    split = work.workers > 1
    models = work.configs * work.passes * work.model_bytes * work.workers if split else 0
    network = _fetch(work, machine, work.n) + models / machine.network
    idle = work.passes * machine.latency if split else 0.0
    return Parts(_compute(work, learner), _memory(work, machine), 0.0, network, idle)


def averaging(work: WorkSizes, learner: Coefficients, machine: Speeds) -> Parts:
    """Compute and memory as over groups; in each round, what is sent and then the models go to every worker, without its
    own share: ``network = f_net(n) + s h g r (m' + m) (p - 1)`` bytes, ``idle = h g r 2 latency`` for two barriers, one for
    the parts and one for the whole (Zhang et al. 2019, IV-B).

    A pass has r rounds, and there are as many partitions as workers; m' is m where models are sent.
    """
    rounds = work.passes * work.rounds * len(work.rows) if work.workers > 1 else 0
    both = work.model_bytes + (work.gradient_bytes if work.options.get(SEND.name) == "gradient" else work.model_bytes)
    models = work.configs * rounds * both * (work.workers - 1)
    network = _fetch(work, machine, work.n) + models / machine.network
    return Parts(_compute(work, learner), _memory(work, machine), 0.0, network, 2 * rounds * machine.latency)


def parameter_server(work: WorkSizes, learner: Coefficients, machine: Speeds) -> Parts:
    """As averaging, with its two barriers once in s + 1 rounds for a staleness s. A worker pulls a model in every round and
    pushes as much: ``network = f_net(n) + s' h g r 2 m (p - 1)``, ``idle = h g r 2 latency / (s + 1)`` for s' configs.
    """
    whole = averaging(replace(work, options={}), learner, machine)
    return replace(whole, idle=whole.idle / (work.options.get(STALENESS.name, STALENESS.default) + 1))


def coordinate_descent(work: WorkSizes, learner: Coefficients, machine: Speeds) -> Parts:
    """Compute and memory as over groups; in a pass each block of columns is reduced and sent to every worker, as many bytes
    as in one pass of averaging: ``network = f_net(n) + s h 2 m (p - 1)``, ``idle = h rounds 2 latency`` for two barriers a
    round (Rendle et al. 2016, 4.3).

    On one worker no group is split, and nothing is sent or waited for.
    """
    passes = work.passes if work.workers > 1 else 0
    models = work.configs * passes * 2 * work.model_bytes * (work.workers - 1)
    network = _fetch(work, machine, work.n) + models / machine.network
    return Parts(
        _compute(work, learner), _memory(work, machine), 0.0, network, 2 * passes * work.rounds * machine.latency
    )


def _compute(work: WorkSizes, learner: Coefficients) -> float:
    """Return Cost_Comp of one pack per group, with f_update per config and f_step per pack."""
    gradient = work.configs * learner.per_row(work.width) * work.n * work.outputs
    updates = work.configs * learner.update * sum(work.updates) + learner.step * sum(work.steps)
    return learner.correction * work.passes * (gradient + updates)


def _memory(work: WorkSizes, machine: Speeds) -> float:
    """``f_mem(s h n)``."""
    return work.configs * work.passes * work.n * work.row_bytes / machine.memory


def _fetch(work: WorkSizes, machine: Speeds, n_rows: int) -> float:
    return n_rows * work.row_bytes / machine.network


def _read(work: WorkSizes, machine: Speeds, n_rows: int) -> float:
    return n_rows * work.row_bytes / machine.disk


def _wait(work: WorkSizes) -> float:
    return 1 - 1 / work.workers
