"""Every kernel looks whether it is to stop, often enough for any shape, and ends where it is told to."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse

from grouplearn.kernels import algebra, boosting, digests, library, metrics, networks, profiles, scoring, spreads
from grouplearn.kernels.build import compiling
from grouplearn.kernels.clusters import clustering, coresets, distances, facilities, projections
from grouplearn.kernels.contributions import CountedForest
from grouplearn.kernels.library import calling_back, on_threads
from grouplearn.kernels.linear import coordinate_descent, few_rows, least_squares, moments, sparse, stochastic_gradient
from grouplearn.kernels.linear import generalised_linear as glm
from grouplearn.kernels.number_columns import NumberReader
from grouplearn.kernels.row_order import Draw, GroupPositions
from grouplearn.kernels.series import exponential_smoothing, intermittent, theta
from grouplearn.kernels.texts import Texts
from grouplearn.kernels.trees import Forests
from grouplearn.learners.trees.lightgbm.library import addresses

#: Operations on eight numbers between two looks (``source/lanes/looks.hpp``).
STRETCH = 1 << 18
#: Of so few operations no call looks: what is made once per epoch or block, of parameters alone.
SHORT = {
    *("ask_of_thread", "fingerprint", "processor_level", "seconds_helped", "dropout_key", "free_grown"),
    *(
        "generalised_linear_numbers",
        "generalised_linear_are_sound",
        "begin_generalised_linear",
        "place_generalised_linear",
    ),
    *("generalised_linear_epochs_of_few", "loss_name"),
    *("networks_predict_room", "networks_room_single", "networks_room_double"),
}


class Told(Exception):
    """What a kernel is told to stop by."""


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).random(shape) - 0.5


def smoothed(what: str) -> Callable[[], object]:
    """Four series of 200 steps and 12 seasons, fitted, all but by exponential smoothing 300 times."""
    y, start = 3 + numbers(800), np.arange(5) * 200
    if what == "fit":
        return lambda: exponential_smoothing.fit(y, start, 12, exponential_smoothing.MODELS, 12)
    many = np.tile(y, 300), np.arange(1201) * 200
    if what == "theta":
        return lambda: theta.fit(*many, 12, 12)
    if what == "intermittent":
        return lambda: intermittent.fit(*many, 12)
    model, parameters, states = np.full(1200, 4), np.full((1200, 4), 0.1), np.ones((1200, 14))
    if what == "filter":
        return lambda: exponential_smoothing.filter(*many, 12, model, parameters, states, 12)
    return lambda: exponential_smoothing.forecast(12, model, parameters, states, np.ones(1200), 200)


def explained() -> Callable[[], object]:
    """Rows explained by 100 trees of one split."""
    one, many = np.arange(101), np.zeros(100, np.int32)
    below = np.full(100, -1, np.int32), np.full(100, -2, np.int32)
    trees = CountedForest(
        *(one, 2 * one, many, many + 1, many, many, *below, np.zeros(100), np.full(100, 8.0), numbers(200)),
        *(np.full(200, 4.0), np.zeros(101, np.int64), np.zeros(1, np.uint32)),
    )
    x, chosen = numbers(20_000, 2), np.zeros(20_000, np.int32)
    return lambda: trees.contributions(x, chosen, np.arange(2, dtype=np.int32), 2)


@dataclass(frozen=True)
class Call:
    """A call of one kernel or of some, and the fewest looks it takes: its operations by STRETCH, and something to spare."""

    kernels: str
    make: Callable[[], Callable[[], object]]
    looks: int


def one_pass(what: str) -> Callable[[], object]:
    x, weight, sizes, key = numbers(50_000, 20), np.ones(50_000), (20, 2_000), (1, 2, 3)
    if what == "coreset":
        within = coresets.ranges(x, weight)
        return lambda: coresets.draw(x, weight, within, sizes, key)
    given = facilities.Points(x, weight, weight)
    return lambda: facilities.opened(given, coresets.ranges(x, weight), sizes, key, 0.0)


def profiled(what: str) -> Callable[[], object]:
    groups = profiles.GroupRuns(runs=np.array([[0, 400_000]]), first=np.array([0, 1]))
    if what == "numbers":
        return lambda: profiles.of_numbers(numbers(400_000, 8), groups, range(8))
    codes = (np.arange(400_000, dtype=np.int32) % 100).reshape(-1, 1)
    return lambda: profiles.of_codes(codes, groups, 0, 100, 20)


def of_rows() -> Callable[[], object]:
    x, y = numbers(20_000, 64), numbers(20_000, 1)
    return lambda: moments.of_rows(x, y, np.ones(20_000), np.array([0, 20_000]))


def gram(count: int, d: int) -> Mapping[str, np.ndarray]:
    x, y = numbers(count * 2 * d, d), numbers(count * 2 * d, 1)
    return moments.of_rows(x, y, np.ones(len(x)), np.arange(count + 1) * 2 * d)


def merged() -> Callable[[], object]:
    one = gram(200, 64)
    return lambda: moments.merged(one, one)


def without_each() -> Callable[[], object]:
    folds = {name: each.reshape(40, 5, *each.shape[1:]) for name, each in gram(200, 64).items()}
    return lambda: moments.without_each(folds)


def solve(d: int, **penalties: float) -> Callable[[], object]:
    each = {"l1": 0.0, "l2": 0.0, **penalties}
    columns = [np.full(4, each[name]) for name in ("l1", "l2")]
    given = gram(8, d)
    return lambda: least_squares.solve(
        given, least_squares.LeastSquaresPenalties(*columns, np.full(4, 1e-9), np.ones(4, np.bool_), 50)
    )


#: Rows that set all columns.
WIDE = np.ones((20_000, 64))
FULL = scipy.sparse.csr_matrix(WIDE)


def collinear() -> Callable[[], object]:
    x = numbers(500, 128)
    x[:, 1:] = x[:, :-1] + 1e-9 * x[:, 1:]
    given = moments.of_rows(x, numbers(500, 1), np.ones(500), np.array([0, 500]))
    return lambda: least_squares.lost_directions(given, x, np.ones(500), np.array([0, 500]))


def parted() -> Callable[[], object]:
    own, p = 400_000, 400
    beside = (4 * np.arange(own + 1), np.arange(4 * own) % (p - 1), np.abs(numbers(4 * own)))
    rest, centre = numbers(p, p), numbers(p - 1)
    products = rest @ rest.T + own * np.eye(p)
    given = (np.full(own, 9.0), beside, (np.ones(own), centre, False), products, (numbers(own), numbers(p)))
    return lambda: least_squares.parted(*given, 1.0)


def stack(loss: str, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    return numbers(n, d), (np.arange(n) * 7 % 5 > 2) * 1.0


def fit(loss: str, l1: float = 0.0, n: int = 6_000, d: int = 60) -> Callable[[], object]:
    x, y = stack(loss, n, d)
    penalties = glm.GlmPenalties(np.full(8, l1), np.full(8, 1.0), np.full(8, 1e-6))
    return lambda: glm.solve(
        *(x, y, np.ones(n), np.array([0, n])),
        loss=loss,
        outputs=2 if loss == "softmax" else 1,
        fit_intercept=True,
        penalties=penalties,
        epochs=3,
        report=lambda _: None,
        cancelled=lambda: False,
    )


def begun(form: glm.EpochModels, x: np.ndarray, y: np.ndarray, models: int) -> tuple[np.ndarray, glm.Sums]:
    given = moments.of_rows(x, y[:, None], np.ones(len(y)), np.array([0, len(y)]), gram=form.dense)
    given = {name: each[0] for name, each in given.items()}
    start = np.zeros(1), np.full(1, 0.5 - y.mean()), np.log(2), np.full((1, 1), 0.25)
    model, sums = form.begin("logistic", given, (float(len(y)), float(x.size)), *start[:2], float(start[2]), start[3])
    rows = np.repeat(model, models, axis=0)
    return rows, {
        "sums": np.repeat(sums["sums"], models, axis=0),
        "curvature": np.repeat(sums["curvature"], models, axis=0),
        "sampled": sums["sampled"],
    }


def block(dense: bool, sparse: bool) -> Callable[[], object]:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    x, y = stack("logistic", 4_000, 100)
    form = glm.EpochModels(100, 1, True, 8, dense)
    rows, _ = begun(form, x, y, 12)
    given = scipy_sparse.csr_matrix(x) if sparse else x
    return lambda: form.sums(given, y, np.ones(len(y)), "logistic", rows)


def step(dense: bool, l1: float) -> Callable[[], object]:
    x, y = stack("logistic", 500, 250)
    form = glm.EpochModels(250, 1, True, 8, dense)
    rows, sums = begun(form, x, y, 12)
    penalties = glm.GlmPenalties(np.full(12, l1), np.full(12, 1.0), np.full(12, 1e-6))
    return lambda: form.step("logistic", rows, penalties, np.ones(12), sums)


def of_few_rows(l1: float, n: int, d: int) -> Callable[[], object]:
    x, y = stack("squared_hinge", n, d)
    penalties = glm.GlmPenalties(np.full(2, l1), np.full(2, 1.0), np.full(2, 1e-6))
    return lambda: few_rows.solve(x, y, np.ones(n), "squared_hinge", True, penalties)


def measured(label: int, outputs: int, parts: int, n: int = 20_000) -> Callable[[], object]:
    y = np.arange(n) % 2.0
    part = (np.arange(n, dtype=np.int16) % parts, parts) if parts > 1 else None
    rows = metrics.LabelledRows(y, np.arange(n) % 3 + 1.0, np.array([0, n]), part)
    models = (
        numbers(1, *([parts] if parts > 1 else []), 12, outputs, 16),
        numbers(1, *([parts] if parts > 1 else []), 12, outputs),
    )
    classes = metrics.ClassCount(2 if label >= metrics.BINARY else 0)
    x = numbers(n, 16)
    return lambda: metrics.of_models(rows, x, models, label, classes, metrics.NAMES)


def scored() -> Callable[[], object]:
    n = 20_000
    rows, scores = metrics.LabelledRows(np.arange(n) % 2.0, np.ones(n), np.array([0, n])), np.abs(numbers(n, 12, 1))
    return lambda: metrics.of_scores(rows, scores, metrics.BINARY, metrics.ClassCount(2), metrics.NAMES)


def boosted(rounds: int, *, predicts: bool = False) -> Callable[[], object]:
    """Boost ten groups, or predict by their models: it looks at every other round, and at every other model."""
    api, nothing = addresses(boosting.FUNCTIONS), boosting.Parameters(b"seed=", b" num_threads=1 verbosity=-1")
    x = numbers(500, 3)
    rows = boosting.BoostingRows(x, x[:, 0].astype(np.float32), np.ones(500, np.float32), np.arange(11) * 50)
    plan = boosting.BoostingPlan(
        nothing, (boosting.ConfigFamily(nothing, (rounds,), False),), 1, np.zeros(10, np.int64)
    )
    if not predicts:
        return lambda: boosting.boost(api, plan, rows, None)
    found = boosting.boost(api, plan, rows, None)
    return lambda: boosting.predict(api, rows, found.texts, 1, [boosting.Scale()])


def network(
    n: int = 2_000,
) -> tuple[networks.NetworkShape, networks.OptimizerSettings, dict[str, np.ndarray], networks.NetworkRows]:
    shape, each = networks.NetworkShape((32, 64, 1), "relu", "regression"), np.full(3, 0.01)
    descent = networks.OptimizerSettings("adam", each, each, each * 0, each, each)
    state = {name: numbers(3, shape.n_parameters) for name in ("parameters", "first_moment")}
    state |= {
        "second_moment": numbers(3, shape.n_parameters) ** 2,
        "step": np.zeros(3, np.int64),
        "objective": np.zeros(3),
    }
    return shape, descent, state, networks.NetworkRows(numbers(n, 32), numbers(n), np.ones(n), np.arange(n), 100)


def trained(name: str) -> Callable[[], object]:
    shape, descent, state, rows = network()
    if name == "train":
        return lambda: networks.train(shape, descent, state, rows)
    if name == "gradients":
        return lambda: networks.gradients(shape, descent, state, rows, slice(0, 2_000), 2_000)
    return lambda: networks.predict(shape, state["parameters"], rows.x)


def single_rows(n: int) -> library.RowRuns:
    """Runs of one row."""
    return library.RowRuns(np.arange(n + 1), np.zeros(n, np.int64))


def predicted_in_runs() -> Callable[[], object]:
    shape, x = networks.NetworkShape((20, 30, 1), "relu", "regression"), numbers(10_000, 20)
    parameters = numbers(1, shape.n_parameters)
    return lambda: networks.predict_runs(shape, parameters, x, single_rows(len(x)))


def descended() -> Callable[[], object]:
    shape, (_, descent, state, _) = networks.NetworkShape((1000, 1000, 1), "relu", "regression"), network()
    state = {name: np.zeros((3, shape.n_parameters)) for name in ("parameters", "first_moment", "second_moment")}
    state |= {"step": np.zeros(3, np.int64)}
    return lambda: networks.descend(shape, descent, state, np.ones((3, shape.n_parameters)))


def stochastic(name: str) -> Callable[[], object]:
    from test_stochastic_gradient import descent_of, models_of, rows_of  # of the same folder

    rows, models, descent = rows_of("logistic", 40_000, 32, kind="double"), models_of(5, 1, 32), descent_of("logistic")
    wide = models_of(5, 1, 400_000)
    none, weight = np.zeros(5), float(rows.weight.sum())
    course = stochastic_gradient.SgdEpochs(0, 0, 7, weight, weight, none, 5, none + np.inf, none, none[None], none > 0)
    return {
        "descend": lambda: stochastic_gradient.descend(models, descent, [rows]),
        "epochs": lambda: stochastic_gradient.descend_epochs(models, descent, rows, course, 2, keeps=True),
        "gradients": lambda: stochastic_gradient.gradients(models, descent, [rows]),
        "squares": lambda: stochastic_gradient.mean_square(rows),
        "norms": lambda: stochastic_gradient.norms(wide),
    }[name]


def forest() -> Callable[[], object]:
    from test_trees import boosted, compiled, rows  # of the same folder

    from grouplearn.models.label import NUMBER

    forests, _ = compiled([boosted(1, "regression", 50)], NUMBER)
    x = np.tile(rows(1)[0], (100, 1))
    return lambda: Forests.scores(forests, x, np.zeros(len(x), np.int32))


def ordered() -> Callable[[], object]:
    n = 400_000
    hashes = np.random.default_rng(1).integers(0, 2**63, n, dtype=np.uint64)
    found = GroupPositions(np.array([n]), np.array([0]))

    def run() -> None:
        found._n_added = 0
        found._next[:] = 0
        found.add(np.zeros(n, np.int32), hashes)
        found.sort(0, 1)

    return run


def drawn() -> Callable[[], object]:
    n = 200_000
    hashes = np.random.default_rng(2).integers(0, 2**63, n, dtype=np.uint64)
    draw = Draw(hashes, hashes.copy(), np.ones(n, np.bool_))
    return lambda: draw.mark(np.zeros(n, np.int16), np.array([0, n]), np.array([9]), together=1 << 16)


def read() -> Callable[[], object]:
    columns = [pa.array(numbers(60_000)) for _ in range(16)]
    rows = pa.StructArray.from_arrays(columns, names=[str(each) for each in range(16)])
    return lambda: NumberReader(rows.type, range(16), range(16)).read(rows, np.empty((60_000, 16)))


def numbered() -> Callable[[], object]:
    given = pa.array([f"{each % 90_000}-text" for each in range(100_000)])
    return lambda: Texts().numbered(given)


def digested() -> Callable[[], object]:
    rows = digests.Ragged(numbers(600_000), np.arange(301) * 2_000)
    return lambda: digests.of_rows(rows, rows)


def predicted() -> Callable[[], object]:
    n, group = 60_000, np.zeros(60_000, np.int32)
    encoders = scoring.Encoders(*(np.ones((1, 16)) for _ in range(3)), True)
    models = scoring.LinearModels(numbers(1, 3, 16), numbers(1, 3), np.zeros((1, 3, 0), np.int64), np.zeros(0))

    def run() -> None:
        x = numbers(n, 16)
        encoders.encode(x, group)
        scoring.linked(models.scores(x, group), scoring.Link.SOFTMAX)

    return run


def clustered(call: str) -> Callable[[], object]:
    wide = call in ("step", "finish")
    n, d, configs = (3_000, 256, [256] * 8) if wide else (20_000, 30, [8, 20])
    plan = clustering.ClusteringPlan(d, tuple(clustering.KMeansConfig(k, seed) for seed, k in enumerate(configs)), 5)
    x, weight = numbers(n, d), np.ones(n)
    if call == "solve":
        return lambda: clustering.solve(
            *(plan, x, weight, np.array([0, n]), np.zeros(1, np.uint64)),
            limits=(n, 5),
            report=lambda _: None,
            cancelled=lambda: False,
        )
    if call == "survey":
        many = numbers(200_000, 16)
        return lambda: clustering.ClusteringPlan(16, (clustering.KMeansConfig(2),), 5).survey(
            many, np.ones(200_000), 0, 1
        )
    survey = plan.survey(x, weight, 0, 1)
    if call == "begin":
        return lambda: plan.begin(survey, 1)
    state: clustering.Tensors = {**plan.begin(survey, 1)} if not wide else begun_wide(plan, numbers(2_048, d))
    if call == "finish":
        return lambda: plan.finish(state)
    sums = plan.sums(state, x, weight, 0)
    return (lambda: plan.step(state, sums)) if call == "step" else lambda: plan.sums(state, x, weight, 0)


def of_clusters(call: str) -> object:
    x, weight, centroids, first = numbers(50_000, 30), np.ones(50_000), numbers(20, 30), np.array([0, 8, 20])
    if call == "scores":
        return distances.scores(x, centroids, first)
    if call == "runs":
        return distances.score_runs(x, centroids, first, single_rows(len(x)))
    if call == "sums":
        return distances.sums(numbers(400_000, 6).reshape(-1, 2, 3), np.ones(400_000))
    return distances.of_groups(x, weight, np.array([0, 50_000]), (centroids, first))


def of_components(call: str) -> object:
    x, weight, components = numbers(50_000, 40), np.ones(50_000), numbers(30, 40)
    if call == "scores":
        return projections.scores(x, np.zeros(40), components)
    if call == "runs":
        return projections.score_runs(x, np.zeros((1, 40)), components[None], single_rows(len(x)))
    if call == "sums":
        return projections.sums(numbers(200_000, 18).reshape(-1, 2, 9), np.ones(200_000))
    return projections.of_groups(x, weight, np.array([0, 50_000]), np.zeros((1, 40)), (components, np.array([0, 30])))


def begun_wide(plan: clustering.ClusteringPlan, centroids: np.ndarray) -> clustering.Tensors:
    whole = {name: np.zeros(plan.n_models, np.int64) for name in ("passes", "phase")}
    model = {"centroids": centroids, "clusters": np.ones((plan.n_centroids, 2)), "inertia": np.zeros(plan.n_models)}
    return {**model, **whole, "origin": np.zeros(plan.d), "scale": np.ones(1)}


def surveyed() -> Callable[[], object]:
    """What rows say of many columns."""
    found = coordinate_descent.Survey(numbers(300_000, 4), numbers(300), np.ones((3, 1), np.int64))
    return lambda: coordinate_descent.merged(found, found)


def descending(call: str) -> Callable[[], object]:
    """Coordinate descent on three blocks: numbers, codes, a list; ``wide`` ones of many columns."""
    wide = call in ("solve", "shift", "leap", "close")
    n, own, configs = (64, 60_000, 8) if wide else (40_000, 50, 8)
    x = np.zeros((n, 1 + own + 50), np.float32)
    x[:, 0] = numbers(n)
    x[np.arange(n), 1 + np.arange(n) % own] = 1
    x[:, 1 + own :: 7] = 2.5
    ones, first = np.ones(n), np.cumsum([0, 1, own, 50]).astype(np.int64)
    if call == "survey":
        return lambda: coordinate_descent.survey([x], ones, first, np.ones(3, np.bool_))
    forms = [coordinate_descent.ONE_COLUMN, coordinate_descent.CODES, coordinate_descent.RAGGED_WITH_VALUES]
    mean = np.zeros(x.shape[1])
    mean[0] = 0.1
    cut = coordinate_descent.ColumnBlocks(first, np.array(forms), mean)
    shape = coordinate_descent.GroupShape("logistic", configs, 1)
    if call == "cut":
        return lambda: coordinate_descent.Cell(lambda: [x], (ones, ones), cut, shape)
    each = np.linspace(0.1, 1, configs)
    penalties = coordinate_descent.GlmPenalties(each, each, np.full(configs, 1e-9))
    about_columns = cut, np.array([0, 1, 0]), np.ones(x.shape[1] + 1)
    group = coordinate_descent.GroupRounds(shape, *about_columns, True, penalties)
    free = coordinate_descent.GroupRounds(shape, *about_columns, False, replace(penalties, l1=np.zeros(configs)))
    cell = coordinate_descent.Cell(lambda: [x], (np.arange(n) % 2.0, ones), cut, shape)
    more = coordinate_descent.Cell(lambda: [x], (np.arange(n) % 3 // 2.0, ones), cut, shape)
    weights = shape.in_lanes(np.tile(numbers(x.shape[1] + 1), (configs, 1, 1)))
    radius, done = np.full(weights.shape, 1.0), group.lanes_of_done(np.zeros(configs, bool))
    unknown = coordinate_descent.EpochProgress(
        *(np.full(configs, np.nan) for _ in range(3)), done[0] > 0, np.zeros(configs)
    )
    about = unknown, coordinate_descent.Order(np.arange(3))
    of_block = np.concatenate([weights[1 : 1 + own], weights[-1:]])
    path = np.stack([weights * (1 + 0.5**move) for move in range(coordinate_descent.MOVES)])
    calls: dict[str, Callable[[], object]] = {
        "pass": lambda: group.pass_over(cell, (1, weights[1 : 1 + own]), 2, radius[1 + own : -1], done),
        "measure": lambda: group.measure(cell, weights, radius[-1:], done),
        "solve": lambda: group.solve(1, np.ones((own, 1, 1, 2, 8)), of_block.copy(), radius[1 : 1 + own].copy(), about),
        "shift": lambda: free.shift(weights.copy(), done),
        "close": lambda: group.close(np.ones((1, 1, 1, 3, 8)), weights.copy(), radius, about),
        "leap": lambda: group.leap(path, weights, done),
        **{
            name: lambda cells=cells: group.descend(
                cells, (weights.copy(), weights.copy(), radius.copy(), path.copy()), about, (0, 2)
            )
            for name, cells in (("descend", [cell]), ("descend on cells", [cell, more]))
        },
    }
    return calls[call]


CALLS = {
    "moments": Call("row_moments", of_rows, 20),
    "merged": Call("merged_moments", merged, 1),
    "without each": Call("moments_without_each", without_each, 4),
    "ridge": Call("least_squares", lambda: solve(200, l2=0.5), 10),
    "plain": Call("least_squares", lambda: solve(200), 10),
    "elastic net": Call("least_squares", lambda: solve(200, l1=0.05, l2=0.01), 10),
    "collinear": Call("lost_directions", collinear, 4),
    "parted": Call("parted_least_squares", parted, 4),
    "sparse product": Call("sparse_product", lambda: lambda: sparse.product(FULL, np.ones((64, 64))), 20),
    "turned product": Call("sparse_transposed_product", lambda: lambda: sparse.transposed_product(FULL, WIDE), 20),
    "sparse products": Call("sparse_gram", lambda: lambda: sparse.dense_gram(FULL), 40),
    "entries": Call("sparse_gram_starts sparse_gram_entries", lambda: lambda: sparse.gram(FULL), 100),
    "spreads": Call("spreads_of_runs", lambda: lambda: spreads.of_runs(np.ones(1 << 22), np.arange(0, 1 << 22, 1 << 12)), 10),
    "triangle": Call("triangle_of_rows", lambda: lambda: least_squares.triangle(numbers(2_000, 120)), 10),
    "root": Call("root_of_gram", lambda: lambda: least_squares.root(np.eye(200) + 0.5), 1),
    "logistic": Call("solve_generalised_linear", lambda: fit("logistic"), 20),
    "logistic with l1": Call("solve_generalised_linear", lambda: fit("logistic", 0.5), 20),
    "softmax": Call("solve_generalised_linear", lambda: fit("softmax"), 20),
    "poisson": Call("solve_generalised_linear", lambda: fit("poisson"), 20),
    "squared hinge": Call("solve_generalised_linear", lambda: fit("squared_hinge"), 15),
    "hinge": Call("solve_generalised_linear", lambda: fit("hinge"), 20),
    "few rows": Call("solve_generalised_linear_of_few_rows", lambda: of_few_rows(0.5, 400, 600), 100),
    "fewer rows": Call("solve_generalised_linear_of_few_rows", lambda: of_few_rows(0.0, 20, 60_000), 20),
    "block": Call("sum_generalised_linear", lambda: block(True, False), 20),
    "sparse block": Call("sum_generalised_linear", lambda: block(True, True), 20),
    "wide block": Call("sum_generalised_linear", lambda: block(False, True), 6),
    "step": Call("step_generalised_linear", lambda: step(True, 0.0), 10),
    "step with l1": Call("step_generalised_linear", lambda: step(True, 0.5), 10),
    "wide step": Call("step_generalised_linear", lambda: step(False, 0.5), 0),
    "metrics of values": Call("row_metrics", lambda: measured(metrics.VALUES, 1, 1), 3),
    "metrics of two classes": Call("row_metrics", lambda: measured(metrics.BINARY, 1, 5), 5),
    "metrics of classes": Call("row_metrics", lambda: measured(metrics.CLASSES, 2, 1), 8),
    "metrics of scores": Call("row_metrics", scored, 5),
    "areas": Call("areas", lambda: lambda: metrics.areas([np.abs(numbers(4, 300_000))], numbers(300_000) > 0, None), 10),
    "areas of weights": Call(
        "areas", lambda: lambda: metrics.areas([np.abs(numbers(2, 300_000))], numbers(300_000) > 0, np.ones(300_000)), 10
    ),
    "errors": Call(
        "error_sums", lambda: lambda: metrics.error_sums(numbers(50_000, 12), numbers(50_000), np.ones(50_000)), 4
    ),
    "labels": Call("label_sums", lambda: lambda: metrics.label_sums(numbers(1_000_000), np.ones(1_000_000)), 5),
    "boosting": Call("boost_groups", lambda: boosted(10), 50),
    "predictions of boosted trees": Call("predict_groups", lambda: boosted(1, predicts=True), 5),
    "classes": Call(
        "class_sums",
        lambda: lambda: metrics.class_sums(
            np.abs(numbers(50_000, 12, 1)), np.zeros(50_000), np.ones(50_000), metrics.ClassCount(2)
        ),
        6,
    ),
    "training": Call("networks_train_double", lambda: trained("train"), 12),
    "gradients": Call("networks_gradients_double", lambda: trained("gradients"), 15),
    "descent": Call("networks_descend_double", descended, 4),
    "networks": Call("networks_predict", lambda: trained("predict"), 5),
    "runs of networks": Call("networks_predict_runs", predicted_in_runs, 10),
    "shuffle": Call("visiting_order", lambda: lambda: networks.visiting_order(1, 1, 500_000), 6),
    "starting numbers": Call("starting_numbers", lambda: lambda: networks.starting_numbers(1, 1, 1_000_000), 6),
    "trees": Call("score_trees", forest, 5),
    "order": Call("rows_by_group sort_groups", ordered, 12),
    "draw": Call("draw_split", drawn, 4),
    "columns": Call("read_numbers", read, 3),
    "texts": Call("number_texts fill_slots", numbered, 5),
    "digests": Call("number_digests", digested, 10),
    "scores": Call("encode_numbers score_linear link_scores", predicted, 4),
    "survey": Call("survey_rows sample_rows", lambda: clustered("survey"), 3),
    "coreset": Call("draw_coreset", lambda: one_pass("coreset"), 4),
    "facilities": Call("open_facilities", lambda: one_pass("facilities"), 4),
    "profile of numbers": Call("profile_numbers", lambda: profiled("numbers"), 4),
    "profile of codes": Call("profile_codes", lambda: profiled("codes"), 4),
    "seeds": Call("start_clustering", lambda: clustered("begin"), 10),
    "pass of k-means": Call("sum_clusters", lambda: clustered("sums"), 10),
    "step of k-means": Call("step_clusters", lambda: clustered("step"), 1),
    "end of k-means": Call("finish_clusters", lambda: clustered("finish"), 1),
    "k-means": Call("solve_clusters", lambda: clustered("solve"), 20),
    "scores of k-means": Call("score_clusters", lambda: lambda: of_clusters("scores"), 10),
    "runs of k-means": Call("score_clusters_runs", lambda: lambda: of_clusters("runs"), 10),
    "contributions": Call("explain_trees", explained, 3),
    "sums of k-means": Call("sum_scores", lambda: lambda: of_clusters("sums"), 3),
    "metrics of k-means": Call("measure_clusters", lambda: lambda: of_clusters("measure"), 10),
    "projections": Call("project_rows", lambda: lambda: of_components("scores"), 10),
    "runs of projections": Call("project_rows_runs", lambda: lambda: of_components("runs"), 10),
    "sums of projections": Call("sum_projections", lambda: lambda: of_components("sums"), 3),
    "metrics of projections": Call("measure_projections", lambda: lambda: of_components("measure"), 10),
    "survey of columns": Call("coordinate_survey", lambda: descending("survey"), 4),
    "merged surveys": Call("coordinate_merge", surveyed, 1),
    "rows by block": Call("coordinate_entries coordinate_cut", lambda: descending("cut"), 8),
    "round of a block": Call("coordinate_pass", lambda: descending("pass"), 3),
    "end of an epoch": Call("coordinate_measure", lambda: descending("measure"), 4),
    "new weights": Call("coordinate_solve", lambda: descending("solve"), 4),
    "shifted weights": Call("coordinate_shift", lambda: descending("shift"), 1),
    "leap": Call("coordinate_leap", lambda: descending("leap"), 15),
    "objective": Call("coordinate_close", lambda: descending("close"), 0),
    "coordinate descent": Call("coordinate_descend", lambda: descending("descend"), 15),
    "stochastic descent": Call("stochastic_gradient_train", lambda: stochastic("descend"), 25),
    "epochs of stochastic descent": Call("stochastic_gradient_epochs", lambda: stochastic("epochs"), 50),
    "sums of gradients": Call("stochastic_gradient_differentiate", lambda: stochastic("gradients"), 25),
    "lengths of rows": Call("stochastic_gradient_squares", lambda: stochastic("squares"), 4),
    "norms of weights": Call("stochastic_gradient_norms", lambda: stochastic("norms"), 4),
    "eigenvalues": Call("eigen_directions", lambda: lambda: algebra.eigen(np.eye(150) + 0.5), 5),
    "exponential smoothing": Call("fit_exponential_smoothing", lambda: smoothed("fit"), 10),
    "given exponential smoothing": Call("filter_exponential_smoothing", lambda: smoothed("filter"), 10),
    "theta": Call("fit_theta", lambda: smoothed("theta"), 10),
    "intermittent demand": Call("fit_intermittent", lambda: smoothed("intermittent"), 10),
    "forecasts": Call("forecast_exponential_smoothing", lambda: smoothed("forecast"), 4),
    "product": Call("products", lambda: lambda: algebra.product(numbers(20_000, 100), numbers(100, 12)), 10),
    "finite": Call("finite_rows", lambda: lambda: algebra.finite_rows(numbers(200_000, 12)), 1),
    "sigmoid": Call("sigmoid", lambda: lambda: algebra.sigmoid(numbers(600_000)), 2),
    "softmax of rows": Call("softmax", lambda: lambda: algebra.softmax(numbers(200_000, 3)), 4),
    **{
        f"{symbol} {kind.__name__}": Call(
            f"{symbol}_{'single' if kind is np.float32 else 'double'}",
            lambda symbol=symbol, kind=kind: lambda: library.applied(symbol, numbers(900_000).astype(kind)),
            1,
        )
        for symbol, kind in (
            *(("exponential", np.float32), ("exponential", np.float64), ("logarithm", np.float64)),
            *(("log_of_one_plus", np.float32), ("log_of_one_plus", np.float64)),
        )
    },
}  # fmt: skip


@pytest.fixture(params=sorted(CALLS))
def call(request: pytest.FixtureRequest) -> Call:
    return CALLS[request.param]


def entries() -> Iterator[str]:
    for path in sorted(compiling.SOURCES.rglob("*.cpp")):
        for name in re.findall(r"GROUPLEARN_ENTRY\s+(?:const\s+)?\w+\s+\*?(\w+(?:##kind)?)\(", path.read_text()):
            yield from (name.replace("##kind", each) for each in (("single", "double") if "##" in name else ("",)))


def test_every_kernel_is_called_here() -> None:
    called = {kernel for each in CALLS.values() for kernel in each.kernels.split()} | SHORT
    # Those of networks are one text for both precisions.
    called |= {kernel.replace("_double", "_single") for kernel in called if kernel.startswith("networks_")}
    assert called == set(entries())


def test_a_kernel_looks_as_often_as_its_work_is_long(call: Call) -> None:
    run = call.make()
    count = 0

    def look() -> None:
        nonlocal count
        count += 1

    with calling_back(look, every=0):
        run()
    assert count >= call.looks
    assert library._thread.callback is None


def test_a_kernel_that_is_told_to_stop_ends_there(call: Call) -> None:
    """At its first look, at its second, and, so that every place has been the one, at each later power of two."""
    ends_at_each_look(call.make(), call.looks)


@pytest.mark.parametrize("threads", [2, 4])
def test_all_threads_of_a_call_end_where_it_is_told_to_stop(threads: int) -> None:
    with on_threads(lambda: threads):
        ends_at_each_look(descending("descend on cells"), 8)
        ends_at_each_look(smoothed("fit"), 8)


def ends_at_each_look(run: Callable[[], object], looks: int) -> None:
    last = 1
    while last <= looks:
        count = 0

        def look(last: int = last) -> None:
            nonlocal count
            count += 1
            if count >= last:
                raise Told

        with calling_back(look, every=0), pytest.raises(Told):
            run()
        assert count == last
        last *= 2


def test_another_thread_is_heard() -> None:
    asked = threading.Event()
    x = numbers(30_000, 200)
    stop = threading.Timer(0.05, asked.set)

    def look() -> None:
        if asked.is_set():
            raise Told

    def run() -> None:
        while True:
            moments.of_rows(x, x[:, :1], np.ones(len(x)), np.array([0, len(x)]))

    stop.start()
    with calling_back(look), pytest.raises(Told):
        run()
    stop.join()


def test_between_looks_there_is_time() -> None:
    """A look takes the interpreter: there are no more of them than one in so many seconds."""
    x, count = numbers(30_000, 200), 0

    def look() -> None:
        nonlocal count
        count += 1

    with calling_back(look, every=1e6):
        moments.of_rows(x, x[:, :1], np.ones(len(x)), np.array([0, len(x)]))
    assert count == 1


def test_contexts_nest_and_threads_are_their_own() -> None:
    x = numbers(20_000, 100)
    inner, outer = [0], [0]

    def run() -> None:
        moments.of_rows(x, x[:, :1], np.ones(len(x)), np.array([0, len(x)]))

    def counted(counts: list[int]) -> Callable[[], None]:
        def look() -> None:
            counts[0] += 1

        return look

    with calling_back(counted(outer), every=0):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert outer == [0]
        with calling_back(counted(inner)):
            run()
        assert outer == inner
        assert inner[0] > 0
        run()
    assert outer[0] > inner[0]
