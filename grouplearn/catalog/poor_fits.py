"""When a model is worse on its own rows than a constant: its training went astray.

Of a constant only what the catalog has is known: with s the standard deviation of the label, rmse / √(1 - r2), the mean has an
absolute error of at most s, and the quantile α a pinball loss of at most s·√(α(1 - α)); 0 has a mean relative error of at most 1,
1/2 a cross entropy of ln 2, and equal probabilities of K classes a log loss of ln K. Of deviances nothing is known, and said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from grouplearn.catalog.records import ModelDefinition
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.metrics.sums import default_metric
from grouplearn.sqltext import literal

#: How much worse: what is said for certain is not said of what a few more rows could turn.
_FAR = 2


def poor_fits(definition: ModelDefinition) -> list[tuple[str, str]]:
    """Return when, as SQL over ``trials``, and what, as SQL, is said of a group's best trial."""
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
    return [(f"(is_best AND {worse}{own})", told) for worse, own in chosen.items()]


def _worse(definition: ModelDefinition, learner: Learner | None, config: Config) -> str | None:
    """Return when the metric of a config's loss is far worse than that of a constant; None where it is not known."""
    judge = default_metric(definition.task) if learner is None else learner.judged_by(config, definition.task)
    at = {name: f"train[{place}]" for place, name in enumerate(definition.metrics, start=1)}
    if judge == "log_loss" and judge in at:
        return f"{at[judge]} > {_FAR} * ln({len(definition.classes)})"
    if judge == "cross_entropy" and judge in at:
        return f"{at[judge]} > {_FAR} * ln(2)"
    if judge == "mape" and judge in at:
        return f"{at[judge]} > {_FAR}"
    if not judge or "r2" not in at:
        return None
    if judge == "rmse":
        return f"{at['r2']} < {1 - _FAR}"
    deviation = f"{_FAR} * {at['rmse']} / sqrt(1 - {at['r2']})"
    below = f"{at['r2']} < 1 AND"  # else nothing is left to explain
    if judge == "mae":
        return f"{below} {at['mae']} > {deviation}"
    if judge == "pinball":
        alpha = float(config["alpha"])  # type: ignore[arg-type]
        # max(α·e, (α - 1)·e) is at least the smaller factor times |e|, where the loss itself is not kept.
        loss = at.get(judge) or f"{min(alpha, 1 - alpha)} * {at['mae']}"
        return f"{below} {loss} > {deviation} * {math.sqrt(max(0.0, alpha * (1 - alpha)))}"
    return None


def _advice(definition: ModelDefinition, learner: Learner | None) -> str:
    *others, last = _hyperparameters_to_change(definition, learner)
    return f"{', '.join(others)}{',' if len(others) > 1 else ''} or {last}" if others else last


def _hyperparameters_to_change(definition: ModelDefinition, learner: Learner | None) -> Iterator[str]:
    """Yield what may help such a learner, one thing at least."""
    names = set() if learner is None else {parameter.name for parameter in learner.hyperparameters}
    if any(not config.get("fit_intercept", True) for config in definition.configs):
        yield "set fit_intercept = true"
    if learner is None or not learner.handles_missing:  # trees take features at any scale
        yield "bring features to one scale (zscore)"
    if learner is None or "learning_rate" in names:
        yield "lower learning_rate"
    if learner is None or learner.default_epochs is not None:
        yield "raise epochs"
    if "num_iterations" in names:  # the epochs of trees
        yield "raise num_iterations"
