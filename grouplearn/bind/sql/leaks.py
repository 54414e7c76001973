"""Features from which the label follows."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn import sqltext
from grouplearn.bind.sql.checker import Column, SqlChecker
from grouplearn.bind.sql.expressions import Replay, columns_used
from grouplearn.parser.statements import Sql


class LabelLeaks:
    """Refuses features that are the label or are computed from it.

    A feature may read what the label is computed from: ``PREDICT x * 2 FEATURES (x)`` learns a formula, and of a list or a text
    another part may be the label.
    """

    def __init__(self, checker: SqlChecker, replay: Replay, columns: Sequence[Column], label: Sql | None) -> None:
        self._checker, self._replay, self._label = checker, replay, label
        self._meaning = replay.meaning(label) if label else None
        known = frozenset(sqltext.folded(column.name) for column in columns)
        self._columns = columns_used(checker, label, known) if label else frozenset[str]()

    def refuse(self, argument: Sql) -> None:
        """Raise BindError for a feature that has the label in it."""
        if self._label is None:
            return
        if self._replay.meaning(argument) == self._meaning:
            hint = "A model would learn to copy it. Leave it out; FEATURES (*) does so by itself."
            raise self._checker.error("this is the label", argument.span, hint)
        text = sqltext.folded(argument.text)
        mentioned = self._columns and all(name.replace('"', '""') in text for name in self._columns)
        if mentioned and self._replay.computes(argument, self._label):
            hint = "A model would learn to compute it back, and rows to predict have no label. Leave it out."
            raise self._checker.error("this is computed from the label", argument.span, hint)
