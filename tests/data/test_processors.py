from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from grouplearn.data import memory
from grouplearn.data.processors import processors


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Eight processors, and a directory of control groups without limits, of which the process is in ``job``."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_groups_of_process", lambda: {"": "/job", "cpu": "/job"})
    (tmp_path / "job").mkdir()
    processors.cache_clear()
    yield tmp_path
    processors.cache_clear()


def test_those_that_the_process_is_bound_to(groups: Path) -> None:
    assert processors() == 8


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("5000 100000", 1),
        ("1600000 100000", 8),
        ("?", 8),
    ],
)
@pytest.mark.parametrize("group", ["", "job"])
def test_no_more_than_a_container_has_time_of(groups: Path, group: str, quota: str, expected: int) -> None:
    (groups / group / "cpu.max").write_text(f"{quota}\n")
    assert processors() == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("300000", 3)])
def test_no_more_than_a_container_of_the_first_version_has_time_of(groups: Path, quota: str, expected: int) -> None:
    (groups / "cpu" / "job").mkdir(parents=True)
    (groups / "cpu" / "job" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (groups / "cpu" / "job" / "cpu.cfs_period_us").write_text("100000\n")
    assert processors() == expected


def test_all_there_are_where_processes_cannot_be_bound(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert processors() == 4
