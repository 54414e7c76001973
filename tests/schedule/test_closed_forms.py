"""The closed forms of kingpin 3 and 4.6 against cases worked out by hand, and against the simulated schedules."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grouplearn.plan.cost.coefficients import Coefficients, Machine
from grouplearn.runtime.simulated import simulate
from grouplearn.schedule.closed_forms import (
    Parts,
    Weights,
    WorkSizes,
    averaging,
    data_parallel,
    gap,
    group_task_parallel,
    model_task_parallel,
    parameter_server,
)
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.operators import OPERATORS
from grouplearn.schedule.task_parallel import GroupTaskParallel

FORMS = {name: declared.closed_form for name, declared in OPERATORS.items() if declared.closed_form is not None}
#: One second per row, pass and config, and per update; a byte takes a second on any way.
LEARNER = Coefficients(gradient=0.5, row=0.0, update=1.0, step=0.0, read=0.0, config=0.0, group=0.0)
MACHINE = Machine(memory=1.0, disk=1.0, network=1.0, latency=1.0, exchange=0.5)
#: n = 10, n_max = 6, s = 3, h = 2, p = 2; rows of 2 values and 1 byte, models of 5 bytes.
WORK = WorkSizes((6, 4), (1, 1), (1, 1), 3, 2, 2, width=2, outputs=1, row_bytes=1, model_bytes=5)


def test_group_task_parallel_by_hand() -> None:
    parts = group_task_parallel(WORK, LEARNER, MACHINE)
    # s h [f_grad(n) + g f_update] = 6 (10 + 2); idle: half of f_net(6) + 6 (6 + 1)
    assert parts == Parts(compute=72.0, memory=60.0, disk=0.0, network=10.0, idle=0.5 * (6 + 42))
    assert parts.total(2) == (72 + 10) / 2 + 24
    assert parts.total(2, Weights(1, 1, 1, 1, 0)) == (72 + 60 + 10) / 2


def test_model_task_parallel_by_hand() -> None:
    parts = model_task_parallel(WORK, LEARNER, MACHINE)
    # s - p = 1 further load of the 10 rows from disk, a copy for both workers; idle: f_disk(6) + h (6 + 1)
    assert parts == Parts(compute=72.0, memory=60.0, disk=10.0, network=20.0, idle=0.5 * (6 + 14))


def test_data_parallel_by_hand() -> None:
    parts = data_parallel(WORK, LEARNER, MACHINE)
    # s h Σ steps = 12 all-reduces of 2 (p - 1) m = 10 bytes, 2 (p - 1) messages and one wait for all
    assert parts == Parts(compute=72.0, memory=60.0, disk=0.0, network=10.0 + 120.0, idle=24.0 + 6.0)


def test_gap_by_hand() -> None:
    parts = gap(WORK, LEARNER, MACHINE)
    # f_net(n) + s h m p = 10 + 3 2 5 2; one wait per pass
    assert parts == Parts(compute=72.0, memory=60.0, disk=0.0, network=10.0 + 60.0, idle=2.0)


def test_averaging_by_hand() -> None:
    # f_net(n) + s h g 2 m (p - 1) = 10 + 3 2 2 2 5; two waits per pass and group
    assert averaging(WORK, LEARNER, MACHINE) == Parts(
        compute=72.0, memory=60.0, disk=0.0, network=10.0 + 120.0, idle=8.0
    )
    # seven rounds to a pass, in which 3 bytes of gradients are sent and 5 of a model come back
    often = averaging(replace(WORK, rounds=7, gradient_bytes=3, options={"send": "gradient"}), LEARNER, MACHINE)
    assert often == Parts(compute=72.0, memory=60.0, disk=0.0, network=10.0 + 7 * 12 * (5 + 3), idle=56.0)
    assert averaging(replace(WORK, rounds=7, workers=1), LEARNER, MACHINE).idle == 0.0


def test_a_parameter_server_waits_less_the_more_stale_it_may_be() -> None:
    mean = averaging(replace(WORK, rounds=7), LEARNER, MACHINE)
    for staleness, idle in ((0, 56.0), (1, 28.0), (3, 14.0)):
        found = parameter_server(
            replace(WORK, rounds=7, gradient_bytes=3, options={"staleness": staleness}), LEARNER, MACHINE
        )
        assert found == replace(mean, idle=idle), "models are pushed, whatever averaging is to send"


def test_packs_take_their_steps_once() -> None:
    stepping = replace(LEARNER, update=0.0, step=1.0)
    assert group_task_parallel(WORK, stepping, MACHINE).compute == 2 * (3 * 10 + 2)
    assert model_task_parallel(WORK, stepping, MACHINE).compute == 2 * 3 * (10 + 2)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_one_worker_waits_for_nobody(name: str) -> None:
    alone = FORMS[name](replace(WORK, workers=1), LEARNER, replace(MACHINE, disk=1e30))
    assert (alone.idle, alone.network) == (0.0, 10.0)
    assert alone.total(1) == 72.0 + 10.0


@pytest.mark.parametrize("name", sorted(FORMS))
@given(
    rows=st.lists(st.integers(1, 10_000), min_size=1, max_size=8),
    configs=st.integers(1, 20),
    passes=st.integers(1, 50),
    workers=st.integers(1, 16),
)
def test_more_rows_configs_and_passes_never_take_less(
    name: str, rows: list[int], configs: int, passes: int, workers: int
) -> None:
    form, machine = FORMS[name], Machine()
    ones = (1,) * len(rows)
    work = WorkSizes(tuple(rows), ones, ones, configs, passes, workers, 4, 1, 48, 400)
    total = form(work, LEARNER, machine).total(workers)
    for more in (
        replace(work, rows=tuple(count + 1 for count in rows)),
        replace(work, configs=configs + 1),
        replace(work, passes=passes + 1),
    ):
        assert form(more, LEARNER, machine).total(workers) >= total


@given(rows=st.lists(st.integers(1, 1000), min_size=1, max_size=20), workers=st.integers(1, 8))
def test_task_parallelism_is_bounded_by_its_closed_form(rows: list[int], workers: int) -> None:
    ones = (1,) * len(rows)
    work = WorkSizes(tuple(rows), ones, ones, 3, 2, workers, 2, 1, row_bytes=0, model_bytes=0)
    costs = [3 * 2 * (count + 1.0) for count in rows]
    units = [Unit(number, number, (0, 1, 2), cost=seconds) for number, seconds in enumerate(costs)]
    simulated = simulate(GroupTaskParallel(units), workers, lambda group: 0.0).makespan
    bound = group_task_parallel(work, LEARNER, MACHINE).total(workers)
    # Graham 1969: W/p <= makespan <= W/p + (1 - 1/p) of the longest task
    assert max(sum(costs) / workers, max(costs)) - 1e-6 <= simulated <= bound + 1e-6
