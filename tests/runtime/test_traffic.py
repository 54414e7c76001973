"""Bytes that move, by the runtime's counters, against Table 2 of Nakandala, Zhang and Kumar 2020.

k epochs, p workers, |S| configs with models of m bytes each, a dataset of D bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.runtime_jobs import Watcher, dataset
from helpers.split_jobs import BLOCK
from test_mop_runs import a_job, units_of, workload

import grouplearn
from grouplearn.data.dataset import Group, Item
from grouplearn.learners.contract.access import AccessName
from grouplearn.models.label import TWO_CLASSES
from grouplearn.runtime.local import LocalRuntime
from grouplearn.runtime.simulated import Costs, Exchange, Timeline, simulate
from grouplearn.schedule.messages import BlockRange, Operator, Step, Unit
from grouplearn.schedule.mop.hopper import Mop
from grouplearn.schedule.operators import operator
from grouplearn.schedule.sharded.data_parallel import DataParallel
from grouplearn.schedule.workload import Hops, Workload
from grouplearn.train.job import Job, TrainingLimits, TrainingTarget, UnitResult
from grouplearn.train.rows.sources import dataset_bytes

P, EPOCHS = 10, 20
M, D = 1e6, 64e9


def run(job: Job, machine: Operator, workers: int) -> tuple[UnitResult, ...]:
    return LocalRuntime().run(job, machine, workers, Watcher(), lambda: False)


def test_mop_on_threads() -> None:
    """k m p |S|, of which a share of 1/p stays where it is, and what the last worker of each model sends to the p - 1 others.

    Sums of metrics, which those who evaluate send back, are not of Table 2: how many go depends on who is free first.
    """
    job = a_job("mlp", TWO_CLASSES, epochs=EPOCHS)
    job = replace(job, dataset=replace(job.dataset, split=job.dataset.split * 0))  # with held-out rows two states move
    results = run(job, Mop(units_of(job), workload(job, P, Hops(seed=5))), P)
    steps = [step for result in results for step in result.steps]
    size = max(step.fetched for step in steps if step.kind == "train")
    configs = len(job.configs)
    trained, evaluated = (sum(step.fetched for step in steps if step.kind == kind) for kind in ("train", "evaluate"))
    assert trained == pytest.approx(EPOCHS * size * (P - 1) * configs, rel=0.05)
    assert evaluated == size * (P - 1) * configs


def test_task_parallelism_on_threads() -> None:
    """|S| D where every task reads its rows, min(p, |S|) D where a worker keeps them for the next one."""
    job = a_job("mlp", TWO_CLASSES, epochs=2)
    large = replace(job, groups=(replace(job.groups[1], id=0),))
    group_bytes = dataset_bytes(job.dataset) * large.groups[0].n_rows / job.dataset.n_rows
    units = [Unit(number, 0, (number,), cost=1.0) for number in range(len(job.configs))]
    rows = (large.groups[0].n_rows,)
    for name, workers, reads in (("model_task_parallel", 2, 3), ("group_task_parallel", 2, 1)):
        work = Workload("sequential", rows, workers, 2, 32)
        results = run(large, operator(name, units, work), workers)
        assert sum(result.loaded for result in results) == pytest.approx(reads * group_bytes)


def many_columns(n_blocks: int, configs: tuple[dict[str, Any], ...], columns: int = 60) -> Job:
    """Return a job of one group of so many blocks, all of whose rows train."""
    rows = n_blocks * BLOCK
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, columns))
    y = x @ rng.normal(size=columns) + 3 * rng.normal(size=rows) > 0
    items = tuple(Item(f"x{number}", "numeric", number) for number in range(columns))
    group = Group(0, 0, (), ((0, rows),))
    data = dataset(x, y.astype(float), classes=("false", "true"))
    return Job(
        "logistic_regression",
        configs,
        items,
        groups=(group,),
        dataset=data,
        target=TrainingTarget(TWO_CLASSES, "log_loss"),
        training=TrainingLimits(epochs=EPOCHS),
        block_rows=BLOCK,
    )


def test_bulk_synchronous_on_threads() -> None:
    """k p |S| states out and as many sums back, which is 2 k m p |S| where both have the m bytes of a model."""
    workers = 40
    job = many_columns(workers, tuple({"l1": 1.0, "l2": 0.0, "tolerance": 1e-300} for _ in range(3)))
    units = [Unit(number, 0, (number,), cost=1.0) for number in range(3)]
    work = Workload("algebraic", (workers * BLOCK,), workers, EPOCHS, BLOCK)
    results = run(job, DataParallel(units, work), workers)
    steps = [step for result in results for step in result.steps]
    assert max(step.epoch for step in steps if step.kind == "update") == EPOCHS - 1
    state = max(step.fetched for step in steps if step.kind == "accumulate" and step.epoch == 5)
    sums = max(step.fetched for step in steps if step.kind == "update" and step.epoch == 5) / (workers - 1)
    moved = sum(step.fetched for step in steps)
    assert moved == pytest.approx(EPOCHS * workers * len(units) * (state + sums), rel=0.05)


def timeline(machine: Operator, workers: int, batches: int = 0) -> Timeline:
    """Run a schedule on a virtual clock, with models of M bytes (sums too) and one group of D bytes."""

    def exchange(step: Step) -> Exchange:
        return Exchange(M * batches * EPOCHS, 1.0)

    def share(_group: int, blocks: BlockRange) -> float:
        return len(blocks) / (4 * workers)

    costs = Costs(
        share=share,
        row_bytes=lambda _group: D,
        state_bytes=lambda unit: M * len(unit.configs),
        sums_bytes=lambda unit: M * len(unit.configs),
        exchange=exchange,
    )
    return simulate(machine, workers, lambda _: 0.0, costs=costs)


def case(access: AccessName, workers: int, configs: int = 20) -> tuple[list[Unit], Workload]:
    units = [Unit(number, 0, (number,), cost=1.0) for number in range(configs)]
    return units, Workload(access, (4 * workers * 8,), workers, EPOCHS, 8)


@pytest.mark.parametrize("configs", [20, 64])
def test_mop_on_a_virtual_clock(configs: int) -> None:
    units, work = case("sequential", P, configs)
    rows_once = D
    # A state that is evaluated where it was made last moves to p - 1 others, with the sums of their shards back to one.
    evaluated = 2 * M * (P - 1) * configs
    formula = EPOCHS * M * P * configs + M * configs
    assert timeline(Mop(units, work), P).network_bytes - rows_once == pytest.approx(formula + evaluated, rel=0.05)


def test_bulk_synchronous() -> None:
    """2 k m p |S|: every worker gets the state and sends its sums; the worker that merges sends itself nothing."""
    workers = 40
    units, work = case("algebraic", workers, 5)
    moved = timeline(DataParallel(units, work), workers).network_bytes - D
    assert moved == pytest.approx(2 * EPOCHS * M * workers * len(units), rel=0.05)


def test_data_parallel() -> None:
    """k m p |S| ⌈|D| / (b p)⌉: every batch's gradients go around all workers."""
    units, work = case("sequential", P, 5)
    moved = timeline(DataParallel(units, work), P, batches=100).network_bytes - D
    assert moved == pytest.approx(EPOCHS * M * P * len(units) * 100, rel=0.05)


