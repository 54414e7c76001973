"""Compiles the kernels, one library per kind of processor: ``python -m grouplearn.kernels.build.compiling``.

It needs only Python and a C++ compiler, as it also runs while the package is built (``backend``).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parents[1]
SOURCES = FOLDER / "source"
#: The same arithmetic everywhere: product and sum are fused only where the source says so.
_FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"),
)
#: Builds per machine, best first, with their flags; every machine has "portable", with the same bits as the others.
BUILDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "x86_64": {
        "avx512": ("-march=x86-64-v4", "-mprefer-vector-width=512", "-DGROUPLEARN_AVX512"),
        "avx2": ("-march=x86-64-v3", "-DGROUPLEARN_AVX2"),
        "portable": ("-march=x86-64",),
    },
    "aarch64": {"neon": ("-march=armv8-a", "-DGROUPLEARN_NEON"), "portable": ()},
}
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class CompileError(Exception):
    """The kernels could not be compiled."""


def machine() -> str:
    """Return this machine's name in ``BUILDS``, or its own if it is not there."""
    name = platform.machine().lower()
    return _MACHINES.get(name, name)


def builds() -> Mapping[str, tuple[str, ...]]:
    """Return the builds of this machine and their flags, best first."""
    return BUILDS.get(machine(), {"portable": ()})


def path_of(build: str, folder: Path = FOLDER) -> Path:
    """Return the path of a build's library."""
    return folder / f"kernels_{build}.so"


def sources() -> list[Path]:
    """Return the source files, sorted by path."""
    return sorted(SOURCES.rglob("*.[ch]pp"))


@functools.cache
def fingerprint() -> str:
    """Return a fingerprint of the sources; a library returns the one that it was compiled from."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(str(path.relative_to(SOURCES)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def search_path() -> str:
    """Return the PATH without empty or relative entries, which depend on the current directory."""
    return os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep)))


def program(name: str) -> str | None:
    """Return the absolute path of a program on the PATH or given by path; None if there is none."""
    found = shutil.which(name, path=search_path())
    return os.path.abspath(found) if found else None


def compiler() -> list[str] | None:
    """Return the command of a C++ compiler: ``$CXX``, g++, clang++ or the package ziglang's; None if there is none."""
    named = os.environ.get("CXX")
    for name in (named.split() if named else None, ["g++"], ["clang++"]):
        found = program(name[0]) if name else None
        if name and found:
            return [found, *name[1:]]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-P", "-m", "ziglang", "c++"]
    return None


def compile_all(*, force: bool = False) -> list[Path]:
    """Compile every build of this machine and return the libraries; up-to-date ones are kept."""
    newest = max(path.stat().st_mtime for path in (*sources(), Path(__file__)))
    libraries = {path_of(build): flags for build, flags in builds().items()}
    old = [each for each in libraries if force or not each.exists() or each.stat().st_mtime < newest]
    with ThreadPoolExecutor(os.cpu_count() or 1) as together:
        list(together.map(_compile, old, (libraries[library] for library in old)))
    return [*libraries]


def _compile(library: Path, flags: tuple[str, ...]) -> None:
    command = compiler()
    if command is None:
        raise CompileError("there is no C++ compiler: install g++ or clang++, set CXX, or pip install ziglang")
    if "ziglang" in command:
        # zig's processor names have underscores, and it checks for undefined behaviour by default.
        named = (flag.replace("x86-64-v", "x86_64_v").replace("x86-64", "x86_64") for flag in flags)
        flags = (*(flag for flag in named if flag != "-march=armv8-a"), "-fno-sanitize=undefined")
    elif "clang" not in os.path.basename(command[0]):
        flags = (*flags, "-Wno-maybe-uninitialized")  # for GCC's own headers
    # A library in use is replaced, never overwritten.
    unfinished = library.with_suffix(f".{os.getpid()}.so")
    try:
        known = f'-DGROUPLEARN_FINGERPRINT="{fingerprint()}"'
        words = [*command, *_FLAGS, *flags, known, f"-I{SOURCES}", str(SOURCES / "all.cpp"), "-o", str(unfinished), "-lm"]
        path = {"PATH": search_path()}  # the compiler must find its assembler and linker
        done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **path})  # noqa: S603
        if done.returncode:
            raise CompileError(f"the compiler failed:\n{' '.join(command)}\n{done.stderr}")
        unfinished.replace(library)
    finally:
        unfinished.unlink(missing_ok=True)


def main() -> int:
    """Compile missing or outdated builds; ``--force`` compiles all."""
    try:
        for library in compile_all(force="--force" in sys.argv[1:]):
            print(library)
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
