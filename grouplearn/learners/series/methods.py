"""Which method forecasts a series, and why it is a simple one: in the tensors of a model, and in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from grouplearn.layout.ragged import Ragged
from grouplearn.models.state import Tensors
from grouplearn.sqltext import literal

Notes = npt.NDArray[np.int8]
#: The vector of a model that has the codes of the letters of its method, and the note as its value.
PART, NOTE = "method", "note"
#: Why a series has a simple model, or one without its season.
FITTED, CONSTANT, TOO_FEW, NO_CANDIDATE, NO_DEMAND, FEW_DEMANDS, NO_SEASON, NO_SPLIT, LONG_SEASON = range(9)
_TEXTS: Mapping[int, str] = MappingProxyType(
    {
        CONSTANT: "all values of the series are the same, and so are its forecasts",
        TOO_FEW: "the series has fewer than 4 values: forecasts are their mean, without an interval",
        NO_CANDIDATE: "no model that may be taken fits the series: forecasts are its mean, without an interval",
        NO_DEMAND: "the series is 0 throughout, and so are its forecasts",
        FEW_DEMANDS: "the series has too few demands to choose weights, which are 0.1",
        NO_SPLIT: (
            "no tree splits the rows, so what is forecast is a constant: too few rows train for min_data_in_leaf, or no lag"
            " tells anything: lower it, or learn more series by SERIES BY"
        ),
        LONG_SEASON: "seasons of more than 24 steps (of arima: 100) are left out: theta and seasonal_naive take them, or WITH "
        "(season_length = ...) gives shorter ones",
        NO_SEASON: "the series is no longer than a season: forecasts are its last value",
    }
)


def tensors(methods: Sequence[str], notes: Notes) -> Mapping[str, Ragged]:
    """Return the tensors of models of one series each."""
    letters = np.frombuffer("".join(methods).encode("ascii"), np.uint8).astype(np.float64)
    sizes = np.array([len(each) for each in methods], np.int64)
    return {PART: Ragged.of_sizes(letters, sizes), NOTE: Ragged.of_equal(notes.astype(np.float64), len(methods))}


def validation_error(found: Tensors) -> str | None:
    """Return how tensors are no method with a note."""
    letters, note = found.get(PART), found.get(NOTE)
    if letters is None and note is None:
        return None
    if letters is None or note is None or note.size != 1 or note[0] not in range(len(_TEXTS) + 1):
        return "its method has no note"
    return None if np.isin(letters, np.arange(32, 127)).all() else "its method is no text"


def method_sql(vector: str) -> str:
    """Return the SQL of the text of a method, NULL for an empty one."""
    letters = f"list_transform({vector}, lambda letter: chr(CAST(letter AS INTEGER)))"
    return f"nullif(array_to_string({letters}, ''), '')"


def note_sql(value: str) -> str:
    """Return the SQL of the text of a note, NULL if there is nothing to note."""
    cases = " ".join(f"WHEN {code} THEN {literal(text)}" for code, text in _TEXTS.items())
    return f"CASE {value} {cases} END"
