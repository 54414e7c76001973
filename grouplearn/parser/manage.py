"""The statements about models and settings: EXPLAIN, CALIBRATE, SHOW, DESCRIBE, DROP, ALTER, EVALUATE, SET."""

from collections.abc import Callable

from grouplearn.messages import did_you_mean
from grouplearn.parser.lexer.cursor import Cursor
from grouplearn.parser.lexer.scan import fragment
from grouplearn.parser.lexer.tokens import Kind, unquote
from grouplearn.parser.runs import parse_refresh
from grouplearn.parser.statements import (
    AddTrial,
    Calibrate,
    DescribeLearner,
    DescribeModel,
    DropModel,
    DropVersion,
    EvaluateModel,
    ExplainRefresh,
    ExplainTrain,
    PlanFormat,
    QualifiedName,
    RenameModel,
    ResetCalibration,
    SetOption,
    ShowFunctions,
    ShowLearners,
    ShowModels,
    ShowRuns,
    Sql,
    StopTrial,
    TrainModel,
    UseVersion,
)
from grouplearn.parser.train import parse_amount, parse_options, parse_train

SETTING_PREFIX = "grouplearn_"
FORMATS: tuple[PlanFormat, ...] = ("text", "json", "html")
_OPTIONS = "The options are ANALYZE and FORMAT text, json or html."


def parse_explain(cursor: Cursor, train: Callable[[Cursor], TrainModel] = parse_train) -> ExplainTrain | ExplainRefresh:
    """``EXPLAIN [ANALYZE] [(FORMAT text|json|html)] TRAIN ...``, ``EXPLAIN (ANALYZE, FORMAT html) TRAIN ...``, and
    ``EXPLAIN REFRESH ...``."""
    cursor.advance()
    options = cursor.index
    analyze = cursor.accept("ANALYZE") or cursor.accept("ANALYSE")
    chosen: PlanFormat | None = None
    if cursor.peek().is_symbol("("):
        low, high = cursor.open_bracket("EXPLAIN")
        for start, stop in cursor.items(low, high):
            if cursor.tokens[start].word in ("ANALYZE", "ANALYSE"):
                analyze = _parse_analyze(cursor, start, stop, analyze)
            else:
                chosen = _parse_format(cursor, start, stop, chosen)
    if cursor.at("REFRESH"):
        if cursor.index > options:
            span = cursor.span(options, cursor.index)
            cursor.fail("EXPLAIN REFRESH takes no options", span, "It is a text, of what would be done.")
        return ExplainRefresh(parse_refresh(cursor))
    return ExplainTrain(train(cursor), chosen, analyze)


def _parse_analyze(cursor: Cursor, low: int, high: int, given: bool) -> bool:
    if given:
        cursor.fail("ANALYZE is given twice", cursor.tokens[low])
    if high - low > 1:
        cursor.fail("ANALYZE takes no value", cursor.span(low + 1, high))
    return True


def _parse_format(cursor: Cursor, low: int, high: int, given: PlanFormat | None) -> PlanFormat:
    name = cursor.tokens[low]
    if name.word != "FORMAT":
        cursor.fail(f'"{name.text}" is not an option of EXPLAIN', name, _OPTIONS)
    if given is not None:
        cursor.fail("FORMAT is given twice", name)
    if high - low != 2:
        place = cursor.span(low + 2, high) if high - low > 2 else name.span
        cursor.fail("FORMAT takes one word", place, f"The formats are {', '.join(FORMATS)}.")
    value = cursor.tokens[low + 1]
    word = (value.text.strip("'") if value.kind is Kind.STRING else unquote(value)).lower()
    chosen = next((known for known in FORMATS if known == word), None)
    if chosen is None:
        hint = did_you_mean(word, FORMATS) or f"The formats are {', '.join(FORMATS)}."
        cursor.fail(f'"{word}" is not a format of EXPLAIN', value, hint)
    return chosen


def parse_calibrate(cursor: Cursor) -> Calibrate:
    """``CALIBRATE [LEARNER name]``."""
    cursor.advance()
    if cursor.accept("LEARNER"):
        learner = cursor.own_name("a learner")
        cursor.expect_end()
        return Calibrate(learner)
    found = cursor.peek()
    if found.kind is not Kind.END:
        misspelt = cursor.suggest(found, ("LEARNER",))
        named = f"CALIBRATE LEARNER {found.text} measures one learner." if found.is_identifier else None
        cursor.unexpected("LEARNER or the end of the statement", misspelt or named)
    return Calibrate(None)


def parse_reset_calibration(cursor: Cursor) -> ResetCalibration:
    """``RESET CALIBRATION``."""
    cursor.expect("RESET", "CALIBRATION")
    cursor.expect_end()
    return ResetCalibration()


def parse_show(cursor: Cursor) -> ShowModels | ShowFunctions | ShowLearners | ShowRuns:
    """``SHOW MODELS``, ``SHOW FUNCTIONS OF model``, ``SHOW LEARNERS`` or ``SHOW RUNS``."""
    cursor.advance()
    subject = cursor.advance()
    if subject.word == "FUNCTIONS":
        cursor.expect("OF", hint="For example SHOW FUNCTIONS OF delays.")
        model = cursor.model_name()
        cursor.expect_end()
        return ShowFunctions(model)
    cursor.expect_end()
    match subject.word:
        case "MODELS":
            return ShowModels()
        case "RUNS":
            return ShowRuns()
    return ShowLearners()


