"""A machine that is to leave a Ray cluster: its worker ends its step and goes, others go on, and nothing is done twice."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from helpers.ray_watch import eventually
from helpers.runtime_jobs import Watcher, models
from test_coordinate_runs import a_job, units_of, whole, workload
from test_ray_address import free_port

from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.runtime.ray.settings import Cluster
from grouplearn.runtime.ray.supervised.processes import end_session
from grouplearn.runtime.ray.supervised.supervisor import CHILDREN
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.rounds.coordinate_descent import CoordinateDescent

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ends its cluster by /proc")

#: Ask the machine that has the resource "second" to leave, as an autoscaler does before it takes a spot machine away.
DRAIN = """
import sys, time
from ray._raylet import GcsClient
from ray.core.generated import autoscaler_pb2
client = GcsClient(address=sys.argv[1])
(node,) = [info.node_id.hex() for info in client.get_all_node_info().values() if "second" in info.resources_total]
print("ready", flush=True)
sys.stdin.readline()
reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
print(client.drain_node(node, reason, "wanted back", int(time.time() * 1000) + 60_000), flush=True)
"""


@pytest.fixture
def two_machines(tmp_path: Path) -> Iterator[str]:
    """A cluster of two machines, as Ray sees it, with a core each: its address."""
    address, directory = f"127.0.0.1:{free_port()}", f"/tmp/rl-{os.getpid()}"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_TMPDIR": directory}
    ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--block", "--num-cpus=1"]
    where = ["--node-ip-address=127.0.0.1", "--disable-usage-stats"]
    head = ["--head", f"--port={address.partition(':')[2]}", "--include-dashboard=false", f"--temp-dir={directory}"]
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for name, value in token.items():
            patch.setenv(name, value)
        for number, more in enumerate((head, [f"--address={address}", '--resources={"second": 1}'])):
            path = tmp_path / f"log-{number}"
            log: IO[str] = stack.enter_context(path.open("w"))
            process = subprocess.Popen([*ray, *where, *more], stdout=log, stderr=log, start_new_session=True)
            stack.callback(lambda process=process: (end_session(process.pid), process.wait()))
            assert eventually(lambda path=path: "Ray runtime started" in path.read_text(), 60), path.read_text()
        stack.callback(CHILDREN.end_all)
        yield address
    subprocess.run(["rm", "-rf", directory], check=True)


class Drainer(Watcher):
    """Wants the second machine back after some epochs."""

    def __init__(self, address: str, after: int) -> None:
        super().__init__()
        self.after, self.said = after, ""
        self.drain = subprocess.Popen(
            [sys.executable, "-c", DRAIN, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.drain.stdout is not None
        assert self.drain.stdout.readline() == "ready\n"

    def epochs_done(self, unit: Unit, epochs: int) -> None:
        super().epochs_done(unit, epochs)
        if not self.said and self.epochs > self.after:
            self.said, _ = self.drain.communicate("now\n", timeout=60)


@pytest.mark.thorough
def test_a_worker_whose_machine_is_wanted_back_hands_over_what_it_has(two_machines: str) -> None:
    """It ends its step, the other takes its rows over, no step is lost, and bits are the same."""
    job = a_job("logistic", epochs=40)
    job = replace(job, configs=tuple({**config, "tolerance": 1e-300} for config in job.configs))
    watcher = Drainer(two_machines, after=8)
    there = RayRuntime(Cluster(two_machines))
    try:
        results = there.run(job, CoordinateDescent(units_of(job), workload(job, 2)), 2, watcher, lambda: False)
    finally:
        watcher.drain.kill()
        watcher.drain.communicate()
        there.shutdown()
    assert watcher.said.startswith("(True")
    assert models(results) == whole(job)
    assert not watcher.lost
    assert not any(result.lost for result in results)
    last = {
        worker: max(step.epoch for result in results for step in result.steps if step.worker == worker)
        for worker in {step.worker for result in results for step in result.steps}
    }
    assert set(last) == {0, 1}
    assert min(last.values()) < max(last.values()), "both worked to the end"
