"""A plan as one JSON document."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, replace
from typing import Any

from grouplearn.kernels.build import builds
from grouplearn.plan.cost import durations as cost
from grouplearn.plan.epoch_rounds import rounds_of_epoch
from grouplearn.plan.explain import facts as explain
from grouplearn.plan.explain.measured import Measured, Side
from grouplearn.plan.operator_choice import Candidate, Choice
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.schedule.closed_forms import WorkSizes
from grouplearn.schedule.operators import OPERATORS


def explain_json(physical: PhysicalPlan, choice: Choice, measured: Measured | None = None) -> str:
    """Return the facts of the plan for programs: numbers unrounded, where the text of the plan rounds them."""
    document = {
        "summary": explain.summary(physical, choice),
        **_facts(physical),
        "logical_plan": [line.strip() for line in explain.logical_plan(physical).lines()],
        "physical_plan": [line.strip() for line in explain.physical_plan(physical, choice).lines()],
        "operators": [_operator(candidate, physical, choice) for candidate in choice.candidates],
        "operator": choice.operator,
        "operator_options": explain.own_options(physical, choice),
        "executor": choice.executor,
        "workers": choice.workers,
        "simulated_workers": choice.simulated,
        "reasons": {"operator": choice.why, "executor": choice.reason, "workers": choice.why_workers},
        "coefficients": physical.rates.said(physical.bound.learner.way),
        "kernels": builds.name(),
    }
    if measured is not None:
        document["estimated"], document["measured"] = _part(measured.estimated), _part(measured.measured)
        document["measured_over_estimated"] = measured.ratio
    return json.dumps(document, indent=2)


def _facts(physical: PhysicalPlan) -> dict[str, Any]:
    bound = physical.bound
    sizes = physical.stats.rows
    return {
        "model": bound.name,
        "learner": bound.learner.declaration.name,
        "solver": bound.learner.declaration.solver or None,
        "access": bound.learner.access.words,
        "task": physical.label.name,
        "label": bound.target and bound.target.name,
        "classes": list(physical.stats.classes),
        "metric": physical.metric,
        "holdout": bound.holdout.kind,
        "rows": physical.stats.n_rows,
        "groups": len(sizes),
        "group_rows": {
            "least": min(sizes, default=0),
            "median": statistics.median(sizes) if sizes else 0,
            "most": max(sizes, default=0),
        },
        "rows_skipped": dict(physical.unused.skipped),
        "rows_failing": dict(physical.unused.failing),
        "groups_failing": dict(physical.unused.groups),
        "features": len(bound.items),
        "columns": physical.width,
        "configurations": len(bound.configs),
        "packs": [len(pack) for pack in explain.packs(physical)],
    }


def _operator(candidate: Candidate, physical: PhysicalPlan, choice: Choice) -> dict[str, Any]:
    price = explain.money(candidate, physical, choice.simulated)
    return {
        "operator": candidate.operator,
        "chosen": candidate.operator == choice.operator,
        "refused": dict(choice.refused).get(candidate.operator),
        "units": candidate.units,
        "loads": candidate.loads,
        "makespan_seconds": candidate.makespan,
        "idle_share": candidate.idle,
        "network_bytes": candidate.network_bytes,
        "peak_bytes_per_worker": candidate.peak_bytes,
        "workers_used": candidate.used,
        "cost": price,
        "closed_form_seconds": _closed_form(candidate, physical, choice.simulated),
    }


def _closed_form(candidate: Candidate, physical: PhysicalPlan, workers: int) -> dict[str, float] | None:
    """Return kingpin's terms of the operator's time, summed over workers, and their total; None without a closed form."""
    form = OPERATORS[candidate.operator].closed_form
    if form is None:
        return None
    known = physical.rates.of(physical.bound.learner.way)
    machine = replace(physical.rates.machine, exchange=physical.round_seconds)
    parts = form(workload(physical, workers), known, machine)
    return asdict(parts) | {"total": parts.total(workers)}


def workload(physical: PhysicalPlan, workers: int) -> WorkSizes:
    """Return the plan in the symbols of the closed forms; passes and model size are means over configurations."""
    bound, configs = physical.bound, physical.bound.configs
    typical = physical.rates.of(bound.learner.way).typical_epochs
    passes = [bound.learner.cost.passes(config, physical.epochs) for config in configs]
    most = max(passes, default=1) if typical is None else typical
    rows = physical.stats.rows
    first = configs[0]
    sent = cost.gradient_bytes(bound.learner, configs, physical.width, physical.outputs)
    return WorkSizes(
        rows=rows,
        updates=tuple(bound.learner.cost.updates(first, n_rows, physical.stored) for n_rows in rows),
        steps=tuple(bound.learner.cost.steps(first, n_rows) for n_rows in rows),
        configs=len(configs),
        passes=round(statistics.mean(min(each, most) for each in passes)) if passes else 1,
        workers=workers,
        width=physical.stored,
        outputs=physical.outputs,
        row_bytes=physical.row_bytes,
        model_bytes=cost.state_bytes(bound.learner, configs, physical.width, physical.outputs) // max(1, len(configs)),
        rounds=physical.epoch_rounds if bound.learner.access.in_rounds else rounds_of_epoch(physical, workers),
        gradient_bytes=sent // max(1, len(configs)),
        options=bound.options.of_operators,
    )


def _part(part: Side) -> dict[str, float]:
    return {
        "makespan_seconds": part.makespan,
        "idle_share": part.idle,
        "workers_used": part.workers,
        "units": part.units,
        "work_seconds": part.work,
        "median_unit_seconds": part.median,
        "longest_unit_seconds": part.worst,
    }
