"""Earlier values in FEATURES: ``lags(1, 12)`` is a hyperparameter of learners of series, ``WITH (lags = [1, 12])``."""

from __future__ import annotations

import re
from dataclasses import replace

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.series.lags import CALLS
from grouplearn.parser.statements import Feature, Name, Option, Sql, TrainModel

_CALL = re.compile(rf"\s*({'|'.join(CALLS)})\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)


def over_lags(checker: SqlChecker, statement: TrainModel, learner: Learner) -> TrainModel:
    """Return the statement with its calls of earlier values as options of WITH.

    Before: FEATURES (lags(1, 12), rolling_mean(3), price). After: FEATURES (price) WITH (lags = [1, 12], rolling_mean = [3]).
    """
    calls = [(feature, _call(feature)) for feature in statement.features or ()]
    found = [(feature, call) for feature, call in calls if call is not None]
    if not found or (learner.declaration.takes_series and not learner.declaration.takes_panel):
        return statement
    first, name = found[0][0].span, found[0][1].name.value
    if statement.order_by is None:
        message = f"{name} is of values before a step, and the rows have no order"
        raise checker.error(message, first, "Add ORDER BY <time>: the column that orders rows.")
    others = tuple(feature for feature, call in calls if call is None)
    merged: dict[str, Option] = {}
    for _, call in found:
        before = merged.get(call.name.value)
        text = call.value.text if before is None else f"{before.value.text[:-1]}, {call.value.text[1:]}"
        merged[call.name.value] = replace(call, value=replace(call.value, text=text))
    return replace(statement, features=others or None, options=(*statement.options, *merged.values()))


def _call(feature: Feature) -> Option | None:
    """Return the option that a call of earlier values means."""
    found = _CALL.fullmatch(feature.arguments[0].text) if feature.encoder is None else None
    if found is None:
        return None
    return Option(Name(found[1].lower(), feature.span), Sql(f"[{found[2]}]", feature.span))
