"""The options of operator averaging, and what they mean together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.parser.statements import Option

#: The options that only operator averaging has.
_OWN = ("partitions", "reduce")


def settle(checker: SqlChecker, options: tuple[Option, ...], run: Mapping[str, Any]) -> None:
    """Raise for options of averaging in a statement that another operator runs."""
    given = {option.name.value.casefold(): option for option in options}
    own = next((name for name in _OWN if name in given), None)
    if own is not None and run.get("operator", "auto") != "averaging":
        operator = run.get("operator", "auto")
        other = "the operator that is fastest" if operator == "auto" else f"operator {operator}"
        message = f"{own} is an option of operator averaging, and this statement is run by {other}"
        raise checker.error(message, given[own].name.span, "Add operator = 'averaging'.")
