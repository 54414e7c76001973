"""Every objective and parameter of gbdt gives the predictions of LightGBM called by hand with it."""

import json

import lightgbm
import numpy as np
import pytest
from helpers import measuring as metrics
from scipy.special import expit

from grouplearn.data.shard import Shard
from grouplearn.learners.contract.control import Diverged, Gang, Stop
from grouplearn.learners.contract.problem import FeatureBlock, Problem
from grouplearn.learners.trees.gbdt import Gbdt
from grouplearn.learners.trees.lightgbm import objectives as gbdt_objectives
from grouplearn.learners.trees.lightgbm.booster import Booster
from grouplearn.learners.trees.lightgbm.parameters import HYPERPARAMETERS
from grouplearn.learners.trees.lightgbm.refused_parameters import REFUSED
from grouplearn.learners.trees.nodes import FeatureColumns, nodes_of, parse_forest
from grouplearn.learners.trees.random_forest import RandomForest
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.metrics.deviances import row_losses, with_losses
from grouplearn.models.state import State

GBDT = Gbdt()
ITEMS = (FeatureBlock("a", 1), FeatureBlock("b", 1), FeatureBlock("c", 2), FeatureBlock("d", 1))
COLUMNS = FeatureColumns(np.arange(5), np.full(5, -1))
ROUNDS = 6
FIXED = {
    "deterministic": True, "force_col_wise": True, "num_threads": 1, "seed": 17, "verbosity": -1, "feature_pre_filter": False,
}  # fmt: skip


def rows(label=NUMBER, n=240, seed=0, labels="numbers", missing=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5))
    x[:, 3] = np.where(rng.random(n) < 0.7, 0.0, x[:, 3])
    if missing:
        x[rng.random((n, 5)) < 0.05] = np.nan
    signal = np.nan_to_num(x[:, 0] + np.sin(2 * x[:, 1])) + 0.5 * rng.normal(size=n)
    y = {
        "numbers": 5 + 2 * signal,
        "counts": rng.poisson(np.exp(0.5 * signal)).astype(float),
        "positive": np.exp(signal),
        "shares": expit(signal),
        "two": (signal > 0.5).astype(float),
        "three": np.digitize(signal, [-1, 1]).astype(float),
    }[labels]
    return Shard(x, y, rng.uniform(0.5, 2, size=n))


def problem_of(label=NUMBER, n_classes=0, **values):
    return Problem(label, 5, n_classes, seed=17, items=ITEMS, **values)


def trained(problem, values, shard, learner=GBDT, valid=None, stop=None):
    configs = [{"num_iterations": ROUNDS, "min_data_in_leaf": 5, **values}]
    state, boosted = learner.boost(problem, configs, learner.init(problem, configs), shard, valid, stop or Stop("rmse"))
    return learner.finalize(problem, configs, state, 0), boosted


def by_hand(values, shard, rounds=ROUNDS, categorical=()):
    parameters = {**FIXED, "min_data_in_leaf": 5, **values}
    if values.get("objective") == "mape":  # by columns it takes the first row's weight for that of all
        parameters |= {"force_col_wise": False, "force_row_wise": True}
    data = lightgbm.Dataset(
        shard.x, shard.y, weight=shard.weight, params=parameters, categorical_feature=list(categorical)
    )
    return lightgbm.train(parameters, data, rounds)


def assert_near(ours, theirs):
    """LightGBM adds leaves in another order, and not as multiples of 2^-40."""
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


OF_NUMBERS = {
    "regression": "numbers", "regression_l1": "numbers", "huber": "numbers", "fair": "numbers", "poisson": "counts",
    "quantile": "numbers", "mape": "positive", "gamma": "positive", "tweedie": "counts", "cross_entropy": "shares",
}  # fmt: skip
COMPANIONS = {
    "huber": {"alpha": 0.4}, "fair": {"fair_c": 0.3}, "poisson": {"poisson_max_delta_step": 0.2}, "quantile": {"alpha": 0.2},
    "tweedie": {"tweedie_variance_power": 1.2},
}  # fmt: skip


