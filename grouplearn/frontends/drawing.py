"""Small pictures as SVG without script: sparklines, lines, bars, histograms; they take the colours of the page.

Lines and areas have the colour of the CSS variable ``--grouplearn-accent``, or a blue that can be read on white and on black.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from grouplearn.plan.gantt import text

ACCENT, GREY = "var(--grouplearn-accent, #3d85c6)", "#888888"
_MOST_POINTS = 160
Point = tuple[float, float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    """A curve: points in order of x, those without a finite y left out; ``band`` has (x, low, high)."""

    points: Sequence[Point]
    label: str = ""
    band: Sequence[tuple[float, float, float]] = ()


def number(value: float | None) -> str:
    """Return a number with four digits, for people: ``0.1234``, ``1,234``, ``1.2e-09``."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def aligned(values: Sequence[float | None]) -> list[str]:
    """Return numbers of one column with as many decimals each, four digits of a typical one: ``0.9646``, ``0.9500``."""
    sizes = sorted(abs(value) for value in values if value and math.isfinite(value))
    decimals = 3 - math.floor(math.log10(sizes[len(sizes) // 2])) if sizes else -1
    if not -12 < decimals <= 6:
        return [number(value) for value in values]
    return [_with_decimals(value, max(decimals, 0)) for value in values]


def _with_decimals(value: float | None, decimals: int) -> str:
    if not value or not math.isfinite(value):
        return number(value)  # a weight that is 0 is no rounded one
    shown = f"{value:,.{decimals}f}"
    return shown if re.search("[1-9]", shown) else f"{value:.1g}"


def shortened(value: str, most: int) -> str:
    """Return a text of at most so many characters, its end cut off where it is longer."""
    return value if len(value) <= most else value[: most - 1] + "…"


def sparkline(
    values: Sequence[float | None], title: str, width: int = 84, height: int = 20, *, colour: str = ACCENT
) -> str:
    """Return a curve as high as a line of text, its last point marked; nothing when it has fewer than two points."""
    points = thinned([(float(x), y) for x, y in enumerate(values) if y is not None and math.isfinite(y)])
    if len(points) < 2:
        return ""
    at = _scale(points, (2, width - 4), (height - 3, 3))
    last_x, last_y = at(points[-1])
    return (
        f'<svg class="grouplearn-spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
        f' style="min-width: {width}px; vertical-align: middle">'
        f"<title>{text(title)}</title>"
        f'<polyline points="{_path(points, at)}" fill="none" stroke="{colour}" stroke-width="1.4" stroke-linejoin="round"/>'
        f'<circle cx="{last_x:.1f}" cy="{last_y:.1f}" r="2" fill="{colour}"/></svg>'
    )


def lines(curves: Sequence[Line], title: str, x_name: str, y_name: str, width: int = 320, height: int = 170) -> str:
    """Return curves over one pair of axes."""
    thin = [Line(thinned(curve.points), curve.label, thinned(curve.band)) for curve in curves]
    everything = [point for curve in thin for point in curve.points]
    everything += [(x, y) for curve in thin for x, *ends in curve.band for y in ends]
    if not everything:
        return ""
    left, bottom = 52, height - 30
    at = _scale(everything, (left, width - 10), (bottom, 10))
    body = [*_frame(everything, at, left, bottom, width), *(_band(curve, at) for curve in thin)]
    body += [_curve(curve, at) for curve in thin if curve.points]
    names = (
        f'<text x="{(left + width - 10) / 2:.0f}" y="{height - 3}" text-anchor="middle">{text(x_name)}</text>'
        f'<text x="{left}" y="7" text-anchor="start" font-size="9">{text(y_name)}</text>'
    )
    return _svg(width, height, title, "".join(body) + names)


def bars(rows: Sequence[tuple[str, float, float, float, str]], title: str, width: int = 480) -> str:
    """Return horizontal bars of (label, value, low, high, note): a bar to the value, a whisker from low to high."""
    most = max((max(value, high) for _, value, _, high, _ in rows), default=0) or 1
    left, step = 24 + 6 * min(26, max((len(label) for label, *_ in rows), default=0)), 20
    scale = (width - left - 50) / most
    body = []
    for place, (label, value, low, high, note) in enumerate(rows):
        y = place * step
        body.append(
            f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{text(shortened(label, 26))}<title>{text(label)}</title></text>'
            f'<rect x="{left}" y="{y + 4}" width="{max(value * scale, 0.5):.1f}" height="12" rx="2" fill="{ACCENT}"'
            ' fill-opacity="0.75"/>'
        )
        if high > low:
            body.append(
                f'<path d="M{left + low * scale:.1f} {y + 10}H{left + high * scale:.1f}" stroke="currentColor"'
                ' stroke-opacity="0.65"/>'
            )
        body.append(f'<text x="{left + max(value, high) * scale + 6:.1f}" y="{y + 14}">{text(note)}</text>')
    return _svg(width, len(rows) * step + 4, title, "".join(body))


def histogram(
    values: Sequence[float], title: str, x_name: str, y_name: str, width: int = 480, height: int = 150
) -> str:
    """Return how often values fall into each of some 8 to 40 intervals between round numbers."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2 or min(finite) == max(finite):
        return ""
    step = _round_step((max(finite) - min(finite)) / min(40, max(8, 2 * math.sqrt(len(finite)))))
    first = math.floor(min(finite) / step)
    places = [math.floor(value / step) - first for value in finite]
    found = [places.count(place) for place in range(max(places) + 1)]
    left, bottom = 40, height - 32
    wide, most = (width - left - 24) / len(found), max(found)
    body = [
        f'<rect x="{left + place * wide + 0.5:.1f}" y="{bottom - (bottom - 16) * many / most:.1f}" width="{wide - 1:.1f}"'
        f' height="{(bottom - 16) * many / most:.1f}" fill="{ACCENT}" fill-opacity="0.75"><title>{many}</title></rect>'
        for place, many in enumerate(found)
    ]
    body.append(f'<path d="M{left} {bottom}H{width - 24}" stroke="currentColor" stroke-opacity="0.4"/>')
    body += [
        f'<text x="{left + place * wide:.1f}" y="{bottom + 13}" text-anchor="middle">{number((first + place) * step)}</text>'
        for place in range(0, len(found) + 1, math.ceil(len(found) / 7))
    ]
    body.append(f'<text x="{left - 6}" y="20" text-anchor="end">{most:,}</text>')
    body.append(f'<text x="{left}" y="9" font-size="9">{text(y_name)}</text>')
    body.append(f'<text x="{(left + width) / 2:.0f}" y="{height - 3}" text-anchor="middle">{text(x_name)}</text>')
    return _svg(width, height, title, "".join(body))


def _round_step(rough: float) -> float:
    """Return the least 1, 2 or 5 times a power of ten that is not less than ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _round_values(low: float, high: float, most: int) -> list[float]:
    """Return at most ``most`` round numbers from low to high; both, where there is no round one."""
    if high <= low:
        return [low]
    step = _round_step((high - low) / most)
    found = [place * step for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return found or [low, high]


def thinned(points: Sequence[T], most: int = _MOST_POINTS) -> list[T]:
    """Return at most ``most`` of the points, evenly spaced, first and last included."""
    if len(points) <= most:
        return list(points)
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


def _svg(width: int, height: float, title: str, body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" width="100%" role="img"'
        f' font-family="sans-serif" font-size="11" fill="currentColor" style="max-width: {width}px">'
        f"<title>{text(title)}</title>{body}</svg>"
    )


def _scale(points: Sequence[Point], xs: tuple[float, float], ys: tuple[float, float]) -> Callable[[Point], Point]:
    """Return the map from values to pixels; ``ys`` is (bottom, top)."""
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    low_y, high_y = min(y for _, y in points), max(y for _, y in points)

    def at(point: Point) -> Point:
        along = (point[0] - low_x) / (high_x - low_x) if high_x > low_x else 0.5
        up = (point[1] - low_y) / (high_y - low_y) if high_y > low_y else 0.5
        return xs[0] + along * (xs[1] - xs[0]), ys[0] + up * (ys[1] - ys[0])

    return at


def _path(points: Sequence[Point], at: Callable[[Point], Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, points))


def _band(curve: Line, at: Callable[[Point], Point]) -> str:
    if not curve.band:
        return ""
    edge = [(x, low) for x, low, _ in curve.band] + [(x, high) for x, _, high in reversed(curve.band)]
    return f'<polygon points="{_path(edge, at)}" fill="{ACCENT}" fill-opacity="0.2"/>'


def _curve(curve: Line, at: Callable[[Point], Point]) -> str:
    if len(curve.points) == 1:
        x, y = at(curve.points[0])
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{ACCENT}"><title>{text(curve.label)}</title></circle>'
    return (
        f'<polyline points="{_path(curve.points, at)}" fill="none" stroke="{ACCENT}" stroke-width="1.6"'
        f' stroke-linejoin="round"><title>{text(curve.label)}</title></polyline>'
    )


def _frame(
    points: Sequence[Point], at: Callable[[Point], Point], left: float, bottom: float, width: float
) -> list[str]:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    body = [f'<path d="M{left} 10V{bottom}H{width - 10}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>']
    for value in _round_values(min(ys), max(ys), 4):
        y = at((xs[0], value))[1]
        body.append(
            f'<path d="M{left} {y:.1f}H{width - 10}" stroke="currentColor" stroke-opacity="0.12"/>'
            f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>'
        )
    body += [
        f'<text x="{at((value, ys[0]))[0]:.1f}" y="{bottom + 13}" text-anchor="middle">{number(value)}</text>'
        for value in _round_values(min(xs), max(xs), 6)
        if value == round(value)  # of an epoch there are no halves
    ]
    return body
