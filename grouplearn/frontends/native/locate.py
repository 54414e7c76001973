"""Where builds of the extension are, and which one a DuckDB needs."""

from __future__ import annotations

import platform
import sys
from importlib import resources
from pathlib import Path

EXTENSION = "grouplearn.duckdb_extension"


def sources() -> Path:
    """Return the folder of the C++ sources."""
    return Path(str(resources.files("grouplearn.udfs"))) / "native"


def builds() -> Path:
    """Return the folder of builds, laid out as DuckDB's setting ``extension_directory`` requires."""
    return Path(str(resources.files("grouplearn.udfs"))) / "extensions"


def duckdb_platform() -> str:
    """Return this machine as DuckDB names it, such as ``linux_amd64``."""
    system = {"linux": "linux", "darwin": "osx"}.get(sys.platform, sys.platform)
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"{system}_{machine}"


def build_for(version: str, folder: Path | None = None) -> Path:
    """Return the path of the build for a DuckDB version (``1.5.6``), existing or not."""
    return (folder or builds()) / f"v{version}" / duckdb_platform() / EXTENSION


def built_versions() -> list[str]:
    """Return the DuckDB versions with a build on this machine."""
    found = builds().glob(f"v*/{duckdb_platform()}/{EXTENSION}")
    return sorted((path.parts[-3].removeprefix("v") for path in found), key=lambda text: [*map(int, text.split("."))])
