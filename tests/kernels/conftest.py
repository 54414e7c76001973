from collections.abc import Iterator

import pytest

from grouplearn.kernels import compiling, library


def every_build() -> list[str]:
    """The builds that this processor runs."""
    return [build for build in compiling.builds() if library._runs(build)]


@pytest.fixture(params=every_build())
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each build in turn as the one that runs."""
    monkeypatch.setenv(library.VARIABLE, request.param)
    cached = (library.name, library.library, library.function)
    for each in cached:
        each.cache_clear()
    yield request.param
    for each in cached:
        each.cache_clear()