def parse_describe(cursor: Cursor) -> DescribeModel | DescribeLearner:
    """``DESCRIBE MODEL name`` or ``DESCRIBE LEARNER name``."""
    cursor.advance()
    statement: DescribeModel | DescribeLearner
    if cursor.accept("MODEL"):
        statement = DescribeModel(cursor.model_name())
    else:
        cursor.expect("LEARNER")
        statement = DescribeLearner(cursor.own_name("a learner"))
    cursor.expect_end()
    return statement


def parse_drop(cursor: Cursor) -> DropModel:
    """``DROP MODEL [IF EXISTS] name, ...``."""
    cursor.advance()
    cursor.expect("MODEL")
    if_exists = cursor.accept("IF", "EXISTS")
    names = [cursor.model_name()]
    while cursor.accept_symbol(","):
        names.append(cursor.model_name())
    cursor.expect_end()
    return DropModel(tuple(names), if_exists)


def parse_alter(cursor: Cursor) -> RenameModel | StopTrial | AddTrial | UseVersion | DropVersion:
    """``ALTER MODEL name`` and ``RENAME TO new_name``, ``USE | DROP VERSION n``, ``STOP TRIAL n``, ``ADD TRIAL (...)``."""
    cursor.advance()
    cursor.expect("MODEL")
    if cursor.at("IF", "EXISTS"):
        cursor.not_supported("ALTER MODEL IF EXISTS", cursor.span(cursor.index, cursor.index + 2))
    name = cursor.model_name()
    if cursor.accept("USE"):
        return UseVersion(name, _parse_number(cursor, "VERSION"))
    if cursor.accept("DROP"):
        return DropVersion(name, _parse_number(cursor, "VERSION"))
    if cursor.accept("STOP"):
        return StopTrial(name, _parse_number(cursor, "TRIAL"))
    if cursor.accept("ADD"):
        return _parse_added(cursor, name)
    if not cursor.at("RENAME"):
        hint = cursor.suggest(cursor.peek(), ("RENAME", "USE", "DROP", "STOP", "ADD"))
        cursor.unexpected("RENAME TO, USE VERSION, DROP VERSION, STOP TRIAL or ADD TRIAL", hint)
    cursor.expect("RENAME", "TO")
    new_name = cursor.name("a new model name")
    if cursor.peek().is_symbol("."):
        cursor.unexpected("the end of the statement", "A model stays in its schema; give the new name alone.")
    cursor.expect_end()
    return RenameModel(name, new_name)


def _parse_number(cursor: Cursor, of: str) -> Sql:
    """Read ``TRIAL n``, or another word and a number, to the end of the statement."""
    cursor.expect(of)
    number = parse_amount(cursor, f"the number of a {of.lower()}")
    cursor.expect_end()
    return number


def _parse_added(cursor: Cursor, name: QualifiedName) -> AddTrial:
    cursor.expect("TRIAL")
    low = cursor.index
    example = "For example ADD TRIAL (learning_rate = 0.1)."
    options = parse_options(cursor, "ADD TRIAL", example, example)
    span = cursor.span(low, cursor.index)
    if cursor.accept("FROM"):
        return AddTrial(name, options, _parse_number(cursor, "TRIAL"), span)
    cursor.expect_end("FROM TRIAL or the end of the statement")
    return AddTrial(name, options, span=span)


def parse_evaluate(cursor: Cursor) -> EvaluateModel:
    """``EVALUATE MODEL name [AT EVERY LEVEL] ON table | (query) [WHERE predicate]``."""
    cursor.advance()
    cursor.expect("MODEL")
    name = cursor.model_name()
    low = cursor.index
    every_level = None
    if cursor.accept("AT"):
        cursor.expect("EVERY", hint="For example EVALUATE MODEL m AT EVERY LEVEL ON table.")
        cursor.expect("LEVEL", hint="For example EVALUATE MODEL m AT EVERY LEVEL ON table.")
        every_level = cursor.span(low, cursor.index)
    cursor.expect("ON", hint="For example EVALUATE MODEL m ON table.")
    source = fragment(cursor, "ON", frozenset({"WHERE"}))
    where = fragment(cursor, "WHERE", frozenset()) if cursor.accept("WHERE") else None
    return EvaluateModel(name, source, where, every_level=every_level)


def parse_set(cursor: Cursor) -> SetOption:
    """``SET [SESSION] grouplearn_x = value`` (or ``TO``), ``RESET [SESSION] grouplearn_x``."""
    verb = cursor.advance().word
    if cursor.at("LOCAL") or cursor.at("GLOBAL"):
        hint = "A setting belongs to this connection; leave the word out."
        cursor.not_supported(f"{verb} {cursor.peek().word} for a setting of grouplearn", cursor.peek(), hint)
    cursor.accept("SESSION")
    written = cursor.name("a setting")
    name = type(written)(written.value.lower(), written.span)
    if verb == "RESET":
        cursor.expect_end()
        return SetOption(name, None)
    if not (cursor.accept_symbol("=") or cursor.accept("TO")):
        cursor.unexpected('"=" or TO', f"For example SET {name.value} = value.")
    low, high = cursor.index, len(cursor.tokens) - 1
    if low == high:
        cursor.unexpected("a value")
    items = cursor.items(low, high)
    if len(items) > 1:
        cursor.fail("a setting takes one value", cursor.span(items[1][0], high))
    return SetOption(name, cursor.sql(low, items[0][1]))
