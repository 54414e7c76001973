"""Searches through SQL: what is trained, for how long, what stays; users who act meanwhile; WITHIN."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import grouplearn
from grouplearn.errors import BindError
from grouplearn.schedule.messages import Unit
from grouplearn.search.space import Range
from grouplearn.search.tpe import Tpe
from grouplearn.train.job import NOT_BEGUN, NOT_VALIDATED, RunSummary, UnitResult

SPACE = "learning_rate BETWEEN 1e-4 AND 1 LOG, hidden_layers IN ([4], [8])"
MLP = "USING mlp PREDICT y FEATURES (a, b) FROM t GROUP BY g"


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 3 AS g, hash(i) % 997 / 997 AS a, hash(i, 1) % 991 / 991 AS b, "
            "a + b + hash(i, 2) % 100 / 300 > 1.1 AS y FROM range(600) AS r(i)"
        )
        yield connection


def rows(con: grouplearn.Connection, query: str) -> list[tuple[Any, ...]]:
    return con.execute(query).fetchall()


def test_hyperband_runs_its_brackets_in_every_group(con: grouplearn.Connection) -> None:
    con.execute(f"TRAIN MODEL m {MLP} OVER HYPERBAND ({SPACE}) WITH (epochs = 9, seed = 3)")
    found = rows(con, "SELECT g, status, epochs, count(*) FROM m GROUP BY ALL ORDER BY ALL")
    of_group = [("done", 9, 5), ("stopped", 1, 6), ("stopped", 3, 6)]
    assert found == [(g, *each) for g in range(3) for each in of_group]
    # Epochs count on from round to round, and every point of a curve is there once.
    assert rows(con, "SELECT sum(epochs) FROM m") == rows(con, "SELECT count(*) FROM m_curves")
    assert rows(con, "SELECT count(*) FROM m WHERE is_best") == [(3,)]
    assert rows(con, "SELECT count(prediction) FROM m_predict(t)") == [(600,)]


def test_asha_trains_what_it_promotes_at_a_later_barrier(con: grouplearn.Connection) -> None:
    """Four trials train at a time, so that most promotions are of trials that have waited since an earlier round."""
    con.execute(
        f"TRAIN MODEL m {MLP} OVER ASHA ({SPACE}) OPTIMIZE log_loss WITH (epochs = 9, trials = 12, parallel_trials = 4)"
    )
    reached = rows(con, "SELECT count(*) FILTER (epochs >= 3), count(*) FILTER (epochs = 9) FROM m GROUP BY g")
    assert [(third >= 12 // 3, whole >= 1) for third, whole in reached] == [(True, True)] * 3
    assert rows(con, "SELECT DISTINCT status, epochs FROM m WHERE epochs > 3 OR status = 'done'") == [("done", 9)]
    assert rows(con, "SELECT sum(epochs) FROM m") == rows(con, "SELECT count(*) FROM m_curves")
    (g, rate, layers), *_ = rows(con, "SELECT g, learning_rate, hidden_layers FROM m WHERE epochs = 9 ORDER BY ALL")
    con.execute(
        f"TRAIN MODEL one {MLP} VALIDATE SAMPLE 10% WITH (epochs = 9, learning_rate = {rate!r}, hidden_layers = {layers})"
    )
    query = "SELECT a.sha256 FROM grouplearn.artifacts a JOIN grouplearn.models USING (model) WHERE model_name = '{}'"
    (bits,) = rows(con, f"{query.format('one')} AND group_id = {g}")
    assert bits in rows(con, query.format("m"))


def test_each_group_keeps_its_own_best_of_a_rung(con: grouplearn.Connection) -> None:
    con.execute(
        f"TRAIN MODEL m {MLP} OVER HYPERBAND ({SPACE}) OPTIMIZE log_loss WITH (epochs = 3, trials = 3, seed = 3)"
    )
    lost = rows(
        con,
        "SELECT count(*) FROM m AS one JOIN m AS other USING (g) JOIN m_curves AS c ON c.g = other.g "
        "AND c.learning_rate = other.learning_rate AND c.epoch = 1 "
        "WHERE one.epochs = 1 AND other.epochs = 3 AND one.valid_log_loss < c.valid_log_loss "
        "AND other.learning_rate IN (SELECT learning_rate FROM m WHERE epochs = 1)",
    )
    assert lost == [(0,)]


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("search", "scope"),
    [
        ("HYPERBAND ({}) WITH (epochs = 9", "group"),
        ("ASHA ({}) WITH (epochs = 9, trials = 9", "all"),
        ("PBT ({}) WITH (epochs = 6, interval = 2", "group"),
        ("PBT ({}) WITH (epochs = 6, interval = 2", "all"),
        ("TPE ({}) WITH (epochs = 2, trials = 12", "group"),
    ],
)
def test_a_search_depends_on_the_seed_alone(con: grouplearn.Connection, search: str, scope: str) -> None:
    def bits(workers: int, seed: int) -> list[Any]:
        over = search.format(SPACE)
        options = f"search_scope = '{scope}', seed = {seed}, workers = {workers}, keep_versions = 1"
        con.execute(f"TRAIN OR REPLACE MODEL m {MLP} OVER {over}, {options})")
        artifacts = rows(con, "SELECT group_id, config, sha256 FROM grouplearn.artifacts ORDER BY ALL")
        return [artifacts, rows(con, "SELECT * EXCLUDE (seconds) FROM m ORDER BY ALL")]

    found = bits(1, 5)
    assert found == bits(2, 5)
    assert found != bits(1, 6)


def test_rounds_on_ray_are_those_in_process(con: grouplearn.Connection) -> None:
    pytest.importorskip("ray")
    bits = {}
    for executor in ("local", "ray"):
        con.execute(
            f"TRAIN OR REPLACE MODEL m {MLP} OVER HYPERBAND ({SPACE}) "
            f"WITH (epochs = 9, trials = 6, executor = '{executor}', workers = 2, keep_versions = 1)"
        )
        bits[executor] = rows(con, "SELECT group_id, config, sha256 FROM grouplearn.artifacts ORDER BY ALL")
    assert bits["local"] == bits["ray"]


def test_turns_of_within_on_ray_are_those_in_process(con: grouplearn.Connection) -> None:
    pytest.importorskip("ray")
    bits = {}
    for executor in ("local", "ray"):
        con.execute(
            f"TRAIN OR REPLACE MODEL m {MLP} OVER GRID (learning_rate IN (0.1, 0.01)) WITHIN 10 MINUTES "
            f"WITH (epochs = 5, executor = '{executor}', workers = 2, keep_versions = 1)"
        )
        assert rows(con, "SELECT DISTINCT status, epochs FROM m") == [("done", 5)]
        bits[executor] = rows(con, "SELECT group_id, config, sha256 FROM grouplearn.artifacts ORDER BY ALL")
    assert bits["local"] == bits["ray"]


def test_one_decision_for_all_groups_trains_the_same_configurations_everywhere(con: grouplearn.Connection) -> None:
    con.execute(f"TRAIN MODEL m {MLP} OVER HYPERBAND ({SPACE}) WITH (epochs = 9, search_scope = 'all')")
    assert rows(con, "SELECT DISTINCT count(DISTINCT epochs) FROM m GROUP BY learning_rate") == [(1,)]


def test_a_trial_of_a_search_is_the_model_of_one_long_training(con: grouplearn.Connection) -> None:
    con.execute(f"TRAIN MODEL m {MLP} OVER HYPERBAND ({SPACE}) WITH (epochs = 9, trials = 9)")
    rate, layers = rows(con, "SELECT learning_rate, hidden_layers FROM m WHERE g = 0 AND epochs = 9 ORDER BY ALL")[0]
    con.execute(
        f"TRAIN MODEL one {MLP} VALIDATE SAMPLE 10% WITH (epochs = 9, learning_rate = {rate!r}, hidden_layers = {layers})"
    )
    query = "SELECT a.sha256 FROM grouplearn.artifacts a JOIN grouplearn.models USING (model) WHERE model_name = '{}'"
    (bits,) = rows(con, f"{query.format('one')} AND group_id = 0")
    assert bits in rows(con, query.format("m"))


def test_pbt_continues_copies_and_lists_every_configuration(con: grouplearn.Connection) -> None:
    con.execute(f"TRAIN MODEL m {MLP} OVER PBT ({SPACE}) WITH (epochs = 6, interval = 2, trials = 10)")
    assert rows(con, "SELECT DISTINCT status, epochs, count(*) FROM m GROUP BY g, status, epochs ORDER BY ALL") == [
        ("done", 6, 10),
        ("stopped", 2, 2),
        ("stopped", 4, 2),
    ]
    # A copy's curve begins with its parent's.
    assert rows(con, "SELECT DISTINCT max(epoch) - count(*) FROM grouplearn.curves GROUP BY group_id, config") == [(0,)]


def test_keep_best_counts_stopped_trials_too(con: grouplearn.Connection) -> None:
    con.execute(f"TRAIN MODEL m {MLP} OVER HYPERBAND ({SPACE}) KEEP BEST 2 WITH (epochs = 3)")
    assert rows(con, "SELECT DISTINCT count(*) FROM grouplearn.artifacts GROUP BY group_id") == [(2,)]


@pytest.mark.parametrize("search", ["HYPERBAND ({})", "ASHA ({}) WITH (trials = 9, parallel_trials = 3)"])
def test_trials_of_a_solver_are_judged_when_they_have_converged_on_part_of_the_rows(search: str) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE w AS SELECT i % 40 = 0 AS small, hash(i) % 997 / 997 AS a, hash(i, 1) % 991 / 991 AS b, "
            "a + b + hash(i, 2) % 100 / 100 > 1.4 AS y FROM range(6000) AS r(i)"
        )
        what = "USING logistic_regression PREDICT y FEATURES (zscore(a), b) FROM w GROUP BY small"
        con.execute(f"TRAIN MODEL m {what} OVER {search.format('l2 BETWEEN 0.001 AND 1000 LOG')}")
        # All trials of the small group had all rows; of the large one, few did, and the best is one of them.
        assert rows(con, "SELECT DISTINCT status FROM m WHERE small") == [("done",)]
        assert rows(con, "SELECT status, is_best FROM m WHERE NOT small AND is_best") == [("done", True)]
        few, lost, told_apart = rows(
            con,
            "SELECT count(*) FILTER (status = 'done'), count(*) FILTER (status = 'stopped'), "
            "count(DISTINCT valid_log_loss) = count(*) FROM m WHERE NOT small",
        )[0]
        assert 1 <= few < lost
        assert told_apart
        assert rows(con, "SELECT n_rows, n_train + n_valid FROM grouplearn.groups ORDER BY ALL") == [
            (150, 150),
            (5850, 5850),
        ]
        # Who had all rows is the model of a TRAIN of its own, up to the solver's tolerance.
        l2 = rows(con, "SELECT l2 FROM m WHERE NOT small AND is_best")[0][0]
        con.execute(f"TRAIN MODEL one {what} VALIDATE SAMPLE 10% WITH (l2 = {l2!r}, workers = 1)")
        weights = dict(rows(con, f"SELECT feature, weight FROM m_weights WHERE NOT small AND l2 = {l2!r}"))
        assert weights == pytest.approx(
            dict(rows(con, "SELECT feature, weight FROM one_weights WHERE NOT small")), rel=1e-3
        )


def test_linear_models_are_searched_by_rows_and_exact_ones_by_trials(con: grouplearn.Connection) -> None:
    con.execute(
        "TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (a, b) FROM t GROUP BY g "
        "OVER ASHA (l2 BETWEEN 1e-4 AND 100 LOG) WITH (epochs = 9, trials = 9)"
    )
    assert rows(con, "SELECT count(*), count(*) FILTER (status = 'stopped') FROM m")[0][0] == 27
    con.execute(
        "TRAIN MODEL r USING linear_regression PREDICT a FEATURES (b) FROM t GROUP BY g "
        "OVER TPE (l2 BETWEEN 1e-4 AND 100 LOG) VALIDATE FOLDS 3 WITH (trials = 12)"
    )
    assert rows(con, "SELECT DISTINCT count(*), count(valid_rmse) FROM r GROUP BY g") == [(12, 12)]


def test_trees_are_searched_by_tpe(con: grouplearn.Connection) -> None:
    pytest.importorskip("lightgbm")
    con.execute(
        "TRAIN MODEL m USING gbdt PREDICT y FEATURES (a, b) FROM t "
        "OVER TPE (num_leaves BETWEEN 2 AND 20, learning_rate BETWEEN 0.01 AND 1 LOG) WITH (trials = 12, num_iterations = 5)"
    )
    assert rows(con, "SELECT status, count(*) FROM m GROUP BY ALL") == [("done", 12)]


def test_tpe_under_folds_learns_from_the_rows_that_folds_hold_out(con: grouplearn.Connection) -> None:
    pytest.importorskip("optuna")
    con.execute(
        "TRAIN MODEL r USING linear_regression PREDICT a FEATURES (b) FROM t WHERE g = 0 "
        "OVER TPE (l2 BETWEEN 1e-4 AND 1000 LOG) VALIDATE FOLDS 3 WITH (trials = 14, seed = 2)"
    )
    base = {"fit_intercept": True}
    again = Tpe((Range("l2", 1e-4, 1000.0, log=True),), base, 14, 1, 2)
    held_out = dict(rows(con, "SELECT l2, -valid_rmse FROM r"))
    goes, proposed = again.begin(), []
    while goes:
        proposed += [go.config["l2"] for go in goes]
        assert held_out.keys() >= set(proposed)
        goes = again.on({go.trial: held_out[go.config["l2"]] for go in goes})
    assert len(proposed) == 14


def test_equal_proposals_are_trained_once(con: grouplearn.Connection) -> None:
    con.execute(f"TRAIN MODEL m {MLP} OVER TPE (batch_size IN (16, 64)) WITH (epochs = 1, trials = 15)")
    assert rows(con, "SELECT g, batch_size, epochs FROM m ORDER BY ALL") == [
        (g, b, 1) for g in range(3) for b in (16, 64)
    ]
    assert rows(con, "SELECT count(*) FROM m_curves") == [(6,)]


def test_a_group_that_fails_fails_alone(con: grouplearn.Connection) -> None:
    con.execute("INSERT INTO t SELECT 7, 0.5, 0.5, true FROM range(50)")
    for search in ("HYPERBAND", "PBT", "TPE"):
        con.execute(f"TRAIN OR REPLACE MODEL m {MLP} OVER {search} ({SPACE}) WITH (epochs = 3, keep_versions = 1)")
        assert rows(con, "SELECT DISTINCT status FROM m WHERE g = 7") == [("failed",)]
        assert rows(con, "SELECT count(*) FROM m WHERE is_best") == [(3,)]
        assert len(rows(con, "SELECT reason FROM grouplearn.errors")) == 1


def test_a_trial_that_diverges_is_dropped_and_the_search_goes_on(con: grouplearn.Connection) -> None:
    con.execute(
        "TRAIN MODEL m USING mlp PREDICT a FEATURES (b) FROM t OVER HYPERBAND (learning_rate IN (1e-3, 1e-2, 1e30)) "
        "WITH (epochs = 3, optimizer = 'sgd', activation = 'relu')"
    )
    assert rows(con, "SELECT learning_rate, status FROM m WHERE status = 'failed'") == [(1e30, "failed")]
    assert rows(con, "SELECT max(epochs) FROM m WHERE is_best") == [(3,)]


def test_no_group_is_an_error(con: grouplearn.Connection) -> None:
    for scope in ("group", "all"):
        with pytest.raises(grouplearn.Error, match="HAVING holds for no group of the 600 rows"):
            con.execute(
                f"TRAIN OR REPLACE MODEL m {MLP} HAVING count(*) > 999 OVER PBT ({SPACE}) WITH (search_scope = '{scope}')"
            )


def test_rollback_leaves_nothing(con: grouplearn.Connection) -> None:
    con.execute("BEGIN")
    con.execute(f"TRAIN MODEL m {MLP} OVER HYPERBAND ({SPACE}) WITH (epochs = 3)")
    con.execute("ROLLBACK")
    assert rows(con, "SELECT count(*) FROM duckdb_views() WHERE view_name LIKE 'm%' AND NOT internal") == [(0,)]


class Watching:
    """Progress that calls ``at_barrier`` whenever trials end."""

    def __init__(self, at_barrier: Any = None) -> None:
        self.summary: RunSummary | None = None
        self.ended_trials = self.epochs = 0
        self._at_barrier = at_barrier

    def started(self, summary: RunSummary) -> None:
        self.summary = summary

    def unit_done(self, result: UnitResult) -> None:
        self.ended_trials += len(result.unit.configs)
        if self._at_barrier is not None:
            self._at_barrier()

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        self.epochs += epochs

    def units_lost(self, units: tuple[Unit, ...]) -> None: ...

    def ended(self) -> None: ...


def table(con: grouplearn.Connection) -> None:
    con.execute(
        "CREATE TABLE t AS SELECT 0 AS g, hash(i) % 997 / 997 AS a, a > 0.5 AS y, a AS b FROM range(300) AS r(i)"
    )


def test_progress_counts_trials_and_epochs_as_announced() -> None:
    watching = Watching()
    with grouplearn.connect(progress=watching) as con:
        table(con)
        con.execute(f"TRAIN MODEL m {MLP} OVER HYPERBAND ({SPACE}) WITH (epochs = 9)")
        assert watching.summary is not None
        assert watching.summary.trials == watching.ended_trials == 17
        assert watching.summary.epochs == watching.epochs == rows(con, "SELECT sum(epochs) FROM m")[0][0]


def test_progress_of_boosting_counts_the_trees_of_a_rung_once() -> None:
    watching = Watching()
    with grouplearn.connect(progress=watching) as con:
        table(con)
        search = "HYPERBAND (num_leaves BETWEEN 2 AND 31) WITH (num_iterations = 9, min_data_in_leaf = 5)"
        con.execute(f"TRAIN MODEL m USING gbdt PREDICT b FEATURES (a) FROM t GROUP BY g OVER {search}")
        assert watching.summary is not None
        assert watching.summary.trials == watching.ended_trials == 17
        assert watching.summary.epochs == watching.epochs == rows(con, "SELECT sum(epochs) FROM m")[0][0]


def test_trees_are_not_continued_with_another_configuration() -> None:
    errors: list[str] = []

    def act() -> None:
        if errors:
            return
        other = con.cursor()
        going = next(row[0] for row in rows(other, "DESCRIBE MODEL m") if row[3])
        with pytest.raises(BindError) as caught:
            other.execute(f"ALTER MODEL m ADD TRIAL (num_leaves = 40) FROM TRIAL {going}")
        errors.append(str(caught.value).split("\n")[0])

    with grouplearn.connect(progress=Watching(act)) as con:
        table(con)
        search = "HYPERBAND (num_leaves BETWEEN 2 AND 31) WITH (num_iterations = 27)"
        con.execute(f"TRAIN MODEL m USING gbdt PREDICT b FEATURES (a) FROM t GROUP BY g OVER {search}")
    assert errors == ["OVER HYPERBAND trains every trial with one configuration to its end, so none can be continued"]


def test_trials_that_wait_end_once() -> None:
    watching = Watching()
    with grouplearn.connect(progress=watching) as con:
        table(con)
        con.execute(f"TRAIN MODEL m {MLP} OVER ASHA ({SPACE}) WITH (epochs = 9, trials = 12, parallel_trials = 3)")
        assert watching.ended_trials == 12
        assert watching.epochs == rows(con, "SELECT sum(epochs) FROM m")[0][0]


def test_users_stop_and_add_trials_from_another_connection() -> None:
    told: list[Any] = []

    def act() -> None:
        if not told:
            other = con.cursor()
            told.append(rows(other, "DESCRIBE MODEL m"))
            going = [row[0] for row in told[0] if row[3]]
            stopped, parent = going[:2]
            commands = (
                f"ALTER MODEL m STOP TRIAL {stopped}",
                "ALTER MODEL m ADD TRIAL (learning_rate = 0.0123, hidden_layers = [8])",
                f"ALTER MODEL m ADD TRIAL (learning_rate = 0.0321) FROM TRIAL {parent}",
            )
            told.extend(rows(other, statement) for statement in commands)

    with grouplearn.connect(progress=Watching(act)) as con:
        table(con)
        con.execute(f"TRAIN MODEL m {MLP} OVER HYPERBAND ({SPACE}) WITH (epochs = 27)")
        assert told[1][0][0].endswith("stops at the end of this round")
        stopped = int(told[1][0][0].split()[1])
        found = rows(con, "SELECT status, epochs FROM m WHERE learning_rate IN (0.0123, 0.0321)")
        assert found == [("done", 27), ("done", 27)]
        statuses = dict(rows(con, "SELECT config, status FROM grouplearn.trials"))
        assert statuses[stopped] == "stopped"
        with pytest.raises(BindError, match="is not training"):
            con.execute("ALTER MODEL m STOP TRIAL 1")


def test_wishes_are_checked_before_they_are_taken() -> None:
    errors: list[str] = []

    def act() -> None:
        if errors:
            return
        other = con.cursor()
        trials = rows(other, "DESCRIBE MODEL m")
        going = next(row[0] for row in trials if row[3])
        stopped = next(row[0] for row in trials if not row[3])
        [size] = re.findall(r"hidden_layers = \D*(\d+)", dict(row[:2] for row in trials)[going])
        for statement in (
            "ALTER MODEL m STOP TRIAL 99",
            "ALTER MODEL m ADD TRIAL (learning_rate = -1)",
            "ALTER MODEL m ADD TRIAL (learning_rat = 1)",
            "ALTER MODEL m ADD TRIAL (l2 = 1)",
            "ALTER MODEL m ADD TRIAL (learning_rate = 1)",
            f"ALTER MODEL m ADD TRIAL (learning_rate = 1, hidden_layers = [7]) FROM TRIAL {going}",
            f"ALTER MODEL m ADD TRIAL (learning_rate = 1) FROM TRIAL {stopped}",
            f"ALTER MODEL m ADD TRIAL (hidden_layers = [{size}]) FROM TRIAL {going}",
        ):
            with pytest.raises(BindError) as caught:
                other.execute(statement)
            errors.append(re.sub(r"trial \d+ has", "trial x has", str(caught.value).split("\n")[0]))

    with grouplearn.connect(progress=Watching(act)) as con:
        table(con)
        con.execute(f"TRAIN MODEL m {MLP} OVER HYPERBAND ({SPACE}) WITH (epochs = 3)")
    assert errors == [
        "there is no trial 99; the trials are 0 to 4",
        "learning_rate must be > 0, got -1",
        'unknown hyperparameter "learning_rat"',
        "l2 is not searched: OVER names hidden_layers, learning_rate",
        "no value is given for hidden_layers",
        "a trial cannot be continued with another hidden_layers: its state has another shape",
        "trial x has stopped, and its state is gone",
        "trial x has the same hyperparameters",
    ]


def test_a_training_in_one_round_cannot_be_steered() -> None:
    caught: list[str] = []

    def act() -> None:
        with pytest.raises(BindError) as error:
            con.cursor().execute("ALTER MODEL m STOP TRIAL 0")
        caught.append(str(error.value))

    with grouplearn.connect(progress=Watching(act)) as con:
        table(con)
        con.execute("TRAIN MODEL m USING linear_regression PREDICT a FEATURES (b) FROM t")
    assert "train in one round" in caught[0]


class Looks:
    """A clock on which a second passes whenever a training looks whether its time is up."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    clock = Looks()
    monkeypatch.setattr("grouplearn.train.job.time", clock)
    return clock


