"""What a durable run's manifest says of its operator's own options: as the statement gave them, and nothing it could not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.dying_runs import answer, dies
from helpers.runtime_jobs import changed

from grouplearn.data.files.plain_values import from_bytes, to_bytes
from grouplearn.statements.workflow import durable
from grouplearn.statements.workflow.manifest import KINDS, Manifest
from grouplearn.train.results import ledger

TABLE = "CREATE TABLE t AS SELECT i % 3 AS g, i * 7 % 11 AS x, i % 5 < 2 AS c FROM range(300) AS r(i)"
TRAIN = """TRAIN MODEL m USING mlp PREDICT c FEATURES (x) FROM t GROUP BY g
  WITH (executor = 'local', durable = true, epochs = 2, workers = 2, operator = {})"""
MODELS = "FROM (SELECT * EXCLUDE (model) FROM grouplearn.artifacts) ORDER BY ALL"
SERVER = {"partitions": 3, "sync": 1, "staleness": 2, "replay": None}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a database with the run of a parameter server that died after its first unit."""
    monkeypatch.setattr(ledger, "FLUSH_SECONDS", 0.0)
    path = tmp_path / "own.duckdb"
    answer(path, TABLE)
    statement = TRAIN.format("'parameter_server', partitions = 3, sync = 'batch', staleness = 2")
    dies(path, monkeypatch, statement, 1)
    return path


def manifest_of(path: Path) -> Manifest:
    (run,) = durable.runs(str(path))
    return run.manifest


def rewritten(path: Path, change: Callable[[bytes], bytes]) -> None:
    (run,) = durable.runs(str(path))
    content = ledger.checked(run.path / "manifest")
    assert content is not None
    ledger.write(run.path / "manifest", change(content))


def with_options(options: Mapping[str, Any], **job: Any) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        manifest = from_bytes(content, KINDS)
        workload = replace(manifest.workload, options=options)
        return to_bytes(replace(manifest, workload=workload, job=changed(manifest.job, **job)))

    return change


def test_it_has_the_options_of_its_operator_alone(path: Path) -> None:
    assert manifest_of(path).workload.options == SERVER


def test_a_run_of_before_there_were_any_is_resumed(path: Path, tmp_path: Path) -> None:
    def without(content: bytes) -> bytes:
        text = to_bytes(SERVER)
        size = int.from_bytes(text[:8], "little")
        own = text[8 : 8 + size].split(b'"value":"', 1)[1].split(b'"}', 1)[0]
        written = b',\\"options\\":' + own
        assert content.count(written) == 1
        head = int.from_bytes(content[:8], "little") - len(written)
        return head.to_bytes(8, "little") + content[8:].replace(written, b"")

    rewritten(path, without)
    assert manifest_of(path).workload.options == {}
    other = tmp_path / "other.duckdb"
    undisturbed = TRAIN.format("'parameter_server', partitions = 3, sync = 'batch', staleness = 2")
    assert len(answer(path, "RESUME MODEL m")) == 3
    answer(other, TABLE, undisturbed)
    assert answer(path, MODELS) == answer(other, MODELS)


@pytest.mark.parametrize(
    "options",
    [
        SERVER | {"steadiness": 2},
        SERVER | {"scheduler": "randomized"},
        SERVER | {"staleness": True},
        SERVER | {"staleness": 1.0},
        SERVER | {"staleness": -1},
        SERVER | {"staleness": None},
        SERVER | {"sync": "batch"},
        SERVER | {"replay": ""},
        SERVER | {"partitions": 10**9},
    ],
)
def test_options_that_no_statement_leaves_are_damage(path: Path, options: Mapping[str, Any]) -> None:
    rewritten(path, with_options(options))
    assert [each.reason for each in durable.unreadable(str(path))] == ["damaged"]


def test_options_that_contradict_each_other_are_damage(path: Path) -> None:
    rewritten(path, with_options(SERVER | {"staleness": 0}, patience=1))
    assert manifest_of(path).job.training.patience == 1
    rewritten(path, with_options(SERVER, patience=1))
    assert [each.reason for each in durable.unreadable(str(path))] == ["damaged"]


@pytest.mark.parametrize(
    ("field", "others"),
    [
        ("averages", {"partitions": 0}),
        ("averages", {"partitions": 10**9}),
        ("averages", {"batches": -1}),
        ("averages", {"momentum": 1.0}),
        ("averages", {"momentum": float("nan")}),
        ("averages", {"staleness": -1}),
        ("hops", {"replicas": 0}),
    ],
)
def test_a_workload_that_no_options_prepare_is_damage(path: Path, field: str, others: Mapping[str, Any]) -> None:
    def change(content: bytes) -> bytes:
        manifest = from_bytes(content, KINDS)
        own = {field: replace(getattr(manifest.workload, field), **others)}
        return to_bytes(replace(manifest, workload=replace(manifest.workload, **own)))

    rewritten(path, change)
    assert [each.reason for each in durable.unreadable(str(path))] == ["damaged"]
