"""Checksums of files that a run will read again later, perhaps in another process: what a disk did to them is noticed.

A CRC-32 for each ``CHUNK`` of a file: chunks are read by several threads, none of them keeps more than one in memory, and an
error can say where. It is there for accidents; whoever may write to the files may write the checksums, too.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from grouplearn.data.files.own_files import own_file
from grouplearn.data.processors import processors

#: Bytes of a file that have a checksum of their own.
CHUNK = 1 << 22


@dataclass(frozen=True, slots=True)
class FileSums:
    """What a file was: its name in its directory, its bytes, and the CRC-32 of each chunk."""

    name: str
    n_bytes: int
    sums: tuple[int, ...]


class Damaged(Exception):
    """A file is not what it was: ``path``, and in words how it differs."""

    def __init__(self, path: Path, how: str) -> None:
        super().__init__(f"{path}: {how}")
        self.path, self.how = path, how


def measured(paths: Iterable[Path], go_on: Callable[[], None]) -> tuple[FileSums, ...]:
    """Return the checksums of some files; ``go_on`` is called between chunks, and ends it by raising. Raises OSError."""
    return tuple(FileSums(path.name, path.stat().st_size, _sums(path, path.stat().st_size, go_on)) for path in paths)


def check(directory: Path, files: Sequence[FileSums], go_on: Callable[[], None]) -> None:
    """Raise Damaged where a file in ``directory`` is not what it was; ``go_on`` as in ``measured``."""
    for file in files:
        path = directory / file.name
        try:
            n_bytes = path.lstat().st_size
            if n_bytes != file.n_bytes:
                raise Damaged(path, f"it has {n_bytes:,} bytes and had {file.n_bytes:,}")
            found = _sums(path, n_bytes, go_on)
        except FileNotFoundError:
            raise Damaged(path, "it is not there") from None
        except OSError as error:
            raise Damaged(path, f"it cannot be read: {error.strerror}") from None
        if len(found) != len(file.sums):
            raise Damaged(path, f"it has {len(found):,} pieces, and {len(file.sums):,} checksums were written")
        for number, (now, then) in enumerate(zip(found, file.sums, strict=True)):
            if now != then:
                raise Damaged(path, f"its bytes from {number * CHUNK:,} on are not those that were written")


def _sums(path: Path, n_bytes: int, go_on: Callable[[], None]) -> tuple[int, ...]:
    with own_file(path, "rb") as file, ThreadPoolExecutor(processors(), "grouplearn-checksums") as pool:

        def one(start: int) -> int:
            go_on()
            return zlib.crc32(os.pread(file.fileno(), min(CHUNK, n_bytes - start), start))

        pieces = range(0, n_bytes, CHUNK)
        try:
            return tuple(pool.map(one, pieces)) if len(pieces) > 1 else tuple(map(one, pieces))
        except RuntimeError as error:
            if "can't start new thread" not in str(error):
                raise
            return tuple(map(one, pieces))  # a process short of memory still has this one
        finally:
            pool.shutdown(cancel_futures=True)
