"""OPTIMIZE bound: the metric that chooses the best model."""

from __future__ import annotations

from collections.abc import Iterable

from grouplearn.bind.bound import BoundTarget
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.messages import did_you_mean
from grouplearn.models.label import LABELS_OF_TASK
from grouplearn.models.metrics import levels
from grouplearn.models.metrics.metric import Family
from grouplearn.parser.statements import Name


def bind_metric(checker: SqlChecker, learner: Learner, chosen: Name | None, target: BoundTarget | None) -> str | None:
    """Return the stored name of a statement's metric, None if it names none; raises BindError for one that does not fit."""
    if chosen is None:
        return None
    own = learner.declaration
    kind = own.name if target is None else "classification" if target.classification else "regression"
    labels, arrays = LABELS_OF_TASK.get(kind, own.labels), bool(target and target.array)
    every = [registry.output_class(learner, label).metrics for label in labels]
    allowed = tuple(dict.fromkeys(name for family in every for name in family.names(arrays)))
    at_levels = _at_levels(every) if not arrays else ()
    name = chosen.value.casefold()
    if name in allowed:
        return name
    if name in at_levels:
        hint = f"Write the least {name.rpartition('_at_')[2]}: OPTIMIZE {name}(0.9)."
        raise checker.error(f"{name} takes a level", chosen.span, hint)
    try:
        stored = levels.called(name)
    except ValueError as error:
        raise checker.error(str(error), chosen.span) from None
    named = levels.at_level(name)  # by its stored name, as a column of the model table
    stored = stored or (named.name if named and not named.is_threshold else None)
    if stored is not None and at_levels:
        return stored
    kind += " of arrays" if arrays else ""
    known = {metric.name for _, output in registry.outputs() for metric in output.metrics.metrics}
    verb = f"metric {name} is not for {kind}" if name in known or stored else f'unknown metric "{chosen.value}"'
    listed = ", ".join((*allowed, *(f"{each}(level)" for each in at_levels)))
    raise checker.error(f"{verb}\nMetrics of {kind}: {listed}", chosen.span, did_you_mean(name, (*allowed, *at_levels)))


def _at_levels(families: Iterable[Family]) -> tuple[str, ...]:
    """Return the metrics of families that are called with a level."""
    known = list(families)
    return tuple(
        each.base
        for each in levels.LEVELS
        if any(family.at_level(levels.stored_name(each.base, 0.5)) for family in known)
    )
