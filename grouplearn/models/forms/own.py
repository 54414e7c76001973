"""Models that only their learner understands: the function ``predict`` asks it."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.bind.definition import ModelDefinition
from grouplearn.models.forms.form import Best, Form, Prediction, SqlForm, StoredRows


class Own(Form):
    """Tensors of the learner's own."""

    name = "own"

    def without_sql(self, definition: ModelDefinition) -> str:
        """Return the reason: SQL knows nothing of it."""
        return f"SQL has no form of {definition.learner}"

    def rows(self, definition: ModelDefinition, best: Sequence[Best]) -> Prediction:
        """There are none."""
        raise NotImplementedError

    def read(self, rows: StoredRows) -> SqlForm:
        """There are none."""
        raise NotImplementedError

    def without_onnx(self, definition: ModelDefinition) -> str | None:
        """Return the reason."""
        del definition
        return "only its module, which is Python, knows what its tensors mean"
