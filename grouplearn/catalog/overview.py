"""A stored model in numbers to be drawn: best trials, curves, importances, levels, failures, schedule."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from grouplearn.amounts import counted
from grouplearn.catalog.checks.damage import damaged
from grouplearn.catalog.checks.invalid_rows import refuse_invalid_rows
from grouplearn.catalog.checks.trust import check
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import table
from grouplearn.catalog.views import (
    distinct,
    each_weight,
    importances,
    joined,
    select_list,
    trial_columns,
    where,
    with_importances,
)
from grouplearn.messages import ROW_COUNT
from grouplearn.models.forms.routed import level_names
from grouplearn.plan.explain.gantt import Bar
from grouplearn.sqltext import literal

Value = float | None
_FIRST_LOSS = "nullif(first_value(p.train_loss) OVER (PARTITION BY p.group_id ORDER BY p.epoch ASC), 0)"
#: Most points or bars that are read: no picture shows more, and a small file may have any number.
_MOST_DRAWN = 1_000_000
_ROW_WEIGHTS = re.compile(r"\b(?:class_)?weight\s*=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Facts:
    """A model in numbers; ``modelled`` groups have a model, ``curves`` is the largest epoch of a learning curve.

    ``part`` is ``valid``, or ``train`` if no rows were held out; ``curve`` is ``valid`` if at least half of the learning
    curves have the held-out metric per epoch, else ``train``.
    """

    part: str
    curve: str
    operator: str
    executor: str
    workers: int
    seconds: float
    trained_at: str
    rows: int
    groups: int
    modelled: int
    configs: int
    trials: int
    failed: int
    curves: int


@dataclass(frozen=True, slots=True)
class Trial:
    """The best trial of a group; ``value`` is the optimised metric, ``keys`` has None for NULL and rolled-up keys."""

    group: int
    config: int
    level: int
    keys: tuple[str | None, ...]
    parameters: dict[str, str | None]
    rows: int
    value: Value
    status: str
    epochs: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Level:
    """A grouping set: its groups and the optimised metric over their held-out rows.

    ``merged`` is the metric of all those rows if it follows from the groups' (``exact``), else their mean weighted by rows.
    Levels hold out the same rows, so those with equal ``rows`` can be compared.
    """

    name: str
    groups: int
    modelled: int
    rows: int
    merged: Value
    low: Value
    median: Value
    high: Value
    exact: bool


@dataclass(frozen=True, slots=True)
class Importance:
    """A feature's share of the importances of a group, mean and range over groups, and its weight where it has one."""

    feature: str
    share: float
    low: float
    high: float
    groups: int
    weight: Value = None
    weight_low: Value = None
    weight_high: Value = None


@dataclass(frozen=True, slots=True)
class FailedTrials:
    """Why trials failed, how many, in how many groups, and (level, keys) of some."""

    reason: str
    trials: int
    groups: int
    examples: tuple[tuple[int, tuple[str | None, ...]], ...]


Curve = list[tuple[int, Value, Value]]


def drawn(curve: Curve) -> tuple[str, list[tuple[int, float]]]:
    """Return which curve to draw: ``valid``, else ``train``, else nothing.

    If the held-out metric was taken only at the end, the training loss is drawn.
    """
    for part, column in (("valid", 2), ("train", 1)):
        points = [(row[0], value) for row in curve if (value := row[column]) is not None and math.isfinite(value)]
        if len(points) > 1:
            return part, points
    return "", []


