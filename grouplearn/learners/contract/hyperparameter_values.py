"""Values of hyperparameters: converted to their types, checked against their ranges."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np

from grouplearn import sqltext
from grouplearn.failures import WrongValue
from grouplearn.learners.contract.config import Config, Hyperparameter, Value
from grouplearn.messages import did_you_mean

#: The largest integer hyperparameter that a database can hold.
_MOST = 2**63 - 1


def are_declared(parameters: Sequence[Hyperparameter], values: Config) -> bool:
    """Return whether each value belongs to a declared hyperparameter and has its type and range."""
    by_name = {each.name: each for each in parameters}
    try:
        return all(
            repr(resolve(by_name[name], each)) == repr(each) and not (isinstance(each, int) and abs(each) > _MOST)
            for name, each in values.items()
        )
    except (KeyError, ValueError):
        return False


def resolve(hyperparameter: Hyperparameter, value: Any) -> Value:
    """Return ``value`` as the hyperparameter's type: numbers convert if exact, lists become tuples.

    Raises ValueError, such as "l1 must be >= 0, got -1", when the type, range or choices do not allow it.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None and hyperparameter.nullable:
        return None
    refused = dict(hyperparameter.refused).get(str(value).casefold())
    if refused:
        raise ValueError(f"{hyperparameter.name} cannot be {sqltext.shown(value)}: {refused}")
    try:
        return _CONVERTERS[hyperparameter.kind](hyperparameter, value)
    except (TypeError, ValueError, OverflowError):
        expected = _expected(hyperparameter, value)
        hint = did_you_mean(value, hyperparameter.choices) if isinstance(value, str) else None
        message = f"{hyperparameter.name} must be {expected}, got {sqltext.shown(value)}"
        raise WrongValue(message, hint) from None


def _as_float(hyperparameter: Hyperparameter, value: Any) -> float:
    if not _is_number(value):
        raise TypeError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return _within(hyperparameter, number)


def _as_int(hyperparameter: Hyperparameter, value: Any) -> int:
    if not _is_number(value) or int(value) != value:
        raise TypeError
    if not -_MOST <= value <= _MOST:
        raise OverflowError
    return int(_within(hyperparameter, int(value)))


def _as_bool(_: Hyperparameter, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _as_str(hyperparameter: Hyperparameter, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    if not hyperparameter.choices:
        return value
    by_folded = {choice.casefold(): choice for choice in hyperparameter.choices}
    if value.casefold() not in by_folded:
        raise ValueError
    return by_folded[value.casefold()]


def _as_ints_by_feature(hyperparameter: Hyperparameter, value: Any) -> str:
    return _by_feature(hyperparameter, value, _as_int)


def _as_floats_by_feature(hyperparameter: Hyperparameter, value: Any) -> str:
    return _by_feature(hyperparameter, value, _as_float)


def _by_feature(hyperparameter: Hyperparameter, value: Any, number: Callable[[Hyperparameter, Any], float]) -> str:
    """Return numbers by name as JSON, names in alphabetical order; also accepts JSON."""
    entries = json.loads(value) if isinstance(value, str) else value
    if not isinstance(entries, Mapping) or not all(isinstance(name, str) for name in entries):
        raise TypeError
    numbered = {name: number(hyperparameter, entry) for name, entry in sorted(entries.items())}
    return json.dumps(numbered, ensure_ascii=False)


def _as_feature_sets(_: Hyperparameter, value: Any) -> str:
    """Return lists of names as JSON; also accepts JSON."""
    sets = json.loads(value) if isinstance(value, str) else value
    if isinstance(sets, np.ndarray):
        sets = sets.tolist()
    if not isinstance(sets, list | tuple) or not all(isinstance(each, list | tuple) and each for each in sets):
        raise TypeError
    if not all(isinstance(name, str) for each in sets for name in each):
        raise TypeError
    return json.dumps([list(each) for each in sets], ensure_ascii=False)


def _as_ints(hyperparameter: Hyperparameter, value: Any) -> tuple[int, ...]:
    """Return the integers; one integer is a list of one."""
    elements = [value] if _is_number(value) else value
    if isinstance(elements, str) or not isinstance(elements, Sequence | np.ndarray):
        raise TypeError
    return tuple(_as_int(hyperparameter, element) for element in elements)


_CONVERTERS: Mapping[str, Callable[[Hyperparameter, Any], Value]] = MappingProxyType(
    {
        "float": _as_float,
        "int": _as_int,
        "bool": _as_bool,
        "str": _as_str,
        "ints": _as_ints,
        "ints_by_feature": _as_ints_by_feature,
        "floats_by_feature": _as_floats_by_feature,
        "feature_sets": _as_feature_sets,
    }
)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real | Decimal) and not isinstance(value, bool)


def _within(hyperparameter: Hyperparameter, number: float) -> float:
    low, high = hyperparameter.low, hyperparameter.high
    if low is not None and (number < low or (hyperparameter.open_low and number == low)):
        raise ValueError
    if high is not None and number > high:
        raise ValueError
    return number


def _expected(hyperparameter: Hyperparameter, value: Any) -> str:
    """Return what is allowed; the type of a number is named only if the value has another."""
    limits = _limits(hyperparameter)
    if hyperparameter.kind == "float":
        known = limits and _is_number(value) and math.isfinite(value)
        return limits if known else f"a number {limits}".rstrip()
    if hyperparameter.kind == "bool":
        return "true or false"
    if hyperparameter.kind == "str":
        return f"one of {', '.join(hyperparameter.choices)}" if hyperparameter.choices else "a string"
    if hyperparameter.kind == "feature_sets":
        return "a list of lists of features, such as [['a', 'b'], ['c']]"
    if _is_number(value) and math.isfinite(value) and abs(value) > _MOST:
        limits = f"{limits} of at most 64 bits".lstrip()
    return f"{_WHOLE.get(hyperparameter.kind, 'numbers')} {limits}".rstrip() + (
        " by feature, such as {'a': 1}" if hyperparameter.kind.endswith("_by_feature") else ""
    )


_WHOLE: Mapping[str, str] = MappingProxyType(
    {"int": "an integer", "ints": "a list of integers", "ints_by_feature": "integers"}
)


def _limits(hyperparameter: Hyperparameter) -> str:
    low, high = hyperparameter.low, hyperparameter.high
    above = ">" if hyperparameter.open_low else ">="
    if low is None:
        return "" if high is None else f"<= {high:g}"
    if high is None:
        return f"{above} {low:g}"
    return f"> {low:g} and <= {high:g}" if hyperparameter.open_low else f"between {low:.15g} and {high:.15g}"
