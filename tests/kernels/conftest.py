from collections.abc import Iterator

import pytest
from builds import running

from grouplearn.kernels.build import builds


@pytest.fixture(params=builds.available())
def build(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each build in turn as the one that runs."""
    with running(request.param):
        yield request.param
