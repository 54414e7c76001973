"""The options of operator averaging, and what they mean together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grouplearn import sqltext
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.failures import WrongValue
from grouplearn.messages import did_you_mean
from grouplearn.parser.statements import Option

#: The options that only operator averaging has.
_OWN = ("partitions", "reduce", "send", "sync")


def sent(value: Any) -> str:
    """Return what partitions hand over, checked."""
    if isinstance(value, str) and value.lower() == "gradient":
        raise ValueError(
            "must be 'model': no learner hands over gradients between passes over its own rows, got 'gradient'"
        )
    return _only(value, "model")


def synchronised(value: Any) -> str:
    """Return when models are averaged, checked."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if is_count or (isinstance(value, str) and value.lower() == "batch"):
        raise ValueError(
            f"must be 'epoch': no learner can stop within a block to be averaged, got {sqltext.shown(value)}"
        )
    return _only(value, "epoch")


def _only(value: Any, allowed: str) -> str:
    if not isinstance(value, str) or value.lower() != allowed:
        hint = did_you_mean(value, [allowed]) if isinstance(value, str) else None
        raise WrongValue(f"must be '{allowed}', got {sqltext.shown(value)}", hint)
    return allowed


def settle(checker: SqlChecker, options: tuple[Option, ...], run: Mapping[str, Any]) -> None:
    """Raise for options of averaging in a statement that another operator runs."""
    given = {option.name.value.casefold(): option for option in options}
    own = next((name for name in _OWN if name in given), None)
    if own is not None and run.get("operator", "auto") != "averaging":
        operator = run.get("operator", "auto")
        other = "the operator that is fastest" if operator == "auto" else f"operator {operator}"
        message = f"{own} is an option of operator averaging, and this statement is run by {other}"
        raise checker.error(message, given[own].name.span, "Add operator = 'averaging'.")
