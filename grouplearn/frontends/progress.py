"""Live progress of a TRAIN: a bar in a terminal, a line that updates in place in a notebook."""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from grouplearn.amounts import on_one_line
from grouplearn.plan.cost.pilot import pilot_ratio
from grouplearn.plan.explain.gantt import text as escaped

if TYPE_CHECKING:
    from grouplearn.schedule.messages import Unit
    from grouplearn.train.job import Progress, RunSummary, UnitResult

_REDRAW_SECONDS = 0.1
_BAR_WIDTH = 24
_MODEL_WIDTH = 24
#: How many first units of a run correct the estimate for the rest.
_PILOT_UNITS = 100
_DROPPED_FIRST = ("rate", "epochs", "groups", "lost", "failed", "best")


def choose_progress() -> Progress | None:
    """Return a display for the user's terminal or notebook, None if there is neither (a pipe, a log, a test)."""
    if _in_notebook():
        return NotebookProgress()
    return TerminalProgress() if sys.stderr is not None and sys.stderr.isatty() else None


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


@dataclass(slots=True)
class Tally:
    """Counts of a run's events so far. ``clock`` returns seconds.

    ``trials`` have ended, failed ones too; ``groups`` have no more trials to run; ``epochs`` is summed over trials;
    ``lost`` are units or steps that were lost with their worker and run again.
    """

    summary: RunSummary
    clock: Callable[[], float] = time.monotonic
    began: float = 0.0
    groups: int = 0
    epochs: int = 0
    failed: int = 0
    best: float = math.nan
    trials: int = 0
    lost: int = 0
    _left_in_group: dict[int, int] = field(default_factory=dict)
    _pilot: dict[int, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def unit_done(self, result: UnitResult) -> None:
        """Count a unit's trials; a fold's unit has metrics but completes no trial, nor does one on all rows after a search."""
        if len(self._pilot) < _PILOT_UNITS:
            self._pilot[result.unit.id] = (result.unit.cost, result.ended - result.started)
        self._see_metric(result.best(self.summary.metric, self.summary.greater_is_better))
        if not result.unit.is_final:
            return
        self.trials = min(self.trials + len(result.unit.groups) * len(result.unit.configs), self.summary.trials)
        self.failed += result.failed
        for group in result.unit.groups:
            left = self._left_in_group.get(group, self._configs_per_group) - len(result.unit.configs)
            self._left_in_group[group] = left
            self.groups += left == 0

    def epochs_done(self, epochs: int) -> None:
        """Count epochs, summed over the configs that ran them."""
        self.epochs += epochs

    def units_lost(self, units: tuple[Unit, ...]) -> None:
        """Count units that are run again."""
        self.lost += len(units)

    def _see_metric(self, value: float) -> None:
        better = value > self.best if self.summary.greater_is_better else value < self.best
        if better or (math.isnan(self.best) and not math.isnan(value)):
            self.best = value

    @property
    def _configs_per_group(self) -> int:
        return max(1, self.summary.trials // max(1, self.summary.groups))

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self.began

    @property
    def share(self) -> float:
        """The share of work done, 0 to 1: by epochs, some of which early stopping may skip, or by trials."""
        by_trials = self.trials / max(1, self.summary.trials)
        return min(1.0, max(by_trials, self.epochs / max(1, self.summary.epochs)))

    @property
    def seconds_left(self) -> float:
        """The planner's estimate, corrected by the first units; if these say nothing or the estimate has run out, an
        extrapolation from the share done; NaN at the start.
        """
        ratio = pilot_ratio(list(self._pilot.values()))
        planned = 0.0 if ratio is None else ratio * self.summary.seconds - self.seconds
        if planned > 0:
            return planned
        return self.seconds * (1 - self.share) / self.share if self.share > 0 else math.nan

    def facts(self) -> dict[str, str]:
        """Return the parts of the progress line by name, without the bar."""
        summary = self.summary
        facts = {
            "groups": f"groups {self.groups:,}/{summary.groups:,}",
            "trials": f"trials {self.trials:,}/{summary.trials:,}",
            "epochs": f"epochs {self.epochs:,}",
            "rate": self._rate(),
        }
        if self.failed:
            facts["failed"] = f"{self.failed:,} failed"
        if self.lost:
            facts["lost"] = f"{self.lost:,} lost and run again"
        if not math.isnan(self.best):
            facts["best"] = f"best {summary.metric} {self.best:.4g}"
        return facts

    def facts_within(self, width: int) -> str:
        """Return as many facts as fit into ``width`` characters, and the time left."""
        facts = {**self.facts(), "left": f"{duration(self.seconds_left)} left"}
        for name in _DROPPED_FIRST:
            if len("  ".join(facts.values())) <= width:
                break
            facts.pop(name, None)
        return "  ".join(facts.values())

    def _rate(self) -> str:
        """Trials per second, or epochs if trials are long."""
        seconds = max(self.seconds, 1e-9)
        if self.trials / seconds < 0.1 and self.epochs:
            return f"{self.epochs / seconds:,.1f} epochs/s"
        return f"{self.trials / seconds:,.1f} trials/s"

    def line(self) -> str:
        """Return one line of text, e.g. ``flights 45% | groups 7/16 | ... | 0:03 left``."""
        left = f"{duration(self.seconds_left)} left"
        return " | ".join(
            [f"{on_one_line(self.summary.model, _MODEL_WIDTH)} {self.share:.0%}", *self.facts().values(), left]
        )

    def ending(self) -> str:
        """Return the line that remains after the run."""
        summary = self.summary
        where = f"{summary.workers} worker{'s' if summary.workers != 1 else ''}, {summary.executor}, {summary.operator}"
        stopped = ["stopped"] if self.trials < summary.trials else []
        model = on_one_line(summary.model, _MODEL_WIDTH)
        return " | ".join([model, *stopped, *self.facts().values(), f"{self.seconds:.1f} s", where])


def duration(seconds: float) -> str:
    """Return ``m:ss`` or ``h:mm:ss``; ``-:--`` when unknown."""
    if math.isnan(seconds):
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Display(ABC):
    """Counts events and redraws at most every 0.1 s; subclasses draw."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tally: Tally | None = None
        self._drawn = -math.inf

    def started(self, summary: RunSummary) -> None:
        """Start showing a run."""
        self._tally = Tally(summary, self._clock)
        self._drawn = -math.inf
        self._open(self._tally)

    def unit_done(self, result: UnitResult) -> None:
        """Count a unit."""
        if self._tally is not None:
            self._tally.unit_done(result)
            self._maybe_draw(self._tally)

    def epochs_done(self, unit: Unit, epochs: int) -> None:  # noqa: ARG002
        """Count epochs, summed over the unit's configs."""
        if self._tally is not None:
            self._tally.epochs_done(epochs)
            self._maybe_draw(self._tally)

    def units_lost(self, units: tuple[Unit, ...]) -> None:
        """Count units that are run again."""
        if self._tally is not None:
            self._tally.units_lost(units)
            self._maybe_draw(self._tally)

    def ended(self) -> None:
        """Stop showing the run, if one is shown."""
        tally, self._tally = self._tally, None
        if tally is not None:
            self._close(tally)

    def _maybe_draw(self, tally: Tally) -> None:
        now = self._clock()
        if now - self._drawn >= _REDRAW_SECONDS:
            self._drawn = now
            self._draw(tally)

    @abstractmethod
    def _open(self, tally: Tally) -> None: ...

    @abstractmethod
    def _draw(self, tally: Tally) -> None: ...

    @abstractmethod
    def _close(self, tally: Tally) -> None: ...


class TerminalProgress(_Display):
    """A live bar on stderr that is removed at the end, when the result follows."""

    def __init__(self, console: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._console = console
        self._live: Any = None

    def _open(self, tally: Tally) -> None:
        from rich.console import Console
        from rich.live import Live

        console = self._console or Console(stderr=True)
        if console.is_terminal:
            # Elapsed time and estimate change between events: rich asks for the renderable 4 times a second.
            self._live = Live(
                get_renderable=lambda: _bar(tally, console.width), console=console, transient=True, refresh_per_second=4
            )
            self._live.start()

    def _draw(self, tally: Tally) -> None:  # noqa: ARG002
        live = self._live  # another thread may close the display
        if live is not None:
            live.refresh()  # reads the tally itself

    def _close(self, tally: Tally) -> None:  # noqa: ARG002
        live, self._live = self._live, None
        if live is not None:
            live.stop()


def _bar(tally: Tally, width: int) -> Any:
    """One line of any width: the bar gets shorter and the facts fewer."""
    from rich.cells import cell_len
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    model = on_one_line(tally.summary.model, _MODEL_WIDTH)
    bar_width = _BAR_WIDTH if width >= 100 else _BAR_WIDTH // 2
    share = f"{tally.share:4.0%}"
    taken = cell_len(model) + bar_width + len(share) + 4  # one space after each, two before the facts
    grid = Table.grid(padding=(0, 1))
    for _ in range(4):
        grid.add_column(no_wrap=True, overflow="ellipsis")
    grid.add_row(
        Text(model, style="bold"),
        ProgressBar(total=1.0, completed=tally.share, width=bar_width),
        share,
        Text(" " + tally.facts_within(width - taken)),
    )
    return grid


class NotebookProgress(_Display):
    """A line that updates in place below the cell and ends as a summary."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._handle: Any = None

    def _open(self, tally: Tally) -> None:
        from IPython.display import display

        self._handle = display(_Line(tally.line(), tally.share), display_id=True)

    def _draw(self, tally: Tally) -> None:
        self._handle.update(_Line(tally.line(), tally.share))

    def _close(self, tally: Tally) -> None:
        self._handle.update(_Line(tally.ending(), None))


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of text, in HTML with a bar before it while ``share`` is given."""

    text: str
    share: float | None

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        bar = f'<progress max="1" value="{self.share:.3f}"></progress> ' if self.share is not None else ""
        return f"<div>{bar}<code>{escaped(self.text)}</code></div>"
