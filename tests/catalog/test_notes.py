"""What TRAIN's answer says beside the numbers."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.dying_runs import dies

import grouplearn
from grouplearn.learners.linear.least_squares import solver as least_squares
from grouplearn.learners.trees.gbdt import Gbdt
from grouplearn.train.results import ledger


def answer(con: grouplearn.Connection, train: str) -> list[dict[str, object]]:
    con.execute(
        "CREATE TABLE t AS SELECT i % 2 AS g, hash(i) % 1000 / 1000 AS a, hash(i * 3) % 1000 / 1000 AS b,"
        " hash(i) % 1000 > hash(i * 5) % 1000 AS y FROM range(1000) AS r(i)"
    )
    rows: list[dict[str, object]] = con.execute(train).fetch_arrow_table().to_pylist()
    return rows


def test_trials_at_the_limit_of_epochs() -> None:
    with grouplearn.connect(progress=False) as con:
        train = "TRAIN MODEL m USING logistic_regression PREDICT y FROM t GROUP BY g OVER GRID (l2 IN (0.1, 1))"
        rows = answer(con, f"{train} WITH (epochs = 2)")
        told = "2 of 2 trials stopped at the limit of 2 epochs, not converged: raise epochs"
        assert [row["note"] for row in rows] == [told, told]
        rows = con.execute(train.replace("TRAIN", "TRAIN OR REPLACE")).fetch_arrow_table().to_pylist()
        assert all("note" not in row for row in rows)


def test_held_out_rows_that_judge_no_trial() -> None:
    with grouplearn.connect(progress=False) as con:
        train = (
            "TRAIN MODEL m USING logistic_regression PREDICT y AND g = 0 AS z FEATURES (a, b) FROM t"
            " OVER GRID (l2 IN (0.1, 1)) VALIDATE WHERE g = 1 OPTIMIZE auc"
        )
        (row,) = answer(con, train)
        assert row["note"] == "no trial has a valid_auc: the best is chosen by valid_log_loss"


def test_what_has_no_epochs_is_not_told_to_raise_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least_squares, "_LEAST_ROUNDS", 1)
    monkeypatch.setattr(least_squares, "_ROUNDS_OF_COLUMNS", 0)
    with grouplearn.connect(progress=False) as con:
        rows = answer(
            con,
            "TRAIN MODEL m USING linear_regression PREDICT y::INT FEATURES (*) FROM t GROUP BY g OVER GRID (l1 IN (0.1, 1e6))",
        )
        told = "1 of 2 trials have not converged: raise l1 or tolerance"
        assert [str(row["note"]).split("; ")[-1] for row in rows] == [told] * 2
        found = con.execute("SELECT DISTINCT status, converged FROM m WHERE l1 < 1").fetchall()
        assert found == [("done", False)]


@pytest.mark.parametrize(("target", "far_off"), [("a * 5", "a * 1e12"), ("y", "a * 1e12")], ids=["a number", "a class"])
def test_a_network_that_went_astray_is_said_to_be_poor(target: str, far_off: str) -> None:
    with grouplearn.connect(progress=False) as con:
        train = "TRAIN OR REPLACE MODEL m USING mlp PREDICT {} AS z FEATURES ({}) FROM t GROUP BY g WITH (epochs = 20)"
        rows = answer(con, train.format(target, far_off))
        told = "worse on its own rows than a constant: bring features to one scale (zscore), lower learning_rate"
        assert all(told in str(row["note"]) for row in rows)
        (row, _) = con.execute(train.format(target, f"zscore({far_off})")).fetch_arrow_table().to_pylist()
        assert "note" not in row


FITS = [
    # What another loss calls a good fit has errors that are no smaller squared than those about the mean.
    ("gbdt", "a * 2", "a", "objective = 'quantile', alpha = 0.999, num_iterations = 1", None),
    ("gbdt", "a * 2", "a", "objective = 'quantile', alpha = 0.01, num_iterations = 1", None),
    ("gbdt", "exp(12 * a)", "b", "objective = 'mape', num_iterations = 2", None),
    ("gbdt", "y", "b", "scale_pos_weight = 100000", None),
    (
        "gbdt",
        "a * 2",
        "a",
        "objective = 'quantile', learning_rate = 50, num_iterations = 9",
        "lower learning_rate or raise",
    ),
    ("gbdt", "a * 2", "a", "learning_rate = 3, num_iterations = 9", "lower learning_rate or raise num_iterations"),
    (
        "gbdt",
        "a * 2",
        "a",
        "objective = 'regression_l1', learning_rate = 50, num_iterations = 9",
        "lower learning_rate or",
    ),
    ("gbdt", "y", "a", "learning_rate = 90, num_iterations = 9", "lower learning_rate or raise num_iterations"),
    (
        "linear_regression",
        "100 + a",
        "zscore(a)",
        "fit_intercept = false",
        "set fit_intercept = true or bring features",
    ),
]


@pytest.mark.examples(5)
@pytest.mark.parametrize(("learner", "target", "features", "options", "told"), FITS)
def test_a_fit_is_judged_by_the_metric_of_its_loss_and_told_what_the_learner_has(
    learner: str, target: str, features: str, options: str, told: str | None
) -> None:
    with grouplearn.connect(progress=False) as con:
        train = f"TRAIN MODEL m USING {learner} PREDICT {target} AS z FEATURES ({features}) FROM t WITH ({options})"
        (row,) = answer(con, train)
        if told is None:
            assert "worse on its own rows" not in str(row.get("note"))
        else:
            assert f"worse on its own rows than a constant: {told}" in str(row["note"])
            assert "zscore" not in str(row["note"]) or learner != "gbdt"


def test_trees_without_a_split() -> None:
    """Groups of 30 rows are too small for LightGBM's leaves of 20, and small weights for its least sum of them."""
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE s AS SELECT i % 3 AS g, i * 1.0 AS x, sin(i) AS y, 1e-6 AS w FROM range(90) AS r(i)")
        train = "TRAIN OR REPLACE MODEL m USING {} PREDICT y FEATURES (x) FROM s GROUP BY g WITH (num_iterations = 3{})"
        told = "no tree has a split, so no feature has an effect: lower min_data_in_leaf (or min_sum_hessian_in_leaf)"
        assert notes_of(con, train.format("gbdt", "")) == [told] * 3
        assert con.execute("SELECT count(DISTINCT prediction) FROM m_predict(s)").fetchall() == [(3,)]
        for enough in ("min_data_in_leaf = 3", "min_data_in_leaf = 3, weight = 1"):
            assert notes_of(con, train.format("gbdt", f", {enough}")) == [None] * 3
        assert notes_of(con, train.format("gbdt", ", min_data_in_leaf = 3, weight = w")) == [told] * 3
        assert notes_of(con, train.format("random_forest", "")) == [None] * 3


