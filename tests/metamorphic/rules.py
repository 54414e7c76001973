"""Rules that hold for every table and statement, and need no reference: what must not change a model, and what must agree.

Each rule takes a connection that has the table ``t`` and its description, carries out the statement and others like it, and
asserts. ``RULES`` lists them with the cases that they speak of.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from helpers.dying_runs import dies
from helpers.plain_sql import in_plain_sql
from hypothesis import assume
from outcomes import (
    Trial,
    assert_same_predictions,
    assert_same_trials,
    classes_of,
    near,
    predictions,
    predictions_by_function,
    trials,
)
from random_statements import LEARNS, LINEAR, Statement
from random_tables import Column, Table, create
from sklearn import metrics

import grouplearn
from grouplearn.data.shard import BLOCK_ROWS
from grouplearn.prediction.prediction import Caller, Predictor

Connection = duckdb.DuckDBPyConnection
Rule = Callable[[Connection, Table, Statement], None]


@dataclass(frozen=True)
class Listed:
    """A rule, the learners that it holds for, and how many cases of it the suite tries."""

    check: Rule
    learners: tuple[str, ...]
    examples: int


RULES: dict[str, Listed] = {}


def rule(examples: int = 4, learners: tuple[str, ...] = tuple(LEARNS)) -> Callable[[Rule], Rule]:
    """List a rule, with how many cases the suite tries and the learners that it holds for."""

    def listed(check: Rule) -> Rule:
        RULES[check.__name__] = Listed(check, learners, examples)
        return check

    return listed


def literal(value: object) -> str:
    return "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"


def of_group(key: object) -> str:
    return f"CAST(g AS VARCHAR) IS NOT DISTINCT FROM {literal(key)}"


# What surrounds a model


@rule(examples=5)
def a_group_alone_is_as_among_others(con: Connection, table: Table, statement: Statement) -> None:
    """Its models, metrics and predictions are those of the statement about its rows alone."""
    statement = replace(statement, grouping="g")
    con.execute(statement.train())
    among, guessed = trials(con), predictions(con)
    known = classes_of(con)
    # VALIDATE WHERE that holds for none of a statement's rows, or for all, is refused; beside others it is not.
    some = ["bool_or(h)", "NOT bool_and(h)"] if statement.validate == "WHERE h" else []
    # How long an array is, a group's own rows do not say where none of them has one.
    some += [
        f"count({each.name}) > 0" for each in table.columns if each.role == "array" and each.name in statement.features
    ]
    having = f"HAVING {' AND '.join(some)}" if some else ""
    for (key,) in con.sql(f"SELECT CAST(g AS VARCHAR) FROM t GROUP BY ALL {having}").fetchall():
        con.execute("DROP MODEL IF EXISTS alone")  # one that predicts is not replaced by one of which every trial fails
        con.execute(statement.train("alone", where=of_group(key)))
        ours = {place: trial for place, trial in among.items() if place[1] == (key,)}
        alone = trials(con, "alone")
        if classes_of(con, "alone") == known:
            assert_same_trials(ours, alone)
        else:
            for place, trial in alone.items():
                # F1 and AUC of two classes are of one, of several the mean of all: only these agree by definition.
                for name in ("log_loss", "accuracy"):
                    assert ours[place].status == trial.status, (place, ours[place], trial)
                    assert near(ours[place].train.get(name), trial.train.get(name), 1e-9), (place, ours[place], trial)
                    assert near(ours[place].valid.get(name), trial.valid.get(name), 1e-9), (place, ours[place], trial)
        con.execute(f"CREATE OR REPLACE TABLE own AS FROM t WHERE {of_group(key)}")
        expected = predictions(con, "own", "alone")
        assert_same_predictions({row: guessed[row] for row in expected}, expected, 1e-9)


@rule()
def workers_do_not_matter(con: Connection, table: Table, statement: Statement) -> None:
    """One worker or three: the same bits."""
    con.execute(statement.with_options(workers=1).train())
    expected = trials(con)
    con.execute(statement.with_options(workers=3).train())
    assert_same_trials(trials(con), expected)


def several_blocks(con: Connection, table: Table, statement: Statement) -> Statement:
    """Make ``t`` a table whose first group is several blocks, and return the statement with steps to match."""
    copies = 2 * BLOCK_ROWS // table.sizes[0] + 1
    con.execute(
        f"CREATE OR REPLACE TABLE t AS SELECT t.* REPLACE (id + n * 1000 AS id) FROM t, range({copies}) AS r(n)"
    )
    by_batches = statement.learner == "mlp" or statement.solver == "sgd"
    return statement.with_options(batch_size=512) if by_batches else statement


@rule(examples=3)
def operators_do_not_matter(con: Connection, table: Table, statement: Statement) -> None:
    """Operators whose models depend on nothing give the same bits, also where they cut groups."""
    statement = several_blocks(con, table, statement)
    con.execute(statement.with_options(operator="group_task_parallel").train())
    expected = trials(con)
    split = statement.learner != "gbdt" and statement.solver != "coordinate_descent"
    for operator in ("model_task_parallel", *(("gap",) if split else ())):
        con.execute(statement.with_options(operator=operator, workers=2).train())
        assert_same_trials(trials(con), expected)


@rule(examples=3)
def memory_does_not_matter(con: Connection, table: Table, statement: Statement) -> None:
    """Rows in memory or streamed through files, packs of any size: the same bits."""
    statement = several_blocks(con, table, statement)
    con.execute(statement.train())
    expected = trials(con)
    con.execute(statement.with_options(memory_limit="1MB").train())
    assert_same_trials(trials(con), expected)


@rule(examples=3, learners=("logistic_regression", "linear_svm", "poisson_regression"))
def a_limit_that_is_not_reached_does_not_matter(con: Connection, table: Table, statement: Statement) -> None:
    """A model that ended before its limit of epochs is the same under a higher one."""
    con.execute(statement.with_options(epochs=100).train())
    expected = {place: trial for place, trial in trials(con).items() if trial.epochs < 100}
    con.execute(statement.with_options(epochs=1000).train())
    found = trials(con)
    assert_same_trials(
        {place: replace(found[place], is_best=False) for place in expected},
        {place: replace(trial, is_best=False) for place, trial in expected.items()},
    )


@rule()
def the_order_of_rows_does_not_matter(con: Connection, table: Table, statement: Statement) -> None:
    """Shuffled rows, and other names of columns and tables, make the same models."""
    con.execute(statement.train())
    expected = trials(con)
    con.execute("CREATE TABLE shuffled AS FROM t ORDER BY hash(id, 7)")
    con.execute(statement.train("s", "shuffled"))
    assert_same_trials(trials(con, "s"), expected)


@rule(examples=3)
def names_do_not_matter(con: Connection, table: Table, statement: Statement) -> None:
    """Renamed columns make the same models."""
    con.execute(statement.train())
    expected = trials(con)
    names = {column.name: f"Select {column.name}" for column in table.columns}
    con.execute("CREATE TABLE renamed AS FROM t")
    features = list(statement.features)
    for before, after in names.items():
        con.execute(f'ALTER TABLE renamed RENAME COLUMN {before} TO "{after}"')
        features = [text.replace(before, f'"{after}"') for text in features]
    con.execute(replace(statement, features=tuple(features)).train("s", "renamed"))
    assert_same_trials(trials(con, "s"), expected)


@rule(examples=3)
def collations_do_not_matter(con: Connection, table: Table, statement: Statement) -> None:
    """Texts are told apart as they are written, whatever a column or the session takes for equal."""
    con.execute(statement.train())
    expected, guesses = trials(con), predictions(con)
    con.execute("CREATE TABLE collated AS FROM t LIMIT 0")
    for column in (Column("g", "key", table.key, ""), *table.columns):
        if column.type == "VARCHAR":
            con.execute(f"ALTER TABLE collated ALTER {column.name} TYPE VARCHAR COLLATE NOCASE")
    con.execute("INSERT INTO collated FROM t")
    try:
        con.execute(statement.train("s", "collated"))
        con.execute("SET default_collation = 'nocase'")
        con.execute(statement.train("r"))
    except grouplearn.BindError as error:
        assume("are one group" not in error.message)  # 'B' and 'b', which is refused
        raise
    assert_same_trials(trials(con, "s"), expected)
    assert_same_trials(trials(con, "r"), expected)
    for model, source in (("m", "t"), ("s", "collated"), ("r", "t")):
        assert_same_predictions(predictions_by_function(con, source, model), guesses, 1e-6)


@rule(examples=3, learners=LINEAR)
def half_the_weight_twice_is_once(con: Connection, table: Table, statement: Statement) -> None:
    """Each row twice, each with half its weight, is the same objective."""
    assume(statement.has_optimum)
    statement = replace(statement, validate="NONE")
    con.execute(replace(statement, weighted=True).train())
    expected = predictions(con)
    con.execute(
        "CREATE TABLE twice AS SELECT * REPLACE (w / 2 AS w) FROM t UNION ALL SELECT * REPLACE (w / 2 AS w) FROM t"
    )
    con.execute(replace(statement, weighted=True).train("s", "twice"))
    # An encoder is fitted on rows, not on their weights: it is of the same rows, each twice.
    found = predictions(con, "t", "s")
    # A single row is too few to learn from, and twice the row is not: its group has a model then, and needs no other level's.
    known = {row: guess for row, guess in expected.items() if guess.level == found[row].level is not None}
    assert len(known) > len(expected) / 2
    assert_same_predictions({row: found[row] for row in known}, known, 1e-4)


_EQUAL = {
    "INTEGER": "BIGINT", "BIGINT": "HUGEINT", "SMALLINT": "INTEGER", "HUGEINT": "DOUBLE", "FLOAT": "DOUBLE",
    "DECIMAL(18,3)": "DECIMAL(24,6)", "DECIMAL(9,2)": "DECIMAL(12,4)", "DATE": "TIMESTAMP",
    "INTEGER[]": "BIGINT[]",
    "DOUBLE[2]": "DOUBLE[]", "FLOAT[]": "DOUBLE[]", "INTEGER[2]": "BIGINT[]", "DECIMAL(9,2)[]": "DECIMAL(12,4)[]",
}  # fmt: skip


def _cast(column: Column) -> str:
    to = _EQUAL.get(column.type, "VARCHAR" if column.type.startswith("ENUM") else column.type)
    return f"CAST({column.name} AS {to}) AS {column.name}"


@rule(examples=5)
def equal_values_of_other_types_predict_the_same(con: Connection, table: Table, statement: Statement) -> None:
    """A model answers alike for columns of other types that hold equal values: NULLs in pandas make INTEGER a DOUBLE."""
    con.execute(statement.train())
    con.execute(
        f"CREATE TABLE wider AS SELECT * REPLACE ({', '.join(_cast(column) for column in table.columns)}) FROM t"
    )
    assert_same_predictions(predictions(con, "wider"), predictions(con), 1e-9)
    assert_same_predictions(predictions_by_function(con, "wider"), predictions(con), 1e-6)


@rule(examples=3, learners=LINEAR)
def equal_values_of_other_types_train_the_same(con: Connection, table: Table, statement: Statement) -> None:
    """Columns cast to types that hold the same values make the same models."""
    assume(statement.has_optimum and not any("hash(" in text for text in statement.features))
    statement = replace(statement, validate="WHERE h" if statement.validate.startswith(("SAMPLE", "FOLDS")) else "NONE")
    con.execute(statement.train())
    expected = predictions(con)
    con.execute(
        f"CREATE TABLE wider AS SELECT * REPLACE ({', '.join(_cast(column) for column in table.columns)}) FROM t"
    )
    con.execute(statement.train("s", "wider"))
    assert_same_predictions(predictions(con, "wider", "s"), expected, 1e-4)


# Predictions


@rule(examples=6)
def macro_and_function_agree(con: Connection, table: Table, statement: Statement) -> None:
    """``m_predict`` and ``predict`` give the same for every row, and so does ``m_predict`` where nothing is installed."""
    con.execute(statement.train())
    expected = predictions_by_function(con)
    assert_same_predictions(expected, predictions(con), 1e-6)
    if not is_by_function(con):
        with in_plain_sql(con):
            assert_same_predictions(expected, predictions(con), 1e-6)


def is_by_function(con: Connection) -> bool:
    """Return whether SQL has no form of the model."""
    return dict(con.sql("DESCRIBE MODEL m").fetchall())["prediction"] != "SQL"


@rule(examples=3, learners=("gbdt",))
def a_macro_costs_what_its_rows_cost(con: Connection, table: Table, statement: Statement) -> None:
    """``m_predict`` has as many rows predicted as ``predict`` has, through views and into tables, and no row that is not read."""
    con.execute(statement.train())
    con.execute("CREATE VIEW seen AS FROM m_predict(t)")
    function = rows_predicted(con, "SELECT predict('m', t) FROM t")
    assert function == con.sql("SELECT count(*) FROM t").fetchall()[0][0]
    for query in ("FROM m_predict(t)", "FROM seen", "CREATE TABLE kept AS FROM m_predict(t)"):
        assert rows_predicted(con, query) == function
    some = con.sql("SELECT count(*) FROM t WHERE id < 5").fetchall()[0][0]
    assert rows_predicted(con, "SELECT prediction FROM seen WHERE id < 5") == some
    assert rows_predicted(con, "FROM m_predict(t) LIMIT 3") == 3
    assert rows_predicted(con, "SELECT id FROM m_predict(t)") == 0


def rows_predicted(con: Connection, query: str) -> int:
    """Return how many rows the predictor is asked for while a query runs."""
    asked: list[int] = []
    real = Predictor.predict

    def counted(self: Predictor, caller: Caller, reference: str, rows: Any, *others: Any) -> Any:
        asked.append(len(rows))
        return real(self, caller, reference, rows, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Predictor, "predict", counted)
        con.execute(query).fetchall()
    return sum(asked)


@rule(examples=3)
def predictions_keep_the_order_of_rows(con: Connection, table: Table, statement: Statement) -> None:
    """The macro's rows stand where the table's stand, whatever their number."""
    con.execute(statement.train())
    copies = 300_000 // table.n_rows + 1
    con.execute(f"CREATE TABLE many AS SELECT t.* FROM range({copies}), t")
    expected = con.sql("SELECT id FROM many").to_arrow_table().column(0).to_numpy()
    found = con.sql("SELECT id FROM m_predict(many)").to_arrow_table().column(0).to_numpy()
    assert np.array_equal(found, expected)


@rule(examples=6)
def metrics_are_those_of_the_predictions(con: Connection, table: Table, statement: Statement) -> None:
    """The table's metrics, EVALUATE's, and what scikit-learn makes of the predictions are one and the same."""
    held = statement.validate != "NONE"
    statement = replace(statement, grouping="g", validate="WHERE h" if held else "NONE")
    con.execute(statement.train())
    rows = "h" if held else "true"
    con.execute(f"CREATE TABLE judged AS FROM t WHERE {rows}")
    by_row = predictions(con, "judged")
    con.execute("CREATE TABLE told AS EVALUATE MODEL m ON judged")
    names = classes_of(con)
    measures = ", ".join(("accuracy", "log_loss") if names else ("rmse", "mae"))
    query = f"SELECT CAST(g AS VARCHAR), {measures} FROM told WHERE model_level IS NOT NULL"
    evaluated = {row[0]: dict(zip(measures.split(", "), row[1:], strict=True)) for row in con.sql(query).fetchall()}
    for (level, keys, config), trial in trials(con).items():
        del level, config
        if not trial.is_best:
            continue
        measured = trial.valid if held else trial.train
        own = con.sql(
            f"SELECT id, CAST(y AS VARCHAR), {'w' if statement.weighted else '1e0'} FROM judged WHERE {of_group(keys[0])}"
        ).fetchall()
        known = [
            (by_row[row], label, weight)
            for row, label, weight in own
            if by_row[row].value is not None and label is not None
        ]
        expected = _measured(known, names)
        for name, value in expected.items():
            assert near(measured.get(name), value, 1e-6), (keys, name, measured, expected)
        told = evaluated.get(keys[0])
        for name, value in expected.items() if told else ():
            assert near(told[name], value, 1e-6), (keys, name, told, expected)


def _measured(known: list[tuple[object, str, float]], classes: list[str]) -> dict[str, float]:
    weight = np.array([weight for _, _, weight in known])
    if not known or weight.sum() == 0:
        return {}
    labels = [label for _, label, _ in known]
    if not classes:
        truth, guess = np.array(labels, float), np.array([row.value for row, _, _ in known], float)
        square = metrics.mean_squared_error(truth, guess, sample_weight=weight)
        return {"rmse": float(np.sqrt(square)), "mae": metrics.mean_absolute_error(truth, guess, sample_weight=weight)}
    guess = [str(row.value).lower() if row.value in (True, False) else str(row.value) for row, _, _ in known]
    own = np.array([row.shares.get(label, 0.0) for row, label, _ in known])
    clipped = np.clip(own, np.finfo(float).eps, 1 - np.finfo(float).eps)
    return {
        "accuracy": metrics.accuracy_score(labels, guess, sample_weight=weight),
        "log_loss": float(np.average(-np.log(clipped), weights=weight)),
    }


@rule(examples=3)
def predictions_are_of_the_session(con: Connection, table: Table, statement: Statement) -> None:
    """Both ways to predict see the session's time zone, its variables and its temporary macros."""
    con.execute("SET VARIABLE shift = 1")
    con.execute("CREATE TEMP MACRO shifted(x) AS x + getvariable('shift')")
    con.execute(
        "CREATE TABLE moments AS SELECT *, TIMESTAMPTZ '2024-03-01 00:30:00+00' + to_hours(id % 24) AS moment FROM t"
    )
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    statement = replace(statement, features=("shifted(id % 5)", "hour(moment)"), validate="NONE")
    con.execute(statement.train(source="moments"))
    for zone, shift in (("America/New_York", 1), ("UTC", 2)):
        con.execute(f"SET TimeZone = '{zone}'")
        con.execute(f"SET VARIABLE shift = {shift}")
        assert_same_predictions(predictions_by_function(con, "moments"), predictions(con, "moments"), 1e-6)


