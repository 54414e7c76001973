"""When a model is worse on its own rows than a constant, by its metric, or is a constant itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from grouplearn.catalog.records import ModelDefinition
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import HasLossMetric, NotesConstantModels
from grouplearn.sqltext import literal, shown


def poor_fits(definition: ModelDefinition) -> list[tuple[str, str]]:
    """Return pairs of SQL over ``trials``: a condition on a group's best trial, and the note on it."""
    known = registry.is_known(definition.learner)
    learner = registry.way(definition.learner, definition.configs) if known else None
    found: dict[str, list[int]] = {}
    for number, config in enumerate(definition.configs):
        worse = _worse(definition, learner, config)
        if worse is not None:
            found.setdefault(worse, []).append(number)
    if not found:
        return []
    told = literal(f"the best trial is worse on its own rows than a constant: {advice(definition)}")
    alike = len(found) == 1 and len(definition.configs) == len(next(iter(found.values())))
    chosen = {worse: "" if alike else f" AND config IN {(*numbers, -1)}" for worse, numbers in found.items()}
    return [(f"(is_best AND {worse}{own})", told) for worse, own in chosen.items()]


def constant_models(definition: ModelDefinition) -> tuple[str, str] | None:
    """Return the condition on a group's best trial that it predicts a constant, and SQL for the note; None if none is made."""
    known = registry.is_known(definition.learner)
    learner = registry.way(definition.learner, definition.configs) if known else None
    if not isinstance(learner, NotesConstantModels):
        return None
    rows = "(n_train + n_valid)" if definition.refit else "n_train"
    found: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for number, config in enumerate(definition.configs):
        found.setdefault(tuple(learner.constant_model_notes(config, rows)), []).append(number)
    cases = [
        f"WHEN {'true' if len(found) == 1 else f'config IN {(*numbers, -1)}'} AND {condition} THEN {literal(note)}"
        for notes, numbers in found.items()
        for condition, note in notes
    ]
    # The gain of splits on tiny labels is 0 in LightGBM's single precision.
    constants = {each.name: each.constant for each in definition.family.metrics if each.constant is not None}
    fits = "".join(
        f" AND NOT coalesce(train[{place}] > {constants[name]} + 0.01, false)"
        for place, name in enumerate(definition.metrics, start=1)
        if name in constants
    )
    constant = f"(is_best AND coalesce(len(list_filter(importance, lambda gain: gain <> 0)) = 0, false){fits})"
    return (constant, f"CASE {' '.join(cases)} END") if cases else None


def _worse(definition: ModelDefinition, learner: Learner | None, config: Config) -> str | None:
    """Return the condition that a config's metric is far worse than a constant's; None if unknown."""
    label = definition.label
    judge = learner.loss_metric(config, label) if isinstance(learner, HasLossMetric) else definition.family.default
    known: dict[str, object] = {name: value for name, value in config.items() if isinstance(value, int | float)}
    known |= {name: f"train[{place}]" for place, name in enumerate(definition.metrics, start=1)}
    known["n_classes"] = len(definition.classes)
    for condition in definition.family.named(judge).worse_than_constant if judge else ():
        with suppress(KeyError):
            return condition.format_map(known)
    return None


def advice(definition: ModelDefinition) -> str:
    """Return what may help a model that is worse than a constant."""
    known = registry.is_known(definition.learner)
    learner = registry.way(definition.learner, definition.configs) if known else None
    *others, last = _hyperparameters_to_change(definition, learner)
    return f"{', '.join(others)}{',' if len(others) > 1 else ''} or {last}" if others else last


def _hyperparameters_to_change(definition: ModelDefinition, learner: Learner | None) -> Iterator[str]:
    """Yield at least one suggestion that may help such a learner."""
    if learner is None:
        yield from ("bring features to one scale (zscore)", "raise epochs")
        return
    of = {
        wish: [each for each in learner.declaration.hyperparameters if each.remedy == wish]
        for wish in ("default", "lower", "raise")
    }
    yield from (f"set {each.name} = {shown(each.default)}" for each in of["default"] if _is_changed(each, definition))
    if not learner.declaration.handles_missing:  # trees do not depend on the scale of features
        yield "bring features to one scale (zscore)"
    yield from (f"lower {each.name}" for each in of["lower"])
    if learner.declaration.default_epochs is not None:
        yield "raise epochs"
    yield from (f"raise {each.name}" for each in of["raise"])


def _is_changed(hyperparameter: Hyperparameter, definition: ModelDefinition) -> bool:
    """Return whether a configuration has another value than the default."""
    name, usual = hyperparameter.name, hyperparameter.default
    return any(config.get(name, usual) != usual for config in definition.configs)
