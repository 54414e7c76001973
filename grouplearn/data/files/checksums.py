"""Checksums of files that a run reads again later, perhaps in another process, to notice damage.

A CRC-32 per ``CHUNK`` of a file: several threads read one chunk each, and errors say where. It guards against accidents, not
attacks: whoever can write the files can write the checksums.
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

#: Bytes per checksum.
CHUNK = 1 << 22


@dataclass(frozen=True, slots=True)
class FileSums:
    """A file when it was written: its name, its bytes, and the CRC-32 of each chunk."""

    name: str
    n_bytes: int
    sums: tuple[int, ...]


class Damaged(Exception):
    """A file has changed: ``path``, and in words how it differs."""

    def __init__(self, path: Path, how: str) -> None:
        super().__init__(f"{path}: {how}")
        self.path, self.how = path, how


def measured(paths: Iterable[Path], go_on: Callable[[], None]) -> tuple[FileSums, ...]:
    """Return the checksums of some files; ``go_on`` is called between chunks, and may raise to stop. Raises OSError."""
    return tuple(FileSums(path.name, path.stat().st_size, _sums(path, path.stat().st_size, go_on)) for path in paths)


def check(directory: Path, files: Sequence[FileSums], go_on: Callable[[], None]) -> None:
    """Raise Damaged if a file in ``directory`` has changed; ``go_on`` as in ``measured``."""
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
            return tuple(map(one, pieces))  # no memory for threads: this one does all
        finally:
            pool.shutdown(cancel_futures=True)
