"""Third-party learners for Ray's workers, as code that is never written to a file and is checked before it is sent."""

from __future__ import annotations

import functools
import os
import pickle
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from grouplearn.failures import NotInstalled, TrainingFailed
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import IsMadeOfFunctions

_OURS = "grouplearn"


@dataclass(frozen=True, slots=True)
class LearnerCode:
    """A third-party learner as bytes, and the folders where the user's process looks for modules."""

    content: bytes
    folders: tuple[str, ...] = ()

    def loaded(self) -> Learner:
        """Return the learner; modules are also searched for in the folders of the user's process.

        A process that was started earlier may have another search path.
        """
        sys.path.extend(folder for folder in self.folders if folder not in sys.path)
        # The bytes come from the user's process, which may run any code here anyway.
        learner: Learner = pickle.loads(self.content)  # noqa: S301
        return learner


def learner_code(learner: Learner | None) -> LearnerCode | None:
    """Return a third-party learner for other processes; raises TrainingFailed if it cannot be sent.

    Its functions are sent by value: a worker need not be able to import the file that defines them, nor what that file
    imported from the current directory. A learner without functions is imported there, by the module and name of its class.
    """
    if learner is None:
        return None
    content = _by_value(learner, learner.functions()) if isinstance(learner, IsMadeOfFunctions) else _by_name(learner)
    return LearnerCode(content, tuple(handed_over()))


def _by_name(learner: Learner) -> bytes:
    kind = type(learner)
    message = f"the learner {learner.declaration.name} cannot be sent to worker processes"
    if kind.__module__ == "__main__":
        hint = f"write {kind.__qualname__} into a module that they can import, not into a script or a notebook"
        raise TrainingFailed(f"{message}: its class is of __main__", hint=f"{hint}; or executor = 'local'")
    try:
        found: Any = functools.reduce(getattr, kind.__qualname__.split("."), sys.modules[kind.__module__])
    except (KeyError, AttributeError):
        found = None
    if found is not kind:
        where = f"{kind.__module__} has no {kind.__qualname__}"
        raise TrainingFailed(
            f"{message}: {where}", hint="define its class at the top of a module; or executor = 'local'"
        )
    try:
        return pickle.dumps(learner)
    except Exception as error:
        raise TrainingFailed(
            f"{message}: {error}", hint="keep what it has to its class; or executor = 'local'"
        ) from None


def _by_value(learner: Learner, functions: Sequence[Callable[..., Any]]) -> bytes:
    try:
        import cloudpickle
    except ImportError as error:
        message = (
            f"to send the network {learner.declaration.name} to worker processes needs the package cloudpickle: {error}"
        )
        raise NotInstalled(message, hint='pip install "grouplearn[ray]"') from None
    with _own_modules_by_value(cloudpickle, functions):
        try:
            code: bytes = cloudpickle.dumps(learner)
        except Exception as error:
            message = f"the network {learner.declaration.name} cannot be sent to worker processes: {error}"
            hint = "make_module and loss may use functions and values, but no connection, file or lock; or executor = 'local'"
            raise TrainingFailed(message, hint=hint) from None
    return code


@contextmanager
def _own_modules_by_value(cloudpickle: Any, functions: Sequence[Callable[..., Any]]) -> Iterator[None]:
    """Send functions in the user's own files by value; those of installed packages are imported by workers."""
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
    """Return the directories of this process's search path, for other processes.

    An empty entry (in a notebook or at a prompt) means the current directory, and is left out.
    """
    return [os.path.abspath(path) for path in sys.path if path]


def _of_this_place() -> set[str]:
    """Return the modules and packages imported from the current directory, which other processes do not search."""
    with suppress(FileNotFoundError):  # the directory was removed
        here = os.getcwd()
        if "" in sys.path and here not in handed_over():
            tops = [(name, module) for name, module in tuple(sys.modules.items()) if "." not in name]
            return {name for name, module in tops if name != _OURS and _place_of(module) == here}
    return set()


def _place_of(module: ModuleType) -> str:
    """Return the directory of a module's or package's file, empty if it has no file."""
    folder = os.path.dirname(getattr(module, "__file__", None) or "")
    return os.path.dirname(folder) if hasattr(module, "__path__") else folder


def _is_own(module: ModuleType) -> bool:
    """Whether a module is the user's: not Python's, not installed, and not ``__main__``, which is sent by value anyway."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__":
        return False
    installed = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not any(Path(file).resolve().is_relative_to(Path(each).resolve()) for each in installed)
