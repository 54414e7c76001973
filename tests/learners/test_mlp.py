"""The mlp learner against a plain torch loop, and the promises of its state and of its bits."""

import hashlib
import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

import grouplearn
from grouplearn.data.shard import Shard
from grouplearn.kernels.networks import dropout_key, visiting_order
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import SequentialLearner
from grouplearn.learners.neural.mlp import Mlp
from grouplearn.learners.neural.mlp_rows import shape_of
from grouplearn.models.label import LABELLED, NUMBER, SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.state import State

MLP = Mlp()
DEFAULTS = {parameter.name: parameter.default for parameter in MLP.declaration.hyperparameters}
EPOCHS = 4
MODULES = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "gelu": torch.nn.GELU, "sigmoid": torch.nn.Sigmoid}


def config(**values):
    return {**DEFAULTS, **values}


def problem_of(label, n_features=6, seed=11):
    return Problem(label, n_features, n_classes={TWO_CLASSES: 2, SEVERAL_CLASSES: 3}.get(label, 0), seed=seed)


def shard_of(label, n=77, d=6, seed=0, weighted=True):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    signal = x[:, 0] - 2 * x[:, 1] * x[:, 2] + 0.3 * rng.normal(size=n)
    y = {
        NUMBER: 500 + 40 * signal,
        TWO_CLASSES: (signal > 0).astype(float),
        SEVERAL_CLASSES: np.digitize(signal, [-1, 1]).astype(float),
    }[label]
    return Shard(x, y, rng.uniform(0.2, 3, size=n) if weighted else np.ones(n))


def train(problem, configs, shard, epochs=EPOCHS):
    state = MLP.init(problem, configs)
    for epoch in range(epochs):
        state = MLP.train(problem, configs, state, shard, epoch)
    return state


MASK = 2**64 - 1


