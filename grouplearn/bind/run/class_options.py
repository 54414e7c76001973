"""class_weight and positive_class: classes named by constants, which stay DuckDB's values.

A Python object would not do: it has no nanoseconds, no infinite date, and another text for bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grouplearn import sqltext
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding import types
from grouplearn.messages import did_you_mean
from grouplearn.parser.statements import Sql

_QUOTED = re.compile(r"'(?:[^']|'')*'")
#: A class of a struct that is no name of a member in DuckDB.
_BARE = re.compile(r"[{,]\s*(?:true|false|[-+]?\d[\d.]*)\s*:", re.IGNORECASE)
#: A query that gives classes in a column ``k``.
Named = tuple[str | Sql, ...]


@dataclass(frozen=True, slots=True)
class ClassWeights:
    """Weights by class: the ``weights`` of ``classes``, in order."""

    classes: Named
    weights: tuple[float, ...]


def bind_positive_class(checker: SqlChecker, fragment: Sql) -> Named:
    """Return the class that the statement gives; raises BindError for NULL."""
    given: Named = ("SELECT (", fragment, ") AS k")
    if checker.rows("SELECT k IS NULL FROM (", *given, ")")[0][0]:
        raise checker.error("positive_class must be a class of the label, got NULL", fragment.span)
    return given


def bind_class_weight(checker: SqlChecker, fragment: Sql) -> Literal["balanced"] | ClassWeights:
    """Return the weights that the statement gives; raises BindError unless they are positive numbers by class."""
    if fragment.text.lstrip().startswith("{") and _BARE.search(_QUOTED.sub("''", fragment.text)):
        raise checker.error("class_weight has a class without quotes", fragment.span, "Write {'true': 2, 'false': 1}.")
    if checker.describe("SELECT (", fragment, ") AS v")[0].type.startswith("MAP("):
        classes: Named = ("SELECT unnest(map_keys((", fragment, "))) AS k")
        weights = [row[0] for row in checker.rows("SELECT unnest(map_values((", fragment, ")))")]
        (shown,) = checker.rows("SELECT coalesce(CAST((", fragment, ") AS VARCHAR), 'NULL')")[0]
    else:
        value = checker.constant(fragment)
        if isinstance(value, str) and value.lower() == "balanced":
            return "balanced"
        names, weights = ([*value], [*value.values()]) if isinstance(value, Mapping) else ([], [])
        classes, shown = (f"SELECT unnest({sqltext.literal(names)}) AS k",), sqltext.shown(value)
    if weights and all(map(_is_weight, weights)):
        return ClassWeights(classes, tuple(map(float, weights)))
    message = "class_weight must be 'balanced' or positive weights by class such as {'true': 2, 'false': 1}"
    raise checker.error(f"{message}, got {shown}", fragment.span, did_you_mean(shown.strip("'"), ["balanced"]))


def _is_weight(value: Any) -> bool:
    return hasattr(value, "__float__") and 0 < float(value) < math.inf


def texts_of(checker: SqlChecker, named: Named, label_type: str) -> Sequence[tuple[str, str | None]]:
    """Return each class as the statement writes it, and the text of the label's equal value; None if the type has none."""
    kind = checker.describe(*named)[0].type
    before, after = types.as_text_of(label_type)
    text = f"{before}k{after}"
    if types.is_time(kind) and types.is_time(label_type):  # a cast would drop nanoseconds, and times of day
        text = f"CASE WHEN TRY_CAST(TRY_CAST(k AS {label_type}) AS {kind}) = k THEN {text} END"
    return checker.rows(f"SELECT CAST(k AS VARCHAR), {text} FROM (", *named, ")")
