"""The extension reads a text with work in proportion to its length; tests/parser/test_linear.py says the same of Python."""

import subprocess
from pathlib import Path

import pytest

from grouplearn.frontends.native.build import BuildError, compiler
from grouplearn.frontends.native.locate import sources

ITEMS = (
    *(
        f"({word}, {{}})"
        for word in ("train", "show", "desc", "describe", "evaluate", "create", "with", "models", "predict")
    ),
    *(f"({{}}, '{word}')" for word in ("train", "show models", "train model", "runs")),
    *(
        "(train model {}",
        "(evaluate model {}, 0)",
        "(show models, {})",
        "(create or replace model {}",
        "[train model, {}]",
    ),
    *("(with train model {}", "with train model {}", "(with a as ({}) train model)", "train model) {}", "?", "$p{}"),
)
FRAMES = (
    "INSERT INTO models VALUES {}",
    "CREATE TABLE a AS SELECT {}",
    "PREPARE a AS INSERT INTO models VALUES {}",
    "WITH a AS ({}) FROM a",
)


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("reading") / "counter"
    try:
        command = [compiler(), "-std=c++17", "-finstrument-functions", f"-I{sources()}"]
    except BuildError as error:
        pytest.skip(str(error))
    source = Path(__file__).parent / "reading_counter.cpp"
    done = subprocess.run([*command, str(source), "-o", str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def counted(counter: Path, text: str) -> tuple[int, int]:
    """Return how many functions were called to read a text, and how many statements of ours are in it."""
    done = subprocess.run([str(counter)], input=text, capture_output=True, text=True, timeout=60, check=True)
    calls, found = done.stdout.split()
    return int(calls), int(found)


@pytest.mark.parametrize("frame", FRAMES)
def test_a_statement_is_read_once_whatever_words_it_has(counter: Path, frame: str) -> None:
    for item in ITEMS:
        short, long = (frame.format(", ".join(item.format(n) for n in range(count))) for count in (50, 400))
        assert counted(counter, long)[0] < 9 * counted(counter, short)[0], item


def test_statements_of_ours_are_found(counter: Path) -> None:
    ours = "FROM (SHOW MODELS), (EVALUATE MODEL m ON t); TRAIN MODEL m USING mlp FROM t;"
    text = f"{ours} SELECT 1 FROM (train model) JOIN b USING (c)"
    assert counted(counter, text)[1] == 3
