"""Models that only their learner understands: the function ``predict`` asks it."""

from __future__ import annotations

from grouplearn.learners import registry
from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.form import Form


class OwnTensors(Form):
    """Tensors of the learner's own."""

    name = "own"

    def without_sql(self, definition: ModelDefinition) -> str:
        """Return the reason: nobody knows what the tensors mean, or only the learner does."""
        return _unknown(definition) or super().without_sql(definition)

    def without_onnx(self, definition: ModelDefinition) -> str | None:
        """Return the reason."""
        return _unknown(definition) or "only its module, which is Python, knows what its tensors mean"


def _unknown(definition: ModelDefinition) -> str | None:
    known = registry.is_known(definition.learner)
    return None if known else f"the learner {definition.learner} is not registered in this process"
