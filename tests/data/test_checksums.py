"""Checksums of files: every byte of every chunk counts, and files may be larger than what is read at a time."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grouplearn.data.files import checksums
from grouplearn.data.files.checksums import Damaged

#: A shorter one than elsewhere.
CHUNK = 1 << 14
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5]


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "CHUNK", CHUNK)


@pytest.mark.parametrize("size", SIZES)
def test_one_byte_anywhere(tmp_path: Path, size: int) -> None:
    file = tmp_path / "file"
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    file.write_bytes(content.tobytes())
    sums = checksums.measured([file], lambda: None)
    checksums.check(tmp_path, sums, lambda: None)
    assert len(sums[0].sums) == -(-size // CHUNK)
    for place in sorted({0, size // 2, CHUNK - 1, CHUNK, size - 1} & set(range(size))):
        flip(file, place)
        with pytest.raises(Damaged, match=f"file: its bytes from {place // CHUNK * CHUNK:,} on are not those"):
            checksums.check(tmp_path, sums, lambda: None)
        flip(file, place)
    checksums.check(tmp_path, sums, lambda: None)
    with pytest.raises(Damaged, match="checksums were written"):
        checksums.check(tmp_path, [replace(sums[0], sums=(*sums[0].sums, 7))], lambda: None)


def flip(file: Path, place: int) -> None:
    with file.open("r+b") as opened:
        byte = os.pread(opened.fileno(), 1, place)[0]
        os.pwrite(opened.fileno(), bytes([byte ^ 128]), place)


def test_chunks_that_changed_places(tmp_path: Path) -> None:
    one, other = bytes(CHUNK), b"\x01" * CHUNK
    (tmp_path / "file").write_bytes(one + other)
    sums = checksums.measured([tmp_path / "file"], lambda: None)
    (tmp_path / "file").write_bytes(other + one)
    with pytest.raises(Damaged, match="its bytes from 0 on"):
        checksums.check(tmp_path, sums, lambda: None)


def test_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(3 * CHUNK))
    asked = []

    def go_on() -> None:
        asked.append(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checksums.measured([tmp_path / "file"], go_on)
    assert len(asked) <= 3