@pytest.mark.usefixtures("looks")
def test_within_ends_with_what_there_is(con: grouplearn.Connection) -> None:
    con.execute(
        f"TRAIN MODEL m {MLP.removesuffix(' GROUP BY g')} OVER GRID (learning_rate IN (0.1, 0.01)) WITHIN 2 MINUTES "
        "WITH (epochs = 10000, executor = 'local')"
    )
    found = rows(con, "SELECT status, epochs > 0, valid_auc IS NOT NULL, count(*) FROM m GROUP BY ALL ORDER BY ALL")
    assert found == [("stopped", True, True, 2)]
    assert rows(con, "SELECT epochs > 0, valid_auc > 0.5 FROM m WHERE is_best") == [(True, True)]
    assert rows(con, "SELECT count(prediction) FROM m_predict(t)") == [(600,)]


@pytest.mark.usefixtures("looks")
def test_within_ends_a_search_between_and_inside_rounds(con: grouplearn.Connection) -> None:
    con.execute(f"TRAIN MODEL m {MLP} OVER TPE ({SPACE}) WITHIN 5 MINUTES WITH (epochs = 2, trials = 100000)")
    finished = rows(con, "SELECT count(*) FROM m WHERE status = 'done'")[0][0]
    assert 30 < finished < 300
    con.execute(f"TRAIN MODEL n {MLP} OVER HYPERBAND ({SPACE}) WITHIN 10 MINUTES WITH (epochs = 729, trials = 40)")
    assert rows(con, "SELECT g, epochs > 0 FROM n WHERE is_best AND status = 'stopped' ORDER BY ALL") == [
        (0, True),
        (1, True),
        (2, True),
    ]
    assert rows(con, "SELECT count(*) FROM n WHERE status = 'failed'") == [(0,)]