# Where a model is


@rule(examples=3)
def a_copied_database_predicts_the_same(con: Connection, table: Table, statement: Statement) -> None:
    """A model goes with its file: renamed, attached under another name beside other models."""
    con.execute(statement.train())
    expected = predictions(con)
    (folder,) = con.execute("SELECT current_setting('temp_directory')").fetchone()
    place = f"{folder}/{uuid.uuid4().hex}.duckdb"
    con.execute(f"ATTACH '{place}' AS first")
    con.execute("COPY FROM DATABASE memory TO first")
    con.execute("DETACH first")
    moved = place.replace(".duckdb", "-moved.duckdb")
    Path(place).rename(moved)
    with grouplearn.connect(moved, progress=False) as other:
        assert_same_predictions(predictions(other), expected, 0)
        assert_same_predictions(predictions_by_function(other), expected, 1e-6)


@rule(examples=3)
def exported_and_imported_is_the_same(con: Connection, table: Table, statement: Statement) -> None:
    """A model that went through a directory answers as before, bit for bit."""
    con.execute(statement.train())
    (folder,) = con.execute("SELECT current_setting('temp_directory')").fetchone()
    con.execute(f"EXPORT MODEL m TO '{folder}/exported' (OVERWRITE)")
    con.execute(f"IMPORT OR REPLACE MODEL back FROM '{folder}/exported'")
    assert_same_predictions(predictions(con, "t", "back"), predictions(con), 0)
    assert_same_predictions(predictions_by_function(con, "t", "back"), predictions_by_function(con), 0)
    assert_same_trials(trials(con, "back"), trials(con))


