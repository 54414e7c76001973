"""The sections of the page that say how good predictions are, and what clusters are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grouplearn.catalog.overview import Overview
from grouplearn.frontends.report import drawing
from grouplearn.frontends.report.drawing import GREY, AxisRange, Line, aligned, number, shortened
from grouplearn.frontends.report.tables import LONGEST, cell, key_cells, table
from grouplearn.plan.explain.gantt import text
from grouplearn.prediction.judge import Judge, macros
from grouplearn.store.writer import view_query

#: Most classes with a row and a column; most clusters and features that are listed.
_CLASSES, _CLUSTERS, _FEATURES = 12, 40, 12
_SQUARE = 230
_KEEPING = "WITH (keep_held_out = true)"


def judged_section(overview: Overview, judge: Judge | None) -> str:
    """Return the HTML of the section of held-out rows; empty for a model whose predictions are not compared with labels."""
    if judge is None:
        why = f"<code>{text(_KEEPING)}</code> keeps them, for pictures here and <code>m_held_out</code>."
        has = overview.facts.part == "valid" and macros(overview.stored)
        return f'<p class="dim">The predictions of held-out rows were not kept: {why}</p>' if has else ""
    known = judge.macros
    pieces = [_confusion(judge)] if "_confusion" in known else []
    pieces += [_curve(judge)] if "_roc" in known else []
    pieces += [_calibration(judge)] if "_calibration" in known else []
    note = "All held-out rows together, each predicted by the model of its group that did not learn from it."
    return f'<p class="dim">{note}</p><div class="small">{"".join(pieces)}</div>'


def _confusion(judge: Judge) -> str:
    rows = judge.confusion()
    sizes: dict[str, int] = {}
    for actual, predicted, n, _ in rows:
        sizes[actual] = sizes.get(actual, 0) + n
        sizes.setdefault(predicted, 0)
    names = [name for name in judge.stored.definition.classes if name in sizes]
    if len(names) > _CLASSES:
        return _most_confused(rows)
    found = {(actual, predicted): (n, share) for actual, predicted, n, share in rows}
    lines = [
        f"<tr>{cell(actual)}{''.join(_counted(found.get((actual, name)), name == actual) for name in names)}</tr>"
        for actual in names
    ]
    heads = ["label \\ predicted", *(shortened(name, LONGEST) for name in names)]
    return f"<figure><h3>Confusion</h3>{table(heads, lines, range(1, len(heads)))}</figure>"


def _counted(found: tuple[int, float] | None, is_right: bool) -> str:
    n, share = found or (0, 0.0)
    shown = f"{n:,} <small>{share:.0%}</small>"
    return f'<td class="number">{f"<b>{shown}</b>" if is_right else shown}</td>'


def _most_confused(rows: Sequence[tuple[str, str, int, float]]) -> str:
    """Return the most frequent mistakes, if there are too many classes for a table of all."""
    wrong = sorted((row for row in rows if row[0] != row[1]), key=lambda row: -row[2])[:_CLASSES]
    lines = [
        f"<tr>{cell(actual)}{cell(predicted)}{cell(f'{n:,}', 'number')}{cell(f'{share:.0%}', 'number')}</tr>"
        for actual, predicted, n, share in wrong
    ]
    heads = ["label", "predicted", "rows", "of the label"]
    return f"<figure><h3>Most frequent mistakes</h3>{table(heads, lines, (2, 3))}</figure>"


def _curve(judge: Judge) -> str:
    area, points = judge.area(), judge.rows("_roc")
    if area is None:
        return ""
    curve = [(0.0, 0.0), *((x, y) for _, x, y in points)]
    picture = drawing.lines(
        [Line([(0.0, 0.0), (1.0, 1.0)], colour=GREY), Line(curve)],
        "ROC curve",
        "share of negative rows that are called positive",
        "share of positive rows",
        _SQUARE,
        AxisRange((0.0, 0.0), (1.0, 1.0)),
    )
    return f"<figure><h3>ROC <small>area {number(area)}</small></h3>{picture}</figure>"


def _calibration(judge: Judge) -> str:
    points = [(float(x), float(y)) for _, _, x, y in judge.rows("_calibration") if x is not None and y is not None]
    if not points:
        return ""
    low, high = min(map(min, points)), max(map(max, points))
    picture = drawing.lines(
        [Line([(low, low), (high, high)], colour=GREY), Line(points)],
        "predictions and labels",
        "mean prediction of a tenth of the rows",
        "mean label",
        _SQUARE,
    )
    return f"<figure><h3>Predicted and observed</h3>{picture}</figure>"


def segments_section(overview: Overview) -> str:
    """Return the HTML of the clusters of the largest groups, in the units of the columns; empty for other models."""
    if not any(view.suffix == "_centroids" for view in overview.stored.definition.output.views):
        return ""
    definition = overview.stored.definition
    keys = [f"k{place}" for place in range(len(definition.keys))]
    others = [f"h{place}" for place in range(len(definition.hyperparameters))]
    names = ", ".join([*keys, "level", *others, "cluster", "n_rows", "feature", "value", "original"])
    query = view_query(overview.connection, overview.stored, "_centroids")
    found = overview.connection.execute(
        f"SELECT [{', '.join(f'{key}::VARCHAR' for key in keys)}]::VARCHAR[], level, cluster, n_rows, feature,"
        f" coalesce(original, value) FROM ({query}) AS c({names})"
    ).fetchall()
    return _segments(overview, found)


def _segments(overview: Overview, found: Sequence[tuple[Any, ...]]) -> str:
    values: dict[tuple[Any, ...], dict[str, float | None]] = {}
    features: dict[str, None] = {}
    for keys, level, cluster, n_rows, feature, value in found:
        values.setdefault((tuple(keys), level, cluster, n_rows), {})[feature] = value
        features.setdefault(feature)
    shown, listed = list(features)[:_FEATURES], list(values)[:_CLUSTERS]
    columns = [aligned([values[each].get(feature) for each in listed]) for feature in shown]
    names = [key.name for key in overview.stored.definition.keys] or ["group"]
    lines = []
    for place, (keys, level, cluster, n_rows) in enumerate(listed):
        group = "".join(key_cells(overview, keys, overview.levels.index(level)))
        numbers = (str(cluster), f"{n_rows:,}", *(column[place] for column in columns))
        lines.append(f"<tr>{group}{''.join(cell(each, 'number') for each in numbers)}</tr>")
    heads = [*names, "cluster", "rows", *shown]
    more = f" These are {len(listed)} of {len(values):,} clusters." if len(listed) < len(values) else ""
    less = f" {len(features) - len(shown):,} more features are left out." if len(features) > len(shown) else ""
    note = f"The centre of each cluster, in the units of the columns.{more}{less}"
    return f'<p class="dim">{note}</p>{table(heads, lines, range(len(names), len(heads)))}'
