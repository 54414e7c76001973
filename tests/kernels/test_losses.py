"""All losses are one header, each with a declaration, and no other source names a loss."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grouplearn.kernels.build import compiling
from grouplearn.kernels.linear.loss_numbers import number_of
from grouplearn.models.losses.losses import LOSSES

ROOM = compiling.SOURCES / "losses"


def test_each_is_in_the_header_and_has_a_declaration() -> None:
    listed = re.findall(r"^    each\((\w+), (\w+)\)", (ROOM / "losses.hpp").read_text(encoding="utf-8"), re.MULTILINE)
    names = [name for _, name in listed]
    assert sorted(names) == sorted(loss.name for loss in LOSSES)
    assert [number_of(name) for name in names] == [*range(len(names))]
    assert sorted(path.name for path in ROOM.iterdir()) == ["loss.hpp", "losses.hpp"]
    for kind, _ in listed:
        assert re.search(
            rf"struct {kind} : (?:Usual|OfResiduals) {{", (ROOM / "losses.hpp").read_text(encoding="utf-8")
        )


def test_an_unknown_loss_has_no_number() -> None:
    with pytest.raises(KeyError, match="epsilon"):
        number_of("epsilon")


LINEAR = [path for path in compiling.sources() if path.parent.name == "linear"]


@pytest.mark.parametrize("path", LINEAR, ids=lambda path: path.name)
def test_solvers_ask_a_loss_what_it_is_not_which(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    kinds = "Squares|Logistic|Softmax|Poisson|Hinge|SquaredHinge|Absolute|Quantile|Huber"
    assert re.findall(rf"Loss::\w+|losses::(?:{kinds})\b|enum (?:class )?Loss", text) == []
