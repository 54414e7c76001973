"""A statement back to text, in canonical form."""

import re
from collections.abc import Sequence
from functools import singledispatch
from typing import assert_never

from grouplearn import sqltext
from grouplearn.parser.lexer.keywords import RESERVED
from grouplearn.parser.statements import (
    AddTrial,
    Between,
    Calibrate,
    DescribeLearner,
    DescribeModel,
    DropModel,
    DropRun,
    DropVersion,
    EvaluateModel,
    ExplainRefresh,
    ExplainTrain,
    ExportModel,
    Feature,
    ImportModel,
    InList,
    Keep,
    Name,
    Nested,
    Option,
    Passthrough,
    QualifiedName,
    RefreshModel,
    RenameModel,
    ResetCalibration,
    ResumeModel,
    RetryFailed,
    Search,
    SetOption,
    ShowFunctions,
    ShowLearners,
    ShowModels,
    ShowRuns,
    Sql,
    Statement,
    StopTrial,
    Target,
    TrainModel,
    UseVersion,
    ValidateFolds,
    ValidateNone,
    ValidateRolling,
    ValidateSample,
    ValidateWhere,
    Validation,
)

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CALLED = re.compile(r"[a-z_][a-z0-9_]*\([0-9.eE_+-]+\)")
_BARE_LOWER = re.compile(r"[a-z_][a-z0-9_]*")
_SOFT = frozenset({"if", "session", "local", "global"})


@singledispatch
def render(statement: Statement) -> str:
    """Return ``statement`` in canonical form: DESIGN's clause order, one clause a line, names quoted only if needed.

    ``parse(render(s)) == (s,)`` for every statement that ``parse`` returns; there is no closing ``;``.
    """
    raise TypeError(f"not a statement: {type(statement).__name__}")


@render.register
def _(statement: Passthrough) -> str:
    return statement.text


@render.register
def _(statement: Nested) -> str:
    return "\n".join(part.text if isinstance(part, Sql) else render(part) for part in statement.parts)


@render.register
def _(statement: ShowModels) -> str:  # noqa: ARG001
    return "SHOW MODELS"


@render.register
def _(statement: ShowFunctions) -> str:
    return f"SHOW FUNCTIONS OF {_qualified(statement.name)}"


@render.register
def _(statement: ShowLearners) -> str:  # noqa: ARG001
    return "SHOW LEARNERS"


@render.register
def _(statement: DescribeModel) -> str:
    return f"DESCRIBE MODEL {_qualified(statement.name)}"


@render.register
def _(statement: DescribeLearner) -> str:
    return f"DESCRIBE LEARNER {_own(statement.name)}"


@render.register
def _(statement: DropModel) -> str:
    return f"DROP MODEL {'IF EXISTS ' if statement.if_exists else ''}{', '.join(map(_qualified, statement.names))}"


@render.register
def _(statement: ResumeModel) -> str:
    return f"RESUME {'OR REPLACE ' if statement.replace else ''}MODEL {_with(statement)}"


@render.register
def _(statement: RetryFailed) -> str:
    return f"RETRY FAILED MODEL {_with(statement)}"


def _with(statement: ResumeModel | RetryFailed) -> str:
    return _qualified(statement.name) + _options(statement.options)


def _options(options: tuple[Option, ...]) -> str:
    given = ", ".join(_option(option, "=") for option in options)
    return f" WITH ({given})" if given else ""


@render.register
def _(statement: ExplainRefresh) -> str:
    return f"EXPLAIN {render(statement.refresh)}"


@render.register
def _(statement: RefreshModel) -> str:
    clauses = (("FROM", statement.source), ("WHERE", statement.where), ("SINCE", statement.since))
    written = "".join(f" {word} {clause.text}" for word, clause in clauses if clause is not None)
    kept = " ON WORSE KEEP" if statement.keeps_better else ""
    return f"REFRESH MODEL {_qualified(statement.name)}{written}{kept}{_options(statement.options)}"


@render.register
def _(statement: ShowRuns) -> str:  # noqa: ARG001
    return "SHOW RUNS"


@render.register
def _(statement: DropRun) -> str:
    return f"DROP RUN {'IF EXISTS ' if statement.if_exists else ''}{statement.run.text}"


