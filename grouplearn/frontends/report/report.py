"""A model as one HTML page: no script, no external resources, readable on phones, in print, light and dark.

``grouplearn report shop.duckdb demand -o demand.html`` in a terminal, ``con.model("demand").report("demand.html")`` in Python.
With thousands of groups it lists the best and the worst, and says what it leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from grouplearn.amounts import counted, rounded_seconds
from grouplearn.catalog.overview import Importance, Level, Overview, Trial, drawn
from grouplearn.frontends.notebook.model_table import failed_pooled
from grouplearn.frontends.python.plots import MOST_CURVES
from grouplearn.frontends.report import drawing
from grouplearn.frontends.report.drawing import AxisRange, Line, aligned, number, shortened
from grouplearn.frontends.report.forecasts import forecasts_section
from grouplearn.frontends.report.judged import judged_section, segments_section
from grouplearn.frontends.report.tables import LONGEST, cell, key_cells, table
from grouplearn.models.forms.forms import form_of
from grouplearn.plan.explain.gantt import MOST_WORKERS, STYLE, gantt, legend, text
from grouplearn.prediction.judge import Judge, judge

#: Most groups that are all listed; of more, the number of best and of worst ones.
LISTED, ENDS = 200, 50
#: Most features and reasons listed.
FEATURES, REASONS = 25, 20
#: A feature with a smaller share of the importance is drawn only if it is one of the first few.
SMALL, FEW = 0.005, 8


def report(overview: Overview) -> str:
    """Return the HTML page."""
    with judge(overview.connection, overview.stored) as judging:
        return _page(overview, judging)


def _page(overview: Overview, judging: Judge | None) -> str:
    definition, facts = overview.stored.definition, overview.facts
    sections = [
        ("forecasts", "Forecasts", forecasts_section(overview)),
        ("held-out", "Held-out rows", judged_section(overview, judging)),
        ("segments", "Segments", segments_section(overview)),
        ("importance", "Importance", _importance(overview)),
        ("groups", "Best per group", _groups(overview)),
        ("levels", "Pooled and per group", _levels(overview)),
        ("curves", "Learning curves", _curves(overview)),
        ("failures", "Failures", _failures(overview)),
        ("schedule", "Schedule", _schedule(overview)),
    ]
    there = [each for each in sections if each[2]]
    links = " ".join(f'<a href="#{anchor}">{title}</a>' for anchor, title, _ in there)
    body = "".join(f'<section id="{anchor}"><h2>{title}</h2>{content}</section>' for anchor, title, content in there)
    of = "" if definition.target_name is None else f" of <b>{text(shortened(definition.target_name, LONGEST))}</b>"
    kind = f"{text(definition.shown_learner)}{of}"
    head = f"<h1>{text(definition.name)}</h1><p>{kind}, {_by(overview)}</p>{failed_pooled(overview)}{_tiles(overview, judging)}"
    foot = f"Trained {facts.trained_at} UTC by grouplearn; identity {text(overview.stored.id)}."
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(definition.name)}</title><style>\n{_css()}</style></head><body><main>"
        f"<header>{head}<nav>{links}</nav><pre>{text(definition.statement)}</pre></header>{body}<footer>{foot}</footer>"
        "</main></body></html>\n"
    )


def _css() -> str:
    return (resources.files("grouplearn.frontends.report") / "report.css").read_text(encoding="utf-8") + STYLE


def _by(overview: Overview) -> str:
    keys = [key.name for key in overview.stored.definition.keys]
    return f"one model per {text(', '.join(keys))}" if keys else "one model of all rows"


def _metric(overview: Overview) -> str:
    part = "held-out" if overview.facts.part == "valid" else "training"
    return f"{overview.stored.definition.metric} ({part})"


def _tiles(overview: Overview, judging: Judge | None) -> str:
    facts = overview.facts
    tiles = [
        *_merged(overview, judging),
        (counted(facts.groups, "group"), f"{facts.groups - facts.modelled:,} without a model"),
        (counted(facts.trials, "trial"), f"{counted(facts.configs, 'configuration')}, {facts.failed:,} failed"),
        (counted(facts.rows, "row"), "in the groups"),
        (rounded_seconds(facts.seconds), f"{facts.operator}, {facts.executor}"),
    ]
    return f'<div class="tiles">{"".join(_tile(*tile) for tile in tiles)}</div>'


def _tile(value: str, note: str) -> str:
    return f'<div class="tile"><b>{text(value)}</b><small>{text(note)}</small></div>'


def _merged(overview: Overview, judging: Judge | None) -> list[tuple[str, str]]:
    """Return the metric of the finest groups, and that of predictions without features."""
    finest = overview.by_level()[:1]
    if not finest or finest[0].median is None:
        return []
    several = finest[0].modelled > 1
    together = several and finest[0].exact and finest[0].merged is not None
    value, word = (finest[0].merged, "") if together else (finest[0].median, "median " if several else "")
    tiles = [(number(value), f"{word}{_metric(overview)}{', of all rows' if together else ''}")]
    usual = None if judging is None else judging.baseline()
    return tiles if usual is None else [*tiles, (number(usual[0]), f"by {usual[1]}, without features")]


# --- best per group ------------------------------------------------------------------------------------------------


def _groups(overview: Overview) -> str:
    modelled = overview.facts.modelled
    if not modelled:
        return "<p>No group has a model.</p>"
    best, worst = overview.best(modelled if modelled <= LISTED else ENDS), []
    if len(best) < modelled:
        worst = overview.best(ENDS, worst=True)[::-1]
    left_out = modelled - len(best) - len(worst)
    keys = _key_names(overview)
    trials = [*best, *worst]
    values = aligned([trial.value for trial in trials])
    varying, constant = _split(overview, overview.best(modelled) if worst else best)
    heads = [*keys, _metric(overview), "rows", *varying]
    rows = [
        f"<tr>{''.join(key_cells(overview, trial.keys, trial.level))}{cell(value, 'number')}"
        f"{cell(f'{trial.rows:,}', 'number')}{''.join(cell(*_fact(trial, name)) for name in varying)}</tr>"
        for trial, value in zip(trials, values, strict=True)
    ]
    if left_out:
        gap = f'<tr class="gap"><td colspan="{len(heads)}">{counted(left_out, "group")} in between</td></tr>'
        rows.insert(len(best), gap)
    listed = table(heads, rows, range(len(keys), len(heads) - ("status" in varying)))
    same = f'<p class="dim">The same for all: {text(", ".join(constant))}.</p>' if constant else ""
    return f"{_left_out(overview, left_out) if left_out else ''}{_spread(overview)}{listed}{same}{_unjudged(overview)}"


def _split(overview: Overview, trials: Sequence[Trial]) -> tuple[list[str], list[str]]:
    """Return the columns in which trials differ, and in words those in which all agree."""
    names = list(dict.fromkeys([*_parameters(overview), "epochs", "status"]))
    values = {name: {_fact(trial, name)[0] for trial in trials} for name in names}
    if len(trials) == 1:
        return names, []
    same = [
        f"{name} {'NULL' if value is None else value}"
        for name in names
        if len(values[name]) == 1
        for value in values[name]
    ]
    return [name for name in names if len(values[name]) > 1], same


def _fact(trial: Trial, name: str) -> tuple[str | None, str]:
    """Return a hyperparameter, the epochs or the status of a trial, and its cell's class."""
    if name == "status":
        return trial.status, ""
    value = str(trial.epochs) if name == "epochs" else trial.parameters.get(name)
    return drawing.rounded(value), "number"


