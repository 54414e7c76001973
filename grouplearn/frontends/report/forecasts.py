"""The section of forecasts in the report of a model of series: a picture per series, with a fan of intervals."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.amounts import counted
from grouplearn.catalog.overview import Overview
from grouplearn.frontends.python.fans import LEVELS
from grouplearn.frontends.report import drawing
from grouplearn.frontends.report.drawing import AxisRange, Line, aligned, shortened
from grouplearn.frontends.report.times import marks, place
from grouplearn.plan.explain.gantt import text
from grouplearn.prediction.forecasts import Forecasts, Keys, Series, Time

#: Most series with a picture; of more, half are of the best groups and half of the worst.
_MOST = 12
_LONGEST = 60
_HEIGHT = 170
_LEVELS = ", ".join(f"{level:.0%}" for level in LEVELS)


def forecasts_section(overview: Overview) -> str:
    """Return the HTML of the section; empty for a model that forecasts no series."""
    forecasts = Forecasts.of(overview.connection, overview.stored)
    if forecasts is None or not overview.facts.modelled:
        return ""
    chosen, more = _chosen(overview, forecasts)
    found = forecasts.series([keys for keys, _ in chosen], LEVELS)
    metrics = dict(chosen)
    pictures = "".join(_figure(series, metrics[series.keys]) for series in found)
    horizon = max((len(series.ahead) for series in found), default=0)
    season = forecasts.season_length
    seasons = f"seasons of {season} steps" if season > 1 else "no season"
    head = f"Steps of {forecasts.frequency.words}, {seasons}, forecasts of {counted(horizon, 'step')}."
    past = "history"
    if any(series.is_fitted for series in found):
        past = "forecasts of one step ahead, as the rows cannot be read any more"
    what = f"The past is the {past}; the fan has the intervals of {_LEVELS}. Training ends at the upright line.{more}"
    return f'<p>{text(head)}</p><p class="dim">{text(what)}</p><div class="small">{pictures}</div>'


def _chosen(overview: Overview, forecasts: Forecasts) -> tuple[list[tuple[Keys, str]], str]:
    """Return the series to draw with their metric, best groups first, and which are left out in words."""
    every = forecasts.keys()
    few = len(every) <= _MOST
    trials = overview.best(_MOST if few else _MOST // 2)
    if not few:
        trials += [each for each in overview.best(_MOST // 2, worst=True)[::-1] if each not in trials]
    metric, length = overview.stored.definition.metric, len(overview.stored.definition.keys)
    values = dict(zip([trial.keys for trial in trials], aligned([trial.value for trial in trials]), strict=True))
    by_group: dict[Keys, list[Keys]] = {}
    for keys in every:
        by_group.setdefault(keys[:length], []).append(keys)
    each = -(-_MOST // max(len(values), 1))
    chosen = [(keys, f"{metric} {values[group]}") for group in values for keys in by_group.get(group, ())[:each]][
        :_MOST
    ]
    left_out = f" These are {len(chosen)} of {len(every):,} series: of the best groups and of the worst, by {metric}."
    return chosen, left_out if len(chosen) < len(every) else ""


def _figure(series: Series, metric: str) -> str:
    label = f"{text(shortened(series.label, _LONGEST))} <small>{text(metric)}</small>"
    return f"<figure><h3>{label}</h3>{_picture(series)}</figure>"


def _picture(series: Series) -> str:
    past = [(place(time), value) for time, value in series.past]
    ahead = [(place(time), value) for time, value in series.ahead]
    end = None if series.end is None else place(series.end)
    start = [point for point in past if point[0] == end]  # the fan opens at the last value
    bands = [
        [*((x, y, y) for x, y in start), *_band(series.ahead, intervals)]
        for intervals in series.intervals
        if any(intervals)
    ]
    heights = [y for _, y in (*past, *ahead)] + [end for band in bands for _, *ends in band for end in ends]
    low, high = min(heights), max(heights)
    times = [time for time, _ in (*series.past, *series.ahead)]
    axes = AxisRange((place(min(times)), low), (place(max(times)), high), marks(min(times), max(times)))
    curves = [
        *([Line([(end, low), (end, high)], "end of training", colour=drawing.GREY)] if end is not None else []),
        Line(past, "fitted" if series.is_fitted else "history", colour="currentColor"),
        Line([*start, *ahead], "forecast", bands),
    ]
    return drawing.lines(curves, series.label, "", "", _HEIGHT, axes)


def _band(
    ahead: Sequence[tuple[Time, float]], intervals: Sequence[tuple[float, float] | None]
) -> list[tuple[float, float, float]]:
    return [(place(time), *ends) for (time, _), ends in zip(ahead, intervals, strict=True) if ends is not None]
