"""Paired timing for the scripts beside it: us and the alternative in one run, medians, quality checked, a table and JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Workload:
    """Two ways to the same models. ``check(ours, theirs)`` says in a few words how far ours are from theirs, and whether
    that is as good; ``target`` is the ratio that is claimed."""

    name: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    check: Callable[[Any, Any], tuple[str, bool]]
    target: float


def run(workload: Workload, runs: int, long_seconds: float = 60.0) -> dict[str, Any]:
    """Time one pair to warm up and ``runs`` pairs; a side that takes longer than ``long_seconds`` is timed once."""
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    found: dict[str, Any] = {}
    for attempt in range(runs + 1):
        for side, work in (("theirs", workload.theirs), ("ours", workload.ours)):
            if attempt and seconds[side][0] > long_seconds and len(seconds[side]) > (side == "ours"):
                continue
            began = time.perf_counter()
            found[side] = work()
            seconds[side].append(time.perf_counter() - began)
    medians = {side: statistics.median(times[1:] or times) for side, times in seconds.items()}
    difference, equal = workload.check(found["ours"], found["theirs"])
    ratio = medians["theirs"] / medians["ours"]
    return {
        "workload": workload.name,
        "ours_seconds": round(medians["ours"], 3),
        "theirs_seconds": round(medians["theirs"], 3),
        "ratio": round(ratio, 2),
        "target": workload.target,
        "difference": difference,
        "equal_quality": bool(equal),
        "met": bool(equal and ratio >= workload.target),
    }


def show(row: dict[str, Any]) -> None:
    """Print one line of the table."""
    mark = "" if row["equal_quality"] else "  NOT EQUAL"
    print(
        f"{row['workload']:62} ours {row['ours_seconds']:8.2f} s   theirs {row['theirs_seconds']:8.2f} s   "
        f"{row['ratio']:6.1f}x (target {row['target']:g}x)   {row['difference']}{mark}",
        flush=True,
    )


def write(script: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write the results to ``build/bench/<script>.json`` of the project, with the machine's name."""
    target = Path(script).resolve().parent.parent / "build" / "bench" / f"{Path(script).stem}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()}
    target.write_text(json.dumps({"machine": machine, "results": list(rows)}, indent=2) + "\n")
    print(f"written to {target}")