@rule(examples=3)
def killed_and_resumed_is_the_same(con: Connection, table: Table, statement: Statement) -> None:
    """A run that dies after any of its units, and is resumed, ends with the models and metrics of one that did not."""
    (folder,) = con.execute("SELECT current_setting('temp_directory')").fetchone()
    place = Path(folder) / f"{uuid.uuid4().hex}.duckdb"
    statement = replace(statement, grouping="g").with_options(durable=True, workers=1)
    with grouplearn.connect(place, progress=False) as file:
        create(file, table)
        file.execute(statement.train())
        expected = trials(file)
        ((units,),) = file.sql("SELECT count(DISTINCT unit) FROM grouplearn.units").fetchall()
        file.execute("DROP MODEL m")
    with pytest.MonkeyPatch.context() as patch:
        dies(place, patch, statement.train(), table.seed % units)
    with grouplearn.connect(place, progress=False) as file:
        file.execute("RESUME MODEL m")
        assert_same_trials(trials(file), expected)


# Validation


@rule(examples=3)
def a_sample_is_fair(con: Connection, table: Table, statement: Statement) -> None:
    """Of every class about as many are held out as of all rows, whatever repeats: within five standard deviations."""
    con.execute(f"CREATE TABLE many AS SELECT t.*, n % 3 AS n FROM t, range({4000 // table.n_rows + 1}) AS r(n)")
    seed = dict(statement.options)["seed"]
    for name, n in con.sql("SELECT CAST(y AS VARCHAR), count(*) FROM many WHERE y IS NOT NULL GROUP BY ALL").fetchall():
        held = held_out(con, f"(CAST(y AS VARCHAR) = {literal(name)})::INTEGER", "0 * n", seed)
        assert abs(held - 0.25 * n) <= 5 * (n * 0.25 * 0.75) ** 0.5 + 1, (name, n, held)


