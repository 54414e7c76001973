"""Searches in rounds that die: RESUME makes the rounds again from the ledger and goes on, with the same decisions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from helpers.dying_runs import Died, answer, answers_and_forgets, dies, units_trained
from helpers.promptness import STOPS_WITHIN_SECONDS
from helpers.thorough import THOROUGH, some

import grouplearn
from grouplearn.data.files.run_directory import runs_of
from grouplearn.statements.workflow import durable, search_rounds
from grouplearn.train.results import ledger
from grouplearn.train.results.ledger import Ledger

GROUPS = 3
SPACE = "learning_rate BETWEEN 1e-4 AND 1 LOG, hidden_layers IN ([4], [8])"
SEARCHES = {
    "hyperband": f"HYPERBAND ({SPACE}) WITH (epochs = 4, trials = 6, reduction_factor = 2",
    "asha": f"ASHA ({SPACE}) WITH (epochs = 4, trials = 6, reduction_factor = 2, parallel_trials = 3",
    "pbt": f"PBT ({SPACE}) WITH (epochs = 4, interval = 2, trials = 5",
    "tpe": f"TPE ({SPACE}) WITH (epochs = 1, trials = 12",
    "shared": f"PBT ({SPACE}) WITH (epochs = 4, interval = 1, trials = 5, search_scope = 'all'",
}
TRAIN = "TRAIN MODEL m USING mlp PREDICT y FEATURES (a, b) FROM t GROUP BY g OVER {}, seed = 3, durable = true) "
ADD = "ALTER MODEL m ADD TRIAL (learning_rate = 0.02, hidden_layers = [4])"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ledger, "FLUSH_SECONDS", 0.0)
    file = tmp_path / "d.duckdb"
    with duckdb.connect(str(file)) as con:
        con.execute(
            f"CREATE TABLE t AS SELECT i % {GROUPS} AS g, hash(i) % 997 / 997 AS a, hash(i, 1) % 991 / 991 AS b, "
            "a + b + hash(i, 2) % 100 / 300 > 1.1 AS y FROM range(300) AS r(i)"
        )
    return file


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return units_trained(monkeypatch)


def everything(path: Path) -> list[Any]:
    """Return models, trials, curves and what is best, and forget the model."""
    return answers_and_forgets(
        path,
        "SELECT group_id, config, sha256 FROM grouplearn.artifacts ORDER BY ALL",
        "SELECT * EXCLUDE (seconds) FROM m ORDER BY ALL",
        "SELECT * FROM m_curves ORDER BY ALL",
    )


@pytest.mark.examples(2)
@pytest.mark.parametrize("kind", SEARCHES)
def test_a_search_that_died_decides_as_if_it_had_not(
    path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    statement = TRAIN.format(SEARCHES[kind])
    answer(path, statement)
    expected, every = everything(path), sorted(trained)
    for deaths in some(range(1, len(every)), 3)[1 : None if THOROUGH or kind == "pbt" else 2]:
        trained.clear()
        dies(path, monkeypatch, statement, deaths)
        assert len(answer(path, "RESUME MODEL m WITH (workers = 1)")) == GROUPS
        assert sorted(trained) == every, "every unit once"
        assert everything(path) == expected
        assert not runs_of(str(path)).exists()


def test_boosting_goes_on_from_the_trees_of_a_rung_that_was_reached_before_it_died(
    path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    search = (
        "HYPERBAND (num_leaves IN (2, 3, 4, 5, 6)) WITH (num_iterations = 4, reduction_factor = 2, min_data_in_leaf = 5"
    )
    statement = TRAIN.format(search).replace("mlp", "gbdt")
    answer(path, statement)
    expected, every = everything(path), sorted(trained)
    for deaths in (len(every) // 2, len(every) - 1):
        trained.clear()
        dies(path, monkeypatch, statement, deaths)
        answer(path, "RESUME MODEL m WITH (workers = 1)")
        assert sorted(trained) == every, "every unit once"
        assert everything(path) == expected


def test_a_search_dies_again_and_again(path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    statement = TRAIN.format(SEARCHES["pbt"])
    answer(path, statement)
    expected, every = everything(path), sorted(trained)
    trained.clear()
    monkeypatch.setattr(ledger, "COMPACT_BYTES", 0)
    for deaths in some(range(1, len(every)), 6):
        dies(path, monkeypatch, statement if deaths == 1 else "RESUME MODEL m", deaths)
    answer(path, "RESUME MODEL m")
    assert sorted(trained) == every
    assert everything(path) == expected


def test_the_ledger_is_made_smaller(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial's earlier models and states are not needed; without them the ledger stays as large as the last round."""
    monkeypatch.setattr(ledger, "COMPACT_BYTES", 0)
    sizes: list[int] = []
    compact = Ledger.compact

    def measured(self: Ledger, needed: Any) -> None:
        compact(self, needed)
        sizes.append(sum(file.stat().st_size for file in ledger.segments(self.directory)))

    monkeypatch.setattr(Ledger, "compact", measured)
    options = "epochs = 12, interval = 1, trials = 1, hidden_layers = [256, 64]"
    search = f"PBT (learning_rate BETWEEN 1e-4 AND 1e-3 LOG) WITH ({options}"
    answer(path, TRAIN.format(search))
    assert len(sizes) == 12
    assert max(sizes) < 4 * sizes[0]


