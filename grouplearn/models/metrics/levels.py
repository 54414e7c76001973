"""Metrics of two classes at a level that the other of precision and recall must reach, and the threshold that reaches it.

``recall_at_precision(0.9)`` is stored, and shown in columns, as ``recall_at_precision_90``: with the level in percent. A row is
positive if its score is at least that of the threshold; rows of equal scores are so together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.models.metrics.metric import Metric, MetricSums, NoBetterThanConstant

_STORED = re.compile(r"(?P<base>[a-z_]+)_(?P<percent>\d{1,3}(?:_\d{1,6})?)")
_CALLED = re.compile(r"(?P<base>[a-z_]+)\s*\(\s*(?P<level>[0-9.eE+-]+)\s*\)")


@dataclass(frozen=True, slots=True)
class _Curve:
    """Precision and recall (n,) at each distinct score, highest first, and the next lower score, 0 or less below the last."""

    score: FloatArray
    lower: FloatArray
    precision: FloatArray
    recall: FloatArray


@dataclass(frozen=True, slots=True)
class LevelMetric:
    """``best`` at a level that ``least`` must reach, both "precision" or "recall"."""

    best: str
    least: str

    @property
    def base(self) -> str:
        """Its name without the level."""
        return f"{self.best}_at_{self.least}"

    def metric(self, level: float) -> Metric:
        """Return the metric at a level."""
        name, threshold = stored_name(self.base, level), stored_name(f"threshold_at_{self.least}", level)
        reached = f"{self._sql(self.least)} >= {level!r}"
        return Metric(
            name,
            True,
            f"greatest {self.best} of two classes with a {self.least} of at least {level:g}; 0 if that is not reached",
            self._finish(level, self._greatest),
            f"CASE WHEN positive IS NOT NULL THEN second_{name} END",
            always=False,
            by_row=True,
            of_ranked=f"coalesce(max({self._sql(self.best)}) FILTER ({reached}), 0)",
            of_class=f"CASE WHEN actual > 0 THEN ranked_{name} END",
            useless=NoBetterThanConstant(
                f"{{{name}}} = 0",
                f"no threshold reaches this {self.least} on held-out rows, valid_{name} = %.2g: the threshold is 0.5",
            ),
            threshold=threshold,
        )

    def threshold(self, level: float) -> Metric:
        """Return the threshold of the metric at a level: halfway between the scores that it parts; NaN if none reaches it."""
        name = stored_name(f"threshold_at_{self.least}", level)
        meaning = f"probability above which rows are positive, so that {self.least} is at least {level:g}"
        return Metric(
            name,
            True,
            meaning,
            self._finish(level, self._halfway),
            "NULL::DOUBLE",
            always=False,
            by_row=True,
            is_threshold=True,
        )

    def _finish(self, level: float, value: Callable[[_Curve, float], float]) -> Callable[[MetricSums], FloatArray]:
        def finish(sums: MetricSums) -> FloatArray:
            found = np.full(sums.tensors["loss"].shape, np.nan)
            if not sums.by_row or not sums.binary:
                return found
            positive = np.concatenate([run == 1 for _, run in sums.by_row["labels"].runs()])
            weight = sums.by_row["weights"].whole()
            for config in range(len(found)):
                scores = np.concatenate([run for _, run in sums.by_row["scores"].runs(config, 0)])
                if (curve := _curve(scores, positive, weight)) is not None:
                    found[config] = value(curve, level)
            return found

        return finish

    def _greatest(self, curve: _Curve, level: float) -> float:
        reached = getattr(curve, self.least) >= level
        return float(getattr(curve, self.best)[reached].max(initial=0.0))

    def _halfway(self, curve: _Curve, level: float) -> float:
        reached = np.flatnonzero(getattr(curve, self.least) >= level)
        if not reached.size:
            return np.nan
        # Equally good thresholds: take the one with the greater precision (or recall) beyond the level.
        place = reached[np.lexsort((getattr(curve, self.least)[reached], getattr(curve, self.best)[reached]))[-1]]
        low, high = float(curve.lower[place]), float(curve.score[place])
        between = low + (high - low) / 2
        return between if between < high else low

    @staticmethod
    def _sql(name: str) -> str:
        """Return precision or recall at a score, over the columns of ``ranked``."""
        return {"precision": "hits_above / above", "recall": "hits_above / nullif(all_hits, 0)"}[name]


LEVELS = (LevelMetric("recall", "precision"), LevelMetric("precision", "recall"))


def stored_name(base: str, level: float) -> str:
    """Return the name of a metric at a level."""
    return f"{base}_{format(level * 100, '.10g').replace('.', '_')}"


def at_level(name: str) -> Metric | None:
    """Return the metric of a stored name, None if it is none at a level."""
    found = _STORED.fullmatch(name)
    level = float(found["percent"].replace("_", ".")) / 100 if found else 0.0
    if found is None or not 0 < level <= 1:
        return None
    makers = {each.base: each.metric for each in LEVELS} | {
        f"threshold_at_{each.least}": each.threshold for each in LEVELS
    }
    make = makers.get(found["base"])
    return make(level) if make else None


def called(text: str) -> str | None:
    """Return the stored name of a metric that is called with its level; None if there is none. Raises ValueError for no level
    from 0 to 1."""
    found = _CALLED.fullmatch(text)
    if found is None or found["base"] not in {each.base for each in LEVELS}:
        return None
    level = float(found["level"])
    if not 0 < level <= 1:
        raise ValueError(f"{found['base']} takes a level above 0, and at most 1")
    return stored_name(found["base"], level)


def _curve(scores: FloatArray, positive: FloatArray, weight: FloatArray) -> _Curve | None:
    """Return the curve of the rows that weigh something; None without a positive one, or where a score is no number."""
    counts = weight > 0
    scores, positive, weight = scores[counts], positive[counts], weight[counts]
    if not positive.any() or np.isnan(scores).any():
        return None
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
    every = np.add.accumulate(weight[order])[last]
    hits = np.add.accumulate(np.where(positive, weight, 0.0)[order])[last]
    lowest = 0.0 if ranked[-1] > 0 else -1.0  # with all rows positive, those of score 0 are so, too
    return _Curve(ranked[last], np.append(ranked[last][1:], lowest), hits / every, hits / hits[-1])
