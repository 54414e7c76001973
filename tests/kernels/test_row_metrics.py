"""Metrics of groups against those of ``models.metrics``, the same bits in every build and for any config beside."""

import numpy as np
import pytest
from builds import in_every_build
from helpers import measuring as metrics

from grouplearn.kernels import metrics as kernel
from grouplearn.learners.linear import linear_model
from grouplearn.models.label import LABELLED, NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label

KINDS = {NUMBER: kernel.VALUES, TWO_CLASSES: kernel.BINARY, SEVERAL_CLASSES: kernel.CLASSES}


def rows(
    label: Label, sizes: list[int], n_unseen: int, weights: str, d: int = 3
) -> tuple[np.ndarray, kernel.LabelledRows]:
    random = np.random.default_rng(len(sizes))
    n = sum(sizes)
    known = {NUMBER: 0, TWO_CLASSES: 2, SEVERAL_CLASSES: 3}[label]
    y = random.integers(0, known + n_unseen, n).astype(float) if known else random.normal(size=n) + 3
    weight = random.uniform(0.5, 2, n) if weights == "any" else np.ones(n)
    if weights == "some are 0":
        weight[1::3] = 0.0
    x = random.integers(-2, 3, (n, d)).astype(float)  # whole numbers, so that scores are tied
    return x, kernel.LabelledRows(y, weight, np.cumsum([0, *sizes]))


def models(label: Label, groups: int, configs: int, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Of eighths, so that what is tied is tied in whatever order products are added."""
    random = np.random.default_rng(configs)
    outputs = 3 if label == SEVERAL_CLASSES else 1
    weights, intercept = (random.normal(size=(groups, configs, outputs, *more)) for more in ((d,), ()))
    return np.round(8 * weights) / 8, np.round(8 * intercept) / 8


@pytest.mark.parametrize("weights", ["any", "one", "some are 0"])
@pytest.mark.parametrize("n_unseen", [0, 2])
@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
@pytest.mark.parametrize("sizes", [[9, 1, 0, 40], [300, 257, 2]], ids=str)
def test_metrics_are_those_of_each_group(label: Label, n_unseen: int, weights: str, sizes: list[int]) -> None:
    x, given = rows(label, sizes, n_unseen, weights)
    classes = kernel.ClassCount({TWO_CLASSES: 2, SEVERAL_CLASSES: 3}.get(label, 0), n_unseen)
    weight, intercept = models(label, len(sizes), 11)
    wanted = [name for name in metrics.every_metric(label) if name in kernel.NAMES]
    found = in_every_build(lambda: kernel.of_models(given, x, (weight, intercept), KINDS[label], classes, wanted))
    assert set(found) == set(wanted)
    alone = kernel.of_models(given, x, (weight[:, [9]], intercept[:, [9]]), KINDS[label], classes, wanted)
    for name, values in alone.items():
        assert values[:, 0].tobytes() == found[name][:, 9].tobytes()
    for group, size in enumerate(sizes):
        own = np.arange(given.start[group], given.start[group + 1])
        own = own[given.weight[own] > 0]
        if not size:
            assert all(np.isnan(values[group]).all() for values in found.values())
            continue
        predictor = linear_model.linear_predictor(x[own], weight[group], intercept[group])
        scores = linear_model.inverse_link(label, predictor)
        sums = metrics.measure(label, classes.known, scores, given.y[own], given.weight[own], n_unseen)
        here = kernel.LabelledRows(given.y[own], given.weight[own], np.array([0, own.size]))
        by_scores = kernel.of_scores(here, scores, KINDS[label], classes, wanted)
        for name, values in metrics.finish(sums).items():
            np.testing.assert_allclose(by_scores[name][0], values, rtol=1e-11, atol=1e-12, err_msg=f"{name} {group}")
            # Which of several equal probabilities differ by rounding decides areas in the third digit.
            exact = 1e-11 if label != SEVERAL_CLASSES or "auc" not in name else 1e-2
            np.testing.assert_allclose(found[name][group], values, rtol=exact, atol=1e-12, err_msg=f"{name} {group}")


@pytest.mark.parametrize("configs", [1, 8, 19])
def test_sums_of_errors(configs: int) -> None:
    _, given = rows(NUMBER, [300], 0, "some are 0")
    predicted = np.random.default_rng(2).normal(size=(300, configs))
    given.y[::7] = 0.0
    found = in_every_build(lambda: dict(zip("sar", kernel.error_sums(predicted, given.y, given.weight), strict=True)))
    error = np.abs(predicted.T - given.y)
    of_labels = np.maximum(np.abs(given.y), np.finfo(float).eps)
    for name, each in {"s": error**2, "a": error, "r": error / of_labels}.items():
        np.testing.assert_allclose(found[name], each @ given.weight, rtol=1e-13)
    alone = kernel.error_sums(predicted[:, -1:], given.y, given.weight)
    assert [each[0] for each in alone] == [found[name][-1] for name in "sar"]


def test_parts_have_models_of_their_own() -> None:
    x, given = rows(TWO_CLASSES, [30, 50], 0, "any")
    part = (np.arange(80) % 3).astype(np.int16)
    weight, intercept = models(TWO_CLASSES, 2 * 4, 2)
    stacked = weight.reshape(2, 4, 2, 1, 3), intercept.reshape(2, 4, 2, 1)
    wanted = ("log_loss", "auc")
    classes = kernel.ClassCount(2)
    found = kernel.of_models(given._replace(part=(part, 3)), x, stacked, kernel.BINARY, classes, wanted)
    for fold in range(3):
        chosen = part == fold
        sizes = [int(chosen[:30].sum()), int(chosen[30:].sum())]
        own = kernel.LabelledRows(given.y[chosen], given.weight[chosen], np.cumsum([0, *sizes]))
        alone = kernel.of_models(
            own, x[chosen], (stacked[0][:, fold], stacked[1][:, fold]), kernel.BINARY, classes, wanted
        )
        for name, values in alone.items():
            assert values.tobytes() == found[name][:, fold].tobytes()


def test_exponentials_of_linear_scores_are_measured_as_values() -> None:
    x, given = rows(NUMBER, [20], 0, "one")
    weight, intercept = models(NUMBER, 1, 2)
    found = kernel.of_models(given, x, (weight, intercept), kernel.LOG_VALUES, kernel.ClassCount(), ("rmse",))["rmse"]
    scores = np.exp(linear_model.linear_predictor(x, weight[0], intercept[0]))
    np.testing.assert_allclose(found[0], np.sqrt(((scores[:, :, 0] - given.y[:, None]) ** 2).mean(axis=0)), rtol=1e-13)


@pytest.mark.parametrize("n", [40, 400])
def test_scores_that_are_no_numbers_have_no_metrics_and_cost_the_others_nothing(n: int) -> None:
    _, given = rows(SEVERAL_CLASSES, [n], 0, "one")
    scores = np.random.default_rng(0).dirichlet(np.ones(3), size=(n, 2))
    clean = kernel.of_scores(
        given, scores, kernel.CLASSES, kernel.ClassCount(3), ("auc", "log_loss", "pr_auc", "brier")
    )
    scores[5, 0, 1] = np.nan
    found = kernel.of_scores(
        given, scores, kernel.CLASSES, kernel.ClassCount(3), ("auc", "log_loss", "pr_auc", "brier")
    )
    for name, values in found.items():
        assert np.isnan(values[0, 0]), name
        assert values[0, 1] == clean[name][0, 1], name
