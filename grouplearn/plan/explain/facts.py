"""EXPLAIN TRAIN: the facts about a plan that its text, JSON and HTML share; deterministic, estimates in two digits."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grouplearn.amounts import amount_of_bytes, counted, on_one_line, plural, rounded_seconds, share
from grouplearn.bind.bound import BoundTrain, Holdout
from grouplearn.data import encoders
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.interrupting import with_checks
from grouplearn.kernels.build import builds
from grouplearn.learners.contract.optional import ExplainsTraining
from grouplearn.plan.operator_choice import Candidate, Choice
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.plan.results_memory import results_bytes
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.operators import OPERATORS
from grouplearn.search.procedures import SearchPlan
from grouplearn.sqltext import literal

_TEXT = 72
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a displayed plan: a line, and the node its rows come from."""

    line: str
    source: Node | None = None

    def lines(self) -> list[str]:
        """Return the nodes from the root down, one line each, indented by depth."""
        lines: list[str] = []
        node: Node | None = self
        while node is not None:
            lines.append("  " * len(lines) + node.line)
            node = node.source
        return lines


def summary(physical: PhysicalPlan, choice: Choice) -> str:
    """Return the plan in one line: how long it will take, how many models of how many groups, and which rows are left out."""
    rows = counted(physical.stats.n_rows, "row")
    skipped, failing = (
        sum(number for _, number in counts) for counts in (physical.unused.skipped, physical.unused.groups)
    )
    parts = [
        _duration(choice.chosen.makespan),
        _models(physical, failing),
        f"{skipped:,} of {rows} skipped" if skipped else rows,
    ]
    if failing:
        parts.append(f"{counted(failing, 'group')} {plural(failing, 'fails', 'fail')}")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    return "less than a second" if seconds < 1 else f"about {rounded_seconds(seconds)}"


def _models(physical: PhysicalPlan, failing: int) -> str:
    """Return the number of models, and of groups; a search may go on to more of them, and ``failing`` groups have none."""
    bound, groups = physical.bound, len(physical.stats.groups)
    if groups <= failing:
        return "no model"
    configs = len(bound.configs) if bound.search is None else bound.search.most_trials(len(bound.configs))
    most = "up to " if bound.search is not None else ""
    models = f"{most}{counted((groups - failing) * configs, 'model')}"
    return f"{models} of {counted(groups, 'group')}" if bound.keys else f"{models} of all rows"


def logical_plan(physical: PhysicalPlan) -> Node:
    """Return the logical plan, from the training down to the scan."""
    bound, statement = physical.bound, physical.bound.statement
    node = Node(f"Scan: {on_one_line(statement.source.text, _TEXT)}")
    if statement.where:
        node = Node(f"Filter: {on_one_line(statement.where.text, _TEXT)}", node)
    node = Node(f"{node.line}, {counted(physical.stats.n_rows, 'row')}", node.source)
    node = Node(f"Features: {_features(physical)}", node)
    for done, counts in (("Skip", physical.unused.skipped), ("Fail groups of", physical.unused.failing)):
        if counts:
            rows = (f"{counted(number, 'row')} {reason}" for reason, number in counts)
            node = Node(f"{done}: {', '.join(rows)}", node)
    if bound.keys:
        node = Node(f"Group: by {_keys(bound)}{_levels(bound)}", node)
    if physical.unused.groups:
        found = (f"{counted(number, 'group')} {reason}" for reason, number in physical.unused.groups)
        node = Node(f"Fail: {', '.join(found)}", node)
    if statement.having:
        node = Node(f"Having: {on_one_line(statement.having.text, _TEXT)}", node)
    node = Node(f"Validate: {_holdout(bound)}", node)
    if statement.search:
        node = Node(f"Search: {statement.search.method}, {counted(len(bound.configs), 'configuration')}", node)
    if bound.refit:
        node = Node("Refit: the best configuration of each group, on all rows", node)
    elif bound.holdout.split.has_sample:
        node = Node("Refit: each group, on all rows", node)
    what = f"{bound.learner.shown_way}, {_label(physical)}, optimize {physical.metric}"
    return Node(f"Train {on_one_line(bound.name, _TEXT)}: {what}", node)


