"""Small pictures as SVG without script: sparklines, lines, bars, histograms, in the colours of the page.

Lines and areas use the CSS variable ``--grouplearn-accent``, or a blue that is readable on white and black.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from grouplearn.plan.explain.gantt import text

ACCENT, GREY = "var(--grouplearn-accent, #3d85c6)", "#888888"
_MOST_POINTS = 160
#: Width and height of a sparkline, height of a histogram, in pixels.
_SPARKLINE, _HISTOGRAM = (84, 20), 150
#: Least width of a chart in pixels, at which its text is as large as the text around it on a phone; and its largest scale.
WIDTH, _LARGER = 350, 1.25
#: Curves that leave the range of most points by this factor are cut off, as they would flatten all others.
_OUTLIER = 4.0
#: Pixels per character of a label, and the longest label that fits beside its bar; longer ones go above.
_CHARACTER, _BESIDE = 6, 18
Point = tuple[float, float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    """A curve: points in order of x, without those of non-finite y; each of ``bands`` has (x, low, high)."""

    points: Sequence[Point]
    label: str = ""
    bands: Sequence[Sequence[tuple[float, float, float]]] = ()
    colour: str = ACCENT


def number(value: float | None) -> str:
    """Return a readable number with four digits: ``0.1234``, ``1,234``, ``1.2e-09``."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def rounded(value: str | None) -> str | None:
    """Return a DOUBLE's text such as ``0.03886303977238025`` with four digits; other texts unchanged."""
    if value is None or not re.fullmatch(r"-?\d+\.\d{6,}(?:e[-+]?\d+)?", value):
        return value
    return number(float(value))


