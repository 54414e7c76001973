"""The options of the operators averaging and parameter_server, checked together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from grouplearn import sqltext
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.failures import WrongValue
from grouplearn.learners.contract.learner import Learner
from grouplearn.messages import did_you_mean
from grouplearn.parser.statements import Option
from grouplearn.schedule.averages import Averages, Reduction, Sent
from grouplearn.schedule.rounds.parameter_server import ParameterServer


@dataclass(frozen=True, slots=True)
class AverageOptions:
    """The options of both operators as a statement gives them."""

    partitions: int | None = None
    reduce: Reduction = "scatter"
    send: Sent = "model"
    sync: str | int = "epoch"
    outer_momentum: float = 0.0
    staleness: int = 1

    def averages(self, partitions: int) -> Averages:
        """Return how models are averaged; ``partitions`` is the number where the statement gives none."""
        batches = self.sync if isinstance(self.sync, int) else 0
        count = self.partitions or partitions
        return Averages(count, self.reduce, self.send, batches, self.outer_momentum, self.staleness)


#: Options that only some averaged learners support: the value that all support, and the others.
IN_BATCHES: Mapping[str, tuple[Any, Any]] = {
    "send": ("model", "gradient"),
    "sync": ("epoch", "batch"),
    "outer_momentum": (0.0, 0.9),
}
#: Most batches between two means.
_MOST = 2**31 - 1


def synchronised(value: Any) -> str | int:
    """Return the checked interval between two averages: 'epoch', or a number of batches."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST:
        return value
    said = value.lower() if isinstance(value, str) else None
    if said in ("epoch", "batch"):
        return "epoch" if said == "epoch" else 1
    hint = did_you_mean(value, ["epoch", "batch"]) if isinstance(value, str) else None
    raise WrongValue(f"must be 'epoch', 'batch' or a number of batches from 1 on, got {sqltext.shown(value)}", hint)


def momentum(value: Any) -> float:
    """Return the outer momentum, checked."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not 0 <= value < 1:
        raise ValueError(f"must be a number from 0 to less than 1, got {sqltext.shown(value)}")
    return float(value)


def settle(checker: SqlChecker, learner: Learner, options: tuple[Option, ...], run: Mapping[str, Any]) -> None:
    """Raise for options of these operators that contradict each other or that the learner does not support."""
    given = {option.name.value.casefold(): option for option in options}
    operator = run.get("operator", "auto")
    if operator == ParameterServer.name and "early_stopping" in given and run.get("staleness", 1):
        message = "early_stopping looks at one model after every epoch, and with a staleness none is that of all partitions then"
        raise checker.error(
            message, given["early_stopping"].name.span, "Add staleness = 0, or use operator = 'averaging'."
        )
    for name, (usual, _) in IN_BATCHES.items():
        if name in given and run[name] != usual and not learner.in_batches:
            message = f"{name} must be {sqltext.shown(usual)}: {learner.name} does not say what its batches do"
            raise checker.error(message, given[name].value.span)
