"""A plan as one self-contained piece of HTML, for a browser or a notebook: no script, no external picture."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.amounts import counted, on_one_line
from grouplearn.plan.explain import facts as explain
from grouplearn.plan.explain.gantt import STYLE as GANTT_STYLE
from grouplearn.plan.explain.gantt import Bar, gantt, legend, text
from grouplearn.plan.explain.measured import Measured, comparison
from grouplearn.plan.operator_choice import Choice
from grouplearn.plan.physical import PhysicalPlan

#: Colours come from the page, so that the plan is readable in dark and light themes.
_STYLE = """
.grouplearn-plan { font-family: sans-serif; font-size: 13px; max-width: 940px; line-height: 1.45 }
.grouplearn-plan h4 { margin: 1.1em 0 0.3em; font-size: 13px }
.grouplearn-plan pre { margin: 0; padding: 6px 10px; border-left: 3px solid rgba(128, 128, 128, 0.4); overflow-x: auto;
  font-family: monospace; font-size: 12px; background: none; color: inherit }
.grouplearn-plan .scroll { overflow-x: auto }
.grouplearn-plan table { border-collapse: collapse; margin: 0; font-size: inherit; color: inherit }
.grouplearn-plan th, .grouplearn-plan td { padding: 2px 12px 2px 0; text-align: right; font-weight: normal; white-space: nowrap;
  background: none; border: 0 }
.grouplearn-plan th { opacity: 0.65 }
.grouplearn-plan td:first-child, .grouplearn-plan th:first-child { text-align: left }
.grouplearn-plan tr.chosen td { font-weight: bold }
.grouplearn-plan tr.refused td { opacity: 0.5 }
.grouplearn-plan ul { margin: 0; padding-left: 18px }
.grouplearn-plan p { margin: 0.3em 0 }
@media screen and (max-width: 600px) { .grouplearn-plan pre { white-space: pre-wrap; overflow-wrap: anywhere } }
"""


def explain_html(physical: PhysicalPlan, choice: Choice, bars: Sequence[Bar], measured: Measured | None = None) -> str:
    """Return the plan with its simulated schedule as a Gantt chart, and the real schedule below it if the plan ran."""
    name = on_one_line(physical.bound.name, 80)
    # One scale for both charts, so that they can be compared by eye.
    end = max((bar.end for bar in (*bars, *(measured.bars if measured else ()))), default=0.0)
    simulated = f"simulated schedule of {choice.operator}"
    parts = [
        f"<h4>{text(f'Train {name}')}</h4>",
        f"<p>{text(explain.summary(physical, choice))}</p>",
        _list(explain.choices(physical, choice)),
        f"<h4>Operators, simulated on {counted(choice.simulated, 'worker')}</h4>",
        _operators(explain.operator_table(physical, choice)),
        *_chart("Estimated schedule", bars, choice.simulated, simulated, end),
        *([] if measured is None else _measured(measured, choice.workers, end)),
        "<h4>Groups</h4>",
        _lines(explain.skew(physical)),
        "<h4>Trials</h4>",
        _lines(explain.trials(physical)),
        "<h4>Logical plan</h4>",
        _lines(explain.logical_plan(physical).lines()),
        "<h4>Physical plan</h4>",
        _lines(explain.physical_plan(physical, choice).lines()),
    ]
    return f'<div class="grouplearn-plan"><style>{_STYLE}{GANTT_STYLE}</style>{"".join(parts)}</div>'


def _chart(title: str, bars: Sequence[Bar], workers: int, name: str, end: float) -> list[str]:
    chart = f'<div class="scroll">{gantt(bars, workers, name, end)}</div>{legend(bars)}' if bars else "<p>No unit.</p>"
    return [f"<h4>{title}</h4>", chart]


def _measured(measured: Measured, workers: int, end: float) -> list[str]:
    heads = ("", "estimated", "measured")
    rows = [_row("td", cells, "") for cells in comparison(measured)]
    return [
        *_chart("Measured schedule", measured.bars, max(workers, measured.measured.workers), "as it ran", end),
        "<h4>Measured</h4>",
        f"<table>{_row('th', heads, '')}{''.join(rows)}</table>",
        f"<p>{text(measured.verdict)}</p>",
    ]


def _operators(rows: Sequence[Sequence[str]]) -> str:
    classes = {"<- chosen": "chosen", "cannot": "refused"}
    body = "".join(_row("td", row[:-1], classes.get(row[-1], "")) for row in rows[1:])
    return f'<div class="scroll"><table>{_row("th", rows[0][:-1], "")}{body}</table></div>'


def _row(tag: str, cells: Sequence[str], kind: str) -> str:
    marked = f' class="{kind}"' if kind else ""
    return f"<tr{marked}>{''.join(f'<{tag}>{text(cell)}</{tag}>' for cell in cells)}</tr>"


def _lines(lines: Sequence[str]) -> str:
    return f"<pre>{text(chr(10).join(lines))}</pre>"


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{text(line)}</li>' for line in lines)}</ul>"