@pytest.mark.parametrize("objective", OF_NUMBERS)
def test_an_objective_of_numbers(objective):
    shard, problem = rows(labels=OF_NUMBERS[objective]), problem_of()
    for more in ({}, COMPANIONS.get(objective, {"boost_from_average": False})):
        values = {"objective": objective, **more}
        artifact, _ = trained(problem, values, shard)
        reference = by_hand(values, shard)
        assert_near(GBDT.score(NUMBER, artifact, shard.x)[:, 0], reference.predict(shard.x))
        assert GBDT.validation_error(problem, artifact) is None
        assert_tables_predict_alike(artifact.text, reference, shard.x, GBDT.link(values, NUMBER))


def test_weights_of_the_mean_percentage_error_do_not_depend_on_the_first_row():
    """LightGBM by columns grows other trees where the first row has another weight."""
    shard = rows(labels="positive")
    turned = Shard(shard.x[::-1].copy(), shard.y[::-1].copy(), shard.weight[::-1].copy())
    one, other = (trained(problem_of(), {"objective": "mape"}, each)[0] for each in (shard, turned))
    predicted = [GBDT.score(NUMBER, each, shard.x)[:, 0] for each in (one, other)]
    np.testing.assert_allclose(*predicted, rtol=1e-12)


def assert_tables_predict_alike(text, reference, x, link):
    """The sums of leaves that SQL and ONNX take, and the link, give what LightGBM predicts."""
    assert gbdt_objectives.in_text(text).link == link
    s = walked(nodes_of(parse_forest(text), COLUMNS), x)
    linked = {"identity": s, "exp": np.exp(s), "logistic": expit(s), "signed_square": s * np.abs(s)}[link]
    np.testing.assert_allclose(linked, reference.predict(x), rtol=1e-11)


@pytest.mark.parametrize("objective", [name for name, each in gbdt_objectives.OBJECTIVES.items() if each.roots])
def test_labels_whose_roots_are_learned(objective):
    shard = rows()
    artifact, _ = trained(problem_of(), {"objective": objective, "reg_sqrt": True}, shard)
    reference = by_hand({"objective": objective, "reg_sqrt": True}, shard)
    assert_near(GBDT.score(NUMBER, artifact, shard.x)[:, 0], reference.predict(shard.x))
    assert_tables_predict_alike(artifact.text, reference, shard.x, "signed_square")


OF_TWO = [
    {"objective": "binary"},
    {"is_unbalance": True},
    {"objective": "binary", "scale_pos_weight": 3.0, "sigmoid": 1.7},
    {"pos_bagging_fraction": 0.5, "neg_bagging_fraction": 0.9, "bagging_freq": 1},
]


@pytest.mark.parametrize("values", OF_TWO, ids=str)
def test_two_classes(values):
    shard, problem = rows(labels="two"), problem_of(TWO_CLASSES, 2)
    artifact, _ = trained(problem, values, shard)
    reference = by_hand({"objective": "binary", **values}, shard)
    assert_near(GBDT.score(TWO_CLASSES, artifact, shard.x)[:, 0], reference.predict(shard.x))
    assert GBDT.validation_error(problem, artifact) is None
    assert_tables_predict_alike(artifact.text, reference, shard.x, "logistic")


def walked(nodes, x):
    """Return the sums of the leaves that rows come to, through the tables that SQL reads."""
    total = np.zeros(len(x))
    for root in nodes.roots:
        at = np.full(len(x), root)
        for _ in range(int(nodes.depth.max()) + 1):
            value = x[np.arange(len(x)), np.maximum(nodes.slot[at], 0)]
            inside = (nodes.low[at] <= value) & (value <= nodes.high[at])
            following = np.where(
                np.isnan(value), nodes.missing[at], np.where(inside, nodes.inside[at], nodes.outside[at])
            )
            at = np.where(np.isnan(nodes.value[at]), following, at)
        total += nodes.value[at]
    return total


