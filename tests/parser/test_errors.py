from pathlib import Path

import pytest

from grouplearn.errors import NotSupportedHere, ParseError
from grouplearn.parser.parse import parse

FIXTURE = Path(__file__).with_name("errors.txt").read_text(encoding="utf-8")
CASES = [tuple(block.rstrip("\n").split("\n----\n")) for block in FIXTURE.split("====\n")]


@pytest.mark.parametrize(("text", "message"), CASES, ids=[text.replace("\n", " ") for text, _ in CASES])
def test_message_and_caret(text: str, message: str) -> None:
    with pytest.raises((ParseError, NotSupportedHere)) as caught:
        parse(text)
    assert f"{type(caught.value).__name__}: {caught.value}" == message


def test_a_long_and_odd_name_is_shown_short_on_one_line() -> None:
    with pytest.raises(ParseError) as caught:
        parse("TRAIN MODEL m USING gbdt FROM t KEEP '" + "x\n" * 1000 + "'")
    assert caught.value.message == f"expected ALL or BEST after KEEP, not '{'x ' * 18}..."


@pytest.mark.parametrize("clause", ["GROUP BY", "GROUP BY GROUPING SETS", "WHERE", "FEATURES (x,", "OVER GRID (a IN"])
def test_deep_nesting_is_no_recursion_error(clause: str) -> None:
    text = f"TRAIN MODEL m USING gbdt FROM t {clause} {'(' * 5000}a, b{')' * 5000}{')' * clause.count('(')}"
    if clause.startswith("GROUP"):
        with pytest.raises(ParseError, match="nested too deeply"):
            parse(text)
    else:
        assert len(parse(text)) == 1
