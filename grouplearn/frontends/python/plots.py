"""Plots of a model as matplotlib axes, in the colours and sizes of the current style, dark ones included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from grouplearn.catalog.overview import Overview, Trial
from grouplearn.errors import ProgrammingError, not_installed
from grouplearn.frontends.python import fans
from grouplearn.frontends.python.scope import Scope, frames_registered
from grouplearn.plan.explain.gantt import MOST_WORKERS, merged
from grouplearn.prediction.forecasts import Forecasts
from grouplearn.prediction.judge import Judge, judge, macros
from grouplearn.visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Read = TypeVar("_Read")
#: Share above which a square is so dark that its text is white.
_DARK = 0.6
#: Most groups with a curve each; more are drawn as median and range.
MOST_CURVES = 12
#: Colours in matplotlib's cycle; with more groups a legend would repeat them.
_COLOURS = 10
#: Most letters of a name in the legend beside the bars.
_MOST_LETTERS = 32
#: Rows of bars that a legend entry is as high as: ten groups on one worker need more height than its bar.
_NAME_ROWS = 2 / 3
#: Bars narrower than this share of the time are merged with the next.
_LEAST_SHARE = 1 / 600
#: Least share of the time for which a bar has room for its group's name, if there is no legend.
_LABELLED_SHARE = 1 / 6


class Plots:
    """``m.plot``: each method draws on ``ax``, or on new axes, and returns the axes."""

    def __init__(self, read: Callable[[], AbstractContextManager[Overview]]) -> None:
        self._read = read

    def __repr__(self) -> str:
        return "<curves(), importance(), schedule(), forecast(), confusion(), roc(), pr(), lift(), calibration()>"

    def curves(self, ax: Axes | None = None) -> Axes:
        """Draw the learning curves of the groups' best trials: the held-out metric, or the training loss if there is none.

        Up to 12 groups have a curve each; of more, the median and the range of the middle 80% are drawn.
        """
        axes = _axes(ax)
        with self._read() as overview:
            return _draw_curves(axes, overview)

    def importance(self, ax: Axes | None = None, top: int = 20) -> Axes:
        """Draw the ``top`` features by their mean share of a group's importance, with the range of the middle 80%."""
        with self._read() as overview:
            found = overview.importance(top)[::-1]
        axes = _axes(ax, len(found))
        axes.set_title(f"{_plain(overview.stored.definition.name)}: importance")
        axes.set(xlabel="share of importance")
        if not found:
            return _say(axes, "the learner has no importances")
        shares = [each.share for each in found]
        # The mean may be outside the range because of a few groups.
        ranges = [
            [max(0.0, each.share - each.low) for each in found],
            [max(0.0, each.high - each.share) for each in found],
        ]
        several = max(each.groups for each in found) > 1
        whiskers = {"alpha": 0.5, "ecolor": axes.xaxis.label.get_color()}  # the default is black, on black pages too
        axes.barh([_plain(each.feature) for each in found], shares, xerr=ranges if several else None, error_kw=whiskers)
        return axes

    def schedule(self, ax: Axes | None = None) -> Axes:
        """Draw the schedule as it ran: a row per worker (at most 48), a bar per unit, a colour per group."""
        with self._read() as overview:
            bars = overview.bars()
        places = {group: place for place, group in enumerate(sorted({bar.group for bar in bars}))}
        named = len(places) if len(places) <= _COLOURS else 0
        axes = _axes(ax, max(len({bar.worker for bar in bars}), round(named * _NAME_ROWS)))
        axes.set_title(f"{_plain(overview.stored.definition.name)}: schedule")
        axes.set(xlabel="seconds", ylabel="worker")
        end = max((bar.end for bar in bars), default=0.0)
        shown = merged((bar for bar in bars if bar.worker < MOST_WORKERS), end * _LEAST_SHARE)
        if not shown:
            return _say(axes, "no schedule was recorded")
        from matplotlib.patches import Patch

        for bar in shown:
            colour = f"C{places[bar.group] % _COLOURS}"
            drawn = axes.barh(bar.worker, bar.end - bar.start, left=bar.start, height=0.7, color=colour)
            if len(places) > _COLOURS and bar.end - bar.start > end * _LABELLED_SHARE:
                axes.bar_label(drawn, [_plain(bar.label)], label_type="center", color="black", fontsize="small")
        axes.set_xlim(0, end)
        axes.set_yticks(sorted({bar.worker for bar in shown}))
        axes.invert_yaxis()
        if named:
            names = {bar.group: bar.name for bar in bars}
            swatches = [
                Patch(color=f"C{place}", label=_plain(names[group], _MOST_LETTERS)) for group, place in places.items()
            ]
            axes.legend(handles=swatches, fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        return axes

    def forecast(
        self,
        ax: Axes | None = None,
        groups: Any = None,
        horizon: int | None = None,
        past: int | None = None,
        levels: Sequence[float] = fans.LEVELS,
    ) -> Axes | list[Axes]:
        """Draw the end of each series, its forecasts, and their intervals of some levels; return the axes, a list if several.

        ``groups`` are the series to draw, each by its value of GROUP BY or a tuple of values; without it the first six.
        ``horizon`` is the number of steps ahead, by default all that the model has, ``past`` that of steps before.
        """
        scope = Scope.of_caller()
        with self._read() as overview:
            definition = overview.stored.definition
            forecasts = Forecasts.of(overview.connection, overview.stored)
            if forecasts is None:
                return _say(_axes(ax), "the learner makes no forecasts: those of series do")
            chosen, total = fans.chosen_series(forecasts, groups, definition.name)
            if ax is not None and len(chosen) > 1:
                raise ProgrammingError(f"ax is for one series, and these are {len(chosen)}: name one, groups = ...")
            with frames_registered(overview.connection, definition.statement, scope):
                found = forecasts.series(chosen, fans.checked(levels), horizon, past)
        if not found:
            return _say(_axes(ax), "no group has a model")
        title, unit = f"{_plain(definition.name)}: forecast", _plain(definition.target_name or "")
        if total == 1 or len(chosen) == 1:
            axes = _axes(ax)
            fans.draw([axes], found, levels, _plain)
            axes.set(ylabel=unit, title=f"{title}, {axes.get_title()}" if found[0].keys else title)
            return axes
        more = f", {len(found)} of {total:,} series" if len(found) < total else ""
        several = fans.new_axes(len(found))
        fans.draw(several, found, levels, _plain)
        several[0].figure.suptitle(f"{title} of {unit}{more}", fontsize="large")
        return several

    def confusion(self, rows: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw how many rows of each class are predicted as which, coloured by their share of the class.

        ``rows`` is what may stand after FROM, such as a table or a query in brackets, with labels; by default held-out rows,
        which ``WITH (keep_held_out = true)`` keeps.
        """
        found = self._judged("_confusion", rows, Scope.of_caller(), lambda judge: judge.confusion())
        axes = _axes(ax)
        names = [*dict.fromkeys(name for actual, predicted, *_ in found for name in (actual, predicted))]
        shares = [[0.0] * len(names) for _ in names]
        for actual, predicted, n, share in found:
            row, column = names.index(actual), names.index(predicted)
            shares[row][column] = share
            ink = "white" if share > _DARK else "black"
            axes.text(column, row, f"{n:,}\n{share:.0%}", ha="center", va="center", color=ink)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(len(names)), [_plain(name, _MOST_LETTERS) for name in names])
        axes.set_yticks(range(len(names)), [_plain(name, _MOST_LETTERS) for name in names])
        axes.set(xlabel="predicted", ylabel="label")
        return axes

    def roc(self, rows: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw the shares of positive and of negative rows that are called positive at each threshold; ``rows`` as in
        ``confusion``."""
        points, area = self._judged("_roc", rows, Scope.of_caller(), lambda judge: (judge.rows("_roc"), judge.area()))
        axes = _axes(ax)
        shown = "" if area is None else f" (area {area:.4g})"
        axes.plot([0, *(row[1] for row in points)], [0, *(row[2] for row in points)])
        axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
        axes.set(xlabel="share of negative rows that are called positive", ylabel="share of positive rows")
        axes.set_title(f"ROC{shown}")
        return axes

    def pr(self, rows: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw precision over recall; ``rows`` as in ``confusion``."""
        points = self._judged("_pr", rows, Scope.of_caller(), lambda judge: judge.rows("_pr"))
        axes = _axes(ax)
        axes.plot([row[1] for row in points], [row[2] for row in points])
        axes.set(xlabel="share of positive rows that are called so", ylabel="share of those called positive that are")
        axes.set_ylim(0, 1.05)
        axes.set_title("precision and recall")
        return axes

    def lift(self, rows: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw how many times as many positive rows each tenth has as all, the most probable rows first; ``rows`` as in
        ``confusion``."""
        found = self._judged("_lift", rows, Scope.of_caller(), lambda judge: judge.rows("_lift"))
        axes = _axes(ax)
        axes.bar([row[0] for row in found], [float("nan") if row[5] is None else row[5] for row in found])
        axes.axhline(1, color="grey", linewidth=1)
        axes.set(xlabel="tenth of the rows, the most probable first", ylabel="lift", title="lift")
        _whole_numbers(axes)
        return axes

    def calibration(self, rows: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw the mean label over the mean prediction of each tenth of the rows, the lowest predictions first; ``rows`` as in
        ``confusion``."""
        found = self._judged("_calibration", rows, Scope.of_caller(), lambda judge: judge.rows("_calibration"))
        axes = _axes(ax)
        points = [(row[2], row[3]) for row in found if row[2] is not None and row[3] is not None]
        axes.plot([x for x, _ in points], [y for _, y in points], marker=".")
        ends = [end(value for point in points for value in point) for end in (min, max)] if points else []
        axes.plot(ends, ends, color="grey", linewidth=1)
        axes.set(xlabel="mean prediction", ylabel="mean label", title="predicted and observed")
        return axes

    def _judged(self, suffix: str, rows: str | None, scope: Scope, read: Callable[[Judge], _Read]) -> _Read:
        """Return what ``read`` reads of the rows that judge the model."""
        with self._read() as overview:
            known, name = macros(overview.stored), overview.stored.definition.name
            if suffix not in known:
                has = (
                    ", ".join(f"{each.removeprefix('_')}()" for each in known) or "no plot of predictions beside labels"
                )
                raise ProgrammingError(f'model "{name}" has {has}')
            text = f"{overview.stored.definition.statement} FROM {rows or ''}"
            with (
                frames_registered(overview.connection, text, scope),
                judge(overview.connection, overview.stored, rows) as judging,
            ):
                if judging is None:
                    hint = "name labelled rows, such as roc('a_table'), or train WITH (keep_held_out = true)"
                    raise ProgrammingError(f'model "{name}" keeps no held-out rows\n\nHint: {hint}')
                return read(judging)


def _draw_curves(axes: Axes, overview: Overview) -> Axes:
    facts = overview.facts
    axes.set(xlabel="epoch", ylabel=overview.curve_name(facts.curve))
    axes.set_title(f"{_plain(overview.stored.definition.name)}: learning curves")
    _whole_numbers(axes)
    if facts.modelled <= MOST_CURVES:
        _draw_each(axes, overview, overview.best(MOST_CURVES), 2 if facts.curve == "valid" else 1)
    else:
        _draw_range(axes, overview)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small", frameon=False)
    else:
        _say(axes, "no learning curves: the learner is solved in one step")
    return axes


def _draw_each(axes: Axes, overview: Overview, trials: list[Trial], column: int) -> None:
    curves = overview.curves((trial.group, trial.config) for trial in trials)
    for trial in trials:
        points = curves.get((trial.group, trial.config), [])
        if points:
            label = _plain(overview.label(trial.keys, trial.level))
            values = [float("nan") if (value := point[column]) is None else value for point in points]
            axes.plot([point[0] for point in points], values, label=label, marker=".")


def _draw_range(axes: Axes, overview: Overview) -> None:
    found = overview.curve_range()
    if not found:
        return
    epochs = [row[0] for row in found]
    if overview.facts.curve == "train":
        axes.set(ylabel=f"{overview.curve_name('train')} / its first")
    axes.fill_between(epochs, [row[1] for row in found], [row[3] for row in found], alpha=0.25, label="middle 80%")
    axes.plot(epochs, [row[2] for row in found], label=f"median of {max(row[4] for row in found):,} groups")


def _plain(text: str, most: int | None = None) -> str:
    """Return a name that matplotlib draws literally: it reads text between dollars as formulas, and hides ``_labels``."""
    letters = visible(text)
    cut = letters if most is None or len(letters) <= most else f"{letters[: most - 1]}…"
    shown = cut.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def _axes(ax: Axes | None, rows: int | None = None) -> Axes:
    """Return ``ax``, or new axes high enough for this many rows."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise not_installed("a plot", "matplotlib", "plot") from None
    width, height = pyplot.rcParams["figure.figsize"]
    size = (width, height if rows is None else 1.3 + 0.3 * max(rows, 1))
    axes: Axes = pyplot.subplots(layout="constrained", figsize=size)[1]
    return axes


def _whole_numbers(axes: Axes) -> None:
    """Use whole numbers as ticks for epochs."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _say(axes: Axes, message: str) -> Axes:
    axes.set_axis_off()
    axes.text(0.5, 0.5, message, ha="center", va="center", transform=axes.transAxes, alpha=0.6)
    return axes