def _unjudged(overview: Overview) -> str:
    """Say what a group without a metric is: it has a model, but no rows to score it."""
    count = overview.facts.modelled - sum(level.modelled for level in overview.by_level())
    if not count:
        return ""
    why = "none of its rows was held out, or the" if overview.facts.part == "valid" else "the"
    metric = text(overview.stored.definition.metric)
    return f'<p class="dim">- in {counted(count, "group")}: {why} {metric} is not defined on them.</p>'


def _left_out(overview: Overview, count: int) -> str:
    where = f"FROM {overview.stored.definition.name} WHERE is_best"
    listed = f"The best {ENDS} and the worst {ENDS} of {overview.facts.modelled:,}, by {text(_metric(overview))}"
    return f"<p>{listed}; the {count:,} in between are left out: <code>{text(where)}</code> has them all.</p>"


def _spread(overview: Overview) -> str:
    """Draw the distribution over groups if there are enough."""
    picture = drawing.histogram(overview.values(), "groups by their metric", _metric(overview), "groups")
    if not picture or overview.facts.modelled < 8:
        return ""
    return f"<figure>{picture}</figure><figcaption>Groups by their {text(_metric(overview))}.</figcaption>"


def _key_names(overview: Overview) -> list[str]:
    names = [key.name for key in overview.stored.definition.keys]
    return names or ["group"]


