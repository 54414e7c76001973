"""Networks of the user's own against a plain torch loop, and what is said when they do not fit."""

import json
import threading
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from grouplearn.data import shard as shards
from grouplearn.data.shard import Shard
from grouplearn.kernels.networks import visiting_order
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.neural.declared_hyperparameters import declaration, declared
from grouplearn.learners.neural.network import Network
from grouplearn.models.label import LABELLED, NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.state import Artifact, State

ROWS, EPOCHS, BATCH = 101, 3, 10


def dense(problem: Problem, config: Any) -> nn.Module:
    k = problem.n_outputs
    return nn.Sequential(nn.Linear(problem.n_features, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, k))


def convolutional(problem: Problem, config: Any) -> nn.Module:
    """One channel of 4 x 3 pixels; a class per pixel, or one for the picture."""
    layers = [nn.Unflatten(1, (1, 4, 3)), nn.Conv2d(1, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU()]
    outputs = problem.n_outputs // problem.label_length
    layers.append(nn.Conv2d(5, outputs, 1))
    return nn.Sequential(*layers, *([] if problem.label_length > 1 else [nn.AdaptiveAvgPool2d(1), nn.Flatten()]))


def network(make_module: Any, name: str = "net", **options: Any) -> Network:
    own = declaration(name, "of a test", LABELLED, options.pop("hyperparameters", {}))
    return Network(own, make_module, options.pop("loss", None))


def problem_of(label: Label, label_length: int = 1) -> Problem:
    classes = {NUMBER: 0, TWO_CLASSES: 2, SEVERAL_CLASSES: 3}[label]
    return Problem(label, 12, classes, seed=5, epochs=EPOCHS, label_length=label_length)


def rows_of(problem: Problem) -> Shard:
    random = np.random.default_rng(1)
    x = random.normal(size=(ROWS, 12))
    score = x + random.normal(size=x.shape)
    values = {
        NUMBER: score,
        TWO_CLASSES: score > 0,
        SEVERAL_CLASSES: np.digitize(score, [-0.5, 0.7]),
    }[problem.label].astype(float)
    y = values if problem.label_length > 1 else values[:, 0]
    return Shard(x, y, random.uniform(0.5, 2.0, size=ROWS))


def trained(net: Network, problem: Problem, config: dict[str, Any], rows: Shard) -> State:
    state = net.init(problem, [config])
    for epoch in range(problem.epochs):
        state = net.train(problem, [config], state, rows, epoch)
    return state


@threadpool_limits.wrap(limits=1)  # a second thread costs small batches more than it saves
def plain_torch(make: Any, problem: Problem, config: dict[str, Any], rows: Shard) -> tuple[np.ndarray, float]:
    """What a person would write, with the documented objective; predictions, and the mean objective of the last epoch."""
    torch.manual_seed(problem.seed)
    module = make(problem, config).double()
    optimizer: torch.optim.Optimizer = torch.optim.Adam(module.parameters(), lr=config["learning_rate"])
    if config["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(module.parameters(), lr=config["learning_rate"], momentum=config["momentum"])
    x, y, weight = torch.tensor(rows.x), torch.tensor(rows.y), torch.tensor(rows.weight)
    total = 0.0
    for epoch in range(problem.epochs):
        total = 0.0
        for number, start in enumerate(range(0, ROWS, shards.BLOCK_ROWS)):
            stop = min(start + shards.BLOCK_ROWS, ROWS)
            order = torch.from_numpy(visiting_order(problem.seed, epoch, stop - start, number)) + start
            batches = list(order.split(BATCH))
            if len(batches[-1]) == 1:
                batches[-2:] = [torch.cat(batches[-2:])]
            for batch in batches:
                z = module(x[batch])
                if problem.label == NUMBER:
                    losses = 0.5 * (z.reshape(y[batch].shape) - y[batch]) ** 2
                elif problem.label == TWO_CLASSES:
                    losses = nn.functional.binary_cross_entropy_with_logits(
                        z.reshape(y[batch].shape), y[batch], reduction="none"
                    )
                else:
                    z = z.flatten(2) if problem.label_length > 1 else z
                    losses = nn.functional.cross_entropy(z, y[batch].long(), reduction="none")
                losses = losses.reshape(len(batch), -1).mean(1)
                loss = (losses * weight[batch] * ROWS / weight.sum()).mean()
                weights = [each for each in module.parameters() if each.ndim > 1]
                for each in weights:
                    loss = loss + (config["l1"] * each.abs().sum() + config["l2"] / 2 * (each**2).sum()) / weight.sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(batch)
    with torch.no_grad():
        out = module.eval()(x)
    link = {NUMBER: lambda v: v, TWO_CLASSES: torch.sigmoid, SEVERAL_CLASSES: lambda v: torch.softmax(v, 1)}
    return link[problem.label](out).reshape(ROWS, -1).numpy(), total / ROWS


ADAM = {"optimizer": "adam", "learning_rate": 0.02, "momentum": 0.0, "l1": 0.0, "l2": 2.0}
SGD = {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9, "l1": 0.3, "l2": 0.0}


@pytest.mark.examples(15)
@pytest.mark.parametrize("label", sorted(LABELLED, key=str))
@pytest.mark.parametrize("config", [ADAM, SGD], ids=["adam", "sgd"])
@pytest.mark.parametrize(("make", "length"), [(dense, 1), (convolutional, 1), (convolutional, 12)])
@pytest.mark.parametrize("block", [16_384, 40])
def test_it_equals_a_plain_torch_loop(
    label: Label, config: dict[str, Any], make: Any, length: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "BLOCK_ROWS", block)
    problem = problem_of(label, length)
    rows, net = rows_of(problem), network(make)
    config = {**config, "batch_size": BATCH, "precision": "double"}
    state = trained(net, problem, config, rows)
    expected, loss = plain_torch(make, problem, config, rows)
    np.testing.assert_allclose(net.scores(problem, [config], state, rows.x)[:, 0], expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(net.losses(state), [loss], rtol=1e-7)


def test_a_loss_of_the_users_is_what_descends() -> None:
    def absolute(outputs: Any, labels: Any) -> Any:
        return (outputs[:, 0] - labels).abs()

    problem = problem_of(NUMBER)
    rows = rows_of(problem)
    config = {**ADAM, "l2": 0.0, "batch_size": ROWS, "precision": "double"}
    net = network(dense, loss=absolute)
    state = net.train(problem, [config], net.init(problem, [config]), rows, 0)
    torch.manual_seed(problem.seed)
    module = dense(problem, config).double()
    order = visiting_order(problem.seed, 0, ROWS)
    z = module(torch.tensor(rows.x)[order])[:, 0]
    expected = np.average((z.detach().numpy() - rows.y[order]).__abs__(), weights=rows.weight[order])
    np.testing.assert_allclose(net.losses(state), [expected], rtol=1e-12)


class Counting(nn.Module):
    """Has an integer and a boolean buffer, a tensor without dimensions, weights that are tied, and dropout."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.linear, self.last, self.drop = nn.Linear(width, width), nn.Linear(width, outputs), nn.Dropout(0.3)
        self.again = self.linear
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("met", torch.zeros(3, dtype=torch.bool))
        self.register_buffer("drawn", torch.rand(width), persistent=False)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Any) -> Any:
        if self.training:
            self.seen += len(x)
            self.met[1] = True
        return self.last(self.drop(torch.tanh(self.again(self.linear(x * self.drawn))))) * self.scale


def counting(problem: Problem, config: Any) -> nn.Module:
    return Counting(problem.n_features, problem.n_outputs)


def test_buffers_of_every_type_survive_bytes_and_are_in_the_artifact() -> None:
    problem, net = problem_of(TWO_CLASSES), network(counting)
    rows, configs = rows_of(problem), [ADAM, SGD]
    straight = resumed = net.init(problem, configs)
    for epoch in range(EPOCHS):
        straight = net.train(problem, configs, straight, rows, epoch)
        resumed = State.from_bytes(net.train(problem, configs, resumed, rows, epoch).to_bytes())
    assert straight.to_bytes() == resumed.to_bytes()
    assert int(straight.tensors["module/seen"][0]) == EPOCHS * ROWS
    assert straight.tensors["module/met"][1].tolist() == [False, True, False]
    artifact = net.finalize(problem, configs, straight, 1)
    assert artifact.tensors["module/met"].dtype == np.bool_
    stored = Artifact("tensors", {name: np.atleast_1d(value) for name, value in artifact.tensors.items()})
    live = net.scores(problem, configs, straight, rows.x)[:, 1]
    np.testing.assert_array_equal(net.score(TWO_CLASSES, stored, rows.x), live)


def test_training_is_the_same_in_threads_and_leaves_the_generator_alone() -> None:
    problem, net = problem_of(TWO_CLASSES), network(counting)
    rows = rows_of(problem)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    known = trained(net, problem, ADAM, rows).to_bytes()
    assert torch.equal(torch.get_rng_state(), before)
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(trained(net, problem, ADAM, rows).to_bytes())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [known] * 4


def test_a_pass_in_pieces_is_the_pass_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "BLOCK_ROWS", 16)
    problem, net = problem_of(SEVERAL_CLASSES), network(counting)
    rows = rows_of(problem)
    whole = trained(net, problem, ADAM, rows)
    state = net.init(problem, [ADAM])
    for epoch in range(EPOCHS):
        for first, last in ((0, 2), (2, 3), (3, rows.n_blocks)):
            state = State.from_bytes(net.train(problem, [ADAM], state, rows.part(first, last), epoch).to_bytes())
    assert state.to_bytes() == whole.to_bytes()


def test_every_tensor_belongs_to_a_config() -> None:
    """A config is taken out of its pack by the first axis of each tensor."""
    problem, net = problem_of(TWO_CLASSES), network(counting)
    rows, configs = rows_of(problem), [ADAM, {**ADAM, "learning_rate": 0.5}]
    state = net.train(problem, configs, net.init(problem, configs), rows, 0)
    assert {len(tensor) for tensor in state.tensors.values()} == {2}
    cut = State({name: tensor[1:] for name, tensor in state.tensors.items()}, state.done[1:])
    alone = net.train(problem, configs[1:], cut, rows, 1)
    both = net.train(problem, configs, state, rows, 1)
    for name, tensor in alone.tensors.items():
        np.testing.assert_array_equal(tensor[0], both.tensors[name][1])


def test_modules_of_one_pack_are_alike() -> None:
    problem = problem_of(TWO_CLASSES)
    net = network(lambda problem, config: nn.Linear(12, config["k"] + 1), hyperparameters={"k": 0})
    assert net.pack_key({"k": 0}) != net.pack_key({"k": 1})
    wide = network(lambda problem, config: nn.Sequential(nn.Linear(12, config["k"]), nn.Linear(config["k"], 1)))
    with pytest.raises(
        ValueError, match=r"^configurations of one pack make modules that differ in the shape of module/0"
    ):
        wide.init(problem, [{"k": 1}, {"k": 2}])


def reason(net: Network, label: Label = TWO_CLASSES, length: int = 1) -> str:
    problem = problem_of(label, length)
    with pytest.raises(ValueError, match=r".*") as caught:
        trained(net, problem, {}, rows_of(problem))
    return str(caught.value)


def fails(problem: Problem, config: Any) -> nn.Module:
    raise KeyError("depth")


def test_what_does_not_fit_is_said() -> None:
    assert reason(network(fails)) == "make_module of net raised KeyError: 'depth'"
    nothing = reason(network(lambda problem, config: {"a": 1}))
    assert nothing == "make_module of net returned an object of type dict, not a torch.nn.Module"
    wide = reason(network(lambda problem, config: nn.Linear(12, 4)))
    assert wide == "the module of net gives outputs of shape (2, 4) for 2 rows, and (2, 1) is needed"
    narrow = reason(network(lambda problem, config: nn.Linear(12, 12)), SEVERAL_CLASSES, 12)
    assert narrow == (
        "the module of net gives outputs of shape (2, 12) for 2 rows, and (2, 3, 12), or any shape of (2, 3, ...) "
        "with 12 values per class, is needed"
    )
    other = reason(network(lambda problem, config: nn.Linear(5, 1)))
    assert other.startswith("the module of net raised RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    reduced = reason(network(dense, loss=lambda outputs, labels: ((outputs[:, 0] - labels) ** 2).mean()))
    assert reduced == (
        "loss of net gave () for 10 rows; it returns one loss per row (reduction='none'), as rows have weights"
    ).replace("10 rows", "32 rows")
    assert reason(network(lambda problem, config: nn.Flatten())).startswith("the module of net gives outputs")
    assert "no parameter" in reason(network(lambda problem, config: nn.AdaptiveAvgPool1d(1)))


def test_a_loss_that_is_not_finite_ends_a_config() -> None:
    problem = problem_of(NUMBER)
    net = network(dense, loss=lambda outputs, labels: (outputs[:, 0] - labels) / 0.0 * 0.0)
    state = trained(net, problem, {}, rows_of(problem))
    assert state.done.all()
    assert np.isnan(net.losses(state)).all()


def test_a_model_of_another_module_is_refused() -> None:
    problem, net = problem_of(TWO_CLASSES), network(dense)
    rows = rows_of(problem)
    artifact = net.finalize(problem, [{}], net.init(problem, [{}]), 0)
    with pytest.raises(
        ValueError, match=r"^the tensor 0.bias of the model does not fit the network net as it is registered"
    ):
        network(counting).score(TWO_CLASSES, artifact, rows.x)


def wide(problem: Problem, config: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(problem.n_features, config["width"]), nn.Linear(config["width"], problem.n_outputs))


def test_a_stored_model_is_of_its_group_and_no_larger_than_its_tensors() -> None:
    """Nothing of the module is made until its sizes are known to be those of the tensors: 10 ** 12 of them would be tried."""
    problem = problem_of(NUMBER)
    net = network(wide, hyperparameters={"width": 3})
    sound = net.finalize(problem, [{}], net.init(problem, [{}]), 0)
    made_from = json.loads(sound.tensors["made_from"].tobytes())

    def flaw(**changes: Any) -> str | None:
        text = json.dumps({**made_from, **changes}).encode()
        return net.validation_error(
            problem, Artifact("tensors", {**sound.tensors, "made_from": np.frombuffer(text, np.uint8)})
        )

    assert flaw() is None
    huge = {**made_from["hyperparameters"], "width": 10**12}
    assert flaw(hyperparameters=huge).startswith("its module would have ")
    assert flaw(n_features=10**12) == f"its module is made for n_features = {10**12}, not {problem.n_features}"
    assert flaw(label_length=7) == "its module is made for label_length = 7, not 1"
    assert flaw(task="binary") == "its module is made for 'binary', not regression"
    for sizes in ({"seed": -1}, {"epochs": 1.5}, {"n_classes": "3"}, {"n_features": True}):
        assert flaw(**sizes) == "its module is made from sizes that are none"
    assert flaw(other=1) == "it says something else than what its module is made from"
    assert flaw(hyperparameters=[1]) == "it has no hyperparameters"
    assert flaw(hyperparameters={"width": {"a": 1}}) == "its hyperparameter width is no value"
    deep = network(wide, hyperparameters={"width": {"default": 3, "low": 1, "high": 8}})
    text = json.dumps({**made_from, "hyperparameters": huge}).encode()
    beyond = Artifact("tensors", {**sound.tensors, "made_from": np.frombuffer(text, np.uint8)})
    assert (
        deep.validation_error(problem, beyond)
        == f"its hyperparameter width = {10**12} is beyond what the network declares"
    )
    text = np.frombuffer(b"[" * 100_000, np.uint8)
    assert (
        net.validation_error(problem, Artifact("tensors", {"made_from": text}))
        == "what its module is made from is no JSON"
    )
    assert net.validation_error(problem, Artifact("tensors", {})) == "it does not say what its module is made from"


def test_declared_hyperparameters() -> None:
    own = declared("net", {"width": 8, "act": {"default": "relu", "choices": ["relu", "tanh"]}, "l2": 1})
    by_name = {parameter.name: parameter for parameter in own}
    assert [parameter.name for parameter in own][:2] == ["width", "act"]
    assert (by_name["width"].kind, by_name["act"].choices, by_name["l2"].default) == ("int", ("relu", "tanh"), 1.0)
    assert by_name["learning_rate"].open_low
    for wrong, said in [
        ({"Width": 8}, "a hyperparameter's name is a lower-case identifier, got 'Width'"),
        ({"width": {"low": 1}}, "hyperparameter width declares no default"),
        (
            {"width": {"default": 1, "minimum": 0}},
            'hyperparameter width declares "minimum"; it may declare default, low',
        ),
        ({"width": {"default": 1, "low": "a"}}, "low of hyperparameter width is 'a', which is not allowed"),
        ({"width": None}, "default of hyperparameter width is None, which is not allowed"),
        ({"width": {"default": 0, "low": 1}}, "the default is not allowed: width must be an integer >= 1, got 0"),
    ]:
        with pytest.raises(ValueError, match=r".") as caught:
            declared("net", wrong)
        assert str(caught.value).startswith(said)
