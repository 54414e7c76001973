"""Registered networks on their way to Ray's workers: code that stays in memory, checked before it is sent."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from grouplearn.errors import MissingDependency, TrainingError
from grouplearn.learners.network import Network


def network_code(network: Network | None, learner: str) -> bytes | None:
    """Return a registered network as bytes for other processes; raises TrainingError when it cannot be sent.

    Its functions are sent as they are: a worker need not be able to import the file that they were written in.
    """
    if network is None:
        return None
    try:
        import cloudpickle
    except ImportError as error:
        message = f"to send the network {learner} to worker processes needs the package cloudpickle: {error}"
        raise MissingDependency(message, hint='pip install "grouplearn[ray]"') from None
    with _own_modules_by_value(cloudpickle, network):
        try:
            code: bytes = cloudpickle.dumps(network)
        except Exception as error:
            message = f"the network {learner} cannot be sent to worker processes: {error}"
            hint = "make_module and loss may use functions and values, but no connection, file or lock; or executor = 'local'"
            raise TrainingError(message, hint=hint) from None
    return code


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
