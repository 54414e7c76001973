"""What a statement is carried out with, handed from the session to the modules that carry it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from grouplearn.databases import Databases
from grouplearn.runtime.job import Progress
from grouplearn.steering import Place


@dataclass(frozen=True, slots=True)
class Workplace:
    """The user's connection and settings, who watches, who may stop it, and where a model in training is found."""

    connection: duckdb.DuckDBPyConnection
    databases: Databases
    settings: Mapping[str, Any]
    progress: Progress | None
    cancelled: Callable[[], bool]
    place: Callable[[str, str, str], Place]
