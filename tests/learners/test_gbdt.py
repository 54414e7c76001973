"""The gbdt learner against LightGBM called by hand."""

import subprocess
import sys

import lightgbm
import numpy as np
import pytest
import scipy.sparse
from helpers import measuring as metrics

from grouplearn.data.shard import Shard
from grouplearn.learners.contract.control import Diverged, Interrupted, Stop
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import SamplingLearner
from grouplearn.learners.trees.gbdt import Gbdt, conflict
from grouplearn.learners.trees.lightgbm.booster import Booster
from grouplearn.models.label import LABELLED, NUMBER, SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.state import State

GBDT = Gbdt()
DEFAULTS = {parameter.name: parameter.default for parameter in GBDT.declaration.hyperparameters}
NEVER = Stop("rmse")
FIXED = {
    "deterministic": True,
    "force_col_wise": True,
    "num_threads": 1,
    "seed": 17,
    "verbosity": -1,
    "feature_pre_filter": False,
}
OBJECTIVES = {
    NUMBER: {"objective": "regression"},
    TWO_CLASSES: {"objective": "binary"},
    SEVERAL_CLASSES: {"objective": "multiclass", "num_class": 3},
}
DEFAULT_METRIC = {NUMBER: "rmse", TWO_CLASSES: "log_loss", SEVERAL_CLASSES: "log_loss"}


def config(num_iterations=15, **values):
    return {**DEFAULTS, "num_iterations": num_iterations, **values}


def problem_of(label, n_features=5, **values):
    return Problem(label, n_features, {TWO_CLASSES: 2, SEVERAL_CLASSES: 3}.get(label, 0), seed=17, **values)


