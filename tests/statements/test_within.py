"""WITHIN for a grid: every group has a turn before any trains on, and turns change no model."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import grouplearn
from grouplearn.failures import TrainingFailed
from grouplearn.statements.workflow.scheduled import Scheduled
from grouplearn.train.job import NOT_BEGUN, UnitResult


class Looks:
    """A clock on which a second passes whenever a training looks at it."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grouplearn.train.job.time", Looks())


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[tuple[UnitResult, ...]]:
    """The results of every turn."""
    found: list[tuple[UnitResult, ...]] = []
    run = Scheduled.run

    def counting(*given: Any) -> tuple[UnitResult, ...]:
        found.append(run(*given))
        return found[-1]

    monkeypatch.setattr(Scheduled, "run", counting)
    return found


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        make_table(connection)
        yield connection


def make_table(con: grouplearn.Connection) -> None:
    con.execute(
        "CREATE TABLE t AS SELECT i % 6 AS g, hash(i) % 997 / 997 AS a, hash(i, 1) % 991 / 991 AS b, "
        "a + b + hash(i, 2) % 100 / 300 > 1.1 AS y, a + sin(9 * b) AS z FROM range(900) AS r(i)"
    )


def rows(con: grouplearn.Connection, query: str) -> list[tuple[Any, ...]]:
    return con.execute(query).fetchall()


def models(con: grouplearn.Connection, name: str) -> list[tuple[Any, ...]]:
    """All that a model's trials are, but for their times."""
    return rows(
        con,
        "SELECT t.group_id, t.config, t.status, t.epochs, t.train, t.valid, a.sha256, "
        "(SELECT list((c.epoch, c.train_loss, c.valid_metric) ORDER BY c.epoch) FROM grouplearn.curves AS c "
        " WHERE c.model = t.model AND c.group_id = t.group_id AND c.config = t.config) "
        "FROM grouplearn.trials AS t JOIN grouplearn.models AS m USING (model) "
        "LEFT JOIN grouplearn.artifacts AS a USING (model, group_id, config) "
        f"WHERE m.model_name = '{name}' ORDER BY ALL",
    )


def pairs(turns: list[tuple[UnitResult, ...]], unit: int) -> list[tuple[float, float]]:
    """The epochs of a unit after one turn and after the next."""
    epochs = [each.epochs for turn in turns for each in turn if each.unit.id == unit]
    return list(itertools.pairwise(epochs))


LABELLED = "PREDICT y FEATURES (zscore(a, b)) FROM t GROUP BY g"


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    "what",
    [
        f"mlp {LABELLED} OVER GRID (learning_rate IN (0.1, 0.01))",
        f"mlp {LABELLED} VALIDATE FOLDS 2",
        "gbdt PREDICT z FEATURES (a, b) FROM t GROUP BY g OVER GRID (learning_rate IN (0.1, 0.3))",
        "random_forest PREDICT z FEATURES (a, b) FROM t GROUP BY g",
    ],
)
def test_every_group_has_a_model_before_any_has_all_of_the_time(con: grouplearn.Connection, what: str) -> None:
    rounds = "num_iterations" if "gbdt" in what or "forest" in what else "epochs"
    con.execute(f"TRAIN MODEL m USING {what} WITHIN 10 MINUTES WITH ({rounds} = 5000, workers = 1)")
    assert rows(con, "SELECT g FROM m WHERE is_best ORDER BY g") == [(g,) for g in range(6)]
    assert {status for (status,) in rows(con, "SELECT status FROM m")} == {"stopped"}


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("seconds", "what", "options"),
    [
        (600, f"mlp {LABELLED} OVER GRID (learning_rate IN (0.1, 0.01))", "epochs = 12"),
        (2000, f"mlp {LABELLED} VALIDATE FOLDS 2", "epochs = 12"),
        (200, f"mlp {LABELLED} VALIDATE SAMPLE 20%", "epochs = 60, early_stopping = 3, learning_rate = 0.1"),
        (200, f"logistic_regression {LABELLED} OVER GRID (l2 IN (0.1, 1))", "epochs = 50"),
        (
            600,
            f"logistic_regression {LABELLED} OVER GRID (l1 IN (0.1, 1))",
            "epochs = 50, solver = 'coordinate_descent'",
        ),
        (600, f"logistic_regression {LABELLED} OVER GRID (l1 IN (0.1, 1))", "epochs = 20, solver = 'sgd'"),
        (
            600,
            "gbdt PREDICT z FEATURES (a, b) FROM t GROUP BY g "
            "OVER GRID (learning_rate IN (0.1, 0.3), num_iterations IN (5, 12))",
            "min_data_in_leaf = 5",
        ),
        (3000, "gbdt PREDICT z FEATURES (a, b) FROM t GROUP BY g VALIDATE SAMPLE 20%", "early_stopping = 4"),
        (
            900,
            "random_forest PREDICT z FEATURES (a, b) FROM t GROUP BY g OVER GRID (max_depth IN (2, 3))",
            "num_iterations = 12",
        ),
        (300, "kmeans FEATURES (a, b) FROM t GROUP BY g OVER GRID (k IN (3, 8))", "epochs = 12"),
    ],
)
def test_where_time_is_enough_models_are_those_of_one_long_training(
    con: grouplearn.Connection,
    monkeypatch: pytest.MonkeyPatch,
    turns: list[tuple[UnitResult, ...]],
    seconds: int,
    what: str,
    options: str,
) -> None:
    con.execute(f"TRAIN MODEL whole USING {what} WITHIN 100 HOURS WITH ({options}, workers = 1)")
    assert len(turns) == 1
    monkeypatch.setattr("grouplearn.train.job.time", Looks())
    monkeypatch.setattr(
        "grouplearn.train.fit._GONE_THROUGH", 1
    )  # one epoch in each call, after which time is looked at
    con.execute(f"TRAIN MODEL often USING {what} WITHIN {seconds} SECONDS WITH ({options}, workers = 1)")
    assert len(turns) > 2
    if "forest" not in what and "early" not in options:  # draws begin again; the best epoch may be an early one
        epochs = [
            epochs for unit in {each.unit.id for turn in turns for each in turn} for epochs in pairs(turns[1:], unit)
        ]
        assert epochs
        assert all(before < after for before, after in epochs)
    assert models(con, "often") == models(con, "whole")
    # Each unit is there once.
    counted = "SELECT count(*), count(DISTINCT unit) FROM grouplearn.units JOIN grouplearn.models USING (model) WHERE model_name"
    ((units, different),) = rows(con, f"{counted} = 'often'")
    assert units == different > 0


