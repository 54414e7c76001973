"""Builds the extension: ``python -m grouplearn.frontends.native.build [--force] VERSION ...`` of DuckDB.

Only headers of DuckDB's source package, which pip fetches, are needed: no symbol of DuckDB is linked, so a build takes
seconds.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from grouplearn.data.files.own_files import make_own, replace_file
from grouplearn.frontends.native.locate import build_for, duckdb_platform, sources
from grouplearn.kernels.build.compiling import fingerprint_of, is_built_from, program, search_path

#: Versions built by default: each DuckDB with a command line on PyPI, and Python's; with the SHA-256 of its source package,
#: so that what is compiled is what was reviewed.
VERSIONS = {
    "1.4.4": "8bba52fd2acb67668a4615ee17ee51814124223de836d9e2fdcbc4c9021b3d3c",
    "1.5.0": "f974b61b1c375888ee62bc3125c60ac11c4e45e4457dd1bb31a8f8d3cf277edd",
    "1.5.1": "b370d1620a34a4538ef66524fcee9de8171fa263c701036a92bc0b4c1f2f9c6d",
    "1.5.2": "638da0d5102b6cb6f7d47f83d0600708ac1d3cb46c5e9aaabc845f9ba4d69246",
    "1.5.4": "f9e32f1cdd106793d79d190186bed9e75289d51e68bd9174e47c04bffedeab6f",
    "1.5.5": "72f33ee57ca7595b23957671a2cc7f7fe2be0ecc2d68f63abedcfcaa3a5c1238",
    "1.5.6": "166a91dbfacfc0c9f08cc76c0243cb6d3d4296bfab5bad72a3cfb63140a5b7c8",
    "2.0.0": "09de511ef0dc76a5213e8d3d87a8b89bb4d3e8a6fe73a9f60dc001269946b44f",
    "2.0.1": "5b3f493140e35b75298ee0fc606d98e3065e8601e64fe81b09326de7a6fd68e0",
}
#: This package's version, which it and the build compare.
OURS = importlib.metadata.version("grouplearn")
#: The signature by which the database recognises an extension's metadata (at its end).
_SIGNATURE = bytes([0, 147, 4, 16]) + b"duckdb_signature" + bytes([128, 4])
#: Paths in the source package: DuckDB's headers, and those of a library that 2.0's include.
_HEADERS = ("external/duckdb/src/include/", "external/duckdb/third_party/fmt/include/")


class BuildError(Exception):
    """An extension could not be built."""


def main() -> int:
    """Build for the versions on the command line."""
    parser = argparse.ArgumentParser(prog="grouplearn.frontends.native.build", description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=list(VERSIONS))
    parser.add_argument("--force", action="store_true", help="build again what is there already")
    parser.add_argument("--sha256", help="of the source package of a version that is not known here")
    arguments = parser.parse_args()
    for version in arguments.versions:
        try:
            print(build(version, force=arguments.force, sha256=arguments.sha256))
        except BuildError as error:
            print(f"DuckDB {version}: {error}", file=sys.stderr)
            return 1
    return 0


def build(version: str, *, force: bool = False, sha256: str | None = None) -> Path:
    """Build the extension for one DuckDB version and return its path; a build of the same sources and version is kept.

    ``sha256`` is the source package's, for a version that is not in ``VERSIONS``.
    """
    target = build_for(version)
    fingerprint = f"{fingerprint_of(sources(), sorted(sources().rglob('*.?pp')))} {OURS}"
    if not force and is_built_from(target, fingerprint):
        return target
    with tempfile.TemporaryDirectory(prefix="grouplearn-build-") as temporary:
        library = Path(temporary) / "grouplearn.so"
        _compile(version, headers(version, sha256), library)
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, library.read_bytes() + fingerprint.encode() + metadata(version), mode=0o644)
    return target


def compiler() -> str:
    """Return the C++ compiler: ``$CXX``, g++ or clang++."""
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        found = program(name) if name else None
        if found:
            return found
    raise BuildError("there is no C++ compiler (g++ or clang++; or set CXX)")


def _compile(version: str, include: Path, library: Path) -> None:
    # Before 1.5.6 the parts of the C API that we use were not declared stable.
    unstable = ["-DDUCKDB_EXTENSION_API_VERSION_UNSTABLE=v" + version] if _numbers(version) < (1, 5, 6) else []
    command = [
        *(compiler(), "-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-fno-access-control", "-DNDEBUG", "-Wall"),
        *("-isystem", str(include), f'-DGROUPLEARN_DUCKDB_VERSION="v{version}"', f'-DGROUPLEARN_VERSION="{OURS}"'),
        *("-shared", "-Wl,--no-undefined", f"-I{sources()}"),
        *("-Wl,--gc-sections", "-Wl,--strip-all", str(sources() / "all.cpp"), "-o", str(library), "-lpthread", "-ldl"),
        *unstable,
    ]
    _run(command, "the compiler failed")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def metadata(version: str) -> bytes:
    """Return the metadata at the end of an extension file: its DuckDB version, platform and interface, unsigned.

    Up to 1.5, DuckDB refuses an unstable interface of any other version. In 2.0 that word selects another entry point; in
    all versions the extension compares versions first.
    """
    stable = version.split(".")[0] != "1"
    interface, required = ("C_STRUCT", "v1.5.6") if stable else ("C_STRUCT_UNSTABLE", f"v{version}")
    fields = ("", "", "", interface, OURS, required, duckdb_platform(), "4")
    return _SIGNATURE + b"".join(field.encode().ljust(32, b"\0") for field in fields) + bytes(256)


def headers(version: str, sha256: str | None = None) -> Path:
    """Return the folder with a DuckDB version's C++ headers; pip fetches its source package if it is missing.

    Raises BuildError if the package does not have the known hash, or no hash is known.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grouplearn" / "headers"
    target = cache / version
    make_own(cache)
    if target.is_dir():
        return target
    expected = VERSIONS.get(version, sha256)
    if expected is None:
        known = ", ".join(VERSIONS)
        raise BuildError(f"no SHA-256 of its source package is known here; give it by --sha256. Known: {known}")
    with tempfile.TemporaryDirectory(prefix="grouplearn-headers-") as temporary:
        # pip compares hashes before it opens the package, which may run code to describe itself.
        wanted = Path(temporary) / "wanted.txt"
        wanted.write_text(f"duckdb=={version} --hash=sha256:{expected}\n", encoding="utf-8")
        download = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "duckdb"]
        download += ["--require-hashes", "--requirement", str(wanted), "--dest", temporary]
        _run(download, "its source package could not be fetched")
        unpacked = Path(temporary) / "include"
        _unpack(next(Path(temporary).glob("duckdb-*.tar.gz")), unpacked)
        try:
            shutil.move(unpacked, target)
        except OSError:
            if not target.is_dir():  # another process was first
                raise
    return target


def _unpack(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as package:
        for member in package:
            for folder in _HEADERS:
                _, found, path = member.name.partition(folder)
                if found and member.isfile():
                    member.name = path
                    package.extract(member, target, filter="data")


def _run(command: list[str], failure: str) -> None:
    environment = {**os.environ, "PATH": search_path()}  # the compiler must find its assembler and linker
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise BuildError("\n".join([failure, *lines[-20:]]))


if __name__ == "__main__":
    sys.exit(main())
