"""Our statements as frozen values: what the user wrote, with its positions.

SQL inside a clause (an expression, a FROM clause, a predicate) stays source text, which DuckDB checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from grouplearn import sqltext
from grouplearn.messages import Span

PlanFormat = Literal["text", "json", "html"]
NO_SPAN = Span(0, 0)


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier, unquoted, and its position; ``learner`` is the first part of a hyperparameter ``learner.name``."""

    value: str
    span: Span = field(default=NO_SPAN, compare=False)
    learner: str | None = None

    @property
    def qualified(self) -> tuple[str | None, str]:
        """What tells a hyperparameter from others: its learner, if one is written, and its name in lower case."""
        return self.learner, self.value.lower()


@dataclass(frozen=True, slots=True)
class QualifiedName:
    """``[catalog.][schema.]name``."""

    parts: tuple[Name, ...]

    @property
    def name(self) -> str:
        """The last part."""
        return self.parts[-1].value

    @property
    def qualified(self) -> str:
        """All parts with dots between them, as messages show them."""
        return ".".join(part.value for part in self.parts)

    @property
    def span(self) -> Span:
        """From the first part to the last."""
        return Span(self.parts[0].span.start, self.parts[-1].span.end)


#: What may stand before a table, a comment included (and before much that is none), within the last so many characters.
_BEFORE_TABLES, _SEEN = re.compile(r"(?:\A|\b(?:from|join)|,|\*/|\n)\s*\Z", re.IGNORECASE), 64


@dataclass(frozen=True, slots=True)
class Parameter:
    """A ``?`` (named by its 1-based number in the statement), ``$1`` or ``$name`` inside a fragment.

    ``start`` and ``end`` are offsets into the fragment's text.
    """

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sql:
    """A fragment of SQL kept as source text, with comments and spacing.

    ``searched`` is where its words may be, if that is more than ``span``: also in a WITH clause before the statement.
    """

    text: str
    span: Span = field(default=NO_SPAN, compare=False)
    parameters: tuple[Parameter, ...] = ()
    searched: Span | None = field(default=None, compare=False)

    def bound(self, values: Mapping[str, Any]) -> Sql:
        """Return the fragment with every parameter replaced by its value as a SQL literal.

        Where a table may stand a text is in parentheses: by itself it would name one, or a file.
        """
        text, shift = self.text, 0
        for parameter in self.parameters:
            value = sqltext.literal(values[parameter.name])
            start, end = parameter.start + shift, parameter.end + shift
            if start and value[0] == "'" and _BEFORE_TABLES.search(text[max(0, start - _SEEN) : start]):
                value = f"({value})"
            text = text[:start] + value + text[end:]
            shift += len(value) - (parameter.end - parameter.start)
        return Sql(text, self.span, searched=self.searched)


@dataclass(frozen=True, slots=True)
class Target:
    """``PREDICT expr [AS alias]``."""

    expression: Sql
    alias: Name | None = None


@dataclass(frozen=True, slots=True)
class Feature:
    """One FEATURES item: ``encoder(arg, ..., option := value)``, or a plain SQL expression when ``encoder`` is None.

    A plain item has exactly one argument, which may be ``*``, ``* EXCLUDE (...)`` or ``COLUMNS(...)``. ``AUTO EXCEPT (a, b)``
    has the argument ``AUTO`` and the names after EXCEPT as ``auto_except``, which is None for all other items.
    """

    arguments: tuple[Sql, ...]
    encoder: Name | None = None
    options: tuple[Option, ...] = ()
    alias: Name | None = None
    auto_except: tuple[Name, ...] | None = None
    span: Span = field(default=NO_SPAN, compare=False)

    @property
    def is_auto(self) -> bool:
        """Whether its features are chosen from the columns."""
        return self.auto_except is not None


@dataclass(frozen=True, slots=True)
class Option:
    """``name = value`` in WITH, or ``name := value`` in an encoder call; the value is any constant expression."""

    name: Name
    value: Sql


@dataclass(frozen=True, slots=True)
class GroupBy:
    """``GROUP BY ...`` with its grouping sets worked out.

    ``text`` is the clause as written (after GROUP BY). ``keys`` are the distinct key expressions in order of first
    appearance; ``sets`` are the grouping sets as tuples of indexes into ``keys``, finest first, e.g. ROLLUP (a, b) has
    ``((0, 1), (0,), ())``. A plain ``GROUP BY a, b`` has ``((0, 1),)``; ``GROUP BY ALL`` is rejected by the parser.
    """

    text: Sql
    keys: tuple[Sql, ...]
    sets: tuple[tuple[int, ...], ...]
    aliases: tuple[Name | None, ...] = ()


@dataclass(frozen=True, slots=True)
class InList:
    """``param IN (v, ...)``, ``(p, q) IN ((v, w), ...)`` or ``param IN (subquery)``.

    ``values`` holds one tuple per listed point, one Sql per parameter; it is empty when ``subquery`` is given.
    """

    parameters: tuple[Name, ...]
    values: tuple[tuple[Sql, ...], ...] = ()
    subquery: Sql | None = None


