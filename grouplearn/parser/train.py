"""``TRAIN MODEL`` and ``CREATE MODEL``, clause by clause, in any order."""

from collections.abc import Callable
from typing import Any

from grouplearn.messages import Span
from grouplearn.parser.clauses.features import parse_features, take_alias
from grouplearn.parser.clauses.group_by import parse_group_by
from grouplearn.parser.clauses.over import parse_search
from grouplearn.parser.lexer.cursor import Cursor
from grouplearn.parser.lexer.keywords import quoting
from grouplearn.parser.lexer.scan import fragment, fragment_end, nearest_on_clause, reject_unknown_clause
from grouplearn.parser.lexer.tokens import Kind
from grouplearn.parser.statements import (
    GroupBy,
    Keep,
    Name,
    Option,
    Search,
    Sql,
    Target,
    TrainModel,
    ValidateFolds,
    ValidateNone,
    ValidateRolling,
    ValidateSample,
    ValidateWhere,
    Validation,
    Within,
)


def parse_train(cursor: Cursor) -> TrainModel:
    """Read ``TRAIN|CREATE [OR REPLACE] MODEL [IF NOT EXISTS] name`` and its clauses, to the end of the statement."""
    verb = cursor.advance()
    replace = cursor.accept("OR")
    if replace:
        cursor.expect("REPLACE")
    cursor.expect("MODEL")
    condition = cursor.peek()
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if replace and if_not_exists:
        span = Span(condition.start, cursor.tokens[cursor.index - 1].end)
        cursor.fail("OR REPLACE and IF NOT EXISTS contradict each other", span, "Keep one of the two.")
    name = cursor.model_name()
    found = _parse_clauses(cursor)
    statement = f"{verb.word} MODEL {name.name}"
    if "learner" not in found:
        hint = "Add USING learner, for example USING logistic_regression; SHOW LEARNERS lists them."
        cursor.fail(f"{statement} has no USING clause", name.span, hint)
    if "source" not in found:
        cursor.fail(f"{statement} has no FROM clause", name.span, "Add FROM table, or FROM (SELECT ...).")
    learner, *others = found.pop("learner")
    return TrainModel(
        name=name,
        learner=learner,
        other_learners=tuple(others),
        replace=replace,
        if_not_exists=if_not_exists,
        **found,
    )


def _parse_clauses(cursor: Cursor) -> dict[str, Any]:
    """Return the clauses by their field of TrainModel."""
    found: dict[str, Any] = {}
    written: dict[str, str] = {}
    while cursor.peek().kind is not Kind.END:
        keyword = _keyword(cursor)
        if keyword not in _PARSERS:
            reject_unknown_clause(cursor)
        field, parse = _PARSERS[keyword]
        if field in found:
            _reject_repeated(cursor, keyword, written[field])
        written[field] = keyword
        cursor.advance()
        found[field] = parse(cursor)
    return found


def _keyword(cursor: Cursor) -> str:
    token = cursor.peek()
    if token.word in ("GROUP", "PARTITION", "ORDER", "SERIES"):
        return f"{token.word} BY"
    if token.word != "ON":
        return token.word
    return nearest_on_clause(cursor, cursor.index)[0]


def _reject_repeated(cursor: Cursor, keyword: str, first: str) -> None:
    width = len(keyword.split())
    span = cursor.span(cursor.index, min(cursor.index + width, len(cursor.tokens) - 1))
    if keyword == first:
        cursor.fail(f"the clause {keyword} is given twice", span, f"Keep one {keyword}.")
    cursor.fail(f"the clause {first} is already given", span, f"{keyword} is another way to write {first}.")


def _parse_using(cursor: Cursor) -> list[Name]:
    learners: list[Name] = []
    while not learners or cursor.accept_symbol(","):
        learner = cursor.own_name("a learner")
        if cursor.peek().is_symbol("("):
            hint = "Hyperparameters stand in WITH (name = value) or in OVER GRID (name IN (...))."
            cursor.fail("a learner takes no arguments", cursor.peek(), hint)
        if any(learner.value == earlier.value for earlier in learners):
            cursor.fail(f"the learner {learner.value} is named twice", learner.span)
        learners.append(learner)
    return learners