def held_out(con: Connection, expression: str, feature: str, seed: int) -> float:
    """Return the sum of an expression over the rows of ``many`` that are held out.

    A model that has nothing to learn from predicts the mean of its training rows: it tells which they are.
    """
    con.execute(
        f"TRAIN OR REPLACE MODEL told USING linear_regression PREDICT {expression} AS told FEATURES ({feature}) FROM many"
        f" VALIDATE SAMPLE 25% WITH (seed = {seed})"
    )
    ((n_train,),) = con.sql("SELECT n_train FROM told").fetchall()
    ((mean,),) = con.sql("SELECT weight FROM told_weights WHERE feature = '(intercept)'").fetchall()
    ((total,),) = con.sql(f"SELECT sum({expression}) FROM many").fetchall()
    return float(total) - mean * n_train


@rule(examples=3)
def held_out_rows_do_not_depend_on_features(con: Connection, table: Table, statement: Statement) -> None:
    """Two statements about one table with other features hold out the same rows."""
    con.execute("CREATE TABLE many AS FROM t")
    seed = dict(statement.options)["seed"]
    expected = held_out(con, "hash(id) % 1000", "0 * id", seed)
    for feature in ("0 * w, 0 * id", "(h::INTEGER * 0)"):
        assert near(held_out(con, "hash(id) % 1000", feature, seed), expected, 1e-6)


