"""How seldom the cycle collector looks while a statement runs, and what is freed."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest

import grouplearn
from grouplearn.data.memory import rare_collections

USUAL = (700, 10, 10)


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


def test_collections_are_rare_until_the_last_body_ends() -> None:
    with rare_collections():
        inside = gc.get_threshold()
        assert inside[0] > USUAL[0]
        with rare_collections():
            assert gc.get_threshold() == inside
        assert gc.get_threshold() == inside
    assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("own", [(0, 10, 10), (10**6, 5, 5)])
def test_a_rarer_choice_of_the_process_stays(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with rare_collections():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_what_is_set_meanwhile_stays() -> None:
    with rare_collections():
        gc.set_threshold(900, 9, 9)
    assert gc.get_threshold() == (900, 9, 9)


def test_a_statement_that_fails_leaves_the_choice_as_it_was() -> None:
    with grouplearn.connect(progress=False) as con, pytest.raises(grouplearn.Error):
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM missing")
    assert gc.get_threshold() == USUAL


FREES = """
import re
from pathlib import Path
from grouplearn.data.memory import give_back

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

kept = [bytearray(1 << 16) for _ in range(2048)]
del kept[:-1]  # what is kept lies behind what is freed
before = resident()
give_back()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is freed and can give it back")
def test_freed_memory_is_given_back() -> None:
    heap = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
    done = subprocess.run([sys.executable, "-c", FREES], env={**os.environ, **heap}, capture_output=True, check=True)
    assert int(done.stdout) > 64 << 10  # kB of 128 MB
