"""WITH options and session settings: every name and value checked before any row is read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from grouplearn import sqltext
from grouplearn.bind import ways
from grouplearn.bind.run import compatibility
from grouplearn.bind.run.class_options import ClassWeights, bind_class_weight, bind_positive_class
from grouplearn.bind.run.resources import check_address, check_timeout
from grouplearn.bind.run.run_options import LEAST_PROFILED, RunOptions
from grouplearn.bind.run.sizes import check_size
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.errors import BindError
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config, Value
from grouplearn.learners.contract.hyperparameter_values import resolve
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.pooling import POOLING
from grouplearn.learners.contract.refreshing import refresh_ways
from grouplearn.learners.contract.standard_errors import KINDS
from grouplearn.messages import Span, did_you_mean
from grouplearn.models.calibration import KINDS as CALIBRATIONS
from grouplearn.models.label import LABELS_OF_TASK
from grouplearn.parser.statements import Name, Option, Sql
from grouplearn.schedule import operators
from grouplearn.schedule.operators import OWNERS
from grouplearn.schedule.options import MOST_WORKERS, OneOf, OperatorOption, model_name, whole
from grouplearn.search.space import MAX_CONFIGS

SCOPES = ("group", "all")
#: DuckDB's error (versions 1 and 2) for a struct with the same name twice.
_TWICE = re.compile(r'Duplicate [^"]*"((?:[^"]|"")*)"')
EXECUTORS = ("auto", "local", "ray")
OPERATORS = ("auto", *operators.OPERATORS)


@dataclass(frozen=True, slots=True)
class RunOption:
    """One option: its meaning, its check, whether ``SET grouplearn_<name>`` gives its default, and whether WITH takes it."""

    doc: str
    check: Callable[[Any], Any]
    setting: bool = False
    in_with: bool = True


#: The largest seed, and most versions of a model.
_MOST_SEED, _MOST_VERSIONS = 2**63 - 1, 2**31 - 1


def _price(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not 0 <= value < math.inf:
        raise ValueError(f"must be a price per hour of one worker's machine, at least 0, got {sqltext.shown(value)}")
    return float(value)


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not 0 <= value <= 1:
        raise ValueError(f"must be from 0 to 1, got {sqltext.shown(value)}")
    return float(value)


def _inside(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not 0 < value < 1:
        raise ValueError(f"must be between 0 and 1, got {sqltext.shown(value)}")
    return float(value)


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, got {sqltext.shown(value)}")
    return value


def _as_written(value: Any) -> Any:
    """Return what is bound elsewhere, with the label or over rows."""
    return value


def _of_operators(option: OperatorOption) -> RunOption:
    owners = OWNERS[option.name]
    return RunOption(f"operator{'s' if len(owners) > 1 else ''} {' and '.join(owners)}: {option.doc}", option.check)


_OF_OPERATORS = {name: _of_operators(option) for name, option in operators.OPTIONS.items()}
RUN_OPTIONS: Mapping[str, RunOption] = {
    "epochs": RunOption("most passes over the data", whole(1)),
    "seed": RunOption("seed of splits, shuffles and initial weights", whole(0, _MOST_SEED), setting=True),
    "early_stopping": RunOption("epochs without a better validation metric after which a trial stops", whole(1)),
    "keep_state": RunOption(
        "whether the state that REFRESH continues from is stored with each group's model; by default where it is no larger than"
        " the model, or than 64 KB",
        _yes_or_no,
        setting=True,
    ),
    "initialize_from": RunOption(
        "a model of the same learner and features, with whose states the groups of the same keys begin", model_name
    ),
    "calibrate": RunOption(
        "how probabilities of two classes are calibrated on held-out rows: 'isotonic' or 'sigmoid'; with folds it trains the"
        " best configuration of each group once more per fold",
        OneOf(*CALIBRATIONS),
    ),
    "executor": RunOption("where models train: 'local', 'ray' or 'auto'", OneOf(*EXECUTORS), setting=True),
    "workers": RunOption("number of workers", whole(1, MOST_WORKERS), setting=True),
    "operator": RunOption("how the work is divided among workers, see Operators", OneOf(*OPERATORS), setting=True),
    **_OF_OPERATORS,
    "trials": RunOption(
        "configurations tried, where OVER does not list them all; one that is proposed twice is tried once",
        whole(1, MAX_CONFIGS),
    ),
    "reduction_factor": RunOption("HYPERBAND and ASHA: one trial in this many goes on after each round", whole(2)),
    "min_epochs": RunOption("ASHA: epochs or num_iterations of a trial before it is first judged", whole(1)),
    "parallel_trials": RunOption("ASHA: trials in training at a time", whole(1, MAX_CONFIGS)),
    "interval": RunOption("PBT: epochs after which losers go on from copies of winners", whole(1)),
    "search_scope": RunOption("whether each group decides about its trials, or all together", OneOf(*SCOPES)),
    "min_rows": RunOption(
        "fewest training rows of a group, 2 by default; smaller groups fail. Under FOLDS all its rows count:"
        " they train the model that is kept",
        whole(1),
    ),
    "task": RunOption(
        "classification or regression, where the learner does both; by default booleans, texts and integers that "
        "are only 0 and 1 are classes, and other numbers are not",
        OneOf(*LABELS_OF_TASK),
    ),
    "class_weight": RunOption(
        "weights by class, or 'balanced': Σw / (classes · Σw of the class), w the weights of rows", _as_written
    ),
    "positive_class": RunOption(
        "the class that probability, f1, precision and recall describe, where there are two; by default the one "
        "that DuckDB orders last: true, 1, the text that sorts later, the ENUM value that is declared later",
        _as_written,
    ),
    "frequency": RunOption(
        "the step of a series: an interval, 'business day', or a whole number; by default the widest step on whose grid all"
        " times lie",
        _as_written,
    ),
    "watermark": RunOption(
        "the time of a row, an expression over the columns of FROM, by which REFRESH SINCE finds new rows; by default that of"
        " ORDER BY",
        _as_written,
    ),
    "weight": RunOption("row weight, an expression over the columns of FROM", _as_written),
    "offset": RunOption(
        "linear_regression, logistic_regression, poisson_regression and gbdt: a known part of the score, an expression over the"
        " columns of FROM such as `ln(exposure)`",
        _as_written,
    ),
    "standard_errors": RunOption(
        "linear_regression, logistic_regression and poisson_regression without penalties: the standard errors in `m_weights`,"
        " 'classical' (the default), 'hc1' (robust to unequal variances), 'cluster' (robust to rows of a cluster that depend on"
        " each other) or 'none'",
        OneOf(*KINDS),
    ),
    "cluster": RunOption(
        "standard_errors = 'cluster': which rows depend on each other, an expression over the columns of FROM such as `store`",
        _as_written,
    ),
    "confidence": RunOption("the confidence of the intervals in `m_weights`, 0.95 by default", _inside),
    "memory_limit": RunOption(
        "memory that all workers together may take, such as '8GB'; results of 256 MiB are taken in any case",
        check_size,
        setting=True,
    ),
    "durable": RunOption(
        "whether the run is kept on disk until it is finished, to be resumed", _yes_or_no, setting=True
    ),
    "keep_versions": RunOption(
        "versions of the model that stay in the database, the new one included, for `ALTER MODEL m USE VERSION n`; 3 by default",
        whole(1, _MOST_VERSIONS),
    ),
    "profile": RunOption(
        "whether it is stored what each feature was like in each group, for `m_features`, `m_explain` and `m_drift`; by default"
        f" its quantiles, which `m_drift` needs, only where groups have {LEAST_PROFILED} rows or more on average",
        _yes_or_no,
    ),
    "keep_held_out": RunOption(
        "whether the prediction of each held-out row is stored, by the model that did not learn from it, for `m_held_out`;"
        " with folds it trains the best configuration of each group once more per fold",
        _yes_or_no,
    ),
    "key": RunOption(
        "keep_held_out: what tells rows apart, an expression over the columns of FROM; by default the series and the time of"
        " ORDER BY, else nothing",
        _as_written,
    ),
    "worker_timeout": RunOption(
        "seconds without a sign of life after which a worker of executor 'ray' is given up", check_timeout, setting=True
    ),
    "address": RunOption(
        "Ray cluster of executor 'ray': 'auto' or 'host:port'", check_address, setting=True, in_with=False
    ),
    "node_price": RunOption("price per hour of one worker's machine, for EXPLAIN", _price, setting=True, in_with=False),
    "trust": RunOption(
        "whether expressions of models that were trained elsewhere may call any function, and macros hide DuckDB's own",
        _yes_or_no,
        setting=True,
        in_with=False,
    ),
}

#: Options of REFRESH alone.
_OF_REFRESH: Mapping[str, RunOption] = {
    "refresh": RunOption(
        "REFRESH of boosted trees: 'add' further rounds, or renew the values of 'leaves'",
        OneOf("add", "leaves"),
    ),
    "num_iterations": RunOption(
        "REFRESH of boosted trees: rounds that are added, by default a tenth of the model's", whole(1)
    ),
    "refit_decay_rate": RunOption(
        "REFRESH of the leaves of trees: the share that their values of before keep, by default 0.9",
        _share,
    ),
    "refit_features": RunOption(
        "REFRESH: whether encoders are fitted again on the rows of groups that are trained anew",
        _yes_or_no,
    ),
}

#: Options of WITH besides hyperparameters.
WITH_OPTIONS = tuple(name for name, option in RUN_OPTIONS.items() if option.in_with)
#: Options that RESUME may change: no model depends on them.
RESUME_OPTIONS = ("workers", "executor")
#: Options that RETRY FAILED may change: where trials train, on how few rows, and for how long.
RETRY_OPTIONS = ("workers", "executor", "operator", "memory_limit", "min_rows", "epochs")
#: Options of REFRESH.
REFRESH_OPTIONS = ("workers", "executor", "operator", "memory_limit", "durable", "epochs", "keep_state", *_OF_REFRESH)
#: Session settings, without their prefix ``grouplearn_``.
SETTINGS = tuple(name for name, option in RUN_OPTIONS.items() if option.setting)


def check_setting(checker: SqlChecker, name: Name, value: Sql) -> tuple[str, Any]:
    """Return the setting's name without prefix and its checked value; raises where a cluster is given but not allowed."""
    known = known_setting(checker, name)
    if known == "address":
        checker.outside.refuse_all("a Ray cluster", checker.text, value.span)
    return known, _checked(checker, known, value)