def _parameters(overview: Overview) -> list[str]:
    return [column.name for column in overview.stored.definition.hyperparameters]


# --- pooled and per group ------------------------------------------------------------------------------------------


def _levels(overview: Overview) -> str:
    levels = overview.by_level()
    if len(levels) < 2:
        return ""
    merged = _metric(overview) if levels[0].exact else f"mean {_metric(overview)}"
    heads = ["models per", merged, "least", "median", "most", "groups", "judged", "rows judged"]
    values = aligned([value for level in levels for value in (level.merged, level.low, level.median, level.high)])
    rows = [f"<tr>{''.join(_level(level, values[4 * n : 4 * n + 4]))}</tr>" for n, level in enumerate(levels)]
    return f"{_verdict(overview, levels)}{table(heads, rows, range(1, 8))}{_caution(overview, levels)}"


def _level(level: Level, values: Sequence[str]) -> Iterable[str]:
    counts = (level.groups, level.modelled, level.rows)
    name = "one for all rows" if level.name == "()" else level.name
    return [cell(name), *(cell(value, "number") for value in values), *(cell(f"{n:,}", "number") for n in counts)]


def _verdict(overview: Overview, levels: Sequence[Level]) -> str:
    """Say which level did better, if their metrics are of the same rows and comparable."""
    judged = [level for level in levels if level.modelled]
    if len(judged) < 2:
        return ""
    finest, coarsest = judged[0], judged[-1]
    if overview.facts.part == "train" or not finest.exact or finest.rows != coarsest.rows:
        return ""
    if finest.merged is None or coarsest.merged is None:
        return ""
    if finest.merged == coarsest.merged:
        return "<p>The finest and the coarsest models do equally well on the same rows.</p>"
    better = (finest.merged > coarsest.merged) == overview.stored.definition.greater_is_better
    who = "Models of their own do better" if better else "The coarsest models do better"
    one, other = number(finest.merged), number(coarsest.merged)
    return f"<p>{who}: {text(_metric(overview))} {one} {_pooled(finest)}, {other} {_pooled(coarsest)}, on the same rows.</p>"


def _pooled(level: Level) -> str:
    return "pooled" if level.name == "()" else f"per {text(level.name)}"


def _caution(overview: Overview, levels: Sequence[Level]) -> str:
    notes = []
    if not levels[0].exact:
        metric = overview.stored.definition.metric
        notes.append(
            f"The {metric} of all rows cannot be computed from the groups' values: this is their mean, weighted by rows."
        )
    rows = {level.rows for level in levels if level.modelled}
    if len(rows) > 1:
        notes.append(
            "Levels are judged on different rows: some have groups that HAVING left out, that failed, or on whose rows"
            f" the {overview.stored.definition.metric} is not defined."
        )
    if overview.facts.part == "train":
        notes.append("No rows were held out: these are errors on the training rows, which favour finer levels.")
    return "".join(f'<p class="dim">{text(note)}</p>' for note in notes)


