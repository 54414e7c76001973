"""What operator mop needs of the planner: its options, packs enough for its workers, and the visits of an earlier run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.parser.statements import Option
from grouplearn.schedule.workload import Hops, Scheduler, Visits


@dataclass(frozen=True, slots=True)
class HopOptions:
    """The options of operator mop as a statement gives them; ``replay`` is one of parameter_server, too."""

    scheduler: Scheduler = "randomized"
    replicas: int = 1
    replay: str | None = None

    def hops(self, seed: int, workers: int, recorded: Visits | None) -> Hops:
        """Return how units hop among so many workers, with the visits that are repeated."""
        return Hops(self.scheduler, seed, min(workers, self.replicas), recorded)


#: The options that only operator mop has; a run of operator parameter_server can be repeated, too.
_OWN = ("scheduler", "replicas", "replay")


def settle(checker: SqlChecker, options: tuple[Option, ...], run: dict[str, Any]) -> None:
    """Let ``replay`` ask for operator mop; raise for options that contradict each other."""
    given = {option.name.value.casefold(): option for option in options}
    if "replay" in given and run.get("operator", "auto") == "auto":
        run["operator"] = "mop"
    if "replay" in given and "scheduler" in given:
        message = "scheduler and replay contradict each other: replay repeats a schedule that there is"
        raise checker.error(message, given["scheduler"].name.span, "Leave out one of them.")
    repeats = ("replay",) if run.get("operator", "auto") == "parameter_server" else ()
    own = next((name for name in _OWN if name in given and name not in repeats), None)
    if own is not None and run.get("operator", "auto") != "mop":
        takes = "operators mop and parameter_server" if own == "replay" else "operator mop"
        message = f"{own} is an option of {takes}, and this statement is run by {_operator(run)}"
        hint = "Name the operator of the run that is repeated." if own == "replay" else "Add operator = 'mop'."
        raise checker.error(message, given[own].name.span, hint)


def _operator(run: Mapping[str, Any]) -> str:
    operator = run.get("operator", "auto")
    return "the operator that is fastest" if operator == "auto" else f"operator {operator}"
