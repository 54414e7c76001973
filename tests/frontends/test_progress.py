from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from grouplearn.frontends.progress import NotebookProgress, Tally, TerminalProgress, _bar, choose_progress, duration
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import RunSummary, UnitResult
from grouplearn.train.results.trials import TrialResult, Trials

SUMMARY = RunSummary("m", 2, 4, 40, "auc", True, "group_task_parallel", "local", 2)


class Timer:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def unit_result(group: int, configs: tuple[int, ...], auc: float, status: str = "done", fold: int = -1) -> UnitResult:
    trials = tuple(TrialResult(config, status, valid={"auc": auc}) for config in configs)  # type: ignore[arg-type]
    return UnitResult(Unit(0, group, configs, fold), Trials.of(group, trials, ("auc",)))


def test_a_tally_counts_trials_groups_epochs_and_time() -> None:
    clock = Timer()
    tally = Tally(SUMMARY, clock)
    clock.now += 10
    tally.epochs_done(10)
    assert (tally.epochs, tally.share, tally.seconds_left) == (10, 0.25, 30.0)
    tally.unit_done(unit_result(0, (0,), 0.7))
    assert (tally.groups, tally.trials) == (0, 1)
    tally.unit_done(unit_result(0, (1,), 0.9, fold=3))
    assert tally.trials == 1
    tally.unit_done(unit_result(0, (1,), math.nan, "failed"))
    assert (tally.groups, tally.trials, tally.failed, tally.best) == (1, 2, 1, 0.9)
    assert (
        tally.line()
        == "m 50% | groups 1/2 | trials 2/4 | epochs 10 | 0.2 trials/s | 1 failed | best auc 0.9 | 0:10 left"
    )


def test_a_tally_counts_what_is_run_again() -> None:
    tally = Tally(SUMMARY, Timer())
    assert "lost" not in tally.facts()
    tally.units_lost((Unit(0, 0, (0,)), Unit(1, 1, (0,))))
    assert "2 lost and run again" in tally.line()
    assert tally.trials == 0


def test_the_first_units_correct_the_estimate_of_the_rest() -> None:
    clock = Timer()
    tally = Tally(replace(SUMMARY, seconds=100.0), clock)
    for number in range(3):
        clock.now += 2
        unit = Unit(number, number, (0,), fold=0, cost=1.0)
        tally.unit_done(UnitResult(unit, Trials.joined(()), started=2.0 * number, ended=2.0 * number + 2))
    assert tally.seconds_left == 2 * 100 - 6  # twice what was estimated, for all that is left
    clock.now += 1000
    tally.epochs_done(20)
    assert tally.seconds_left == 1006.0  # the estimate is used up: half of the epochs are done


def test_the_best_of_an_error_is_the_smallest() -> None:
    tally = Tally(RunSummary("m", 1, 2, 2, "auc", False, "o", "local", 1))
    for value in (0.5, 0.2, 0.8):
        tally.unit_done(unit_result(0, (0,), value))
    assert tally.best == 0.2


@pytest.mark.parametrize(("seconds", "text"), [(math.nan, "-:--"), (3.2, "0:03"), (75, "1:15"), (3671, "1:01:11")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_terminal_bar_shows_facts_and_leaves_nothing() -> None:
    out = io.StringIO()
    progress = TerminalProgress(Console(file=out, force_terminal=True, width=150))
    progress.started(SUMMARY)
    progress.unit_done(unit_result(0, (0, 1), 0.75))
    progress.ended()
    progress.ended()
    assert "groups 1/2" in out.getvalue()
    assert "best auc 0.75" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")  # the last thing done is to erase the line
    assert "\x1b[?25h" in out.getvalue()  # the cursor is visible again


@pytest.mark.parametrize("width", [40, 80, 100, 110, 120, 200])
@pytest.mark.parametrize("model", ["m", "m" * 300, "two\nlines", "模型" * 10])
def test_the_bar_is_one_line_at_any_width(width: int, model: str) -> None:
    tally = Tally(replace(SUMMARY, model=model, groups=185_000, trials=370_000, epochs=99_999_999))
    tally.epochs_done(1_000_000)
    tally.unit_done(unit_result(0, (0, 1), 0.123456, "failed"))
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as captured:
        console.print(_bar(tally, width))
    (line,) = captured.get().splitlines()
    assert cell_len(line) <= width
    if width >= 80 and model == "m":
        assert line.rstrip().endswith("left")
        assert "trials 2/370,000" in line


def test_slow_trials_are_counted_by_their_epochs() -> None:
    clock = Timer()
    tally = Tally(SUMMARY, clock)
    clock.now += 20
    tally.epochs_done(30)
    assert tally.facts()["rate"] == "1.5 epochs/s"


def test_a_run_that_was_stopped_says_so() -> None:
    tally = Tally(SUMMARY, Timer())
    assert tally.ending().startswith("m | stopped | groups 0/2")


def test_redrawing_is_throttled() -> None:
    clock = Timer()
    out = io.StringIO()
    progress = TerminalProgress(Console(file=out, force_terminal=True, width=150), clock)
    progress.started(SUMMARY)
    before = len(out.getvalue())
    for _ in range(10_000):
        progress.epochs_done(Unit(0, 0, (0,)), 1)
    assert len(out.getvalue()) - before < 3000
    progress.ended()


def test_a_pipe_stays_silent() -> None:
    out = io.StringIO()
    progress = TerminalProgress(Console(file=out, force_terminal=False))
    progress.started(SUMMARY)
    progress.unit_done(unit_result(0, (0, 1), 0.75))
    progress.ended()
    assert out.getvalue() == ""


def test_nobody_watches_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert choose_progress() is None


def test_the_notebook_line_updates_in_place_and_ends_as_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, line: object) -> None:
            shown.append(line._repr_html_())  # type: ignore[attr-defined]

    def display(line: object, display_id: bool) -> Handle:
        shown.append(repr(line))
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    progress = NotebookProgress()
    progress.started(SUMMARY)
    progress.unit_done(unit_result(0, (0, 1), 0.75))
    progress.ended()
    assert shown[0].startswith("m 0%")
    assert '<progress max="1" value="0.500">' in shown[1]
    assert "2 workers, local, group_task_parallel" in shown[-1]
    assert "<progress" not in shown[-1]
