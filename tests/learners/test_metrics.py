"""Every metric against scikit-learn, merged and whole, and where it is not defined."""

import functools

import duckdb
import numpy as np
import pytest
import sklearn.metrics as sk
from helpers import measuring as metrics
from helpers.measuring import (
    METRICS,
    default_metric,
    every_metric,
    family_of,
    finish,
    first_best,
    measure,
    merge,
    metrics_for,
)

from grouplearn.kernels import metrics as kernel
from grouplearn.layout import spilled
from grouplearn.layout.pages import mapped_file
from grouplearn.learners import registry
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.metrics.deviances import loss_sql, row_losses, with_losses
from grouplearn.models.metrics.metric import Asked
from grouplearn.models.outputs.outputs import OUTPUTS

CONFIGS = 3


def binary_rows(n=400, seed=0, ties=True):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(float)
    scores = np.clip(0.3 * y[:, None] + rng.random((n, CONFIGS)) * [0.7, 0.9, 1.3], 0, 1)
    if ties:
        scores[:, 1:] = scores[:, 1:].round(1)
    return scores[:, :, None], y, rng.uniform(0.1, 3, n)


def multiclass_rows(n=400, k=4, seed=1):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n).astype(float)
    raw = rng.gamma(1.0, size=(n, CONFIGS, k)).round(1) + 0.05 + (y[:, None] == np.arange(k))[:, None, :]
    return raw / raw.sum(axis=2, keepdims=True), y, rng.uniform(0.1, 3, n)


def regression_rows(n=300, seed=2):
    rng = np.random.default_rng(seed)
    y = 1e5 + rng.normal(size=n)
    return (y[:, None] + rng.normal(size=(n, CONFIGS)) * [0.1, 1, 3])[:, :, None], y, rng.uniform(0.1, 3, n)


ROWS = {TWO_CLASSES: binary_rows, SEVERAL_CLASSES: multiclass_rows, NUMBER: regression_rows}
CLASSES = {TWO_CLASSES: 2, SEVERAL_CLASSES: 4, NUMBER: 0}


def by_scikit_learn(label, scores, y, weight):
    if label == NUMBER:
        values = scores[:, 0]
        return {
            "rmse": sk.root_mean_squared_error(y, values, sample_weight=weight),
            "mae": sk.mean_absolute_error(y, values, sample_weight=weight),
            "r2": sk.r2_score(y, values, sample_weight=weight),
            "mape": sk.mean_absolute_percentage_error(y, values, sample_weight=weight),
        }
    if label == TWO_CLASSES:
        predicted, chances, average = scores[:, 0] > 0.5, scores[:, 0], "binary"
        options = {}
    else:
        predicted, chances, average = scores.argmax(axis=1), scores, "macro"
        options = {"multi_class": "ovr", "average": "macro"}
    return {
        "log_loss": sk.log_loss(y, chances, sample_weight=weight, labels=np.arange(CLASSES[label])),
        "auc": _auc(y, chances, weight, options),
        "accuracy": sk.accuracy_score(y, predicted, sample_weight=weight),
        "f1": sk.f1_score(y, predicted, sample_weight=weight, average=average, zero_division=0.0),
        "precision": sk.precision_score(y, predicted, sample_weight=weight, average=average, zero_division=0.0),
        "recall": sk.recall_score(y, predicted, sample_weight=weight, average=average, zero_division=0.0),
        "balanced_accuracy": sk.balanced_accuracy_score(y, predicted, sample_weight=weight),
        "pr_auc": _precision(y, chances, weight),
        "brier": _brier(y, chances, weight),
    }


def _precision(y, chances, weight):
    if chances.ndim == 1:
        return sk.average_precision_score(y, chances, sample_weight=weight)
    each = [sk.average_precision_score(y == k, chances[:, k], sample_weight=weight) for k in range(chances.shape[1])]
    return np.mean(each)


