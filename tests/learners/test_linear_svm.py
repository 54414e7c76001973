"""Linear support vector machines against scikit-learn's LinearSVC: whole groups, epoch by epoch, and in SQL."""

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse
from helpers.passes import trained
from helpers.stacks import stack_of
from scipy.special import expit, softmax
from sklearn.svm import LinearSVC

import grouplearn
from grouplearn.data.shard import Shard
from grouplearn.learners import registry
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import StackLearner
from grouplearn.learners.contract.ways import AlgebraicLearner
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.state import State

LEARNER = registry.learner("linear_svm")
CONFIGS = [{"l2": 0.01}, {"l2": 1.0}, {"l2": 100.0}, {"l1": 3.0, "l2": 0.0}, {"l1": 1.0, "l2": 1.0}]
TIGHT = [{**config, "tolerance": 1e-13} for config in CONFIGS]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of liblinear, which counts its own iterations
        yield


def make_rows(n=300, classes=2, seed=0, d=6, signal=2.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d))) * np.geomspace(0.1, 10, d)
    score = signal * (x / x.std(axis=0)) @ rng.normal(size=(d, classes)) / np.sqrt(d)
    return Shard(x, (score + rng.gumbel(size=score.shape)).argmax(axis=1).astype(float), rng.uniform(0.3, 2, n))


def problem_of(shard, classes=2, epochs=100):
    return Problem(TWO_CLASSES if classes == 2 else SEVERAL_CLASSES, shard.x.shape[1], classes, epochs=epochs)


def solved(shards, configs=CONFIGS, classes=2, report=lambda _: None, epochs=100):
    problem = problem_of(shards[0], classes, epochs)
    return LEARNER.solve(problem, configs, stack_of(shards), report, lambda: False)


def fit(shard, configs=CONFIGS, classes=2, rows=64, epochs=100):
    return trained(LEARNER, problem_of(shard, classes), configs, shard, rows, epochs)


def objective(shard, config, weights, intercept):
    """Of the models of all classes (k, d), (k,)."""
    labels = shard.y[:, None] if len(weights) == 1 else shard.y[:, None] == np.arange(len(weights))
    margin = (2 * labels - 1) * (shard.x @ weights.T + intercept)
    return (
        (shard.weight @ np.maximum(0, 1 - margin) ** 2).sum()
        + config.get("l1", 0) * np.abs(weights).sum()
        + 0.5 * config.get("l2", 1) * np.square(weights).sum()
    )


def reference(shard, config):
    """LinearSVC at its optimum: with a column of 1,000 for the intercept, whose penalty is then a millionth."""
    given = {"C": 1 / config["l2"]} if config.get("l2") else {"C": 1 / config["l1"], "penalty": "l1"}
    with_intercept = config.get("fit_intercept", True)
    model = LinearSVC(
        **given, tol=1e-10, max_iter=100_000, dual=False, fit_intercept=with_intercept, intercept_scaling=1e3
    ).fit(shard.x, shard.y, sample_weight=shard.weight)
    return model, np.ravel(model.intercept_) if with_intercept else np.zeros(len(model.coef_))


def test_it_trains_by_sums_and_in_stacks_and_is_judged_by_its_classes():
    assert isinstance(LEARNER, AlgebraicLearner)
    assert isinstance(LEARNER, StackLearner)
    assert LEARNER.declaration.metric_of_classes == "accuracy"


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("config", [{"l2": 0.01}, {"l2": 1.0}, {"l2": 100.0}, {"l1": 3.0, "l2": 0.0}], ids=str)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_it_is_linear_svc(classes, config, fit_intercept):
    shard, config = make_rows(classes=classes), {**config, "fit_intercept": fit_intercept, "tolerance": 1e-13}
    found = solved([shard], [config], classes)
    model, intercept = reference(shard, config)
    weights, ours = found.weights[0, 0], found.intercept[0, 0]
    assert found.converged.all()
    np.testing.assert_allclose(found.loss[0, 0], objective(shard, config, weights, ours), rtol=1e-11)
    assert found.loss[0, 0] <= objective(shard, config, model.coef_, intercept) * (1 + 1e-12)
    np.testing.assert_allclose(found.loss[0, 0], objective(shard, config, model.coef_, intercept), rtol=1e-8)
    np.testing.assert_allclose(weights, model.coef_, rtol=1e-5, atol=1e-5 * np.abs(model.coef_).max())
    score = shard.x @ weights.T + ours
    predicted = score[:, 0] > 0 if classes == 2 else score.argmax(axis=1)
    np.testing.assert_array_equal(predicted, model.predict(shard.x))


@pytest.mark.parametrize("classes", [2, 3])
def test_epochs_reach_what_a_stack_does_from_dense_and_sparse_rows(classes):
    shard = make_rows(classes=classes)
    shard.x[:, 2:4] *= np.random.default_rng(1).random((300, 2)) < 0.2
    sparse = Shard(scipy.sparse.csr_matrix(shard.x), shard.y, shard.weight)
    found, dense, other = solved([shard], classes=classes), fit(shard, classes=classes), fit(sparse, classes=classes)
    for state in (dense, other):
        assert state.done.all()
        np.testing.assert_allclose(LEARNER.losses(state), found.loss[0], rtol=1e-6)
    for place, config in enumerate(CONFIGS):
        model = dense.tensors["weights"][place], dense.tensors["intercept"][place]
        np.testing.assert_allclose(LEARNER.losses(dense)[place], objective(shard, config, *model), rtol=1e-9)
    assert State.from_bytes(dense.to_bytes()).to_bytes() == fit(shard, classes=classes).to_bytes()


