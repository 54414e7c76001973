"""The pipe between the user's process and Ray's driver: whole messages, data alone, no waiting without a limit."""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from helpers.runtime_jobs import job
from hypothesis import given
from hypothesis import strategies as st

from grouplearn.data.dataset import DatasetFiles, Group
from grouplearn.models.state import Artifact
from grouplearn.runtime.ray.job_rows import bare
from grouplearn.runtime.ray.learner_code import LearnerCode
from grouplearn.runtime.ray.settings import Cluster
from grouplearn.runtime.ray.supervised.pipe import Begin, Joined, Lost, Orders, Pipe, PipeClosed, RunEvents, StopRun
from grouplearn.schedule.messages import BlockRange, Discard, Load, Release, Run, RunStep, Step, Unit
from grouplearn.train.group_table import GroupTable
from grouplearn.train.job import LostWork, UnitResult
from grouplearn.train.results.trials import CurvePoint, TrialProgress, TrialResult, Trials


@pytest.fixture
def ends() -> Iterator[tuple[Pipe, Pipe, socket.socket]]:
    one, other = socket.socketpair()
    pipes = Pipe(one), Pipe(other)
    yield (*pipes, other)
    for pipe in pipes:
        pipe.close()


def test_what_is_sent_arrives_as_it_was(ends: tuple[Pipe, Pipe, socket.socket]) -> None:
    here, there, _ = ends
    unit = Unit(3, 1, (0, 2), fold=1, cost=0.5)
    step = Step(4, unit, "train", 2, BlockRange(0, 3), (1, 2))
    said = bare(job())
    files = DatasetFiles("/tmp/x", 0, 240, (("a", "b"),))
    messages = [
        Orders((Load(0, 1, BlockRange(0, 3)), RunStep(0, step), Run(1, unit), Release(1, 2), Discard((1, 2)))),
        RunEvents(1, (Joined(0), Lost((1, 2), kept=False)), ((3, 4),)),
        StopRun(at_once=True),
        Begin(
            0,
            replace(said, groups=()),
            GroupTable.of(said.groups),
            files,
            True,
            LearnerCode(b"code"),
            2,
            5,
            1.5,
            "/tmp/y",
            Cluster("auto", 3.0),
            {1: 0},
        ),
    ]
    for message in messages:
        here.send(message)
    *received, begin = [there.receive(1.0) for _ in messages]
    assert received == messages[:-1]
    assert (begin.rows, begin.code, begin.cluster, begin.made) == (
        files,
        LearnerCode(b"code"),
        Cluster("auto", 3.0),
        {1: 0},
    )
    assert begin.groups.groups() == said.groups
    assert begin.job.dataset.n_rows == 0


def test_large_messages_pass_while_both_are_busy(ends: tuple[Pipe, Pipe, socket.socket]) -> None:
    here, there, _ = ends
    states = tuple(
        TrialResult(number, "done", curve=(CurvePoint(1, 0.5, float("nan")),), carried=TrialProgress(1, bytes(200_000)))
        for number in range(20)
    )
    result = UnitResult(Unit(0, 0, (0,)), Trials.of(0, states, ()), lost=(LostWork(1, 0.5, 1.0, 2, BlockRange(0, 1)),))
    sender = threading.Thread(target=here.send, args=(result,))
    sender.start()
    received = there.receive(10.0)
    sender.join()
    assert received.lost == result.lost
    assert [trial.carried for trial in received.trials] == [trial.carried for trial in states]


def test_nothing_that_arrives_is_run() -> None:
    for content in (pickle.dumps(Artifact("tensors", {"w": np.ones(2)})), b"{}", b""):
        one, other = socket.socketpair()
        pipe = Pipe(other)
        one.sendall(len(content).to_bytes(8, "little") + content)
        with pytest.raises(PipeClosed):
            pipe.receive(1.0)
        one.close()
        pipe.close()


def test_a_message_that_is_not_there_is_not_waited_for(ends: tuple[Pipe, Pipe, socket.socket]) -> None:
    here, there, raw = ends
    began = time.monotonic()
    assert there.receive(0.05) is None
    assert here.receive(0) is None
    raw.send((1000).to_bytes(8, "little") + b"the beginning of a message")
    assert here.receive(0.05) is None
    assert time.monotonic() - began < 5


def test_a_closed_end_is_noticed(ends: tuple[Pipe, Pipe, socket.socket]) -> None:
    here, there, _ = ends
    here.send(Joined(1))
    here.close()
    assert there.receive(1.0) == Joined(1)
    with pytest.raises(PipeClosed):
        there.receive(1.0)
    with pytest.raises(PipeClosed):
        there.send(Joined(2))


KEYS = st.lists(st.none() | st.text(), max_size=3).map(tuple)
RANGES = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 2**40)), max_size=3).map(tuple)
GROUPS = st.lists(st.builds(Group, st.integers(0, 9), st.integers(0, 3), KEYS, RANGES)).map(tuple)


@given(groups=GROUPS)
def test_groups_as_columns_are_groups_again(groups: tuple[Group, ...]) -> None:
    assert GroupTable.of(groups).groups() == groups