# --- curves, importance, failures, schedule --------------------------------------------------------------------------


def _curves(overview: Overview) -> str:
    facts = overview.facts
    if facts.curves < 2:
        return '<p class="dim">None: the learner is solved in one step, or keeps no curve.</p>'
    trials = overview.best(MOST_CURVES) if facts.modelled <= MOST_CURVES else overview.largest(MOST_CURVES)
    found = overview.curves((trial.group, trial.config) for trial in trials)
    curves: Sequence[_Drawn] = [(trial, *drawn(found.get((trial.group, trial.config), []))) for trial in trials]
    name, curves = _of_one_scale(overview, curves)
    shared = AxisRange.shared(points for _, part, points in curves if part == facts.curve)
    pictures = [_curve(overview, curve, shared) for curve in curves]
    few = f"The {len(pictures)} largest groups" if facts.modelled > MOST_CURVES else "Best trials"
    short = pictures.count("")
    missing = f" {counted(short, 'group')} had one epoch and no curve." if short else ""
    cut = shared is not None and not all(shared.holds(points) for _, part, points in curves if part == facts.curve)
    beyond = " Outliers are drawn at the edge." if cut else ""
    note = f'<p class="dim">{few}: {text(name)}, on one scale.{beyond}{missing}</p>'
    return f'{_all_curves(overview)}{note}<div class="small">{"".join(pictures)}</div>'


#: A trial, the part its curve is of, and the points.
_Drawn = tuple[Trial, str, Sequence[tuple[int, float]]]


def _of_one_scale(overview: Overview, curves: Sequence[_Drawn]) -> tuple[str, Sequence[_Drawn]]:
    """Return the curves' label and points; training losses, which may be sums over rows, as shares of their first value."""
    name, part = overview.curve_name(overview.facts.curve), overview.facts.curve
    mine = [points for _, its_part, points in curves if its_part == part]
    if part == "valid" or not all(points[0][1] > 0 for points in mine):
        return name, curves
    shares = [
        (trial, its_part, [(x, y / points[0][1]) for x, y in points] if its_part == part else points)
        for trial, its_part, points in curves
    ]
    return f"{name} as a share of its first", shares


def _curve(overview: Overview, curve: _Drawn, shared: AxisRange | None) -> str:
    trial, part, points = curve
    label = overview.label(trial.keys, trial.level)
    other = "" if part == overview.facts.curve else f"<small>{text(overview.curve_name(part))}</small>"
    picture = drawing.lines([Line(points)], label, "epoch", "", shared=None if other else shared)
    return f"<figure><h3>{text(shortened(label, LONGEST))} {other}</h3>{picture}</figure>" if picture else ""


def _all_curves(overview: Overview) -> str:
    if overview.facts.modelled <= MOST_CURVES:
        return ""
    found = overview.curve_range()
    line = Line([(row[0], row[2]) for row in found], bands=[[(row[0], row[1], row[3]) for row in found]])
    name = overview.curve_name(overview.facts.curve)
    name = name if overview.facts.curve == "valid" else f"{name} as a share of its first"
    picture = drawing.lines([line], f"median {name}", "epoch", "", 200)
    known, every = max((row[4] for row in found), default=0), overview.facts.modelled
    groups = f"{known:,} of {counted(every, 'group')}" if known < every else counted(every, "group")
    caption = (
        f"{text(name)} of {groups}: the median and the range of the middle 80%. Groups that have ended keep their last."
    )
    return f"<figure>{picture}</figure><figcaption>{caption[0].upper()}{caption[1:]}</figcaption>" if picture else ""


