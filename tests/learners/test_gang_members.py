"""Processes that train one model together: the same model for all, and nothing that another machine could reach."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.hearing import heard
from helpers.listening import beyond_loopback, listening

from grouplearn.data.shard import Shard
from grouplearn.learners.contract.control import Stop
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.trees.gbdt import Gbdt
from grouplearn.models.label import NUMBER

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks at sockets in /proc")

LIGHTGBM = """
import sys
import numpy as np
from grouplearn.data.shard import Shard
from grouplearn.learners.contract.control import Gang, Stop
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.trees.gbdt import Gbdt
from grouplearn.models.label import NUMBER
rank, size, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(0)
x = rng.normal(size=(900, 4))
own = Shard(x[rank::size], (2 * x[:, 0] + np.sin(3 * x[:, 1]))[rank::size], np.ones(len(x[rank::size])))
problem, configs = Problem(NUMBER, 4, 0, seed=1), [{"num_iterations": 20, "max_bin": 200}]
print("ready", flush=True)
gang = Gang(rank, size, directory, 30.0)
state, _ = Gbdt().boost(problem, configs, Gbdt().init(problem, configs), own, None, Stop("rmse"), gang)
print(state.tensors["model_0"].tobytes().decode().replace(chr(10), "|"), flush=True)
"""

MLP = """
import hashlib, sys
import numpy as np
from grouplearn.data.shard import Shard, Totals
from grouplearn.learners.contract.control import Gang
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.neural.mlp import Mlp
from grouplearn.models.label import NUMBER
rank, size, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(0)
x, weight = rng.normal(size=(301, 4)), rng.uniform(0.5, 2, 301)
y = 7 + 2 * x[:, 0] + np.sin(3 * x[:, 1])
own = Shard(x[rank::size], y[rank::size], weight[rank::size], whole=Totals.of(y, weight))
problem, mlp = Problem(NUMBER, 4, seed=1), Mlp()
configs = [{"learning_rate": 0.02, "l2": 0.1, "batch_size": BATCH}, {"learning_rate": 0.01, "dropout": 0.2, "batch_size": BATCH}]
print("ready", flush=True)
state = mlp.init(problem, configs)
with mlp.joined(Gang(rank, size, directory, 30.0)) as gang:
    for epoch in range(6):
        state = mlp.descend(problem, configs, state, own, epoch, gang)
print(hashlib.sha256(state.to_bytes()).hexdigest(), state.tensors["parameters"][0].sum(), *mlp.losses(state), flush=True)
"""

TORCH = """
import sys
import torch
from grouplearn.learners.contract.control import Gang
from grouplearn.learners.neural.network_parallel import joined
rank, size, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
print("ready", flush=True)
with joined(Gang(rank, size, directory, 30.0)):
    print("joined", flush=True)
    values = torch.ones(3) * rank
    sys.stdin.readline()
    torch.distributed.all_reduce(values)
    print(values.tolist(), flush=True)
"""


class Members:
    """Processes that run a program with their rank, their number and a directory."""

    def __init__(self, program: str, size: int, directory: Path) -> None:
        self._program, self._size, self._directory = program, size, directory
        self.started: list[subprocess.Popen[str]] = []

    def start(self, rank: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", self._program, str(rank), str(self._size), str(self._directory)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        assert heard(process) == "ready\n"
        return process

    def seen(self, seconds: float) -> set[tuple[str, int]]:
        """Return on what they listen at any moment of some time."""
        found, deadline = set(), time.monotonic() + seconds
        while time.monotonic() < deadline:
            found |= listening(process.pid for process in self.started)
        return found


@pytest.fixture
def directory() -> Iterator[Path]:
    """A private directory with a path too long for a socket's."""
    with tempfile.TemporaryDirectory() as short:
        deep = Path(short, "d" * 100)
        deep.mkdir(mode=0o700)
        yield deep


@pytest.fixture
def ended() -> Iterator[list[Members]]:
    every: list[Members] = []
    yield every
    for members in every:
        for process in members.started:
            process.kill()
            process.communicate()