@pytest.mark.parametrize("classes", [2, 3])
def test_a_group_does_not_know_of_others_nor_a_config_of_its_pack(classes):
    shards = [make_rows(n, classes, n) for n in (50, 300, 90)]
    together = solved(shards, classes=classes)
    for number, shard in enumerate(shards):
        for place, config in enumerate(CONFIGS):
            alone = solved([shard], [config], classes)
            for name in ("weights", "intercept", "loss", "epochs", "converged"):
                assert getattr(alone, name)[0, 0].tobytes() == getattr(together, name)[number, place].tobytes()
    pack, alone = fit(shards[0], classes=classes), fit(shards[0], CONFIGS[1:2], classes)
    assert pack.tensors["weights"][1].tobytes() == alone.tensors["weights"][0].tobytes()


def test_weights_are_rows_that_are_there_as_often_and_none_are_no_rows():
    rng = np.random.default_rng(3)
    shard, times = make_rows(120, 3), rng.integers(0, 4, 120)
    weighted = Shard(shard.x, shard.y, times.astype(float))
    repeated = Shard(*(np.repeat(each, times, axis=0) for each in (shard.x, shard.y)), np.ones(times.sum()))
    one, other = (solved([each], TIGHT, 3) for each in (weighted, repeated))
    np.testing.assert_allclose(one.loss, other.loss, rtol=1e-12)
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-6, atol=1e-7)


def test_the_curve_of_several_classes_is_the_sum_of_theirs_and_progress_is_of_the_longest():
    seen: list[int] = []
    found = solved([make_rows(n, 3, n) for n in (60, 200)], classes=3, report=seen.append)
    assert sum(seen) == found.epochs.sum()
    assert len(found.curve) == found.epochs.max()
    for number, place in np.ndindex(2, len(CONFIGS)):
        curve, count = found.curve[:, number, place], found.epochs[number, place]
        assert np.isnan(curve[count:]).all()
        np.testing.assert_allclose(curve[count - 1], found.loss[number, place], rtol=1e-5)
        assert (np.diff(curve[:count]) <= 1e-5 * curve[0]).all()


def test_models_have_converged_when_those_of_all_classes_have():
    """Of a class without rows it has at once."""
    shard = make_rows(200, 3)
    assert not solved([shard], TIGHT, classes=4, epochs=2).converged.any()
    state = fit(shard, TIGHT, classes=4, epochs=2)
    assert state.tensors["class_done"][:, 3].all()
    assert not state.done.any()


def test_a_binary_model_among_more_classes_predicts_the_same_classes():
    shard = make_rows()
    artifact = LEARNER.finalize(problem_of(shard), CONFIGS, fit(shard), 1)
    score = shard.x @ artifact.tensors["weights"][0] + artifact.tensors["intercept"][0]
    binary = LEARNER.score(TWO_CLASSES, artifact, shard.x)
    np.testing.assert_allclose(binary[:, 0], expit(score), rtol=1e-12)
    both = LEARNER.score(SEVERAL_CLASSES, LEARNER.as_multiclass(artifact), shard.x)
    np.testing.assert_allclose(both[:, 1], binary[:, 0], rtol=1e-12)
    np.testing.assert_array_equal(both.argmax(axis=1), score > 0)


def test_the_probabilities_of_several_classes_are_the_softmax_of_their_scores():
    shard = make_rows(classes=3)
    state = fit(shard, classes=3)
    weights, intercept = state.tensors["weights"][1], state.tensors["intercept"][1]
    found = LEARNER.scores(problem_of(shard, 3), CONFIGS, state, shard.x)[:, 1]
    np.testing.assert_allclose(found, softmax(shard.x @ weights.T + intercept, axis=1), rtol=1e-12)