def test_configurations_of_several_losses_are_each_judged_by_their_own() -> None:
    with grouplearn.connect(progress=False) as con:
        train = (
            "TRAIN OR REPLACE MODEL m USING gbdt PREDICT a * 2 AS z FEATURES (a) FROM t GROUP BY g"
            " OVER GRID ({}) OPTIMIZE {}"
            " WITH (num_iterations = 3, learning_rate = {})"
        )
        quantiles = "(objective, alpha) IN (('quantile', 0.999), ('regression', 0.5))"
        assert all("note" not in row for row in answer(con, train.format(quantiles, "mape", 0.1)))
        losses = "objective IN ('regression_l1', 'regression')"
        astray = notes_of(con, train.format(losses, "rmse", 100))
        assert all("worse on its own rows" in str(note) for note in astray)


def notes_of(con: grouplearn.Connection, train: str) -> list[object]:
    return [row.get("note") for row in con.execute(train).arrow().to_pylist()]


def test_groups_without_held_out_rows() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 3 AS g, hash(i) % 1000 / 1000 AS a, a + hash(i * 3) % 100 / 1000 AS y,"
            " i % 3 = 0 AND i > 200 AS late FROM range(300) AS r(i)"
        )
        train = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (a) FROM t GROUP BY ROLLUP (g)"
        alone = "no row is held out, as in 2 of 4 groups: there is no valid_rmse, and "
        alone += "train_rmse is of the rows that were learned from"
        assert notes_of(con, f"{train} VALIDATE WHERE late") == [None, alone, alone, None]
        held = con.execute("SELECT n_valid, valid_rmse IS NULL, train_rmse > 0 FROM m WHERE g > 0").fetchall()
        assert held == [(0, True, True)] * 2
        (best, middle) = con.execute("SELECT best, median FROM (SHOW MODELS)").fetchall()[0]
        values = con.execute("SELECT min(valid_rmse), median(valid_rmse) FROM m").fetchall()
        assert values == [(best, middle)]

        grid = f"{train} OVER GRID (l2 IN (0, 100))"
        several = "no row is held out, as in 2 of 4 groups: the best is chosen by train_rmse, of the rows that were learned from"
        assert notes_of(con, f"{grid} VALIDATE WHERE late") == [None, several, several, None]
        best_of = "SELECT bool_and(is_best = (l2 = 0)) FROM m WHERE g > 0"
        assert con.execute(best_of).fetchall() == [(True,)]
        # tiny groups have no row to spare
        assert notes_of(con, f"{train.replace('FROM t', 'FROM t WHERE a < 0.5')} VALIDATE SAMPLE 20%") == [None] * 4
        con.execute("CREATE TABLE tiny AS FROM t WHERE g > 0 UNION ALL FROM (FROM t WHERE g = 0 LIMIT 3)")
        found = notes_of(con, f"{train.replace('FROM t', 'FROM tiny')} VALIDATE SAMPLE 10%")
        few = "only 3 rows: HAVING count(*) >= 30 leaves such groups out"
        assert found == [f"{few}; {alone.replace('2 of 4', '1 of 4')}", None, None, None]
        # what has a reason of its own, or no held-out rows by design
        assert notes_of(con, f"{train} VALIDATE NONE") == [None] * 4
        assert notes_of(con, f"{grid} VALIDATE FOLDS 3") == [None] * 4