def _brier(y, chances, weight):
    if chances.ndim == 1:
        return sk.brier_score_loss(y, chances, sample_weight=weight)
    indicators = y[:, None] == np.arange(chances.shape[1])
    return np.average(((chances - indicators) ** 2).sum(axis=1), weights=weight)


def _auc(y, chances, weight, options):
    if not options:
        return sk.roc_auc_score(y, chances, sample_weight=weight)
    areas = [sk.roc_auc_score(y == each, chances[:, each], sample_weight=weight) for each in range(chances.shape[1])]
    return np.mean(areas)


def in_parts(label, scores, y, weight, rows):
    parts = [slice(start, start + rows) for start in range(0, len(y), rows)]
    sums = [measure(label, CLASSES[label], scores[part], y[part], weight[part]) for part in parts]
    return finish(functools.reduce(merge, sums))


@pytest.mark.parametrize("rows", [10_000, 61, 1])
@pytest.mark.parametrize("label", ROWS, ids=lambda label: label.name)
def test_metrics_are_those_of_scikit_learn(label, rows):
    scores, y, weight = ROWS[label]()
    actual = in_parts(label, scores, y, weight, rows)
    names = tuple(name for name in every_metric(label) if not METRICS[name].row_loss)
    assert tuple(actual) == names
    for config in range(CONFIGS):
        expected = by_scikit_learn(label, scores[:, config], y, weight)
        for name in names:
            np.testing.assert_allclose(actual[name][config], expected[name], rtol=1e-10, err_msg=name)


def test_multiclass_auc_is_scikit_learns_one_vs_rest():
    scores, y, _ = multiclass_rows()
    actual = finish(measure(SEVERAL_CLASSES, 4, scores, y, np.ones(len(y))))["auc"]
    for config in range(CONFIGS):
        np.testing.assert_allclose(
            actual[config], sk.roc_auc_score(y, scores[:, config], multi_class="ovr"), rtol=1e-10
        )


@pytest.mark.parametrize("rows", [10_000, 61])
def test_classes_that_training_has_not_count_as_wrong(rows):
    scores, y, weight = multiclass_rows(k=3)
    y[::7], y[::11] = 3, 4
    padded = np.concatenate([scores, np.zeros((len(y), CONFIGS, 2))], axis=2)
    parts = [slice(start, start + rows) for start in range(0, len(y), rows)]
    sums = [measure(SEVERAL_CLASSES, 3, scores[part], y[part], weight[part], n_unseen=2) for part in parts]
    found = finish(functools.reduce(merge, sums))
    for config in range(CONFIGS):
        chances, predicted = padded[:, config], scores[:, config].argmax(axis=1)
        expected = {
            "accuracy": sk.accuracy_score(y, predicted, sample_weight=weight),
            "f1": sk.f1_score(y, predicted, sample_weight=weight, average="macro", zero_division=0.0),
            "precision": sk.precision_score(y, predicted, sample_weight=weight, average="macro", zero_division=0.0),
            "recall": sk.recall_score(y, predicted, sample_weight=weight, average="macro", zero_division=0.0),
            "balanced_accuracy": sk.balanced_accuracy_score(y, predicted, sample_weight=weight),
            "auc": np.mean([sk.roc_auc_score(y == k, chances[:, k], sample_weight=weight) for k in range(5)]),
            "pr_auc": _precision(y, chances, weight),
            "brier": _brier(y, chances, weight),
            "log_loss": np.average(
                -np.log(np.clip(chances[np.arange(len(y)), y.astype(int)], 2**-52, 1)), weights=weight
            ),
        }
        for name in every_metric(SEVERAL_CLASSES):
            np.testing.assert_allclose(found[name][config], expected[name], rtol=1e-10, err_msg=name)


