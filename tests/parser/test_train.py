import pytest

from grouplearn.errors import BindError
from grouplearn.parser.clauses.parameter_values import bind_parameters, parameter_names
from grouplearn.parser.parse import parse
from grouplearn.parser.statements import (
    Between,
    EvaluateModel,
    GroupBy,
    InList,
    Name,
    Parameter,
    Search,
    Statement,
    TrainModel,
    ValidateWhere,
)


def one(text: str) -> Statement:
    (statement,) = parse(text)
    return statement


def train(clauses: str) -> TrainModel:
    statement = one(f"TRAIN MODEL m USING l FROM t {clauses}")
    assert isinstance(statement, TrainModel)
    return statement


def group_by(text: str) -> GroupBy:
    grouping = train(f"GROUP BY {text}").group_by
    assert grouping is not None
    return grouping


@pytest.mark.parametrize(
    ("text", "keys", "sets"),
    [
        ("a, b", ["a", "b"], ((0, 1),)),
        ("ROLLUP (a, b)", ["a", "b"], ((0, 1), (0,), ())),
        ("a, ROLLUP (b, c)", ["a", "b", "c"], ((0, 1, 2), (0, 1), (0,))),
        ("CUBE (a, b)", ["a", "b"], ((0, 1), (0,), (1,), ())),
        ("ROLLUP ((a, b), c)", ["a", "b", "c"], ((0, 1, 2), (0, 1), ())),
        ("GROUPING SETS (a, (b, c), ())", ["a", "b", "c"], ((1, 2), (0,), ())),
        (
            "GROUPING SETS (ROLLUP (a, b), CUBE (b), GROUPING SETS ((b), c))",
            ["a", "b", "c"],
            ((0, 1), (0,), (1,), (2,), ()),
        ),
        ("ROLLUP (a), ROLLUP (b)", ["a", "b"], ((0, 1), (0,), (1,), ())),
        ("ROLLUP (a, b), ROLLUP (A)", ["a", "b"], ((0, 1), (0,), ())),
        ("()", [], ((),)),
        ("(a, b), (a + 1)", ["a", "b", "a + 1"], ((0, 1, 2),)),
        ('a, A, "a", a  + 1, a+1', ["a", "a  + 1"], ((0, 1),)),
        ("f(a, b), (SELECT 1)", ["f(a, b)", "(SELECT 1)"], ((0, 1),)),
        ("rollup", ["rollup"], ((0,),)),
    ],
)
def test_grouping_sets(text: str, keys: list[str], sets: tuple[tuple[int, ...], ...]) -> None:
    grouping = group_by(text)
    assert grouping.text.text == text
    assert [key.text for key in grouping.keys] == keys
    assert grouping.sets == sets


def test_key_names() -> None:
    assert group_by("a, year(d) AS y, ROLLUP (b AS c)").aliases == (None, Name("y"), Name("c"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zscore(a, b)", ("zscore", ["a", "b"], {})),
        ("ZSCORE (a, Scope => 'all')", ("zscore", ["a"], {"scope": "'all'"})),
        ("hash(x, 64)", ("hash", ["x"], {"buckets": "64"})),
        ("hash(x, y, buckets := 64)", ("hash", ["x", "y"], {"buckets": "64"})),
        ("impute(x)", ("impute", ["x"], {})),
        ("impute(x, 'median')", ("impute", ["x"], {"method": "'median'"})),
        ("impute(x, -1)", ("impute", ["x"], {"method": "-1"})),
        ("impute(x, y)", ("impute", ["x"], {"method": "y"})),
        ("impute(x, y, method := 0)", ("impute", ["x", "y"], {"method": "0"})),
        ("zscore(impute(x))", ("zscore", ["x"], {"impute": "'mean'"})),
        ("minmax(impute(x, 0), scope := 'all')", ("minmax", ["x"], {"impute": "0", "scope": "'all'"})),
        ("zscore(impute(x, 'median'), impute(y, 'median'))", ("zscore", ["x", "y"], {"impute": "'median'"})),
        ("zscore(impute(x, y, method := 'mean'))", ("zscore", ["x", "y"], {"impute": "'mean'"})),
        ("onehot(coalesce(a, 'b, c)'))", ("onehot", ["coalesce(a, 'b, c)')"], {})),
        ("main.hash(x) % 7", (None, ["main.hash(x) % 7"], {})),
        ("zscore", (None, ["zscore"], {})),
        ("* EXCLUDE (a, b)", (None, ["* EXCLUDE (a, b)"], {})),
        ("zscore.x", (None, ["zscore.x"], {})),
    ],
)
def test_feature(text: str, expected: tuple[str | None, list[str], dict[str, str]]) -> None:
    features = train(f"FEATURES ({text} AS n, b,)").features
    assert features is not None
    feature = features[0]
    encoder = feature.encoder.value if feature.encoder else None
    arguments = [argument.text for argument in feature.arguments]
    assert (encoder, arguments, {option.name.value: option.value.text for option in feature.options}) == expected
    assert feature.alias == Name("n")
    assert features[1].arguments[0].text == "b"


