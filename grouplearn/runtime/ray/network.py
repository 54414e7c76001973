"""Registered networks on their way to Ray's workers: code that stays in memory, checked before it is sent."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from grouplearn.errors import MissingDependency, TrainingError
from grouplearn.learners.neural.network import Network

_OURS = "grouplearn"


def network_code(network: Network | None, learner: str) -> bytes | None:
    """Return a registered network as bytes for other processes; raises TrainingError when it cannot be sent.

    Its functions are sent as they are: a worker need not be able to import the file that they were written in, nor what
    that imported from the current directory.
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
    packages = {str(getattr(each, "__module__", "")).partition(".")[0] for each in functions} | _of_this_place()
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


def handed_over() -> list[str]:
    """Return the directories in which other processes look for modules: those that this one's search path names.

    An empty entry, as of a notebook or a prompt, is wherever the process stands, and not named.
    """
    return [os.path.abspath(path) for path in sys.path if path]


def _of_this_place() -> set[str]:
    """Return the modules and packages that were imported from the current directory, where other processes do not look."""
    with suppress(FileNotFoundError):  # somebody has removed it
        here = os.getcwd()
        if "" in sys.path and here not in handed_over():
            tops = [(name, module) for name, module in tuple(sys.modules.items()) if "." not in name]
            return {name for name, module in tops if name != _OURS and _place_of(module) == here}
    return set()


def _place_of(module: ModuleType) -> str:
    """Return the directory in which a module or a package was found; an empty text where it is of no file."""
    folder = os.path.dirname(getattr(module, "__file__", None) or "")
    return os.path.dirname(folder) if hasattr(module, "__path__") else folder


def _is_own(module: ModuleType) -> bool:
    """Whether a module is neither Python's, nor installed, nor ``__main__``, which is sent by value anyway."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__":
        return False
    installed = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not any(Path(file).resolve().is_relative_to(Path(each).resolve()) for each in installed)