def shard_of(label, n=300, d=5, seed=0, weighted=True, noise=0.5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    signal = x[:, 0] + np.sin(2 * x[:, 1]) + noise * rng.normal(size=n)
    y = {
        NUMBER: 50 + 10 * signal,
        TWO_CLASSES: (signal > 0).astype(float),
        SEVERAL_CLASSES: np.digitize(signal, [-1, 1]).astype(float),
    }[label]
    return Shard(x, y, rng.uniform(0.5, 2, size=n) if weighted else np.ones(n))


def boost(problem, configs, shard, valid=None, stop=NEVER):
    return GBDT.boost(problem, configs, GBDT.init(problem, configs), shard, valid, stop)


def by_hand(label, values, shard, rounds=15, **options):
    data = lightgbm.Dataset(shard.x, shard.y, weight=shard.weight, **options)
    return lightgbm.train({**FIXED, **OBJECTIVES[label], **values}, data, rounds)


GRID = {
    "defaults": {},
    "small trees": {"num_leaves": 4, "learning_rate": 0.3, "min_data_in_leaf": 5},
    "penalties": {"lambda_l1": 0.5, "lambda_l2": 3.0, "min_gain_to_split": 0.1, "path_smooth": 2.0},
    "bagging": {"bagging_fraction": 0.6, "bagging_freq": 2, "feature_fraction": 0.5, "feature_fraction_bynode": 0.7},
    "few bins": {"max_bin": 15, "max_depth": 3},
    "extra trees": {"extra_trees": True},
    "goss": {"data_sample_strategy": "goss", "top_rate": 0.3, "learning_rate": 0.5},
    "dart": {"boosting": "dart", "drop_rate": 0.5, "skip_drop": 0.0},
    "forest": {"boosting": "rf", "bagging_fraction": 0.6, "bagging_freq": 1},
}


@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
def test_every_config_of_a_pack_predicts_as_lightgbm_called_by_hand(label):
    problem, shard = problem_of(label), shard_of(label)
    configs = [config(**values) for values in GRID.values()]
    state, boosted = boost(problem, configs, shard)
    assert state.done.all()
    assert boosted.rounds == (15,) * len(GRID)
    assert boosted.curves == ((),) * len(GRID)
    scores = GBDT.scores(problem, configs, state, shard.x)
    for index, values in enumerate(GRID.values()):
        expected = by_hand(label, values, shard).predict(shard.x).reshape(len(shard.y), -1)
        np.testing.assert_allclose(scores[:, index], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
def test_unit_weights_change_nothing(label):
    problem, shard = problem_of(label), shard_of(label, weighted=False)
    state, _ = boost(problem, [config()], shard)
    data = lightgbm.Dataset(shard.x, shard.y)
    expected = lightgbm.train({**FIXED, **OBJECTIVES[label]}, data, 15).predict(shard.x)
    found = GBDT.scores(problem, [config()], state, shard.x)
    np.testing.assert_allclose(found.ravel(), expected.ravel(), rtol=1e-12, atol=0)


def test_configs_that_differ_in_rounds_are_prefixes_of_one_booster(monkeypatch):
    made = []
    real = Booster.on

    def counted(*arguments):
        made.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(Booster, "on", counted)
    problem, shard = problem_of(TWO_CLASSES), shard_of(TWO_CLASSES)
    configs = [config(n, bagging_fraction=0.5, bagging_freq=1) for n in (4, 9, 1)]
    state, boosted = boost(problem, configs, shard)
    assert len(made) == 1
    assert boosted.rounds == (4, 9, 1)
    for index, one in enumerate(configs):
        alone, _ = boost(problem, [one], shard)
        assert np.array_equal(state.tensors[f"model_{index}"], alone.tensors["model_0"])


@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
def test_a_pack_of_n_gives_the_bytes_of_n_packs_of_one(label):
    problem, shard, valid = problem_of(label), shard_of(label), shard_of(label, n=100, seed=1)
    stop = Stop(DEFAULT_METRIC[label], patience=3)
    configs = [config(n, **values) for values in GRID.values() for n in (5, 12)]
    state, boosted = boost(problem, configs, shard, valid, stop)
    for index, one in enumerate(configs):
        alone, alone_boosted = boost(problem, [one], shard, valid, stop)
        assert np.array_equal(state.tensors[f"model_{index}"], alone.tensors["model_0"])
        assert (boosted.rounds[index], boosted.curves[index]) == (alone_boosted.rounds[0], alone_boosted.curves[0])


NATIVE = [
    (NUMBER, "rmse", "rmse"),
    (NUMBER, "mae", "l1"),
    (TWO_CLASSES, "auc", "auc"),
    (TWO_CLASSES, "log_loss", "binary_logloss"),
    (SEVERAL_CLASSES, "log_loss", "multi_logloss"),
]


@pytest.mark.parametrize(
    ("label", "ours", "theirs", "boosting"),
    # By LightGBM's running average of a forest rows that tie do not, see tests/whole/test_tied_trees.py.
    [(*each, boosting) for each in NATIVE for boosting in ("gbdt", "rf") if (each[1], boosting) != ("auc", "rf")],
)
def test_early_stopping_keeps_the_round_that_lightgbm_keeps(label, ours, theirs, boosting):
    values = {"boosting": boosting, "learning_rate": 0.3, "bagging_fraction": 0.8, "bagging_freq": 1}
    problem, shard, valid = problem_of(label), shard_of(label, noise=3), shard_of(label, n=150, seed=1, noise=3)
    state, boosted = boost(problem, [config(60, **values)], shard, valid, Stop(ours, patience=5))
    data = lightgbm.Dataset(shard.x, shard.y, weight=shard.weight)
    record = {}
    model = lightgbm.train(
        {**FIXED, **OBJECTIVES[label], **values, "metric": theirs},
        data,
        60,
        valid_sets=[lightgbm.Dataset(valid.x, valid.y, weight=valid.weight, reference=data)],
        callbacks=[lightgbm.early_stopping(5, verbose=False), lightgbm.record_evaluation(record)],
    )
    assert boosted.rounds == (model.best_iteration,)
    assert model.best_iteration < 60
    np.testing.assert_allclose(boosted.curves[0], record["valid_0"][theirs], rtol=1e-12)
    score = GBDT.score(label, GBDT.finalize(problem, [config()], state, 0), valid.x)
    np.testing.assert_allclose(score.ravel(), model.predict(valid.x).ravel(), rtol=1e-12)


def test_early_stopping_of_dart_gives_the_model_of_the_best_round():
    values = {"boosting": "dart", "learning_rate": 0.5, "skip_drop": 0.2, "drop_rate": 0.3}
    shard, valid = shard_of(NUMBER, noise=3), shard_of(NUMBER, n=150, seed=1, noise=3)
    problem = problem_of(NUMBER)
    state, boosted = boost(problem, [config(50, **values)], shard, valid, Stop("rmse", patience=4))
    (rounds,), (curve,) = boosted.rounds, boosted.curves
    assert len(curve) == rounds + 4
    assert rounds == 1 + int(np.argmin(curve))
    scores = GBDT.scores(problem, [config()], state, valid.x)
    expected = by_hand(NUMBER, values, shard, rounds).predict(valid.x)
    np.testing.assert_allclose(scores.ravel(), expected, rtol=1e-12)
    kept = metrics.finish(metrics.measure(NUMBER, 0, scores, valid.y, valid.weight))["rmse"][0]
    assert kept == pytest.approx(curve[rounds - 1], rel=1e-6)


@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
def test_every_metric_has_a_curve_that_ends_in_the_metric_of_the_model(label):
    problem, shard, valid = problem_of(label), shard_of(label), shard_of(label, n=100, seed=1)
    for metric in metrics.metrics_for(label):
        state, boosted = boost(problem, [config()], shard, valid, Stop(metric))
        scores = GBDT.scores(problem, [config()], state, valid.x)
        final = metrics.finish(metrics.measure(label, problem.n_classes, scores, valid.y, valid.weight))[metric][0]
        assert len(boosted.curves[0]) == 15
        assert boosted.curves[0][-1] == pytest.approx(final, rel=1e-6), metric


def test_an_undefined_metric_stops_nothing():
    problem, shard = problem_of(TWO_CLASSES), shard_of(TWO_CLASSES)
    valid = shard_of(TWO_CLASSES, n=50, seed=1)
    one_class = Shard(valid.x, np.zeros(50), valid.weight)
    _, boosted = boost(problem, [config()], shard, one_class, Stop("auc", patience=2))
    assert boosted.rounds == (15,)
    assert np.isnan(boosted.curves[0]).all()


def test_category_codes_are_split_as_categories():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 8, size=400).astype(float)
    codes[::17] = np.nan
    x = np.column_stack([codes, rng.normal(size=400)])
    y = np.where(np.isin(codes, [1, 4, 6]), 5.0, 0.0) + x[:, 1]
    shard = Shard(x, y, np.ones(400))
    problem = problem_of(NUMBER, 2, categorical=(0,))
    values = {"min_data_per_group": 10, "cat_smooth": 1.0}
    state, _ = boost(problem, [config(**values)], shard)
    expected = by_hand(NUMBER, values, shard, categorical_feature=[0])
    scores = GBDT.scores(problem, [config()], state, x).ravel()
    np.testing.assert_allclose(scores, expected.predict(x), rtol=1e-12)
    assert not np.allclose(scores, by_hand(NUMBER, values, shard).predict(x))


def test_sparse_rows_give_the_model_of_the_same_rows_made_dense():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 6)) * (rng.random((300, 6)) < 0.3)
    y = x[:, 0] - 2 * x[:, 1]
    problem = problem_of(NUMBER, 6)
    dense, _ = boost(problem, [config()], Shard(x, y, np.ones(300)))
    rows = scipy.sparse.csr_matrix(x)
    sparse, _ = boost(problem, [config()], Shard(rows, y, np.ones(300)))
    expected = GBDT.scores(problem, [config()], dense, x)
    np.testing.assert_allclose(GBDT.scores(problem, [config()], sparse, rows), expected, rtol=1e-12)


