"""Hyperparameters that a user declares for a network, besides those of every network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from grouplearn.learners.contract.config import Hyperparameter
from grouplearn.learners.contract.hyperparameter_values import resolve
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.contract.requirement import Requirement
from grouplearn.learners.neural.cost import NETWORK
from grouplearn.learners.neural.mlp import Mlp
from grouplearn.models.label import Label

#: Hyperparameters of every network, as for ``mlp``.
COMMON = tuple(
    parameter
    for parameter in Mlp.declaration.hyperparameters
    if parameter.name in ("optimizer", "learning_rate", "momentum", "l1", "l2", "batch_size", "precision")
)

_KINDS: Mapping[type, Any] = {bool: "bool", int: "int", float: "float", str: "str", tuple: "ints", list: "ints"}
#: The keys of a declaration, and their types.
_ASPECTS: Mapping[str, tuple[type, ...]] = {
    "default": (bool, int, float, str, tuple, list),
    "low": (int, float),
    "high": (int, float),
    "open_low": (bool,),
    "choices": (tuple, list),
    "doc": (str,),
}


def declaration(name: str, summary: str, labels: frozenset[Label], given: Mapping[str, Any]) -> Declaration:
    """Return what a network declares; raises ValueError for hyperparameters that are ``given`` wrongly."""
    return Declaration(
        name=name.casefold(),
        summary=summary,
        labels=labels,
        hyperparameters=declared(name, given),
        default_epochs=10,
        needs_scaling=True,
        predicts_arrays=True,
        requires=Requirement("torch", "grouplearn[networks]"),
        cost=NETWORK,
    )


def declared(network: str, given: Mapping[str, Any]) -> tuple[Hyperparameter, ...]:
    """Return the hyperparameters of a network: the user's first, then the common ones with the user's defaults.

    A value of ``given`` is a default, such as 8 or 0.1 or "relu" or (32, 16), or a mapping with ``default`` and any of
    ``low``, ``high``, ``open_low``, ``choices``, ``doc``. Raises ValueError that names what is wrong.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"hyperparameters map names to defaults, such as {{'width': 8}}, got {given!r}")
    common = {parameter.name: parameter for parameter in COMMON}
    made = {}
    for name, value in given.items():
        aspects = _aspects(name, value)
        base = common.get(name) or _new(network, name, aspects["default"])
        made[name] = _checked(replace(base, **aspects))
    own = [parameter for name, parameter in made.items() if name not in common]
    return (*own, *(made.get(name, parameter) for name, parameter in common.items()))


def _aspects(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(name, str) or not name.isidentifier() or name != name.casefold():
        raise ValueError(f"a hyperparameter's name is a lower-case identifier, got {name!r}")
    aspects = dict(value) if isinstance(value, Mapping) else {"default": value}
    unknown = [key for key in aspects if key not in _ASPECTS]
    if unknown:
        raise ValueError(f'hyperparameter {name} declares "{unknown[0]}"; it may declare {", ".join(_ASPECTS)}')
    if "default" not in aspects:
        raise ValueError(f"hyperparameter {name} declares no default")
    for key, aspect in aspects.items():
        if not isinstance(aspect, _ASPECTS[key]) or (isinstance(aspect, bool) and bool not in _ASPECTS[key]):
            raise ValueError(f"{key} of hyperparameter {name} is {aspect!r}, which is not allowed")
        if isinstance(aspect, list):
            aspects[key] = tuple(aspect)
    return aspects


def _new(network: str, name: str, default: Any) -> Hyperparameter:
    return Hyperparameter(name, _KINDS[type(default)], default, f"{name} of the network", f"register('{network}', ...)")


def _checked(parameter: Hyperparameter) -> Hyperparameter:
    """Return the declaration with its default converted to the declared type."""
    try:
        return replace(parameter, default=resolve(parameter, parameter.default))
    except ValueError as error:
        raise ValueError(f"the default is not allowed: {error}") from None
