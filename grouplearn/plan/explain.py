"""EXPLAIN TRAIN: the plan as lines of text or as JSON; deterministic, estimates rounded to two digits."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from grouplearn.data.encoders import DENSE_COLUMNS
from grouplearn.plan.bound import BoundTrain
from grouplearn.plan.physical import RAY_REPAYS_SECONDS, PhysicalPlan


@dataclass(frozen=True, slots=True)
class Candidate:
    """An operator as the simulated runtime ran it: seconds of makespan, share of worker time idle, loads of a group."""

    operator: str
    units: int
    loads: int
    makespan: float
    idle: float


@dataclass(frozen=True, slots=True)
class Choice:
    """What will run where, and why."""

    operator: str
    executor: str
    workers: int
    reason: str
    candidates: tuple[Candidate, ...]


def choose(physical: PhysicalPlan, candidates: Sequence[Candidate], ray_installed: bool) -> Choice:
    """Pick the operator with the smallest simulated makespan, and Ray only where the work repays starting it."""
    options = physical.bound.options
    best = min(candidates, key=lambda candidate: (round(candidate.makespan, 6), candidate.loads))
    operator = best.operator if options.operator == "auto" else options.operator
    executor, reason = options.executor, "as asked"
    if executor == "auto":
        repays = physical.serial_seconds >= RAY_REPAYS_SECONDS and physical.workers > 1
        executor = "ray" if repays and ray_installed else "local"
        work = f"about {rounded_seconds(physical.serial_seconds)} of work"
        reason = f"{work} {'repays' if repays else 'does not repay'} starting Ray (from {RAY_REPAYS_SECONDS:g} s)"
        if repays and not ray_installed:
            reason += ", but ray is not installed: pip install 'grouplearn[ray]'"
    return Choice(operator, executor, physical.workers, reason, tuple(candidates))


def explain_text(physical: PhysicalPlan, choice: Choice) -> list[str]:
    """Return the plan, a line per fact."""
    bound = physical.bound
    return [
        f"TRAIN MODEL {bound.name}",
        f"  {bound.learner.name} ({bound.learner.access.value}), {physical.task.value}: {_label(physical)}",
        f"  optimize {physical.metric}, {_holdout(bound)}",
        "Rows",
        f"  {physical.stats.n_rows:,} rows, {_groups(physical)}",
        f"  {_features(physical)}, {'dense' if _is_dense(physical) else 'sparse'}",
        "Trials",
        f"  {_trials(physical)}",
        "Operators (simulated)",
        *_operator_lines(choice),
        "Executor",
        f"  {choice.executor}, {choice.workers} {_plural(choice.workers, 'worker')}: {choice.reason}",
    ]


def explain_json(physical: PhysicalPlan, choice: Choice) -> str:
    """Return the same facts as one JSON document."""
    bound = physical.bound
    sizes = [group.n_rows for group in physical.stats.groups]
    document = {
        "model": bound.name,
        "learner": bound.learner.name,
        "task": physical.task.value,
        "label": bound.target.name,
        "classes": list(physical.stats.classes),
        "metric": physical.metric,
        "holdout": bound.holdout.kind,
        "rows": physical.stats.n_rows,
        "groups": len(sizes),
        "group_rows": {"least": min(sizes, default=0), "most": max(sizes, default=0)},
        "features": len(bound.items),
        "columns": physical.width,
        "configurations": len(bound.configs),
        "packs": [len(pack) for pack in _packs(physical)],
        "operators": [
            {
                "operator": candidate.operator,
                "chosen": candidate.operator == choice.operator,
                "units": candidate.units,
                "loads": candidate.loads,
                "makespan_seconds": _two_digits(candidate.makespan),
                "idle_share": round(candidate.idle, 2),
            }
            for candidate in choice.candidates
        ],
        "executor": choice.executor,
        "workers": choice.workers,
        "reason": choice.reason,
    }
    return json.dumps(document, indent=2)


def _features(physical: PhysicalPlan) -> str:
    items, width = len(physical.bound.items), physical.width
    return f"{items:,} {_plural(items, 'feature')} as {width:,} {_plural(width, 'column')}"


def _label(physical: PhysicalPlan) -> str:
    target, classes = physical.bound.target, physical.stats.classes
    if not target.classification:
        return _on_one_line(target.name)
    shown = ", ".join(map(_on_one_line, classes[:6])) + (", ..." if len(classes) > 6 else "")
    return f"{_on_one_line(target.name)}, {len(classes)} {_plural(len(classes), 'class', 'classes')} ({shown})"


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _holdout(bound: BoundTrain) -> str:
    holdout = bound.holdout
    if holdout.kind == "where" and holdout.predicate:
        return f"validated on rows WHERE {_on_one_line(holdout.predicate.text)}"
    if holdout.kind == "sample":
        return f"validated on {100 * holdout.share:g}% of each group"
    return f"validated on {holdout.folds} folds" if holdout.kind == "folds" else "not validated: every row trains"


def _groups(physical: PhysicalPlan) -> str:
    bound, groups = physical.bound, physical.stats.groups
    finest = [group.n_rows for group in groups if group.level == 0]
    if not finest:
        return "no group passes HAVING" if bound.statement.having else "no group"
    if not bound.keys:
        return "one group"
    names = ", ".join(key.stored.name for key in bound.keys)
    largest = max(finest) / max(1, physical.stats.n_rows)
    skew = f"{min(finest):,} to {max(finest):,} rows, median {statistics.median(finest):,.0f}, largest {largest:.1%}"
    levels = "" if len(bound.sets) == 1 else f" and {len(groups) - len(finest):,} of coarser levels"
    return f"{len(finest):,} {_plural(len(finest), 'group')} by {names}{levels} ({skew})"


def _trials(physical: PhysicalPlan) -> str:
    groups, configs = len(physical.stats.groups), len(physical.bound.configs)
    if not groups:
        return f"none: no group for {configs:,} {_plural(configs, 'configuration')}"
    packs = _packs(physical)
    sizes = sorted({len(pack) for pack in packs}, reverse=True)
    size = f"of {sizes[0]}" if len(sizes) == 1 else f"of {sizes[-1]} to {sizes[0]}"
    folds = physical.bound.holdout.folds
    per = f", each {folds} folds and the final fit" if folds else ""
    epochs = f", at most {physical.epochs} epochs" if physical.bound.learner.default_epochs else ""
    return (
        f"{groups * configs:,} = {groups:,} {_plural(groups, 'group')} x {configs:,} {_plural(configs, 'configuration')}, "
        f"{len(packs)} {_plural(len(packs), 'pack')} {size} per group{per}{epochs}"
    )


def _packs(physical: PhysicalPlan) -> list[tuple[int, ...]]:
    return list(dict.fromkeys(unit.configs for unit in physical.units))


def _operator_lines(choice: Choice) -> list[str]:
    rows = [("operator", "units", "loads", "makespan", "idle", "")]
    for candidate in choice.candidates:
        mark = "<- chosen" if candidate.operator == choice.operator else ""
        makespan, idle = rounded_seconds(candidate.makespan), f"{candidate.idle:.0%}"
        rows.append((candidate.operator, f"{candidate.units:,}", f"{candidate.loads:,}", makespan, idle, mark))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return [
        (
            "  "
            + row[0].ljust(widths[0])
            + "".join(f"  {row[c].rjust(widths[c])}" for c in range(1, 5))
            + f"  {row[5]}"
        ).rstrip()
        for row in rows
    ]


def _is_dense(physical: PhysicalPlan) -> bool:
    return physical.width <= DENSE_COLUMNS


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def rounded_seconds(seconds: float) -> str:
    """Return a duration as a person says it: ``0.36 s``, ``12 s``, ``3.2 min``."""
    if seconds < 90:
        return f"{_two_digits(seconds):g} s"
    return f"{_two_digits(seconds / 60):g} min" if seconds < 5400 else f"{_two_digits(seconds / 3600):g} h"


def _plural(count: int, one: str, many: str | None = None) -> str:
    return one if count == 1 else many or one + "s"