@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
@pytest.mark.parametrize("boosting", ["gbdt", "dart", "rf"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_groups_get_a_finite_model(label, boosting, n):
    problem, shard = problem_of(label), shard_of(label, n=n)
    configs = [config(boosting=boosting, feature_fraction=0.5, min_data_in_leaf=1)]
    state, _ = boost(problem, configs, shard, shard, Stop(DEFAULT_METRIC[label], patience=2))
    assert np.isfinite(GBDT.scores(problem, configs, state, shard.x)).all()


def test_constant_features_give_the_weighted_mean():
    shard = Shard(np.ones((4, 2)), np.array([1.0, 2.0, 3.0, 10.0]), np.array([1.0, 1.0, 1.0, 3.0]))
    problem = problem_of(NUMBER, 2)
    state, boosted = boost(problem, [config(100)], shard, shard, Stop("rmse"))
    assert GBDT.scores(problem, [config()], state, np.ones((1, 2)))[0, 0, 0] == pytest.approx(6.0)
    assert boosted.rounds == (1,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"boosting": "rf"}, "a random forest needs trees that differ"),
        (
            {"data_sample_strategy": "goss", "bagging_freq": 1, "bagging_fraction": 0.5},
            "data_sample_strategy = 'goss' excludes bagging",
        ),
        ({"data_sample_strategy": "goss", "top_rate": 0.9, "other_rate": 0.2}, "top_rate \\+ other_rate must be <= 1"),
    ],
)
def test_contradicting_parameters_are_named(values, message):
    with pytest.raises(Diverged, match=message):
        boost(problem_of(NUMBER), [config(**values)], shard_of(NUMBER))
    assert conflict(config(**values))
    assert conflict(config()) is None


def test_what_lightgbm_refuses_is_said_in_its_words():
    shard = shard_of(SEVERAL_CLASSES)
    broken = Shard(shard.x, shard.y + 7, shard.weight)
    with pytest.raises(Diverged, match=r"^LightGBM: Label must be in \[0, 3\), but found "):
        boost(problem_of(SEVERAL_CLASSES), [config()], broken)


def test_nothing_to_learn_from_is_said():
    shard = shard_of(NUMBER)
    with pytest.raises(Diverged, match="no training rows"):
        boost(problem_of(NUMBER), [config()], Shard(shard.x[:0], shard.y[:0], shard.weight[:0]))
    with pytest.raises(Diverged, match="no features"):
        boost(problem_of(NUMBER, 0), [config()], Shard(shard.x[:, :0], shard.y, shard.weight))


