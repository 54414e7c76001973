"""Compiles the kernels for this processor: ``python -m grouplearn.kernels.build.compiling [--all] [--force] [BUILD ...]``.

A checkout has the build for its own processor, a wheel has one per kind of processor. This needs only Python and a C++
compiler, as it also runs while the package is built (``backend``).
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parents[1]
SOURCES = FOLDER / "source"
#: The same arithmetic everywhere: product and sum are fused only where the source says so.
_FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-pthread", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"),
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
#: The library that knows the level of this processor, compiled for any; its source, and that of the fingerprint in it.
PROCESSOR = "processor"
PROCESSOR_SOURCE = SOURCES / "processor" / "level.cpp"
FINGERPRINT_SOURCE = SOURCES / "lanes" / "thread.cpp"
#: The level that each build needs of the processor.
_LEVELS = {"avx512": 2, "avx2": 1}
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
    """Return the fingerprint of the kernels' sources; a library returns the one that it was compiled from."""
    return fingerprint_of(SOURCES, sources())


def fingerprint_of(folder: Path, paths: Iterable[Path]) -> str:
    """Return a fingerprint of the names and contents of files in a folder."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def is_built_from(library: Path, fingerprint: str) -> bool:
    """Return whether a library is there and has this fingerprint in it; a copied one may have any time."""
    return library.exists() and fingerprint.encode() in library.read_bytes()


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


def supported() -> list[str]:
    """Return the builds that this processor runs, best first; it must be known to the library ``PROCESSOR``."""
    level = int(ctypes.CDLL(str(path_of(PROCESSOR))).processor_level())
    return [build for build in builds() if level >= _LEVELS.get(build, level)]


def compile_all(*, force: bool = False) -> list[Path]:
    """Compile every build of this machine and return the libraries."""
    return compile_builds(builds(), force=force)


def compile_builds(names: Iterable[str] = (), *, force: bool = False) -> list[Path]:
    """Compile the named builds, or else the best one for this processor, and return the libraries; those up to date are kept."""
    flags = {PROCESSOR: (), **builds()}

    def current(build: str) -> Path:
        library = path_of(build)
        if force or not is_built_from(library, fingerprint()):
            from_units = [PROCESSOR_SOURCE, FINGERPRINT_SOURCE] if build == PROCESSOR else units()
            compile_library(library, flags[build], from_units)
        return library

    asks = current(PROCESSOR)
    return [asks, *map(current, [*names] or supported()[:1])]


def units() -> list[Path]:
    """Return the source files of a build."""
    return [path for path in sources() if path.suffix == ".cpp" and path != PROCESSOR_SOURCE]


def compile_library(library: Path, flags: Sequence[str], units: Sequence[Path]) -> None:
    """Compile source files, as many at once as there are cores, and link them; a library in use is replaced, not overwritten."""
    command = compiler()
    if command is None:
        raise CompileError("there is no C++ compiler: install g++ or clang++, set CXX, or pip install ziglang")
    if "ziglang" in command:
        # zig's processor names have underscores, and it checks for undefined behaviour by default.
        named = (flag.replace("x86-64-v", "x86_64_v").replace("x86-64", "x86_64") for flag in flags)
        flags = (*(flag for flag in named if flag != "-march=armv8-a"), "-fno-sanitize=undefined")
    elif "clang" not in os.path.basename(command[0]):
        flags = (*flags, "-Wno-maybe-uninitialized")  # for GCC's own headers
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".compiling-") as folder:
        objects = [f"{folder}/{number}.o" for number in range(len(units))]
        known = f'-DGROUPLEARN_FINGERPRINT="{fingerprint()}"'
        compiles = [
            [*command, *_FLAGS, *flags, known, f"-I{SOURCES}", "-c", str(unit), "-o", made]
            for unit, made in zip(units, objects, strict=True)
        ]
        with ThreadPoolExecutor(os.cpu_count() or 1) as together:
            list(together.map(_run, compiles))
        unfinished = Path(folder) / library.name
        _run([*command, *_FLAGS, *flags, "-shared", *objects, "-o", str(unfinished), "-lm"])
        unfinished.replace(library)


def _run(command: list[str]) -> None:
    path = {"PATH": search_path()}  # the compiler must find its assembler and linker
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **path})  # noqa: S603
    if done.returncode:
        raise CompileError(f"the compiler failed:\n{' '.join(command)}\n{done.stderr}")


def main() -> int:
    """Compile what is missing or outdated."""
    parser = argparse.ArgumentParser(prog="grouplearn.kernels.build.compiling", description=__doc__)
    parser.add_argument(
        "builds", nargs="*", metavar="BUILD", help=f"{', '.join(builds())}; the best for this processor"
    )
    parser.add_argument("--all", action="store_true", help="every build of this kind of machine, as wheels have them")
    parser.add_argument("--force", action="store_true", help="also what is up to date, as after a change of flags")
    arguments = parser.parse_args()
    unknown = sorted({*arguments.builds} - {*builds()})
    if unknown:
        parser.error(f"unknown build {unknown[0]!r}; this machine has {', '.join(builds())}")
    try:
        for library in compile_builds(builds() if arguments.all else arguments.builds, force=arguments.force):
            print(library)
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
