"""The rows of the steps to come, with features that are known ahead: those of FROM, and copies of each series' last row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grouplearn import sqltext
from grouplearn.bind.bound import BoundKey, BoundTarget, Series
from grouplearn.bind.sql.checker import Column, SqlChecker
from grouplearn.bind.sql.expressions import columns_used
from grouplearn.bind.sql.reading import condition_of_all
from grouplearn.parser.statements import Sql

_MADE, _AHEAD, _LAST = "__grouplearn_made", "__grouplearn_ahead", "__grouplearn_last"


@dataclass(frozen=True)
class StepsAhead:
    """Adds rows to ``source`` of a statement with such ``columns``."""

    checker: SqlChecker
    source: tuple[str | Sql, ...]
    columns: Sequence[Column]

    def added(
        self, series: Series, keys: Sequence[BoundKey], target: BoundTarget, features: Sequence[Sql], horizon: int
    ) -> tuple[str | Sql, ...]:
        """Return FROM with a row for each of the ``horizon`` steps after the last label of each series.

        A step that FROM has no row of gets a copy of the row with the last label: with its own time and without a label, so that
        what follows from the time is known, and other features stay as they are.

        Before: FROM sales. After: FROM (sales UNION ALL (last rows of sales, at later times, with units NULL)).
        """
        time = self._time(series)
        labels = columns_used(
            self.checker, target.extract, frozenset(sqltext.folded(each.name) for each in self.columns)
        )
        self._refuse_keys(time, labels, [*keys, *series.keys])
        before, after = series.frequency.step(time.type)
        name = sqltext.identifier(time.name)
        moved = f"{series.frequency.time(f'{before}{_LAST}.{name}{after} + {_AHEAD}', time.type)} AS {name}"
        unlabelled = [
            f"CAST(NULL AS {each.type}) AS {sqltext.identifier(each.name)}"
            for each in self.columns
            if sqltext.folded(each.name) in labels
        ]
        of_series: list[str | Sql] = ["PARTITION BY true"]
        for key in (*keys, *series.keys):
            of_series += [", (", key.extract, ")"]
        last = ("ORDER BY ((", target.extract, ") IS NOT NULL) DESC, (", series.time, ") DESC NULLS LAST) = 1")
        found = (
            f"FROM (SELECT * EXCLUDE ({_MADE}) FROM (SELECT *, false AS {_MADE}",
            *self.source,
            f"UNION ALL SELECT {_LAST}.* REPLACE ({', '.join([moved, *unlabelled])}), true AS {_MADE} FROM (SELECT *",
            *self.source,
            "QUALIFY row_number() OVER (",
            *of_series,
            *last,
            f") AS {_LAST}, (SELECT unnest(range(1, {horizon + 1})) AS {_AHEAD}))",
            f"QUALIFY NOT {_MADE} OR count(*) FILTER (NOT {_MADE}) OVER (",
            *of_series,
            ", (",
            series.time,
            f")) = 0) WHERE {condition_of_all(every_column=False)}",
        )
        self._check(found, series, [target.extract, *features])
        return found

    def _time(self, series: Series) -> Column:
        """Return the column of the time."""
        wanted = sqltext.folded(series.time.text.strip().strip('"'))
        found = next((each for each in self.columns if sqltext.folded(each.name) == wanted), None)
        if found is None:
            message = "with FEATURES the time is a column, so that rows of later times can be made"
            raise self.checker.error(message, series.time.span, "Compute it in FROM (SELECT *, ... AS time FROM ...).")
        return found

    def _refuse_keys(self, time: Column, labels: frozenset[str], keys: Sequence[BoundKey]) -> None:
        """Raise for a key that is another at later times, or without a label."""
        changed = labels | {sqltext.folded(time.name)}
        for key in keys:
            if columns_used(self.checker, key.extract, changed):
                message = "a series has the same key at all times, and this one depends on the time or on the label"
                raise self.checker.error(message, key.extract.span, "Group by other columns.")

    def _check(self, found: Sequence[str | Sql], series: Series, expressions: Sequence[Sql]) -> None:
        """Raise if an expression is none, or if the columns of FROM have no plain names."""
        every = [piece for each in expressions for piece in (", (", each, ")")]
        columns, _ = self.checker.tried("SELECT (", series.time, ")", *every, *found)
        if not columns:
            self.checker.describe("SELECT (", series.time, ")", *every, *self.source)
            message = "with FEATURES the columns of FROM have plain names, so that rows of later times can be made"
            hint = "Join in a query: FROM (SELECT ... FROM a JOIN b USING (k))."
            raise self.checker.error(message, series.time.span, hint)
