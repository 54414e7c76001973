"""A schedule as a picture: an SVG Gantt chart, a row per worker, a bar per unit."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from grouplearn.amounts import counted, rounded_seconds
from grouplearn.visible import visible_lines

#: Most workers that are drawn.
MOST_WORKERS = 48
_WIDTH, _LEFT, _ROW, _BAR, _AXIS = 900, 76, 24, 18, 30
#: Bars narrower than this are merged with the next ones on their worker; the limit grows while more than ``_MOST_BARS`` are
#: left.
_LEAST_PIXELS, _MOST_BARS = 1.5, 6000
#: Groups that the legend names.
_MOST_NAMES = 12
#: Degrees between the hues of neighbouring groups: the golden angle, so that the first few all differ.
_HUE_STEP = 137.508
#: On a narrow page, such as a phone's, a chart scrolls and its text is as large as the text around it.
STYLE = """
.grouplearn-gantt { display: block; height: auto }
@media screen and (max-width: 600px) {
  .grouplearn-gantt { min-width: 540px } .grouplearn-gantt text { font-size: 18px }
  .grouplearn-gantt text.other { display: none }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """Work of one worker from ``start`` to ``end`` (seconds); bars of one ``group`` share a colour, which ``name``
    explains."""

    worker: int
    start: float
    end: float
    group: int
    label: str
    kind: str = "unit"
    name: str = ""


def gantt(bars: Sequence[Bar], workers: int, title: str, end: float) -> str:
    """Return the chart up to ``end`` as one ``<svg>`` without script; text takes the colour of the page."""
    shown = min(workers, MOST_WORKERS)
    scale = (_WIDTH - _LEFT - 16) / end if end > 0 else 0.0
    height = shown * _ROW + _AXIS
    body = [f'<line x1="{_LEFT}" y1="0" x2="{_LEFT}" y2="{shown * _ROW}" stroke="currentColor" stroke-opacity="0.4"/>']
    body += [_name(worker) for worker in range(shown)]
    body += [_tick(at, scale, shown, number) for number, at in enumerate(ticks(end))]
    colours = _colours(bars)
    visible = _drawn([bar for bar in bars if bar.worker < shown], scale)
    body += [_rectangle(bar, scale, colours[bar.group]) for bar in visible]
    note = f"<p>{counted(workers - shown, 'more worker')} not drawn.</p>" if workers > shown else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="100%" role="img" '
        f'class="grouplearn-gantt" font-family="sans-serif" font-size="12" fill="currentColor" '
        f'style="max-width: {_WIDTH}px"><title>{text(title)}</title>{"".join(body)}</svg>{note}'
    )


def legend(bars: Sequence[Bar]) -> str:
    """Return as HTML which colour is which group, those with most work first, and what paler bars mean."""
    work: dict[int, float] = {}
    names: dict[int, str] = {}
    kinds = set()
    for bar in bars:
        work[bar.group] = work.get(bar.group, 0.0) + bar.end - bar.start
        names.setdefault(bar.group, bar.name)
        kinds.add(bar.kind)
    colours = _colours(bars)
    most = sorted((group for group in work if names[group]), key=lambda group: (-work[group], group))
    entries = [_entry(colours[group], names[group]) for group in most[:_MOST_NAMES]]
    if len(most) > _MOST_NAMES:
        entries.append(f"and {counted(len(most) - _MOST_NAMES, 'more colour')}")
    if "load" in kinds and entries:
        entries.append(_entry("currentColor", "paler: rows are loaded", 0.35))
    return f'<p class="grouplearn-legend">{" ".join(entries)}</p>' if entries else ""


def _drawn(bars: Sequence[Bar], scale: float) -> list[Bar]:
    """Return the bars, few enough for a page."""
    least = _LEAST_PIXELS / scale if scale else 0.0
    drawn = merged(bars, least)
    while len(drawn) > _MOST_BARS and least > 0:
        least *= 2
        drawn = merged(bars, least)
    return drawn


def ticks(end: float) -> list[float]:
    """Return the round times of an axis from 0: steps of 1, 2 or 5 times a power of ten, at most 8 of them."""
    if end <= 0:
        return [0.0]
    rough = end / 7
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    return [number * step for number in range(math.floor(end / step * (1 + 1e-9)) + 1)]


def merged(bars: Iterable[Bar], least: float) -> list[Bar]:
    """Return the bars of each worker in time order; one too narrow to be seen is joined to the next."""
    by_worker: dict[int, list[Bar]] = {}
    counts: dict[int, int] = {}
    for bar in sorted(bars, key=lambda each: (each.worker, each.start, each.end)):
        row = by_worker.setdefault(bar.worker, [])
        before = row[-1] if row else None
        if before is not None and bar.end - before.start < least:
            counts[bar.worker] = counts.get(bar.worker, 1) + 1
            row[-1] = replace(before, end=max(before.end, bar.end), label=f"{counts[bar.worker]} units")
        else:
            counts[bar.worker] = 1
            row.append(bar)
    return [bar for worker in sorted(by_worker) for bar in by_worker[worker]]


def text(value: str) -> str:
    """Return a value as XML text: escaped, hidden characters and those that XML forbids made visible."""
    return html.escape(visible_lines(value))


def _name(worker: int) -> str:
    return f'<text x="{_LEFT - 8}" y="{worker * _ROW + 16}" text-anchor="end">worker {worker}</text>'


def _entry(colour: str, name: str, opacity: float = 1.0) -> str:
    swatch = (
        '<i style="display: inline-block; width: 0.8em; height: 0.8em; border-radius: 2px; margin-right: 0.35em;'
        f' background: {colour}; opacity: {opacity:g}"></i>'
    )
    return f'<span style="display: inline-block; margin-right: 1em">{swatch}{text(name)}</span>'


def _colours(bars: Iterable[Bar]) -> dict[int, str]:
    """Return a colour for each group in the chart; groups are numbered without gaps, so that few colours are alike."""
    groups = sorted({bar.group for bar in bars})
    return {group: f"hsl({round(place * _HUE_STEP % 360)}, 55%, 52%)" for place, group in enumerate(groups)}


def _tick(at: float, scale: float, rows: int, number: int) -> str:
    every_other = ' class="other"' if number % 2 else ""
    x = round(_LEFT + at * scale, 1)
    return (
        f'<line x1="{x}" y1="0" x2="{x}" y2="{rows * _ROW + 4}" stroke="currentColor" stroke-opacity="0.15"/>'
        f'<text x="{x}" y="{rows * _ROW + 18}" text-anchor="middle"{every_other}>{rounded_seconds(at)}</text>'
    )


def _rectangle(bar: Bar, scale: float, colour: str) -> str:
    x, width = round(_LEFT + bar.start * scale, 2), round(max((bar.end - bar.start) * scale, 0.5), 2)
    opacity = ' fill-opacity="0.45"' if bar.kind == "load" else ""
    when = f"{rounded_seconds(bar.start)} to {rounded_seconds(bar.end)}"
    return (
        f'<rect x="{x}" y="{bar.worker * _ROW + 3}" width="{width}" height="{_BAR}" rx="2" fill="{colour}"{opacity}>'
        f"<title>{text(bar.label)}: {when}</title></rect>"
    )