@pytest.mark.parametrize(
    ("source", "rest"),
    [
        ("a JOIN b USING (x)", ""),
        ("a JOIN b ON a.label = b.target AND keep", "WHERE label > 3 AND features IN (1)"),
        ("a USING SAMPLE 10%", "VALIDATE NONE"),
        ("a TABLESAMPLE 10%", "KEEP ALL"),
        ("f(1) WITH ORDINALITY", "WITH (a = 1)"),
        ("options", "OPTIONS (a = 1)"),
        ("keep AS validate", "KEEP ALL"),
        ("predict, label, over AS o", "OPTIMIZE auc"),
        ("t PIVOT (sum(x) FOR y IN (1, 2) GROUP BY z)", "GROUP BY z"),
        ("a ASOF JOIN b ON a.t >= b.t", "PARTITION BY a"),
        ("(FROM u GROUP BY ALL) AS x(a, b) CROSS JOIN y", "HAVING count(*) > 1"),
        ("a SEMI JOIN b USING (k) LEFT JOIN c USING (l)", "FEATURES (a)"),
    ],
)
def test_from_keeps_everything(source: str, rest: str) -> None:
    statement = one(f"TRAIN MODEL m FROM {source} {rest} USING l")
    assert isinstance(statement, TrainModel)
    assert statement.source.text == source
    assert statement.learner == Name("l")


@pytest.mark.parametrize(
    "expression",
    [
        "label",
        "target",
        "features + label * keep",
        "sum(x) OVER (PARTITION BY label ORDER BY target)",
        "a IS DISTINCT FROM b",
        "a IS NOT DISTINCT FROM label",
        "x BETWEEN over AND keep",
        "CASE label WHEN target THEN keep ELSE features END",
        "NOT validate",
        "x::TIMESTAMP WITH TIME ZONE",
        "x AT TIME ZONE label",
        "t.from + t.where",
        "x IS NOT NULL",
        "x LIKE 'a' ESCAPE label",
        "x COLLATE nocase",
        "5!",
        "mode() WITHIN GROUP (ORDER BY x)",
        "count(*) FILTER (WHERE keep)",
        "x NOT IN (SELECT label FROM t WHERE x GROUP BY y)",
        "[x for x in keep if x]",
        "INTERVAL 5 DAYS + INTERVAL (x) DAY",
        "x::DOUBLE PRECISION",
    ],
)
def test_clause_words_inside_expressions(expression: str) -> None:
    statement = train(f"PREDICT {expression} WHERE {expression} VALIDATE WHERE {expression} FEATURES (a) KEEP ALL")
    assert statement.target is not None
    assert statement.where is not None
    assert isinstance(statement.validation, ValidateWhere)
    assert statement.target.expression.text == expression
    assert statement.where.text == statement.validation.predicate.text == expression


def test_create_model_and_its_other_words() -> None:
    create = "CREATE OR REPLACE MODEL m OPTIONS (a = 1) TARGET y USING L PARTITION BY g AS SELECT * FROM t WHERE x;"
    usual = "TRAIN OR REPLACE MODEL m USING l PREDICT y FROM (SELECT * FROM t WHERE x) GROUP BY g WITH (a = 1)"
    assert one(create) == one(usual)
    assert one("TRAIN MODEL m AS (SELECT ?) LABEL y USING l") == one("TRAIN MODEL m USING l PREDICT y FROM (SELECT $1)")


