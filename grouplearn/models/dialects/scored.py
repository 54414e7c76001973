"""Rows with scores: their links, and the last SELECT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from grouplearn.models.dialects.encoded_rows import LEVEL, LINK, links_of
from grouplearn.models.dialects.exported import ExportedModel
from grouplearn.models.forms.routed import level_names
from grouplearn.models.outputs.link import Link
from grouplearn.sqltext import identifier, literal

#: The step of rows with scores.
SCORED = "scored"
#: Scores from where on databases refuse to compute the exponential function.
_GREATEST_POWER, _LEAST_POWER = "709.78", "-708.0"


def score(number: int) -> str:
    """Return the added column of a score."""
    return f"__grouplearn_s{number}"


def exponential(power: str) -> str:
    """Return e to a power, where it is too large infinity, and where it is too small 0: databases raise errors there."""
    return (
        f"CASE WHEN {power} > {_GREATEST_POWER} THEN CAST('inf' AS DOUBLE)"
        f" WHEN {power} < {_LEAST_POWER} THEN 0 ELSE EXP({power}) END"
    )


def logistic(value: str) -> str:
    """Return 1 / (1 + exp(-value))."""
    bounded = f"CASE WHEN {value} > 700 THEN 700 WHEN {value} < -700 THEN -700 ELSE {value} END"
    return f"1.0 / (1.0 + EXP(-({bounded})))"


#: Inverse links.
LINKS: Mapping[Link, Callable[[str], str]] = {
    "identity": lambda value: value,
    "exp": exponential,
    "logistic": logistic,
    "signed_square": lambda value: f"{value} * ABS({value})",
}


def selected(model: ExportedModel, columns: Sequence[str], relation: str) -> str:
    """Return the SELECT of the source's columns, the output's and ``model_level``."""
    cases = " ".join(f"WHEN {level} THEN {literal(name)}" for level, name in enumerate(level_names(model.definition)))
    level = f"CASE {identifier(LEVEL)} {cases} END AS model_level"
    return f"SELECT {', '.join([model.query.shown(), *columns, level])} FROM {relation}"


def linked(model: ExportedModel, value: str) -> str:
    """Return the prediction for a score; groups whose links differ have each its own."""
    found = sorted(links_of(model))
    if len(found) == 1:
        return LINKS[found[0]](value)
    cases = " ".join(f"WHEN {literal(link)} THEN {LINKS[link](value)}" for link in found)
    return f"CASE {identifier(LINK)} {cases} END"
