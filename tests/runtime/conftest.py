"""What the tests of runtimes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grouplearn.runtime.choose import runtime
from grouplearn.runtime.ray.runtime import RayRuntime


@pytest.fixture(scope="module")
def on_ray() -> Iterator[RayRuntime]:
    """A cluster of this machine, of which the tests of a module have one together."""
    shared = runtime("ray")
    assert isinstance(shared, RayRuntime)
    yield shared
    shared.shutdown()