def physical_plan(physical: PhysicalPlan, choice: Choice) -> Node:
    """Return the physical plan, from the stored trials down to the extract."""
    bound, sizes = physical.bound, physical.stats.rows
    rows = sum(sizes)
    amount = amount_of_bytes(rows * physical.row_bytes)
    node = Node(f"Extract: sorted by {_keys(bound)}" if bound.keys else "Extract: all rows")
    loaded = f"{counted(rows, 'row')} x {counted(physical.stored, 'value')}, {amount}"
    node = Node(f"Load: {counted(choice.chosen.loads, 'time')}, {loaded}", node)
    node = Node(f"Units: {_units(physical)}", node)
    where = f"{choice.executor}, {counted(choice.workers, 'worker')}"
    node = Node(f"Run: {choice.operator}{_bracketed(own_options(physical, choice, unusual=True))}, {where}", node)
    if bound.holdout.split.folds > 1:
        parts = "windows" if bound.holdout.split.rolls else "folds"
        node = Node(f"Merge: means over {bound.holdout.split.folds} {parts}", node)
    kept = amount_of_bytes(results_bytes(physical))
    trials, groups = counted(len(sizes) * len(bound.configs), "trial"), counted(len(sizes), "group")
    return Node(f"Store: {trials} of {groups}, {kept} of memory", node)


def _bracketed(options: Mapping[str, Any]) -> str:
    """Return options as a statement gives them, in brackets; empty if there are none."""
    written = ", ".join(f"{name} = {literal(value)}" for name, value in options.items())
    return f" ({on_one_line(written, _TEXT)})" if written else ""


def own_options(physical: PhysicalPlan, choice: Choice, *, unusual: bool = False) -> dict[str, Any]:
    """Return the chosen operator's own options, or only those that are not at their defaults."""
    declared, options = OPERATORS[choice.operator], physical.bound.options.of_operators
    return declared.unusual(options) if unusual else declared.own(options)


def skew(physical: PhysicalPlan) -> list[str]:
    """Return the sizes of groups: least, median and most rows, the share of the largest, and a histogram."""
    bound, groups = physical.bound, physical.stats.groups
    finest = [group.n_rows for group in with_checks(groups) if group.level == 0]
    if not finest:
        return ["no group passes HAVING" if bound.statement.having else "no group"]
    if not bound.keys:
        return [f"one group of {counted(finest[0], 'row')}"]
    largest = share(max(finest) / max(1, physical.stats.n_rows))
    levels = "" if len(groups) == len(finest) else f", and {len(groups) - len(finest):,} of coarser levels"
    spread = f"{min(finest):,} to {max(finest):,} rows, median {statistics.median(finest):,.0f}"
    return [
        f"{counted(len(finest), 'group')} by {_keys(bound)}{levels}",
        f"{spread}, the largest has {largest} of the rows",
        f"sizes {histogram(finest)}",
    ]


def histogram(sizes: Sequence[int]) -> str:
    """Return group sizes as a row of bars, one per doubling of the size, empty ones as dots.

    ``histogram([1, 2, 3, 9]) == '1 |▄█·▄| 9'``: one group of 1, two of 2 to 3, none of 4 to 7, one of 8 to 15.
    """
    counts: dict[int, int] = {}
    for size in with_checks(sizes):
        counts[size.bit_length()] = counts.get(size.bit_length(), 0) + 1
    most = max(counts.values())
    bars = "".join(_bar(counts.get(doubling, 0), most) for doubling in range(min(counts), max(counts) + 1))
    return f"{min(sizes):,} |{bars}| {max(sizes):,}"


