"""When a model is worse on its own rows than a constant, by its metric, or is a constant itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from grouplearn.catalog.records import ModelDefinition
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.metrics.sums import METRICS, default_metric
from grouplearn.sqltext import literal


def poor_fits(definition: ModelDefinition) -> list[tuple[str, str]]:
    """Return pairs of SQL over ``trials``: a condition on a group's best trial, and the note on it."""
    known = registry.is_known(definition.learner)
    learner = registry.way(definition.learner, definition.configs) if known else None
    found: dict[str, list[int]] = {}
    for number, config in enumerate(definition.configs):
        worse = _worse(definition, learner, config)
        if worse is not None:
            found.setdefault(worse, []).append(number)
    told = literal(f"the best trial is worse on its own rows than a constant: {_advice(definition, learner)}")
    alike = len(found) == 1 and len(definition.configs) == len(next(iter(found.values())))
    chosen = {worse: "" if alike else f" AND config IN {(*numbers, -1)}" for worse, numbers in found.items()}
    said = [(f"(is_best AND {worse}{own})", told) for worse, own in chosen.items()]
    if learner is not None and learner.told_of_constants:
        constant = "(is_best AND coalesce(len(list_filter(importance, lambda gain: gain <> 0)) = 0, false))"
        said.append((constant, literal(learner.told_of_constants)))
    return said


def _worse(definition: ModelDefinition, learner: Learner | None, config: Config) -> str | None:
    """Return the condition that a config's metric is far worse than a constant's; None if unknown."""
    judge = default_metric(definition.task) if learner is None else learner.judged_by(config, definition.task)
    known: dict[str, object] = {name: value for name, value in config.items() if isinstance(value, int | float)}
    known |= {name: f"train[{place}]" for place, name in enumerate(definition.metrics, start=1)}
    known["n_classes"] = len(definition.classes)
    for condition in METRICS[judge].astray if judge else ():
        with suppress(KeyError):
            return condition.format_map(known)
    return None


def _advice(definition: ModelDefinition, learner: Learner | None) -> str:
    *others, last = _hyperparameters_to_change(definition, learner)
    return f"{', '.join(others)}{',' if len(others) > 1 else ''} or {last}" if others else last


def _hyperparameters_to_change(definition: ModelDefinition, learner: Learner | None) -> Iterator[str]:
    """Yield at least one suggestion that may help such a learner."""
    names = set() if learner is None else {parameter.name for parameter in learner.hyperparameters}
    if any(not config.get("fit_intercept", True) for config in definition.configs):
        yield "set fit_intercept = true"
    if learner is None or not learner.handles_missing:  # trees do not depend on the scale of features
        yield "bring features to one scale (zscore)"
    if learner is None or "learning_rate" in names:
        yield "lower learning_rate"
    if learner is None or learner.default_epochs is not None:
        yield "raise epochs"
    if "num_iterations" in names:  # the trees' epochs
        yield "raise num_iterations"
