"""WITH (standard_errors, cluster, confidence): whether a statement's models can have them, checked before rows are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from grouplearn.bind.bound import BoundKey, BoundTrain
from grouplearn.bind.run.run_options import EstimationOptions
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.bind.sql.expressions import Replay
from grouplearn.data.encoding import types
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.pooling import pools
from grouplearn.learners.contract.standard_errors import ErrorOptions, HasStandardErrors
from grouplearn.models.definition import KeyColumn
from grouplearn.models.label import Label
from grouplearn.parser.statements import Option, Sql

_KIND, _CLUSTER = "standard_errors", "cluster"
_NAMES = (_KIND, _CLUSTER, "confidence")


def bind_cluster(
    checker: SqlChecker,
    given: Sequence[Option],
    options: EstimationOptions,
    source: Sequence[str | Sql],
    replayed: Replay,
) -> BoundKey | None:
    """Return what the clusters of standard errors are by, None without clusters; raises BindError."""
    cluster, kind = options.cluster, options.standard_errors
    if cluster is None:
        if kind == _CLUSTER:
            message = "standard_errors = 'cluster' needs to know which rows depend on each other"
            span = next(option.value.span for option in given if option.name.value.casefold() == _KIND)
            raise checker.error(message, span, "Add cluster = store, an expression over the columns of FROM.")
        return None
    if kind not in (None, _CLUSTER):
        raise checker.error(f"cluster is for standard_errors = 'cluster', and here it is '{kind}'", cluster.span)
    described = checker.describe("SELECT (", cluster, ")", *source)
    if len(described) != 1:
        raise checker.error("cluster takes one expression", cluster.span, "Several are one: {'a': a, 'b': b}.")
    if types.unreadable_part(described[0].type):
        message = f"a cluster of type {described[0].type} has no text that tells it from others"
        raise checker.error(message, cluster.span, types.about(cluster.text, "Cast it, e.g. x::VARCHAR."))
    return BoundKey(KeyColumn(_CLUSTER, replayed.stored(cluster), described[0].type), cluster)


def refuse_idle(
    checker: SqlChecker, options: Sequence[Option], learner: Learner, configs: Sequence[Config] | None
) -> None:
    """Raise for options of standard errors where no model has any; ``configs`` are None if a search finds them."""
    given = next((option for option in options if option.name.value.casefold() in _NAMES), None)
    if given is None or (given.name.value.casefold() == _KIND and "none" in given.value.text.casefold()):
        return
    name, span = learner.declaration.name, given.name.span
    if not learner.declaration.has_standard_errors:
        of_others = any(way.declaration.has_standard_errors for way in registry.ways(_first(learner)))
        solver = f" by solver '{learner.declaration.solver}'" if of_others else ""
        having = [each for each in registry.names() if registry.learner(each).declaration.has_standard_errors]
        how = " with ORDER BY" if learner.declaration.over_lags else solver
        message = f"{name}{how} has no standard errors\nLearners that have: {', '.join(having)}"
        hint = f"Leave out solver: the default of {name} has standard errors." if solver else None
        raise checker.error(message, span, hint)
    if configs is not None and not any(map(cast(HasStandardErrors, learner).is_estimate, configs)):
        if any(pools(learner, config) for config in configs):
            message = "only weights without a penalty have standard errors, and pooling = 'shrink' is one"
            raise checker.error(message, span, "Leave out pooling.")
        message = "only weights without a penalty have standard errors, and in every configuration l1 or l2 is above 0"
        raise checker.error(message, span, "Add l2 = 0 to WITH.")


def errors_of(bound: BoundTrain, label: Label, checker: SqlChecker) -> ErrorOptions | None:
    """Return which standard errors the models have, None if none; raises if they are asked for, and the label has more than two
    classes."""
    options = bound.options.estimation
    if options.offset is not None and label.scores_classes:
        hint = "Predict one class against the others: PREDICT label = 'a'."
        raise checker.error("models of two classes take an offset, and this label has more", options.offset.span, hint)
    if not bound.learner.declaration.has_standard_errors or options.standard_errors == "none":
        return None
    if label.scores_classes:
        asked = (option for option in bound.statement.options if option.name.value.casefold() in _NAMES)
        if (option := next(asked, None)) is not None:
            message = "models of two classes have standard errors, and this label has more"
            raise checker.error(message, option.name.span, "Predict one class against the others: PREDICT label = 'a'.")
        return None
    kind = _CLUSTER if bound.cluster else options.standard_errors or "classical"
    return ErrorOptions(kind, options.confidence, bound.weight_sql is not None)


def _first(learner: Learner) -> Learner:
    name = learner.declaration.stored_name
    return registry.learner(name) if registry.is_known(name) else learner
