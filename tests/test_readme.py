"""Runs the five-minute tour of the README as one program."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_tour_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    scope: dict[str, object] = {}
    exec(compile("\n".join(blocks), str(README), "exec"), scope)
    printed = capsys.readouterr().out
    assert "model_level" in printed
    assert "group_task_parallel" in printed
