"""The latest time of the rows that a statement reads, after which REFRESH SINCE looks for new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from grouplearn.bind.bound import BoundTrain, Holdout
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding import types
from grouplearn.extract.counts.group_counts import GroupCount, group_counts
from grouplearn.interrupting import with_checks
from grouplearn.models.definition import Watermark
from grouplearn.parser.statements import Sql

#: A group's grouping set and the texts of its key.
Key = tuple[int, tuple[str | None, ...]]
_Pieces = tuple[str | Sql, ...]
#: Names that no column of the user's has.
_GROUP, _TIME = "__grouplearn_group", "__grouplearn_time"


@dataclass(frozen=True, slots=True)
class RowTimes:
    """The ``time`` of a row of a statement, of a ``type``.

    ``known`` is a query of the key, as a list of texts, and the latest time, of the type ``before``, of groups that rows are
    added to. With ``others``, groups without rows take the latest of all rows. A row without a time, or with an
    infinite one, is never new.
    """

    checker: SqlChecker
    bound: BoundTrain
    time: Sql
    type: str
    before: str | None = None
    known: str | None = None
    others: bool = False

    @classmethod
    def of(cls, checker: SqlChecker, bound: BoundTrain, time: Sql) -> RowTimes:
        """Return the times of rows; raises BindError if these have no such time."""
        (column,) = checker.describe("SELECT", time, *bound.source)
        return cls(checker, bound, time, column.type)

    @property
    def by_group(self) -> bool:
        """Whether groups have latest times of their own; where a row is in several groups, one counts for all."""
        return len(self.bound.sets) == 1

    @property
    def is_timed(self) -> _Pieces:
        """The condition that a row has a finite time."""
        finite = self.type.startswith(("DATE", "TIMESTAMP")) or types.is_floating(self.type)
        return ("coalesce(isfinite((", self.time, ")), false)") if finite else ("((", self.time, ") IS NOT NULL)")

    @property
    def _is_learned(self) -> _Pieces:
        """The further condition that a row of a series is learned: steps ahead have no label yet."""
        target = self.bound.target
        return ("AND (", target.extract, ") IS NOT NULL") if self.bound.series and target else ()

    @property
    def is_new(self) -> _Pieces:
        """The condition that a row is later than those that its group has learned from."""
        if self.known is None:
            return self.is_timed
        return ("(", *self.is_timed, "AND coalesce((", self.time, ") >", *self._before, ", true))")

    @property
    def _before(self) -> _Pieces:
        """The latest time that a row's group has learned from, or any group if a row is in several."""
        latest = f"(SELECT max({_TIME}) FROM ({self.known}) AS known({_GROUP}, {_TIME})"
        return (latest, *((f"WHERE {_GROUP} = ", *self._key) if self.by_group else ()), ")")

    @property
    def _key(self) -> _Pieces:
        pieces: list[str | Sql] = ["["]
        for place, key in enumerate(self.bound.keys):
            before, after = types.as_text(key.stored.type)
            pieces += [f"{', ' if place else ''}{before}", key.extract, after]
        return (*pieces, "]::VARCHAR[]")

    def new_rows(self) -> BoundTrain:
        """Return the statement over the new rows alone.

        Most tables have old rows of known groups alone beside the new ones. DuckDB can skip parts of these by the least of the
        latest times.
        """
        conditions: list[str | Sql] = ["AND", *self.is_new]
        if self.known is not None:
            least = f"(SELECT min({_TIME}) FROM ({self.known}) AS known({_GROUP}, {_TIME}))"
            early = ("AND NOT ((", self.time, f") > {least})")
            ((others,),) = self.checker.rows("SELECT count(*) > 0", *self.bound.source, *conditions, *early)
            conditions += [] if others else ["AND (", self.time, f") > {least}"]
        return replace(self.bound, source=(*self.bound.source, *conditions))

    def earlier_rows(self) -> BoundTrain:
        """Return the statement without rows that are later than those that their group has learned from."""
        return replace(
            self.bound, source=(*self.bound.source, "AND NOT coalesce((", self.time, ") >", *self._before, ", false)")
        )

    def counts(self, condition: Sequence[str | Sql]) -> dict[Key, int]:
        """Return the number of rows of each group for which a condition holds."""
        statement = replace(self.bound.statement, having=None)
        source = (*self.bound.source, "AND (", *condition, ")")
        counted = replace(self.bound, statement=statement, source=source, holdout=Holdout("none"))
        return {(group.level, group.keys): group.n_rows for group in group_counts(self.checker, counted).groups}

    def latest(self, groups: Sequence[GroupCount]) -> Watermark | None:
        """Return the latest times of the rows of ``groups``, or of those before where these are later.

        The times are by the groups' numbers. All groups have one time if a row is in several. None if no row has a time.
        """
        earlier: _Pieces = (f"CAST(NULL AS {self.before or self.type})",) if self.known is None else self._before
        time = ("greatest((", self.time, "),", *earlier, ")")
        keys = self._key if self.by_group else ("NULL",)
        rows = (
            "FROM (SELECT (",
            *time,
            ") AS t,",
            *keys,
            "AS k",
            *self.bound.source,
            "AND",
            *self.is_timed,
            *self._is_learned,
            ")",
        )
        latest = "CAST(max(t) AS VARCHAR), any_value(system.main.typeof(t))"
        found = self.checker.rows(
            f"SELECT k, {latest}", *rows, "GROUP BY GROUPING SETS ((k), ()) ORDER BY GROUPING(k) DESC"
        )
        (_, last, kind), *by_key = found
        if last is None:
            return None
        name = self.time.text.strip()
        if not self.by_group:
            return Watermark(name, kind, {}, last)
        of = {tuple(key): time for key, time, _ in with_checks(by_key)}
        numbered = {number: of[group.keys] for number, group in enumerate(groups) if group.keys in of}
        return Watermark(name, kind, numbered, last if self.others else None)


def watermark(checker: SqlChecker, bound: BoundTrain, groups: Sequence[GroupCount]) -> Watermark | None:
    """Return the latest times of the rows of groups, by the time of WITH (watermark = ...), or of a series.

    None if there is no such time, or no row has one.
    """
    time = bound.options.rows.watermark or (bound.series.time if bound.series else None)
    return None if time is None else RowTimes.of(checker, bound, time).latest(groups)
