"""Linear learners by coordinate descent: iterates of plain Python, minima of other solvers, the same bits however it is run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from helpers.stacks import stack_of
from helpers.thorough import covering
from sklearn.linear_model import Lasso, LogisticRegression

import grouplearn
from grouplearn.data.shard import Shard
from grouplearn.kernels.linear import coordinate_descent as kernel
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import FeatureBlock, Problem
from grouplearn.learners.linear.coordinate_descent.solver import CoordinateDescentSolver
from grouplearn.learners.linear.learners import LINEAR_REGRESSION, LINEAR_SVM, LOGISTIC_REGRESSION, OF_ONE_LOSS
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.losses.hinge import HINGE
from grouplearn.models.state import State
from grouplearn.train.local_rounds import Cell, LocalRounds

(POISSON_REGRESSION,) = (each for each in OF_ONE_LOSS if each.name == "poisson_regression")
LINEAR, LOGISTIC, POISSON, SVM = map(
    CoordinateDescentSolver, (LINEAR_REGRESSION, LOGISTIC_REGRESSION, POISSON_REGRESSION, LINEAR_SVM)
)
#: A learner, its task and number of classes.
KINDS: dict[str, tuple[CoordinateDescentSolver, Label, int]] = {
    "least squares": (LINEAR, NUMBER, 0),
    "logistic": (LOGISTIC, TWO_CLASSES, 2),
    "softmax": (LOGISTIC, SEVERAL_CLASSES, 3),
    "poisson": (POISSON, NUMBER, 0),
    "svm": (SVM, TWO_CLASSES, 2),
    "svm of classes": (SVM, SEVERAL_CLASSES, 3),
}
GREEDY: Config = {"selection": "greedy"}
CONFIGS: list[Config] = [{"l2": 1.0}, {"l1": 2.0, "l2": 0.0}, {"l1": 0.5, "l2": 0.1}]
#: Two numbers, a category, a list of up to three of 80, an array of three.
ITEMS = (("a", 1), ("b", 1), ("k", 6), ("tags", 80), ("v", 3))
WIDTH = 91


def mixed(kind: str, n: int = 240, seed: int = 1) -> Shard:
    random = np.random.default_rng(seed)
    x = np.zeros((n, WIDTH))
    x[:, :2] = random.normal(size=(n, 2)) * [1, 30] + [0, 100]
    x[np.arange(n), 2 + random.integers(0, 6, n)] = 1
    for _ in range(3):
        x[np.arange(n), 8 + (80 * random.random(n) ** 3).astype(int)] = 1
    x[:, 88:] = random.normal(size=(n, 3)) + 2
    score = x @ (random.normal(size=WIDTH) / np.append([1, 30], np.ones(WIDTH - 2)))
    return Shard(x, labels(kind, score - score.mean(), random), random.uniform(0.5, 2, n))


def labels(kind: str, score: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if kind == "least squares":
        return score + random.normal(size=score.size)
    if kind == "poisson":
        return random.poisson(np.exp(np.clip(0.5 * score, -3, 3))) * 1.0
    cuts = [0] if KINDS[kind][2] == 2 else [-1, 1]
    return np.digitize(score + random.logistic(size=score.size), cuts) * 1.0


def problem_of(kind: str, width: int = WIDTH, items: Any = ITEMS, epochs: int = 3000) -> Problem:
    _, label, classes = KINDS[kind]
    return Problem(label, width, classes, epochs=epochs, items=tuple(FeatureBlock(*item) for item in items))


def whole(problem: Problem, learner: CoordinateDescentSolver, configs: Sequence[Config]) -> LocalRounds:
    return LocalRounds(learner, problem, tuple(configs), lambda: None)


def cells_of(rounds: LocalRounds, shard: Shard) -> list[Cell]:
    return rounds.cells(rounds.learner.init(rounds.problem, rounds.configs), shard)


def trained(
    kind: str, shard: Shard, configs: Sequence[Config] = CONFIGS, items: Any = ITEMS, epochs: int = 3000
) -> tuple[State, np.ndarray]:
    """The state after all epochs in one call, and the curve."""
    learner, problem = KINDS[kind][0], problem_of(kind, shard.x.shape[1], items, epochs)
    rounds = whole(problem, learner, configs)
    cells = cells_of(rounds, shard)
    state = rounds.prepared(learner.init(problem, configs), cells)
    found = learner.descend(problem, configs, state, cells, epochs)
    return found.state, found.curve


def objective(kind: str, shard: Shard, config: Config, weights: np.ndarray, intercept: np.ndarray) -> float:
    """Of weights (k, d) and intercepts (k,), from the definition."""
    score, y, w = np.asarray(shard.x @ weights.T) + intercept, shard.y, shard.weight
    if kind == "least squares":
        losses = 0.5 * (y - score[:, 0]) ** 2
    elif kind == "poisson":
        losses = np.exp(score[:, 0]) - y * score[:, 0] + y * np.log(np.where(y > 0, y, 1)) - y
    elif kind == "logistic":
        losses = np.logaddexp(0, -(2 * y - 1) * score[:, 0])
    elif kind == "softmax":
        losses = np.logaddexp.reduce(score, axis=1) - score[np.arange(len(y)), y.astype(int)]
    else:
        sign = 2 * (y[:, None] == (np.arange(score.shape[1]) if score.shape[1] > 1 else [1.0])) - 1
        losses = (np.maximum(0, 1 - sign * score) ** 2).sum(axis=1)
    penalty = config.get("l1", 0.0) * np.abs(weights).sum() + 0.5 * config["l2"] * (weights**2).sum()  # type: ignore[operator]
    return float((w * losses).sum() + penalty)


def best(kind: str, shard: Shard, configs: Sequence[Config]) -> np.ndarray:
    """The minima (C,) of the learner's usual way."""
    learner: Any = registry.learner(KINDS[kind][0].declaration.name)
    tight = [{**config, "tolerance": 1e-13} for config in configs]
    problem = problem_of(kind, shard.x.shape[1], (), 1000)
    dense = replace(shard, x=shard.x.toarray()) if scipy.sparse.issparse(shard.x) else shard
    return np.asarray(learner.solve(problem, tight, stack_of([dense]), lambda _: None, lambda: False).loss[0])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of scikit-learn, which counts its own iterations
        yield