def test_one_class_against_the_rest_gives_shares_of_one():
    shard, problem = rows(labels="three"), problem_of(SEVERAL_CLASSES, 3)
    values = {"objective": "multiclassova", "sigmoid": 1.3, "is_unbalance": True}
    artifact, boosted = trained(problem, values, shard, valid=rows(labels="three", seed=2), stop=Stop("log_loss", 3))
    theirs = by_hand({**values, "num_class": 3}, shard, boosted.rounds[0]).predict(shard.x)
    ours = GBDT.score(SEVERAL_CLASSES, artifact, shard.x)
    assert_near(ours, theirs / theirs.sum(axis=1, keepdims=True))
    assert GBDT.validation_error(problem, artifact) is None
    held_out = rows(labels="three", seed=2)
    scores = GBDT.score(SEVERAL_CLASSES, artifact, held_out.x)[:, None]
    final = metrics.finish(metrics.measure(SEVERAL_CLASSES, 3, scores, held_out.y, held_out.weight))["log_loss"][0]
    assert boosted.curves[0][boosted.rounds[0] - 1] == pytest.approx(final, rel=1e-12)


def test_two_classes_of_a_label_that_has_more_are_learned_as_two():
    shard = rows(labels="two")
    for objective in ("multiclass", "multiclassova"):
        artifact, _ = trained(problem_of(TWO_CLASSES, 2, among_more=True), {"objective": objective}, shard)
        expected = by_hand({"objective": "binary"}, shard).predict(shard.x)
        assert_near(GBDT.score(SEVERAL_CLASSES, artifact, shard.x)[:, 1], expected)


