"""The comparison of Cerebro 5.4 (Nakandala, Zhang and Kumar 2020, Figure 6): makespans and planning times of mop's schedulers.

16 and 256 configurations on 8 and 16 workers, all alike or drawn from 35 networks and 4 processors, five seeds: the real state
machine of operator mop on the simulated runtime, one epoch. Makespans are shown in units of the randomised scheduler's, as
mean (least to most) over the seeds; ``bound`` is the most that a worker or a configuration has to do, which no schedule
beats. Then what the paper leaves out: 1,000 workers.

    python benchmarks/schedulers.py [--work W] [--skip-large]
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from _pairs import write

from grouplearn.runtime.simulated import Timeline, simulate
from grouplearn.schedule.messages import BlockRange, StepKind, Unit
from grouplearn.schedule.mop import open_shop
from grouplearn.schedule.mop.hopper import Mop
from grouplearn.schedule.mop.shop import OpenShop
from grouplearn.schedule.workload import Hops, Scheduler, Workload

#: MFLOP of a forward pass of 35 networks (github.com/albanie/convnet-burden, the paper's source): 360 to 21,000, mean 5,942.
NETWORKS = (
    *(727, 724, 837, 360, 727, 2000, 3000, 2000, 2000, 2000, 16000, 16000, 20000, 2000, 2000, 4000, 4000, 8000),
    *(11000, 4000, 8000, 16000, 6000, 4000, 8000, 11000, 4000, 8000, 21000, 2000, 3000, 8000, 3000, 4000, 579),
)
#: TFLOP/s of Titan Xp, K80, GTX 1080 and P100, as the paper has them.
PROCESSORS = (12.1, 5.6, 11.3, 18.7)
#: Most binary variables that the exact scheduler is asked to decide on.
MOST_BINARY = 500
SEEDS = range(5)
#: Configurations and workers: one that can be scheduled exactly, and those of the paper.
SHAPES = ((6, 4), (16, 8), (16, 16), (256, 8), (256, 16))


@dataclass(frozen=True)
class Timed(Workload):
    """A workload whose sub-epochs take the times of a table (units, workers), and nothing else takes any."""

    table: Any = None

    def cost(self, unit: Unit, kind: StepKind, blocks: BlockRange | None) -> float:
        return float(self.table[unit.id, blocks.first]) if kind == "train" and blocks is not None else 0.0


def times(configs: int, workers: int, alike: bool, seed: int) -> Any:
    """Return the seconds of every sub-epoch: cost of the configuration over speed of the worker."""
    chance = np.random.default_rng(seed)
    if alike:
        return np.ones((configs, workers))
    return chance.choice(NETWORKS, configs)[:, None] / chance.choice(PROCESSORS, workers)[None, :] / 1000


def scheduled(table: Any, scheduler: Scheduler, seed: int) -> tuple[Timeline, float]:
    """Return the simulated run and the processor time of the scheduler and the simulation together."""
    configs, workers = table.shape
    units = [Unit(number, 0, (number,), cost=1.0) for number in range(configs)]
    hops = Hops(scheduler, seed)
    workload = Timed("sequential", (workers,), workers, 1, 1, hops=hops, table=table)
    open_shop._planned.cache_clear()
    began = time.process_time()
    timeline = simulate(Mop(units, workload), workers, lambda _: 0.0)
    return timeline, time.process_time() - began


def binaries(configs: int, workers: int) -> int:
    return configs * workers * (workers - 1) // 2 + workers * configs * (configs - 1) // 2


def compared(configs: int, workers: int, alike: bool, work: float) -> dict[str, Any]:
    """Return every scheduler's makespans in units of the randomised one's, and its seconds."""
    open_shop.starts_of.__defaults__ = (work,)  # as the state machine calls it
    found: dict[str, Any] = {"configs": configs, "workers": workers, "alike": alike}
    schedulers: list[Scheduler] = ["randomized", "vector"]
    if binaries(configs, workers) <= MOST_BINARY:
        schedulers.append("exact")
    relative: dict[str, list[float]] = {name: [] for name in (*schedulers, "bound")}
    seconds: dict[str, list[float]] = {name: [] for name in schedulers}
    for seed in SEEDS:
        table = times(configs, workers, alike, seed)
        spans = {}
        for name in schedulers:
            timeline, took = scheduled(table, name, seed)
            spans[name] = timeline.makespan
            seconds[name].append(took)
        spans["bound"] = OpenShop({visit: float(span) for visit, span in np.ndenumerate(table)}).bound
        for name, span in spans.items():
            relative[name].append(span / spans["randomized"])
    found["relative"] = relative
    found["seconds"] = {name: statistics.median(each) for name, each in seconds.items()}
    best = [min(each) for each in zip(*relative.values(), strict=True)]
    found["randomized_over_bound"] = statistics.fmean(1 / each for each in relative["bound"])
    found["randomized_over_best"] = statistics.fmean(1 / each for each in best)
    return found


def show(row: dict[str, Any]) -> None:
    kind = "alike" if row["alike"] else "mixed"
    cells = []
    for name in ("vector", "exact", "bound"):
        each = row["relative"].get(name)
        cells.append(
            f"{name} {statistics.fmean(each):.3f} ({min(each):.3f} to {max(each):.3f})" if each else f"{name} too large"
        )
    took = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in row["seconds"].items())
    print(f"{row['configs']:4} x {row['workers']:2} {kind}: {'; '.join(cells)}   [{took}]", flush=True)


def beyond(configs: int, workers: int, alike: bool) -> dict[str, Any]:
    table = times(configs, workers, alike, 0)
    timeline, took = scheduled(table, "randomized", 0)
    over = timeline.makespan / OpenShop({visit: float(span) for visit, span in np.ndenumerate(table)}).bound
    name = f"{configs:,} x {workers:,} {'alike' if alike else 'mixed'}"
    print(f"{name}: makespan {over:.3f} of the bound, idle {timeline.idle_share:.1%}, {took:.1f} s", flush=True)
    return {"name": name, "over_bound": over, "idle": timeline.idle_share, "seconds": took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=float, default=1e9, help="of each exact schedule, see open_shop")
    parser.add_argument("--skip-large", action="store_true", help="leave out 1,000 workers")
    arguments = parser.parse_args()
    print("makespans in units of the randomised scheduler's")
    rows = []
    for alike in (True, False):
        for configs, workers in SHAPES:
            rows.append(compared(configs, workers, alike, arguments.work))
            show(rows[-1])
    extra = []
    if not arguments.skip_large:
        print("\nthe randomised scheduler on 1,000 workers")
        extra = [beyond(1000, 1000, alike) for alike in (True, False)]
    write(__file__, [{"compared": rows, "beyond": extra}])


if __name__ == "__main__":
    main()
