"""Earlier values in FEATURES: ``lags(1, 12)`` is a hyperparameter of learners of series, ``WITH (lags = [1, 12])``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from grouplearn import sqltext
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.errors import BindError
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.series.lagged.features import CALLS
from grouplearn.messages import Span, did_you_mean
from grouplearn.parser.statements import Feature, Name, Option, Sql, TrainModel

_NAMES = "|".join(CALLS)
_CALL = re.compile(rf"\s*({_NAMES})\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
_INSIDE = re.compile(rf"(?<![\w.\"])({_NAMES})\s*\(", re.IGNORECASE)
_UNKNOWN = re.compile(
    rf"\s*(?!(?:{_NAMES})\b)(lag|rolling_\w+|diff\w*)\s*\((?!.*\bover\b).*\)\s*", re.IGNORECASE | re.DOTALL
)


def over_lags(checker: SqlChecker, statement: TrainModel, learner: Learner) -> TrainModel:
    """Return the statement with its calls of earlier values as options of WITH.

    Before: FEATURES (lags(1, 12), rolling_mean(3), price). After: FEATURES (price) WITH (lags = [1, 12], rolling_mean = [3]).
    """
    if learner.declaration.takes_series and not learner.declaration.takes_panel:
        return statement
    if statement.order_by is not None:
        _refuse_others(checker, statement.features or ())
    calls = [(feature, lag_call(feature)) for feature in statement.features or ()]
    found = [(feature, call) for feature, call in calls if call is not None]
    if not found:
        return statement
    first, name = found[0][0].span, found[0][1].name.value
    _refuse_learner(checker, learner, name, first)
    if statement.order_by is None:
        message = f"{name} is of values before a step, and the rows have no order"
        raise checker.error(message, first, "Add ORDER BY <time>: the column that orders rows.")
    for feature, call in found:
        _check_steps(checker, feature, call)
    others = tuple(feature for feature, call in calls if call is None)
    merged: dict[str, Option] = {}
    for _, call in found:
        before = merged.get(call.name.value)
        text = call.value.text if before is None else f"{before.value.text[:-1]}, {call.value.text[1:]}"
        merged[call.name.value] = replace(call, value=replace(call.value, text=text))
    return replace(statement, features=others or None, options=(*statement.options, *merged.values()))


def lag_call(feature: Feature) -> Option | None:
    """Return the option that a call of earlier values means."""
    found = _CALL.fullmatch(feature.arguments[0].text) if feature.encoder is None else None
    if found is None:
        return None
    return Option(Name(found[1].lower(), feature.span), Sql(f"[{found[2]}]", feature.span))


def _refuse_learner(checker: SqlChecker, learner: Learner, name: str, span: Span) -> None:
    """Raise for a learner that takes no earlier values."""
    own = learner.declaration.name
    if registry.of_series(own) is None:
        takes = ", ".join(each for each in registry.names() if registry.of_series(each) is not None)
        raise checker.error(f"{own} takes no {name} of the label\nLearners that do, of numbers: {takes}", span)


def _check_steps(checker: SqlChecker, feature: Feature, call: Option) -> None:
    """Raise for a call whose arguments are not steps."""
    parameter = CALLS[call.name.value]
    try:
        steps = checker.constant(call.value)
    except BindError:
        steps = None
    allowed = range(int(parameter.low or 1), int(parameter.high or 1) + 1)
    if steps and all(type(each) is int and each in allowed for each in steps):
        return
    got = call.value.text[1:-1].strip() or "none"
    message = f"{parameter.name} takes numbers of steps, from {allowed[0]:,} to {allowed[-1]:,}, got {got}"
    meaning = parameter.doc.split(";")[0]
    raise checker.error(message, feature.span, f"For example {parameter.name}(2, 12): {meaning}.")


def _refuse_others(checker: SqlChecker, features: Sequence[Feature]) -> None:
    """Raise for a call of earlier values inside an expression, and for a name that is close to one."""
    for feature in features:
        for argument in feature.arguments:
            inside = _INSIDE.search(argument.text)
            if inside and (feature.encoder is not None or _CALL.fullmatch(argument.text) is None):
                name = inside[1].lower()
                message = f"{name} is an item of FEATURES of its own, not a part of an expression"
                hint = f"Write FEATURES ({name}(1, 12), ...). WITH (scale = 'standard') is a zscore of each series."
                raise checker.error(message, argument.span, hint)
            unknown = _UNKNOWN.fullmatch(argument.text)
            if unknown and (unknown[1].lower() == "lag" or not _is_function(checker, unknown[1])):
                message = f"unknown {unknown[1]}\nOf earlier values: {', '.join(CALLS)}"
                raise checker.error(message, argument.span, did_you_mean(unknown[1], list(CALLS)))


def _is_function(checker: SqlChecker, name: str) -> bool:
    named = f"function_name = {sqltext.literal(name.lower())}"
    return bool(checker.rows(f"SELECT 1 FROM duckdb_functions() WHERE {named} LIMIT 1"))
