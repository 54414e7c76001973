"""What an operator says about its own options of WITH: their checks, their defaults, and which contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from grouplearn import sqltext
from grouplearn.failures import WrongValue
from grouplearn.messages import did_you_mean

if TYPE_CHECKING:
    from grouplearn.learners.contract.learner import Learner

#: Most that an INTEGER column of the catalog holds.
MOST = 2**31 - 1
#: Most workers, more than any cluster has: plans are simulated with each of them.
MOST_WORKERS = 10_000
_MOST_EXACT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OperatorOption:
    """An option that only some operators have, which therefore declare it.

    ``check`` returns the value that is meant, or raises ValueError with what completes "<name> ...", or WrongValue. Learners
    that do not say what their batches do take an option that ``needs_batches`` only at its default. One that
    ``chooses_operator`` means the first operator that has it where the statement names none; ``hint`` says then what to do
    where the statement names one that does not have it.
    """

    name: str
    doc: str
    check: Callable[[Any], Any]
    default: Any = None
    needs_batches: bool = False
    chooses_operator: bool = False
    hint: str | None = None

    def suits(self, value: Any, in_batches: bool) -> bool:
        """Return whether a learner takes this value: one that says what its batches do (``in_batches``) takes any."""
        return in_batches or not self.needs_batches or bool(value == self.default)

    def made(self, value: Any) -> bool:
        """Return whether ``value`` is the default, or exactly what ``check`` makes of something."""
        if type(value) is type(self.default) and value == self.default:
            return True
        try:
            checked = self.check(value)
        except ValueError:
            return False
        return type(checked) is type(value) and bool(checked == value)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Why options cannot be given together, or not for this learner or these units: shown at ``option``, or at the operator if
    the statement does not give it."""

    option: str
    message: str
    hint: str


def whole(low: int, high: int = MOST) -> Callable[[Any], int]:
    """Return a check for whole numbers in a range."""

    def check(value: Any) -> int:
        if isinstance(value, float | Decimal) and float(value).is_integer() and abs(float(value)) < _MOST_EXACT:  # 1e3
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise ValueError(f"must be a whole number of at least {low}, got {sqltext.shown(value)}")
        if value > high:
            raise ValueError(f"must be a whole number of at most {high}, got {value}")
        return value

    return check


class OneOf:
    """Checks for one of some words, in any case."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed

    def __call__(self, value: Any) -> str:
        """Return the word in lower case; raises WrongValue."""
        if not isinstance(value, str) or value.lower() not in self.allowed:
            hint = did_you_mean(str(value), self.allowed)
            raise WrongValue(f"must be one of {', '.join(self.allowed)}, got {sqltext.shown(value)}", hint)
        return value.lower()


def model_name(value: Any) -> str:
    """Return the name of a model; raises ValueError for anything else."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be the name of a model, such as 'm', got {sqltext.shown(value)}")
    return value


#: The option of operators whose runs depend on an order that is recorded.
REPLAY = OperatorOption(
    "replay",
    "model whose run is repeated, in the same order of rows or of pushes",
    model_name,
    chooses_operator=True,
    hint="Name the operator of the run that is repeated.",
)


def no_contradiction(given: Mapping[str, Any], learner: Learner | None) -> Contradiction | None:
    """Return None: the operator's options go with each other."""
    del given, learner
    return None
