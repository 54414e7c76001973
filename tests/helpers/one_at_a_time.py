"""Folders for what one test worker compiles and all of them use."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build"


@contextmanager
def one_at_a_time(name: str) -> Iterator[Path]:
    """Give a folder of the checkout to one test worker after the other."""
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield folder
