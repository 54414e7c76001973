"""Runs that die where a test says so, as far as one process can play it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import grouplearn
from grouplearn.train.results.ledger import Ledger


class Died(BaseException):
    """What ends a process that is killed."""


def answer(path: Path, *statements: str) -> list[Any]:
    """Return what the last statement answers on a connection of its own."""
    found: list[Any] = []
    with grouplearn.connect(path, progress=False) as con:
        for statement in statements:
            found = con.execute(statement).fetchall()
    return found


def answers_and_forgets(path: Path, *queries: str) -> list[list[Any]]:
    """Return what each query answers on a new connection, and drop the model."""
    with grouplearn.connect(path, progress=False) as con:
        found = [con.execute(query).fetchall() for query in queries]
        con.execute("DROP MODEL m")
    return found


def dies(path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, units: int) -> None:
    """Carry out a statement that ends suddenly when ``units`` units are in the ledger."""
    noted = Ledger.add

    def add(self: Ledger, result: Any) -> None:
        if self.done >= units:
            raise Died
        noted(self, result)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "add", add)
        with pytest.raises(Died):
            answer(path, statement)


def units_trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the numbers of units that are trained, in the order in which they end."""
    units: list[int] = []
    add = Ledger.add

    def noted(self: Ledger, result: Any) -> None:
        add(self, result)
        units.append(result.unit.id)

    monkeypatch.setattr(Ledger, "add", noted)
    return units
