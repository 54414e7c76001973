"""Physical plans of statements, without running them."""

from __future__ import annotations

from typing import Any

import duckdb

from grouplearn.bind.bind import bind
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.extract.counts.statistics import statistics
from grouplearn.parser.parse import parse
from grouplearn.parser.statements import TrainModel
from grouplearn.plan.operator_choice import Candidate
from grouplearn.plan.physical import PhysicalPlan, plan


def planned(connection: duckdb.DuckDBPyConnection, text: str, **settings: Any) -> PhysicalPlan:
    """Return the physical plan of a TRAIN."""
    (statement,) = parse(text)
    assert isinstance(statement, TrainModel)
    checker = SqlChecker(connection, text)
    bound = bind(checker, statement, "memory", "main", settings)
    return plan(bound, statistics(checker, bound))


def candidate(operator: str, makespan: float, **facts: Any) -> Candidate:
    """Return a simulated operator; facts by name."""
    defaults: dict[str, Any] = {"units": 8, "loads": 4, "idle": 0.1, "peak_bytes": 1000, "used": 2}
    return Candidate(operator=operator, makespan=makespan, **defaults | facts)