@rule(examples=3, learners=("gbdt",))
def noise_cannot_be_predicted(con: Connection, table: Table, statement: Statement) -> None:
    """Held-out rows are not seen in training: trees that learn rows by heart know nothing of a label that is noise."""
    con.execute(
        f"CREATE TABLE many AS SELECT t.* REPLACE (hash(id || '/' || n || '/{table.seed}') % 2 = 0 AS y), n"
        f" FROM t, range({2000 // table.n_rows + 1}) AS r(n)"
    )
    statement = replace(statement, features=("id", "n"), grouping="", weighted=False, grid="")
    statement = replace(statement, validate="FOLDS 3" if statement.validate == "FOLDS 3" else "SAMPLE 25%")
    con.execute(statement.with_options(num_leaves=500, min_data_in_leaf=1, num_iterations=10).train("s", "many"))
    for trial in trials(con, "s").values():
        assert near(trial.valid["auc"], 0.5, 0.15), trial


@rule(examples=3, learners=("linear_regression", "logistic_regression"))
def a_larger_search_is_no_worse(con: Connection, table: Table, statement: Statement) -> None:
    """More configurations leave those that were there as they are, and the best is at least as good."""
    statement = replace(statement, grid="l2 IN (1, 30)")
    con.execute(statement.train())
    few = trials(con)
    con.execute(replace(statement, grid="l2 IN (1, 30, 0.1)").train())
    many = trials(con)
    # A model that begins where its neighbour in the grid has ended is the same to the solver's tolerance.
    kept = {place: replace(many[place], is_best=False) for place in few}
    assert_same_trials(kept, {place: replace(trial, is_best=False) for place, trial in few.items()}, bits=False)
    for (level, keys, _), trial in few.items():
        if trial.is_best:
            (best,) = [other for place, other in many.items() if place[:2] == (level, keys) and other.is_best]
            assert _loss(best) <= _loss(trial) * (1 + 1e-6), (keys, best, trial)


def _loss(trial: Trial) -> float:
    measured = trial.valid or trial.train
    return measured.get("rmse", measured.get("log_loss")) or 0.0