def plain_descent(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, l1: float, l2: float, numbers: Sequence[int], fit_intercept: bool
) -> Iterator[tuple[np.ndarray, float]]:
    """Algorithm 1 of the paper, one column after the other; with an intercept it is a column first, and numbers are centred."""
    x = x.copy()
    mean = np.zeros(x.shape[1])
    if fit_intercept:
        mean[numbers] = weight @ x[:, numbers] / weight.sum()
    x -= mean
    theta, level = np.zeros(x.shape[1]), weight @ y / weight.sum() if fit_intercept else 0.0
    while True:
        if fit_intercept:
            level += weight @ (y - level - x @ theta) / weight.sum()
        for j in range(x.shape[1]):
            rest = y - level - x @ theta + x[:, j] * theta[j]
            up, down = weight @ (x[:, j] * rest), weight @ x[:, j] ** 2 + l2
            theta[j] = np.sign(up) * max(0.0, abs(up) - l1) / down if down > 0 else 0.0
        yield theta, level - mean @ theta


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 1.0), (3.0, 0.0), (1.0, 0.5)])
def test_iterates_are_those_of_descent_one_column_after_the_other(l1: float, l2: float, fit_intercept: bool) -> None:
    shard = mixed("least squares")
    x = np.concatenate([shard.x[:, :8], np.eye(9)[np.arange(240) % 9] * shard.x[:, :1]], axis=1)
    x[:5, 2:8] = 0  # rows without a category: the block is not complete, and none of it is shifted
    shard = Shard(x, shard.y, shard.weight)
    items = (("a", 1), ("b", 1), ("k", 6), ("h", 9))
    config = {"l1": l1, "l2": l2, "fit_intercept": fit_intercept, "tolerance": 1e-300, "acceleration": "none"}
    for epoch, (weights, intercept) in enumerate(
        plain_descent(x, shard.y, shard.weight, l1, l2, [0, 1], fit_intercept)
    ):
        if epoch == 12:
            break
        state, _ = trained("least squares", shard, [config], items, epoch + 1)
        model = LINEAR.finalize(problem_of("least squares"), [config], state, 0)
        np.testing.assert_allclose(model.tensors["weights"][0], weights, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(model.tensors["intercept"][0], intercept, rtol=1e-11, atol=1e-11)


@pytest.mark.examples(4)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_it_reaches_the_minimum_and_never_rises(kind: str, sparse: bool) -> None:
    shard = mixed(kind)
    given = replace(shard, x=scipy.sparse.csr_matrix(shard.x)) if sparse else shard
    state, curve = trained(kind, given)
    assert state.done.all()
    learner, expected = KINDS[kind][0], best(kind, shard, CONFIGS)
    for number, config in enumerate(CONFIGS):
        model = learner.finalize(problem_of(kind), CONFIGS, state, number).tensors
        reached = objective(kind, shard, config, model["weights"], model["intercept"])
        assert reached == pytest.approx(learner.losses(state)[number], rel=1e-10)
        assert reached <= expected[number] * (1 + 1e-6)
        assert (np.diff(curve[:, number]) <= 1e-12 * curve[0, number]).all()
    if sparse:  # a zero that is stored and one that is not are one
        assert state.to_bytes() == trained(kind, shard)[0].to_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_chosen_blocks_reach_the_minimum_and_never_rise(kind: str) -> None:
    shard = mixed(kind)
    expected = best(kind, shard, CONFIGS)
    for config, least in zip(CONFIGS, expected, strict=True):
        state, curve = trained(kind, shard, [{**config, **GREEDY}])
        assert state.done.all()
        assert state.tensors["loss"][0] <= least * (1 + 1e-6)
        assert (np.diff(curve[:, 0]) <= 1e-12 * curve[0, 0]).all()


def test_blocks_are_chosen_by_how_much_the_objective_fell() -> None:
    """Of least squares in blocks of which rows have one entry, what a round is expected to gain is what it gains."""
    shard, config = mixed("least squares"), {"l1": 0.5, "l2": 0.1, **GREEDY}
    problem = problem_of("least squares", items=ITEMS)
    rounds = whole(problem, LINEAR, [config])
    cells = cells_of(rounds, shard)
    state = rounds.prepared(LINEAR.init(problem, [config]), cells)
    ends = False
    while not ends:
        ends = LINEAR.next_round(problem, [config], state).ends_epoch
        state = rounds.after_round(state, cells)
    looked = 0
    for _ in range(3):
        while not LINEAR.next_round(problem, [config], state).ends_epoch:
            number = int(state.tensors["round"][0])
            block = int(state.tensors["order"][0, number])
            after = rounds.after_round(state, cells)
            fell = value_of(shard, config, state) - value_of(shard, config, after)
            # Before the first the intercept made its step, too, and of lists rows have several entries.
            if number and state.tensors["form"][0, block] < kernel.RAGGED:
                noted = 0.5 * (state.tensors["gains"][0, block] + fell)
                assert after.tensors["gains"][0, block] == pytest.approx(noted, rel=1e-6, abs=1e-9)
                looked += 1
            state = after
        state = rounds.after_round(state, cells)
    assert looked >= 9


def value_of(shard: Shard, config: Config, state: State) -> float:
    """The objective between two rounds, at the weights as they are."""
    weights, level = state.tensors["weights"][0, :, :-1], state.tensors["weights"][0, :, -1]
    return objective("least squares", shard, config, weights, level - weights @ state.tensors["mean"][0])


@pytest.mark.parametrize("l1", [0.0, 20.0])
def test_chosen_blocks_take_fewer_epochs_where_some_are_hard(l1: float) -> None:
    random = np.random.default_rng(3)
    hard = random.normal(size=(2000, 8)) + 3 * random.normal(size=(2000, 1))
    x = np.concatenate([hard, random.normal(size=(2000, 52))], axis=1)
    shard = Shard(x, x[:, :20] @ random.normal(size=20) + random.normal(size=2000), np.ones(2000))
    items = tuple((f"x{j}", 1) for j in range(60))
    config = {"l1": l1, "l2": 1.0 - (l1 > 0), "acceleration": "none"}
    cyclic, greedy = (trained("least squares", shard, [{**config, **each}], items) for each in ({}, GREEDY))
    assert cyclic[0].done.all()
    assert greedy[0].done.all()
    np.testing.assert_allclose(greedy[0].tensors["loss"], cyclic[0].tensors["loss"], rtol=2e-8)
    assert len(greedy[1]) < len(cyclic[1]) / 2


def test_each_config_chooses_for_itself() -> None:
    configs: list[Config] = [{"l2": 1.0, **GREEDY}, {"l2": 2.0, **GREEDY}, {"l2": 1.0}, {"l2": 2.0}]
    keys = [LOGISTIC.pack_key(config) for config in configs]
    assert len(set(keys)) == 3
    assert keys[2] == keys[3]


def categories(kind: str, count: int, values: int, n: int = 3000) -> tuple[Shard, Any]:
    """One-hot items of which every row has one value each, and their names and widths."""
    random = np.random.default_rng(5)
    codes = (values * random.random((n, count)) ** 2).astype(int) + values * np.arange(count)
    x = scipy.sparse.csr_matrix((np.ones(codes.size), codes.ravel(), np.arange(n + 1) * count), (n, values * count))
    score = x @ random.normal(size=values * count) / count**0.5
    return Shard(x, labels(kind, score, random), np.ones(n)), tuple((f"k{number}", values) for number in range(count))


@pytest.mark.parametrize(
    "config",
    [{"l2": 1.0}, {"l1": 2.0, "l2": 0.0}, {"l1": 1.0, "l2": 0.5}, {"l2": 1.0, "fit_intercept": False}],
    ids=str,
)
@pytest.mark.parametrize("kind", ["least squares", "logistic", "softmax", "poisson", "svm"])
def test_what_categories_have_in_common_costs_few_epochs(kind: str, config: Config) -> None:
    """The weights of every item may go up where another's, or the intercept, go down: one after the other took hundreds."""
    shard, items = categories(kind, 5, 30)
    state, curve = trained(kind, shard, [config], items)
    assert state.done.all()
    # Of a softmax with l1 the weights of its classes have something in common, too, which goes as before.
    assert len(curve) <= (100 if kind == "softmax" and config.get("l1") else 20)
    if config["l2"] and (kind != "softmax" or "l1" not in config):  # which takes the usual way a minute
        assert state.tensors["loss"][0] <= best(kind, shard, [config])[0] * (1 + 1e-7)


def listed(kind: str, n: int = 3000) -> tuple[Shard, Any]:
    """Two categories, and a list of three elements of 90 in every row: what all elements gain the intercept may lose."""
    random = np.random.default_rng(5)
    drawn = (np.array([30, 30, 90, 90, 90]) * random.random((n, 5)) ** 2).astype(int) + np.array([0, 30, 60, 60, 60])
    x = scipy.sparse.csr_matrix((np.ones(drawn.size), drawn.ravel(), np.arange(n + 1) * 5), (n, 150))
    x.sum_duplicates()
    score = x @ random.normal(size=150) / 5**0.5
    return Shard(x, labels(kind, score, random), np.ones(n)), (("k0", 30), ("k1", 30), ("tags", 90))


@pytest.mark.examples(4)
@pytest.mark.parametrize("config", [{"l2": 0.1}, {"l1": 2.0, "l2": 0.0}], ids=str)
@pytest.mark.parametrize("kind", ["least squares", "logistic", "poisson", "svm"])
def test_leaps_go_where_epochs_creep(kind: str, config: Config) -> None:
    shard, items = listed(kind)
    leaping, creeping = (
        trained(kind, shard, [{**config, "tolerance": 1e-9, "acceleration": each}], items) for each in ("leaps", "none")
    )
    assert leaping[0].done.all()
    assert (np.diff(leaping[1][:, 0]) <= 1e-12 * leaping[1][0, 0]).all()
    least = min(leaping[1].min(), creeping[1].min())
    assert leaping[0].tensors["loss"][0] <= least * (1 + 2e-9)
    near = [int((curve[:, 0] > least * (1 + 1e-7)).sum()) for _, curve in (leaping, creeping)]
    assert near[0] <= 0.6 * near[1]


@pytest.mark.parametrize(
    ("kind", "acceleration", "selection"),
    covering(["least squares", "logistic", "poisson", "svm"], ["leaps", "none"], ["cyclic", "greedy"]),
)
def test_with_l1_the_end_is_known_where_slopes_show_it(kind: str, acceleration: str, selection: str) -> None:
    """No slope at the end is off by much more than the square root of the tolerance; far from the end none says so."""
    shard, items = listed(kind)
    config = {"l1": 2.0, "l2": 0.0, "acceleration": acceleration, "selection": selection}
    learner, problem = KINDS[kind][0], problem_of(kind, 150, items)
    state, curve = trained(kind, shard, [config], items)
    assert learner.proves_convergence(state, 0)
    assert off_by(kind, shard, learner.finalize(problem, [config], state, 0).tensors) <= 2e-4 * 2.0
    before, _ = trained(kind, shard, [config], items, len(curve) - 1)
    assert not learner.proves_convergence(before, 0)
    without, _ = trained(kind, shard, [{**config, "l1": 0.0, "tolerance": 1e-4}], items)
    assert without.done[0]
    assert not learner.proves_convergence(without, 0)


def off_by(kind: str, shard: Shard, model: Any) -> float:
    """How far the slope of any column is from where l1 = 2 holds its weight."""
    weights = model["weights"][0]
    score, y = shard.x @ weights + model["intercept"][0], shard.y
    sign = 2 * y - 1
    slope = {
        "least squares": lambda: score - y,
        "logistic": lambda: 1 / (1 + np.exp(-score)) - y,
        "poisson": lambda: np.exp(score) - y,
        "svm": lambda: -2 * sign * np.maximum(0, 1 - sign * score),
    }[kind]()
    slopes = shard.x.T @ (shard.weight * slope)
    at_zero = np.maximum(0, np.abs(slopes) - 2.0)
    return float(np.where(weights == 0, at_zero, np.abs(slopes + 2.0 * np.sign(weights))).max())


@pytest.mark.parametrize("selection", ["cyclic", "greedy"])
@pytest.mark.parametrize("l2", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("kind", ["least squares", "poisson", "logistic"])
def test_who_says_that_it_is_done_is_at_the_minimum(kind: str, l2: float, selection: str) -> None:
    """A column and its double: their difference is worth 1e-4, and gains of some 1e-12 an epoch lead there."""
    i = np.arange(300)
    x = (i * 7919 % 101) / 10.0
    y = np.round(10 * x + i % 11 * 3.0 + i * 13 % 7)
    shard = Shard(np.stack([x, 2 * x], axis=1), (y > 60) * 1.0 if kind == "logistic" else y, np.ones(300))
    config = {"l2": l2, "selection": selection}
    state, _ = trained(kind, shard, [config], (("a", 1), ("b", 1)), 300)
    least = best(kind, shard, [config])[0]
    assert not state.done[0] or state.tensors["loss"][0] <= least * (1 + 1.01e-8)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("l1", [0.03, 0.1, 0.3])
@pytest.mark.parametrize("kind", ["svm", "logistic"])
def test_small_groups_with_l1_end_at_the_minimum(kind: str, l1: float, intercept: bool) -> None:
    """Of a weight whose rows are all beyond the margin no loss says anything: l1 alone takes it to 0."""
    random = np.random.default_rng(8)
    for _ in range(20):
        n, config = 40, {"l1": l1, "l2": 0.0, "fit_intercept": intercept, "tolerance": 1e-8}
        categories = [np.eye(6)[random.integers(0, 6, n)], np.eye(4)[random.integers(0, 4, n)]]
        x = np.hstack([*categories, random.normal(size=(n, 1))])
        y = (x @ random.normal(size=11) + 0.5 * random.logistic(size=n) > 0) * 1.0
        shard = Shard(x, y, np.ones(n))
        state, _ = trained(kind, shard, [config], (("u", 6), ("v", 4), ("x", 1)))
        assert state.done[0]
        assert state.tensors["loss"][0] <= best(kind, shard, [config])[0] * (1 + 1e-5)


@pytest.mark.parametrize("kind", ["least squares", "logistic", "poisson"])
def test_all_columns_at_once_reach_the_same_minimum_later(kind: str) -> None:
    """Sibyl's way: one round an epoch, in which rows have many entries, and columns are of all sizes."""
    shard = mixed(kind)
    by_item, together = (
        trained(kind, shard, [{**config, "blocks": blocks} for config in CONFIGS], epochs=20_000)
        for blocks in ("items", "one")
    )
    assert together[0].done.all()
    falls = np.diff(together[1][:1000], axis=0)
    assert (falls <= 1e-12 * together[1][0].max())[~np.isnan(falls)].all()
    np.testing.assert_allclose(together[0].tensors["loss"], by_item[0].tensors["loss"], rtol=1e-7)
    assert len(together[1]) > 2 * len(by_item[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_pack_has_the_bits_of_each_config_alone(kind: str) -> None:
    shard = mixed(kind)
    configs = [{"l1": 0.5 * (i % 3), "l2": 0.3 * (i % 4)} for i in range(10)]
    state, _ = trained(kind, shard, configs, epochs=40)
    for number in (0, 3, 8, 9):
        alone, _ = trained(kind, shard, configs[number : number + 1], epochs=40)
        for name, tensor in alone.tensors.items():
            past = name == "path" and alone.done[0]  # of a model that is done it has no meaning
            if len(state.tensors[name]) == len(configs) and name != "epoch" and not past:
                assert state.tensors[name][number].tobytes() == tensor[0].tobytes(), (number, name)


def cut(shard: Shard, length: int = 10) -> Shard:
    """The rows in blocks of so many, with one that has none."""
    cuts = [*range(0, shard.n_rows, length), shard.n_rows]
    return replace(shard, cuts=tuple(sorted([*cuts, cuts[3]])))


@pytest.mark.examples(5)
@pytest.mark.parametrize("selection", ["cyclic", "greedy"])
@pytest.mark.parametrize("kind", KINDS)
def test_rounds_have_the_bits_of_whole_epochs_whatever_is_lost_on_the_way(kind: str, selection: str) -> None:
    """Over 24 cells: parts of columns, states through bytes, memories that are lost, work that is done twice."""
    learner, shard = KINDS[kind][0], cut(mixed(kind))
    configs = CONFIGS if selection == "cyclic" else [{**CONFIGS[2], **GREEDY}]
    problem = problem_of(kind, epochs=9)
    rounds = whole(problem, learner, configs)
    cells = cells_of(rounds, shard)
    assert len(cells) == 24
    expected, _ = trained(kind, shard, configs, epochs=9)
    random = np.random.default_rng(3)
    state, ended, elsewhere = learner.init(problem, configs), 0, cells_of(rounds, shard)
    while ended < 9 and not state.done.all():  # the eighth ends with a leap
        ended += learner.next_round(problem, configs, state).ends_epoch
        for place in random.integers(0, 24, 3):  # a worker dies: what it remembered is gone
            rows = cells[place][0]
            cells[place] = rows, learner.remember(problem, configs, state, rows)
        for place in 8 + np.flatnonzero(random.random(8) < 0.3):  # another takes a cell over, or gets it back
            cells[place], elsewhere[place] = elsewhere[place], cells[place]
        list(learner.work(problem, configs, state, [cells[5]]))  # and another is slow: its work was done elsewhere, too
        state = rounds.after_round(State.from_bytes(state.to_bytes()), cells, int(random.integers(1, 5)))
    assert state.to_bytes() == expected.to_bytes()


def test_who_gets_a_cell_back_within_an_epoch_predicts_no_row_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = mixed("logistic")
    problem = problem_of("logistic", epochs=5)
    rounds = whole(problem, LOGISTIC, CONFIGS)
    cells, others = cells_of(rounds, shard), cells_of(rounds, shard)
    state = rounds.prepared(LOGISTIC.init(problem, CONFIGS), cells)
    for number in range(7):
        state = rounds.after_round(state, others if number in (2, 3, 5) else cells)
    assert len(state.tensors["form"][0]) > 7
    measured: list[str] = []
    monkeypatch.setattr(kernel.GroupRounds, "measure", lambda *_: measured.append("anew"))
    rounds.after_round(state, others)
    assert not measured


def test_an_interrupted_round_leaves_nothing_behind() -> None:
    from grouplearn.kernels.library import calling_back

    shard = mixed("logistic", 4_000)
    problem = problem_of("logistic", epochs=5)
    rounds = whole(problem, LOGISTIC, CONFIGS)
    cells = cells_of(rounds, shard)
    state = rounds.prepared(LOGISTIC.init(problem, CONFIGS), cells)
    before = state.to_bytes()
    expected = LOGISTIC.descend(problem, CONFIGS, state, cells, 5).state.to_bytes()
    for looks in (1, 2, 5, 9):
        count = 0

        def look(looks: int = looks) -> None:
            nonlocal count
            count += 1
            if count > looks:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), calling_back(look, every=0):
            LOGISTIC.descend(problem, CONFIGS, state, cells, 5)
        assert state.to_bytes() == before
        assert LOGISTIC.descend(problem, CONFIGS, state, cells, 5).state.to_bytes() == expected


@pytest.mark.parametrize("selection", ["cyclic", "greedy"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_from_a_file_is_gone_on_from_and_no_other(kind: str, selection: str) -> None:
    learner, problem = KINDS[kind][0], problem_of(kind)
    configs = CONFIGS if selection == "cyclic" else [{**CONFIGS[0], **GREEDY}]
    begun = learner.init(problem, configs)
    state, _ = trained(kind, mixed(kind), configs, epochs=5)
    assert state.tensors["path"].shape[1] == 3
    again = State.from_bytes(state.to_bytes())
    assert learner.resumes(problem, configs, begun)
    assert learner.resumes(problem, configs, again)
    other = [{**config, **GREEDY} for config in CONFIGS] if selection == "cyclic" else CONFIGS[:1]
    assert not learner.resumes(problem, other, again)
    assert not learner.resumes(problem, [*configs, *configs], again)
    for name, tensor in again.tensors.items():
        for changed in (tensor[..., :0], tensor.astype(np.float16), tensor[None], np.zeros((), tensor.dtype)):
            assert not learner.resumes(problem, configs, State({**again.tensors, name: changed}, again.done)), name
    wrong = [("first", -1, 7), ("first", -1, -1), ("form", -1, 9), ("round", -1, 1), ("round", -1, 10**6)]
    if selection == "greedy":
        wrong += [("order", 0, -1), ("order", 3, 99), ("gains", 2, np.nan), ("gains", 2, -1), ("waits", 1, -1)]
    for name, place, value in wrong:
        changed = again.tensors[name].copy()
        changed[..., place] = value
        assert not learner.resumes(problem, configs, State({**again.tensors, name: changed}, again.done)), (name, value)


@pytest.mark.parametrize("selection", ["cyclic", "greedy"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_within_an_epoch_is_gone_on_from_and_no_other(kind: str, selection: str) -> None:
    """Whoever goes on has no predictions of the rows; the epoch is the first that ends with an extrapolation."""
    learner, problem, shard = KINDS[kind][0], problem_of(kind), mixed(kind)
    configs = CONFIGS if selection == "cyclic" else [{**CONFIGS[0], **GREEDY}]
    rounds = whole(problem, learner, configs)
    state, _ = trained(kind, shard, configs, epochs=7)
    assert not rounds.is_within_epoch(state)
    cells, reached = cells_of(rounds, shard), []
    while not learner.next_round(problem, configs, state).ends_epoch:
        state = rounds.after_round(state, cells)
        reached.append(state)
    assert "leap" in state.tensors
    expected = rounds.after_round(state, cells).to_bytes()
    for state in [*reached[:: max(1, len(reached) // 5)], reached[-1]]:
        again = State.from_bytes(state.to_bytes())
        assert rounds.is_within_epoch(again)
        assert learner.resumes(problem, configs, again)
        number, wrong = int(again.tensors["round"][0]), []
        for name in {"steps", "round", "before", "path", "start", "leap"} & again.tensors.keys():
            tensor = again.tensors[name]
            wrong += [{name: tensor[..., : min(number, tensor.shape[-1] - 1)]}, {name: tensor.astype(np.float16)}]
            wrong += [{name: tensor[None]}]
            assert not learner.resumes(problem, configs, State(without(again.tensors, name), again.done)), name
        wrong += [{"round": np.full(1, other)} for other in (0, len(reached) + 1, -2, 10**6)]
        wrong += [{"start": np.full(len(configs), np.nan)}]
        if number < len(reached):
            wrong += [{"leap": again.tensors["weights"]}]
        for change in wrong:
            assert not learner.resumes(problem, configs, State({**again.tensors, **change}, again.done)), change.keys()
        new, ended = cells_of(rounds, shard), False
        while not ended:
            ended = learner.next_round(problem, configs, again).ends_epoch
            again = rounds.after_round(again, new)
        assert again.to_bytes() == expected


def without(tensors: Any, name: str) -> dict[str, Any]:
    return {key: each for key, each in tensors.items() if key != name}


def test_configs_go_on_in_other_packs() -> None:
    """What all configs share has a row for each where packs are put together."""
    shard = mixed("logistic")
    problem = problem_of("logistic")
    state, _ = trained("logistic", shard, epochs=4)
    names = {name: np.repeat(each, 3, axis=0) if len(each) == 1 else each for name, each in state.tensors.items()}
    joined = State(names, state.done)
    assert LOGISTIC.resumes(problem, CONFIGS, joined)
    straight, _ = trained("logistic", shard, epochs=7)
    rounds = whole(problem, LOGISTIC, CONFIGS)
    found = LOGISTIC.descend(problem, CONFIGS, joined, cells_of(rounds, shard), 3).state
    assert found.tensors["weights"].tobytes() == straight.tensors["weights"].tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_rows_that_are_there_as_often(kind: str) -> None:
    shard = mixed(kind)
    times = np.random.default_rng(3).integers(1, 4, shard.n_rows)
    weighted = replace(shard, weight=times * 1.0)
    repeated = Shard(*(np.repeat(each, times, axis=0) for each in (shard.x, shard.y)), np.ones(times.sum()))
    one, other = (trained(kind, each)[0].tensors["loss"] for each in (weighted, repeated))
    np.testing.assert_allclose(one, other, rtol=2e-8)


@pytest.mark.parametrize("kind", ["least squares", "logistic"])
def test_twenty_thousand_sparse_columns(kind: str) -> None:
    random = np.random.default_rng(7)
    n, widths = 3_000 if kind == "least squares" else 600, (12_000, 8_000)
    codes = [(width * random.random(n) ** 2).astype(int) for width in widths]
    lists = [(8_000 * random.random(n) ** 2).astype(int) for _ in range(2)]
    parts = [scipy.sparse.csr_matrix((np.ones(n), (np.arange(n), codes[0])), shape=(n, 12_000))]
    parts.append(sum(scipy.sparse.csr_matrix((np.ones(n), (np.arange(n), each)), shape=(n, 8_000)) for each in lists))
    x = scipy.sparse.hstack(parts).tocsr()
    score = x @ random.normal(size=20_000)
    shard = Shard(x, labels(kind, score, random), np.ones(n))
    configs = [{"l2": 1.0}, {"l1": 1.0, "l2": 0.0}]
    state, _ = trained(kind, shard, configs, (("k", 12_000), ("tags", 8_000)))
    assert state.done.all()
    if kind == "logistic":
        ridge = LogisticRegression(C=1, tol=1e-9, max_iter=5_000).fit(x, shard.y)
        expected = objective(kind, shard, configs[0], ridge.coef_, ridge.intercept_)
        assert state.tensors["loss"][0] == pytest.approx(expected, rel=1e-6)
    lasso = (
        Lasso(alpha=1 / n, tol=1e-10, max_iter=100_000)
        if kind == "least squares"
        else LogisticRegression(C=1, l1_ratio=1, solver="saga", tol=1e-7, max_iter=5_000)
    )
    lasso.fit(x, shard.y)
    weights = np.asarray(lasso.coef_).reshape(1, -1)
    expected = objective(kind, shard, configs[1], weights, np.atleast_1d(lasso.intercept_))
    assert state.tensors["loss"][1] == pytest.approx(expected, rel=1e-5)


def apart(what: str) -> Shard:
    """Rows that leave directions in which nothing bends, or that are hard in other ways."""
    random = np.random.default_rng(4)
    x = random.normal(size=(25 if what == "fewer rows than columns" else 120, 40 if what.startswith("fewer") else 6))
    y = (x[:, 0] + 0.5 * x[:, 1] > 0) * 1.0
    if what != "separable":
        y[:3] = 1 - y[:3]
    if what == "constant columns":
        x[:, 5], x[:, 4], x[:, 3] = 7.3, 0.0, 1e9 + random.normal(size=120) * 1e-8
    if what == "one class":
        y[:] = 1
    if what == "far from zero":
        x = x * 1e-3 + 1e4
    if what == "large":
        x = x * 1e8
    if what == "long tails":
        x = np.exp(2 * x)
    return Shard(x, y, np.ones(len(x)))


@pytest.mark.parametrize(
    "what",
    ["separable", "constant columns", "fewer rows than columns", "one class", "far from zero", "large", "long tails"],
)
@pytest.mark.parametrize("kind", ["least squares", "logistic", "poisson", "svm"])
def test_hard_rows_do_no_harm(kind: str, what: str) -> None:
    shard, configs = apart(what), [{"l2": 1.0}, {"l1": 0.5, "l2": 0.01}, {"l2": 0.0}]
    items = tuple((f"x{j}", 1) for j in range(shard.x.shape[1]))
    state, curve = trained(kind, shard, configs, items, 2_000)
    for number in range(3):
        taken = curve[~np.isnan(curve[:, number]), number]
        assert np.isfinite(taken).all()
        assert (np.diff(taken) <= 1e-12 * taken[0]).all()
    weights = LOGISTIC.finalize(problem_of(kind), configs, state, 0).tensors["weights"]
    assert np.isfinite(weights).all()
    if what == "constant columns":
        assert (weights[:, 3:] == 0).all()
    expected = best(kind, shard, configs[:2])
    reached = state.tensors["loss"][:2]
    assert (reached <= expected * (1 + 1e-6) + 1e-9)[state.done[:2]].all()
    assert state.done[0] or what == "long tails"


def test_no_columns_leave_an_intercept() -> None:
    shard = Shard(np.empty((9, 0)), np.arange(9) % 3 % 2 * 1.0, np.ones(9))
    state, _ = trained("logistic", shard, [{"l2": 1.0}], ())
    model = LOGISTIC.finalize(problem_of("logistic", 0), [{}], state, 0).tensors
    assert model["intercept"][0] == pytest.approx(np.log(3 / 6), abs=1e-9)
    assert model["weights"].shape == (1, 0)


def test_what_cannot_be_learned_is_told() -> None:
    shard = mixed("poisson")
    with pytest.raises(ValueError, match="the label is negative in 1 row"):
        trained("poisson", replace(shard, y=np.where(np.arange(shard.n_rows) == 3, -1.0, shard.y)))
    x = shard.x.copy()
    x[7, 1] = 1e200
    with pytest.raises(Diverged, match="the squares of feature column 2 overflow"):
        trained("least squares", replace(shard, x=x))
    with pytest.raises(Diverged, match="the squares of the label overflow"):
        trained("least squares", replace(shard, y=shard.y * 1e200))


def test_the_hinge_is_refused_with_its_reason() -> None:
    loss = next(each for each in SVM.declaration.hyperparameters if each.name == "loss")
    assert loss.choices == ("squared_hinge",)
    assert dict(loss.refused)["hinge"].startswith("coordinate descent stops at its kinks")


def test_an_objective_of_none_but_refused_losses_is_refused() -> None:
    with pytest.raises(
        ValueError, match="linear_svm cannot be trained by coordinate_descent: coordinate descent stops"
    ):
        CoordinateDescentSolver(replace(LINEAR_SVM, losses=(HINGE,)))


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_those_of_the_usual_way(kind: str) -> None:
    """Artifacts, scores and probabilities go the same ways."""
    learner = KINDS[kind][0]
    usual = registry.learner(learner.declaration.name)
    assert (learner.declaration.labels, learner.declaration.form, learner.declaration.log_link) == (
        usual.declaration.labels,
        usual.declaration.form,
        usual.declaration.log_link,
    )
    shard, problem = mixed(kind), problem_of(kind)
    state, _ = trained(kind, shard, epochs=5)
    for number in range(3):
        model = learner.finalize(problem, CONFIGS, state, number)
        assert learner.validation_error(problem, model) is None
        scores = learner.scores(problem, CONFIGS, state, shard.x)[:, number]
        np.testing.assert_allclose(learner.score(problem.label, model, shard.x), scores, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(usual.score(problem.label, model, shard.x), scores, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("learner", "others"),
    [
        ("linear_regression", "x * 2 AS x2"),
        ("linear_regression", "x + noise / 1000 AS nearly"),
        ("poisson_regression", "x + noise / 1000 AS nearly"),
    ],
)
def test_columns_that_say_the_same_do_not_end_training_before_it_is_done(learner: str, others: str) -> None:
    """An epoch of great gains is followed by thousands of small ones: of the first of these it seemed that nothing was left."""
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT (i * 7919 % 101) / 10.0 AS x, (i * 31 % 17) - 8.0 AS noise, "
            "x + (i % 11) * 0.3 + ((i * 13) % 7) * 0.1 AS y FROM range(300) AS r(i)"
        )
        reached = []
        for solver in ("", ", solver = 'coordinate_descent'"):
            con.execute(
                f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT y FEATURES (x, 7 AS c, {others}) FROM t WITH (l2 = 1{solver})"
            ).fetchall()
            loss = con.execute("SELECT arg_max(train_loss, epoch) FROM m_curves").fetchall()[0][0]
            reached.append((loss, con.execute("SELECT converged FROM m").fetchall()[0][0]))
    (least, _), (found, converged) = reached
    assert found == pytest.approx(least, rel=1e-6) or not converged


def test_columns_that_say_nearly_the_same_do_not_end_training_far_from_the_best() -> None:
    """Two columns that differ by 1e-4: after some epochs of great gains each gains little, for a hundred thousand epochs."""
    random = np.random.default_rng(5)
    x = random.normal(size=500)
    nearly = x + 1e-4 * random.normal(size=500)
    y = random.random(500) < 1 / (1 + np.exp(-(x + (x - nearly) * 1e4)))
    with grouplearn.connect(progress=False) as con:
        rows = pa.table({"x": x, "nearly": nearly, "y": y})
        con.register("rows", rows)
        con.execute(
            "TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (x, nearly) FROM rows"
            " WITH (solver = 'coordinate_descent', l1 = 1e-3, l2 = 0, epochs = 50)"
        )
        assert con.execute("SELECT epochs, converged FROM m").fetchall() == [(50, False)]


def test_with_l1_it_says_that_it_has_converged() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 7 AS k, i % 3 AS g, (i * 7919 % 101) > 60 AS y FROM range(500) AS r(i)"
        )
        con.execute(
            "TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (onehot(k), onehot(g)) FROM t"
            " OVER GRID ((l1, l2) IN ((0.1, 0), (0, 0), (0, 1))) VALIDATE NONE WITH (solver = 'coordinate_descent', epochs = 50)"
        )
        found = con.execute("SELECT l1, l2, converged FROM m ORDER BY l1, l2").fetchall()
        assert found == [(0, 0, None), (0, 1, True), (0.1, 0, True)]
        con.execute(
            "TRAIN MODEL n USING logistic_regression PREDICT y FEATURES (onehot(k), onehot(g)) FROM t"
            " WITH (solver = 'coordinate_descent', l1 = 0.1, l2 = 0, epochs = 2)"
        )
        assert con.execute("SELECT converged FROM n").fetchall() == [(False,)]


@pytest.mark.parametrize("n", [57, 60, 64])
@pytest.mark.parametrize("count", [1, 3])
def test_rows_that_fill_a_tile_do_no_harm(n: int, count: int) -> None:
    """Of columns far from 0 the intercept alone is so large that e to it is infinite: rows of weight 0 have it to themselves."""
    random = np.random.default_rng(1)
    x = random.normal(size=(n, 4))
    y = random.poisson(np.exp(x @ random.normal(size=4) + 3)).astype(float)
    config = {"l2": 1.0, "l1": 0.0, "blocks": "one", "tolerance": 1e-9}
    rounds = LocalRounds(POISSON, Problem(NUMBER, 4, epochs=600), (config,) * count, lambda: None)
    cells = cells_of(rounds, Shard(x + 1e5, y, np.ones(n)))
    state = rounds.prepared(POISSON.init(rounds.problem, rounds.configs), cells)
    found = POISSON.descend(rounds.problem, rounds.configs, state, cells, 600)
    assert np.isfinite(found.curve).all()
    assert (np.diff(found.curve, axis=0) <= 1e-9 * found.curve[:-1]).all()
    assert found.state.tensors["weights"][0, 0, -1] > 710  # e to it is infinite
