from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.parser.parse import parse
from grouplearn.parser.render import render
from grouplearn.parser.statements import (
    Between,
    Calibrate,
    DescribeLearner,
    DescribeModel,
    DropModel,
    EvaluateModel,
    ExplainTrain,
    Feature,
    InList,
    Keep,
    Name,
    Option,
    QualifiedName,
    RenameModel,
    ResetCalibration,
    Search,
    SetOption,
    ShowLearners,
    ShowModels,
    Sql,
    Statement,
    Target,
    TrainModel,
    ValidateFolds,
    ValidateNone,
    ValidateSample,
    ValidateWhere,
)

FIXTURE = Path(__file__).with_name("identity.txt").read_text(encoding="utf-8")
CASES = [block.rstrip("\n") for block in FIXTURE.split("====\n")]


@pytest.mark.parametrize("text", CASES, ids=[text.replace("\n", " ")[:60] for text in CASES])
def test_canonical_text_is_its_own_rendering(text: str) -> None:
    (statement,) = parse(text)
    assert render(statement) == text


def fragment(text: str) -> Sql:
    """The fragment as the parser makes it, its parameters found."""
    (statement,) = parse(f"TRAIN MODEL m USING l FROM t WHERE {text}")
    assert isinstance(statement, TrainModel)
    assert statement.where is not None
    return statement.where


ODD_NAMES = [
    "if",
    "select",
    "from",
    "predict",
    "A b",
    'a"b',
    "a;b",
    "x\ny",
    "😀",
    "'",
    "`",
    "$$",
    "--",
    "/*",
    "1a",
    "?",
]
names = st.builds(Name, st.one_of(st.sampled_from(ODD_NAMES), st.text(min_size=1), st.sampled_from(["m", "Delays"])))
qualified = st.lists(names, min_size=1, max_size=3).map(lambda parts: QualifiedName(tuple(parts)))
strings = st.text(max_size=8).map(lambda value: "'" + value.replace("'", "''") + "'")
literals = st.one_of(strings, st.integers(0).map(str)).map(Sql)
expressions = st.one_of(
    literals,
    st.sampled_from(
        [
            "label",
            "features + 1",
            "x IS NOT DISTINCT FROM y",
            "sum(x) OVER (PARTITION BY y)",
            "CASE WHEN target THEN keep END",
            "E'\\'; FROM'",
            "$$ FROM ; $$",
            "a /* WHERE */ + b -- OVER\n + c",
            't."from" + `x``;`',
            "5!",
            "$1 + $2",
            "x = '$1' OR x = $1",
            "{'a': [1, 2]}",
            "(SELECT x FROM t WHERE y GROUP BY z)",
        ]
    ).map(fragment),
)
sources = st.sampled_from(
    ["t", "a JOIN b USING (x)", "t AS keep", "t TABLESAMPLE 10%", "'f;.csv'", "(FROM x LIMIT 1)"]
).map(Sql)
groupings = st.sampled_from(["a", "a, ROLLUP (label, c)", "CUBE (a, b) , c AS x", "()", "GROUPING SETS ((a, b), ())"])


def grouping(text: str) -> Any:
    (statement,) = parse(f"TRAIN MODEL m USING l FROM t GROUP BY {text}")
    assert isinstance(statement, TrainModel)
    return statement.group_by


def distinct(items: st.SearchStrategy[Any], key: Any, smallest: int = 1) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, min_size=smallest, max_size=3, unique_by=key).map(tuple)


