"""Files in FROM that can be read once are found where they stand, and nothing else is."""

import os
from pathlib import Path

import pytest

from grouplearn.extract.streams.files import is_one_time, one_time_files
from grouplearn.sqltext import string


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("read_csv('/dev/stdin')", ["read_csv('/dev/stdin')"]),
        (
            "t JOIN READ_CSV_auto ( ['a.csv', '/dev/fd/63'], header = true ) AS r USING (k)",
            ["READ_CSV_auto ( ['a.csv', '/dev/fd/63'], header = true )"],
        ),
        (
            "(SELECT * FROM '/dev/stdin') AS s, read_json('/proc/self/fd/0')",
            ["'/dev/stdin'", "read_json('/proc/self/fd/0')"],
        ),
        ("'/dev/stdin'", ["'/dev/stdin'"]),
        ('"/dev/stdin"', ['"/dev/stdin"']),
        ("read_csv('/dev/stdin', nullstr = ')')", ["read_csv('/dev/stdin', nullstr = ')')"]),
        ("t WHERE path = '/dev/stdin'", []),
        ("t WHERE read_csv = '/dev/stdin'", []),
        ("read_csv('stdin.csv', comment = '/dev/null') -- read_csv('/dev/stdin')", []),
        ("read_csv('/dev/stdout')", []),
        ("upper('/dev/stdin')", []),
        ("read_csv('/dev/std\0in')", []),
    ],
)
def test_what_can_be_read_once(text: str, found: list[str]) -> None:
    assert [file.text for file in one_time_files(text)] == found
    assert all(text[file.start : file.end] == file.text for file in one_time_files(text))


def test_a_pipe_is_a_file_that_can_be_read_once(tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe's.csv", tmp_path / "file.csv"
    os.mkfifo(pipe)
    file.touch()
    assert is_one_time(str(pipe))
    assert not is_one_time(str(file))
    assert not is_one_time(str(tmp_path / "*.csv"))
    written = string(str(pipe))
    (found,) = one_time_files(f"read_csv({written})")
    assert found.name == "read_csv"
    (found,) = one_time_files(f"{written} AS p")
    assert found.name == "pipe's"