OTHERS = {
    "linear trees in a forest": {"linear_tree": True, "boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1},
    "linear trees that are dropped": {"linear_tree": True, "boosting": "dart", "skip_drop": 0.0},
    "linear trees": {"linear_tree": True, "linear_lambda": 0.5},
    "quantized": {"use_quantized_grad": True, "num_grad_quant_bins": 8, "quant_train_renew_leaf": True},
    "quantized, not at random": {"use_quantized_grad": True, "stochastic_rounding": False},
    "costs": {"cegb_penalty_split": 1e-3, "cegb_tradeoff": 0.5},
    "seeds": {"bagging_fraction": 0.6, "bagging_freq": 1, "bagging_seed": 5, "feature_fraction": 0.6, "feature_fraction_seed": 9},
    "random thresholds": {"extra_trees": True, "extra_seed": 4},
    "drops": {"boosting": "dart", "drop_seed": 8, "skip_drop": 0.0, "drop_rate": 0.5, "max_drop": 2, "uniform_drop": True},
    "goss": {"data_sample_strategy": "goss", "bagging_seed": 4, "learning_rate": 0.5},
    "bins": {"data_random_seed": 3, "bin_construct_sample_cnt": 100, "enable_bundle": False, "is_enable_sparse": False},
    "no missing values": {"use_missing": False},
    "zeros are missing": {"zero_as_missing": True},
    "small steps": {"max_delta_step": 0.1, "path_smooth": 3.0, "lambda_l1": 0.1, "min_gain_to_split": 0.2},
    "a forest": {"boosting": "rf", "feature_fraction": 0.5},
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_parameters(name):
    shard, values = rows(missing=True), OTHERS[name]
    artifact, _ = trained(problem_of(), values, shard)
    expected = by_hand({"objective": "regression", **values}, shard).predict(shard.x)
    assert_near(GBDT.score(NUMBER, artifact, shard.x)[:, 0], expected)
    assert GBDT.validation_error(problem_of(), artifact) is None


NAMED = {
    "monotone_constraints": ('{"a": 1, "c": -1}', [1, 0, -1, -1, 0]),
    "interaction_constraints": ('[["a", "c"], ["b"]]', [[0, 2, 3], [1]]),
    "feature_contri": ('{"b": 0.25}', [1, 0.25, 1, 1, 1]),
    "cegb_penalty_feature_lazy": ('{"a": 5.0}', [5, 0, 0, 0, 0]),
    "cegb_penalty_feature_coupled": ('{"a": 2.0, "d": 1.0}', [2, 0, 0, 0, 1]),
    "max_bin_by_feature": ('{"a": 4}', [4, 255, 255, 255, 255]),
}


@pytest.mark.parametrize("name", NAMED)
def test_parameters_by_the_name_of_a_feature(name):
    shard, (ours, theirs) = rows(), NAMED[name]
    artifact, _ = trained(problem_of(), {name: ours}, shard)
    predicted = GBDT.score(NUMBER, artifact, shard.x)[:, 0]
    assert_near(predicted, by_hand({"objective": "regression", name: theirs}, shard).predict(shard.x))
    assert GBDT.validation_error(problem_of(), artifact) is None
    plain, _ = trained(problem_of(), {}, shard)
    assert not np.array_equal(predicted, GBDT.score(NUMBER, plain, shard.x)[:, 0])


@pytest.mark.parametrize("method", ["basic", "intermediate", "advanced"])
def test_a_monotone_model_only_rises(method):
    shard = rows()
    values = {"monotone_constraints": '{"a": 1}', "monotone_constraints_method": method, "monotone_penalty": 0.5}
    artifact, _ = trained(problem_of(), values, shard)
    x = np.repeat(shard.x[:20], 50, axis=0)
    x[:, 0] = np.tile(np.linspace(-3, 3, 50), 20)
    assert (np.diff(GBDT.score(NUMBER, artifact, x).reshape(20, 50), axis=1) >= 0).all()


def test_a_random_forest():
    shard, forest = rows(labels="two"), RandomForest()
    artifact, _ = trained(problem_of(TWO_CLASSES, 2), {}, shard, forest)
    theirs = {
        "objective": "binary", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.632, "num_leaves": 255,
        "feature_fraction_bynode": 1 / np.sqrt(5),
    }  # fmt: skip
    assert_near(forest.score(TWO_CLASSES, artifact, shard.x)[:, 0], by_hand(theirs, shard).predict(shard.x))
    assert "boosting" not in {each.name for each in forest.declaration.hyperparameters}


def test_the_metric_of_an_objective_is_watched():
    train, held_out = rows(labels="counts"), rows(labels="counts", seed=5)
    for objective, metric in (
        ("poisson", "poisson_deviance"),
        ("quantile", "pinball"),
        ("tweedie", "tweedie_deviance"),
    ):
        values = {"objective": objective, "alpha": 0.3, "tweedie_variance_power": 1.4}
        assert GBDT.default_metric(values, classes=False) == metric
        artifact, boosted = trained(problem_of(), values, train, valid=held_out, stop=Stop(metric, 2))
        scores = GBDT.score(NUMBER, artifact, held_out.x)[:, None]
        sums = metrics.measure(NUMBER, 0, scores, held_out.y, held_out.weight)
        sums = with_losses(sums, row_losses((metric,), values), scores, held_out.y, held_out.weight)
        final = metrics.finish(sums)[metric][0]
        assert boosted.curves[0][boosted.rounds[0] - 1] == pytest.approx(final, rel=1e-12)


@pytest.mark.parametrize("objective", [*OF_NUMBERS, "linear", "constrained", "quantized", "costs"])
def test_a_model_that_was_interrupted_is_the_one_that_was_not(objective):
    others = {
        "linear": {"linear_tree": True},
        "constrained": {"monotone_constraints": '{"a": 1}', "interaction_constraints": '[["a", "b"], ["c"]]'},
        "quantized": {"use_quantized_grad": True},
        "costs": {"cegb_penalty_feature_coupled": '{"a": 2.0}'},
    }
    values = {"num_iterations": ROUNDS, "min_data_in_leaf": 5, **others.get(objective, {"objective": objective})}
    problem, shard = problem_of(), rows(labels=OF_NUMBERS.get(objective, "numbers"))
    kept: list[bytes] = []
    stop = Stop("rmse", keep=lambda make: kept.append(make().to_bytes()))
    whole, _ = GBDT.boost(problem, [values], GBDT.init(problem, [values]), shard, None, stop)
    again, _ = GBDT.boost(problem, [values], State.from_bytes(kept[len(kept) // 2]), shard, None, Stop("rmse"))
    assert np.array_equal(whole.tensors["model_0"], again.tensors["model_0"])


LABELS = [
    ("poisson", -1.0, "the label is negative in 1 row; objective = 'poisson' takes labels that are >= 0"),
    ("gamma", 0.0, "the label is not positive in 1 row; objective = 'gamma' takes labels that are > 0"),
    ("cross_entropy", 1.5, "the label is not between 0 and 1 in 1 row; objective = 'cross_entropy' takes labels that are "
     "shares or probabilities, between 0 and 1"),
    ("tweedie", None, "the label is 0 in all rows, and objective = 'tweedie' has no mean to begin with"),
]  # fmt: skip


@pytest.mark.parametrize(("objective", "label", "message"), LABELS)
def test_labels_that_an_objective_cannot_learn(objective, label, message):
    shard = rows(labels="shares")
    y = np.zeros_like(shard.y) if label is None else np.append(shard.y[:-1], label)
    with pytest.raises(Diverged) as caught:
        trained(problem_of(), {"objective": objective}, Shard(shard.x, y, shard.weight))
    assert str(caught.value) == message


MISPLACED = [
    (TWO_CLASSES, 2, {"objective": "multiclass"}, "is for three classes or more, and the label has 2: use binary"),
    (
        SEVERAL_CLASSES,
        3,
        {"objective": "binary"},
        "for two classes, and the label has 3: use multiclass or multiclassova",
    ),
    (
        SEVERAL_CLASSES,
        3,
        {"is_unbalance": True},
        "is_unbalance is not for objective = 'multiclass', which the label has",
    ),
    (
        NUMBER,
        0,
        {"neg_bagging_fraction": 0.5},
        "neg_bagging_fraction is not for objective = 'regression', which the label has",
    ),
    (TWO_CLASSES, 2, {"reg_sqrt": True}, "reg_sqrt is not for objective = 'binary', which the label has"),
]


@pytest.mark.parametrize(("label", "n_classes", "values", "message"), MISPLACED)
def test_what_does_not_go_with_the_label(label, n_classes, values, message):
    labels = {TWO_CLASSES: "two", SEVERAL_CLASSES: "three"}.get(label, "numbers")
    with pytest.raises(Diverged, match=message):
        trained(problem_of(label, n_classes), values, rows(labels=labels))


CONFLICTS = [
    {"is_unbalance": True, "scale_pos_weight": 2.0},
    {"objective": "poisson", "reg_sqrt": True},
    {"objective": "quantile", "alpha": 1.5},
    {"objective": "multiclass", "scale_pos_weight": 2.0},
    {"objective": "regression", "pos_bagging_fraction": 0.5},
    {"linear_tree": True, "objective": "regression_l1"},
    {"linear_tree": True, "zero_as_missing": True},
    {"monotone_constraints_method": "advanced", "feature_fraction_bynode": 0.5},
    {"monotone_constraints": '{"x": -1}', "objective": "quantile"},
    {"monotone_constraints": '{"x": -1}', "objective": "mape"},
    {"tweedie_variance_power": 2.0},
    {"use_missing": False, "zero_as_missing": True},
    {"bagging_fraction": 0.5},
    {"objective": "binary", "neg_bagging_fraction": 0.5},
]


@pytest.mark.parametrize("values", CONFLICTS, ids=str)
def test_parameters_that_contradict_each_other(values):
    found = GBDT.conflict(values)
    assert found
    assert found.parameters[0] in values
    for name in values:
        if name == "linear_tree":
            assert GBDT.conflict({other: value for other, value in values.items() if other != name}) is None


def test_every_parameter_of_lightgbm_is_taken_or_refused_with_a_reason():
    shard = rows(n=50)
    text = by_hand({}, shard, 1).model_to_string()
    theirs = {line[1:].split(":", 1)[0] for line in text.splitlines() if line.startswith("[")}
    ours = {parameter.name for parameter in HYPERPARAMETERS}
    unknown = {name for name in theirs - ours - {"seed"} if REFUSED.get(name) is None}
    assert unknown == set()
    assert not {name for name in ours if REFUSED.get(name)}
    assert REFUSED["n_estimators"] == "it is num_iterations here"


def test_two_boosters_are_made_where_leaves_differ_in_kind(monkeypatch):
    made = []
    real = Booster.on
    monkeypatch.setattr(Booster, "on", lambda *arguments: made.append(arguments) or real(*arguments))
    configs = [{"num_iterations": n, "linear_tree": linear} for linear in (False, True) for n in (3, 5)]
    shard, problem = rows(), problem_of()
    keys = {GBDT.pack_key(config) for config in configs}
    assert len(keys) == 2
    GBDT.boost(problem, configs, GBDT.init(problem, configs), shard, None, Stop("rmse"))
    assert len(made) == 2  # of each kind the shorter one is a prefix


@pytest.mark.parametrize(
    "values",
    [
        {"linear_tree": True},
        {"interaction_constraints": '[["a"], ["b"]]'},
        {"monotone_constraints": '{"a": 1}', "monotone_constraints_method": "advanced"},
    ],
    ids=str,
)
def test_what_lightgbm_has_not_on_divided_rows_is_refused_before_it_is_asked(values, tmp_path):
    shard, configs = rows(), [{"num_iterations": ROUNDS, **values}]
    problem, gang = problem_of(), Gang(0, 2, str(tmp_path), 1.0)
    with pytest.raises(Diverged, match="needs all rows of a group in one place"):
        GBDT.boost(problem, configs, GBDT.init(problem, configs), shard, None, Stop("rmse"), gang)


def test_json_of_parameters_by_feature_reads_back():
    for ours, _ in NAMED.values():
        assert json.dumps(json.loads(ours)) == ours


@pytest.mark.parametrize("offset", [-3e7, 1.6e9, 1e15])
def test_labels_that_single_precision_cannot_tell_apart_are_refused(offset: float) -> None:
    """LightGBM would learn from the rounded ones: at 1.6e9 nothing is left of a deviation of 20."""
    y, weight = 20 * np.sin(np.arange(500.0)) + offset, np.ones(500)
    with pytest.raises(Diverged, match="lie closer together than single precision") as refused:
        gbdt_objectives.check_labels({}, [(y[:200], weight[:200]), (y[200:], weight[200:])])
    taken = float(str(refused.value).rpartition(" - ")[2])
    gbdt_objectives.check_labels({}, [(y - taken, weight)])


@pytest.mark.parametrize(
    "y",
    [
        20 * np.sin(np.arange(500.0)) + 1e6,
        np.full(50, 1.6e9 + 0.3),  # one label, whatever is made of it
        np.where(np.arange(50) % 2, 0.1 + 0.2, 0.3),  # the same, but for what sums of doubles leave
        np.arange(50.0) * 86_400 + 1.7e9,
        np.array([0.0]),
    ],
)
def test_labels_that_single_precision_tells_apart_are_not(y: np.ndarray) -> None:
    gbdt_objectives.check_labels({}, [(y, np.ones(len(y)))])


def test_rows_of_weight_0_do_not_say_how_labels_differ() -> None:
    y = np.concatenate([20 * np.sin(np.arange(500.0)) + 1.6e9, [0.0]])
    with pytest.raises(Diverged, match="single precision"):
        gbdt_objectives.check_labels({}, [(y, np.append(np.ones(500), 0.0))])
    gbdt_objectives.check_labels({}, [(y, np.ones(501))])  # 0 is far enough from the others for a tree to tell it
