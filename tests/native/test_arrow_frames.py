"""Rows that one side sends and the other reads: as they were, refused where they are not what they say, and nothing besides."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from frames_examples import batches, corpus

from grouplearn.frontends.native.arrow_frames import batch_of, described, packed_batch, packed_schema
from grouplearn.frontends.native.build import BuildError, compiler, headers
from grouplearn.frontends.native.frames import Malformed, blob
from grouplearn.frontends.native.locate import sources

HERE = Path(__file__).parent
SANITIZERS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def any_seed() -> int:
    """Return the same seed every time, so that what passes here passes there; GROUPLEARN_EXPLORE=1 looks for new mutants."""
    return random.randrange(1 << 32) if "GROUPLEARN_EXPLORE" in os.environ else 5


@pytest.mark.parametrize("batch", batches(), ids=lambda batch: "-".join(batch.schema.names)[:40])
def test_rows_arrive_as_they_are(batch: pa.RecordBatch) -> None:
    packed = bytearray(b"".join(packed_batch(batch)))
    seen = batch_of(packed, described(packed_schema(batch.schema)))
    seen.validate(full=True)
    assert repr(seen.to_pylist()) == repr(batch.to_pylist())  # NaN is not equal to itself


def test_the_process_reads_no_further_than_a_message() -> None:
    seed = any_seed()
    command = [sys.executable, "-X", "faulthandler", str(HERE / "frames_mutants.py"), str(seed), "3000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    untouched, taken, refused = map(int, done.stdout.split())
    assert untouched == len(batches())
    assert taken > 100
    assert refused > 1000


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension's reader of rows with sanitizers, as a program."""
    program = tmp_path_factory.mktemp("frames") / "walker"
    try:
        command = [compiler(), "-std=c++17", *SANITIZERS, f"-I{sources()}", "-isystem", str(headers("2.0.0"))]
    except BuildError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [*command, str(HERE / "frames_walker.cpp"), "-o", str(program)], capture_output=True, text=True, check=False
    )
    if done.returncode and "cannot find" in done.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.thorough
def test_the_extension_reads_no_further_than_a_message(walker: Path) -> None:
    seed = any_seed()
    done = subprocess.run([walker, str(seed), "30000"], input=corpus(), capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr.decode()}"
    untouched, taken, refused = map(int, done.stdout.split())
    assert untouched == len(batches())
    assert taken > 1000
    assert refused > 10000


def test_the_extension_sends_nothing_but_rows(walker: Path) -> None:
    """What stands in the place of a NULL, and in the bits after the last row, is whatever the database's memory had."""
    done = subprocess.run([walker, "blank"], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


NUMBER = blob(b"i") + blob(b"") + blob(b"") + struct.pack("=qqq", 0, 0, 0)
DEEP = blob(b"+s") + blob(b"") + blob(b"") + struct.pack("=qqq", 0, 1, 0)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (b"", "shorter than it says"),
        (
            blob(b"+us:0,2") + blob(b"") + blob(b"") + struct.pack("=qqq", 0, 2, 0) + 2 * NUMBER,
            "members that are not numbered from 0",
        ),
        (DEEP, "more children than there is room for"),
        (DEEP * 100, "nested more than 64 levels deep"),
        (DEEP * 100_000, "nested more than 64 levels deep"),
        (
            blob(b"+s") + blob(b"") + blob(b"") + struct.pack("=qqq", 0, 1 << 62, 0),
            "more children than there is room for",
        ),
        (blob(b"+s") + blob(b"") + blob(b"") + struct.pack("=qqq", 0, -1, 0), "more children than there is room for"),
        (blob(b"") + blob(b"") + blob(b"") + struct.pack("=qqq", 0, 0, 0), "a type that is not taken"),
        (blob(b"w:-1") + blob(b"") + blob(b"") + struct.pack("=qqq", 0, 0, 0), "a type that is not taken"),
        (blob(b"d:5,2,8") + blob(b"") + blob(b"") + struct.pack("=qqq", 0, 0, 0), "a type that is not taken"),
        (blob(b"u") + blob(b"") + blob(struct.pack("=ii", 1, 1 << 30)) + struct.pack("=qqq", 0, 0, 0), "metadata"),
    ],
)
def test_a_type_that_is_none(schema: bytes, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        described(schema)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({0: 1 << 40}, "no place for the buffers"),
        ({1: -1}, "a wrong count"),
        ({1: 1 << 40}, "a wrong count"),
        ({1: 1000}, "too short"),
        ({2: 5}, "a wrong count"),
        ({4: 2}, "other buffers"),
        ({5: 1 << 40}, "a wrong count"),
        ({5: 2}, "an array of another type"),
        ({1: 2}, "columns of several lengths"),
        ({9: 1000, 1: 1000}, "too short"),
        ({11: 1 << 30}, "too short"),
        ({15: 1 << 40}, "outside of the message"),
        ({16: 1 << 40}, "outside of the message"),
        ({18: 4}, "too short"),
        ({19: 1 << 20}, "outside of the message"),
    ],
)
def test_a_batch_that_is_none(words: dict[int, int], told: str) -> None:
    """By the words of its head: where the buffers are; counts, places and sizes of buffers, of the rows and of the texts."""
    batch = pa.record_batch([pa.array(["a", None, "größe"])], names=["text"])
    packed = bytearray(b"".join(packed_batch(batch)))
    for word, number in words.items():
        packed[8 * word : 8 * word + 8] = struct.pack("=q", number)
    with pytest.raises(Malformed, match=told):
        batch_of(packed, described(packed_schema(batch.schema)))


@pytest.mark.parametrize("offsets", [(0, 5, 3, 4), (-1, 1, 1, 4), (0, 1, 1, 1 << 30)])
def test_texts_that_are_none(offsets: tuple[int, ...]) -> None:
    batch = pa.record_batch([pa.array(["a", "", "abc"])], names=["text"])
    packed = bytearray(b"".join(packed_batch(batch)))
    at = packed.index(struct.pack("=iiii", 0, 1, 1, 4))
    packed[at : at + 16] = struct.pack("=iiii", *offsets)
    with pytest.raises(Malformed, match="offsets"):
        batch_of(packed, described(packed_schema(batch.schema)))
