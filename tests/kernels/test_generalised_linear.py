"""Generalised linear models by kernel: at the optimum, each model for itself, and the same bits in every build."""

import hashlib
from dataclasses import astuple, replace
from itertools import product

import numpy as np
import pytest
import scipy.sparse
import scipy.special
from helpers.thorough import every_other

from grouplearn.kernels import algebra
from grouplearn.kernels.linear import generalised_linear as kernel
from grouplearn.kernels.linear import moments

RANDOM = np.random.default_rng(5)
SIZES = np.array([40, 1, 0, 7, 90])
START = np.concatenate([[0], np.cumsum(SIZES)]).astype(np.int64)
X = RANDOM.random((SIZES.sum(), 4)) * [1.0, 100.0, 1e-3, 1.0] + [0, 1000, 0, -3]
WEIGHT = RANDOM.integers(1, 4, len(X)) / 2
LABELS = {
    "logistic": RANDOM.integers(0, 2, len(X)).astype(float),
    "softmax": RANDOM.integers(0, 3, len(X)).astype(float),
    "poisson": RANDOM.integers(0, 9, len(X)).astype(float),
}
LABELS["squared_hinge"] = LABELS["hinge"] = LABELS["logistic"]
OUTPUTS = {"logistic": 1, "softmax": 3, "poisson": 1, "squared_hinge": 1, "hinge": 1}
#: Without and with l1, and 18 of them: more than there are lanes.
L1 = np.array([0.0, 0.0, 0.5, 2.0, 0.0, 0.1] * 3)
L2 = np.array([1.0, 0.125, 0.0, 0.5, 64.0, 0.25] * 3) + np.arange(18) / 64
PENALTIES = kernel.GlmPenalties(L1, L2, np.full(18, 1e-8))


def solve(loss: str, x=X, label=None, weight=WEIGHT, start=START, penalties=PENALTIES, **others) -> kernel.FittedModels:
    settings = {"fit_intercept": True, "epochs": 300, "report": lambda _: None, "cancelled": lambda: False, **others}
    label = LABELS[loss] if label is None else label
    return kernel.solve(x, label, weight, start, loss=loss, outputs=OUTPUTS[loss], penalties=penalties, **settings)


