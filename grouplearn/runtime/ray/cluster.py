"""The cluster that Ray's driver is connected to: a private one on this machine, or an existing one."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grouplearn.data.processors import processors
from grouplearn.failures import TrainingFailed

#: Rows and products are files, so the object store of a private cluster holds little but results on their way to the driver.
STORE_BYTES = 256 << 20
#: The processes without which a private cluster is dead.
CONTROL = ("gcs_server", "raylet")
#: How long a cluster may take to answer whether it sees a file.
PROBE_SECONDS = 20.0
#: How long a machine may take to accept a connection.
KNOCK_SECONDS = 10.0
_LOOPBACK = "127.0.0.1"
_THIS_MACHINE = (_LOOPBACK, "localhost")
#: How often Ray tries a cluster that listens but refuses the connection, once a second: the token may differ.
_TRIES = 5
#: Settings of a private cluster, inherited by its processes: no messages, one thread each, closed to everybody else.
_PRIVATE: Mapping[str, str] = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise Ray announces a future change on every start
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def import_ray() -> Any:
    """Return the module ``ray``."""
    # It recommends packages for displays that are not used here.
    logging.getLogger("ray.widgets.util").setLevel(logging.WARNING)
    import ray

    return ray


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """A cluster that the driver is connected to; ``processes`` are those that a private one needs alive."""

    ray: Any
    private: bool
    processes: tuple[Any, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether a private cluster's control processes live; Ray itself would notice their end a minute later."""
        return all(process.poll() is None for process in self.processes)

    @property
    def actor_options(self) -> dict[str, Any]:
        """Options of actors: on a private cluster as many as the user says, otherwise one where a core is free."""
        return {"num_cpus": 0} if self.private else {"num_cpus": 1, "scheduling_strategy": "SPREAD"}

    def sees(self, path: str) -> bool:
        """Whether all machines of the cluster see a path."""
        return self.private or all(self._on_every_machine(path))

    def leaving(self) -> frozenset[str]:
        """Return the machines, by Ray's names, that are to leave the cluster (``ray drain-node``, autoscalers, spot machines).

        There are none in a private cluster. Ray has no public function for this; its own libraries ask in the same way.
        """
        if self.private:
            return frozenset()
        try:
            return frozenset(self.ray._private.state.state.get_draining_nodes())
        except Exception:  # another version of Ray, or a busy control plane: then machines are lost without notice
            return frozenset()

    def _on_every_machine(self, path: str) -> list[bool]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode

        exists = self.ray.remote(os.path.exists)
        nodes = [node["NodeID"] for node in self.ray.nodes() if node["Alive"]]
        asked = [
            exists.options(num_cpus=0, scheduling_strategy=OnNode(node_id=node, soft=False)).remote(path)
            for node in nodes
        ]
        try:
            return list(self.ray.get(asked, timeout=PROBE_SECONDS))
        except self.ray.exceptions.RayError:
            return [False]


def start_private(directory: str) -> ClusterConnection:
    """Start a cluster that keeps its files in ``directory``, which lies in a private directory.

    It listens on loopback only, and requires a token. Ray reads its settings when it is imported, so it must not have been
    imported before. Raises TrainingFailed.
    """
    os.environ.update(_PRIVATE, RAY_AUTH_TOKEN=secrets.token_hex(32))
    os.environ.pop("RAY_ADDRESS", None)
    ray = import_ray()
    _stay_on_loopback(ray)
    try:
        ray.init(
            address="local",
            num_cpus=processors(),
            object_store_memory=STORE_BYTES,
            include_dashboard=False,
            configure_logging=False,
            logging_level="error",
            log_to_driver=False,
            job_config=_job_config(ray),
            _temp_dir=directory,
        )
    except Exception as error:
        message = f"Ray could not be started: {type(error).__name__}: {error}"
        raise TrainingFailed(message, hint="WITH (executor = 'local')") from error
    running = ray._private.worker._global_node.all_processes
    return ClusterConnection(ray, True, tuple(running[name][0].process for name in CONTROL))


def connect(address: str) -> ClusterConnection:
    """Connect to the cluster at ``address``, with the token that Ray finds for it; raises TrainingFailed."""
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", str(_TRIES))
    host = address.rpartition(":")[0]
    try:
        _knock(address)
        ray = import_ray()
        if host in _THIS_MACHINE:
            _stay_on_loopback(ray)
        ray.init(
            address=address,
            configure_logging=False,
            logging_level="error",
            log_to_driver=False,
            job_config=_job_config(ray),
        )
    except Exception as error:
        what = "no Ray cluster runs on this machine" if address == "auto" else f"no Ray cluster answers at {address}"
        raise TrainingFailed(f"{what}: {_first_line(error)}", hint=_ADDRESS_HINT) from error
    return ClusterConnection(ray, False)


def _job_config(ray: Any) -> Any:
    """Return a job whose workers do not search their driver's working directory for modules, as Ray would let them.

    On another machine of a cluster anybody may have created a directory of that name.
    """
    config = ray.job_config.JobConfig()
    config._runtime_env_has_working_dir = lambda: True  # Ray adds none for a job with a directory of its own
    return config


def _knock(address: str) -> None:
    """Raise OSError if nothing listens at an address: Ray itself would retry for half a minute."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()


_ADDRESS_HINT = "ray start --head starts one, and RAY_AUTH_TOKEN is its token; or RESET grouplearn_address"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _stay_on_loopback(ray: Any) -> None:
    """Make Ray use loopback: it replaces 127.0.0.1 by the machine's address, which others can reach."""
    ray._private.services.get_node_ip_address = lambda *_, **__: _LOOPBACK
    ray.util.get_node_ip_address = lambda *_, **__: _LOOPBACK
