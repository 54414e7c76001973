"""What predicts without features, by metric: what a model has to be better than."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Baseline:
    """Predictions without features, in ``words``, and their metric: a ``value`` that is always the same, or SQL.

    ``of_group`` is over the ``label`` of each row and their ``median``, or over the rows ``n`` of each class and their ``total``;
    ``merged`` makes the metric of all rows from the mean over groups.
    """

    words: str
    of_group: str = ""
    merged: str = "{}"
    value: float | None = None


_SHARES = Baseline("the shares of classes of each group", "sum(-n * ln(n / total)) / sum(n)")
BASELINES: Mapping[str, Baseline] = {
    "rmse": Baseline("the mean of each group", "var_pop(label)", "sqrt({})"),
    "mae": Baseline("the median of each group", "avg(abs(label - median))"),
    "accuracy": Baseline("the most frequent class of each group", "max(n) / sum(n)"),
    "log_loss": _SHARES,
    "cross_entropy": _SHARES,
    "auc": Baseline("any order of rows", value=0.5),
}