@dataclass(frozen=True, slots=True)
class Between:
    """``param BETWEEN low AND high [LOG]``, under every search but GRID."""

    parameter: Name
    low: Sql
    high: Sql
    log: bool = False


SearchMethod = Literal["grid", "random", "hyperband", "asha", "pbt", "tpe"]


@dataclass(frozen=True, slots=True)
class Search:
    """``OVER GRID (...)``, ``OVER RANDOM (...)``, or a procedure that learns from results: ``OVER HYPERBAND (...)`` ..."""

    method: SearchMethod
    dimensions: tuple[InList | Between, ...]
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class ValidateWhere:
    """``VALIDATE WHERE predicate``: the rows held out."""

    predicate: Sql


@dataclass(frozen=True, slots=True)
class ValidateSample:
    """``VALIDATE SAMPLE 10%``: the share of each group held out, in percent."""

    percent: Sql


@dataclass(frozen=True, slots=True)
class ValidateFolds:
    """``VALIDATE FOLDS k``: k-fold cross-validation inside each group."""

    folds: Sql


@dataclass(frozen=True, slots=True)
class ValidateNone:
    """``VALIDATE NONE``: every row trains."""


@dataclass(frozen=True, slots=True)
class ValidateRolling:
    """``VALIDATE ROLLING n [BY ts] HORIZON h [STEP s] [GAP g]``: the last ``horizon`` steps of each group, ``windows`` times."""

    windows: Sql
    horizon: Sql
    by: Sql | None = None
    step: Sql | None = None
    gap: Sql | None = None


Validation = ValidateWhere | ValidateSample | ValidateFolds | ValidateRolling | ValidateNone


@dataclass(frozen=True, slots=True)
class Keep:
    """``KEEP ALL`` (``best`` is None) or ``KEEP BEST n``: how many trials of a group keep their artifact."""

    best: Sql | None = None


@dataclass(frozen=True, slots=True)
class Within:
    """``WITHIN 10 MINUTES``: ``unit`` is SECOND, MINUTE or HOUR."""

    amount: Sql
    unit: Name


@dataclass(frozen=True, slots=True)
class TrainModel:
    """``TRAIN [OR REPLACE] MODEL [IF NOT EXISTS] name USING learner, ...`` (DESIGN 3)."""

    name: QualifiedName
    learner: Name
    source: Sql
    other_learners: tuple[Name, ...] = ()
    replace: bool = False
    if_not_exists: bool = False
    target: Target | None = None
    order_by: Sql | None = None
    series_by: GroupBy | None = None
    features: tuple[Feature, ...] | None = None
    where: Sql | None = None
    group_by: GroupBy | None = None
    having: Sql | None = None
    search: Search | None = None
    validation: Validation | None = None
    refit: Name | None = None
    metric: Name | None = None
    keep: Keep | None = None
    missing_group: Literal["parent", "null", "error"] | None = None
    null_label: Literal["skip", "error"] | None = None
    group_failure: Literal["keep", "error"] | None = None
    options: tuple[Option, ...] = ()
    within: Within | None = None


@dataclass(frozen=True, slots=True)
class ExplainTrain:
    """``EXPLAIN [ANALYZE] [(FORMAT text|json|html)] TRAIN ...``; without a format the client's default (usually text)."""

    train: TrainModel
    format: PlanFormat | None = None
    analyze: bool = False


@dataclass(frozen=True, slots=True)
class Calibrate:
    """``CALIBRATE [LEARNER name]``: of every installed learner and the machine, or of one learner."""

    learner: Name | None = None


@dataclass(frozen=True, slots=True)
class ResetCalibration:
    """``RESET CALIBRATION``."""


@dataclass(frozen=True, slots=True)
class ShowModels:
    """``SHOW MODELS``."""


@dataclass(frozen=True, slots=True)
class ShowFunctions:
    """``SHOW FUNCTIONS OF model``: its views and macros."""

    name: QualifiedName


@dataclass(frozen=True, slots=True)
class ShowLearners:
    """``SHOW LEARNERS``."""


@dataclass(frozen=True, slots=True)
class DescribeModel:
    """``DESCRIBE MODEL name``."""

    name: QualifiedName


@dataclass(frozen=True, slots=True)
class DescribeLearner:
    """``DESCRIBE LEARNER name``."""

    name: Name


