"""EVALUATE against scikit-learn on the same predictions."""

import numpy as np
import pyarrow as pa
import pytest
import sklearn.metrics as reference
from handmade import LEARNERS, definition, outcome, rollup_outcome
from helpers.measuring import every_metric
from pandas.testing import assert_frame_equal

import grouplearn
from grouplearn.catalog.models import load_definition
from grouplearn.catalog.records import ModelDefinition
from grouplearn.learners import registry
from grouplearn.learners.trees.lightgbm.objectives import OBJECTIVES
from grouplearn.models.label import LABELLED, NUMBER, SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.prediction.evaluation import evaluate_sql
from grouplearn.store import writer as store


def stored(con, name: str):
    return load_definition(con, "memory", "main", name)


def prepared(con, model: ModelDefinition):
    con.execute("BEGIN")
    store.write(con, model, rollup_outcome(model), replace=False)
    con.execute("COMMIT")
    # Rounded features make tied scores; the label is missing now and then.
    con.execute("UPDATE t SET y = NULL WHERE i % 23 = 0")
    con.execute("UPDATE t SET x1 = round(x1), x2 = round(x2), x3 = 1, tail = 'same'")
    return con.sql(evaluate_sql(stored(con, "m"), "t", None)).to_arrow_table().to_pylist()


def rows_of(con, result: dict, columns: str) -> list[tuple]:
    """The rows with a label and a prediction that the group of a result row predicted."""
    level = result["model_level"]
    same = "true" if level == "()" else "carrier IS NOT DISTINCT FROM $carrier"
    if level == "carrier, dest":
        same += " AND dest IS NOT DISTINCT FROM $dest"
    values = {name: result[name] for name in ("carrier", "dest") if f"${name}" in same}
    return con.execute(
        f"SELECT {columns} FROM m_predict(t) WHERE model_level = '{level}' AND y IS NOT NULL"
        f" AND prediction IS NOT NULL AND {same}",
        values,
    ).fetchall()


@pytest.mark.parametrize("linear", [True, False])
def test_regression(con, opaque, linear):
    results = prepared(con, definition(learner=LEARNERS[NUMBER] if linear else opaque(NUMBER)))
    assert sum(row["n_rows"] for row in results) == 400
    assert len(results) == 6
    for result in results:
        y, p = np.array(rows_of(con, result, "y, prediction")).T
        assert result["n_rows"] - result["n_skipped"] == len(y)
        assert result["rmse"] == pytest.approx(reference.root_mean_squared_error(y, p))
        assert result["mae"] == pytest.approx(reference.mean_absolute_error(y, p))
        assert result["r2"] == pytest.approx(reference.r2_score(y, p))
        assert result["mape"] == pytest.approx(reference.mean_absolute_percentage_error(y, p))


@pytest.mark.parametrize("linear", [True, False])
def test_binary(con, opaque, linear):
    ties, learner = 0, LEARNERS[TWO_CLASSES] if linear else opaque(TWO_CLASSES)
    for result in prepared(con, definition(TWO_CLASSES, learner=learner)):
        y, p, guess = np.array(rows_of(con, result, "y > 0, probability, prediction"), dtype=float).T
        ties += len(p) - len(np.unique(p))
        assert result["log_loss"] == pytest.approx(reference.log_loss(y, p))
        assert result["auc"] == pytest.approx(reference.roc_auc_score(y, p))
        assert result["accuracy"] == pytest.approx(reference.accuracy_score(y, guess))
        assert result["f1"] == pytest.approx(reference.f1_score(y, guess))
        assert result["precision"] == pytest.approx(reference.precision_score(y, guess, zero_division=0.0))
        assert result["recall"] == pytest.approx(reference.recall_score(y, guess))
        assert result["balanced_accuracy"] == pytest.approx(reference.balanced_accuracy_score(y, guess))
        assert result["pr_auc"] == pytest.approx(reference.average_precision_score(y, p))
        assert result["brier"] == pytest.approx(reference.brier_score_loss(y, p))
    assert ties > 40


