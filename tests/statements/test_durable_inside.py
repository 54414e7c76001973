"""Durable runs that die inside a long unit: RESUME goes on from the last epoch that was kept, and ends with the same bits."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from helpers.dying_runs import Died, answer, answers_and_forgets
from helpers.thorough import THOROUGH

import grouplearn
from grouplearn.data.files.run_directory import runs_of
from grouplearn.plan import physical
from grouplearn.train.results import checkpoints as states
from grouplearn.train.results import ledger
from grouplearn.train.results.checkpoints import Checkpointer

#: A group of more than one block.
ROWS, BLOCK = 2_500, 1_024
TRAIN = "TRAIN MODEL m USING {} WITH (durable = true, workers = 1, {})"
FEATURES = "FEATURES (zscore(a), b, c) FROM t"
STATEMENTS = {
    "mlp": (f"mlp PREDICT y {FEATURES} OVER GRID (learning_rate IN (0.01, 0.001))", "epochs = 4"),
    "early": (f"mlp PREDICT y {FEATURES} VALIDATE SAMPLE 20%", "epochs = 6, early_stopping = 2, optimizer = 'adam'"),
    "groups": (f"mlp PREDICT y {FEATURES} GROUP BY g OVER GRID (learning_rate IN (0.01, 0.001))", "epochs = 3"),
    "folds": (f"mlp PREDICT y {FEATURES} VALIDATE FOLDS 2", "epochs = 2"),
    "newton": (f"logistic_regression PREDICT y {FEATURES} VALIDATE SAMPLE 20%", "epochs = 8"),
    "proximal": (
        f"logistic_regression PREDICT y {FEATURES} OVER GRID (l1 IN (1, 5))",
        "epochs = 8, early_stopping = 3",
    ),
    "gbdt": (
        f"gbdt PREDICT y {FEATURES} OVER GRID (num_leaves IN (4, 8), num_iterations IN (3, 6)) VALIDATE SAMPLE 20%",
        "seed = 1",
    ),
    "classes": (f"gbdt PREDICT k {FEATURES} VALIDATE SAMPLE 20%", "num_iterations = 6, early_stopping = 3"),
    "numbers": (f"gbdt PREDICT a + b {FEATURES} VALIDATE NONE OPTIMIZE r2", "num_iterations = 6, max_bin = 15"),
    "drawn": (
        f"gbdt PREDICT y {FEATURES} OVER GRID (bagging_fraction IN (0.5, 1), boosting IN ('gbdt', 'dart'))",
        "num_iterations = 4, bagging_freq = 1",
    ),
    "searched": (f"mlp PREDICT y {FEATURES} OVER HYPERBAND (learning_rate IN (0.1, 0.01, 0.001))", "epochs = 4"),
    "gap": (f"mlp PREDICT y {FEATURES} VALIDATE SAMPLE 20%", "epochs = 4, operator = 'gap'"),
    "linear_gap": (f"logistic_regression PREDICT y {FEATURES}", "epochs = 6, l1 = 1, operator = 'gap'"),
}
#: Of each way of training one, which dies before its last epoch, too.
LATE = ("groups", "proximal", "gbdt", "gap")
MODELS = "SELECT group_id, config, sha256 FROM grouplearn.artifacts ORDER BY ALL"
TABLE = "SELECT * EXCLUDE (seconds) FROM m ORDER BY ALL"
CURVES = "SELECT * EXCLUDE (model) FROM grouplearn.curves ORDER BY ALL"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ledger, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(states, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(states, "_WORTH", 0.0)
    monkeypatch.setattr(physical, "BLOCK_ROWS", BLOCK)
    monkeypatch.setattr(
        physical.PhysicalPlan, "_split_seconds", 0.0
    )  # else nothing so small is worth dividing by rounds
    file = tmp_path / "d.duckdb"
    with duckdb.connect(str(file)) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 3 AS g, hash(i) % 1000 / 1000 AS a, hash(i + 7) % 1000 / 1000 AS b, "
            "CASE WHEN i % 11 > 0 THEN hash(i, 5) % 3 END AS c, 'k' || hash(i, 4) % 3 AS k, "
            f"hash(i) % 1700 + hash(i + 3) % 900 > 1000 AS y FROM range({ROWS}) r(i)"
        )
    return file


def saves(monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None] = lambda _: None) -> list[int]:
    """Note every time that something is kept; ``before`` is called with how many times came earlier, also of other threads."""
    kept: list[int] = []
    keep, earlier = Checkpointer.keep, itertools.count()

    def noted(self: Checkpointer, reached: Any) -> None:
        before(next(earlier))
        keep(self, reached)
        kept.append(self.number)

    monkeypatch.setattr(Checkpointer, "keep", noted)
    return kept


def everything(path: Path) -> list[Any]:
    return answers_and_forgets(path, MODELS, TABLE, CURVES)


def dies(path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, after: int) -> None:
    def before(count: int) -> None:
        if count >= after:
            raise Died

    with monkeypatch.context() as patch:
        saves(patch, before)
        with pytest.raises(Died):
            answer(path, statement)


@pytest.mark.examples(2)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_a_unit_goes_on_inside(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    statement = TRAIN.format(*STATEMENTS[kind])
    with monkeypatch.context() as patch:
        kept = saves(patch)
        answer(path, statement)
        every = len(kept)
    expected = everything(path)
    assert every >= 2
    late = THOROUGH or kind in LATE
    for after in sorted({every // 2, *([every - 1] if late else [])}):
        dies(path, monkeypatch, statement, after)
        with monkeypatch.context() as patch:
            kept = saves(patch)
            answer(path, "RESUME MODEL m")
        if kind != "drawn":
            assert len(kept) == every - after, f"died after {after} of {every} epochs"
        assert everything(path) == expected, after
        assert not runs_of(str(path)).exists()


#: One of three groups of several blocks is split between two workers.
GROUPED = f"PREDICT y {FEATURES.replace('FROM t', 'FROM (FROM t, range(3))')} GROUP BY g VALIDATE SAMPLE 10%"
SPLIT = {
    "gap": (f"mlp {GROUPED}", "epochs = 4, operator = 'gap'"),
    "early": (f"mlp {GROUPED}", "epochs = 4, operator = 'gap', early_stopping = 2"),
    "linear": (f"logistic_regression PREDICT y {FEATURES} OVER GRID (l1 IN (1, 2))", "epochs = 8, operator = 'gap'"),
    "averaging": (f"mlp PREDICT y {FEATURES} VALIDATE SAMPLE 10%", "epochs = 5, operator = 'averaging'"),
    "waiting": (
        f"mlp PREDICT y {FEATURES} VALIDATE SAMPLE 10%",
        "epochs = 5, operator = 'parameter_server', staleness = 0, sync = 3",
    ),
    "coordinates": (
        f"logistic_regression PREDICT y {FEATURES} OVER GRID (l1 IN (1, 2)) VALIDATE SAMPLE 10%",
        "epochs = 8, operator = 'coordinate_descent'",
    ),
    "coordinates early": (
        f"linear_svm PREDICT y {FEATURES} VALIDATE SAMPLE 10%",
        "epochs = 8, operator = 'coordinate_descent', early_stopping = 2, tolerance = 1e-300",
    ),
    "averaged early": (
        f"mlp PREDICT y {FEATURES} VALIDATE SAMPLE 10%",
        "epochs = 5, operator = 'averaging', reduce = 'star', early_stopping = 2",
    ),
    "averaged by batches": (
        f"mlp PREDICT y {FEATURES} VALIDATE SAMPLE 10%",
        "epochs = 5, operator = 'averaging', sync = 3, outer_momentum = 0.5",
    ),
    "gradients": (
        f"logistic_regression PREDICT y {FEATURES} VALIDATE SAMPLE 10%",
        "solver = 'sgd', epochs = 5, operator = 'averaging', sync = 40, send = 'gradient', outer_momentum = 0.5",
    ),
}


@pytest.mark.examples(2)
@pytest.mark.parametrize("kind", SPLIT)
def test_a_group_that_is_split_goes_on_inside(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Its blocks are on two workers, and what its steps reach is kept after epochs."""
    statement = TRAIN.format(*SPLIT[kind]).replace("workers = 1", "workers = 2")
    with monkeypatch.context() as patch:
        kept = saves(patch)
        answer(path, statement)
        every = len(kept)
    steps = "SELECT count(*), count(DISTINCT epoch) FROM grouplearn.units"
    ((all_steps, epochs),) = answer(path, steps)
    assert all_steps > 2 * epochs > 0, "the group is split"
    expected = everything(path)
    late = THOROUGH or kind in ("gap", "averaged by batches", "coordinates")
    for after in sorted({every // 2, *([every - 1] if late else [])}):
        dies(path, monkeypatch, statement, after)
        with monkeypatch.context() as patch:
            kept = saves(patch)
            answer(path, "RESUME MODEL m")
        assert len(kept) <= every - after + 2, "but for what two workers were at, nothing is trained twice"
        assert everything(path) == expected, after


def test_a_hopping_pack_goes_on_inside(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of its visits is another one after a death, so its bits may be too; its epochs are those it was to have."""
    statement = TRAIN.format(f"mlp PREDICT y {FEATURES}", "epochs = 5, operator = 'mop'").replace(
        "workers = 1", "workers = 2"
    )
    dies(path, monkeypatch, statement, 3)
    answer(path, "RESUME MODEL m")
    assert answer(path, "SELECT status, epochs FROM m") == [("done", 5)]
    assert answer(path, "SELECT count(*), max(epoch) FROM m_curves") == [(5, 5)]


def test_partitions_that_push_go_on_inside(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was pushed before the death is of the model, so that its order is not known as a whole, and is not repeated."""
    learner = f"mlp PREDICT y {FEATURES} VALIDATE SAMPLE 10%"
    statement = TRAIN.format(learner, "epochs = 6, operator = 'parameter_server', staleness = 1")
    statement = statement.replace("workers = 1", "workers = 2")
    dies(path, monkeypatch, statement, 2)
    answer(path, "RESUME MODEL m")
    assert answer(path, "SELECT status, epochs FROM m") == [("done", 6)]
    assert answer(path, "SELECT count(*), max(epoch), count(valid_log_loss) FROM m_curves") == [(6, 6, 6)]
    assert answer(path, "SELECT count(pushes), max(epoch) < 6 FROM grouplearn.units WHERE kind <> 'evaluate'") == [
        (0, True)
    ]
    again = statement.replace("TRAIN MODEL m", "TRAIN MODEL r").replace("staleness = 1", "replay = 'm'")
    with pytest.raises(grouplearn.Error, match='model "m" has no order of pushes'):
        answer(path, again)
    answer(path, statement.replace("TRAIN MODEL", "TRAIN OR REPLACE MODEL"))
    assert answer(path, "SELECT max(len(pushes)) FROM grouplearn.units") == [(12,)]
    dies(path, monkeypatch, again, 2)
    answer(path, "RESUME MODEL r")  # what is repeated begins with the first push
    hashes = (
        "SELECT count(DISTINCT sha256), count(*) FROM grouplearn.artifacts SEMI JOIN grouplearn.models USING (model)"
    )
    assert answer(path, hashes) == [(1, 2)]


@pytest.mark.parametrize(
    "kind", ["averaged by batches", "coordinates", *(["averaging", "gradients"] if THOROUGH else [])]
)
def test_rounds_go_on_with_other_workers(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Averaged models depend on partitions, of which there are as many as before."""
    statement = TRAIN.format(*SPLIT[kind]).replace("workers = 1", "workers = 2")
    answer(path, statement)
    expected = everything(path)
    dies(path, monkeypatch, statement, 2)
    answer(path, "RESUME MODEL m WITH (workers = 1)")
    assert everything(path) == expected


def test_a_damaged_state_is_not_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = TRAIN.format(*STATEMENTS["mlp"])
    answer(path, statement)
    expected = everything(path)
    dies(path, monkeypatch, statement, 3)
    (state,) = runs_of(str(path)).glob("*/state-*")
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(content)
    kept = saves(monkeypatch)
    answer(path, "RESUME MODEL m")
    assert len(kept) == 8  # of the fit that is judged, and of the one on all rows
    assert everything(path) == expected


def test_a_booster_that_cannot_be_is_not_gone_on_from(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its digest is right: LightGBM would follow a split beyond the features."""
    statement = TRAIN.format(*STATEMENTS["numbers"])
    answer(path, statement)
    expected = everything(path)
    dies(path, monkeypatch, statement, 4)
    (state,) = runs_of(str(path)).glob("*/state-*")
    content = state.read_bytes()[32:]
    forged = content.replace(b"split_feature=0", b"split_feature=9").replace(b"split_feature=1", b"split_feature=9")
    assert forged != content
    state.write_bytes(hashlib.sha256(forged).digest() + forged)
    kept = saves(monkeypatch)
    answer(path, "RESUME MODEL m")
    assert len(kept) == 6
    assert everything(path) == expected


def test_a_booster_of_other_scores_begins_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = TRAIN.format(*STATEMENTS["numbers"])
    answer(path, statement)
    expected = everything(path)
    dies(path, monkeypatch, statement, 4)
    monkeypatch.setattr("grouplearn.learners.trees.boosting.scores_digest", lambda _: "another")
    kept = saves(monkeypatch)
    answer(path, "RESUME MODEL m")
    assert len(kept) == 6
    assert everything(path) == expected


def test_states_take_the_room_of_what_is_in_training(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file for each pack under way, none for units that are done."""
    found: list[int] = []

    def before(_: int) -> None:
        found.append(len(list(runs_of(str(path)).glob("*/state-*"))))

    saves(monkeypatch, before)
    answer(path, TRAIN.format(*STATEMENTS["folds"]))
    assert max(found) == 1


def test_nothing_is_kept_before_it_is_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "SAVE_SECONDS", 3600.0)
    dies(path, monkeypatch, TRAIN.format(*STATEMENTS["mlp"]), 3)
    assert not list(runs_of(str(path)).glob("*/state-*"))
    assert len(list(runs_of(str(path)).glob("*/manifest"))) == 1
