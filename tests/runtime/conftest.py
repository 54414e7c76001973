"""What the tests of runtimes share."""

from __future__ import annotations

import pytest
from helpers import scopes

from grouplearn.runtime.ray.runtime import RayRuntime
from grouplearn.runtime.runtimes import runtime


@pytest.fixture(scope="session")
def on_ray() -> RayRuntime:
    """A cluster of this machine, which tests of several files have together; it ends before those of others."""
    shared = runtime("ray")
    assert isinstance(shared, RayRuntime)
    return shared


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if item.path.stem in scopes.ONE_CLUSTER and (nextitem is None or nextitem.path.stem not in scopes.ONE_CLUSTER):
        RayRuntime().shutdown()