def apart(kind):
    """Rows that leave directions in which nothing bends."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(25 if kind == "fewer rows than columns" else 120, 40 if kind.startswith("fewer") else 6))
    y = (x[:, 0] + 0.5 * x[:, 1] > 0).astype(float)
    if kind != "separable":
        y[:3] = 1 - y[:3]
    if kind == "collinear":
        x[:, 5], x[:, 4] = x[:, 0] - 2 * x[:, 1], 7.0
    if kind == "one class":
        y[:] = 1.0
    return Shard(x, y, np.ones(len(x)))


@pytest.mark.parametrize("kind", ["separable", "collinear", "fewer rows than columns", "one class"])
def test_directions_without_curvature_do_no_harm(kind):
    shard, configs = apart(kind), [{"l2": 0.0}, {"l2": 1e-3}, {"l2": 1.0}, {"l1": 0.1, "l2": 0.0}]
    found, state = solved([shard], configs), fit(shard, configs)
    for weights, loss in ((found.weights[0], found.loss[0]), (state.tensors["weights"], LEARNER.losses(state))):
        assert np.isfinite(weights).all()
        if kind == "one class":
            assert (loss < 1e-12).all()
            continue
        if kind in ("separable", "fewer rows than columns"):
            assert loss[0] < 1e-9
        for place in (1, 2):
            model, intercept = reference(shard, configs[place])
            assert loss[place] <= (1 + 1e-6) * objective(shard, configs[place], model.coef_, intercept)
        exact = solved([shard], [{**configs[3], "tolerance": 1e-13}]).loss[0, 0]
        assert loss[3] <= (1 + 1e-6) * exact
    assert found.converged.all()
    assert state.done.all()


@pytest.mark.parametrize("l2", [1e-3, 1e-4])
@pytest.mark.parametrize(("rows", "columns"), [(150, 25), (1000, 25), (1000, 60)])
def test_rows_apart_and_a_small_penalty_take_no_hundreds_of_epochs(rows, columns, l2):
    """Few rows are inside their margin then and leave directions to the penalty alone: whole steps along these lead too far."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns))
    shard, config = Shard(x, (x @ rng.normal(size=columns) > 0.5).astype(float), np.ones(rows)), {"l2": l2}
    least = solved([shard], [{**config, "tolerance": 1e-12}], epochs=4000).loss[0, 0]
    found, state = solved([shard], [config]), fit(shard, [config])
    assert max(found.loss[0, 0], LEARNER.losses(state)[0]) <= (1 + 1e-2) * least


def test_a_long_group_and_a_rare_class_reach_the_optimum():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60_000, 5))
    shard = Shard(x, (x[:, 0] + 0.2 * rng.normal(size=60_000) > 2.5).astype(float), np.ones(60_000))
    found, state = solved([shard], CONFIGS[:3]), fit(shard, CONFIGS[:3], rows=20_000)
    for place, config in enumerate(CONFIGS[:3]):
        model, intercept = reference(shard, config)
        least = objective(shard, config, model.coef_, intercept)
        assert max(found.loss[0, place], LEARNER.losses(state)[place]) <= (1 + 1e-6) * least


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e200])
def test_what_is_no_number_has_no_model_and_harms_nobody(value):
    good, bad = make_rows(80, 3), make_rows(80, 3, seed=1)
    bad.x[5, 1] = value
    found, alone = solved([good, bad, good], classes=3), solved([good], classes=3)
    assert np.isnan(found.loss[1]).all()
    assert found.weights[[0, 2]].tobytes() == alone.weights[[0, 0]].tobytes()


def test_columns_of_denormal_numbers_are_constants():
    shard, tiny = make_rows(80), make_rows(80)
    tiny.x[:, 1] = 5e-320 * np.arange(80)
    found = solved([shard, tiny])
    assert np.isfinite(found.loss).all()
    assert (found.weights[1, :, 0, 1] == 0).all()


def test_in_sql_each_group_is_the_machine_of_its_rows():
    """Accuracy and predictions are those of LinearSVC, in each group by the penalty that is best there by accuracy."""
    with grouplearn.connect(progress=False) as con:
        con.execute(
            """CREATE TABLE t AS SELECT i % 3 AS g, hash(i) % 2000 / 1000 - 1 AS a, hash(i + 7) % 500 / 100 AS b,
            ['low', 'mid', 'top'][1 + greatest(0, least(2, round(a + 0.2 * b + hash(i + 3) % 100 / 60)))::INTEGER] AS y
            FROM range(1200) AS r(i)"""
        )
        con.execute(
            "TRAIN MODEL m USING linear_svm PREDICT y FEATURES (a, b) FROM t GROUP BY g "
            "OVER GRID (l2 IN (0.01, 3000)) VALIDATE NONE WITH (tolerance = 1e-12)"
        )
        trials = con.execute("FROM m ORDER BY g, l2").df()
        evaluated = con.execute("EVALUATE MODEL m ON t").df().set_index("g")["accuracy"]
        predicted = con.execute("SELECT g, a, b, y, prediction, probabilities FROM m_predict(t)").df()
    for g, rows in predicted.groupby("g"):
        shard = Shard(rows[["a", "b"]].to_numpy(), rows["y"].to_numpy(), np.ones(len(rows)))
        models = [reference(shard, {"l2": l2})[0] for l2 in (0.01, 3000)]
        accuracy = [model.score(shard.x, shard.y) for model in models]
        found = trials[trials["g"] == g]
        np.testing.assert_allclose(found["train_accuracy"], accuracy, atol=1e-12)
        best = int(np.argmax(accuracy))
        assert found["is_best"].tolist() == [best == 0, best == 1]
        assert evaluated[g] == pytest.approx(accuracy[best])
        np.testing.assert_array_equal(rows["prediction"], models[best].predict(shard.x))
        shares = softmax(models[best].decision_function(shard.x), axis=1)
        ours = [[row[name] for name in ("low", "mid", "top")] for row in rows["probabilities"]]
        np.testing.assert_allclose(ours, shares, atol=1e-4)
