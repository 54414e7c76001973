"""The list of losses is the same in Python as in the kernels, and no other source names a loss."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grouplearn.kernels.build import compiling
from grouplearn.kernels.linear.losses import LOSSES, number_of

ROOM = compiling.SOURCES / "losses"


def test_they_are_listed_in_the_order_of_the_kernels() -> None:
    listed = re.findall(r"^    each\((\w+), (\w+)\)", (ROOM / "losses.hpp").read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for _, name in listed] == [*LOSSES]
    assert [number_of(loss) for loss in LOSSES] == [*range(len(LOSSES))]
    assert sorted(f"{name}.hpp" for name in (*LOSSES, "loss", "losses")) == sorted(path.name for path in ROOM.iterdir())
    for kind, name in listed:
        assert f"struct {kind} : Usual {{" in (ROOM / f"{name}.hpp").read_text(encoding="utf-8")


LINEAR = [path for path in compiling.sources() if path.parent.name == "linear"]


@pytest.mark.parametrize("path", LINEAR, ids=lambda path: path.name)
def test_solvers_ask_a_loss_what_it_is_not_which(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    kinds = "Squares|Logistic|Softmax|Poisson|Hinge|SquaredHinge"
    assert re.findall(rf"Loss::\w+|losses::(?:{kinds})\b|enum (?:class )?Loss", text) == []