def _parse_target(cursor: Cursor) -> Target:
    low = cursor.index
    whole = fragment(cursor, cursor.tokens[low - 1].word)
    high = cursor.index
    items = cursor.items(low, high)
    if len(items) > 1:
        hint = "A model has one label; train one model for each."
        cursor.fail("PREDICT takes one expression", cursor.span(items[1][0], high), hint)
    end, alias = take_alias(cursor, low, high)
    return Target(whole if alias is None else cursor.sql(low, end), alias)


def _parse_from(cursor: Cursor) -> Sql:
    return fragment(cursor, "FROM")


def _parse_as(cursor: Cursor) -> Sql:
    """``AS SELECT ...`` reaches to the end of the statement; ``AS (SELECT ...)`` to its bracket."""
    low = cursor.index
    if cursor.peek().is_symbol("("):
        _, high = cursor.open_bracket("AS")
        return cursor.sql(low, high + 1)
    if cursor.peek().word not in ("SELECT", "FROM", "WITH"):
        cursor.unexpected("SELECT, FROM or WITH after AS", "AS SELECT ... gives the rows, as FROM (SELECT ...) does.")
    cursor.index = len(cursor.tokens) - 1
    return cursor.sql(low, cursor.index, "(", ")")


def _parse_where(cursor: Cursor) -> Sql:
    return fragment(cursor, "WHERE")


def _parse_having(cursor: Cursor) -> Sql:
    return fragment(cursor, "HAVING")


def _parse_group_by(cursor: Cursor) -> GroupBy:
    cursor.expect("BY")
    if cursor.at("ALL"):
        hint = "Name the columns whose values tell the groups apart: GROUP BY carrier, dest."
        cursor.fail("GROUP BY ALL has no meaning here", cursor.peek(), hint)
    high = fragment_end(cursor, "GROUP BY")
    if high == cursor.index:
        cursor.unexpected("an expression after GROUP BY", quoting(cursor.peek().text))
    return parse_group_by(cursor, high)


def _parse_over(cursor: Cursor) -> Search:
    return parse_search(cursor)


def _parse_order_by(cursor: Cursor) -> Sql:
    """Read the time of a row, in whose ascending order the rows of a group are a series."""
    cursor.expect("BY")
    low = cursor.index
    high = fragment_end(cursor, "ORDER BY")
    if high == low:
        cursor.unexpected("an expression after ORDER BY")
    items = cursor.items(low, high)
    if len(items) > 1:
        hint = "ORDER BY takes the time alone; other columns tell series apart in GROUP BY."
        cursor.fail("a series has one time", cursor.span(items[1][0], high), hint)
    last = cursor.tokens[high - 1]
    if last.word == "DESC":
        cursor.fail("a series is in ascending order of its time", last, "Leave DESC out.")
    cursor.index = high
    return cursor.sql(low, high - (last.word == "ASC"))


def _parse_series_by(cursor: Cursor) -> GroupBy:
    """Read what tells the series of a group apart."""
    cursor.expect("BY")
    low, high = cursor.index, fragment_end(cursor, "SERIES BY")
    if high == low:
        cursor.unexpected("an expression after SERIES BY")
    keys = parse_group_by(cursor, high)
    if len(keys.sets) > 1:
        cursor.fail("SERIES BY takes columns, without ROLLUP, CUBE and GROUPING SETS", cursor.span(low, high))
    return keys


_VALIDATIONS = ("WHERE", "SAMPLE", "FOLDS", "ROLLING", "NONE")


def _parse_validate(cursor: Cursor) -> Validation:
    if cursor.accept("NONE"):
        return ValidateNone()
    if cursor.accept("WHERE"):
        return ValidateWhere(fragment(cursor, "VALIDATE WHERE"))
    if cursor.accept("FOLDS"):
        return ValidateFolds(parse_amount(cursor, "the number of folds"))
    if cursor.accept("ROLLING"):
        return _parse_rolling(cursor)
    if not cursor.accept("SAMPLE"):
        cursor.unexpected("WHERE, SAMPLE, FOLDS, ROLLING or NONE after VALIDATE", _validation_meant(cursor))
    percent = parse_amount(cursor, "a percentage")
    if not (cursor.accept_symbol("%") or cursor.accept("PERCENT")):
        cursor.unexpected('"%"', "The sample is a share of each group: VALIDATE SAMPLE 10%.")
    return ValidateSample(percent)