def test_of_two_classes_a_third_is_one_of_the_rest():
    scores, y, weight = binary_rows()
    y[::9] = 2
    found = finish(measure(TWO_CLASSES, 2, scores, y, weight, n_unseen=1))
    for config in range(CONFIGS):
        chances, predicted = scores[:, config, 0], scores[:, config, 0] > 0.5
        for name, score in [("f1", sk.f1_score), ("precision", sk.precision_score), ("recall", sk.recall_score)]:
            np.testing.assert_allclose(found[name][config], score(y == 1, predicted, sample_weight=weight))
        np.testing.assert_allclose(found["auc"][config], sk.roc_auc_score(y == 1, chances, sample_weight=weight))
        np.testing.assert_allclose(found["pr_auc"][config], _precision(y == 1, chances, weight))
        np.testing.assert_allclose(
            found["accuracy"][config], sk.accuracy_score(y, predicted.astype(int), sample_weight=weight)
        )
        of_three = np.stack([1 - chances, chances, np.zeros(len(y))], axis=1)  # half of the sum, as of two classes
        squares = np.square(of_three - np.eye(3)[y.astype(int)]).sum(axis=1) / 2
        np.testing.assert_allclose(found["brier"][config], np.average(squares, weights=weight))
    rows = kernel.LabelledRows(y, weight, np.array([0, len(y)]))
    classes = kernel.ClassCount(2, 1)
    side_by_side = kernel.of_scores(rows, scores, kernel.BINARY, classes, every_metric(TWO_CLASSES))
    for name, values in side_by_side.items():
        np.testing.assert_allclose(values[0], found[name], err_msg=name)


def test_a_config_that_diverged_takes_no_area_from_the_others():
    scores, y, weight = multiclass_rows()
    alone = finish(measure(SEVERAL_CLASSES, 4, scores[:, 1:], y, weight))["auc"]
    scores[:, 0] = np.nan
    found = finish(measure(SEVERAL_CLASSES, 4, scores, y, weight))["auc"]
    assert np.isnan(found[0])
    np.testing.assert_array_equal(found[1:], alone)


def test_the_first_of_those_that_are_tied_is_best():
    values = np.array(
        [[0.3, 0.2 + 1e-12, 0.2], [np.nan, np.inf, np.inf], [np.nan, np.nan, np.nan], [0.2 + 1e-8, 0.2, 0.2]]
    )
    assert first_best(values, greater_is_better=False).tolist() == [1, 1, 0, 1]
    assert first_best(-values, greater_is_better=True).tolist() == [1, 1, 0, 1]


def test_certain_and_wrong_probabilities_are_clipped():
    scores = np.array([0.0, 1.0, 1.0, 0.0])[:, None, None]
    y = np.array([1.0, 1.0, 0.0, 0.0])
    actual = finish(measure(TWO_CLASSES, 2, scores, y, np.ones(4)))["log_loss"][0]
    np.testing.assert_allclose(actual, sk.log_loss(y, scores[:, 0, 0]), rtol=1e-10)


def test_one_class_has_no_auc_but_the_rest():
    scores, _, weight = binary_rows()
    found = finish(measure(TWO_CLASSES, 2, scores, np.zeros(400), weight))
    assert np.isnan(found["auc"]).all()
    np.testing.assert_array_equal(found["f1"], 0.0)
    expected = (weight * (scores[:, 0, 0] <= 0.5)).sum() / weight.sum()
    np.testing.assert_allclose(found["accuracy"][0], expected)


def test_a_class_without_rows_is_left_out_of_the_means():
    scores, y, weight = multiclass_rows()
    kept = y != 3
    found = finish(measure(SEVERAL_CLASSES, 4, scores[kept], y[kept], weight[kept]))
    for config in range(CONFIGS):
        part = scores[kept, config]
        areas = [sk.roc_auc_score(y[kept] == each, part[:, each], sample_weight=weight[kept]) for each in range(3)]
        np.testing.assert_allclose(found["auc"][config], np.mean(areas), rtol=1e-10)
        expected = sk.f1_score(
            y[kept], part.argmax(axis=1), sample_weight=weight[kept], average="macro", zero_division=0.0
        )
        np.testing.assert_allclose(found["f1"][config], expected, rtol=1e-10)