def _importance(overview: Overview) -> str:
    found = overview.importance(FEATURES)
    if not found:
        return ""
    shown = [each for place, each in enumerate(found) if place < FEW or each.share >= SMALL]
    several = max(each.groups for each in found) > 1
    rows = [
        (each.feature, each.share, *((each.low, each.high) if several else (0.0, 0.0)), f"{_share(each)}{_sign(each)}")
        for each in shown
    ]
    what = "Mean share of a feature in a group's importance" if several else "Share of each feature"
    note = f"{what}{', with the range of the middle 80% of groups' if several else ''}."
    if form_of(overview.stored.definition).has_one_weight_per_column:
        note += " Importance is the size of the weights: compare features of one scale, such as zscore(...)."
        note += " + and - say whether predictions rise or fall with the feature." if found[0].weight is not None else ""
    total = overview.count_features()
    if total > len(shown):
        note += f" {total - len(shown):,} of {total:,} features have less, and are left out."
    figure = f"<figure>{drawing.bars(rows, 'importance')}</figure><figcaption>{text(note)}</figcaption>"
    return f'<div class="beside"><div>{figure}</div>{_weights(found, several)}</div>'


def _share(importance: Importance) -> str:
    return "<1%" if 0 < importance.share < SMALL else f"{importance.share:.0%}"


def _sign(importance: Importance) -> str:
    return "" if not importance.weight else " +" if importance.weight > 0 else " -"


def _weights(found: Sequence[Importance], several: bool) -> str:
    if found[0].weight is None:
        return ""
    heads = ["feature", *(["median weight", "10%", "90%", "groups"] if several else ["weight"])]
    sizes = [(each.weight, each.weight_low, each.weight_high) if several else (each.weight,) for each in found]
    shown = iter(aligned([value for values in sizes for value in values]))
    rows = []
    for each, values in zip(found, sizes, strict=True):
        cells = [cell(each.feature), *(cell(next(shown), "number") for _ in values)]
        rows.append(f"<tr>{''.join([*cells, *([cell(f'{each.groups:,}', 'number')] if several else [])])}</tr>")
    return f"<div><h3>Weights</h3>{table(heads, rows, range(1, len(heads)))}</div>"


def _failures(overview: Overview) -> str:
    facts = overview.facts
    if not facts.failed:
        return '<p class="dim">None.</p>'
    found = overview.failures(REASONS + 1)
    heads = ["trials", "groups", "reason", "such as"]
    rows = []
    for each in found[:REASONS]:
        examples = "; ".join(shortened(overview.label(keys, level), LONGEST) for level, keys in each.examples)
        more = "; …" if each.groups > len(each.examples) else ""
        counts = cell(f"{each.trials:,}", "number") + cell(f"{each.groups:,}", "number")
        rows.append(f"<tr>{counts}{cell(each.reason, 'text')}{cell(examples + more, 'text')}</tr>")
    more = (
        f'<p class="dim">Less frequent reasons are left out: the first {REASONS} are here.</p>'
        if found[REASONS:]
        else ""
    )
    return f"{table(heads, rows, range(2))}{more}"


def _schedule(overview: Overview) -> str:
    bars = overview.bars()
    if not bars:
        return ""
    facts, end = overview.facts, max(bar.end for bar in bars)
    used = 1 + max(bar.worker for bar in bars)
    # In process a worker is a thread; where one thread is as fast as several, no others wait.
    workers = used if facts.executor == "local" else max(facts.workers, used)
    picture = gantt(bars, workers, "the schedule as it ran", end)
    note = f"{counted(len(bars), 'unit')} on {counted(workers, 'worker')} in {rounded_seconds(end)}{_busy(bars, workers, end)}."
    hidden = " Units too short to be seen are drawn together." if len(bars) > 50 * min(workers, MOST_WORKERS) else ""
    chart = f'<figure class="scroll">{picture}</figure>{legend(bars)}'
    return f"{chart}<figcaption>{note}{hidden}</figcaption>"


def _busy(bars: Sequence[Any], workers: int, end: float) -> str:
    share = sum(bar.end - bar.start for bar in bars) / (workers * end) if end > 0 else 0.0
    return f", busy {min(share, 1):.0%} of the time"