def _bar(count: int, most: int) -> str:
    return _BARS[-(-count * len(_BARS) // most) - 1] if count else "·"


def packs(physical: PhysicalPlan) -> list[tuple[int, ...]]:
    """Return the packs of each group: which configurations train together."""
    return list(dict.fromkeys(unit.configs for tasks in physical.alike for unit in tasks.first))


def trials(physical: PhysicalPlan) -> list[str]:
    """Return how many trials there are, how they are packed, and what the learner says about them."""
    bound = physical.bound
    if not physical.stats.groups:
        return [f"none: no group for {counted(len(bound.configs), 'configuration')}"]
    own = bound.learner.explained(bound.configs) if isinstance(bound.learner, ExplainsTraining) else []
    return [_packed_trials(physical), *_rungs(physical), *own]


def _packed_trials(physical: PhysicalPlan) -> str:
    groups, configs = len(physical.stats.groups), len(physical.bound.configs)
    distinct = packs(physical)
    sizes = sorted({len(pack) for pack in distinct}, reverse=True)
    size = f"of {sizes[0]}" if len(sizes) == 1 else f"of {sizes[-1]} to {sizes[0]}"
    holdout = physical.bound.holdout
    parts = "windows" if holdout.split.rolls else "folds"
    judged = f"{holdout.split.folds} {parts}" if holdout.split.folds > 1 else "a fit that is judged"
    per = f", each {judged} and the final fit" if holdout.split.folds else ""
    epochs = f", at most {physical.epochs} epochs" if physical.bound.learner.declaration.default_epochs else ""
    product = f"{counted(groups, 'group')} x {counted(configs, 'configuration')}"
    rounds = _rounds(physical, configs)
    return f"{groups * configs:,} = {product}, {counted(len(distinct), 'pack')} {size} per group{per}{epochs}{rounds}"


def _rounds(physical: PhysicalPlan, configs: int) -> str:
    """Return what a search procedure does with the trials it begins with."""
    search = physical.bound.search
    if search is None:
        return ""
    name, trials = search.method.upper(), search.most_trials(configs)
    more = f" then up to {counted(trials, 'trial')} per group," if trials > configs else ""
    if search.method == "tpe":
        return f";{more} as {name} proposes"
    spent, whole = search.most_budget(configs), trials * search.budget
    if search.resource == "rows":
        least = f"at least 1/{search.budget} of the rows"
        work = f"as much as {counted(round(spent / search.budget), 'training')} on all rows"
        return f"; {name} trains on {least}, the best on more: {work} per group"
    return f";{more} {name} runs about {spent:,} of {whole:,} {search.resource} per group"


def _rungs(physical: PhysicalPlan) -> list[str]:
    """Return the schedule of a search that stops trials: for each bracket, how many trials get how much."""
    search = physical.bound.search
    if search is None or not search.prunes or not physical.stats.groups:
        return []
    about = "about " if search.method == "asha" else ""
    found = []
    for bracket in search.brackets(len(physical.bound.configs)):
        first, *others = bracket
        more = "".join(f", {about}{rung.trials:,} of {_given(search, rung.budget)}" for rung in others)
        found.append(f"{counted(first.trials, 'trial')} of {_given(search, first.budget)}{more}")
    if search.resource == "rows":
        found.append("trials train anew at each rung, which has more rows of groups with few")
    if search.resource == "iterations":
        found.append(
            "trials that draw rows or features at random, or reweight trees, grow all their trees again at each rung"
            if search.anew
            else "a trial that goes on keeps its trees and adds to them"
        )
    return found


def _given(search: SearchPlan, budget: int) -> str:
    """Return what a rung gives a trial."""
    if search.resource != "rows":
        return counted(budget, search.resource.removesuffix("s"))
    return "all rows" if budget == search.budget else f"{budget}/{search.budget} of the rows"


def money(candidate: Candidate, physical: PhysicalPlan, workers: int) -> float | None:
    """Return ``makespan x workers x price per hour``, None without ``grouplearn_node_price``."""
    price = physical.bound.options.placement.node_price
    return None if price is None else candidate.makespan / 3600 * workers * price


def choices(physical: PhysicalPlan, choice: Choice) -> list[str]:
    """Return the choice and its reasons, and the coefficients behind them."""
    return [
        f"{choice.operator}: {choice.why}",
        f"{choice.executor}: {choice.reason}",
        f"{counted(choice.workers, 'worker')}: {choice.why_workers}",
        *(f"not {operator}: {why}" for operator, why in choice.refused),
        f"estimates of {physical.bound.learner.shown_way}: {physical.rates.said(physical.bound.learner.way)}",
        f"kernels: {builds.name()}",
    ]


OPERATOR_COLUMNS = ("operator", "run time", "idle", "network", "memory", "loads", "units")


def operator_table(physical: PhysicalPlan, choice: Choice) -> list[tuple[str, ...]]:
    """Return a header row and one row per operator; the last cell marks the chosen one and those that cannot be chosen."""
    priced = physical.bound.options.placement.node_price is not None
    rows = [(*OPERATOR_COLUMNS, *(("cost",) if priced else ()), "")]
    refused = dict(choice.refused)
    for candidate in choice.candidates:
        price = money(candidate, physical, choice.simulated)
        rows.append(
            (
                candidate.operator,
                rounded_seconds(candidate.makespan),
                share(candidate.idle),
                amount_of_bytes(candidate.network_bytes),
                amount_of_bytes(candidate.peak_bytes),
                f"{candidate.loads:,}",
                f"{candidate.units:,}",
                *(() if price is None else (f"{price:.2g}",)),
                "<- chosen"
                if candidate.operator == choice.operator
                else "cannot"
                if candidate.operator in refused
                else "",
            )
        )
    return rows


def unit_label(physical: PhysicalPlan, unit: Unit) -> str:
    """Return a unit in words, for a chart."""
    fold = "" if unit.is_final else f", fold {unit.fold}"
    return f"unit {unit.id}: {unit_groups(physical, unit)}, {counted(len(unit.configs), 'configuration')}{fold}"


def unit_groups(physical: PhysicalPlan, unit: Unit) -> str:
    """Return the groups of a unit in words; a rolled-up key is "all"."""
    group = physical.stats.groups[unit.group]
    used = physical.bound.sets[group.level]
    named = [
        "all" if place not in used else "NULL" if key is None else on_one_line(key, 40)
        for place, key in enumerate(group.keys)
    ]
    others = f" and {counted(len(unit.others), 'other')}" if unit.others else ""
    return f"group {', '.join(named)}{others}" if used else f"all rows{others}"


def is_dense(physical: PhysicalPlan) -> bool:
    """Whether the design matrix is dense."""
    return encoders.is_dense(physical.bound.stored_items, physical.width)


def _features(physical: PhysicalPlan) -> str:
    items = physical.bound.stored_items
    named = ", ".join(
        item.name if encoder_of(item).plain else f"{encoder_of(item).shown}({item.name})" for item in items
    )
    kind = "dense" if is_dense(physical) else "sparse"
    most = max(physical.stats.rows, default=0)
    learner = physical.bound.learner
    if learner.prefers_sparse and encoders.is_mostly_zero(items, physical.width, most):
        kind = "sparse where a group has many rows"
    size = f"{counted(len(items), 'feature')} as {counted(physical.width, 'column')}, {kind}"
    if physical.bound.auto and physical.bound.auto.left_out:
        size += f", without {physical.bound.auto.left_out}"
    if left_out := physical.bound.left_out:
        size += f", without {', '.join(left_out)}, as VALIDATE looks at {'it' if len(left_out) == 1 else 'them'}"
    return f"{on_one_line(named, _TEXT)}: {size}"


def _keys(bound: BoundTrain) -> str:
    return ", ".join(on_one_line(key.stored.name, _TEXT) for key in bound.keys)


def _levels(bound: BoundTrain) -> str:
    return "" if len(bound.sets) == 1 else f", {len(bound.sets)} levels"


def _label(physical: PhysicalPlan) -> str:
    target, classes = physical.bound.target, physical.stats.classes
    if target is None:
        return physical.label.name
    name = f"{physical.label.name} of {on_one_line(target.name, _TEXT)}"
    if not target.classification:
        return name
    shown = ", ".join(on_one_line(text, _TEXT) for text in classes[:6]) + (", ..." if len(classes) > 6 else "")
    return f"{name} with {counted(len(classes), 'class', 'classes')} ({shown})"


def _holdout(bound: BoundTrain) -> str:
    holdout = bound.holdout
    if holdout.kind == "where" and holdout.predicate:
        return f"rows WHERE {on_one_line(holdout.predicate.text, _TEXT)}"
    if holdout.kind == "sample":
        return f"{100 * holdout.share:g}% of each group{', by default' if holdout.split.spares else ''}"
    if holdout.split.rolls:
        return _windows(holdout)
    return f"{holdout.split.folds} folds" if holdout.kind == "folds" else "none, every row trains"


def _windows(holdout: Holdout) -> str:
    """Return the windows of VALIDATE ROLLING in words."""
    split, by = holdout.split, "" if holdout.by is None else f" by {on_one_line(holdout.by.text, _TEXT)}"
    last = f"the last {counted(split.horizon, 'step')} of each group{by}"
    if split.folds == 1:
        return f"{last}{', by default' if split.spares else ''}"
    return f"{last}, and {split.folds - 1} windows before, {split.step} apart"


def _units(physical: PhysicalPlan) -> str:
    found, every = physical.alike, len(physical.units)
    gathered = sum(int(tasks.side_by_side.sum()) * len(tasks.first) for tasks in found)
    if not gathered:
        return f"{every:,}"
    groups = sum(len(groups) for tasks in found for groups in with_checks(tasks.groups) if len(groups) > 1)
    return f"{every:,}, {counted(groups, 'small group')} side by side in {gathered:,} {plural(gathered, 'unit')}"
