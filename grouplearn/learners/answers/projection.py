"""A projection: a row's coordinates along its group's components, and its distance from the space that they span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from grouplearn.learners.answers.answer import Answer, BoolArray, Scored, list_array
from grouplearn.learners.contract.state import FloatArray

#: In SQL: a row's coordinates, and its distance from its projection.
COORDINATES, RESIDUAL = "__grouplearn_coordinates", "__grouplearn_residual"


class Projection(Answer):
    """A score is the residual followed by the coordinates; groups may have different numbers of components."""

    width = 1
    shown = ("projection", "residual")
    views = ("_components", "_variance")

    def select(self, scored: Scored) -> str:
        """Return the coordinates as a list, and the residual."""
        known = f"isfinite({RESIDUAL})"
        return (
            f"SELECT {scored.head}, CASE WHEN {known} THEN {COORDINATES} END AS projection,"
            f" CASE WHEN {known} THEN {RESIDUAL} END AS residual, {scored.level} AS model_level FROM {scored.relation}"
        )

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        """Return the fields ``predicted`` and ``value``."""
        del threshold, judged
        return f"{predicted}.predicted AS projection", f"{predicted}.value AS residual"

    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        """Return the scores."""
        del classes
        return score

    def missing(self, outputs: FloatArray) -> BoolArray:
        """Return which rows have no residual."""
        return ~np.isfinite(outputs[:, 0])

    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        """Return the coordinates as ``predicted``, the residual as ``value``."""
        lengths = (~np.isnan(outputs[:, 1:])).sum(axis=1)
        return {
            "value": pa.array(np.ascontiguousarray(outputs[:, 0]), mask=missing),
            "predicted": list_array(outputs[:, 1:], lengths, missing),
        }

    def value(self) -> int | None:
        """Return the place of the residual."""
        return 0
