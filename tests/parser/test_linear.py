"""Reading a text takes work in proportion to its length, whatever words and brackets are in it."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from grouplearn.errors import NotSupportedHere, ParseError
from grouplearn.frontends.shell.console import statements
from grouplearn.frontends.shell.dotcommands import chunks
from grouplearn.parser.lexer import tokens
from grouplearn.parser.lexer.tokens import Token
from grouplearn.parser.parse import parse

WORDS = (  # noqa: SIM905
    "train model models runs learners learner evaluate show desc describe create predict drop alter export import resume"
    " retry refresh calibrate calibration reset set explain with as insert prepare grouplearn_workers on using or replace"
).split()
PAIRS = ("train model", "evaluate model", "show models", "describe model", "create or replace model", "or train model")
ITEMS = [
    *(f"({{}}, '{word}')" for word in WORDS),
    *(f"({word}, {{}})" for word in WORDS),
    *(f"({pair}, {{}})" for pair in PAIRS),
    *("[train, {}]", "{{show: {}}}", "({}, (show))", "(((({}, train))))", "(train {}", "train) {}", '"models" {}'),
    *("(with train model {}", "with train model {}", "with a as ({}) train model", "'train; {}'", "(evaluate model {}"),
]
FRAMES = (
    "INSERT INTO models VALUES {}",
    "CREATE TABLE a AS SELECT {}",
    "PREPARE a AS INSERT INTO models VALUES {}",
    "WITH a AS ({}) FROM a",
)
SCRIPTS = (
    "DROP MACRO IF EXISTS train_{};",
    "SELECT 'show; models {}';",
    "INSERT INTO models VALUES ({}",
    "BEGIN; SELECT train, {}; END;",
    "'; {}",
    "/* ; train {}",
    "-- train; {}",
)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """Return how often a function makes a token or looks at one."""
    count = 0

    class Counted(Token):
        def __new__(cls, *values):
            nonlocal count
            count += 1
            return super().__new__(cls, *values)

        def __getattribute__(self, name):
            nonlocal count
            count += 1
            return super().__getattribute__(name)

    monkeypatch.setattr(tokens, "Token", Counted)

    def looks(function: Callable[[], object]) -> int:
        nonlocal count
        count = 0
        with suppress(ParseError, NotSupportedHere):
            function()
        return count

    return looks


@pytest.mark.parametrize("frame", FRAMES)
def test_a_statement_is_read_once_whatever_words_it_has(looks, frame: str) -> None:
    for item in ITEMS:
        short, long = (frame.format(", ".join(item.format(n) for n in range(count))) for count in (50, 400))
        assert looks(lambda: parse(long)) < 8 * looks(lambda: parse(short)) + 1000, item  # noqa: B023


@pytest.mark.parametrize("line", SCRIPTS)
def test_a_script_is_read_once_whatever_lines_it_has(looks, line: str) -> None:
    short, long = ([line.format(n) + "\n" for n in range(count)] for count in (50, 400))
    for read in (
        lambda lines: [*chunks(lines)],
        lambda lines: [*statements("".join(lines))],
        lambda lines: parse("".join(lines)),
    ):
        assert looks(lambda: read(long)) < 8 * looks(lambda: read(short)) + 1000  # noqa: B023
