"""OVER GRID and OVER RANDOM bound: the configurations that every group trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grouplearn.errors import Span
from grouplearn.learners.base import Config, Learner
from grouplearn.parser.statements import Between, InList, Name, Search, Sql, TrainModel
from grouplearn.plan.judge import Judge
from grouplearn.plan.options import RunOptions, check_parameter, defaults, resolved
from grouplearn.search import space


class SearchBinder:
    """Binds the search of a statement against the hyperparameters of its learner."""

    def __init__(self, judge: Judge, learner: Learner, options: RunOptions) -> None:
        self._judge = judge
        self._learner = learner
        self._options = options

    def configs(self, statement: TrainModel, fixed: Mapping[str, Any]) -> tuple[Config, ...]:
        """Return what is trained for each group; ``fixed`` are the hyperparameters given in WITH."""
        base = {**defaults(self._learner), **fixed}
        search = statement.search
        if search is None:
            return self._consistent((base,), statement.learner.span)
        dimensions = [self._dimension(dimension) for dimension in search.dimensions]
        self._refuse_fixed_twice(search, fixed)
        if search.method == "random":
            configs = space.random(dimensions, base, self._options.trials, self._options.seed)
        else:
            listed = [entry for entry in dimensions if isinstance(entry, space.Choices)]
            self._refuse_excess(space.combinations(listed), search.span)
            configs = space.grid(listed, base)
        if not configs:
            raise self._judge.error("the grid is empty", search.span, "List at least one value per hyperparameter.")
        return self._consistent(configs, search.span)

    def _refuse_excess(self, configs: int, span: Span) -> None:
        if configs > space.MAX_CONFIGS:
            message = f"the grid has {configs:,} configurations; at most {space.MAX_CONFIGS:,} are trained"
            raise self._judge.error(message, span, "List fewer values, or draw from them: OVER RANDOM (...).")

    def _consistent(self, configs: tuple[Config, ...], span: Span) -> tuple[Config, ...]:
        for config in configs:
            contradiction = self._learner.conflict(config)
            if contradiction:
                raise self._judge.error(contradiction, span)
        return configs

    def _refuse_fixed_twice(self, search: Search, fixed: Mapping[str, Any]) -> None:
        for name in searched(search):
            if name.value.casefold() in fixed:
                message = f"{name.value.casefold()} is both searched and fixed in WITH"
                raise self._judge.error(message, name.span, "Give it in one of the two places.")

    def _dimension(self, dimension: InList | Between) -> space.Dimension:
        if isinstance(dimension, Between):
            return self._range(dimension)
        for name in dimension.parameters:
            check_parameter(self._judge, self._learner, name)
        points = self._subquery_points(dimension) if dimension.subquery else self._listed_points(dimension)
        names = tuple(name.value.casefold() for name in dimension.parameters)
        return space.Choices(names, points)

    def _listed_points(self, dimension: InList) -> tuple[tuple[Any, ...], ...]:
        return tuple(
            tuple(
                resolved(self._judge, self._learner, name, self._judge.constant(value)[0], value)
                for name, value in zip(dimension.parameters, point, strict=True)
            )
            for point in dimension.values
        )

    def _subquery_points(self, dimension: InList) -> tuple[tuple[Any, ...], ...]:
        query = dimension.subquery
        assert query is not None  # noqa: S101  (the caller looked)
        rows = self._judge.rows("FROM", query)
        width = len(dimension.parameters)
        if not rows:
            raise self._judge.error("the grid is empty: this subquery returns no rows", query.span)
        if len(rows[0]) != width:
            raise self._judge.error(
                f"this subquery returns {len(rows[0])} columns for {width} hyperparameter{'s' if width > 1 else ''}",
                query.span,
            )
        return tuple(
            tuple(
                resolved(self._judge, self._learner, name, value, query)
                for name, value in zip(dimension.parameters, row, strict=True)
            )
            for row in rows
        )

    def _range(self, dimension: Between) -> space.Range:
        check_parameter(self._judge, self._learner, dimension.parameter)
        name = dimension.parameter.value.casefold()
        kind = next(entry.kind for entry in self._learner.hyperparameters if entry.name == name)
        if kind not in ("float", "int"):
            raise self._judge.error(f"{name} is no number: list its values with IN", dimension.parameter.span)
        low, high = (self._bound(dimension.parameter, end) for end in (dimension.low, dimension.high))
        if low > high:
            raise self._judge.error(f"{name} BETWEEN {low:g} AND {high:g} is empty", dimension.low.span)
        if dimension.log and low <= 0:
            raise self._judge.error(f"a LOG range starts above 0, got {low:g}", dimension.low.span)
        return space.Range(name, low, high, dimension.log, integer=kind == "int")

    def _bound(self, name: Name, end: Sql) -> float:
        value = resolved(self._judge, self._learner, name, self._judge.constant(end)[0], end)
        assert isinstance(value, int | float)  # noqa: S101  (resolve returned a number for a numeric kind)
        return float(value)


def searched(search: Search) -> list[Name]:
    """Return the hyperparameters that the search names, in order."""
    return [
        name
        for dimension in search.dimensions
        for name in (dimension.parameters if isinstance(dimension, InList) else (dimension.parameter,))
    ]
