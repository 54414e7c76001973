"""Builds the package (PEP 517): setuptools, once the kernels are compiled.

A wheel holds the compiled libraries, so it is one for this kind of machine and any Python 3.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from typing import Any

import compiling
from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_sdist,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

Settings = Mapping[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return the requirements of a build: a compiler from the package index if there is none."""
    required: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    return required if compiling.compiler() else [*required, "ziglang>=0.13"]


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build a wheel with the kernels of this machine in it and return its name."""
    compiling.compile_all()
    settings = dict(config_settings or {})
    tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    given = settings.get("--build-option", [])
    settings["--build-option"] = [*([given] if isinstance(given, str) else given), f"--plat-name={tag}"]
    name: str = build_meta.build_wheel(directory, settings, metadata_directory)
    return name


def build_editable(directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build an editable wheel, with the kernels for this processor compiled beside their sources, and return its name."""
    compiling.compile_builds()
    name: str = build_meta.build_editable(directory, config_settings, metadata_directory)
    return name