_ROLLING_EXAMPLE = "For example VALIDATE ROLLING 3 HORIZON 12."


def _parse_rolling(cursor: Cursor) -> ValidateRolling:
    """Read ``n [BY ts] HORIZON h [STEP s] [GAP g]``."""
    windows = parse_amount(cursor, "the number of windows")
    by = _parse_until_horizon(cursor) if cursor.accept("BY") else None
    if not cursor.accept("HORIZON"):
        cursor.unexpected("HORIZON", _ROLLING_EXAMPLE)
    horizon = parse_amount(cursor, "the number of steps that are judged")
    given: dict[str, Sql] = {}
    meant = {"STEP": "the number of steps between windows", "GAP": "the number of steps left out"}
    while word := next((each for each in meant if each not in given and cursor.accept(each)), None):
        given[word] = parse_amount(cursor, meant[word])
    return ValidateRolling(windows, horizon, by, given.get("STEP"), given.get("GAP"))


def _parse_until_horizon(cursor: Cursor) -> Sql:
    """Read the time of a row, up to the word HORIZON."""
    low, end = cursor.index, len(cursor.tokens) - 1
    high = next((place for place in cursor.outermost(low, end) if cursor.tokens[place].word == "HORIZON"), None)
    if high is None or high == low:
        cursor.unexpected("the time of a row and HORIZON after BY", _ROLLING_EXAMPLE)
    cursor.index = high
    return cursor.sql(low, high)


def _validation_meant(cursor: Cursor) -> str | None:
    """Return what may be meant by VALIDATE before something else, such as a number or a condition."""
    token = cursor.peek()
    if token.kind is not Kind.NUMBER:
        condition = "VALIDATE WHERE month = 12 holds out the rows that meet a condition."
        return cursor.suggest(token, _VALIDATIONS) if token.word != "ON" else condition
    resume, cursor.index = cursor.index, cursor.index + 1
    is_folds, percent = cursor.accept("FOLDS"), token.text if cursor.accept_symbol("%") else "20"
    cursor.index = resume
    if is_folds:
        return f"Write VALIDATE FOLDS {token.text}."
    return f"VALIDATE SAMPLE {percent}% holds out that share of each group."


def parse_amount(cursor: Cursor, what: str) -> Sql:
    """Read a number, a parameter or a bracketed expression."""
    low = cursor.index
    if cursor.peek().is_symbol("("):
        _, high = cursor.open_bracket(what)
        return cursor.sql(low, high + 1)
    if cursor.peek().kind not in (Kind.NUMBER, Kind.PARAMETER):
        cursor.unexpected(what, "Give a number, a parameter or an expression in brackets.")
    cursor.advance()
    return cursor.sql(low, low + 1)


def _parse_refit(cursor: Cursor) -> Name:
    return Name("REFIT", cursor.tokens[cursor.index - 1].span)


def _parse_optimize(cursor: Cursor) -> Name:
    name = cursor.own_name("a metric")
    if not cursor.peek().is_symbol("("):
        return name
    low, high = cursor.open_bracket("a metric")
    if high != low + 1 or cursor.tokens[low].kind is not Kind.NUMBER:
        cursor.fail(f"{name.value} takes a number", Span(name.span.start, cursor.tokens[high].end))
    return Name(f"{name.value}({cursor.tokens[low].text})", Span(name.span.start, cursor.tokens[high].end))


def _parse_keep(cursor: Cursor) -> Keep:
    if cursor.accept("ALL"):
        return Keep()
    if not cursor.accept("BEST"):
        cursor.unexpected("ALL or BEST after KEEP", cursor.suggest(cursor.peek(), ("ALL", "BEST")))
    return Keep(parse_amount(cursor, "how many trials to keep"))


_MISSING = ("PARENT", "NULL", "ERROR")


def _parse_missing_group(cursor: Cursor) -> str:
    cursor.expect("MISSING", "GROUP")
    cursor.accept_symbol("=")
    if cursor.peek().word not in _MISSING:
        hint = cursor.suggest(cursor.peek(), _MISSING)
        cursor.unexpected("PARENT, NULL or ERROR after ON MISSING GROUP", hint)
    return cursor.advance().word.lower()


_NULL_LABEL = ("SKIP", "ERROR")