def test_a_bag_without_rows_is_said():
    values = {"bagging_fraction": 0.5, "bagging_freq": 1}
    with pytest.raises(Diverged, match=r"^bagging_fraction = 0.5 of 1 rows leaves none$"):
        boost(problem_of(TWO_CLASSES), [config(**values)], shard_of(TWO_CLASSES, n=1))
    state, _ = boost(problem_of(TWO_CLASSES), [config(**values)], shard_of(TWO_CLASSES, n=2))
    assert state.done.all()


def test_cancelling_stops_between_rounds():
    polls = iter([False, False, True])
    with pytest.raises(Interrupted):
        boost(
            problem_of(TWO_CLASSES),
            [config()],
            shard_of(TWO_CLASSES),
            stop=Stop("auc", cancelled=lambda: next(polls)),
        )
    assert list(polls) == []


def test_importance_is_the_gain():
    problem, shard = problem_of(TWO_CLASSES), shard_of(TWO_CLASSES)
    state, _ = boost(problem, [config()], shard)
    gain = GBDT.importance(GBDT.finalize(problem, [config()], state, 0), 5)
    np.testing.assert_allclose(gain, by_hand(TWO_CLASSES, {}, shard).feature_importance("gain"))
    assert gain.argmax() in (0, 1)


def test_state_to_bytes_and_back():
    problem, shard, configs = problem_of(SEVERAL_CLASSES), shard_of(SEVERAL_CLASSES), [config(3), config(5)]
    start = State.from_bytes(GBDT.init(problem, configs).to_bytes())
    state, _ = GBDT.boost(problem, configs, start, shard, None, NEVER)
    again = State.from_bytes(state.to_bytes())
    assert again.to_bytes() == boost(problem, configs, shard)[0].to_bytes()
    assert np.array_equal(GBDT.scores(problem, configs, again, shard.x), GBDT.scores(problem, configs, state, shard.x))
    assert GBDT.scores(problem, configs, again, shard.x[:0]).shape == (0, 2, 3)


def test_defaults_are_those_of_lightgbm():
    shard = shard_of(NUMBER)
    plain = lightgbm.Booster(dict(FIXED), lightgbm.Dataset(shard.x, shard.y))
    plain.update()
    text = plain.model_to_string()
    dumped = dict(line[1:-1].split(": ", 1) for line in text.splitlines() if line.startswith("[") and ": " in line)
    by_seed_or_label = {name for name, default in DEFAULTS.items() if default is None}
    assert {name for name in by_seed_or_label if not name.endswith("_seed")} == {
        "objective", "monotone_constraints", "interaction_constraints", "feature_contri", "cegb_penalty_feature_lazy",
        "cegb_penalty_feature_coupled", "max_bin_by_feature",
    }  # fmt: skip
    for name, default in DEFAULTS.items():
        if default is None:
            continue
        expected = str(int(default)) if isinstance(default, bool) else str(default)
        theirs = dumped[name]
        assert theirs == expected or float(theirs) == float(expected), name


def test_neither_importing_nor_training_imports_the_package():
    code = (
        "import sys, grouplearn; con = grouplearn.connect(progress=False);"
        "con.execute('CREATE TABLE t AS SELECT i % 2 AS y, i * 0.5 AS x FROM range(100) r(i)');"
        "con.execute('TRAIN MODEL m USING gbdt PREDICT y FEATURES (x) FROM t WITH (num_iterations = 3)').fetchall();"
        "assert con.execute('SELECT status FROM m').fetchall() == [('done',)];"
        "print('lightgbm' in sys.modules or 'sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_it_follows_the_contract():
    assert isinstance(GBDT, SamplingLearner)
    assert GBDT.pack_key(config()) == GBDT.pack_key(config(learning_rate=0.5))
    assert GBDT.pack_key(config()) != GBDT.pack_key(config(max_bin=15))


def test_a_booster_goes_on_from_offsets_bit_for_bit(monkeypatch):
    """What was boosted so far is taken over, and not boosted again."""
    label, few = NUMBER, config(num_iterations=9)
    problem, shard = problem_of(label, offset=True), shard_of(label)
    begun, _ = Gbdt().boost(problem, [few], Gbdt().init(problem, [few]), shard, None, Stop("rmse", carries=True))
    rounds, update = [], Booster.update
    monkeypatch.setattr(Booster, "update", lambda self: rounds.append(1) or update(self))
    more = [config(num_iterations=14)]
    found = boost(problem, more, shard)
    assert len(rounds) == 14
    continued, _ = Gbdt().boost(problem, more, Gbdt().trial_state(begun, 0), shard, None, NEVER)
    assert len(rounds) == 14 + 5
    assert continued.tensors["model_0"].tobytes() == found[0].tensors["model_0"].tobytes()
