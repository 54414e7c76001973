"""REFRESH SINCE: the latest times that groups have learned from, and which rows are later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from grouplearn.amounts import counted, plural
from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.errors import BindError
from grouplearn.extract.latest import Key, RowTimes
from grouplearn.models.definition import Watermark
from grouplearn.parser.statements import RefreshModel, Sql
from grouplearn.sqltext import folded
from grouplearn.statements.again.stored import StoredStatement
from grouplearn.store import refreshing
from grouplearn.store.refreshing import KnownGroup


@dataclass(frozen=True, slots=True)
class LatestTimes:
    """The ``latest`` times that the groups of a model have learned from, None if it knows no time."""

    statement: RefreshModel
    stored: StoredStatement
    latest: Watermark | None

    def check(self) -> None:
        """Raise unless SINCE, if given, has the time of the model."""
        since, latest, checker = self.statement.since, self.latest, self.stored.checker
        if since is None:
            return
        name, time = self.stored.model.location.name, since.text.strip()
        if latest is None and self.statement.source is None:
            hint = f"REFRESH MODEL m FROM ... SINCE {time} stores it, and so does TRAIN WITH (watermark = ...)."
            raise checker.error(f'of model "{name}" no latest time is known', since.span, hint)
        if latest is not None and folded(latest.sql) != folded(time):
            message = f'model "{name}" knows the latest {latest.sql}, not {time}'
            raise checker.error(message, since.span, f"Write SINCE {latest.sql}.")

    def of(self, judge: SqlChecker, bound: BoundTrain) -> RowTimes | None:
        """Return the times of the rows; None if these have no such time, or the model knows none."""
        since, latest = self.statement.since, self.latest
        time = since or (Sql(latest.sql) if latest else None)
        if time is None:
            return None
        try:
            times = RowTimes.of(judge, bound, Sql(time.text))
        except BindError as error:
            if since is not None:
                raise self.stored.checker.error(error.message, since.span) from None
            return None
        if latest is None:  # what groups without new rows have learned from is taken to be of before
            return replace(times, others=True)
        adds = since is not None or self.statement.source is not None
        known = refreshing.known_times(self.stored.model, latest.type) if adds else None
        return replace(times, before=latest.type, known=known)

    def unread(self, times: RowTimes | None, groups: Sequence[KnownGroup]) -> Mapping[Key, str]:
        """Return by group how many of its rows SINCE leaves out, which the model has not learned from."""
        if times is None or self.statement.since is None:
            return {}
        if self.statement.source is not None:
            lacking, why = times.counts(("NOT", *times.is_timed)), "without a time"
        else:
            has_learned = (group for group in groups if group.best is not None or not times.by_group)
            learned = {(group.level, group.keys): group.n_rows for group in has_learned}
            left = times.counts(("NOT", *times.is_new))
            lacking = {key: count - learned.get(key, 0) for key, count in left.items()}
            why = "that came late, or without a time,"
        return {
            key: f"{counted(count, 'row')} {why} {plural(count, 'is', 'are')} not read"
            for key, count in lacking.items()
            if count > 0
        }