def mixed(word):
    """SplitMix64 (Steele, Lea & Flood 2014)."""
    word = (word + 0x9E3779B97F4A7C15) & MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def dropout_draws(key, rows, widths):
    """Return per hidden layer the numbers (rows, width) of rows of a block: those of each (row, unit)."""
    found = np.empty((len(rows), sum(widths)), np.float32)
    for at, row in enumerate(rows):
        own = mixed(key ^ row)
        low, high = own & 0xFFFFFFFF, own >> 32
        for unit in range(sum(widths)):
            word = (low + unit * 0x9E3779B9) & 0xFFFFFFFF
            word = ((word ^ (word >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
            word = ((word ^ (word >> 15) ^ high) * 0x846CA68B) & 0xFFFFFFFF
            found[at, unit] = ((word ^ (word >> 16)) >> 8) / 2**24
    return [torch.tensor(each) for each in np.split(found, np.cumsum(widths)[:-1], axis=1)]


class Drop(torch.nn.Module):
    """Dropout with given draws instead of torch's global generator."""

    def __init__(self, rate):
        super().__init__()
        self.rate, self.draws = rate, None

    def forward(self, x):
        return x if self.draws is None else x * (self.draws >= self.rate) / (1 - self.rate)


def batches_in_order(seed, epoch, shard, size):
    """Yield block, rows of it and of the shard: blocks in order, each shuffled, no batch across two of them."""
    for block, (start, stop) in enumerate(itertools.pairwise(shard.bounds)):
        order = torch.from_numpy(visiting_order(seed, epoch, stop - start, block))
        for rows in order.split(size):
            yield block, rows, rows + start


@threadpool_limits.wrap(limits=1)  # a second thread costs small batches more than it saves
def plain_torch(problem, config, shard, epochs=EPOCHS):
    """What a person would write: nn.Sequential, torch.optim, the documented objective and label scaling."""
    widths = [problem.n_features, *(config["hidden_layers"] or ()), problem.n_outputs]
    linears = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    start = MLP.init(problem, [config]).tensors["parameters"]
    with torch.no_grad():
        for linear, (weight, bias) in zip(linears, shape_of(problem, config).layers(start), strict=True):
            linear.weight.copy_(torch.tensor(weight[0]))
            linear.bias.copy_(torch.tensor(bias[0]))
    drops = [Drop(config["dropout"]) for _ in linears[:-1]]
    modules = [
        module
        for linear, drop in zip(linears, drops, strict=False)
        for module in (linear, MODULES[config["activation"]](), drop)
    ]
    net = torch.nn.Sequential(*modules, linears[-1])
    rate = config["learning_rate"]
    optimizer = (
        torch.optim.Adam(net.parameters(), lr=rate)
        if config["optimizer"] == "adam"
        else torch.optim.SGD(net.parameters(), lr=rate, momentum=config["momentum"])
    )
    total, mean, scale = shard.weight.sum(), 0.0, 1.0
    if problem.label == NUMBER:
        mean = np.average(shard.y, weights=shard.weight)
        scale = math.sqrt(np.average((shard.y - mean) ** 2, weights=shard.weight))
    n = len(shard.y)
    x = torch.tensor(shard.x, dtype=torch.float32)
    y = torch.tensor((shard.y - mean) / scale, dtype=torch.float32)
    weight = torch.tensor(shard.weight * n / total, dtype=torch.float32)
    for epoch in range(epochs):
        epoch_loss = 0.0
        for block, own, rows in batches_in_order(problem.seed, epoch, shard, config["batch_size"]):
            if config["dropout"]:
                draws = dropout_draws(dropout_key(problem.seed, epoch, block), own.tolist(), widths[1:-1])
                for drop, draw in zip(drops, draws, strict=True):
                    drop.draws = draw
            out = net(x[rows])
            if problem.label == NUMBER:
                loss = 0.5 * (out[:, 0] - y[rows]) ** 2
            elif problem.label == TWO_CLASSES:
                loss = torch.nn.functional.binary_cross_entropy_with_logits(out[:, 0], y[rows], reduction="none")
            else:
                loss = torch.nn.functional.cross_entropy(out, y[rows].long(), reduction="none")
            objective = (loss * weight[rows]).mean()
            for linear in linears:
                own = linear.weight * (scale if linear is linears[-1] else 1.0)
                penalty = config["l1"] * own.abs().sum() + config["l2"] / 2 * (own**2).sum()
                objective = objective + penalty / (total * scale**2)
            optimizer.zero_grad()
            objective.backward()
            optimizer.step()
            epoch_loss += float(objective.detach()) * len(rows) / n * scale**2
    for drop in drops:
        drop.draws = None
    with torch.no_grad():
        out = net(x)
    if problem.label == NUMBER:
        return mean + scale * out.numpy(), epoch_loss
    return (torch.sigmoid(out) if problem.label == TWO_CLASSES else torch.softmax(out, 1)).numpy(), epoch_loss


VARIANTS = {
    "adam": [config(learning_rate=0.01), config(learning_rate=0.003, dropout=0.0)],
    "sgd momentum": [
        config(optimizer="sgd", learning_rate=0.05, momentum=0.9),
        config(optimizer="sgd", learning_rate=0.1),
    ],
    "dropout": [config(learning_rate=0.01, dropout=0.3, hidden_layers=(16, 8)), config(hidden_layers=(16, 8))],
    "penalties": [config(l1=0.5, l2=2.0, activation="tanh"), config(l2=20.0, activation="tanh")],
    "gelu": [config(activation="gelu", hidden_layers=(5, 4, 3), dropout=0.1, learning_rate=0.02)],
    "sigmoid": [config(activation="sigmoid", batch_size=7, learning_rate=0.02)],
    "linear": [config(hidden_layers=(), l2=3.0, learning_rate=0.05), config(hidden_layers=None, learning_rate=0.01)],
    "one row at a time": [config(batch_size=1, hidden_layers=(3,)), config(batch_size=1, hidden_layers=(3,), l1=1.0)],
}


@pytest.mark.examples(10)
@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_config_of_a_pack_equals_a_plain_torch_loop(label, variant):
    problem, shard, configs = problem_of(label), shard_of(label), VARIANTS[variant]
    assert len({MLP.pack_key(c) for c in configs}) == 1
    state = train(problem, configs, shard)
    scores = MLP.scores(problem, configs, state, shard.x)
    for index, one in enumerate(configs):
        expected, loss = plain_torch(problem, one, shard)
        spread = np.ptp(expected) if label == NUMBER else 1.0
        assert np.abs(scores[:, index] - expected).max() <= 1e-5 * max(spread, 1.0)
        assert MLP.losses(state)[index] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
@pytest.mark.parametrize(("activation", "hidden"), [("relu", ()), ("tanh", (9,)), ("gelu", (17, 1, 11))])
def test_a_pack_of_n_gives_the_bits_of_n_packs_of_one(label, activation, hidden):
    problem, shard = problem_of(label), shard_of(label, n=45)
    configs = [
        config(hidden_layers=hidden, activation=activation, learning_rate=rate, l2=l2, dropout=dropout)
        for rate, l2, dropout in [(0.01, 0.0, 0.0), (0.1, 1.0, 0.5), (0.001, 3.0, 0.2)]
    ]
    together = train(problem, configs, shard, epochs=2)
    for index, one in enumerate(configs):
        alone = train(problem, [one], shard, epochs=2)
        for name, value in alone.tensors.items():
            expected = (
                together.tensors[name] if name.startswith("label_") else together.tensors[name][index : index + 1]
            )
            assert np.array_equal(value, expected), name


#: Of states, predictions and models after two epochs; the same on every processor.
BITS = "0db51a6fdc5981161927d99d86c6468ae810a1823c3a421a08e86f05f58587a2"


def test_the_bits_of_models_are_those_of_every_processor():
    digest, draws = hashlib.sha256(), np.random.default_rng(0)  # drawn by exact operations alone
    x, weight = draws.random((501, 7)) * 2 - 1, draws.random(501) + 0.5
    labels = {
        NUMBER: 40 + x[:, 0] * x[:, 1],
        TWO_CLASSES: (x[:, 0] > x[:, 1]) * 1.0,
        SEVERAL_CLASSES: np.floor(draws.random(501) * 3),
    }
    for label, activation, precision in itertools.product(
        (NUMBER, TWO_CLASSES, SEVERAL_CLASSES), MODULES, ("single", "double")
    ):
        problem, shard = problem_of(label, n_features=7), Shard(x, labels[label], weight)
        both = [config(activation=activation, precision=precision, **own) for own in ({"dropout": 0.1}, {"l1": 0.1})]
        state = train(problem, both, shard, epochs=2)
        digest.update(state.to_bytes() + MLP.scores(problem, both, state, x).tobytes())
        digest.update(MLP.finalize(problem, both, state, 0).tensors["weight_1"].tobytes())
    assert digest.hexdigest() == BITS


def test_state_to_bytes_and_back_goes_on_to_the_same_bytes():
    problem, shard, configs = problem_of(NUMBER), shard_of(NUMBER), VARIANTS["dropout"]
    straight = train(problem, configs, shard, epochs=3)
    state = State.from_bytes(train(problem, configs, shard, epochs=2).to_bytes())
    assert MLP.train(problem, configs, state, shard, 2).to_bytes() == straight.to_bytes()


def test_training_leaves_the_given_state_alone():
    problem, shard, configs = problem_of(TWO_CLASSES), shard_of(TWO_CLASSES), VARIANTS["adam"]
    state = train(problem, configs, shard, epochs=1)
    before = state.to_bytes()
    MLP.train(problem, configs, state, shard, 1)
    assert state.to_bytes() == before


@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
def test_the_artifact_alone_predicts_what_torch_predicts(label):
    problem, shard, configs = problem_of(label), shard_of(label), [config(activation="gelu", hidden_layers=(8, 4))]
    state = train(problem, configs, shard)
    artifact = MLP.finalize(problem, configs, state, 0)
    z = torch.tensor(shard.x, dtype=torch.float32)
    for depth in range(3):
        weight, bias = (
            torch.tensor(artifact.tensors[f"{part}_{depth}"], dtype=torch.float32) for part in ("weight", "bias")
        )
        z = torch.nn.functional.linear(z, weight, bias)
        z = torch.nn.functional.gelu(z) if depth < 2 else z
    link = {NUMBER: lambda v: v, TWO_CLASSES: torch.sigmoid, SEVERAL_CLASSES: lambda v: torch.softmax(v, 1)}
    score = MLP.score(label, artifact, shard.x)
    assert score.shape == (77, problem.n_outputs)
    assert score.dtype == np.float64
    np.testing.assert_allclose(score, link[label](z).numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(MLP.scores(problem, configs, state, shard.x)[:, 0], score)


def test_it_needs_no_torch():
    code = (
        "import sys, numpy as np; sys.modules['torch'] = None;"
        "from grouplearn.learners.neural.mlp import Mlp; from grouplearn.learners.contract.problem import Problem;"
        "from grouplearn.models.label import NUMBER;"
        "from grouplearn.data.shard import Shard;"
        "mlp, x, problem = Mlp(), np.linspace(-1, 1, 40).reshape(20, 2), Problem(NUMBER, 2);"
        "state = mlp.init(problem, [{}]);"
        "state = mlp.train(problem, [{}], state, Shard(x, x[:, 0], np.ones(20)), 0);"
        "print(mlp.scores(problem, [{}], state, x).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(20, 1, 1)"


def test_one_diverging_config_is_done_with_a_nan_loss_and_spoils_no_other():
    problem, shard = problem_of(NUMBER), shard_of(NUMBER)
    good = config(optimizer="sgd", learning_rate=0.01)
    configs = [config(optimizer="sgd", learning_rate=1e30), good]
    state = train(problem, configs, shard)
    assert state.done.tolist() == [True, False]
    assert np.isnan(MLP.losses(state)).tolist() == [True, False]
    alone = train(problem, [good], shard)
    assert np.array_equal(state.tensors["parameters"][1], alone.tensors["parameters"][0])
    assert np.isnan(MLP.scores(problem, configs, state, shard.x)).any(axis=(0, 2)).tolist() == [True, False]


def test_done_configs_stay_as_they_are():
    problem, shard, configs = problem_of(TWO_CLASSES), shard_of(TWO_CLASSES), VARIANTS["adam"]
    state = train(problem, configs, shard, epochs=1)
    frozen = State(state.tensors, np.array([True, False]))
    after = MLP.train(problem, configs, frozen, shard, 1)
    assert np.array_equal(after.tensors["parameters"][0], state.tensors["parameters"][0])
    assert not np.array_equal(after.tensors["parameters"][1], state.tensors["parameters"][1])


@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
@pytest.mark.parametrize("n", [1, 2])
def test_tiny_groups_train(label, n):
    problem, shard = problem_of(label), shard_of(label, n=n)
    state = train(problem, [config()], shard)
    assert np.isfinite(MLP.scores(problem, [config()], state, shard.x)).all()


def test_labels_far_from_zero_are_learnt_in_few_epochs():
    problem, shard = problem_of(NUMBER), shard_of(NUMBER, n=400, weighted=False)
    state = train(problem, [config(learning_rate=0.01)], shard, epochs=20)
    residual = shard.y - MLP.scores(problem, [config()], state, shard.x)[:, 0, 0]
    assert np.mean(residual**2) < 0.2 * np.var(shard.y)


def test_no_rows_to_predict_give_no_predictions():
    problem, shard = problem_of(SEVERAL_CLASSES), shard_of(SEVERAL_CLASSES)
    state = train(problem, [config()], shard, epochs=1)
    assert MLP.scores(problem, [config()], state, shard.x[:0]).shape == (0, 1, 3)


def test_it_follows_the_contract():
    assert isinstance(MLP, SequentialLearner)
    assert MLP.pack_key(config(hidden_layers=None)) == MLP.pack_key(config(hidden_layers=()))
    assert MLP.pack_key(config(batch_size=8)) != MLP.pack_key(config())


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("grouplearn.data.shard.BLOCK_ROWS", 16)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
@pytest.mark.parametrize("variant", ["adam", "dropout", "penalties"])
def test_blocks_visited_in_several_calls_give_the_bits_of_one_call(label, variant):
    problem, shard, configs = problem_of(label), shard_of(label), VARIANTS[variant]
    assert shard.n_blocks == 5
    together = train(problem, configs, shard)
    state = MLP.init(problem, configs)
    for epoch in range(EPOCHS):
        for first, last in [(0, 2), (2, 2), (2, 3), (3, 5)]:
            state = MLP.train(problem, configs, State.from_bytes(state.to_bytes()), shard.part(first, last), epoch)
    assert state.to_bytes() == together.to_bytes()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
def test_batches_stay_inside_a_block_and_blocks_are_shuffled_each_in_its_way(label):
    problem, shard, one = problem_of(label), shard_of(label), config(learning_rate=0.01, batch_size=10)
    expected, loss = plain_torch(problem, one, shard)
    state = train(problem, [one], shard)
    spread = np.ptp(expected) if label == NUMBER else 1.0
    assert np.abs(MLP.scores(problem, [one], state, shard.x)[:, 0] - expected).max() <= 1e-5 * max(spread, 1.0)
    assert MLP.losses(state)[0] == pytest.approx(loss, rel=1e-5)
    orders = [visiting_order(problem.seed, 0, 16, block).tolist() for block in range(4)]
    assert len({tuple(order) for order in orders}) == 4


@pytest.mark.usefixtures("small_blocks")
def test_a_block_whose_rows_were_all_left_out_changes_nothing():
    problem, shard = problem_of(TWO_CLASSES), shard_of(TWO_CLASSES, n=20)
    holed = Shard(shard.x, shard.y, shard.weight, (0, 16, 16, 20))
    state = MLP.train(problem, [config()], MLP.init(problem, [config()]), holed.part(0, 1), 0)
    assert MLP.train(problem, [config()], state, holed.part(1, 2), 0).to_bytes() == state.to_bytes()


@pytest.mark.parametrize(
    "how",
    [
        "OVER GRID (l2 IN (0, 5)) VALIDATE SAMPLE 20% WITH (epochs = 8, early_stopping = 2, dropout = 0.2",
        "WITH (epochs = 3, operator = 'mop', workers = 2",
        "WITH (epochs = 3, operator = 'averaging', partitions = 2, send = 'gradient', sync = 'batch', hidden_layers = []",
        "WITH (epochs = 3, class_weight = {'false': 2.0, 'true': 1.0}, precision = 'double'",
    ],
)
def test_the_positive_class_names_a_class_and_changes_no_network(how: str) -> None:
    """The weights are those of the other class to the last bit, but for the sign of the last layer."""
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT sin(i * 1.7) * 3 AS x, cos(i * 2.9) AS z, sin(i * 1.7) + cos(i * 91.3) > 0.3 AS b"
            " FROM range(400) AS r(i)"
        )
        found = []
        for name in ("true", "false"):
            con.execute(
                f"TRAIN MODEL of_{name} USING mlp PREDICT b FEATURES (x, z) FROM t {how}, positive_class = {name})"
            ).fetchall()
            metrics = con.execute(
                f"SELECT epochs, train_log_loss, valid_log_loss FROM of_{name} ORDER BY ALL"
            ).fetchall()
            shares = con.execute(f"SELECT probability FROM of_{name}_predict(t)").fetchall()
            found.append((metrics, np.array(shares)[:, 0]))
    (metrics, shares), (of_other, others) = found
    np.testing.assert_allclose(shares, 1 - others, rtol=0, atol=1e-15)
    np.testing.assert_allclose(np.array(metrics, float), np.array(of_other, float), rtol=1e-13)
