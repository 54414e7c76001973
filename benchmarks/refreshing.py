"""REFRESH with a hundredth of new rows beside TRAIN of all rows, and clusters in one pass beside Lloyd's algorithm.

``refresh`` is the time of REFRESH MODEL FROM the new rows, ``train`` that of TRAIN on old and new rows together, ``partial_fit``
that of scikit-learn's SGDRegressor for each group on the new rows (a loop, with pandas groupby), where it can. Learners of sums
must give the models of all rows, to 1e-9; of others the error on rows that neither has seen is printed. ``coreset`` and
``facility_location`` are TRAIN with that solver of kmeans, with the inertia on all rows against Lloyd's. Medians of alternating
runs in one process.

    python benchmarks/refreshing.py [--rows 2_000_000] [--groups 20] [--repeats 5] [--cluster-rows 5_000_000]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from sklearn.linear_model import SGDRegressor

import grouplearn

TABLE = """
CREATE OR REPLACE TABLE rows AS SELECT (i % {groups})::INTEGER AS g, i >= {rows} * 1.01 AS unseen, i >= {rows} AS later,
  *, a + 2 * b + 3 * c * c + d * (i % {groups}) + e / 2 AS y
FROM (SELECT i, random() AS a, random() AS b, random() AS c, random() AS d, random() AS e
  FROM range(({rows} * 1.06)::BIGINT) AS r(i));
CREATE OR REPLACE TABLE old AS FROM rows WHERE NOT later;
CREATE OR REPLACE TABLE fresh AS FROM rows WHERE later AND NOT unseen;
CREATE OR REPLACE TABLE every AS FROM rows WHERE NOT unseen;
CREATE OR REPLACE TABLE unseen AS FROM rows WHERE unseen;
"""
STATEMENT = "TRAIN OR REPLACE MODEL {} USING {} FROM {} GROUP BY g WITH (keep_versions = 1{})"
#: By name: learner, label and features; options; options of REFRESH.
CASES = {
    "linear_regression": ("linear_regression PREDICT y FEATURES (a, b, c, d)", "", ""),
    "pca": ("pca FEATURES (a, b, c, d, y)", "", ""),
    "kmeans, coreset": ("kmeans FEATURES (a, b, c, d, y)", ", solver = 'coreset', k = 5, keep_state = true", ""),
    "linear_regression, sgd": (
        "linear_regression PREDICT y FEATURES (a, b, c, d)",
        ", solver = 'sgd', epochs = 5",
        "epochs = 1",
    ),
    "gbdt, add": ("gbdt PREDICT y FEATURES (a, b, c, d)", "", "refresh = 'add'"),
    "gbdt, leaves": ("gbdt PREDICT y FEATURES (a, b, c, d)", "", "refresh = 'leaves'"),
}
EXACT = {"linear_regression": "weights", "pca": "components"}


def timed(what: Callable[..., object], *given: object) -> float:
    """Return the seconds that it takes."""
    began = time.perf_counter()
    what(*given)
    return time.perf_counter() - began


def numbers(con: grouplearn.Connection, name: str, view: str) -> list[float]:
    """Return the last column of a model's view."""
    return [row[-1] for row in con.execute(f"FROM {name}_{view} ORDER BY ALL").fetchall()]


def check(con: grouplearn.Connection, case: str) -> str:
    """Return how the refreshed model ``m`` compares with ``whole``; raise if models of sums differ."""
    if case in EXACT:
        pairs = zip(numbers(con, "m", EXACT[case]), numbers(con, "whole", EXACT[case]), strict=True)
        worst = max(abs(one - other) / max(1.0, abs(other)) for one, other in pairs)
        assert worst < 1e-9, worst
        return f"greatest difference {worst:.1e}"
    if "PREDICT" not in CASES[case][0]:
        return ""
    error = "SELECT sqrt(avg((prediction - y) ** 2)) FROM {}_predict(unseen)"
    found = [con.execute(error.format(name)).fetchall()[0][0] for name in ("m", "whole")]
    return "rmse on unseen rows: refresh {:.4f}, train {:.4f}".format(*found)


def partial_fit(con: grouplearn.Connection) -> Callable[[], object]:
    """Return what fits a linear model of each group further on the new rows."""
    models = {}
    for key, rows in con.execute("FROM old").df().groupby("g"):
        models[key] = SGDRegressor(random_state=1).fit(rows[[*"abcd"]].to_numpy(), rows["y"].to_numpy())

    def fit() -> None:
        for key, rows in con.execute("FROM fresh").df().groupby("g"):
            models[key].partial_fit(rows[[*"abcd"]].to_numpy(), rows["y"].to_numpy())

    return fit


def refreshing(con: grouplearn.Connection, repeats: int) -> None:
    """Print the ratio of REFRESH and TRAIN for each learner."""
    for case, (learner, options, given) in CASES.items():
        seconds: dict[str, list[float]] = {"refresh": [], "train": []}
        again = f" WITH ({given})" if given else ""
        for _ in range(repeats):
            con.execute(STATEMENT.format("m", learner, "old", options))
            seconds["refresh"].append(timed(con.execute, f"REFRESH MODEL m FROM fresh{again}"))
            seconds["train"].append(timed(con.execute, STATEMENT.format("whole", learner, "every", options)))
        if case.endswith("sgd"):
            fit = partial_fit(con)
            seconds["partial_fit"] = [timed(fit) for _ in range(repeats)]
        medians = {name: statistics.median(each) for name, each in seconds.items()}
        shown = ", ".join(f"{name} {value:.3f} s" for name, value in medians.items())
        ratio = medians["refresh"] / medians["train"]
        print(f"{case:24} {shown}, refresh / train {ratio:.1%}  {check(con, case)}", flush=True)


def clusters(con: grouplearn.Connection, rows: int, repeats: int) -> None:
    """Print the ratio of one pass and of Lloyd's algorithm for k = 10."""
    con.execute(
        f"CREATE OR REPLACE TABLE points AS SELECT {', '.join(f'random() AS x{n}' for n in range(8))} FROM range({rows})"
    )
    statement = "TRAIN OR REPLACE MODEL {} USING kmeans FEATURES (*) FROM points VALIDATE NONE WITH (keep_versions = 1, k = 10{})"
    solvers = {"lloyd": "", "coreset": ", solver = 'coreset'", "facility": ", solver = 'facility_location'"}
    seconds: dict[str, list[float]] = {name: [] for name in solvers}
    for _ in range(repeats):
        for name, options in solvers.items():
            seconds[name].append(timed(con.execute, statement.format(name, options)))
    for name in solvers:
        ((inertia,), (best,)) = (
            con.execute(f"SELECT train_inertia FROM {each}").fetchall()[0] for each in (name, "lloyd")
        )
        median, base = statistics.median(seconds[name]), statistics.median(seconds["lloyd"])
        print(
            f"kmeans, {name:16} {median:.3f} s, / Lloyd {median / base:.1%}, inertia / Lloyd's {inertia / best:.4f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cluster-rows", type=int, default=5_000_000)
    given = parser.parse_args()
    with grouplearn.connect(progress=False) as con:
        con.execute("SET enable_progress_bar = false; SELECT setseed(0.5)")
        con.execute(TABLE.format(rows=given.rows, groups=given.groups))
        print(f"{given.rows:,} rows and a hundredth more, {given.groups} groups")
        refreshing(con, given.repeats)
        if given.cluster_rows:
            clusters(con, given.cluster_rows, min(3, given.repeats))


if __name__ == "__main__":
    main()
