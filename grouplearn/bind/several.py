"""Several learners in USING: a bound statement of each, judged on the same rows held out and by the same metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from grouplearn.bind.bind import bind_learner
from grouplearn.bind.bound import BoundTrain, Holdout
from grouplearn.bind.clauses.search import SEARCH_OPTIONS, searched
from grouplearn.bind.run.options import WITH_OPTIONS, has_rounds
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.learners import registry
from grouplearn.learners.contract.config import SOLVER
from grouplearn.learners.contract.learner import Learner
from grouplearn.messages import did_you_mean
from grouplearn.models.label import LABELS_OF_TASK
from grouplearn.parser.statements import (
    Between,
    Feature,
    InList,
    Name,
    Option,
    QualifiedName,
    Search,
    Sql,
    TrainModel,
    ValidateNone,
    ValidateSample,
)

#: What decides which steps judge a series.
_OF_STEPS = ("season_length", "horizon")
#: The share of rows held out where the usual default holds out none.
_TENTH = Sql("10")


def member_name(name: str, learner: str) -> str:
    """Return the name of the model of one learner of several."""
    return f"{name}__{learner}"


def one_learner(checker: SqlChecker, statement: TrainModel) -> TrainModel:
    """Return a statement of one learner without the learner's name before hyperparameters."""
    if all(name.learner is None for name in _named(statement)):
        return statement
    return Several(checker, statement).own(statement.learner)


def bind_several(
    checker: SqlChecker, statement: TrainModel, bound_by: Callable[[TrainModel], BoundTrain]
) -> tuple[BoundTrain, ...]:
    """Return the bound statement of each learner; ``bound_by`` binds one.

    A tenth of the rows judges all learners if the usual default would hold out none for one of them.
    """
    several = Several(checker, statement)
    several.refuse_clauses()
    first, *others = (several.own(name) for name in several.names)
    bound = several.bound((first, *others), bound_by)
    if statement.validation is None and any(each.holdout.kind == "none" for each in bound):
        judged = (replace(each, validation=ValidateSample(_TENTH)) for each in (first, *others))
        bound = several.bound(tuple(judged), bound_by)
    several.refuse_differences(bound)
    return bound


@dataclass(frozen=True)
class Several:
    """A statement of several learners."""

    checker: SqlChecker
    statement: TrainModel

    @property
    def names(self) -> tuple[Name, ...]:
        """The learners as they are written."""
        return self.statement.learner, *self.statement.other_learners

    def learner(self, name: Name) -> Learner:
        """Return a learner, of series where the rows have an order."""
        found = bind_learner(self.checker, name)
        in_order = registry.of_series(found.declaration.name) if self.statement.order_by is not None else None
        return in_order or found

    def own(self, name: Name) -> TrainModel:
        """Return the statement of one learner: its hyperparameters, and FEATURES if it takes them."""
        every = {each.value: self.learner(each) for each in self.names}
        for given in _named(self.statement):
            self._refuse_unknown(given, every)
        statement, learner = self.statement, every[name.value]
        options, search = self._options(name, learner), self._search(name, learner)
        if search is None:
            options = tuple(each for each in options if each.name.value not in SEARCH_OPTIONS)
        parts = list(statement.name.parts)
        if statement.other_learners:
            parts[-1] = Name(member_name(statement.name.name, name.value), statement.name.parts[-1].span)
        return replace(
            statement,
            name=QualifiedName(tuple(parts)),
            learner=name,
            other_learners=(),
            features=self._features(learner, every.values()),
            options=options,
            search=search,
            group_failure=None if statement.other_learners else statement.group_failure,
        )

    def _features(self, learner: Learner, every: Iterable[Learner]) -> tuple[Feature, ...] | None:
        """Return FEATURES; nothing for a learner that takes none, if another does."""
        if not _takes_features(learner) and any(map(_takes_features, every)):
            return None
        return self.statement.features

    def _options(self, name: Name, learner: Learner) -> tuple[Option, ...]:
        found = []
        for option in self.statement.options:
            own = option.name.value in WITH_OPTIONS and option.name.learner is None
            if (own and not self._is_of_others(learner, option.name.value)) or (
                not own and self._is_for(name, learner, [option.name])
            ):
                found.append(replace(option, name=Name(option.name.value, option.name.span)))
        return tuple(found)

    def _is_of_others(self, learner: Learner, option: str) -> bool:
        """Whether an option of TRAIN is about epochs, and another learner has them but this one does not."""
        counts = _OF_EPOCHS.get(option)
        return counts is not None and not counts(learner) and any(counts(self.learner(each)) for each in self.names)

    def _search(self, name: Name, learner: Learner) -> Search | None:
        search, found = self.statement.search, []
        for dimension in search.dimensions if search else ():
            names = (dimension.parameter,) if isinstance(dimension, Between) else dimension.parameters
            if self._is_for(name, learner, names):
                found.append(_unqualified(dimension))
        return replace(search, dimensions=tuple(found)) if search and found else None

    def _is_for(self, name: Name, learner: Learner, given: Iterable[Name]) -> bool:
        """Whether hyperparameters, one or a row of them, are for a learner: its own, or those of all that have them."""
        own = {each.value for each in _named(self.statement) if each.learner == name.value}
        return all(
            each.learner == name.value if each.learner else each.value not in own and self._has(learner, each.value)
            for each in given
        )

    def _has(self, learner: Learner, name: str) -> bool:
        """Whether a learner has a hyperparameter: in its first way, or in any if a solver is given or no first way has it."""
        first = [_hyperparameters(self.learner(each), first=True) for each in self.names]
        solver = any(each.value == SOLVER for each in _named(self.statement))
        return name in _hyperparameters(learner, first=not solver and any(name in each for each in first))

    def _refuse_unknown(self, given: Name, every: dict[str, Learner]) -> None:
        """Raise for a hyperparameter that no learner has, or of a learner that the statement does not name."""
        checker, name = self.checker, given.value
        if given.learner is not None and given.learner not in every:
            message = f'"{given.learner}" is none of the learners of the statement: {", ".join(every)}'
            raise checker.error(message, given.span, did_you_mean(given.learner, every))
        if given.learner is not None and (name in WITH_OPTIONS or name in _OF_STEPS):
            raise checker.error(f"{name} is one for all learners, so that they are judged alike", given.span)
        if given.learner is not None or name in WITH_OPTIONS:
            return
        lists = {each: _hyperparameters(learner) for each, learner in every.items()}
        if any(name in has for has in lists.values()):
            return
        told = "".join(f"\nHyperparameters of {each}: {', '.join(has)}" for each, has in lists.items())
        known = list(dict.fromkeys([*(each for has in lists.values() for each in has), *WITH_OPTIONS]))
        raise checker.error(f'unknown hyperparameter "{name}"{told}', given.span, did_you_mean(name, known))

    def refuse_clauses(self) -> None:
        """Raise for clauses that leave nothing to choose by."""
        statement, checker = self.statement, self.checker
        if isinstance(statement.validation, ValidateNone):
            message = "VALIDATE NONE holds out no rows, and the learners are compared by rows held out"
            use = "SAMPLE 10%" if statement.order_by is None else "ROLLING 1 HORIZON 12"
            raise checker.error(message, statement.learner.span, f"Use VALIDATE {use}, or leave VALIDATE out.")
        for name in self.names:
            if not self.learner(name).declaration.has_label:
                message = f"{name.value} has no label, and several learners are compared by how well they predict one"
                raise checker.error(message, name.span, "Train it in a statement of its own.")
        for option in statement.options:
            if option.name.value == "durable" and checker.constant(option.value) is True:
                message = "a run of several learners is not kept on disk, to be resumed"
                raise checker.error(message, option.value.span, "Leave durable out, or train the learners one by one.")
            if option.name.value == "keep_versions":
                message = "a model of several learners has no earlier versions"
                raise checker.error(
                    message, option.name.span, "Leave keep_versions out, or train the learners one by one."
                )

    def bound(
        self, statements: tuple[TrainModel, ...], bound_by: Callable[[TrainModel], BoundTrain]
    ) -> tuple[BoundTrain, ...]:
        """Return the bound statements, all with the metric of the first; the error points to a learner that lacks it."""
        first = _without_versions(bound_by(statements[0]))
        metric = first.metric or _default_metric(first)
        others = (replace(each, metric=Name(metric, each.learner.span)) for each in statements[1:])
        return first, *(_without_versions(bound_by(each)) for each in others)

    def refuse_differences(self, bound: tuple[BoundTrain, ...]) -> None:
        """Raise if learners would be judged on other rows than the first."""
        for each in bound[1:]:
            if _judged(each.holdout) != _judged(bound[0].holdout):
                first, name = self.statement.learner.value, each.statement.learner
                message = f"{name.value} would be judged on other rows than {first}"
                hint = "Say which rows judge both: VALIDATE SAMPLE 10%, for series VALIDATE ROLLING 1 HORIZON 12."
                raise self.checker.error(message, name.span, hint)