class Overview:
    """Reads the catalog rows of one model; levels are numbered as in ``models.sets``, 0 the finest."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, stored: StoredModel) -> None:
        check(connection, stored.definition)
        refuse_invalid_rows(connection, stored, ("models", "groups", "trials", "curves", "artifacts", "units"))
        self.connection = connection
        self.stored = stored
        self.facts = self._facts()

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of the grouping sets."""
        return level_names(self.stored.definition)

    def curve_name(self, part: str) -> str:
        """Return what a learning curve of a part shows."""
        return f"held-out {self.stored.definition.metric}" if part == "valid" else "training loss"

    def best(self, limit: int, *, level: int | None = None, worst: bool = False) -> list[Trial]:
        """Return the groups' best trials, the best of them first (``worst``: last ones first), NULL metrics at the end."""
        order = "DESC" if self.stored.definition.greater_is_better != worst else "ASC"
        rows = self._rows(
            f"SELECT t.group_id, t.config, g.level, g.keys, c.parameters, g.n_rows, {self._value()} AS value, t.status,"
            f" t.epochs, t.seconds {joined(self._catalog)} WHERE {self._mine()} AND t.is_best"
            f" AND {'true' if level is None else f'g.level = {level}'}"
            f" ORDER BY value {order} NULLS LAST, t.group_id ASC LIMIT {limit}"
        )
        return [Trial(row[0], row[1], row[2], tuple(row[3]), *row[4:]) for row in rows]

    def largest(self, limit: int) -> list[Trial]:
        """Return the best trials of the finest groups with the most rows, in their order."""
        chosen = (
            f"SELECT group_id FROM {self._table('groups')} WHERE model = '{self._id}'::UUID AND best IS NOT NULL"
            f" AND level = 0 ORDER BY n_rows DESC, group_id ASC LIMIT {limit}"
        )
        found = {row[0] for row in self._rows(chosen)}
        return [trial for trial in self.best(self.facts.groups) if trial.group in found] if found else []

    def values(self, level: int = 0) -> list[float]:
        """Return the optimised metric of each group of a level that has one."""
        return [trial.value for trial in self.best(self.facts.groups, level=level) if trial.value is not None]

    def curves(self, trials: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Curve]:
        """Return (epoch, training loss, held-out metric) of some trials, given as (group, config)."""
        pairs = ", ".join(f"({group}, {config})" for group, config in trials)
        if not pairs:
            return {}
        rows = self._rows(
            f"SELECT group_id, config, epoch, train_loss, valid_metric FROM {self._table('curves')}"
            f" WHERE model = '{self._id}'::UUID AND (group_id, config) IN ({pairs}) ORDER BY ALL ASC LIMIT {_MOST_DRAWN}"
        )
        curves: dict[tuple[int, int], Curve] = {}
        for group, config, *point in rows:
            curves.setdefault((group, config), []).append((point[0], point[1], point[2]))
        return curves

    def curve_range(self) -> list[tuple[int, float, float, float, int]]:
        """Return per epoch the 10%, 50% and 90% quantiles over groups' best trials, and the number of groups.

        They are of the held-out metric, or of the training loss divided by its first value. A group that has ended keeps
        its last value, so that the range does not shift to those that trained longest; one point is no curve.
        """
        size = "p.valid_metric" if self.facts.curve == "valid" else f"p.train_loss / {_FIRST_LOSS}"
        rows = self._rows(
            f"WITH points AS (SELECT p.group_id, p.epoch, {size} AS size FROM {self._table('curves')} AS p"
            f" JOIN {self._table('trials')} AS t"
            " ON t.model = p.model AND t.group_id = p.group_id AND t.config = p.config AND t.is_best"
            f" WHERE p.model = '{self._id}'::UUID),"
            " known AS (FROM points WHERE isfinite(size) QUALIFY count(*) OVER (PARTITION BY group_id) > 1),"
            " places AS (FROM (SELECT DISTINCT epoch FROM known), (SELECT DISTINCT group_id FROM known))"
            " SELECT places.epoch, quantile_cont(size, [0.1, 0.5, 0.9]), count(*) FROM places ASOF JOIN known"
            " ON places.group_id = known.group_id AND places.epoch >= known.epoch GROUP BY 1 ORDER BY 1 ASC"
        )
        return [(epoch, *ranges, count) for epoch, ranges, count in rows]

    def by_level(self) -> list[Level]:
        """Return the levels, finest first."""
        definition = self.stored.definition
        pooled = definition.family.named(definition.metric).pooled
        exact = pooled is not None and _ROW_WEIGHTS.search(definition.statement) is None
        what = "value * value" if pooled == "root" else "value"
        merged = f"sum(n * ({what})) / sum(n) FILTER (value IS NOT NULL)"
        # With folds no row is held out for good, and each was scored once.
        count = "if(n_valid > 0, n_valid, n_rows - coalesce(n_skipped, 0))" if self.facts.part == "valid" else "n_train"
        rows = self._rows(
            f"WITH best AS (SELECT g.level, g.group_id, {count} AS n, {self._value()} AS value"
            f" FROM {self._table('groups')} AS g LEFT JOIN {self._table('trials')} AS t"
            " ON t.model = g.model AND t.group_id = g.group_id AND t.is_best"
            f" WHERE g.model = '{self._id}'::UUID)"
            f" SELECT level, count(*), count(value), coalesce(sum(n) FILTER (value IS NOT NULL), 0),"
            f" {f'sqrt({merged})' if pooled == 'root' else merged},"
            f" min(value), median(value), max(value), {exact} FROM best GROUP BY level ORDER BY level ASC"
        )
        return [Level(self.levels[row[0]], *row[1:]) for row in rows]

    def importance(self, limit: int) -> list[Importance]:
        """Return the features with the largest shares in the best trials of the finest groups, largest first."""
        definition = self.stored.definition
        feature, size, signed = importances(definition)
        rows = self._rows(
            f"WITH parts AS (SELECT t.group_id, {feature} AS feature, {size} AS size,"
            f" {signed} AS weight {with_importances(definition, self._id, self._catalog)} AND t.is_best AND g.level = 0),"
            " shares AS (SELECT *, size / nullif(sum(size) OVER (PARTITION BY group_id), 0) AS share FROM parts)"
            " SELECT feature, coalesce(sum(share), 0) / (SELECT count(DISTINCT group_id) FROM shares) AS mean,"
            " coalesce(quantile_cont(share, 0.1), 0), coalesce(quantile_cont(share, 0.9), 0), count(*),"
            " quantile_cont(weight, 0.5), quantile_cont(weight, 0.1), quantile_cont(weight, 0.9)"
            f" FROM shares GROUP BY feature ORDER BY mean DESC, feature ASC LIMIT {limit}"
        )
        if any(row[0] is None for row in rows):
            flaw = "a model has more weights than its group has features"
            raise damaged(self._catalog, definition.name, "artifacts", flaw)
        return [Importance(*row) for row in rows]

    def count_features(self) -> int:
        """Return how many features the groups have in all."""
        named = f"SELECT unnest(features) AS feature FROM {self._table('groups')} WHERE model = '{self._id}'::UUID"
        if self.stored.definition.is_wide:
            named = each_weight(self.stored.definition, self._id, self._catalog)
        found = self._rows(f"SELECT count(DISTINCT feature) FROM ({named})")
        return int(found[0][0])

    def failures(self, limit: int) -> list[FailedTrials]:
        """Return the reasons for which trials failed, the most frequent first; those that differ in numbers of rows are one."""
        rows = self._rows(
            "WITH failed AS (SELECT t.error, t.group_id, {'level': g.level, 'keys': g.keys} AS place FROM"
            f" {self._table('trials')} AS t JOIN {self._table('groups')} AS g ON g.model = t.model AND g.group_id = t.group_id"
            f" WHERE t.model = '{self._id}'::UUID AND t.status IN ('failed', 'kept'))"
            " SELECT coalesce(mode(error), ''), count(*) AS n, count(DISTINCT group_id),"
            f" list(DISTINCT place ORDER BY place ASC)[:5]"
            f" FROM failed GROUP BY regexp_replace(error, {literal(ROW_COUNT)}, 'rows', 'g')"
            f" ORDER BY n DESC, 1 ASC LIMIT {limit}"
        )
        return [
            FailedTrials(reason, trials, groups, tuple((entry["level"], tuple(entry["keys"])) for entry in found))
            for reason, trials, groups, found in rows
        ]

    def failed_pooled(self, limit: int) -> list[FailedTrials]:
        """Return why parent groups have no model, those with most rows first, one :class:`FailedTrials` each."""
        levels = self.stored.definition.sets
        pooled = [level for level, used in enumerate(levels) if not used or level > 0]
        rows = (
            self._rows(
                f"SELECT coalesce(mode(t.error), ''), count(*), g.level, g.keys FROM {self._table('trials')} AS t"
                f" JOIN {self._table('groups')} AS g ON g.model = t.model AND g.group_id = t.group_id"
                f" WHERE t.model = '{self._id}'::UUID AND g.best IS NULL AND g.level IN ({', '.join(map(str, pooled))})"
                " GROUP BY g.group_id, g.level, g.keys, g.n_rows"
                f" ORDER BY g.level DESC, g.n_rows DESC, g.group_id ASC LIMIT {limit}"
            )
            if pooled
            else []
        )
        return [FailedTrials(reason, trials, 1, ((level, tuple(keys)),)) for reason, trials, level, keys in rows]

    def bars(self) -> list[Bar]:
        """Return the schedule as it ran; units of several small groups are one bar."""
        rows = self._rows(
            "SELECT u.worker, u.started, u.ended, min(u.group_id), count(*), arg_min(g.keys, g.group_id),"
            " arg_min(g.level, g.group_id), u.kind"
            f" FROM {self._table('units')} AS u JOIN {self._table('groups')} AS g"
            f" ON g.model = u.model AND g.group_id = u.group_id WHERE u.model = '{self._id}'::UUID"
            " GROUP BY u.unit, u.worker, u.started, u.ended, u.kind ORDER BY u.started ASC, u.unit ASC"
            f" LIMIT {_MOST_DRAWN}"
        )
        bars = []
        for worker, started, ended, group, count, keys, level, kind in rows:
            name = self.label(keys, level) + (f" and {counted(count - 1, 'other')}" if count > 1 else "")
            label = name if kind == "unit" else f"{name}: {kind}"
            bars.append(Bar(worker, started, ended, group, label, kind, name))
        return bars

    def label(self, keys: Sequence[str | None], level: int = 0) -> str:
        """Return a group of a level in one line: ``carrier = AA, dest = ORD``."""
        names = [key.name for key in self.stored.definition.keys]
        used = self.stored.definition.sets[level]
        parts = [f"{names[place]} = {'NULL' if keys[place] is None else keys[place]}" for place in used]
        return ", ".join(parts) or "all rows"

    def _facts(self) -> Facts:
        mine = f"model = '{self._id}'::UUID"
        counts = ", ".join(
            f"(SELECT count(*) FROM {self._table(name)} WHERE {mine} {also})"
            for name, also in (
                ("groups", ""),
                ("groups", "AND best IS NOT NULL"),
                ("configs", ""),
                ("trials", ""),
                ("trials", "AND status IN ('failed', 'kept')"),
            )
        )
        row = self._rows(
            f"SELECT if((SELECT bool_or(len(valid) > 0) FROM {self._table('trials')} WHERE {mine}), 'valid', 'train'),"
            " if((SELECT count(*) FILTER (judged > 1) BETWEEN greatest(count(*) / 2, 1) AND count(*) FROM"
            f" (SELECT count(valid_metric) AS judged FROM {self._table('curves')} WHERE {mine} GROUP BY group_id, config"
            " HAVING count(*) > 1)), 'valid', 'train'),"
            " operator, executor, workers, seconds, strftime(trained_at, '%Y-%m-%d %H:%M'),"
            " coalesce((SELECT max(n) FROM"
            f" (SELECT sum(n_rows)::BIGINT AS n FROM {self._table('groups')} WHERE {mine} GROUP BY level)), 0),"
            f" {counts}, coalesce((SELECT max(epoch) FROM {self._table('curves')} WHERE {mine}), 0)"
            f" FROM {self._table('models')} WHERE {mine}"
        )[0]
        return Facts(*row)

    def _value(self) -> str:
        definition = self.stored.definition
        return f"t.{self.facts.part}[{definition.metrics.index(definition.metric) + 1}]"

    def _mine(self) -> str:
        return where(self._id)

    def _table(self, name: str) -> str:
        return table(self._catalog, name)

    @property
    def _id(self) -> str:
        return self.stored.id

    @property
    def _catalog(self) -> str:
        return self.stored.location.catalog

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query).fetchall()


def identity_columns(stored: StoredModel) -> list[str]:
    """Return the names of the columns of the model table that say which trial a row is: group, level, hyperparameters."""
    return distinct(name for name, _ in trial_columns(stored.definition))


def identity_sql(stored: StoredModel) -> str:
    """Return a query of the trials: :func:`identity_columns`, ``(group)``, ``(config)``."""
    catalog = stored.location.catalog
    columns = [*trial_columns(stored.definition), ("(group)", "t.group_id"), ("(config)", "t.config")]
    return f"SELECT {select_list(columns)} {joined(catalog)} WHERE {where(stored.id)}"