def test_members_of_a_lightgbm_gang_grow_the_same_trees_and_listen_on_no_interface(
    directory: Path, ended: list[Members]
) -> None:
    members = Members(LIGHTGBM, 3, directory)
    ended.append(members)
    first = members.start(0)
    assert members.seen(0.3) == set()  # it waits for the others, as long as one likes to look
    assert first.poll() is None
    for rank in (1, 2):
        members.start(rank)
    texts = [process.communicate(timeout=60)[0].strip().splitlines()[-1] for process in members.started]
    assert texts[0]
    assert texts[0] == texts[1] == texts[2]
    x = np.random.default_rng(0).normal(size=(900, 4))
    y = 2 * x[:, 0] + np.sin(3 * x[:, 1])
    together, alone = rmse(texts[0], x, y), rmse(alone_text(x, y), x, y)
    assert together == pytest.approx(alone, rel=0.1)
    assert together < 0.5 * float(np.std(y))


def alone_text(x: np.ndarray, y: np.ndarray) -> str:
    problem, configs = Problem(NUMBER, 4, 0, seed=1), [{"num_iterations": 20, "max_bin": 200}]
    state, _ = Gbdt().boost(
        problem, configs, Gbdt().init(problem, configs), Shard(x, y, np.ones(len(y))), None, Stop("rmse")
    )
    return state.tensors["model_0"].tobytes().decode().replace("\n", "|")


def rmse(text: str, x: np.ndarray, y: np.ndarray) -> float:
    from grouplearn.learners.trees.lightgbm.booster import Booster

    return float(np.sqrt(np.mean((Booster.of_text(text.replace("|", "\n").encode()).predict(x)[:, 0] - y) ** 2)))


def test_a_member_that_is_left_alone_says_so(directory: Path, ended: list[Members]) -> None:
    members = Members(LIGHTGBM.replace("30.0", "0.5"), 2, directory)
    ended.append(members)
    process = members.start(1)
    assert process.wait(30) == 1
    process = members.start(0)
    assert process.wait(30) == 1


def test_a_member_whose_neighbour_dies_does_not_go_on_with_half_of_the_sums(
    directory: Path, ended: list[Members]
) -> None:
    members = Members(LIGHTGBM.replace('"num_iterations": 20', '"num_iterations": 100000'), 2, directory)
    ended.append(members)
    first, second = members.start(0), members.start(1)
    time.sleep(2)
    assert first.poll() is None
    second.kill()
    second.wait()
    assert any(rests(first) for _ in range(40))
    assert first.poll() is None, "it waits to be ended"


def rests(process: subprocess.Popen[str]) -> bool:
    """Return whether it uses no processor for half a second."""
    used = processor_time(process.pid)
    time.sleep(0.5)
    return processor_time(process.pid) == used


def processor_time(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11]


@pytest.mark.parametrize("batch", [16, 301])
def test_members_of_an_mlp_gang_have_the_same_bits_and_learn_what_one_does(
    directory: Path, ended: list[Members], batch: int
) -> None:
    found = {}
    for size in (1, 3):
        (directory / str(size)).mkdir(mode=0o700)
        members = Members(MLP.replace("BATCH", str(batch)), size, directory / str(size))
        ended.append(members)
        for rank in range(size):
            members.start(rank)
        told = [process.communicate(timeout=60)[0].split() for process in members.started]
        assert all(each == told[0] for each in told)
        found[size] = np.array(told[0][1:], float)
    if batch == 301:  # one batch of all rows: only the order of sums differs, and what dropout draws
        np.testing.assert_allclose(found[3][:2], found[1][:2], rtol=1e-4)
    np.testing.assert_allclose(found[3][1:], found[1][1:], rtol=0.3)


def test_members_of_a_torch_gang_listen_on_loopback_alone(directory: Path, ended: list[Members]) -> None:
    members = Members(TORCH, 2, directory)
    ended.append(members)
    members.start(0)
    seen = members.seen(0.3)
    second = members.start(1)
    for process in members.started:
        assert heard(process) == "joined\n"
    seen |= members.seen(0.3)
    assert beyond_loopback(seen) == set()
    for process in members.started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in members.started:
        told, _ = process.communicate(timeout=60)
        assert told.strip() == "[1.0, 1.0, 1.0]"
    assert second.returncode == 0