@dataclass(frozen=True, slots=True)
class DropModel:
    """``DROP MODEL [IF EXISTS] name, ...``."""

    names: tuple[QualifiedName, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ResumeModel:
    """``RESUME [OR REPLACE] MODEL name [WITH (workers = n, executor = '...')]``: continue an unfinished run."""

    name: QualifiedName
    options: tuple[Option, ...] = ()
    replace: bool = False


@dataclass(frozen=True, slots=True)
class RetryFailed:
    """``RETRY FAILED MODEL name [WITH (min_rows = n, ...)]``: train the failed trials of a model again."""

    name: QualifiedName
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class RefreshModel:
    """``REFRESH MODEL name [FROM source] [WHERE predicate] [SINCE time] [ON WORSE KEEP] [WITH (...)]``: train a model further.

    ``source`` has new rows; without it the rows of the model's own FROM are compared with those of before. ``since`` is an
    expression for the time of a row: rows later than the stored watermark are new.
    """

    name: QualifiedName
    source: Sql | None = None
    where: Sql | None = None
    since: Sql | None = None
    keeps_better: bool = False
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplainRefresh:
    """``EXPLAIN REFRESH MODEL ...``: what would be read and trained, and in what time."""

    refresh: RefreshModel


@dataclass(frozen=True, slots=True)
class ShowRuns:
    """``SHOW RUNS``: the durable runs of this database that are not finished."""


@dataclass(frozen=True, slots=True)
class DropRun:
    """``DROP RUN [IF EXISTS] 'id'``."""

    run: Sql
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameModel:
    """``ALTER MODEL name RENAME TO new_name``."""

    name: QualifiedName
    new_name: Name


@dataclass(frozen=True, slots=True)
class StopTrial:
    """``ALTER MODEL name STOP TRIAL 3``: a trial of a running search."""

    name: QualifiedName
    trial: Sql


@dataclass(frozen=True, slots=True)
class AddTrial:
    """``ALTER MODEL name ADD TRIAL (hyperparameter = value, ...) [FROM TRIAL 2]``; ``span`` covers the bracket."""

    name: QualifiedName
    options: tuple[Option, ...]
    parent: Sql | None = None
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class UseVersion:
    """``ALTER MODEL name USE VERSION 2``: the model's names mean that version."""

    name: QualifiedName
    version: Sql


@dataclass(frozen=True, slots=True)
class DropVersion:
    """``ALTER MODEL name DROP VERSION 2``."""

    name: QualifiedName
    version: Sql


@dataclass(frozen=True, slots=True)
class EvaluateModel:
    """``EVALUATE MODEL name [AT EVERY LEVEL] ON table | (query) [WHERE predicate]``.

    ``seen`` are the rows alone, with the WITH queries around the statement that ``source`` or ``where`` names.
    """

    name: QualifiedName
    source: Sql
    where: Sql | None = None
    seen: Sql | None = None
    every_level: Span | None = None


@dataclass(frozen=True, slots=True)
class ExportModel:
    """``EXPORT MODEL name TO 'dir' [(FORMAT f [, DIALECT d [, SOURCE 't']] [, OVERWRITE])]``; ``format`` is None for native,
    ``dialect`` for DuckDB."""

    name: QualifiedName
    directory: Sql
    format: Name | None = None
    overwrite: bool = False
    dialect: Name | None = None
    source: Sql | None = None


@dataclass(frozen=True, slots=True)
class ImportModel:
    """``IMPORT [OR REPLACE] MODEL [IF NOT EXISTS] name FROM 'dir'``."""

    name: QualifiedName
    directory: Sql
    replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetOption:
    """``SET grouplearn_x = value`` or ``RESET grouplearn_x`` (``value`` is None)."""

    name: Name
    value: Sql | None


Listing = ShowModels | ShowFunctions | ShowLearners | ShowRuns | DescribeModel | DescribeLearner | EvaluateModel


@dataclass(frozen=True, slots=True)
class Nested:
    """A statement of DuckDB's with our statements in place of queries: ``FROM (SHOW MODELS)``."""

    parts: tuple[Sql | Listing, ...]


@dataclass(frozen=True, slots=True)
class Passthrough:
    """A statement of DuckDB's, byte for byte, with its ``;`` if there is one."""

    text: str
    span: Span = field(default=NO_SPAN, compare=False)


OurStatement = (
    TrainModel
    | ExplainTrain
    | Calibrate
    | ResetCalibration
    | ShowModels
    | ShowFunctions
    | ShowLearners
    | DescribeModel
    | DescribeLearner
    | DropModel
    | ResumeModel
    | RefreshModel
    | ExplainRefresh
    | RetryFailed
    | ShowRuns
    | DropRun
    | RenameModel
    | StopTrial
    | AddTrial
    | UseVersion
    | DropVersion
    | EvaluateModel
    | ExportModel
    | ImportModel
    | SetOption
    | Nested
)
Statement = OurStatement | Passthrough


def sql_of(part: object) -> Iterator[str]:
    """Yield the expressions in the clauses of a statement, or of a part of one.

    Text after FROM is not included, and of GROUP BY only the keys.
    """
    if isinstance(part, Sql):
        yield part.text
    elif isinstance(part, tuple):
        for each in part:
            yield from sql_of(each)
    elif is_dataclass(part):
        for entry in fields(part):
            if (type(part), entry.name) not in _NO_EXPRESSION:
                yield from sql_of(getattr(part, entry.name))


_NO_EXPRESSION = ((TrainModel, "source"), (RefreshModel, "source"), (GroupBy, "text"))