@pytest.mark.parametrize("label", ROWS, ids=lambda label: label.name)
def test_without_rows_nothing_is_defined_and_merging_changes_nothing(label):
    scores, y, weight = ROWS[label]()
    empty = measure(label, CLASSES[label], scores[:0], y[:0], weight[:0])
    assert all(value.shape == (CONFIGS,) and np.isnan(value).all() for value in finish(empty).values())
    whole = measure(label, CLASSES[label], scores, y, weight)
    for merged in (merge(empty, whole), merge(whole, empty)):
        for name, value in finish(merged).items():
            np.testing.assert_array_equal(value, finish(whole)[name])


@pytest.mark.parametrize("predicted", [4.0, 5.0])
def test_r2_of_a_constant_label_is_scikit_learns(predicted):
    y = np.full(5, 4.0)
    actual = finish(measure(NUMBER, 0, np.full((5, 1, 1), predicted), y, np.ones(5)))["r2"][0]
    assert actual == sk.r2_score(y, np.full(5, predicted))


def test_a_diverged_config_leaves_the_others_alone():
    scores, y, weight = binary_rows()
    expected = finish(measure(TWO_CLASSES, 2, scores, y, weight))
    broken = scores.copy()
    broken[:, 1] = np.nan
    found = finish(measure(TWO_CLASSES, 2, broken, y, weight))
    assert np.isnan(found["auc"][1])
    assert np.isnan(found["log_loss"][1])
    for name, value in found.items():
        np.testing.assert_array_equal(value[[0, 2]], expected[name][[0, 2]])


def test_every_metric_belongs_to_a_task_and_has_a_direction():
    assert metrics_for(TWO_CLASSES) == ("log_loss", "auc", "accuracy", "f1")
    assert metrics_for(NUMBER, False, "mape") == ("rmse", "mae", "r2", "mape")
    assert not {"auc", "pr_auc"} & set(every_metric(SEVERAL_CLASSES, arrays=True))
    assert "pinball" not in every_metric(NUMBER, arrays=True)
    every = {each.name: each for _, output in registry.outputs() for each in output.metrics.metrics}
    smaller = {name for name, metric in every.items() if not metric.greater_is_better}
    losses = {name for name, metric in every.items() if metric.row_loss}
    assert losses == {"pinball", "poisson_deviance", "gamma_deviance", "tweedie_deviance", "cross_entropy"}
    without_label = {"inertia", "mean_squared_distance", "reconstruction_error"}
    forecasts = {"mase", "rmsse", "smape", "wql", "msis"}
    assert smaller == {"log_loss", "brier", "rmse", "mae", "mape", *losses, *without_label, *forecasts}
    assert all(metric.name == name and metric.meaning for name, metric in every.items())
    assert [default_metric(label) for label in (NUMBER, TWO_CLASSES, SEVERAL_CLASSES)] == [
        "rmse",
        "log_loss",
        "log_loss",
    ]
    assert all(default_metric(label) in metrics_for(label) for label in OUTPUTS)


@pytest.mark.parametrize("label", ROWS, ids=lambda label: label.name)
def test_metrics_of_groups_are_pooled_where_they_say_so(label):
    scores, y, _ = ROWS[label]()
    losses = row_losses(every_metric(label), {"alpha": 0.3, "tweedie_variance_power": 1.5})
    parts = [slice(0, 40), slice(40, 130), slice(130, len(y))]

    def measured(rows):
        given = scores[rows], y[rows], np.ones(len(y[rows]))
        return finish(with_losses(measure(label, CLASSES[label], *given), losses, *given))

    each, whole = [measured(part) for part in parts], measured(slice(None))
    sizes = [len(y[part]) for part in parts]
    for name, expected in whole.items():
        if np.isnan(expected).all():  # labels that are no shares
            continue
        power = 2 if METRICS[name].pooled == "root" else 1
        pooled = np.average([found[name] ** power for found in each], axis=0, weights=sizes) ** (1 / power)
        assert np.allclose(pooled, expected, rtol=1e-9) == (METRICS[name].pooled is not None), name