def known_setting(checker: SqlChecker, name: Name) -> str:
    """Return the setting's name without prefix; raises BindError if it is unknown, or settings are locked."""
    checker.outside.refuse_locked(checker.text, name.span, name.value)
    known = name.value.casefold().removeprefix("grouplearn_")
    if known not in SETTINGS:
        allowed = [f"grouplearn_{setting}" for setting in SETTINGS]
        raise checker.error(
            f'unknown setting "{name.value}"\nSettings: {", ".join(allowed)}',
            name.span,
            did_you_mean(name.value, allowed),
        )
    return known


def bind_options(
    checker: SqlChecker, learner: Learner, options: tuple[Option, ...], settings: Mapping[str, Any]
) -> tuple[RunOptions, dict[str, Value]]:
    """Return the run options and the hyperparameters that WITH fixes for every configuration."""
    run: dict[str, Any] = dict(settings)
    fixed: dict[str, Value] = {}
    seen: set[str] = set()
    for option in options:
        name = option.name.value.casefold()
        if name in seen:
            raise checker.error(f'option "{name}" is given twice', option.name.span)
        seen.add(name)
        if name in ("weight", "offset", "cluster", "frequency", "watermark", "key"):
            run[name] = option.value
        elif name == "positive_class":
            run[name] = bind_positive_class(checker, option.value)
        elif name == "class_weight":
            run[name] = _class_weight(checker, option.value)
        elif name in WITH_OPTIONS:
            run[name] = _checked(checker, name, option.value)
        elif not ways.chooses(learner, name):
            fixed[name] = bind_hyperparameter(checker, learner, option.name, option.value, also=WITH_OPTIONS)
    _refuse_epochs(checker, learner, options, run)
    run["operator"] = compatibility.chosen(options, run)
    compatibility.refuse_contradictions(checker, learner, options, run)
    compatibility.refuse_options(checker, learner, options, run)
    run |= _enclosed(checker, options, run)
    _refuse_illegal(checker, learner, options, run)
    return RunOptions.of(run), fixed


