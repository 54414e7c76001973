"""Forecasts as matplotlib axes: the history, the mean of the steps ahead, and a fan of intervals around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from grouplearn.amounts import counted
from grouplearn.errors import BindError, ProgrammingError
from grouplearn.messages import did_you_mean
from grouplearn.prediction.forecasts import Forecasts, Keys, Series
from grouplearn.sqltext import identifier

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The levels of the intervals of a fan, the narrowest first.
LEVELS = (0.5, 0.8, 0.95)
#: Most series that are drawn unless the user names them.
MOST_SERIES = 6
#: What is drawn as darkest, and how much lighter each wider interval is.
_DARKEST, _LIGHTER = 0.4, 0.6
#: Width and height of one of several pictures, in inches.
_SMALL = (4.2, 2.4)


def chosen_series(forecasts: Forecasts, groups: Any, model: str) -> tuple[list[Keys], int]:
    """Return the keys of the series in ``groups``, a value or a tuple of values each, and how many the model has.

    None: the first of all. Raises BindError for a group that has no forecasts.
    """
    names, every = forecasts.names, forecasts.keys()
    if groups is None:
        return every[:MOST_SERIES], len(every)
    listed = groups if isinstance(groups, list) else [groups]
    known, found = set(every), []
    for group in listed:
        keys = tuple(map(_text, group if isinstance(group, tuple) else (group,)))
        if keys not in known:
            raise _unknown(keys, names, every, model)
        found.append(keys)
    return found, len(every)


def _unknown(keys: Keys, names: Sequence[str], every: Iterable[Keys], model: str) -> BindError:
    if len(keys) != len(names):
        raise BindError(
            f'a series of model "{model}" has {counted(len(names), "key")}, and groups names one by {len(keys)}',
            hint=f"groups = [{_as_written(next(iter(every), tuple(names)))}]",
        )
    meant = did_you_mean(_in_words(keys), map(_in_words, every))
    hint = meant or f"FROM {identifier(model)} says which groups have a model."
    return BindError(f'model "{model}" has no forecasts of "{_in_words(keys)}"', hint=hint)


def _in_words(keys: Keys) -> str:
    return ", ".join("NULL" if key is None else key for key in keys)


def _as_written(keys: Keys) -> str:
    return repr(keys[0] if len(keys) == 1 else keys)


def _text(value: Any) -> str | None:
    """Return a key as DuckDB writes it."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def checked(levels: Sequence[float]) -> Sequence[float]:
    """Return the levels; raises ProgrammingError unless each is a probability."""
    if not all(0 < level < 1 for level in levels):
        raise ProgrammingError("levels are probabilities between 0 and 1, such as [0.5, 0.9]")
    return levels


def draw(axes: Sequence[Axes], found: Sequence[Series], levels: Sequence[float], plain: Callable[[str], str]) -> None:
    """Draw each series on its axes; the first has the legend."""
    for series, each in zip(found, axes, strict=True):
        _draw_one(each, series, levels)
        each.set_title(plain(series.label), fontsize="medium")
        each.margins(x=0.01)
    _put_legend(axes, len(found) > 1)


def _draw_one(axes: Axes, series: Series, levels: Sequence[float]) -> None:
    colour = axes.xaxis.label.get_color()  # also on dark pages
    times = [time for time, _ in series.past]
    name = "fitted" if series.is_fitted else "history"
    axes.plot(times, [value for _, value in series.past], color=colour, alpha=0.75, linewidth=1.2, label=name)
    end = series.end
    # The fan opens at the last value, if there is one.
    start = [(time, value) for time, value in series.past if time == end]
    steps = [*start, *series.ahead]
    opening = [(value, value) for _, value in start]
    for level, intervals in sorted(zip(levels, series.intervals, strict=True), key=lambda each: -each[0]):
        known = [*opening, *intervals]
        kept = [(time, *ends) for (time, _), ends in zip(steps, known, strict=True) if ends is not None]
        if len(kept) > len(start):
            opacity = _DARKEST * _LIGHTER ** sorted(levels).index(level)
            low, high = ([row[place] for row in kept] for place in (1, 2))
            label = f"{100 * level:.4g}% interval"
            axes.fill_between([row[0] for row in kept], low, high, color="C0", alpha=opacity, linewidth=0, label=label)
    marker = "." if len(series.ahead) == 1 else None
    axes.plot([time for time, _ in steps], [mean for _, mean in steps], color="C0", label="forecast", marker=marker)
    if end is not None:
        axes.axvline(end, color=colour, alpha=0.5, linestyle=":", linewidth=1, label="end of training")
    _format_times(axes, series)


def _format_times(axes: Axes, series: Series) -> None:
    import datetime as dt

    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    if isinstance(series.ahead[0][0], dt.datetime):
        locator = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _put_legend(axes: Sequence[Axes], several: bool) -> None:
    handles, labels = axes[0].get_legend_handles_labels()
    # As they lie in the picture: the past, the forecast, then intervals from the narrowest.
    order = sorted(range(len(labels)), key=lambda place: (_ORDER.get(labels[place], 2), -place))
    shown = [handles[place] for place in order], [labels[place] for place in order]
    if several:
        axes[0].get_figure().legend(*shown, fontsize="small", frameon=False, loc="outside right upper")  # type: ignore[union-attr]
    else:
        axes[0].legend(*shown, fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


_ORDER = {"history": 0, "fitted": 0, "forecast": 1, "end of training": 3}


def new_axes(count: int) -> list[Axes]:
    """Return axes for some series in rows of at most two."""
    from matplotlib import pyplot

    columns = 1 if count == 1 else 2
    rows = -(-count // columns)
    width, height = (
        pyplot.rcParams["figure.figsize"] if count == 1 else (_SMALL[0] * columns + 1.3, _SMALL[1] * rows + 0.4)
    )
    figure = pyplot.figure(layout="constrained", figsize=(width, height))
    return [figure.add_subplot(rows, columns, place + 1) for place in range(count)]