def test_within_that_is_over_before_training_is_no_error(con: grouplearn.Connection) -> None:
    for search in ("", "OVER HYPERBAND (learning_rate IN (0.1, 0.2, 0.3))"):
        con.execute(f"TRAIN OR REPLACE MODEL m {MLP} {search} WITHIN 0.000001 SECONDS")
        assert {row[0] for row in rows(con, "SELECT status FROM m")} == {"stopped"}
        assert rows(con, "SELECT count(*) FROM m WHERE is_best") == [(0,)]
        assert rows(con, "SELECT DISTINCT error FROM grouplearn.trials") == [(NOT_BEGUN,)]


@pytest.mark.usefixtures("looks")
def test_groups_whose_turn_never_came_are_trained_again(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those that have a model keep it."""
    what = "logistic_regression PREDICT y FEATURES (a, b) FROM t GROUP BY g VALIDATE SAMPLE 20% WITHIN 5 SECONDS"
    con.execute(f"TRAIN MODEL m USING {what} WITH (epochs = 3, workers = 1)")
    with_model = "SELECT g, epochs, valid_auc FROM m WHERE is_best ORDER BY g"
    before = rows(con, with_model)
    assert 0 < len(before) < 3
    for _ in range(2):
        monkeypatch.setattr("grouplearn.train.job.time", Looks())
        con.execute("RETRY FAILED MODEL m")
    after = rows(con, with_model)
    assert after[: len(before)] == before
    assert [g for g, *_ in after] == [0, 1, 2]
    assert "no group without a model" in con.execute("RETRY FAILED MODEL m").fetchall()[0][0]


@pytest.mark.usefixtures("looks")
@pytest.mark.parametrize(
    "search", ["logistic_regression {} OVER GRID (l2 IN (0.1, 1, 10))", "mlp {} OVER TPE (l2 BETWEEN 0 AND 1)"]
)
def test_within_under_folds_keeps_models_that_were_not_validated(con: grouplearn.Connection, search: str) -> None:
    what = search.format("PREDICT y FEATURES (a, b) FROM t GROUP BY g")
    told = con.execute(f"TRAIN MODEL m USING {what} VALIDATE FOLDS 2 WITHIN 5 SECONDS WITH (epochs = 3, workers = 1)")
    assert not any("no row is held out" in str(value) for row in told.fetchall() for value in row)
    # By the clock of looks, the first group has its final fits when the time is up, and other groups have nothing.
    found = rows(con, "SELECT DISTINCT g, status, epochs > 0, valid_auc IS NULL, train_auc > 0 FROM m ORDER BY ALL")
    assert found == [(0, "stopped", True, True, True), *((g, "stopped", False, True, None) for g in (1, 2))]
    assert rows(con, "SELECT count(*) FROM m WHERE is_best AND g = 0") == [(1,)]
    assert rows(con, "SELECT count(*) FROM grouplearn.errors") == [(0,)]
    reasons = {reason for (reason,) in rows(con, "SELECT DISTINCT error FROM grouplearn.trials")}
    assert reasons == {NOT_BEGUN, NOT_VALIDATED}


def test_an_interrupt_stops_a_search(con: grouplearn.Connection) -> None:
    def interrupt() -> None:
        time.sleep(1.0)
        con.interrupt()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(grouplearn.Error, match="nothing was stored"):
        con.execute(f"TRAIN MODEL m {MLP} OVER TPE ({SPACE}) WITH (epochs = 100, trials = 100000)")