def aligned(values: Sequence[float | None]) -> list[str]:
    """Return the numbers of a column with equal decimals, four digits of a typical one: ``0.9646``, ``0.9500``."""
    sizes = sorted(abs(value) for value in values if value and math.isfinite(value))
    decimals = 3 - math.floor(math.log10(sizes[len(sizes) // 2])) if sizes else -1
    if not -12 < decimals <= 6:
        return [number(value) for value in values]
    return [_with_decimals(value, max(decimals, 0)) for value in values]


def _with_decimals(value: float | None, decimals: int) -> str:
    if not value or not math.isfinite(value):
        return number(value)  # a weight of exactly 0 must not look rounded
    shown = f"{value:,.{decimals}f}"
    return shown if re.search("[1-9]", shown) else f"{value:.1g}"


def shortened(value: str, most: int) -> str:
    """Return a text cut to at most this many characters."""
    return value if len(value) <= most else value[: most - 1] + "…"


def sparkline(values: Sequence[float | None], title: str, *, colour: str = ACCENT) -> str:
    """Return a curve as high as a line of text, its last point marked; empty for fewer than two points."""
    points = thinned([(float(x), y) for x, y in enumerate(values) if y is not None and math.isfinite(y)])
    if len(points) < 2:
        return ""
    width, height = _SPARKLINE
    at = _scale(AxisRange.of(points), (2, width - 4), (height - 3, 3))
    last_x, last_y = at(points[-1])
    return (
        f'<svg class="grouplearn-spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
        f' style="min-width: {width}px; vertical-align: middle">'
        f"<title>{text(title)}</title>"
        f'<polyline points="{_path(points, at)}" fill="none" stroke="{colour}" stroke-width="1.4" stroke-linejoin="round"/>'
        f'<circle cx="{last_x:.1f}" cy="{last_y:.1f}" r="2" fill="{colour}"/></svg>'
    )


@dataclass(frozen=True, slots=True)
class AxisRange:
    """The range of x and y of axes; ``marks`` are (x, text) of ticks of x, None for whole numbers."""

    low: Point
    high: Point
    marks: Sequence[tuple[float, str]] | None = None

    @classmethod
    def of(cls, points: Iterable[Point]) -> AxisRange:
        """Return the range of one or more points."""
        xs, ys = zip(*points, strict=True)
        return cls((min(xs), min(ys)), (max(xs), max(ys)))

    @classmethod
    def shared(cls, curves: Iterable[Sequence[Point]]) -> AxisRange | None:
        """Return a common range for several pictures, without points far outside most others."""
        points = [point for curve in curves for point in curve]
        if not points:
            return None
        whole = cls.of(points)
        ys = sorted(y for _, y in points)
        least, most = ys[len(ys) // 20], ys[-1 - len(ys) // 20]
        room = _OUTLIER * (most - least)
        low, high = (whole.low[1], whole.high[1])
        if room > 0:
            low, high = (least if low < least - room else low), (most if high > most + room else high)
        return cls((whole.low[0], low), (whole.high[0], high))

    def holds(self, points: Iterable[Point]) -> bool:
        """Whether all points lie inside."""
        return all(self.low[1] <= y <= self.high[1] for _, y in points)

    def nearest(self, point: Point) -> Point:
        """Return the point, moved to the edge if it lies outside."""
        return point[0], min(max(point[1], self.low[1]), self.high[1])


def lines(
    curves: Sequence[Line], title: str, x_name: str, y_name: str, height: int = 170, shared: AxisRange | None = None
) -> str:
    """Return curves on common axes, with the range ``shared`` by several pictures or their own."""
    thin = [replace(curve, points=thinned(curve.points), bands=[*map(thinned, curve.bands)]) for curve in curves]
    everything = [point for curve in thin for point in curve.points]
    everything += [(x, y) for curve in thin for band in curve.bands for x, *ends in band for y in ends]
    if not everything:
        return ""
    width, left, bottom = WIDTH, 52, height - 32
    axes = shared or AxisRange.of(everything)
    thin = [replace(curve, points=[axes.nearest(point) for point in curve.points]) for curve in thin]
    at = _scale(axes, (left, width - 10), (bottom, 20 if y_name else 10))
    body = [*_frame(axes, at, left, bottom, width), *(_band(curve, at) for curve in thin)]
    body += [_curve(curve, at) for curve in thin if curve.points]
    names = (
        f'<text x="{(left + width - 10) / 2:.0f}" y="{height - 3}" text-anchor="middle">{text(x_name)}</text>'
        f'<text x="{left}" y="10" text-anchor="start">{text(y_name)}</text>'
    )
    return _svg(height, title, "".join(body) + names)


def bars(rows: Sequence[tuple[str, float, float, float, str]], title: str) -> str:
    """Return horizontal bars of (label, value, low, high, note): a bar to the value, a whisker from low to high.

    Labels are beside the bars, or above them at full width if one is long.
    """
    longest = max((len(label) for label, *_ in rows), default=0)
    above = longest > _BESIDE
    left, step = (2, 35) if above else (14 + _CHARACTER * longest, 20)
    scale = (WIDTH - left - 44) / (max((max(value, high) for _, value, _, high, _ in rows), default=0) or 1)
    body = []
    for place, (label, value, low, high, note) in enumerate(rows):
        top, y = place * step, place * step + 16 * above
        x, anchor = (left, "start") if above else (left - 8, "end")
        named = shortened(label, WIDTH // _CHARACTER if above else _BESIDE)
        body.append(
            f'<text x="{x}" y="{top + 14}" text-anchor="{anchor}">{text(named)}<title>{text(label)}</title></text>'
            f'<rect x="{left}" y="{y + 4}" width="{max(value * scale, 0.5):.1f}" height="12" rx="2" fill="{ACCENT}"'
            ' fill-opacity="0.75"/>'
        )
        if high > low:
            body.append(
                f'<path d="M{left + low * scale:.1f} {y + 10}H{left + high * scale:.1f}" stroke="currentColor"'
                ' stroke-opacity="0.65"/>'
            )
        body.append(f'<text x="{left + max(value, high) * scale + 6:.1f}" y="{y + 14}">{text(note)}</text>')
    return _svg(len(rows) * step + 4, title, "".join(body))


def histogram(values: Sequence[float], title: str, x_name: str, y_name: str) -> str:
    """Return a histogram with some 8 to 40 intervals between round numbers; the last one is closed."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2 or min(finite) == max(finite):
        return ""
    step = _round_step((max(finite) - min(finite)) / min(40, max(8, 2 * math.sqrt(len(finite)))))
    first, found = _counts(finite, step)
    left, bottom, height = 40, _HISTOGRAM - 32, _HISTOGRAM
    wide, most = (WIDTH - left - 24) / len(found), max(found)
    body = [
        f'<rect x="{left + place * wide + 0.5:.1f}" y="{bottom - (bottom - 16) * many / most:.1f}" width="{wide - 1:.1f}"'
        f' height="{(bottom - 16) * many / most:.1f}" fill="{ACCENT}" fill-opacity="0.75"><title>{many}</title></rect>'
        for place, many in enumerate(found)
    ]
    body.append(f'<path d="M{left} {bottom}H{WIDTH - 24}" stroke="currentColor" stroke-opacity="0.4"/>')
    edges = range(0, len(found) + 1, math.ceil(len(found) / 7))
    names = _distinct([(first + place) * step for place in edges])
    body += [
        f'<text x="{left + place * wide:.1f}" y="{bottom + 13}" text-anchor="middle">{name}</text>'
        for place, name in zip(edges, names, strict=True)
    ]
    body.append(f'<text x="{left - 6}" y="22" text-anchor="end">{most:,}</text>')
    body.append(f'<text x="{left}" y="9">{text(y_name)}</text>')
    body.append(f'<text x="{(left + WIDTH) / 2:.0f}" y="{height - 3}" text-anchor="middle">{text(x_name)}</text>')
    return _svg(height, title, "".join(body))


def _counts(values: Sequence[float], step: float) -> tuple[int, list[int]]:
    """Return the number of the first interval and the counts of all; an AUC of 1 belongs to the one that ends there."""
    first, end = (math.floor(min(values) / step + 1e-9), math.ceil(max(values) / step - 1e-9))
    places = [min(math.floor(value / step + 1e-9), end - 1) - first for value in values]
    return first, [places.count(place) for place in range(end - first)]


def _distinct(values: Sequence[float]) -> list[str]:
    """Return tick labels with enough digits to differ, at least four."""
    shown = [number(value) for value in values]
    for digits in range(5, 16):
        if len(set(shown)) == len(values):
            break
        shown = [f"{value:,.{digits}g}" for value in values]
    return shown


def _round_step(rough: float) -> float:
    """Return the least 1, 2 or 5 times a power of ten that is at least ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _round_values(low: float, high: float, most: int) -> list[float]:
    """Return at most ``most`` round numbers from low to high; low and high if there is none."""
    if high <= low:
        return [low]
    step = _round_step((high - low) / most)
    found = [place * step for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return found or [low, high]


def thinned(points: Sequence[T]) -> list[T]:
    """Return at most ``_MOST_POINTS`` of the points, evenly spaced, with the first and last."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    return [points[round(place * (len(points) - 1) / (_MOST_POINTS - 1))] for place in range(_MOST_POINTS)]


def _svg(height: float, title: str, body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="100%" role="img"'
        f' font-family="sans-serif" font-size="11" fill="currentColor" style="max-width: {WIDTH * _LARGER:g}px">'
        f"<title>{text(title)}</title>{body}</svg>"
    )


def _scale(axes: AxisRange, xs: tuple[float, float], ys: tuple[float, float]) -> Callable[[Point], Point]:
    """Return the function from values to pixels; ``ys`` is (bottom, top)."""
    (low_x, low_y), (high_x, high_y) = axes.low, axes.high

    def at(point: Point) -> Point:
        along = (point[0] - low_x) / (high_x - low_x) if high_x > low_x else 0.5
        up = (point[1] - low_y) / (high_y - low_y) if high_y > low_y else 0.5
        return xs[0] + along * (xs[1] - xs[0]), ys[0] + up * (ys[1] - ys[0])

    return at


def _path(points: Sequence[Point], at: Callable[[Point], Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, points))


def _band(curve: Line, at: Callable[[Point], Point]) -> str:
    edges = ([(x, low) for x, low, _ in band] + [(x, high) for x, _, high in reversed(band)] for band in curve.bands)
    return "".join(
        f'<polygon points="{_path(edge, at)}" fill="{curve.colour}" fill-opacity="0.2"/>' for edge in edges if edge
    )


def _curve(curve: Line, at: Callable[[Point], Point]) -> str:
    if len(curve.points) == 1:
        x, y = at(curve.points[0])
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{curve.colour}"><title>{text(curve.label)}</title></circle>'
    return (
        f'<polyline points="{_path(curve.points, at)}" fill="none" stroke="{curve.colour}" stroke-width="1.6"'
        f' stroke-linejoin="round"><title>{text(curve.label)}</title></polyline>'
    )


def _frame(axes: AxisRange, at: Callable[[Point], Point], left: float, bottom: float, width: float) -> list[str]:
    body = [f'<path d="M{left} 10V{bottom}H{width - 10}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>']
    heights = _round_values(axes.low[1], axes.high[1], 4)
    for value, name in zip(heights, _distinct(heights), strict=True):
        y = at((axes.low[0], value))[1]
        body.append(
            f'<path d="M{left} {y:.1f}H{width - 10}" stroke="currentColor" stroke-opacity="0.12"/>'
            f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{name}</text>'
        )
    epochs = (value for value in _round_values(axes.low[0], axes.high[0], 6) if value == round(value))
    marks = [(value, number(value)) for value in epochs] if axes.marks is None else axes.marks
    body += [
        f'<text x="{at((value, axes.low[1]))[0]:.1f}" y="{bottom + 13}" text-anchor="middle">{name}</text>'
        for value, name in marks
    ]
    return body
