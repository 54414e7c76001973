"""Physical plans of statements, without running them."""

from __future__ import annotations

from typing import Any

import duckdb

from grouplearn.parser.parse import parse
from grouplearn.parser.statements import TrainModel
from grouplearn.plan.bind import bind
from grouplearn.plan.choose import Candidate
from grouplearn.plan.extract import statistics
from grouplearn.plan.judge import Judge
from grouplearn.plan.physical import PhysicalPlan, plan


def planned(connection: duckdb.DuckDBPyConnection, text: str, **settings: Any) -> PhysicalPlan:
    """Return the physical plan of a TRAIN."""
    (statement,) = parse(text)
    assert isinstance(statement, TrainModel)
    judge = Judge(connection, text)
    bound = bind(judge, statement, "memory", "main", settings)
    return plan(bound, statistics(judge, bound))


def candidate(operator: str, makespan: float, **facts: Any) -> Candidate:
    """Return a simulated operator; facts by name."""
    defaults: dict[str, Any] = {"units": 8, "loads": 4, "idle": 0.1, "peak_bytes": 1000, "used": 2}
    return Candidate(operator=operator, makespan=makespan, **defaults | facts)