def _without_versions(bound: BoundTrain) -> BoundTrain:
    """Return the statement of one of several learners, whose models replace each other together."""
    return replace(bound, options=bound.options.changed({"keep_versions": 1}))


def _named(statement: TrainModel) -> list[Name]:
    """Return the names in OVER and WITH."""
    return [*(searched(statement.search) if statement.search else ()), *(each.name for each in statement.options)]


def _hyperparameters(learner: Learner, *, first: bool = False) -> tuple[str, ...]:
    """Return the hyperparameters of all ways of a learner, or of the first."""
    ways = registry.ways(learner)
    listed = ways[:1] if first else ways
    found = dict.fromkeys(each.name for way in listed for each in way.declaration.hyperparameters)
    return (*found, *([SOLVER] if len(ways) > 1 and SOLVER not in found else []))


def _takes_features(learner: Learner) -> bool:
    return learner.declaration.takes_panel or not learner.declaration.takes_series


def _has_epochs(learner: Learner) -> bool:
    return learner.declaration.default_epochs is not None


#: Options of TRAIN that are left out for learners that have no epochs, and which learners these are not.
_OF_EPOCHS: Mapping[str, Callable[[Learner], bool]] = {
    "epochs": _has_epochs,
    "early_stopping": lambda learner: _has_epochs(learner) or has_rounds(learner),
}


def _unqualified(dimension: InList | Between) -> InList | Between:
    if isinstance(dimension, Between):
        return replace(dimension, parameter=Name(dimension.parameter.value, dimension.parameter.span))
    return replace(dimension, parameters=tuple(Name(each.value, each.span) for each in dimension.parameters))


def _default_metric(bound: BoundTrain) -> str:
    own = bound.learner.declaration
    task = "classification" if bound.target and bound.target.classification else "regression"
    label = min(LABELS_OF_TASK[task] & own.labels or own.labels, key=lambda each: each.name)
    return registry.output_class(bound.learner, label).metrics.default


def _judged(holdout: Holdout) -> tuple[object, ...]:
    """Return what decides which rows judge."""
    split = holdout.split
    folds = split.folds if holdout.kind in ("folds", "rolling") else 0
    return holdout.kind, holdout.predicate, holdout.share, holdout.by, folds, split.horizon, split.step, split.gap
