"""Registered networks on their way to Ray's workers: in memory, by Ray's own serialization, and checked before."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from grouplearn.errors import TrainingError
from grouplearn.learners.network import Network
from grouplearn.runtime.job import Job


def put_job(ray: Any, bare: Job) -> Any:
    """Put a job, which is without its rows, into Ray's store; raises TrainingError when its network cannot be sent.

    The network's functions are sent as they are: a worker need not be able to import the file that they were written in.
    """
    if bare.network is None:
        return ray.put(bare)
    with _own_modules_by_value(ray.cloudpickle, bare.network):
        try:
            ray.cloudpickle.dumps(bare.network)
        except Exception as error:
            message = f"the network {bare.learner} cannot be sent to worker processes: {error}"
            hint = "make_module and loss may use functions and values, but no connection, file or lock; or executor = 'local'"
            raise TrainingError(message, hint=hint) from None
        return ray.put(bare)


@contextmanager
def _own_modules_by_value(cloudpickle: Any, network: Network) -> Iterator[None]:
    """Send functions of the user's own files by value; those of installed packages are imported where they arrive."""
    functions = [each for each in (network.make_module, network.loss) if each is not None]
    packages = {str(getattr(each, "__module__", "")).partition(".")[0] for each in functions}
    modules = [sys.modules[name] for name in sorted(packages) if name in sys.modules]
    own = [
        each for each in modules if _is_own(each) and each.__name__ not in cloudpickle.list_registry_pickle_by_value()
    ]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


def _is_own(module: ModuleType) -> bool:
    """Whether a module is neither Python's, nor installed, nor ``__main__``, which is sent by value anyway."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__":
        return False
    installed = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not any(Path(file).resolve().is_relative_to(Path(each).resolve()) for each in installed)
