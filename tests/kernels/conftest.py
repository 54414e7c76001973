from collections.abc import Iterator

import pytest
from builds import running
from helpers.kernel_builds import compiled

from grouplearn.kernels.build import builds


@pytest.fixture(params=builds.available())
def build(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each build in turn as the one that runs."""
    assert request.param in compiled()
    with running(request.param):
        yield request.param