@pytest.mark.parametrize("linear", [True, False])
def test_multiclass(con, opaque, linear):
    learner = LEARNERS[SEVERAL_CLASSES] if linear else opaque(SEVERAL_CLASSES)
    model = definition(SEVERAL_CLASSES, learner=learner)
    for result in prepared(con, model):
        found = rows_of(con, result, f"{model.target_sql} AS label, map_values(probabilities), prediction")
        y, guess = [row[0] for row in found], [row[2] for row in found]
        p = np.array([row[1] for row in found])
        assert len(set(y)) == 3
        hits = np.array([[label == name for name in model.classes] for label in y])
        known = np.flatnonzero((p > 0).any(axis=0))
        assert result["accuracy"] == pytest.approx(reference.accuracy_score(y, guess))
        assert result["balanced_accuracy"] == pytest.approx(reference.balanced_accuracy_score(y, guess))
        squares = ((p - hits) ** 2).sum(axis=1).mean()
        if len(known) == 2:
            # Of a group with two classes the metrics are those of the second one: any other is the rest.
            second, said = hits[:, known[1]], np.array(guess) == model.classes[known[1]]
            assert result["f1"] == pytest.approx(reference.f1_score(second, said))
            assert result["auc"] == pytest.approx(reference.roc_auc_score(second, p[:, known[1]]))
            assert result["pr_auc"] == pytest.approx(reference.average_precision_score(second, p[:, known[1]]))
            assert result["brier"] == pytest.approx(squares / 2)
        else:
            assert result["f1"] == pytest.approx(reference.f1_score(y, guess, average="macro"))
            for name, score in (("precision", reference.precision_score), ("recall", reference.recall_score)):
                assert result[name] == pytest.approx(score(y, guess, average="macro", zero_division=0.0))
            areas = [reference.roc_auc_score(hits[:, number], p[:, number]) for number in known]
            assert result["auc"] == pytest.approx(np.mean(areas))
            assert result["pr_auc"] == pytest.approx(reference.average_precision_score(hits, p))
            assert result["brier"] == pytest.approx(squares)
        own = p[np.arange(len(y)), [model.classes.index(name) for name in y]]
        eps = np.finfo(float).eps
        assert result["log_loss"] == pytest.approx(-np.log(np.clip(own, eps, 1 - eps)).mean())


def test_source_may_be_a_query_with_a_condition(con):
    model = definition()
    con.execute("BEGIN")
    store.write(con, model, rollup_outcome(model), replace=False)
    con.execute("COMMIT")
    sql = evaluate_sql(stored(con, "m"), "(FROM t WHERE i < 100) -- some", "carrier = 'AA' -- only AA")
    assert {row["carrier"] for row in con.sql(sql).to_arrow_table().to_pylist()} == {"AA"}
    assert sum(row["n_rows"] for row in con.sql(sql).to_arrow_table().to_pylist()) == 25


def test_degenerate_groups_have_null_metrics(con):
    con.execute("CREATE TABLE one AS FROM t WHERE i = 3")
    for label in LABELLED:
        model = definition(label, name=label.name)
        con.execute("BEGIN")
        store.write(con, model, rollup_outcome(model), replace=False)
        con.execute("COMMIT")
        row = con.sql(evaluate_sql(stored(con, label.name), "one", None)).to_arrow_table().to_pylist()[0]
        assert row["n_rows"] == 1
        assert row["r2" if label == NUMBER else "auc"] is None
    model = definition(TWO_CLASSES, name="nothing")
    con.execute("BEGIN")
    store.write(con, model, outcome([]), replace=False)
    con.execute("COMMIT")
    rows = con.sql(evaluate_sql(stored(con, "nothing"), "t", None)).to_arrow_table().to_pylist()
    assert rows == [
        {"carrier": None, "dest": None, "model_level": None, "n_rows": 400, "n_skipped": 400,
         **dict.fromkeys(every_metric(TWO_CLASSES))}
    ]  # fmt: skip


def test_label_is_compared_as_its_type() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("SET TimeZone = 'UTC'")
        con.execute(
            "CREATE TABLE t AS SELECT i % 3 AS code, TIMESTAMPTZ '2024-03-01 00:00:00+00' + INTERVAL (i % 3) HOUR AS moment,"
            " 10.0 * (i % 3) AS x FROM range(60) AS r(i)"
        )
        for label in ("code", "moment"):
            con.execute(
                f"TRAIN MODEL {label}s USING gbdt PREDICT {label} FEATURES (x) FROM t"
                " WITH (task = 'classification', num_iterations = 5)"
            )
        con.execute("SET TimeZone = 'Asia/Tokyo'")
        con.execute("CREATE TABLE other AS SELECT * REPLACE (code::DOUBLE AS code) FROM t")
        for label in ("code", "moment"):
            (row,) = con.execute(f"EVALUATE MODEL {label}s ON other").fetch_arrow_table().to_pylist()
            assert (row["n_skipped"], row["accuracy"]) == (0, 1.0)