@render.register
def _(statement: RenameModel) -> str:
    return f"ALTER MODEL {_qualified(statement.name)} RENAME TO {_name(statement.new_name)}"


@render.register
def _(statement: StopTrial) -> str:
    return f"ALTER MODEL {_qualified(statement.name)} STOP TRIAL {statement.trial.text}"


@render.register
def _(statement: UseVersion) -> str:
    return f"ALTER MODEL {_qualified(statement.name)} USE VERSION {statement.version.text}"


@render.register
def _(statement: DropVersion) -> str:
    return f"ALTER MODEL {_qualified(statement.name)} DROP VERSION {statement.version.text}"


@render.register
def _(statement: AddTrial) -> str:
    given = ", ".join(_option(option, "=") for option in statement.options)
    parent = f" FROM TRIAL {statement.parent.text}" if statement.parent else ""
    return f"ALTER MODEL {_qualified(statement.name)} ADD TRIAL ({given}){parent}"


@render.register
def _(statement: EvaluateModel) -> str:
    where = f"\nWHERE {statement.where.text}" if statement.where else ""
    level = " AT EVERY LEVEL" if statement.every_level else ""
    return f"EVALUATE MODEL {_qualified(statement.name)}{level}\nON {statement.source.text}{where}"


@render.register
def _(statement: ExportModel) -> str:
    options = [
        *([f"FORMAT {statement.format.value}"] if statement.format else ()),
        *([f"DIALECT {statement.dialect.value}"] if statement.dialect else ()),
        *([f"SOURCE {statement.source.text.strip()}"] if statement.source else ()),
        *(["OVERWRITE"] if statement.overwrite else ()),
    ]
    written = f" ({', '.join(options)})" if options else ""
    return f"EXPORT MODEL {_qualified(statement.name)} TO {statement.directory.text}{written}"


@render.register
def _(statement: ImportModel) -> str:
    replace = "OR REPLACE " if statement.replace else ""
    condition = "IF NOT EXISTS " if statement.if_not_exists else ""
    return f"IMPORT {replace}MODEL {condition}{_qualified(statement.name)} FROM {statement.directory.text}"


@render.register
def _(statement: SetOption) -> str:
    if statement.value is None:
        return f"RESET {_own(statement.name)}"
    return f"SET {_own(statement.name)} = {statement.value.text}"


@render.register
def _(statement: ExplainTrain) -> str:
    options = [
        *(["ANALYZE"] if statement.analyze else ()),
        *([f"FORMAT {statement.format}"] if statement.format else ()),
    ]
    written = " ANALYZE" if options == ["ANALYZE"] else f" ({', '.join(options)})" if options else ""
    return f"EXPLAIN{written} {render(statement.train)}"


@render.register
def _(statement: Calibrate) -> str:
    return f"CALIBRATE LEARNER {_own(statement.learner)}" if statement.learner else "CALIBRATE"


@render.register
def _(statement: ResetCalibration) -> str:  # noqa: ARG001
    return "RESET CALIBRATION"


@render.register
def _(statement: TrainModel) -> str:
    return "\n".join([_train_head(statement), *_clauses(statement)])


def _train_head(train: TrainModel) -> str:
    replace = "OR REPLACE " if train.replace else ""
    condition = "IF NOT EXISTS " if train.if_not_exists else ""
    return f"TRAIN {replace}MODEL {condition}{_qualified(train.name)}"


def _clauses(train: TrainModel) -> list[str]:
    """Return the clauses in canonical order."""
    clauses = [f"USING {', '.join(map(_own, (train.learner, *train.other_learners)))}"]
    if train.target:
        clauses.append(_target(train.target))
    if train.order_by:
        clauses.append(f"ORDER BY {train.order_by.text}")
    if train.series_by:
        clauses.append(f"SERIES BY {train.series_by.text.text}")
    if train.features:
        clauses.append(f"FEATURES {_features(train.features)}")
    clauses.append(f"FROM {train.source.text}")
    if train.where:
        clauses.append(f"WHERE {train.where.text}")
    if train.group_by:
        clauses.append(f"GROUP BY {train.group_by.text.text}")
    if train.having:
        clauses.append(f"HAVING {train.having.text}")
    if train.search:
        clauses.append(_search(train.search))
    if train.validation:
        clauses.append(_validation(train.validation))
    if train.refit:
        clauses.append("REFIT")
    if train.metric:
        clauses.append(f"OPTIMIZE {_metric(train.metric)}")
    if train.keep:
        clauses.append(_keep(train.keep))
    if train.within:
        clauses.append(f"WITHIN {train.within.amount.text} {train.within.unit.value}S")
    if train.missing_group:
        clauses.append(f"ON MISSING GROUP {train.missing_group.upper()}")
    if train.null_label:
        clauses.append(f"ON NULL LABEL {train.null_label.upper()}")
    if train.group_failure:
        clauses.append(f"ON GROUP FAILURE {train.group_failure.upper()}")
    if train.options:
        clauses.append(f"WITH ({', '.join(_option(option, '=') for option in train.options)})")
    return clauses