def test_folds_that_judge_nothing_are_not_without_held_out_rows() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT hash(i) % 1000 / 1000 AS a, i = 7 AS y FROM range(60) AS r(i)")
        train = "TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (a) FROM t VALIDATE FOLDS 3 OPTIMIZE auc"
        (note,) = notes_of(con, train)
        assert (
            note
            == "not validated: 1 of 3 folds failed; the first: the label is false in all of the group's 40 training rows"
        )
        assert con.execute("SELECT n_valid, valid_auc FROM m").fetchall() == [(0, None)]


def test_failed_groups_have_an_error_and_no_note() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 2 AS g, i AS a, if(i % 2 = 1, NULL, i * 2) AS y FROM range(60) AS r(i)"
        )
        train = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (a) FROM t GROUP BY g VALIDATE WHERE i > 70"
        assert notes_of(con, train.replace("i > 70", "a > 50")) == [None, None]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("learning_rate = 3, num_iterations = 9", "lower max_depth or raise num_leaves"),
        (
            "learning_rate = 3, num_iterations = 9, lambda_l2 = 1e-3",
            "set lambda_l2 = 0.0, lower max_depth, or raise num_leaves",
        ),
    ],
)
def test_what_helps_is_what_hyperparameters_declare(options: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = tuple(
        replace(each, remedy={"num_leaves": "raise", "lambda_l2": "default", "max_depth": "lower"}.get(each.name))
        for each in Gbdt.declaration.hyperparameters
    )
    monkeypatch.setattr(Gbdt, "declaration", replace(Gbdt.declaration, hyperparameters=declared))
    with grouplearn.connect(progress=False) as con:
        (row,) = answer(con, f"TRAIN MODEL m USING gbdt PREDICT a * 2 AS z FEATURES (a) FROM t WITH ({options})")
    assert f"than a constant: {told}" in str(row["note"])


def test_resume_notes_what_the_rows_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "d.duckdb"
    with grouplearn.connect(file, progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 2 AS g, if(i % 10 = 3, NULL, hash(i) % 100) AS a, hash(i) % 90 + i % 8 AS y"
            " FROM range(400) AS r(i)"
        )
    train = "TRAIN MODEL m USING mlp PREDICT y FEATURES (zscore(a)) FROM t GROUP BY g VALIDATE NONE"
    monkeypatch.setattr(ledger, "FLUSH_SECONDS", 0.0)
    dies(file, monkeypatch, f"{train} WITH (durable = true, epochs = 2, workers = 1)", 1)
    told = "40 of 200 rows are skipped, as a is missing in 40, and 40 will predict NULL: impute(a) fills them"
    with grouplearn.connect(file, progress=False) as con:
        found = notes_of(con, "RESUME MODEL m")
    assert [told in str(note) for note in found] == [False, True]