def test_search() -> None:
    search = train("OVER RANDOM (A BETWEEN 1 + 1 AND 2 LOG, (b, c) IN ((1, 2), (f(3, 4), 5)), d IN (FROM x))").search
    assert isinstance(search, Search)
    first, second, third = search.dimensions
    assert isinstance(first, Between)
    assert (first.parameter.value, first.low.text, first.high.text, first.log) == ("a", "1 + 1", "2", True)
    assert isinstance(second, InList)
    assert [[value.text for value in point] for point in second.values] == [["1", "2"], ["f(3, 4)", "5"]]
    assert isinstance(third, InList)
    assert third.subquery is not None
    assert third.subquery.text == "(FROM x)"


def test_spans_point_into_the_whole_text() -> None:
    text = "SELECT '😀'; TRAIN MODEL m USING l FROM t WHERE a = ? OPTIMIZE auc"
    _, statement = parse(text)
    assert isinstance(statement, TrainModel)
    assert statement.where is not None
    assert statement.metric is not None
    assert text[statement.where.span.start : statement.where.span.end] == "a = ?"
    assert text[statement.metric.span.start : statement.metric.span.end] == "auc"


def test_question_marks_are_numbered_over_the_statement() -> None:
    text = "SELECT ?; TRAIN MODEL m USING l WHERE a=?AND b IN(?, '?', \"?\" /* ? */) FROM f(?) GROUP BY g(?)"
    _, statement = parse(text)
    assert isinstance(statement, TrainModel)
    assert statement.where is not None
    assert statement.where.text == "a=$1 AND b IN($2, '?', \"?\" /* ? */)"
    assert statement.where.parameters == (Parameter("1", 2, 4), Parameter("2", 14, 16))
    assert parameter_names(statement) == ("3", "1", "2", "4")
    bound = bind_parameters(statement, [1, "x", "y", None])
    assert bound.where is not None
    assert bound.where.text == "a=1 AND b IN('x', '?', \"?\" /* ? */)"
    assert bound.source.text == "f('y')"


def test_named_parameters() -> None:
    statement = train("WHERE a = $low OR a IN (SELECT $low + $high)")
    assert parameter_names(statement) == ("low", "high")
    assert statement.where is not None
    assert bind_parameters(statement.where, {"low": 1, "high": 2}).text == "a = 1 OR a IN (SELECT 1 + 2)"


@pytest.mark.parametrize("before", ["FROM", "FROM t,", "FROM t JOIN\n--\n", "FROM t JOIN /* FROM */"])
def test_a_text_is_no_table_wherever_one_may_stand(before: str) -> None:
    """DuckDB takes no parameter for a table; a literal would name one, or a file."""
    statement = one(f"EVALUATE MODEL m ON (SELECT * {before} $t)")
    assert isinstance(statement, EvaluateModel)
    assert bind_parameters(statement, {"t": "/etc/passwd"}).source.text.endswith("('/etc/passwd'))")
    assert bind_parameters(statement, {"t": 5}).source.text.endswith(" 5)") or before.endswith("\n")


@pytest.mark.parametrize("text", ["EVALUATE MODEL m ON $t", "FROM (EVALUATE MODEL m ON /* rows */ $t AS x)"])
def test_rows_are_of_no_parameter(text: str) -> None:
    with pytest.raises(BindError, match=r"a parameter is a value, and rows come from a table\n\nLINE 1: .*\n +\^\^"):
        bind_parameters(one(text), {"t": "t"}, text)


def test_settings() -> None:
    assert one("SET SESSION grouplearn_Executor TO ray;") == one("set grouplearn_executor = ray")
    assert one('RESET SESSION "grouplearn_executor"') == one("RESET grouplearn_executor")


def test_aliases_of_statements() -> None:
    assert one("DESC LEARNER GBDT") == one("DESCRIBE LEARNER gbdt")
    assert one("EXPLAIN (FORMAT 'JSON') CREATE MODEL m USING l FROM t") == one(
        "EXPLAIN (format json) TRAIN MODEL m FROM t USING l"
    )