@pytest.mark.parametrize(("learner", "label"), [("logistic_regression", "y"), ("linear_regression", "z")])
def test_metrics_of_rows_of_any_weight(learner: str, label: str) -> None:
    """Whatever the unit of the weights, their products and sums neither overflow nor vanish."""
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 3 AS g, sin(i) AS a, sin(i) + sin(i * i) > 0 AS y, sin(i) + i % 5 AS z,"
            " 1.0 + i % 4 AS w FROM range(300) AS r(i)"
        )
        con.execute(f"TRAIN MODEL m USING {learner} PREDICT {label} FEATURES (a) FROM t GROUP BY g WITH (weight = w)")
        expected = con.execute("EVALUATE MODEL m ON t").df().drop(columns="weight")
        assert np.isfinite(expected.drop(columns="model_level").to_numpy(float)).all()
        for power in (-1040, -530, 530, 1000):
            con.execute(f"CREATE VIEW v AS SELECT * REPLACE (w * 2.0::DOUBLE ** {power} AS w) FROM t")
            found = con.execute("EVALUATE MODEL m ON v").df()
            assert found.weight.tolist() == [250.0 * 2.0**power] * 3
            assert_frame_equal(found.drop(columns="weight"), expected, check_exact=False, rtol=1e-12)
            con.execute("DROP VIEW v")


def many_classes(con, n_classes: int, n_rows: int) -> None:
    con.execute(
        f"CREATE OR REPLACE TABLE s AS SELECT (i * 7919 % 101) / 10.0 AS x, 'c' || lpad(CAST(i % {n_classes} AS VARCHAR), 3, '0')"
        f" AS y, 1 + i % 3 AS w, i % 2 AS g FROM range({n_rows}) AS r(i)"
    )
    con.execute(
        "TRAIN OR REPLACE MODEL c USING logistic_regression PREDICT y FEATURES (x) FROM s GROUP BY g"
        " VALIDATE NONE WITH (weight = w, epochs = 5)"
    )


def test_many_classes_have_the_metrics_that_training_gave_them() -> None:
    with grouplearn.connect(progress=None) as con:
        many_classes(con, 31, 600)
        names = ("log_loss", "auc", "accuracy", "f1")
        trained = con.execute(f"SELECT {', '.join('train_' + name for name in names)} FROM c ORDER BY g").fetchall()
        judged = con.execute("EVALUATE MODEL c ON s").df()
        assert judged[list(names)].to_numpy() == pytest.approx(np.array(trained), rel=1e-9)
        every = con.execute("SELECT g, y, w, prediction, map_values(probabilities) FROM c_predict(s)").fetchall()
        for group in (0, 1):
            y, w, guess, p = zip(*(row[1:] for row in every if row[0] == group), strict=True)
            hits = np.array([[label == f"c{number:03}" for number in range(31)] for label in y])
            found = judged[judged.g == group].iloc[0]
            area = reference.average_precision_score(hits, np.array(p), average=None, sample_weight=w)
            assert found.pr_auc == pytest.approx(np.mean(area))
            balanced = reference.balanced_accuracy_score(y, guess, sample_weight=w)
            assert found.balanced_accuracy == pytest.approx(balanced)
            weights = np.array(w, dtype=float)
            assert found.brier == pytest.approx(np.average(((np.array(p) - hits) ** 2).sum(axis=1), weights=weights))