def _target(target: Target) -> str:
    alias = f" AS {_name(target.alias)}" if target.alias else ""
    return f"PREDICT {target.expression.text}{alias}"


def _features(features: Sequence[Feature]) -> str:
    items = ", ".join(map(_feature, features))
    return items if len(features) == 1 and features[0].is_auto else f"({items})"


def _feature(feature: Feature) -> str:
    if feature.auto_except is not None:
        return f"AUTO EXCEPT ({', '.join(map(_name, feature.auto_except))})" if feature.auto_except else "AUTO"
    parts = [argument.text for argument in feature.arguments]
    parts += [_option(option, ":=") for option in feature.options]
    text = ", ".join(parts)
    if feature.encoder is not None:
        text = f"{feature.encoder.value}({text})"
    return f"{text} AS {_name(feature.alias)}" if feature.alias else text


def _search(search: Search) -> str:
    return f"OVER {search.method.upper()} ({', '.join(map(_dimension, search.dimensions))})"


def _dimension(dimension: InList | Between) -> str:
    if isinstance(dimension, Between):
        log = " LOG" if dimension.log else ""
        return f"{_own(dimension.parameter)} BETWEEN {dimension.low.text} AND {dimension.high.text}{log}"
    names = [_own(name) for name in dimension.parameters]
    left = names[0] if len(names) == 1 else f"({', '.join(names)})"
    if dimension.subquery:
        return f"{left} IN {dimension.subquery.text}"
    points = (", ".join(value.text for value in point) for point in dimension.values)
    values = ", ".join(point if len(names) == 1 else f"({point})" for point in points)
    return f"{left} IN ({values})"


def _validation(validation: Validation) -> str:
    match validation:
        case ValidateWhere(predicate):
            return f"VALIDATE WHERE {predicate.text}"
        case ValidateSample(percent):
            return f"VALIDATE SAMPLE {percent.text}%"
        case ValidateFolds(folds):
            return f"VALIDATE FOLDS {folds.text}"
        case ValidateRolling():
            return f"VALIDATE ROLLING {_rolling(validation)}"
        case ValidateNone():
            return "VALIDATE NONE"
    assert_never(validation)


def _rolling(rolling: ValidateRolling) -> str:
    parts = [("", rolling.windows), ("BY ", rolling.by), ("HORIZON ", rolling.horizon)]
    parts += [("STEP ", rolling.step), ("GAP ", rolling.gap)]
    return " ".join(f"{word}{sql.text}" for word, sql in parts if sql is not None)


def _keep(keep: Keep) -> str:
    return "KEEP ALL" if keep.best is None else f"KEEP BEST {keep.best.text}"


def _option(option: Option, sign: str) -> str:
    return f"{_own(option.name)} {sign} {option.value.text}"


def _qualified(name: QualifiedName) -> str:
    return ".".join(map(_name, name.parts))


def _name(name: Name, bare: re.Pattern[str] = _BARE) -> str:
    is_bare = bare.fullmatch(name.value) and name.value.lower() not in RESERVED | _SOFT
    return name.value if is_bare else sqltext.identifier(name.value)


def _metric(name: Name) -> str:
    """Return a metric, which may be called with a number."""
    return name.value if _CALLED.fullmatch(name.value) else _own(name)


def _own(name: Name) -> str:
    """Return a learner's, option's ... name: bare names are folded to lower case, so others are quoted."""
    learner = f"{_name(Name(name.learner), _BARE_LOWER)}." if name.learner else ""
    return learner + _name(name, _BARE_LOWER)
