"""Tables of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grouplearn.catalog.overview import Overview
from grouplearn.frontends.report.drawing import shortened
from grouplearn.plan.explain.gantt import text

#: Longer values are cut, as a key may be a whole document.
LONGEST = 120


def table(heads: Sequence[str], rows: Sequence[str], numbers: Iterable[int]) -> str:
    """Return a table of rows; the columns at the places ``numbers`` are aligned right."""
    right = set(numbers)
    names = "".join(
        f"<th{' class=number' if place in right else ''}>{text(head)}</th>" for place, head in enumerate(heads)
    )
    return f'<div class="scroll"><table><thead><tr>{names}</tr></thead><tbody>\n{chr(10).join(rows)}\n</tbody></table></div>'


def cell(value: str | None, kind: str = "") -> str:
    """Return a cell of a CSS class."""
    marked = f' class="{kind}"' if kind else ""
    shown = (
        '<span class="null">NULL</span>'
        if value is None
        else text(shortened(value, 1000 if kind == "text" else LONGEST))
    )
    return f"<td{marked}>{shown}</td>"


def key_cells(overview: Overview, keys: Sequence[str | None], level: int) -> list[str]:
    """Return the cells of a group's keys."""
    used = overview.stored.definition.sets[level]
    if not keys:
        return [cell("all rows")]
    rolled_up = '<td><span class="all">all</span></td>'
    return [cell(key) if place in used else rolled_up for place, key in enumerate(keys)]