def losses(loss: str, score: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The loss of rows (n,) and its derivatives by the scores (n, K)."""
    if loss == "logistic":
        return np.logaddexp(0, score[:, 0]) - label * score[:, 0], scipy.special.expit(score) - label[:, None]
    if loss == "squared_hinge":
        sign = 2 * label - 1
        short = np.maximum(0, 1 - sign * score[:, 0])
        return short**2, (-2 * sign * short)[:, None]
    if loss == "hinge":  # the smooth one at the start: of numpy's logarithm and root
        u = 1 - (2 * label - 1) * score[:, 0]
        ends = (u + np.array([[1.0], [-1.0]]) * np.sqrt(u * u + 4)) / 2 + [[1.0], [-1.0]]
        s, less = ends[0], ends[0] - u
        return s - np.log(s * less), ((1 - 2 * label) / less)[:, None]
    if loss == "poisson":
        constant = scipy.special.xlogy(label, label) - label
        return np.exp(score[:, 0]) - label * score[:, 0] + constant, np.exp(score) - label[:, None]
    own = np.eye(3)[label.astype(int)]
    return scipy.special.logsumexp(score, axis=1) - (score * own).sum(axis=1), scipy.special.softmax(
        score, axis=1
    ) - own


SMOOTH = [loss for loss in LABELS if loss != "hinge"]


@pytest.mark.parametrize("loss", SMOOTH)
def test_every_model_is_at_its_optimum(loss: str) -> None:
    """The subgradient is zero (Boyd & Vandenberghe 2004, 4.2.3), and the objective is the one reported."""
    found = solve(loss)
    for group in (0, 4):
        rows = slice(START[group], START[group + 1])
        x, y, w = X[rows], LABELS[loss][rows], WEIGHT[rows]
        spread = x.std(axis=0) * np.sqrt(w.sum())
        for config, (l1, l2) in enumerate(zip(L1, L2, strict=True)):
            weights, intercept = found.weights[group, config], found.intercept[group, config]
            value, slope = losses(loss, x @ weights.T + intercept, y)
            objective = w @ value + l1 * np.abs(weights).sum() + 0.5 * l2 * np.square(weights).sum()
            assert found.value[group, config] == pytest.approx(objective, rel=1e-11)
            gradient = (w[:, None] * slope).T @ (x - x.mean(axis=0)) + l2 * weights
            pull = np.where(weights != 0, np.sign(weights) * l1, np.clip(-gradient, -l1, l1))
            left = np.append((gradient + pull) * (1 / np.maximum(spread, 1e-9)), (w @ slope) / np.sqrt(w.sum()))
            assert np.square(left).sum() <= 1e-7 * objective, (group, config)


@pytest.mark.parametrize("loss", [*LABELS])
def test_a_model_is_the_same_alone_and_in_any_company(build: str, loss: str) -> None:
    together = solve(loss)
    for group, configs in ((0, [3]), (4, [17, 0]), (4, [2, 2, 5])):
        rows = slice(START[group], START[group + 1])
        chosen = kernel.GlmPenalties(L1[configs], L2[configs], np.full(len(configs), 1e-8))
        alone = solve(loss, X[rows], LABELS[loss][rows], WEIGHT[rows], np.array([0, SIZES[group]]), chosen)
        for name in ("weights", "intercept", "value", "passes", "converged"):
            np.testing.assert_array_equal(getattr(alone, name)[0], getattr(together, name)[group, configs])


FEW = ([0], [2], [1, 5, 3], list(range(8)), list(range(9)))


@pytest.mark.examples(7)
@pytest.mark.parametrize(("loss", "configs"), every_other(product(LABELS, FEW)))
def test_groups_that_share_lanes_are_as_they_are_alone(build: str, loss: str, configs: list[int]) -> None:
    """Few configs leave lanes to other groups, among them one without rows, one of a single row, one of too many rows."""
    random = np.random.default_rng(len(configs))
    sizes = np.array([90, 3000, 1, 0, 40, 2049, 7, *random.integers(20, 300, 14)])
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    x = random.normal(size=(start[-1], 5)).astype(np.float32)
    label = random.integers(0, 3 if loss == "softmax" else 2, len(x)).astype(float)
    weight = random.integers(0, 3, len(x)) / 2
    chosen = kernel.GlmPenalties(L1[configs], L2[configs], np.full(len(configs), 1e-8))
    together = solve(loss, x, label, weight, start, chosen)
    for group in range(len(sizes)):
        rows = slice(start[group], start[group + 1])
        alone = solve(loss, x[rows], label[rows], weight[rows], np.array([0, sizes[group]]), chosen)
        for name in ("weights", "intercept", "value", "passes", "converged"):
            np.testing.assert_array_equal(getattr(alone, name)[0], getattr(together, name)[group], err_msg=name)
        np.testing.assert_array_equal(alone.curve[:, 0], together.curve[: len(alone.curve), group])


def test_what_cannot_be_trained_is_no_number_and_harms_nobody(build: str) -> None:
    x = X.copy()
    x[START[3], 1] = np.inf
    found, plain = solve("logistic", x), solve("logistic")
    assert np.isnan(found.value[2:4]).all()
    assert np.isnan(found.weights[2:4]).all()
    np.testing.assert_array_equal(found.weights[[0, 1, 4]], plain.weights[[0, 1, 4]])
    assert np.isfinite(plain.value[[0, 1, 3, 4]]).all()


def test_the_curve_falls_and_ends_at_the_objective() -> None:
    found = solve("softmax")
    for group, config in np.ndindex(5, 18):
        curve = found.curve[: found.passes[group, config], group, config]
        assert np.isnan(found.curve[found.passes[group, config] :, group, config]).all()
        assert (np.diff(curve) <= 1e-5 * np.abs(curve[:-1]) + 1e-5).all()  # single precision comes first
    few = solve("softmax", epochs=2)
    assert few.passes.max() == 2
    assert not few.converged[4].all()


def test_rows_beyond_those_that_bend_are_counted(build: str) -> None:
    """A group so long that second derivatives are taken from a share of its rows only."""
    rows = 4500 if build == "portable" else 9000
    random = np.random.default_rng(2)
    x = random.random((rows, 2)).astype(np.float32)
    label = (random.random(rows) < 0.3 + 0.4 * x[:, 0]).astype(float)
    two = kernel.GlmPenalties(np.array([0.0, 3.0]), np.array([1.0, 0.0]), np.full(2, 1e-8))
    found = solve("logistic", x, label, np.ones(rows), np.array([0, rows]), two)
    wide = solve("logistic", x.astype(float), label, np.ones(rows), np.array([0, rows]), two)
    np.testing.assert_array_equal(found.weights, wide.weights)
    for config in range(2):
        slope = losses("logistic", x @ found.weights[0, config].T + found.intercept[0, config], label)[1]
        gradient = slope[:, 0] @ x + two.l2[config] * found.weights[0, config, 0]
        assert np.abs(gradient + two.l1[config] * np.sign(found.weights[0, config, 0])).max() < 0.05


def test_training_stops_when_it_is_told_to() -> None:
    with pytest.raises(kernel.Stopped):
        solve("logistic", cancelled=lambda: True)
    seen: list[int] = []
    found = solve("logistic", report=seen.append)
    assert sum(seen) == found.passes[[0, 1, 3, 4]].sum()


def begun(loss: str, form: kernel.EpochModels, chosen: kernel.GlmPenalties) -> tuple[np.ndarray, kernel.Sums]:
    """Models at their start, and the sums there as they follow from moments."""
    label, outputs = LABELS[loss], OUTPUTS[loss]
    targets = np.eye(3)[label.astype(int)] if loss == "softmax" else label[:, None]
    golden = (1 + np.sqrt(5)) / 2
    targets = targets * {"squared_hinge": 4, "hinge": 2 / golden}.get(loss, 1)
    sums = moments.of_rows(X, targets, WEIGHT, np.array([0, len(X)]), gram=form.dense)
    if form.fit_intercept and loss != "hinge":
        mean = np.average(targets, axis=0, weights=WEIGHT)
        score = (
            mean / 2 - 1
            if loss == "squared_hinge"
            else algebra.logarithm(mean / (1 - mean) if loss == "logistic" else mean)
        )
    else:
        means = {"logistic": 1 / 2, "softmax": 1 / 3, "poisson": 1.0, "squared_hinge": 2.0, "hinge": 1 / golden}
        mean = np.full(outputs, means[loss])
        score = np.zeros(outputs)
    value, slope = losses(loss, np.repeat(score[None], len(X), axis=0), label)
    bends = {
        "logistic": mean * (1 - mean),
        "poisson": mean,
        "squared_hinge": np.full(1, 2.0),
        "hinge": np.full(1, 1 / (golden**4 + golden**2)),
    }
    coupling = np.diag(bends[loss]) if loss in bends else np.diag(mean) - np.outer(mean, mean)
    residual = np.average(slope, axis=0, weights=WEIGHT)
    model, at_start = form.begin(
        loss,
        {name: each[0] for name, each in sums.items()},
        (len(X), X.size),
        score,
        residual,
        float(np.average(value, weights=WEIGHT)),
        coupling,
    )
    count = len(chosen.l1)
    repeated = {name: np.repeat(at_start[name], count, axis=0) for name in ("sums", "curvature")}
    return np.repeat(model, count, axis=0), {**repeated, "sampled": at_start["sampled"]}


FORMS = [(True, True), (False, True), (True, False)]


@pytest.mark.parametrize("loss", [*LABELS])
@pytest.mark.parametrize(("fit_intercept", "dense"), FORMS)
def test_sums_at_the_start_are_those_that_follow_from_moments(
    build: str, loss: str, fit_intercept: bool, dense: bool
) -> None:
    form = kernel.EpochModels(4, OUTPUTS[loss], fit_intercept, 3, dense)
    models, expected = begun(loss, form, PENALTIES)
    found = form.sums(X, LABELS[loss], WEIGHT, loss, models)
    assert found["curvature"].shape[0] == (18 if dense else 0)
    for name, each in expected.items() if dense else [("sums", expected["sums"])]:
        np.testing.assert_allclose(found[name], each, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("loss", [*LABELS])
@pytest.mark.parametrize(("fit_intercept", "dense"), FORMS)
def test_epochs_reach_the_objectives_of_whole_groups(loss: str, fit_intercept: bool, dense: bool) -> None:
    """With rows in two blocks, dense and sparse."""
    start = np.array([0, len(X)])
    whole = solve(loss, start=start, fit_intercept=fit_intercept, epochs=400)
    form = kernel.EpochModels(4, OUTPUTS[loss], fit_intercept, 3, dense)
    for sparse in (False, True):
        models, sums = begun(loss, form, PENALTIES)
        x = scipy.sparse.csr_matrix(X) if sparse else X
        done, value = np.zeros(18, np.bool_), np.full(18, np.nan)
        for _ in range(400):
            left = np.flatnonzero(~done)
            chosen = kernel.GlmPenalties(L1[left], L2[left], np.full(len(left), 1e-10))
            stepped = form.step(loss, models[left], chosen, np.ones(len(left)), sums)
            models[left], value[left], done[left] = stepped.models, stepped.value, stepped.finished
            if done.all():
                break
            blocks = [
                form.sums(x[part], LABELS[loss][part], WEIGHT[part], loss, models[~done])
                for part in (slice(0, 50), slice(50, None))
            ]
            sums = {name: np.asarray(blocks[0][name] + blocks[1][name]) for name in blocks[0]}
        assert done.all()
        np.testing.assert_allclose(value, whole.value[0], rtol=1e-6)


def standardised(form: kernel.EpochModels, models: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Sums with gradients by the solver's coordinates, where they are by columns as written."""
    found, (mean, inverse) = sums.copy(), models[0, 23 : 23 + 2 * form.columns].reshape(2, -1)
    assert (found[:, 3] == (0 if form.dense else 700)).all()
    if not form.dense:
        slope = found[:, 4:].reshape(len(models), form.outputs, -1)
        slope[..., : form.columns] = (slope[..., : form.columns] - mean * slope[..., form.columns :]) * inverse
    found[:, 3] = 0
    return found


@pytest.mark.parametrize("loss", [*LABELS])
def test_wide_models_of_sparse_rows_have_the_sums_of_a_loop_over_their_entries(build: str, loss: str) -> None:
    """Rows without entries, and columns without any, too; counts of rows that are no multiple of a tile."""
    form, random = kernel.EpochModels(4, OUTPUTS[loss], True, 3, False), np.random.default_rng(3)
    models, sums = begun(loss, form, PENALTIES)
    if loss != "hinge":
        models = form.step(loss, models, PENALTIES, np.ones(18), sums).models
    x = random.normal(size=(21, 4)) * (random.random((21, 4)) < 0.4)
    x[:, 2] = x[5] = 0
    label, weight = LABELS[loss][:21], random.random(21)
    found = form.sums(scipy.sparse.csr_matrix(x), label, weight, loss, models)["sums"]
    written = models[:, -form.outputs * 5 :]
    weights, lift = written[:, : -form.outputs].reshape(18, form.outputs, 4), written[:, -form.outputs :]
    scale = models[0, 15]
    for model in range(18):
        score = x @ weights[model].T + lift[model]
        value, slope = losses(loss, score, label)
        gradient = (slope * (weight / scale)[:, None]).T @ np.column_stack([x, np.ones(21)])
        assert found[model, 3] == 21
        if loss == "hinge":
            short = np.maximum(0, 1 - (2 * label - 1) * score[:, 0])
            assert found[model, 2] == pytest.approx(weight @ short / scale)
        assert found[model, 0] == pytest.approx(weight @ value / scale)
        np.testing.assert_allclose(found[model, 4:], gradient.ravel(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", [*LABELS])
@pytest.mark.parametrize("dense", [True, False])
def test_steps_have_the_same_bits_everywhere_and_in_any_company(build: str, loss: str, dense: bool) -> None:
    """In single precision, alone, and of many rows of which few bend, too."""
    random = np.random.default_rng(7)
    form, digest = kernel.EpochModels(4, OUTPUTS[loss], True, 3, dense), hashlib.sha256()
    models, _ = begun(loss, form, PENALTIES)
    sums = form.sums(X, LABELS[loss], WEIGHT, loss, models)
    x = random.random((700, 4)).astype(np.float32) * [1, 100, 1, 1] - [0, 0, 1, 0]
    x = np.where(x < 0.1, 0, x).astype(np.float32)
    label, weight = random.integers(0, 2, 700).astype(float), random.integers(1, 4, 700) / 2
    models[:, 1] = 5.0  # of every fifth row
    for _ in range(5):
        stepped = form.step(loss, models, PENALTIES, np.ones(18), sums)
        for each in stepped:
            digest.update(np.nan_to_num(np.asarray(each, float), nan=-1.0).tobytes())
        models = stepped.models
        models[:, 1] = 5.0
        sums = form.sums(x.astype(float), label, weight, loss, models)
        single, sparse = (form.sums(each, label, weight, loss, models) for each in (x, scipy.sparse.csr_matrix(x)))
        few = form.sums(x, label, weight, loss, models, np.array([3, 17]))
        asks = np.isin(np.flatnonzero(models[:, 0]), (3, 17))
        for name, value in sums.items():
            np.testing.assert_array_equal(single[name], value)
        np.testing.assert_array_equal(few["sums"], sums["sums"][[3, 17]])
        np.testing.assert_array_equal(few["curvature"], sums["curvature"][asks])
        np.testing.assert_allclose(standardised(form, models, sparse["sums"]), sums["sums"], rtol=1e-9, atol=1e-7)
        alone = form.sums(scipy.sparse.csr_matrix(x), label, weight, loss, models, np.array([17]))
        np.testing.assert_array_equal(alone["sums"][0], sparse["sums"][17])
        digest.update(sparse["sums"].tobytes())
        digest.update(sparse["curvature"].tobytes())
    assert digest.hexdigest() == EPOCH_BITS[loss, dense]


#: Of every number of the models above; it is the same on every processor.
EPOCH_BITS = {
    ("logistic", True): "ca6675b36f1b29b05a6cb83f0e927704c927ddd1bf884ac9e05318fc042ba7ae",
    ("logistic", False): "8735870a726093956d303583a51e372d2b44bd5672515e008491919ff626d449",
    ("poisson", True): "65d91c4966de59ce0c4480da4171c5b3ee4472ebf631f397f5b109dd23b60598",
    ("poisson", False): "4cbb7fb59751925eb9a9353e73d708d681be88d69849f5b1deacbc03aef9873d",
    ("softmax", True): "c102375f7d2d3078669e93aec4fde86decce7224c7a05fd60519ddfc812fca12",
    ("squared_hinge", True): "2ce296c864a40c8a21be3260602f16f01b20189e8e6320dc8ddf55ee6f00d7ac",
    ("squared_hinge", False): "fd6592ed19d6654ae078a7956865d3823ded17f9f5569b0a2dd3511c3a942a4f",
    ("hinge", True): "7e06353bbd896ec21e6d1231cdb809f0626c0de02d10509d4db8c1e024d7160a",
    ("hinge", False): "6e737ab0565613297e5cedf8698a0aebc2f3db7a9d105926831dbb3d38f46e1b",
    ("softmax", False): "76a7258eebc469c47a90f33ad7af17fca1ba3a832ec0cb5238240c36585d16a1",
}

#: Of every number of every model of all losses; it is the same on every processor.
BITS = "4a204fdbbfb0679ef88568ff6277ac6ec931c29a8ea19c2d869c08ee1bb80d4b"


def test_the_same_bits_everywhere(build: str) -> None:
    digest = hashlib.sha256()
    for loss in SMOOTH:
        found = solve(loss, epochs=100)
        none = np.isnan(found.value)
        for part in astuple(replace(found, curve=np.nan_to_num(found.curve, nan=-1.0))):
            whole = part if part is found.curve or part.shape[0] != 5 else part[~none]
            digest.update(np.ascontiguousarray(whole).tobytes())
    assert digest.hexdigest() == BITS


#: The same of the hinge, which takes more epochs.
HINGE_BITS = "767812b6e3d80ff2eb32486707f4490128fa067d15bf63739e01bd2041461565"


def test_the_hinge_has_the_same_bits_everywhere(build: str) -> None:
    found, digest = solve("hinge"), hashlib.sha256()
    none = np.isnan(found.value)
    for part in (found.weights[~none], found.intercept[~none], found.value[~none], found.passes[~none]):
        digest.update(np.ascontiguousarray(part).tobytes())
    assert digest.hexdigest() == HINGE_BITS


def test_the_hinge_that_is_reported_is_the_hinge_itself_and_within_its_tolerance_of_the_least() -> None:
    """More steps find no more than the share that ended training."""
    found = solve("hinge")
    exact = solve("hinge", penalties=replace(PENALTIES, tolerance=np.full(18, 1e-12)), epochs=1000)
    for group, config in np.ndindex(5, 18):
        if np.isnan(found.value[group, config]):
            continue
        rows = slice(START[group], START[group + 1])
        weights, intercept = found.weights[group, config], found.intercept[group, config]
        margin = (2 * LABELS["hinge"][rows] - 1) * (X[rows] @ weights[0] + intercept)
        value = WEIGHT[rows] @ np.maximum(0, 1 - margin) + L1[config] * np.abs(weights).sum()
        value += 0.5 * L2[config] * np.square(weights).sum()
        assert found.value[group, config] == pytest.approx(value, rel=1e-9, abs=1e-12)
        assert found.converged[group, config]
        assert value <= exact.value[group, config] * (1 + 1.01e-8) + 1e-12


def test_rows_that_outweigh_all_others_lead_nowhere_above_the_start() -> None:
    """A step that single precision promises and nobody has evaluated is not taken: it led far above the start."""
    random = np.random.default_rng(1)
    x = random.normal(size=(500, 4))
    label = np.argmax(x[:, :3] + random.gumbel(size=(500, 3)), axis=1).astype(float)
    weight = np.ones(500)
    weight[:10] = 1e12
    one = kernel.GlmPenalties(np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.full(2, 1e-8))
    found = solve("softmax", x, label, weight, np.array([0, 500]), one)
    assert found.value[0, 0] < 8900
    assert found.value[0].max() < weight @ losses("softmax", np.zeros((500, 3)), label)[0] / 1e6
