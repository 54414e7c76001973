"""The options of the operator mop, checked together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.parser.statements import Option
from grouplearn.schedule.operators import REPEATABLE
from grouplearn.schedule.workload import Hops, Scheduler, Visits


@dataclass(frozen=True, slots=True)
class HopOptions:
    """The options of the operator mop as given; ``replay`` also applies to parameter_server."""

    scheduler: Scheduler = "randomized"
    replicas: int = 1
    replay: str | None = None

    def hops(self, seed: int, workers: int, recorded: Visits | None) -> Hops:
        """Return how units hop among this many workers, with the visits to replay."""
        return Hops(self.scheduler, seed, min(workers, self.replicas), recorded)


def settle(checker: SqlChecker, options: tuple[Option, ...], run: dict[str, Any]) -> None:
    """Let ``replay`` choose the first operator that can repeat runs; raise for options that contradict each other."""
    given = {option.name.value.casefold(): option for option in options}
    if "replay" in given and run.get("operator", "auto") == "auto":
        run["operator"] = REPEATABLE[0]
    if "replay" in given and "scheduler" in given:
        message = "scheduler and replay contradict each other: replay repeats a schedule that there is"
        raise checker.error(message, given["scheduler"].name.span, "Leave out one of them.")