def _parse_null_label(cursor: Cursor) -> str:
    cursor.expect("NULL", "LABEL")
    if cursor.peek().word not in _NULL_LABEL:
        cursor.unexpected("SKIP or ERROR after ON NULL LABEL", cursor.suggest(cursor.peek(), _NULL_LABEL))
    return cursor.advance().word.lower()


_GROUP_FAILURE = ("KEEP", "ERROR")


def _parse_group_failure(cursor: Cursor) -> str:
    cursor.expect("GROUP", "FAILURE")
    if cursor.peek().word not in _GROUP_FAILURE:
        cursor.unexpected("KEEP or ERROR after ON GROUP FAILURE", cursor.suggest(cursor.peek(), _GROUP_FAILURE))
    return cursor.advance().word.lower()


def _parse_options(cursor: Cursor) -> tuple[Option, ...]:
    keyword = cursor.tokens[cursor.index - 1].word
    example = f"For example {keyword} (epochs = 10, seed = 7)."
    return parse_options(cursor, keyword, example, name=Cursor.hyperparameter)


def parse_options(
    cursor: Cursor,
    keyword: str,
    hint: str,
    empty: str = "Leave it out, or give an option.",
    name: Callable[[Cursor, str], Name] = Cursor.own_name,
) -> tuple[Option, ...]:
    """Read ``(name = value, ...)`` after ``keyword``; ``name`` reads a name."""
    low, high = cursor.open_bracket(keyword, hint)
    if low == high:
        cursor.fail(f"{keyword} is empty", cursor.span(low - 1, high + 1), empty)
    options: list[Option] = []
    for item in cursor.items(low, high):
        option = _parse_option(cursor, *item, name)
        if any(option.name.qualified == earlier.name.qualified for earlier in options):
            cursor.fail(f'the option "{option.name.value}" is given twice', option.name.span)
        options.append(option)
    return tuple(options)


def _parse_option(cursor: Cursor, low: int, high: int, read: Callable[[Cursor, str], Name]) -> Option:
    resume, cursor.index = cursor.index, low
    name = read(cursor, "an option")
    if not (cursor.index < high and cursor.accept_symbol("=", ":=", "=>")):
        cursor.unexpected(f'"=" after the option {name.value}', f"For example {name.value} = 1.")
    if cursor.index == high:
        cursor.unexpected(f"a value for the option {name.value}")
    value = cursor.sql(cursor.index, high)
    cursor.index = resume
    return Option(name, value)


_UNITS = ("SECOND", "SECONDS", "MINUTE", "MINUTES", "HOUR", "HOURS")


def _parse_within(cursor: Cursor) -> Within:
    amount = parse_amount(cursor, "a length of time")
    unit = cursor.peek()
    if unit.word not in _UNITS:
        cursor.unexpected("SECONDS, MINUTES or HOURS after the length of time", cursor.suggest(unit, _UNITS))
    return Within(amount, Name(cursor.advance().word.removesuffix("S"), unit.span))


_PARSERS: dict[str, tuple[str, Callable[[Cursor], Any]]] = {
    "USING": ("learner", _parse_using),
    "PREDICT": ("target", _parse_target),
    "TARGET": ("target", _parse_target),
    "LABEL": ("target", _parse_target),
    "ORDER BY": ("order_by", _parse_order_by),
    "SERIES BY": ("series_by", _parse_series_by),
    "FEATURES": ("features", parse_features),
    "FROM": ("source", _parse_from),
    "AS": ("source", _parse_as),
    "WHERE": ("where", _parse_where),
    "GROUP BY": ("group_by", _parse_group_by),
    "PARTITION BY": ("group_by", _parse_group_by),
    "HAVING": ("having", _parse_having),
    "OVER": ("search", _parse_over),
    "VALIDATE": ("validation", _parse_validate),
    "REFIT": ("refit", _parse_refit),
    "OPTIMIZE": ("metric", _parse_optimize),
    "KEEP": ("keep", _parse_keep),
    "ON MISSING GROUP": ("missing_group", _parse_missing_group),
    "ON NULL LABEL": ("null_label", _parse_null_label),
    "ON GROUP FAILURE": ("group_failure", _parse_group_failure),
    "WITH": ("options", _parse_options),
    "OPTIONS": ("options", _parse_options),
    "WITHIN": ("within", _parse_within),
}
