"""What the objective implies for the label and the metric, and hyperparameters that name features."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grouplearn.bind.bound import BoundTarget
from grouplearn.bind.clauses.features import BoundItem
from grouplearn.bind.clauses.search import place_of, searched
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.errors import Error
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import HasObjectives, LimitsOffset, NeedsWholeGroups
from grouplearn.messages import Span, did_you_mean
from grouplearn.models.metrics.metrics import METRICS
from grouplearn.parser.statements import InList, TrainModel
from grouplearn.schedule.operators import OPERATORS
from grouplearn.search.procedures import SearchPlan
from grouplearn.sqltext import folded

#: Kinds of features whose values have an order.
_ORDERED = ("numeric", "array")


def implies_classes(learner: Learner, statement: TrainModel, fixed: Mapping[str, Any]) -> bool | None:
    """Return whether the objectives that a statement names, in WITH or in a list of OVER, are for classes; None if it names none,
    or some for classes and some for numbers."""
    if not isinstance(learner, HasObjectives):
        return None
    name = learner.objective_name
    listed = [
        point[place].text.strip().strip("'")
        for dimension in (statement.search.dimensions if statement.search else ())
        if isinstance(dimension, InList)
        for place, parameter in enumerate(dimension.parameters)
        if parameter.value.casefold() == name
        for point in dimension.values
    ]
    found = {learner.classifies({**fixed, name: each}) for each in listed} or {learner.classifies(fixed)}
    return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class BoundHyperparameters:
    """Bound hyperparameters of a statement: of every config, and of ``search`` if a procedure makes more."""

    checker: SqlChecker
    statement: TrainModel
    learner: Learner
    configs: Sequence[Config]
    search: SearchPlan | None

    def check_label(self, target: BoundTarget) -> None:
        """Raise for an objective for classes with a numeric label, or the other way round, and for hyperparameters that do
        not go with the objectives of such a label."""
        other, what = ("regression", "a number") if target.classification else ("classification", "classes")
        hint = f"WITH (task = '{other}') takes the label for {what}, where its type allows it."
        if not isinstance(self.learner, HasObjectives):
            return
        for config in self.configs:
            found = self.learner.label_conflict(config, target.classification)
            if found:
                raise self.checker.error(found.message, place_of(self.statement, *found.parameters), hint)
            classifies = self.learner.classifies(config)
            if classifies is None or classifies == target.classification:
                continue
            name, kinds = self.learner.objective_name, ("numbers", "classes")
            has = "has classes" if target.classification else "is a number"
            message = f"{name} = '{config[name]}' is for {kinds[classifies]}, and the label {has}"
            raise self._error(name, message, hint)

    def check_features(self, items: Sequence[BoundItem]) -> None:
        """Raise if a hyperparameter names a feature that FEATURES does not have, or whose values have no order."""
        kinds = {folded(item.stored.item.name): item.stored.item.kind for item in items}
        features = [item.stored.item.name for item in items]
        for parameter in self.learner.declaration.hyperparameters:
            if parameter.kind not in ("ints_by_feature", "floats_by_feature", "feature_sets"):
                continue
            for name in self._names(parameter.name):
                if folded(name) not in kinds:
                    message = f'{parameter.name} names "{name}", and no feature has that name\nFeatures: {", ".join(features)}'
                    raise self._error(parameter.name, message, did_you_mean(name, features))
                if parameter.name == "monotone_constraints" and kinds[folded(name)] not in _ORDERED:
                    message = f'monotone_constraints names "{name}", whose categories have no order'
                    raise self._error(parameter.name, message, "Constrain features that are numbers.")

    def check_offset(self) -> None:
        """Raise for a hyperparameter with which models take no offset."""
        if not isinstance(self.learner, LimitsOffset):
            return
        for found in filter(None, map(self.learner.offset_conflict, self.configs)):
            raise self.checker.error(found.message, place_of(self.statement, *found.parameters))

    def check_operator(self, operator: str) -> None:
        """Raise for an operator that splits groups over workers where a hyperparameter needs a group's rows together."""
        if operator == "auto" or not OPERATORS[operator].divides or not isinstance(self.learner, NeedsWholeGroups):
            return
        for reason in filter(None, map(self.learner.undivided, self.configs)):
            message = f"{reason} needs all rows of a group in one place, and operator '{operator}' divides them"
            raise self._error("operator", message, "Leave the operator out, and groups train side by side.")

    def _names(self, parameter: str) -> Iterable[str]:
        for text in dict.fromkeys(config[parameter] for config in self.configs if config[parameter] is not None):
            said = json.loads(str(text))
            every = [*said] if isinstance(said, dict) else [name for each in said for name in each]
            if isinstance(said, dict) and len({folded(name) for name in every}) < len(every):
                message = f"{parameter} names a feature twice, in two spellings: {', '.join(every)}"
                raise self._error(parameter, message, "Names of features are not case-sensitive.")
            yield from every

    def metric(self, chosen: str | None, classification: bool) -> str | None:
        """Return the metric to optimise: ``chosen``, else the objective's if all configs agree, else the learner's, or None.

        Raises for a metric that has other parameters in other configs.
        """
        if chosen is None and isinstance(self.learner, HasObjectives):
            every = {self.learner.default_metric(config, classification) for config in self.configs}
            chosen = every.pop() if len(every) == 1 and self.learner.objective_name not in self._open() else None
        if chosen is None and classification:
            chosen = self.learner.declaration.metric_of_classes
        parameter = METRICS[chosen].parameter if chosen and chosen in METRICS else None
        if parameter is None or chosen is None:
            return chosen
        if parameter not in {each.name for each in self.learner.declaration.hyperparameters}:
            message = f"metric {chosen} is measured by {parameter}, which {self.learner.declaration.name} does not have"
            raise self.checker.error(message, self._metric_span())
        if len({config[parameter] for config in self.configs}) > 1 or parameter in self._open():
            message = f"{chosen} is measured by {parameter}, and configurations of different {parameter} cannot be compared by it"
            hint = f"Train a model for each {parameter}, or compare them by another metric: OPTIMIZE mae."
            raise self._error(parameter, message, hint)
        return chosen

    def _open(self) -> frozenset[str]:
        """Return the hyperparameters that a procedure chooses during the search."""
        if self.search is None or self.statement.search is None:
            return frozenset()
        return frozenset(name.value.casefold() for name in searched(self.statement.search))

    def _metric_span(self) -> Span:
        return self.statement.metric.span if self.statement.metric else self.statement.learner.span

    def _error(self, parameter: str, message: str, hint: str | None) -> Error:
        return self.checker.error(message, place_of(self.statement, parameter), hint)
