"""The Ray cluster of this process: private, on the loopback interface, with a random token, and quiet."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from grouplearn.errors import MissingDependency, TrainingError

#: The object store holds the job twice over (its rows, and results on their way back) and never less than this.
LEAST_STORE_BYTES = 256 << 20
#: Largest share of physical memory that the object store is allowed to take.
STORE_SHARE = 0.4
#: How often it is looked whether the cluster lives. Ray ends a process whose control plane has been gone for 60 s.
WATCH_SECONDS = 2.0
_LOOPBACK = "127.0.0.1"


def import_ray() -> Any:
    """Return the module ``ray``; raises MissingDependency with the install command."""
    # Imported in a notebook, Ray advises to install packages for displays of its own, which nobody sees here.
    logging.getLogger("ray.widgets.util").setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "IProgress not found")  # tqdm's, where it is installed
            import ray
    except ImportError as error:
        raise MissingDependency(
            f"executor = 'ray' needs the package ray: {error}", hint="pip install 'grouplearn[ray]'"
        ) from None
    return ray


class RayCluster:
    """A cluster shared by all runs of the process: the first one starts it, ``stop`` or the process's end stops it.

    A cluster that the process had already connected to is used as it is and never stopped. RAY_ADDRESS is ignored.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._runs = 0
        self._store_bytes = 0
        self._directory: str | None = None
        self._generation = 0

    @contextmanager
    def serving(self, job_bytes: int) -> Iterator[tuple[Any, int]]:
        """Connect to a cluster, if no other run uses it one whose object store has room for a job of ``job_bytes``.

        Yield the module ``ray`` and the number of the cluster: actors of one cluster are gone with it.
        """
        ray = import_ray()
        with self._lock:
            needed = _store_bytes(job_bytes)
            too_small = needed > self._store_bytes and not self._runs
            if self._ours and (too_small or not self._alive()):
                self._stop(ray)
            if not ray.is_initialized():
                self._start(ray, needed)
            self._runs += 1
            generation = self._generation
        try:
            yield ray, generation
        finally:
            with self._lock:
                self._runs -= 1

    def stop(self) -> None:
        """Stop our cluster, unless a run still uses it."""
        with self._lock:
            if self._ours and not self._runs:
                self._stop(import_ray())

    def serves(self, generation: int) -> bool:
        """Return whether the cluster of that number is still there (one that is not ours is taken to be)."""
        with self._lock:
            return generation == self._generation and self._alive()

    def _alive(self) -> bool:
        return not self._ours or all(process.poll() is None for process in self.processes().values())

    def processes(self) -> dict[str, Any]:
        """Return the control processes of our cluster that must run, by name (``gcs_server``, ``raylet``)."""
        node = import_ray()._private.worker._global_node
        running = {} if node is None else node.all_processes
        return {name: running[name][0].process for name in ("gcs_server", "raylet") if running.get(name)}

    @property
    def _ours(self) -> bool:
        return self._directory is not None

    def _start(self, ray: Any, store_bytes: int) -> None:
        self._directory = tempfile.mkdtemp(prefix="gl-", dir=_short_directory())
        try:
            with (
                _environment(_quiet_and_private()),
                _token_reread(ray),
                _loopback_only(ray),
                _silent(ray),
                _signals_kept(),
            ):
                ray.init(
                    address="local",
                    num_cpus=os.cpu_count(),
                    object_store_memory=store_bytes,
                    include_dashboard=False,
                    configure_logging=False,
                    logging_level="error",
                    log_to_driver=False,
                    _temp_dir=self._directory,
                )
        except BaseException as error:
            self._stop(ray)
            if not isinstance(error, Exception):
                raise
            raise TrainingError(
                f"Ray could not be started: {type(error).__name__}: {error}", hint="WITH (executor = 'local')"
            ) from error
        self._store_bytes = store_bytes
        threading.Thread(target=self._watch, args=(self._generation,), name="grouplearn-ray-watch", daemon=True).start()

    def _watch(self, generation: int) -> None:
        """Disconnect from a cluster that died, before Ray ends the process for it."""
        while generation == self._generation:
            time.sleep(WATCH_SECONDS)
            with self._lock:
                if generation == self._generation and not self._alive():
                    self._stop(import_ray())

    def _stop(self, ray: Any) -> None:
        ray.shutdown()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory, self._store_bytes = None, 0
        self._generation += 1

    def stop_at_exit(self) -> None:
        """Stop our cluster whoever still uses it."""
        with self._lock:
            if self._ours:
                self._stop(import_ray())


#: Ray allows one cluster per process, so this is the process's.
CLUSTER = RayCluster()
atexit.register(CLUSTER.stop_at_exit)


@contextmanager
def failures_explained(ray: Any) -> Iterator[None]:
    """Turn what Ray raises into an error that a user understands."""
    try:
        yield
    except ray.exceptions.RayError as error:
        raise TrainingError(f"Ray failed: {error}", hint="run the statement again") from error


def _store_bytes(job_bytes: int) -> int:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(LEAST_STORE_BYTES, 2 * job_bytes), int(STORE_SHARE * physical))


def _short_directory() -> str:
    """Return where temporary files go, unless that is too deep for the path of a Unix socket (about 100 bytes)."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= 24 else "/tmp"  # noqa: S108 - mkdtemp makes a private directory inside


def _quiet_and_private() -> Mapping[str, str]:
    """Return the settings that the cluster's processes inherit."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # without it Ray announces a future change on every start
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _token_reread(ray: Any) -> Iterator[None]:
    """Ray reads its settings and token once, when it is imported: have it read them again."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()
    yield


@contextmanager
def _loopback_only(ray: Any) -> Iterator[None]:
    """Ray replaces 127.0.0.1 by the machine's address, on which others could reach it: answer with loopback instead."""
    with (
        _replaced(ray._private.services, "get_node_ip_address", lambda *_, **__: _LOOPBACK),
        _replaced(ray.util, "get_node_ip_address", lambda *_, **__: _LOOPBACK),
    ):
        yield


@contextmanager
def _silent(ray: Any) -> Iterator[None]:
    """Ray starts a thread that prints what befalls workers to the user's terminal: the runtime deals with that."""
    with _replaced(ray._private.worker, "listen_error_messages", lambda *_: None):
        yield


@contextmanager
def _replaced(module: Any, name: str, function: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray installs a handler for SIGTERM; the process keeps its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