def test_shows_a_search_that_is_not_finished(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(path, monkeypatch, TRAIN.format(SEARCHES["hyperband"]), 3)
    ((_, model, status, done, units, *_),) = answer(path, "SHOW RUNS")
    assert (model, status, done, units) == ("m", "unfinished", 3, None)


def at_barrier(monkeypatch: pytest.MonkeyPatch, barrier: int, action: Callable[[], None]) -> None:
    """Have ``action`` happen just before a barrier takes commands."""
    obey = search_rounds._Search._obey

    def obeyed(self: Any) -> None:
        if self._barriers + 1 == barrier and not self._was_here():
            action()
        obey(self)

    monkeypatch.setattr(search_rounds._Search, "_obey", obeyed)


def test_what_users_did_is_done_again(path: Path, trained: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    statement = TRAIN.format(SEARCHES["hyperband"])

    def train(dying: int | None) -> None:
        with monkeypatch.context() as patch, grouplearn.connect(path, progress=False) as con:
            other = con.cursor()

            def act() -> None:
                for each in ("ALTER MODEL m STOP TRIAL 1", ADD, f"{ADD} FROM TRIAL 3"):
                    thread = threading.Thread(target=other.execute, args=(each,))
                    thread.start()
                    thread.join()

            at_barrier(patch, 1, act)
            if dying is None:
                con.execute(statement)
                return
            noted = Ledger.add

            def add(self: Ledger, result: Any) -> None:
                if self.done >= dying:
                    raise Died
                noted(self, result)

            patch.setattr(Ledger, "add", add)
            with pytest.raises(Died):
                con.execute(statement)

    train(None)
    ((added,),) = answer(path, "SELECT count(*) FROM m WHERE learning_rate = 0.02")
    assert added == 2 * GROUPS
    expected, every = everything(path), sorted(trained)
    first = next(number for number in range(len(every)) if number * 2 > len(every))
    for dying in (first, len(every) - 1):
        trained.clear()
        train(dying)
        answer(path, "RESUME MODEL m")
        assert sorted(trained) == every
        assert everything(path) == expected


def test_a_command_that_no_barrier_took_is_taken_after_the_death(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, grouplearn.connect(path, progress=False) as con:
        other = con.cursor()

        def act() -> None:
            thread = threading.Thread(target=other.execute, args=(ADD,))
            thread.start()
            thread.join()
            raise Died

        at_barrier(patch, 2, act)
        with pytest.raises(Died):
            con.execute(TRAIN.format(SEARCHES["hyperband"]))
    answer(path, "RESUME MODEL m")
    assert answer(path, "SELECT count(*), min(epochs) FROM m WHERE learning_rate = 0.02") == [(GROUPS, 4)]


def test_a_run_with_little_time_goes_on_for_what_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions that were made stay; what is left of the time is trained; the model table can be used."""
    search = f"PBT ({SPACE}) WITHIN 3 SECONDS WITH (epochs = 100000, interval = 2, trials = 5"
    dies(path, monkeypatch, TRAIN.format(search), 15)
    (run,) = durable.runs(str(path))
    before = Ledger(run.path).results
    assert len(answer(path, "RESUME MODEL m")) == GROUPS
    ((seconds,),) = answer(path, "SELECT seconds FROM grouplearn.models")
    assert seconds < 3 + STOPS_WITHIN_SECONDS
    units = answer(path, "SELECT unit, configs FROM grouplearn.units ORDER BY unit")
    assert units[: len(before)] == [
        (each.unit.id, list(each.unit.configs)) for each in sorted(before, key=lambda r: r.unit.id)
    ]
    assert answer(path, "SELECT count(prediction) FROM m_predict(t)") == [(300,)]