def bind_resume_options(
    checker: SqlChecker, options: tuple[Option, ...], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return where a run goes on, by name: what RESUME takes in WITH, and the settings of the same names."""
    given = {name: settings[name] for name in RESUME_OPTIONS if name in settings} | _bind_only(
        checker, options, RESUME_OPTIONS, "RESUME"
    )
    enclosed = _enclosed(checker, options, given)
    return given | ({"executor": "local"} if enclosed else {})


def bind_retry_options(checker: SqlChecker, learner: Learner, options: tuple[Option, ...]) -> dict[str, Any]:
    """Return RETRY FAILED's options by name; raises for what the learner does not have or no worker can do."""
    return _bind_again(checker, learner, options, RETRY_OPTIONS, "RETRY FAILED")


def bind_refresh_options(checker: SqlChecker, learner: Learner, options: tuple[Option, ...]) -> dict[str, Any]:
    """Return REFRESH's options by name; raises for what the learner does not have or no worker can do."""
    given = _bind_again(checker, learner, options, REFRESH_OPTIONS, "REFRESH")
    ways = refresh_ways(learner)
    of_trees = ("refresh", "num_iterations", "refit_decay_rate")
    if not ways and (wrong := next((each for each in of_trees if each in given), None)):
        span = next(option.name.span for option in options if option.name.value.casefold() == wrong)
        raise checker.error(f"{wrong} is for gbdt, and the model is of {learner.declaration.name}", span)
    return given


def _bind_again(
    checker: SqlChecker, learner: Learner, options: tuple[Option, ...], allowed: tuple[str, ...], statement: str
) -> dict[str, Any]:
    given = _bind_only(checker, options, allowed, statement)
    given |= _enclosed(checker, options, given) if "executor" in given else {}
    _refuse_epochs(checker, learner, options, given)
    _refuse_illegal(checker, learner, options, given)
    return given


def executor_again(before: str, given: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the executor for RETRY and RESUME of a model whose file says ``before``: this process, unless the user chooses
    otherwise.

    Whoever made the file must not decide that processes start here. The user does, in WITH (``given``), by a setting, or by
    trust.
    """
    asked = given.get("executor", settings.get("executor", "auto"))
    if asked == "auto":
        return before if settings.get("trust") else "local"
    return str(asked)


def _bind_only(
    checker: SqlChecker, options: tuple[Option, ...], allowed: tuple[str, ...], statement: str
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option in options:
        name = option.name.value.casefold()
        if name not in allowed:
            message = f'"{option.name.value}" is no option of {statement}\nOptions: {", ".join(allowed)}'
            raise checker.error(message, option.name.span, did_you_mean(name, allowed))
        found[name] = _checked(checker, name, option.value)
    return found


def _enclosed(checker: SqlChecker, options: tuple[Option, ...], run: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that keep a statement in this process where DuckDB's settings forbid external access.

    Ray's workers read files and use sockets. Raises AccessRefused if they are asked for.
    """
    executor = run.get("executor", "auto")
    if executor == "local" or checker.outside.closed is None:
        return {}
    if executor == "ray":
        spans = {option.name.value.casefold(): option.value.span for option in options}
        checker.outside.refuse_all("executor = 'ray'", checker.text, spans.get("executor"))
    return {"executor": "local", "enclosed": checker.outside.closed}


def _refuse_epochs(checker: SqlChecker, learner: Learner, options: tuple[Option, ...], run: Mapping[str, Any]) -> None:
    if "epochs" not in run or learner.declaration.default_epochs is not None:
        return
    span = next(option.name.span for option in options if option.name.value.casefold() == "epochs")
    hint = (
        "Its number of boosting rounds is num_iterations."
        if has_rounds(learner)
        else "It is solved in one pass over the data."
    )
    raise checker.error(f"{learner.declaration.name} has no epochs", span, hint)


def _refuse_illegal(checker: SqlChecker, learner: Learner, options: tuple[Option, ...], run: Mapping[str, Any]) -> None:
    """Raise for an operator that does not run this learner on the chosen executor."""
    message = compatibility.refusal_reason(run.get("operator", "auto"), learner, run.get("executor", "auto"))
    if message is None:
        return
    spans = {option.name.value.casefold(): option.value.span for option in options}
    option = compatibility.operator_option(options)
    if "operator" in spans or option is None:
        hint = None if "operator" in spans else "The operator comes from SET grouplearn_operator."
        raise checker.error(message, spans.get("operator") or spans.get("executor"), hint)
    raise checker.error(message, option.name.span, operators.OPTIONS[option.name.value.casefold()].hint)


def has_rounds(learner: Learner) -> bool:
    """Whether the learner boosts: rounds take the place of epochs."""
    return any(parameter.name == "num_iterations" for parameter in learner.declaration.hyperparameters)


def _class_weight(checker: SqlChecker, fragment: Sql) -> Literal["balanced"] | ClassWeights:
    try:
        return bind_class_weight(checker, fragment)
    except BindError as error:
        twice = _TWICE.match(error.message)
        if twice is None:
            raise
        message = f'class_weight names "{twice[1]}" twice: names in a struct are not case-sensitive'
        raise checker.error(message, fragment.span, "Write a map, such as map {'e': 5, 'E': 1}.") from None


def _checked(checker: SqlChecker, name: str, fragment: Sql) -> Any:
    value = checker.constant(fragment)
    try:
        return (RUN_OPTIONS.get(name) or _OF_REFRESH[name]).check(value)
    except ValueError as error:
        raise checker.error(f"{name} {error}", fragment.span, getattr(error, "hint", None)) from None


def bind_hyperparameter(
    checker: SqlChecker, learner: Learner, name: Name, value: Sql, also: tuple[str, ...] = ()
) -> Value:
    """Return the checked value of a hyperparameter given as a constant expression."""
    check_parameter(checker, learner, name, also)
    constant = checker.constant(value)
    return resolved(checker, learner, name, constant, value)


#: What other tools call an option, and a statement has a clause for.
_OF_CLAUSES = {
    **dict.fromkeys(("validate", "validation", "test_size", "holdout"), "VALIDATE SAMPLE 20%"),
    **dict.fromkeys(("folds", "cv", "n_splits"), "VALIDATE FOLDS 5"),
    **dict.fromkeys(("metric", "scoring", "optimize"), "OPTIMIZE rmse"),
    **dict.fromkeys(("features", "exclude"), "FEATURES AUTO EXCEPT (a)"),
}


def check_parameter(checker: SqlChecker, learner: Learner, name: Name, also: tuple[str, ...] = ()) -> None:
    """Raise unless ``name`` is a hyperparameter of the learner."""
    parameters = [parameter.name for parameter in learner.declaration.hyperparameters]
    if name.value.casefold() in parameters:
        return
    reason = learner.declaration.refused.get(name.value.casefold())
    if reason:
        raise checker.error(f"{learner.declaration.name} takes no {name.value}: {reason}", name.span)
    if name.value.casefold() == POOLING.name:
        raise checker.error(*_no_pooling(learner, name))
    what = "option" if also else "hyperparameter"
    message = f'unknown {what} "{name.value}"\nHyperparameters of {learner.declaration.name}: {", ".join(parameters)}'
    if also:
        message += f"\nOptions of TRAIN: {', '.join(also)}"
    hint = ways.of_another(learner, name.value.casefold()) or did_you_mean(name.value, [*parameters, *also])
    if name.value.casefold() == "threshold" and learner.declaration.classifies:
        hint = "Predictions take it: FROM m_predict(t, threshold := 0.3)."
    if clause := _OF_CLAUSES.get(name.value.casefold()):
        hint = f"It is a clause of its own: {clause}."
    raise checker.error(message, name.span, hint)


def _no_pooling(learner: Learner, name: Name) -> tuple[str, Span, str | None]:
    """Return the error of a learner, or of a way of one, whose groups do not shrink."""
    own = learner.declaration
    having = [
        each
        for each in registry.names()
        if any(own.name == POOLING.name for own in registry.learner(each).declaration.hyperparameters)
    ]
    solver = f" by solver '{own.solver}'" if own.name in having and not own.takes_series else ""
    message = f"{own.name}{solver} has no pooling\nLearners that have: {', '.join(having)}"
    return message, name.span, "Leave out solver." if solver else None


def resolved(checker: SqlChecker, learner: Learner, name: Name, value: Any, fragment: Sql) -> Value:
    """Return ``value`` converted to the hyperparameter's type and checked against its range."""
    parameter = next(entry for entry in learner.declaration.hyperparameters if entry.name == name.value.casefold())
    try:
        return resolve(parameter, value)
    except ValueError as error:
        raise checker.error(str(error), fragment.span, getattr(error, "hint", None)) from None


def defaults(learner: Learner) -> Config:
    """Return the learner's hyperparameters at their defaults."""
    return {parameter.name: parameter.default for parameter in learner.declaration.hyperparameters}
