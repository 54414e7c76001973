"""OVER bound: the configurations that every group begins with, and the search procedure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from grouplearn import sqltext
from grouplearn.bind.run.options import check_parameter, defaults, resolved
from grouplearn.bind.run.run_options import RunOptions
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.interrupting import with_checks
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner, Resource
from grouplearn.learners.contract.optional import conflict
from grouplearn.learners.contract.ways import goes_on
from grouplearn.messages import Span
from grouplearn.parser.statements import (
    Between,
    InList,
    Name,
    Search,
    Sql,
    TrainModel,
    ValidateFolds,
    ValidateNone,
    Within,
)
from grouplearn.schedule.operators import STEADY, WHOLE
from grouplearn.search import procedures, space
from grouplearn.search.hyperband import brackets
from grouplearn.search.tpe import check_installed

#: Which searches take which options.
_TAKERS: Mapping[str, tuple[str, ...]] = {
    "trials": ("random", *procedures.PROCEDURES),
    "reduction_factor": ("hyperband", "asha"),
    "min_epochs": ("asha",),
    "parallel_trials": ("asha",),
    "interval": ("pbt",),
    "search_scope": procedures.PROCEDURES,
}
#: The options that are about the search.
SEARCH_OPTIONS = tuple(_TAKERS)


_OTHERS = "Use OVER TPE, OVER RANDOM or OVER GRID, which train every trial to its end."
#: What HYPERBAND and ASHA can give trials in steps.
_RESOURCES = (
    "Resources: epochs (networks, solver = 'sgd'), num_iterations (gbdt, random_forest), "
    "rows (other linear learners, kmeans, pca)"
)


#: Why operators that divide units do not run a search that continues networks from round to round.
ORDER_CHANGES = "the order in which it visits the blocks of a group would change from round to round of a search"


def may_run(search: procedures.SearchPlan | None, learner: Learner, operator: str) -> bool:
    """Whether an operator may run a statement's search: continued trials must see the rows in the same order as one long
    run."""
    steady = search is None or not search.continues or not learner.access.visits
    return steady or operator in STEADY


class SearchBinder:
    """Binds the search of a statement against the hyperparameters of its learner."""

    def __init__(self, checker: SqlChecker, learner: Learner, options: RunOptions) -> None:
        self._checker = checker
        self._learner = learner
        self._training, self._search, self._operator = options.training, options.search, options.placement.operator

    def bind(
        self, statement: TrainModel, fixed: Mapping[str, Any]
    ) -> tuple[tuple[Config, ...], procedures.SearchPlan | None]:
        """Return the configurations that each group begins with, and the search procedure if there is one.

        ``fixed`` are the hyperparameters given in WITH.
        """
        base = {**defaults(self._learner), **fixed}
        search, plan = statement.search, None
        self._refuse_idle(statement)
        if search is None:
            return self._consistent((base,), statement), None
        lists = [dimension for dimension in search.dimensions if isinstance(dimension, InList)]
        # Checked before values are computed; how many a subquery has is not known yet.
        most = max if search.method != "grid" else math.prod
        self._refuse_excess(most([max(1, len(dimension.values)) for dimension in lists] or [1]), search.span)
        dimensions = tuple(self._dimension(dimension) for dimension in search.dimensions)
        self._refuse_fixed_twice(search, fixed)
        if search.method in procedures.PROCEDURES:
            plan = self._plan(statement, search, dimensions, base)
            configs = plan.first_configs()
            plan = replace(
                plan, anew=plan.resource == "rows" or not all(goes_on(self._learner, config) for config in configs)
            )
        elif search.method == "random":
            trials = self._search.trials or procedures.DEFAULT_TRIALS["random"]
            configs = space.random(dimensions, base, trials, self._training.seed)
        else:
            listed = [entry for entry in dimensions if isinstance(entry, space.Choices)]
            self._refuse_excess(space.combinations(listed), search.span)
            configs = space.grid(listed, base)
        if not configs:
            raise self._checker.error("the grid is empty", search.span, "List at least one value per hyperparameter.")
        return self._consistent(configs, statement), plan

    def _plan(
        self, statement: TrainModel, search: Search, dimensions: tuple[space.Dimension, ...], base: Config
    ) -> procedures.SearchPlan:
        options, method = self._search, search.method
        self._check_procedure(statement, search)
        epochs = self._training.epochs or self._learner.declaration.default_epochs or 1
        resource: Resource = "epochs"
        if method in ("hyperband", "asha"):
            resource = self._resource() or "epochs"
            epochs = self._budget(statement, search, resource, epochs, base)
        if options.min_epochs > epochs:
            place = _span_of(statement, "min_epochs") or search.span
            raise self._checker.error(f"min_epochs is more than the {epochs} {resource} of a trial", place)
        whole = sum(bracket[0].trials for bracket in brackets(epochs, options.reduction_factor))
        trials = options.trials or (whole if method == "hyperband" else procedures.DEFAULT_TRIALS[method])
        if trials > space.MAX_CONFIGS:
            most = f"at most {space.MAX_CONFIGS:,} are trained"
            message = f"HYPERBAND over {epochs} {resource} begins with {trials:,} trials; {most}"
            raise self._checker.error(message, search.span, "Say how many with WITH (trials = n).")
        return procedures.SearchPlan(
            method=method,
            dimensions=dimensions,
            base=base,
            trials=min(trials, whole) if method == "hyperband" else trials,
            budget=epochs,
            seed=self._training.seed,
            factor=options.reduction_factor,
            least=options.min_epochs,
            slots=options.parallel_trials,
            interval=options.interval or max(1, epochs // 10),
            shared=options.search_scope == "all",
            resource=resource,
        )

    def _budget(self, statement: TrainModel, search: Search, resource: Resource, epochs: int, base: Config) -> int:
        """Return the most that a trial gets of the resource."""
        if resource == "rows":
            self._refuse_min_epochs(statement, search.method)
            return procedures.parts(self._search.reduction_factor)
        rounds = self._learner.declaration.rounds
        if resource == "epochs" or rounds is None:
            return epochs
        place = next((name.span for name in searched(search) if name.value.casefold() == rounds), None)
        if place is not None:
            method = search.method.upper()
            message = f"{method} gives its trials {rounds} step by step, so it cannot search it as well"
            hint = f"Give the most in WITH ({rounds} = 100), or search it with OVER GRID, RANDOM or TPE."
            raise self._checker.error(message, place, hint)
        return int(str(base[rounds]))

    def _refuse_min_epochs(self, statement: TrainModel, method: str) -> None:
        place = _span_of(statement, "min_epochs")
        if place is not None:
            learner = self._learner
            message = f"{method.upper()} judges trials of {learner.declaration.name} that have trained to their end on part of"
            message += " the rows, and min_epochs is for trials that are judged between epochs"
            others = "give more epochs" if learner.access.visits else "use a network, such as mlp"
            raise self._checker.error(message, place, f"Leave it out, or {others}.")

    def _check_procedure(self, statement: TrainModel, search: Search) -> None:
        """Raise if the procedure cannot search over this learner or compare its trials."""
        method, validation = search.method.upper(), statement.validation
        if search.method == "tpe":
            check_installed()
        else:
            self._refuse_without_barriers(method, search.span)
            if self._training.early_stopping is not None:
                message = f"early_stopping has no use under {method}, which itself stops the trials that lose"
                raise self._checker.error(message, _span_of(statement, "early_stopping") or search.span)
            if isinstance(validation, ValidateFolds):
                hint = "Use VALIDATE SAMPLE 10% or VALIDATE WHERE ..., or OVER TPE, which judges finished trials."
                message = (
                    f"{method} judges trials in the middle of training, and VALIDATE FOLDS would train each of them"
                )
                message += " several times"
                raise self._checker.error(message, validation.folds.span, hint)
            self._refuse_operator(statement, search)
        if isinstance(validation, ValidateNone):
            hint = "Use VALIDATE SAMPLE 10%, or leave VALIDATE out."
            raise self._checker.error(
                f"{method} compares trials on rows held out, and VALIDATE NONE holds out none", search.span, hint
            )

    def _refuse_operator(self, statement: TrainModel, search: Search) -> None:
        operator = self._operator
        if operator in ("auto", *STEADY) or not self._learner.access.visits:
            return
        place = next((each.value.span for each in statement.options if each.name.value.casefold() == "operator"), None)
        learner, method = self._learner.declaration.name, search.method.upper()
        message = f"operator {operator} does not run OVER {method} with {learner}: {ORDER_CHANGES}"
        raise self._checker.error(message, place or search.span, f"Use operator = {' or '.join(map(repr, WHOLE))}.")

    def _refuse_without_barriers(self, method: str, span: Span) -> None:
        learner, name = self._learner, self._learner.declaration.name
        if method != "PBT":
            self._refuse_without_resource(method, span)
        elif learner.access.in_one_go:
            message = (
                f"PBT changes hyperparameters in the middle of training, and {name} keeps those of a trial to its end"
            )
            raise self._checker.error(message, span, _OTHERS)
        elif learner.declaration.default_epochs is None:
            message = f"PBT stops trials between epochs, and {name} has none: it is solved in one pass"
            raise self._checker.error(message, span, _OTHERS)
        elif not learner.access.retunes:
            message = f"PBT changes hyperparameters in the middle of training, and {name} minimises one objective"
            hint = "Use OVER HYPERBAND, ASHA, TPE, RANDOM or GRID, or a network, such as mlp."
            raise self._checker.error(message, span, hint)

    def _resource(self) -> Resource | None:
        """Return what HYPERBAND and ASHA give trials."""
        return self._learner.resource(self._training.epochs or self._learner.declaration.default_epochs or 1)

    def _refuse_without_resource(self, method: str, span: Span) -> None:
        """Raise if no part of a trial's training says how good it will be."""
        own = self._learner.declaration
        if self._resource() is None:
            why = "trains each trial in one go" if self._learner.access.in_one_go else "learns each series as a whole"
            message = f"{method} gives trials more and more of their training, and {own.name} {why}\n{_RESOURCES}"
            raise self._checker.error(message, span, _OTHERS)

    def _refuse_idle(self, statement: TrainModel) -> None:
        """Raise for an option that belongs to another search."""
        method = statement.search.method if statement.search else None
        for option in statement.options:
            name = option.name.value.casefold()
            takers = _TAKERS.get(name)
            if takers and method not in takers:
                *others, last = (taker.upper() for taker in takers)
                listed = f"{', '.join(others)} and {last}" if others else last
                raise self._checker.error(f"{name} is for OVER {listed}", option.name.span)

    def _refuse_excess(self, configs: int, span: Span) -> None:
        if configs > space.MAX_CONFIGS:
            message = f"the grid has {configs:,} configurations; at most {space.MAX_CONFIGS:,} are trained"
            raise self._checker.error(message, span, "List fewer values, or draw from them: OVER RANDOM (...).")

    def _consistent(self, configs: tuple[Config, ...], statement: TrainModel) -> tuple[Config, ...]:
        for config in configs:
            contradiction = conflict(self._learner, config)
            if contradiction:
                span = place_of(statement, *contradiction.parameters)
                raise self._checker.error(contradiction.message, span)
        self._refuse_without_effect(configs, statement)
        return configs

    def _refuse_without_effect(self, configs: tuple[Config, ...], statement: TrainModel) -> None:
        """Raise for a hyperparameter that counts only with values of another one which no configuration has, or will have."""
        drawn = statement.search is not None and statement.search.method != "grid"
        found = {name.value.casefold() for name in searched(statement.search)} if statement.search else set[str]()
        given = found | {option.name.value.casefold() for option in statement.options}
        others = {each.name: each for each in self._learner.declaration.hyperparameters}
        for parameter in self._learner.declaration.hyperparameters:
            if parameter.only_with is None or parameter.name not in given:
                continue
            name, values = parameter.only_with
            other = others.get(name)
            if other is None or (drawn and name in found):
                continue
            has = {config.get(name, other.default) for config in configs}
            if has & set(values) if values else has - {other.default}:
                continue
            listed = " or ".join(f"{name} = {sqltext.shown(each)}" for each in values if each is not None)
            unset = f"{name} = NULL" if values else name
            message = f"{parameter.name} does nothing without {listed or unset}"
            raise self._checker.error(message, place_of(statement, parameter.name))

    def _refuse_fixed_twice(self, search: Search, fixed: Mapping[str, Any]) -> None:
        for name in searched(search):
            if name.value.casefold() in fixed:
                message = f"{name.value.casefold()} is both searched and fixed in WITH"
                raise self._checker.error(message, name.span, "Give it in one of the two places.")

    def _dimension(self, dimension: InList | Between) -> space.Dimension:
        if isinstance(dimension, Between):
            return self._range(dimension)
        for name in dimension.parameters:
            check_parameter(self._checker, self._learner, name)
        points = self._subquery_points(dimension) if dimension.subquery else self._listed_points(dimension)
        names = tuple(name.value.casefold() for name in dimension.parameters)
        return space.Choices(names, points)

    def _listed_points(self, dimension: InList) -> tuple[tuple[Any, ...], ...]:
        fragments = [value for point in dimension.values for value in point]
        values = zip(fragments, self._checker.constants(fragments), strict=True)
        return tuple(
            tuple(self._resolved(name, *next(values)) for name in dimension.parameters)
            for _ in with_checks(dimension.values)
        )

    def _resolved(self, name: Name, fragment: Sql, value: Any) -> Any:
        return resolved(self._checker, self._learner, name, value, fragment)

    def _subquery_points(self, dimension: InList) -> tuple[tuple[Any, ...], ...]:
        query = dimension.subquery
        assert query is not None  # noqa: S101  (the caller checked)
        rows = self._checker.values("FROM", query, f"LIMIT {space.MAX_CONFIGS + 1}")
        width = len(dimension.parameters)
        if len(rows) > space.MAX_CONFIGS:
            message = (
                f"this subquery has more than {space.MAX_CONFIGS:,} rows; at most so many configurations are trained"
            )
            raise self._checker.error(
                message, query.span, "Select fewer, or draw from a range: OVER RANDOM (x BETWEEN ...)."
            )
        if not rows:
            raise self._checker.error("the grid is empty: this subquery returns no rows", query.span)
        if len(rows[0]) != width:
            raise self._checker.error(
                f"this subquery returns {len(rows[0])} columns for {width} hyperparameter{'s' if width > 1 else ''}",
                query.span,
            )
        return tuple(
            tuple(
                resolved(self._checker, self._learner, name, value, query)
                for name, value in zip(dimension.parameters, row, strict=True)
            )
            for row in rows
        )

    def _range(self, dimension: Between) -> space.Range:
        check_parameter(self._checker, self._learner, dimension.parameter)
        name = dimension.parameter.value.casefold()
        kind = next(entry.kind for entry in self._learner.declaration.hyperparameters if entry.name == name)
        if kind not in ("float", "int"):
            raise self._checker.error(f"{name} is no number: list its values with IN", dimension.parameter.span)
        low, high = (self._bound(dimension.parameter, end) for end in (dimension.low, dimension.high))
        if low > high:
            raise self._checker.error(f"{name} BETWEEN {low:g} AND {high:g} is empty", dimension.low.span)
        if dimension.log and low <= 0:
            raise self._checker.error(f"a LOG range starts above 0, got {low:g}", dimension.low.span)
        return space.Range(name, low, high, dimension.log, integer=kind == "int")

    def _bound(self, name: Name, end: Sql) -> float:
        value = self._resolved(name, end, self._checker.constant(end))
        if value is None:
            message = f"{name.value.casefold()} BETWEEN takes two numbers, got NULL"
            raise self._checker.error(message, end.span, "List NULL with IN.")
        assert isinstance(value, int | float)  # noqa: S101  (resolve returned a number for a numeric kind)
        return float(value)


def place_of(statement: TrainModel, *parameters: str) -> Span:
    """Return the position of the first of these hyperparameters that the statement gives; else of the learner's name."""
    given = {name.value.casefold(): name.span for name in searched(statement.search)} if statement.search else {}
    given |= {option.name.value.casefold(): option.value.span for option in statement.options}
    return next((given[name] for name in parameters if name in given), statement.learner.span)


def _span_of(statement: TrainModel, option: str) -> Span | None:
    """Return the position of an option in WITH."""
    return next((each.name.span for each in statement.options if each.name.value.casefold() == option), None)


_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600}


def bind_within(checker: SqlChecker, within: Within | None) -> float | None:
    """Return the seconds of a WITHIN clause."""
    if within is None:
        return None
    value = checker.constant(within.amount)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not 0 < value < math.inf:
        raise checker.error(f"WITHIN takes a length of time above 0, got {sqltext.shown(value)}", within.amount.span)
    return float(value) * _SECONDS[within.unit.value]


def searched(search: Search) -> list[Name]:
    """Return the hyperparameters that the search names, in order."""
    return [
        name
        for dimension in search.dimensions
        for name in (dimension.parameters if isinstance(dimension, InList) else (dimension.parameter,))
    ]