@pytest.mark.parametrize("label", list(OUTPUTS), ids=lambda label: label.name)
def test_evaluate_has_every_metric(label):
    names = every_metric(label)
    losses = {loss.name: loss_sql(loss) for loss in row_losses(names, {"alpha": 0.9, "tweedie_variance_power": 1.5})}
    judged = family_of(label).judged(
        Asked(("a", "b", "c")[: CLASSES.get(label, 0)], label == SEVERAL_CLASSES, "p", losses)
    )
    rows = ", ".join(f"NULL AS {name}" for name in judged.row if name != "p")
    known = f"known AS (SELECT 1 AS id, 1.0 AS w, 1.0 AS unit, true AS ok, {rows}, {'[0.5]' if CLASSES.get(label) else 1} AS p)"
    metrics = ", ".join(METRICS[name].sql for name in names)
    duckdb.sql(f"WITH {known}, {judged.sums} SELECT {metrics} FROM judged").fetchall()


@pytest.mark.parametrize("ties", [False, True])
def test_many_rows_have_the_same_metrics_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch, ties: bool) -> None:
    rng = np.random.default_rng(3)
    scores, labels = rng.random((5000, 2, 1)), np.asarray(rng.random(5000) < 0.3, dtype=np.float64)
    scores = np.round(scores, 2) if ties else scores
    blocks = [slice(start, start + 700) for start in range(0, 5000, 700)]

    def measured() -> metrics.MetricSums:
        parts = [metrics.measure(TWO_CLASSES, 2, scores[rows], labels[rows], np.ones(5000)[rows]) for rows in blocks]
        return functools.reduce(metrics.merge, parts)

    expected = metrics.finish(measured())
    monkeypatch.setattr(spilled, "SPILLED_BYTES", 1 << 14)
    sums = measured()
    assert any(mapped_file(part) is not None for part in sums.by_row["scores"].parts)
    np.testing.assert_array_equal(sums.by_row["scores"].whole(), scores.transpose(1, 2, 0))
    found = metrics.finish(sums)
    assert {name: value.tobytes() for name, value in found.items()} == {
        name: value.tobytes() for name, value in expected.items()
    }


NEARLY = np.nextafter(0.1, 1)


@pytest.mark.parametrize("rows", [700, 9])
@pytest.mark.parametrize("other", [0.1, NEARLY], ids=["constant", "rounded"])
@pytest.mark.parametrize(("predicted", "expected"), [(0.1, 1.0), (0.1 + 1e-16, 1.0), (0.1 + 1e-9, 0.0), (7.0, 0.0)])
def test_r2_of_a_label_that_is_constant_but_for_rounding(rows, other, predicted, expected):
    y, weight = np.where(np.arange(700) % 3, 0.1, other), np.random.default_rng(0).uniform(0.1, 3, 700)
    scores = np.full((700, CONFIGS, 1), predicted)
    for weights in (weight, np.ones(700), weight * (np.arange(700) % 2)):
        np.testing.assert_array_equal(in_parts(NUMBER, scores, y, weights, rows)["r2"], expected)
        group = kernel.LabelledRows(y, weights, np.array([0, len(y)]))
        found = kernel.of_scores(group, scores, kernel.VALUES, kernel.ClassCount(), ("r2",))["r2"]
        np.testing.assert_array_equal(found, expected)


def test_a_label_that_varies_in_its_last_digits_is_not_constant():
    y = np.array([1e15, 1e15 + 1, 1e15 + 2, 1e15 + 3])
    found = finish(measure(NUMBER, 0, np.full((4, 1, 1), 1e15), y, np.ones(4)))["r2"]
    np.testing.assert_allclose(found, sk.r2_score(y, np.full(4, 1e15)))
