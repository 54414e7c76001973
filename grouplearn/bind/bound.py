"""A TRAIN statement whose every name and value has been checked, before any row is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from grouplearn.bind.arrays import ArrayType
from grouplearn.bind.clauses.features import BoundItem
from grouplearn.bind.run.run_options import RunOptions
from grouplearn.bind.sql.checker import Column
from grouplearn.data.dataset import Item
from grouplearn.data.frequency import Frequency
from grouplearn.data.split import Split
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.models.definition import HyperparameterColumn, KeyColumn
from grouplearn.parser.statements import Feature, Sql, TrainModel
from grouplearn.search.procedures import SearchPlan


@dataclass(frozen=True, slots=True)
class BoundTarget:
    """The label: its result name, its SQL over FROM and over a prediction source, its type, and whether it has classes.

    ``array`` is the type of a label that is an array.
    """

    name: str
    extract: Sql
    stored: str
    type: str
    classification: bool
    array: ArrayType | None = None


@dataclass(frozen=True, slots=True)
class BoundKey:
    """A GROUP BY key: its definition for the catalog, and its SQL over FROM."""

    stored: KeyColumn
    extract: Sql


@dataclass(frozen=True, slots=True)
class Holdout:
    """How rows are held out: ``where`` a predicate, a ``sample`` of each finest group, ``folds``, ``rolling``, or ``none``.

    ``split`` says which of them train and which judge in each fit. ``by`` is the time of a row for ``rolling``; a series has
    its own.
    """

    kind: Literal["none", "where", "sample", "folds", "rolling"]
    predicate: Sql | None = None
    share: float = 0.0
    by: Sql | None = None
    split: Split = field(default=Split())

    @property
    def drawn(self) -> bool:
        """Whether rows are drawn at random."""
        return self.kind in ("sample", "folds")


@dataclass(frozen=True, slots=True)
class Series:
    """ORDER BY bound: the time of a row over FROM, and the frequency of its steps, which may be ``inferred`` from the times.

    The first item is the step. ``keys`` are those of SERIES BY. ``season_length`` counts the steps of the usual season.
    ``doubts`` are notes on what an inferred frequency leaves.
    """

    time: Sql
    frequency: Frequency
    keys: tuple[BoundKey, ...] = ()
    season_length: int = 1
    doubts: tuple[str, ...] = ()
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class AutoFeatures:
    """FEATURES with the items that AUTO stands for, what was left out, ``id (an id)``, and which texts are read as something
    else, ``amount as numbers``; empty if nothing. ``copies``: how many rows are copies of others, ``20 of 400``."""

    features: tuple[Feature, ...]
    left_out: str = ""
    meant: str = ""
    copies: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the result."""
        reads = (f"AUTO reads the texts of {self.meant}",) if self.meant else ()
        leaves = (f"AUTO leaves out {self.left_out}: FEATURES names what to learn from",) if self.left_out else ()
        told = f"{self.copies} rows are copies of others, and judge a model that has learned from them: SELECT DISTINCT"
        return (*((told,) if self.copies else ()), *reads, *leaves)


@dataclass(frozen=True, slots=True)
class BoundTrain:
    """A statement whose every name and value is checked: the extract, the label, the configurations, how to run.

    If a procedure searches, ``configs`` are those it begins with. ``columns`` are those of FROM. ``target`` is None without
    a label; ``weight_sql`` is the weight of a row over the columns of a source, None for 1. ``series`` is None unless rows
    are in the order of a time. ``left_out`` are columns that would be features if VALIDATE did not look at them. ``refit``:
    the best configuration of each group trains again, on all rows. ``notes`` are notes of the result on how FROM is read.
    ``auto`` are the features that AUTO stands for, None without it. ``held_out`` is what tells rows apart whose held-out
    predictions are kept, None if they are not. ``cluster`` is what the clusters of standard errors are by.
    """

    statement: TrainModel
    catalog: str
    schema: str
    name: str
    learner: Learner
    source: tuple[str | Sql, ...]
    columns: tuple[Column, ...]
    target: BoundTarget | None
    weight_sql: str | None
    keys: tuple[BoundKey, ...]
    sets: tuple[tuple[int, ...], ...]
    items: tuple[BoundItem, ...]
    series: Series | None
    left_out: tuple[str, ...]
    configs: tuple[Config, ...]
    search: SearchPlan | None
    hyperparameters: tuple[HyperparameterColumn, ...]
    holdout: Holdout
    metric: str | None
    keep_best: int | None
    refit: bool
    options: RunOptions
    notes: tuple[str, ...] = ()
    auto: AutoFeatures | None = None
    held_out: tuple[BoundKey, ...] | None = None
    cluster: BoundKey | None = None

    @property
    def carried(self) -> tuple[BoundKey, ...]:
        """What is read of each row beside the features: what tells held-out rows apart, then the cluster."""
        return (*(self.held_out or ()), *([self.cluster] if self.cluster else []))

    @property
    def stored_items(self) -> tuple[Item, ...]:
        """The items as models keep them."""
        return tuple(item.stored.item for item in self.items)