@pytest.mark.examples(5)
@pytest.mark.parametrize("learner", ["gbdt", pytest.param("random_forest", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("objective", [name for name, each in OBJECTIVES.items() if each.labels == {NUMBER}])
def test_every_objective_has_the_metrics_that_training_gave_it(objective: str, learner: str) -> None:
    """Also where the parameter of a metric (alpha, tweedie_variance_power) is that of the learner, and nobody wrote it."""
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 2 AS g, sin(i) AS x, 0.1 + abs(sin(i * 1.3)) / 2 AS y FROM range(120) r(i)"
        )
        options = f"VALIDATE NONE WITH (objective = '{objective}', num_iterations = 5, min_data_in_leaf = 5)"
        con.execute(f"TRAIN MODEL m USING {learner} PREDICT y FEATURES (x) FROM t GROUP BY g {options}")
        metrics = stored(con, "m").definition.metrics
        trained = con.execute(f"SELECT {', '.join(f'train_{name}' for name in metrics)} FROM m ORDER BY g").fetchnumpy()
        judged = con.execute(f"SELECT {', '.join(metrics)} FROM (EVALUATE MODEL m ON t) ORDER BY g").fetchnumpy()
    for name in metrics:
        np.testing.assert_allclose(judged[name], trained[f"train_{name}"], rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("learner", ["gbdt", "mlp", "logistic_regression"])
def test_a_stored_configuration_has_the_types_of_its_declaration(learner: str) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT sin(i) AS x, i % 3 = 0 AS y FROM range(60) AS r(i)")
        con.execute(f"TRAIN MODEL m USING {learner} PREDICT y FEATURES (x) FROM t")
        (config,) = stored(con, "m").definition.configs
    declared = {each.name: each.default for each in registry.learner(learner).declaration.hyperparameters}
    assert {name: (type(value), value) for name, value in config.items()} == {
        name: (type(value), value) for name, value in declared.items()
    }


def test_a_class_more_makes_rows_more_and_no_part_of_the_plan() -> None:
    with grouplearn.connect(progress=None) as con:
        operators = []
        for n_classes in (3, 60):
            many_classes(con, n_classes, 120)
            query = evaluate_sql(stored(con, "c"), "s", weighted=True)
            plan = con.native.execute(f"EXPLAIN {query}").fetchall()[0][1]
            operators.append([plan.count(name) for name in ("WINDOW", "HASH_GROUP_BY", "UNNEST", "HASH_JOIN")])
        assert operators[0] == operators[1]
        assert operators[0][0] <= 2


class Counted:
    """A connection that keeps the queries that it is asked."""

    def __init__(self, connection) -> None:
        self._connection, self.asked = connection, []

    def execute(self, query, parameters=None):
        self.asked.append(query)
        return self._connection.execute(query, parameters)

    def sql(self, query, **options):
        self.asked.append(query)
        return self._connection.sql(query, **options)

    def __getattr__(self, name):
        return getattr(self._connection, name)


def test_what_computes_the_metrics_is_planned_once() -> None:
    with grouplearn.connect(progress=None) as con:
        many_classes(con, 3, 60)
        counted = Counted(con.native)
        con._duckdb = con._session._connection = counted
        assert len(con.execute("EVALUATE MODEL c ON s").fetchall()) == 2
        assert len([query for query in counted.asked if "judged AS" in query]) == 1


def test_rows_of_classes_that_training_has_not_alone_are_all_wrong() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i % 3 AS k, (i * 7) % 10 AS x FROM range(60) AS r(i)")
        con.execute(
            "TRAIN MODEL m USING logistic_regression PREDICT k FEATURES (x) FROM t WITH (task = 'classification')"
        )
        names = "accuracy, f1, precision, recall, balanced_accuracy"
        found = con.execute(f"SELECT {names} FROM (EVALUATE MODEL m ON (SELECT 9 AS k, x FROM t))").fetchall()
        assert found == [(0.0,) * 5]


@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_rows_that_tie_in_training_tie_in_sql(scale: float) -> None:
    """Probabilities that are nearly subnormal are 0 here and there."""
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 3)) * scale
    y = np.digitize(x[:, 0] / scale + random.normal(size=400), [-0.6, 0.6]).astype(str)
    with grouplearn.connect(progress=False) as con:
        rows = pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y, "held": np.arange(400) % 2 == 0})
        con.register("rows", rows)
        con.execute(
            "TRAIN MODEL m USING mlp PREDICT y FEATURES (a, b, c) FROM rows VALIDATE WHERE held"
            " WITH (learning_rate = 0.1, precision = 'double')"
        )
        trained = con.execute("SELECT valid_auc, valid_log_loss FROM m").fetchone()
        evaluated = con.execute("SELECT auc, log_loss FROM (EVALUATE MODEL m ON rows WHERE held)").fetchone()
    assert evaluated == pytest.approx(trained, rel=1e-12)


def test_a_relation_has_the_metrics_of_the_model_that_was_asked() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i % 7 AS x, i % 5 AS y FROM range(100) AS r(i)")
        options = "num_iterations = 2, task = 'regression'"
        train = f"TRAIN OR REPLACE MODEL m USING gbdt PREDICT {{}} FEATURES (x) FROM t WITH ({options})"
        con.execute(train.format("y"))
        relation = con.sql("EVALUATE MODEL m ON t")
        before = relation.fetchall()
        con.cursor().execute(train.format("100 * y AS y"))
        assert relation.fetchall() == before != con.execute("EVALUATE MODEL m ON t").fetchall()