def test_where_each_group_has_a_worker_there_is_one_turn(
    con: grouplearn.Connection, turns: list[tuple[UnitResult, ...]]
) -> None:
    con.execute(f"TRAIN MODEL m USING mlp {LABELLED} WITHIN 1 MINUTE WITH (epochs = 5000, workers = 6)")
    assert len(turns) == 1


def test_groups_that_had_no_turn_are_counted_and_trained_later(con: grouplearn.Connection) -> None:
    told = con.execute(
        f"TRAIN MODEL m USING mlp {LABELLED} WITHIN 12 SECONDS WITH (epochs = 100, workers = 1)"
    ).fetchall()
    (before,) = rows(con, "SELECT count(*) FROM m WHERE is_best")[0]
    assert 0 < before < 6
    assert rows(con, "SELECT count(*) FROM grouplearn.trials WHERE error IS NOT NULL") == [(6 - before,)]
    assert rows(con, "SELECT DISTINCT error FROM grouplearn.trials WHERE error IS NOT NULL") == [(NOT_BEGUN,)]
    note = f"one of {6 - before} groups that had no turn: RETRY FAILED MODEL trains them, for as long again"
    assert [row[-1] for row in told] == [None] * before + [note] * (6 - before)


@pytest.mark.parametrize("fault", [0, 2])
def test_a_run_that_dies_in_a_later_turn_goes_on_with_what_was_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    """``fault`` is how many units the turn that breaks had ended."""
    what = f"mlp {LABELLED} OVER GRID (learning_rate IN (0.1, 0.01)) VALIDATE SAMPLE 10%"
    run, calls = Scheduled.run, []

    def breaking(self: Scheduled, job: Any, units: Any, observer: Any, cancelled: Any) -> Any:
        calls.append(len(units))
        if len(calls) == 2:
            if fault:
                run(self, job, units[:fault], observer, cancelled)
            raise TrainingFailed("the machine is gone")
        return run(self, job, units, observer, cancelled)

    with grouplearn.connect(str(tmp_path / "d.duckdb"), progress=False) as con:
        make_table(con)
        con.execute(f"TRAIN MODEL whole USING {what} WITH (epochs = 12, workers = 1)")
        calls.clear()
        monkeypatch.setattr(Scheduled, "run", breaking)
        with pytest.raises(grouplearn.Error):
            con.execute(
                f"TRAIN MODEL often USING {what} WITHIN 10 MINUTES WITH (epochs = 12, workers = 1, durable = true)"
            )
        con.execute("RESUME MODEL often")
        assert models(con, "often") == models(con, "whole")
