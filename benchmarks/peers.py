"""Many models from one table: us against what a competent user writes today, from the DuckDB table to finished models.

The alternative fetches the columns once, splits them by group and fits in two processes with one thread each (joblib), a
task per group, so that rows travel once: scikit-learn for linear models, LightGBM, a torch loop. Ours is one statement, with
models, curves and metrics stored in the database. Quality is checked on a sample of the models, from their weights or
predictions. A side that takes more than a minute is timed once.

    python benchmarks/peers.py [--runs 3] [--only logistic] [--part 0.1]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import duckdb
import numpy as np
import pyarrow as pa
from _pairs import Workload, run, show, write
from joblib import Parallel, delayed

import grouplearn

L2S = tuple(float(value) for value in np.geomspace(0.01, 1000, 12))
LAMBDAS = tuple(float(value) for value in np.geomspace(0.01, 100, 10))
PENALTIES = (0.1, 1.0, 10.0)
FEW_L2S = (0.1, 1.0, 10.0, 100.0)
PATH = tuple(float(value) for value in np.geomspace(1000, 1, 20))
TREES = tuple((leaves, rate) for leaves in (10, 20, 30) for rate in (1.0, 0.5, 0.1, 0.05))
NETS = tuple((rate, l2) for rate in (1e-2, 3e-3, 1e-3, 3e-4) for l2 in (0.0, 1e-1, 1.0))


#: The part of rows and groups that is made; ``--part`` says another.
PART = 1.0


def table(path: Path, rows: int, columns: int, groups: int, zipf: float = 0.0, seed: int = 0) -> None:
    """Make table t: group g, features x0, x1, ..., a class y and a number z that depend on them by group."""
    rows, groups = round(rows * PART), max(1, round(groups * PART))
    random = np.random.default_rng(seed)
    share = np.arange(1, groups + 1) ** -zipf
    g = random.choice(groups, size=rows, p=share / share.sum()) if zipf else random.permutation(rows) % groups
    x = random.normal(size=(rows, columns)).astype(np.float32)
    score = np.einsum("ij,ij->i", x, (random.normal(size=(groups, columns)) * 0.3)[g])
    y = random.random(rows) < 1 / (1 + np.exp(-score))
    features = {f"x{number}": x[:, number] for number in range(columns)}
    arrow = pa.table({"g": g.astype(np.int32), **features, "y": y, "z": score + random.normal(size=rows)})
    with duckdb.connect(str(path)) as con:
        con.register("arrow", arrow)
        con.execute("CREATE TABLE t AS FROM arrow")


def names(columns: int) -> str:
    return ", ".join(f"x{number}" for number in range(columns))


def train(path: Path, statement: str, *queries: str) -> list[dict[str, np.ndarray]]:
    """Run a TRAIN; what is asked afterwards is small beside it."""
    with grouplearn.connect(path, progress=False) as con:
        con.execute(statement)
        return [con.execute(query).fetchnumpy() for query in queries]


def by_group(path: Path, columns: int, label: str) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    with duckdb.connect(str(path), read_only=True) as con:
        found = con.execute(f"SELECT g, {names(columns)}, {label} FROM t").fetchnumpy()
    order = np.argsort(found["g"], kind="stable")
    g = found["g"][order]
    x = np.stack([found[f"x{number}"] for number in range(columns)], axis=1).astype(np.float64)[order]
    y = found[label][order].astype(np.float64)
    starts = np.flatnonzero(np.r_[True, g[1:] != g[:-1]])
    for start, stop in zip(starts, [*starts[1:], len(g)], strict=True):
        yield int(g[start]), x[start:stop], y[start:stop]


def joblib(path: Path, columns: int, label: str, fit: Callable[..., Any], *arguments: Any) -> dict[int, Any]:
    tasks = [(group, delayed(fit)(x, y, *arguments)) for group, x, y in by_group(path, columns, label)]
    chunk = "auto" if len(tasks) < 1000 else 16
    done = Parallel(n_jobs=2, batch_size=chunk)(task for _, task in tasks)
    return dict(zip((group for group, _ in tasks), done, strict=True))


def weights_of(found: dict[str, np.ndarray], configs: int, columns: int) -> dict[int, np.ndarray]:
    """Return (config, weights then intercept) per group from the rows of artifacts."""
    out: dict[int, np.ndarray] = {}
    for key, config, weights, intercept in zip(
        *(found[name] for name in ("k", "config", "weights", "intercept")), strict=True
    ):
        out.setdefault(int(key), np.empty((configs, columns + 1)))[config] = [*weights, *intercept]
    return out


SAMPLE = (
    "SELECT keys[1]::INTEGER AS k, config, weights, intercept FROM grouplearn.artifacts JOIN grouplearn.groups "
    "USING (model, group_id) WHERE hash(keys[1]) % {every} = 0"
)


def fit_logistic(x: np.ndarray, y: np.ndarray, l2s: tuple[float, ...]) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    models = [LogisticRegression(C=1 / l2, max_iter=1000).fit(x, y) for l2 in l2s]
    return np.array([[*model.coef_[0], *model.intercept_] for model in models])


def logistic_excess(path: Path, columns: int) -> Callable[[Any, Any], tuple[str, bool]]:
    def check(ours: dict[int, np.ndarray], theirs: dict[int, np.ndarray]) -> tuple[str, bool]:
        worst = 0.0
        for group, x, y in by_group(path, columns, "y"):
            if group in ours:
                mine, other = (objective(x, y, each[group]) for each in (ours, theirs))
                worst = max(worst, float((mine / other - 1).max()))
        return f"worst excess of the objective {worst:.0e}, {len(ours)} groups checked", worst <= 1e-5

    return check


def objective(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    scores = x @ weights[:, :-1].T + weights[:, -1]
    losses = (np.logaddexp(0, scores) - y[:, None] * scores).sum(axis=0)
    return losses + 0.5 * np.array(L2S) * (weights[:, :-1] ** 2).sum(axis=1)


def logistic(folder: Path, groups: int, zipf: float, target: float) -> Workload:
    path = folder / f"logistic{groups}.duckdb"
    table(path, 1_000_000, 32, groups, zipf)
    statement = (
        f"TRAIN OR REPLACE MODEL m USING logistic_regression PREDICT y FEATURES ({names(32)}) FROM t GROUP BY g "
        f"OVER GRID (l2 IN {L2S}) VALIDATE NONE"
    )
    return Workload(
        f"logistic, 1M x 32, {groups:,} groups, 12 configs",
        lambda: weights_of(train(path, statement, SAMPLE.format(every=max(1, groups // 50)))[0], 12, 32),
        lambda: joblib(path, 32, "y", fit_logistic, L2S),
        logistic_excess(path, 32),
        target,
    )


def with_category(path: Path) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield each group's numbers, texts and label."""
    with duckdb.connect(str(path), read_only=True) as con:
        found = con.execute(f"SELECT g, {names(8)}, c, y FROM t").fetchnumpy()
    order = np.argsort(found["g"], kind="stable")
    g, texts, y = found["g"][order], found["c"].astype(str)[order], found["y"][order].astype(np.float64)
    x = np.stack([found[f"x{number}"] for number in range(8)], axis=1).astype(np.float64)[order]
    starts = np.flatnonzero(np.r_[True, g[1:] != g[:-1]])
    for start, stop in zip(starts, [*starts[1:], len(g)], strict=True):
        yield int(g[start]), x[start:stop], texts[start:stop], y[start:stop]