options = st.builds(Option, names, expressions)
option_lists = distinct(options, lambda option: option.name.value.lower(), 0)
aliases = st.none() | names
# An encoder's option is written in lower case however it is quoted, so only such names come back as they were.
encoder_options = distinct(
    st.builds(Option, st.sampled_from(["scope", "impute", "from"]).map(Name), literals), lambda o: o.name, 0
)
columns = st.lists(st.sampled_from(["a", "b + 1", "f(x, ',')"]).map(Sql), min_size=1, max_size=3).map(tuple)
features = st.one_of(
    st.builds(Feature, expressions.map(lambda sql: (sql,)), alias=aliases),
    st.builds(Feature, columns, st.sampled_from(["zscore", "minmax", "onehot"]).map(Name), encoder_options, aliases),
)
points = st.lists(literals.map(lambda sql: (sql,)), min_size=1, max_size=3).map(tuple)
row_points = st.lists(st.tuples(expressions, expressions), min_size=1, max_size=3).map(tuple)
parameter = st.sampled_from(["l1", "Odd", 'q"', "in"]).map(Name)
in_lists = st.one_of(
    st.builds(InList, parameter.map(lambda name: (name,)), points),
    st.builds(InList, parameter.map(lambda name: (name,)), subquery=st.just(Sql("(SELECT ')' FROM t)"))),
)
rows = st.builds(InList, st.just((Name("p"), Name("from"))), row_points)
ranges = st.builds(Between, parameter, literals, expressions, st.booleans())
dimension_key = lambda item: (item.parameter if isinstance(item, Between) else item.parameters[0]).value  # noqa: E731
searches = st.one_of(
    st.builds(Search, st.just("grid"), distinct(in_lists | rows, dimension_key)),
    st.builds(Search, st.just("random"), distinct(in_lists | rows | ranges, dimension_key)),
)
numbers = st.sampled_from(["5", "2.5", "$3", "(1 + 1)"]).map(lambda text: fragment(text))
validations = st.one_of(
    st.builds(ValidateWhere, expressions),
    st.builds(ValidateSample, numbers),
    st.builds(ValidateFolds, numbers),
    st.just(ValidateNone()),
)
trains = st.builds(
    TrainModel,
    qualified,
    names,
    sources,
    replace=st.booleans(),
    target=st.none() | st.builds(Target, expressions, aliases),
    features=st.none() | st.lists(features, min_size=1, max_size=3).map(tuple),
    where=st.none() | expressions,
    group_by=st.none() | groupings.map(grouping),
    having=st.none() | expressions,
    search=st.none() | searches,
    validation=st.none() | validations,
    metric=st.none() | names,
    keep=st.none() | st.builds(Keep, st.none() | numbers),
    missing_group=st.sampled_from([None, "parent", "null", "error"]),
    options=option_lists,
)
statements = st.one_of(
    trains,
    st.builds(ExplainTrain, trains, st.sampled_from([None, "text", "json", "html"]), st.booleans()),
    st.builds(Calibrate, st.none() | names),
    st.just(ResetCalibration()),
    st.just(ShowModels()),
    st.just(ShowLearners()),
    st.builds(DescribeModel, qualified),
    st.builds(DescribeLearner, names),
    st.builds(DropModel, st.lists(qualified, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(RenameModel, qualified, names),
    st.builds(EvaluateModel, qualified, sources, st.none() | expressions),
    st.builds(SetOption, st.sampled_from(["grouplearn_x", "grouplearn_y z;"]).map(Name), st.none() | expressions),
)


@given(statements)
@settings(max_examples=75, deadline=None)
def test_parse_undoes_render(statement: Statement) -> None:
    assert parse(render(statement)) == (statement,)
    assert parse(render(statement) + "; SELECT 1")[0] == statement


CLAUSES = [
    "USING gbdt",
    "PREDICT label AS late",
    "FEATURES (zscore(a), b)",
    "FROM flights AS keep JOIN x USING (y)",
    "WHERE label > 1",
    "GROUP BY ROLLUP (target, b)",
    "HAVING count(*) > 1",
    "OVER GRID (a IN (1))",
    "VALIDATE WHERE keep",
    "REFIT",
    "OPTIMIZE auc",
    "KEEP BEST 3",
    "ON MISSING GROUP NULL",
    "ON NULL LABEL ERROR",
    "ON GROUP FAILURE ERROR",
    "WITH (seed = 1)",
]


@given(st.permutations(CLAUSES))
def test_clauses_come_in_any_order(clauses: list[str]) -> None:
    assert parse("TRAIN MODEL m " + " ".join(clauses)) == parse("TRAIN MODEL m " + " ".join(CLAUSES))
    assert render(parse("TRAIN MODEL m " + " ".join(clauses))[0]) == "TRAIN MODEL m\n" + "\n".join(CLAUSES)
