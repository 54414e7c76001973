"""A cluster: ``cluster`` is the number of the nearest centroid, ``distance`` the distance to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from grouplearn.learners.answers.answer import Answer, BoolArray, Scored, list_array
from grouplearn.learners.contract.state import FloatArray

#: In SQL: a group's distances to its centroids in order, NaN for those without rows.
DISTANCES = "__grouplearn_distances"
_NEAREST = "__grouplearn_nearest"


class Clusters(Answer):
    """A score is the number of the nearest centroid, from 1, its Euclidean distance, and that of the second nearest.

    Of equal distances the first counts. Without a second centroid its distance is infinite. A row at no finite distance
    from any centroid has no cluster.
    """

    width = 3
    shown = ("cluster", "distance")
    views = ("_centroids",)

    def select(self, scored: Scored) -> str:
        """Return cluster and distance; with ``judged`` also the distance to the second nearest centroid, NULL without one."""
        finite = f"list_filter({DISTANCES}, lambda d: isfinite(d))"
        known = f"isfinite({_NEAREST})"
        columns = [
            scored.head,
            f"CASE WHEN {known} THEN list_position({DISTANCES}, {_NEAREST}) END AS cluster",
            f"CASE WHEN {known} THEN {_NEAREST} END AS distance",
            *([f"list_sort({finite})[2] AS second"] if scored.judged else []),
            f"{scored.level} AS model_level",
        ]
        return (
            f"SELECT {', '.join(columns)} FROM (SELECT *, list_min({DISTANCES}) AS {_NEAREST} FROM {scored.relation})"
        )

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        """Return the field ``prediction`` as a number, and ``value``."""
        del threshold
        second = (f"nullif({predicted}.predicted[2], 'inf'::DOUBLE) AS second",) if judged else ()
        return f"CAST({predicted}.prediction AS INTEGER) AS cluster", f"{predicted}.value AS distance", *second

    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        """Return the scores."""
        del classes
        return score

    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        """Return the number of the cluster, its distance as ``value``, and both distances as ``predicted``."""
        number = np.where(missing, 0, outputs[:, 0]).astype(np.int32)
        return {
            "prediction": pa.array(number, mask=missing).cast(pa.string()),
            "value": pa.array(np.ascontiguousarray(outputs[:, 1]), mask=missing),
            "predicted": list_array(outputs[:, 1:], np.full(len(outputs), 2), missing),
        }

    def value(self) -> int | None:
        """Return the place of the distance."""
        return 1
