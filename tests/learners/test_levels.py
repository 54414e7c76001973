"""Recall at a precision and precision at a recall, against scikit-learn's curve; the threshold reaches what the metric says."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.metrics import precision_recall_curve, precision_score, recall_score

from grouplearn.models.label import TWO_CLASSES
from grouplearn.models.metrics import levels
from grouplearn.models.metrics.metrics import family_of, measure, merge

FAMILY = family_of(TWO_CLASSES)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 60),
    st.integers(1, 12),
    st.sampled_from([0.01, 0.5, 0.75, 0.9, 1.0]),
    st.booleans(),
)
def test_they_are_those_of_scikit_learn(seed: int, n: int, values: int, level: float, weighed: bool) -> None:
    random = np.random.default_rng(seed)
    p = random.integers(0, values + 1, n) / values
    y = (random.random(n) < 0.5) * 1.0
    weight = random.integers(0 if weighed else 1, 4 if weighed else 2, n) * 1.0
    parts = [slice(0, n // 3), slice(n // 3, n)]
    sums = [measure(FAMILY, 2, p[part, None, None], y[part], weight[part]) for part in parts]
    for best, least in (("recall", "precision"), ("precision", "recall")):
        name, threshold = (levels.stored_name(base, level) for base in (f"{best}_at_{least}", f"threshold_at_{least}"))
        found = {each: values[0] for each, values in FAMILY.finish(merge(*sums), name, threshold).items()}
        if not weight[y == 1].sum():
            assert np.isnan(found[name])
            continue
        precision, recall, _ = precision_recall_curve(y, p, sample_weight=weight)
        both = {"precision": precision[:-1], "recall": recall[:-1]}  # the last is of no row
        reached = both[least] >= level
        assert found[name] == pytest.approx(both[best][reached].max(initial=0.0), rel=1e-14)
        if not reached.any():
            assert np.isnan(found[threshold])
            continue
        predicted = p > found[threshold]
        score = {"precision": precision_score, "recall": recall_score}
        assert score[best](y, predicted, sample_weight=weight, zero_division=0) == pytest.approx(found[name], rel=1e-14)
        assert score[least](y, predicted, sample_weight=weight, zero_division=0) >= level - 1e-14
        assert not np.isin(found[threshold], p[weight > 0])


def test_names_have_the_level_in_percent() -> None:
    for text, stored in (
        ("recall_at_precision(0.9)", "recall_at_precision_90"),
        ("precision_at_recall(0.995)", "precision_at_recall_99_5"),
    ):
        assert levels.called(text) == stored
        found = levels.at_level(stored)
        assert found is not None
        assert found.name == stored
        assert FAMILY.has(found.threshold or "")
    assert levels.called("recall_at_precision(1)") == "recall_at_precision_100"
    assert levels.called("recall_at_recall(0.9)") is None
    assert [
        levels.at_level(name)
        for name in ("recall_at_precision", "recall_at_precision_0", "recall_at_precision_101", "auc_90")
    ] == [None] * 4
    with pytest.raises(ValueError, match="above 0, and at most 1"):
        levels.called("recall_at_precision(90)")


def test_a_model_with_several_classes_has_none() -> None:
    random = np.random.default_rng(0)
    p = random.dirichlet(np.ones(3), size=20)
    sums = measure(FAMILY, 3, p[:, None, :], random.integers(0, 3, 20) * 1.0, np.ones(20))
    assert np.isnan(FAMILY.finish(sums, "recall_at_precision_90")["recall_at_precision_90"])