def encoded(x: np.ndarray, texts: np.ndarray, scaled: bool) -> Any:
    from scipy.sparse import csr_matrix, hstack
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    if scaled:  # few columns: dense rows are fitted sooner
        categories = OneHotEncoder(sparse_output=False).fit_transform(texts[:, None])
        return np.hstack([StandardScaler().fit_transform(x), categories])
    return hstack([csr_matrix(x), OneHotEncoder().fit_transform(texts[:, None])]).tocsr()


def fit_encoded(x: np.ndarray, texts: np.ndarray, y: np.ndarray, scaled: bool) -> np.ndarray:
    return fit_logistic(encoded(x, texts, scaled), y, FEW_L2S)


def encoded_objective(x: Any, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    scores = x @ weights[:, :-1].T + weights[:, -1]
    losses = (np.logaddexp(0, scores) - y[:, None] * scores).sum(axis=0)
    return losses + 0.5 * np.array(FEW_L2S) * (weights[:, :-1] ** 2).sum(axis=1)


def categories(folder: Path, groups: int, texts: int, scaled: bool, target: float) -> Workload:
    """Numbers, as they are or ``scaled`` by group, and a category of so many texts."""
    path = folder / f"categories{groups}.duckdb"
    table(path, 1_000_000, 8, groups)
    with duckdb.connect(str(path)) as con:
        con.execute(f"CREATE OR REPLACE TABLE t AS SELECT *, 'c' || hash(rowid) % {texts} AS c FROM t")
    numbers = ", ".join(f"zscore(x{number})" for number in range(8)) if scaled else names(8)
    statement = (
        f"TRAIN OR REPLACE MODEL m USING logistic_regression PREDICT y FEATURES ({numbers}, onehot(c)) FROM t GROUP BY g "
        f"OVER GRID (l2 IN {FEW_L2S}) VALIDATE NONE"
    )

    def ours() -> dict[int, np.ndarray]:
        found = train(path, statement, SAMPLE.format(every=max(2, groups // 50)))[0]
        columns = zip(*(found[name] for name in ("k", "config", "weights", "intercept")), strict=True)
        out: dict[int, dict[int, Any]] = {}
        for key, config, weights, intercept in columns:
            out.setdefault(int(key), {})[int(config)] = [*weights, *intercept]
        return {key: np.array([by_config[config] for config in sorted(by_config)]) for key, by_config in out.items()}

    def theirs() -> dict[int, np.ndarray]:
        tasks = [(group, delayed(fit_encoded)(x, own, y, scaled)) for group, x, own, y in with_category(path)]
        chunk = "auto" if len(tasks) < 1000 else 16
        done = Parallel(n_jobs=2, batch_size=chunk)(task for _, task in tasks)
        return dict(zip((group for group, _ in tasks), done, strict=True))

    def check(mine: dict[int, np.ndarray], others: dict[int, np.ndarray]) -> tuple[str, bool]:
        worst = 0.0
        for group, x, own, y in with_category(path):
            if group in mine:
                design = encoded(x, own, scaled)
                one, other = (encoded_objective(design, y, each[group]) for each in (mine, others))
                worst = max(worst, float((one / other - 1).max()))
        return f"worst excess of the objective {worst:.0e}, {len(mine)} groups checked", worst <= 1e-5

    kind = "scaled" if scaled else "as they are"
    return Workload(
        f"logistic, 1M x (8 numbers {kind} + {texts} categories), {groups:,} groups, 4 configs",
        ours,
        theirs,
        check,
        target,
    )


def fit_penalties(x: np.ndarray, y: np.ndarray, alphas: tuple[float, ...]) -> np.ndarray:
    from sklearn.linear_model import Ridge

    models = [Ridge(alpha=alpha, solver="cholesky").fit(x, y) for alpha in alphas]
    return np.array([[*model.coef_, model.intercept_] for model in models])


def fit_ridge(x: np.ndarray, y: np.ndarray, alphas: tuple[float, ...]) -> np.ndarray:
    from sklearn.linear_model import Ridge

    fold = np.arange(len(y)) % 5
    errors = np.empty((5, len(alphas)))
    for held in range(5):
        inside, outside = fold != held, fold == held
        for number, alpha in enumerate(alphas):
            model = Ridge(alpha=alpha, solver="cholesky").fit(x[inside], y[inside])
            errors[held, number] = np.sqrt(((y[outside] - model.predict(x[outside])) ** 2).mean())
    return fit_penalties(x, y, alphas)


def same_weights(tolerance: float) -> Callable[[Any, Any], tuple[str, bool]]:
    def check(ours: dict[int, np.ndarray], theirs: dict[int, np.ndarray]) -> tuple[str, bool]:
        worst = max(
            float(np.abs(mine - theirs[group]).max() / np.abs(theirs[group]).max()) for group, mine in ours.items()
        )
        return f"weights differ by {worst:.0e}, {len(ours)} groups checked", worst <= tolerance

    return check


def ridge(folder: Path) -> Workload:
    path = folder / "ridge.duckdb"
    table(path, 1_000_000, 32, 10_000)
    statement = (
        f"TRAIN OR REPLACE MODEL m USING linear_regression PREDICT z FEATURES ({names(32)}) FROM t GROUP BY g "
        f"OVER GRID (l2 IN {LAMBDAS}) VALIDATE FOLDS 5"
    )
    return Workload(
        "ridge, 1M x 32, 10,000 groups, 10 lambdas, 5 folds",
        lambda: weights_of(train(path, statement, SAMPLE.format(every=200))[0], 10, 32),
        lambda: joblib(path, 32, "z", fit_ridge, LAMBDAS),
        same_weights(1e-8),
        120,
    )


def tiny_ridge(folder: Path) -> Workload:
    path = folder / "tiny.duckdb"
    table(path, 5_000_000, 8, 100_000)
    statement = (
        f"TRAIN OR REPLACE MODEL m USING linear_regression PREDICT z FEATURES ({names(8)}) FROM t GROUP BY g "
        f"OVER GRID (l2 IN {PENALTIES}) VALIDATE NONE"
    )
    return Workload(
        "ridge, 5M x 8, 100,000 groups, 3 lambdas",
        lambda: weights_of(train(path, statement, SAMPLE.format(every=2000))[0], 3, 8),
        lambda: joblib(path, 8, "z", fit_penalties, PENALTIES),
        same_weights(1e-8),
        40,
    )


def fit_path(x: np.ndarray, y: np.ndarray, l1s: tuple[float, ...]) -> np.ndarray:
    from sklearn.linear_model import enet_path

    mean, level, n = x.mean(axis=0), y.mean(), len(y)
    alphas = [2 * l1 / n for l1 in l1s]
    _, weights, _ = enet_path(
        x - mean, y - level, l1_ratio=0.5, alphas=alphas, precompute=True, tol=1e-6, max_iter=10_000
    )
    return np.hstack([weights.T, (level - mean @ weights)[:, None]])


def elastic_net(folder: Path) -> Workload:
    path = folder / "net.duckdb"
    table(path, 1_000_000, 64, 100, 1.1)
    pairs = ", ".join(f"({l1}, {l1})" for l1 in PATH)
    statement = (
        f"TRAIN OR REPLACE MODEL m USING linear_regression PREDICT z FEATURES ({names(64)}) FROM t GROUP BY g "
        f"OVER GRID ((l1, l2) IN ({pairs})) VALIDATE NONE"
    )
    return Workload(
        "elastic net path, 1M x 64, 100 groups, 20 points",
        lambda: weights_of(train(path, statement, SAMPLE.format(every=1))[0], 20, 64),
        lambda: joblib(path, 64, "z", fit_path, PATH),
        same_weights(1e-3),
        6,
    )


def log_loss(y: np.ndarray, p: np.ndarray) -> float:
    p = np.clip(p, 1e-15, 1 - 1e-15)
    return float(-(y * np.log(p) + (1 - y) * np.log(1 - p)).mean())


def fit_trees(x: np.ndarray, y: np.ndarray, rounds: int) -> list[float]:
    import lightgbm

    losses = []
    for leaves, rate in TREES:
        parameters = {
            "objective": "binary", "num_leaves": leaves, "learning_rate": rate, "num_threads": 1, "verbose": -1,
            "deterministic": True, "force_col_wise": True, "seed": 0,
        }  # fmt: skip
        booster = lightgbm.train(parameters, lightgbm.Dataset(x, y, params={"verbose": -1}), num_boost_round=rounds)
        losses.append(log_loss(y, booster.predict(x)))
    return losses


def fit_nets(x: np.ndarray, y: np.ndarray) -> list[float]:
    import torch

    torch.set_num_threads(1)
    inputs, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    losses = []
    for rate, l2 in NETS:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
        optimizer = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=l2 / len(y))
        for batch in torch.randperm(len(y)).split(32):
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(net(inputs[batch])[:, 0], labels[batch])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            losses.append(log_loss(y, torch.sigmoid(net(inputs)[:, 0]).numpy().astype(float)))
    return losses


def same_losses(tolerance: float) -> Callable[[Any, Any], tuple[str, bool]]:
    """Compare the training losses of all models: ours is a table in order of group and configuration."""

    def check(ours: dict[str, np.ndarray], theirs: dict[int, list[float]]) -> tuple[str, bool]:
        expected = np.array([loss for group in sorted(theirs) for loss in theirs[group]])
        excess = float((ours["loss"] / expected - 1).mean())
        return f"mean loss differs by {excess:+.1e}, {len(expected)} models", excess <= tolerance

    return check


def trees(folder: Path, groups: int, zipf: float, rounds: int, target: float) -> Workload:
    path = folder / f"groups{groups}.duckdb"
    if not path.exists():
        table(path, 1_000_000, 32, groups, zipf)
    statement = (
        f"TRAIN OR REPLACE MODEL m USING gbdt PREDICT y FEATURES ({names(32)}) FROM t GROUP BY g "
        f"OVER GRID ((num_leaves, learning_rate) IN {TREES}) VALIDATE NONE WITH (num_iterations = {rounds})"
    )
    return Workload(
        f"gbdt, 1M x 32, {groups:,} groups, 12 configs, {rounds} trees",
        lambda: train(path, statement, LOSSES)[0],
        lambda: joblib(path, 32, "y", fit_trees, rounds),
        same_losses(1e-5),
        target,
    )


def fit_small_forest(x: np.ndarray, z: np.ndarray, rounds: int) -> list[float]:
    import lightgbm

    parameters = {
        "objective": "regression",
        "num_threads": 1,
        "verbose": -1,
        "deterministic": True,
        "force_col_wise": True,
    }
    booster = lightgbm.train(parameters, lightgbm.Dataset(x, z, params={"verbose": -1}), num_boost_round=rounds)
    return [float(np.sqrt(((booster.predict(x) - z) ** 2).mean()))]


def small_forests(folder: Path) -> Workload:
    path, rounds = folder / "forests.duckdb", 10
    table(path, 200_000, 3, 10_000)
    statement = (
        f"TRAIN OR REPLACE MODEL m USING gbdt PREDICT z FEATURES ({names(3)}) FROM t GROUP BY g "
        f"VALIDATE NONE WITH (num_iterations = {rounds})"
    )
    return Workload(
        f"gbdt, 200,000 x 3, 10,000 groups, {rounds} trees",
        lambda: train(path, statement, LOSSES)[0],
        lambda: joblib(path, 3, "z", fit_small_forest, rounds),
        same_losses(1e-5),
        1.5,
    )


LOSSES = (
    "SELECT train[1] AS loss FROM grouplearn.trials JOIN grouplearn.groups USING (model, group_id) "
    "ORDER BY keys[1]::INTEGER, config"
)


def nets(folder: Path) -> Workload:
    path = folder / "groups100.duckdb"
    table(path, 1_000_000, 32, 100, 1.1)
    statement = (
        f"TRAIN OR REPLACE MODEL m USING mlp PREDICT y FEATURES ({names(32)}) FROM t GROUP BY g "
        f"OVER GRID ((learning_rate, l2) IN {NETS}) VALIDATE NONE WITH (epochs = 1, hidden_layers = [32], batch_size = 32)"
    )
    return Workload(
        "mlp (32-32-1), 1M x 32, 100 groups, 12 configs, batch 32",
        lambda: train(path, statement, LOSSES)[0],
        lambda: joblib(path, 32, "y", fit_nets),
        same_losses(1e-2),
        100,
    )


CLUSTERS, STARTS = tuple(range(2, 11)), 3


def blobs(path: Path, rows: int, columns: int, groups: int) -> None:
    """Make table t of clouds that overlap, six in each group."""
    rows, groups = round(rows * PART), max(1, round(groups * PART))
    random = np.random.default_rng(5)
    g, cloud = random.permutation(rows) % groups, random.integers(6, size=rows)
    x = random.normal(size=(groups, 6, columns))[g, cloud] * 2 + random.normal(size=(rows, columns))
    arrow = pa.table({"g": g.astype(np.int32), **{f"x{number}": x[:, number] for number in range(columns)}, "y": cloud})
    with duckdb.connect(str(path)) as con:
        con.register("arrow", arrow)
        con.execute("CREATE TABLE t AS FROM arrow")


def fit_clusters(x: np.ndarray, _: np.ndarray, ks: tuple[int, ...], starts: int) -> list[float]:
    from sklearn.cluster import KMeans

    return [float(KMeans(k, n_init=starts, random_state=0).fit(x).inertia_) for k in ks]


def fit_components(x: np.ndarray, _: np.ndarray) -> list[float]:
    from sklearn.decomposition import PCA

    return [float(each) for each in PCA(svd_solver="covariance_eigh").fit(x).explained_variance_]


def clusters(folder: Path) -> Workload:
    path = folder / "clusters.duckdb"
    blobs(path, 100_000, 16, 100)
    statement = (
        f"TRAIN OR REPLACE MODEL m USING kmeans FEATURES ({names(16)}) FROM t GROUP BY g OVER GRID (k IN {CLUSTERS}) "
        f"VALIDATE NONE WITH (n_init = {STARTS})"
    )

    def check(mine: dict[int, float], others: dict[int, list[float]]) -> tuple[str, bool]:
        ratio = sum(mine.values()) / sum(map(sum, others.values()))
        return f"inertia of all models {ratio:.4f} of theirs", ratio <= 1.001

    def ours() -> dict[int, float]:
        found = train(path, statement, "SELECT g, sum(train_inertia) AS inertia FROM m GROUP BY g")[0]
        return dict(zip(found["g"].tolist(), found["inertia"].tolist(), strict=True))

    return Workload(
        f"k-means, 100k x 16, 100 groups, k = 2 to 10, {STARTS} starts",
        ours,
        lambda: joblib(path, 16, "y", fit_clusters, CLUSTERS, STARTS),
        check,
        5,
    )


def components(folder: Path) -> Workload:
    path = folder / "components.duckdb"
    blobs(path, 1_000_000, 32, 100)
    statement = f"TRAIN OR REPLACE MODEL m USING pca FEATURES ({names(32)}) FROM t GROUP BY g VALIDATE NONE"

    def ours() -> dict[int, list[float]]:
        query = "SELECT g, list(variance ORDER BY component) AS variance FROM m_variance GROUP BY g"
        found = train(path, statement, query)[0]
        return {int(g): list(variance) for g, variance in zip(found["g"], found["variance"], strict=True)}

    def check(mine: dict[int, list[float]], others: dict[int, list[float]]) -> tuple[str, bool]:
        worst = max(float(np.max(np.abs(np.divide(mine[g], others[g]) - 1))) for g in others)
        return f"variances differ by {worst:.0e}", worst < 1e-9

    return Workload(
        "PCA, 1M x 32, 100 groups, all components",
        ours,
        lambda: joblib(path, 32, "y", fit_components),
        check,
        2,
    )


WORKLOADS: dict[str, Callable[[Path], Workload]] = {
    "logistic100": lambda folder: logistic(folder, 100, 1.1, 8),
    "logistic10000": lambda folder: logistic(folder, 10_000, 0.0, 60),
    "categories": lambda folder: categories(folder, 100, 400, False, 2),
    "encoded": lambda folder: categories(folder, 10_000, 20, True, 20),
    "ridge": ridge,
    "ridge100000": tiny_ridge,
    "net": elastic_net,
    "trees10": lambda folder: trees(folder, 280, 1.1, 10, 2),
    "trees100": lambda folder: trees(folder, 280, 1.1, 100, 1.2),
    "trees10000": lambda folder: trees(folder, 10_000, 0.0, 10, 1.5),
    "forests": small_forests,
    "nets": nets,
    "clusters": clusters,
    "components": components,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=WORKLOADS, nargs="*", default=list(WORKLOADS))
    parser.add_argument("--part", type=float, default=1.0, help="make this part of the rows and groups, e.g. 0.1")
    arguments = parser.parse_args()
    global PART
    PART = arguments.part
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only:
            rows.append(run(WORKLOADS[name](Path(folder)), arguments.runs))
            show(rows[-1])
    write(__file__, rows)


if __name__ == "__main__":
    main()
