"""What the cost model knows of learners and of the machine: measured defaults, and corrections from real runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np  # for its median: importing the statistics module takes 8 ms of the 85 that opening a connection takes

from grouplearn.amounts import counted
from grouplearn.learners import registry
from grouplearn.learners.contract.cost import UNKNOWN, Coefficients
from grouplearn.plan.cost.pilot import pilot_ratio

#: The machine that the defaults were measured on.
MEASURED_ON = "2 cores of an x86-64 cloud server, 2.6 GHz, one thread"


@dataclass(frozen=True, slots=True)
class Machine:
    """What moving data and starting work cost besides the arithmetic, in seconds and bytes per second.

    ``load`` is seconds per load of a group, ``encode`` per value of it. The workers of a gang wait for each other in every
    round: ``exchange`` is the wait for a leaf's histograms (2 workers: 0.08 ms on 20,000 rows, 0.35 to 0.5 on 200,000),
    ``descend`` for a batch's gradients (1.2 to 1.4 ms with torch's own work; 0.23 for the all-reduce alone). ``local_step``
    is the overhead of a step of a unit that workers of one process share (1.0 to 1.4 ms in averaging). CALIBRATE starts no
    cluster, so it does not measure these three, ``ray_start`` and ``ray_unit``.
    """

    load: float = 7e-4
    encode: float = 4e-8
    memory: float = 1.0e10
    disk: float = 1.0e9
    network: float = 1.5e9
    latency: float = 1e-5
    exchange: float = 4e-4
    descend: float = 1.3e-3
    local_step: float = 1e-3
    ray_unit: float = 3.5e-3
    ray_start: float = 3.0


#: Units of the fields above, as CALIBRATE shows them.
UNITS: Mapping[str, str] = MappingProxyType(
    {
        "gradient": "s per row x feature x output x config x pass",
        "row": "s per row x output x config x pass",
        "update": "s per update of a config",
        "step": "s per update of a pack",
        "read": "s per row x feature",
        "config": "s per config",
        "group": "s per group",
        "load": "s per load of a group",
        "encode": "s per value",
        "memory": "bytes/s",
        "disk": "bytes/s",
        "network": "bytes/s",
        "latency": "s per message",
        "exchange": "s per round",
        "descend": "s per batch",
        "local_step": "s per step of a unit",
        "ray_unit": "s per unit",
        "ray_start": "s",
    }
)


def default(way: str) -> Coefficients:
    """Return the coefficients that a learner's way declares; those of an unknown learner if there is no such way."""
    known = registry.by_way(way)
    return UNKNOWN if known is None else known.cost.coefficients


@dataclass(frozen=True, slots=True)
class Rates:
    """The coefficients that planning uses; ``learners`` has the ways whose coefficients differ from their declaration.

    ``calibrated`` is the ISO date on which they were measured here, if they were. ``runs`` has the corrections from the
    latest runs of a learner, newest last.
    """

    learners: Mapping[str, Coefficients] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)
    calibrated: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def of(self, learner: str) -> Coefficients:
        """Return the learner's coefficients."""
        return self.learners.get(learner) or default(learner)

    def said(self, learner: str) -> str:
        """Return in words where a learner's coefficients come from, and how well they fit what has run here."""
        date, runs = self.calibrated.get(learner), self.runs.get(learner, ())
        source = f"calibrated on this machine on {date}" if date else "defaults"
        if not runs:
            return source if date else f"{source}, within a factor of about 5; CALIBRATE measures this machine"
        factor = self.of(learner).correction
        corrected = f"{source}, times {factor:.2g} after {counted(len(runs), 'run')} on this machine"
        if len(runs) == 1:
            return corrected
        return (
            f"{corrected}, which took {min(runs) / factor:.2g} to {max(runs) / factor:.2g} times what is now estimated"
        )


def of_runs(runs: Sequence[float]) -> float:
    """Return the median of the corrections: single runs may be disturbed."""
    return float(np.median(runs))


def corrected(known: Coefficients, measurements: Sequence[tuple[float, float]]) -> Coefficients:
    """Return the coefficients after a pilot run of (estimated, measured) seconds per unit.

    ``correction' = correction * clip(median(measured / estimated), 1/10, 10)``: the median, as whatever else runs disturbs
    single units. Fewer than three units of at least 10 ms change nothing.
    """
    ratio = pilot_ratio(measurements)
    return known if ratio is None else replace(known, correction=known.correction * ratio)