@pytest.mark.parametrize(("name", "reads"), [("model_task_parallel", 20), ("group_task_parallel", 1)])
def test_task_parallelism_on_a_virtual_clock(name: str, reads: int) -> None:
    """k |S| D with remote reads in every epoch is |S| D here: a task reads its rows once and keeps them for its epochs."""
    units, work = case("sequential", P)
    assert timeline(operator(name, units, work), P).network_bytes == pytest.approx(reads * D, rel=0.05)


def test_full_replication() -> None:
    """p D: as many tasks as workers, each of which reads all rows; or hops for which every worker has every shard."""
    units, work = case("sequential", P, P)
    assert timeline(operator("model_task_parallel", units, work), P).network_bytes == pytest.approx(P * D, rel=0.05)
    units, work = case("sequential", P, 40)
    everywhere = replace(work, hops=Hops(replicas=P))
    assert timeline(Mop(units, everywhere), P).network_bytes == pytest.approx(P * D, rel=0.05)


def test_data_parallel_on_processes() -> None:
    """k m p |S| ⌈|D| / b⌉ with b rows a batch of all workers together: each gives its gradients to the others in every batch.

    m are the bytes of a model's parameters in single precision. What the members say of the finished models moves once more.
    """
    pytest.importorskip("ray")
    features, hidden, rows, batch, epochs, workers = 6, 128, 20_000, 256, 4, 2
    names = [f"x{number}" for number in range(features)]
    columns = ", ".join(f"hash(i, {number}) % 1000 / 1000 AS {name}" for number, name in enumerate(names))
    with grouplearn.connect(progress=False) as con:
        con.execute(f"CREATE TABLE t AS SELECT {columns}, x0 + x1 > 1 AS y FROM range({rows}) AS r(i)")
        con.execute(
            f"TRAIN MODEL m USING mlp PREDICT y FEATURES ({', '.join(names)}) FROM t OVER GRID (learning_rate IN (0.1, 0.01)) "
            f"VALIDATE NONE WITH (executor = 'ray', operator = 'data_parallel', workers = {workers}, epochs = {epochs}, "
            f"hidden_layers = [{hidden}], batch_size = {batch})"
        )
        ((moved,),) = con.execute("SELECT sum(fetched) FROM grouplearn.units WHERE kind = 'descend'").fetchall()
    model_bytes = 4 * ((features + 1) * hidden + hidden + 1)
    assert moved == pytest.approx(epochs * model_bytes * workers * 2 * -(-rows // batch), rel=0.05)
