import duckdb
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from grouplearn.errors import NotSupportedHere, ParseError
from grouplearn.messages import Span
from grouplearn.parser.parse import is_complete, parse
from grouplearn.parser.statements import Passthrough, ShowModels, TrainModel

THEIRS = [
    "SELECT train FROM model",
    "SELECT 1 AS train, 2 AS features, 3 AS keep",
    "CREATE TABLE models (model INT, predict INT, label INT)",
    "CREATE OR REPLACE TABLE model AS FROM models",
    "DROP TABLE model",
    "ALTER TABLE model RENAME TO train",
    "DESCRIBE model",
    "DESC models",
    "DESCRIBE model.t",
    "SHOW TABLES",
    "SHOW models.t",
    "SHOW",
    "EXPLAIN SELECT train FROM model",
    "EXPLAIN ANALYZE SELECT 1",
    "EXPLAIN (FORMAT json) SELECT 1",
    "EXPLAIN CREATE TABLE train AS SELECT 1",
    "SET threads = 1",
    "SET VARIABLE grouplearn_x = 1",
    "RESET threads",
    "EXPORT DATABASE 'model'",
    "IMPORT DATABASE 'model'",
    "FROM (train model) JOIN b USING (c)",
    "FROM (evaluate model) JOIN b ON true",
    "CREATE MODEL('gpt', 'a')",
    "GET MODELS",
    "DELETE MODEL 'a'",
    "TRAIN MODEL m PREDICT t.y FOR t",
    "train(1)",
    "train.f(1)",
    "calibrate(1)",
    "RESET calibration.x",
    "evaluate",
    "INSERT INTO train VALUES ('TRAIN MODEL m USING gbdt FROM t;')",
    'SELECT $$ ; TRAIN MODEL m $$, E\'\\\'; TRAIN MODEL\', "a;""TRAIN MODEL"',
    "SELECT 1 /* ; TRAIN MODEL /* ; */ ; */ + 1 -- ; TRAIN MODEL",
    "SELECT 'never closed; TRAIN MODEL m",
    "SELECT (1; TRAIN MODEL m USING gbdt FROM t",
]


@pytest.mark.parametrize("text", THEIRS)
def test_duckdbs_statements_pass_untouched(text: str) -> None:
    for whole in (text, f"{text};", f" \n{text} ; -- end\n"):
        statements = parse(whole)
        assert all(isinstance(statement, Passthrough) for statement in statements)
        assert "".join(statement.text for statement in statements if isinstance(statement, Passthrough)) == whole


def test_each_statement_by_itself() -> None:
    text = "/* a */ SELECT 1; -- b\n;TRAIN MODEL m USING gbdt FROM t; -- c\n;;\nSELECT ';' ; SHOW MODELS ; \n"
    first, train, second, show = parse(text)
    assert first == Passthrough("/* a */ SELECT 1; -- b\n;")
    assert isinstance(train, TrainModel)
    assert text[train.name.span.start : train.name.span.end] == "m"
    assert text[train.source.span.start : train.source.span.end] == "t"
    assert second == Passthrough("\nSELECT ';' ;")
    assert show == ShowModels()


@pytest.mark.parametrize(("text", "count"), [("", 0), ("  \n", 1), ("-- nothing", 1), (";;", 1), ("; SELECT 1", 1)])
def test_blank_text_is_kept(text: str, count: int) -> None:
    statements = parse(text)
    assert len(statements) == count
    assert "".join(statement.text for statement in statements if isinstance(statement, Passthrough)) == text


WORDS = [
    *["TRAIN", "OR", "REPLACE", "MODEL", "m", "USING", "gbdt", "PREDICT", "y", "FEATURES", "(", ")", "FROM", "t", ","],
    *["WHERE", "GROUP", "BY", "OVER", "GRID", "IN", "1", "VALIDATE", "SAMPLE", "%", "KEEP", "WITH", "=", ";", "'a'"],
    *[
        "zscore",
        "impute",
        "hash",
        "ROLLUP",
        "CUBE",
        "AS",
        "SELECT",
        "?",
        "$1",
        "$x",
        "'",
        "$$",
        "/*",
        ".",
        "CASE",
        "END",
    ],
    *[
        "SHOW",
        "DESCRIBE",
        "EXPLAIN",
        "SET",
        "grouplearn_x",
        "BETWEEN",
        "AND",
        "LOG",
        "RANDOM",
        "GROUPING",
        "SETS",
        "😀",
    ],
]


@given(
    st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join), st.sampled_from(["", "TRAIN MODEL m USING l FROM t "])
)
@settings(max_examples=375, deadline=None)
def test_parse_raises_nothing_but_its_own_errors(words: str, start: str) -> None:
    text, span = start + words, Span(0, 0)
    try:
        parse(text)
    except (ParseError, NotSupportedHere) as error:
        text, span = error.text or "", error.span or Span(-1, -1)
    assert text == start + words
    assert 0 <= span.start <= span.end <= len(text)


@given(st.text())
def test_any_text_without_ours_comes_back(text: str) -> None:
    try:
        statements = parse(text)
    except (ParseError, NotSupportedHere):
        reject()  # hypothesis draws words from the sources, too, and finds statements of ours
    assume(all(isinstance(statement, Passthrough) for statement in statements))
    assert "".join(statement.text for statement in statements if isinstance(statement, Passthrough)) == text


def test_duckdb_splits_alike() -> None:
    text = "SELECT 1; SELECT ';' /* ; */; CREATE TABLE a AS SELECT $$;$$ AS x; -- ;\n FROM a"
    theirs = duckdb.connect().extract_statements(text)
    assert len(parse(text)) == len(theirs) == 4


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        (" \n -- hello", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- done\n", True),
        ("SELECT 1; SELECT", False),
        ("SELECT ';", False),
        ("SELECT ';';", True),
        ("SELECT (1;", False),
        ("SELECT 1 /* ; ", False),
        ("SELECT 1; /* ", False),
        ("SELECT $$;", False),
        ("SELECT $a$;$$;$a$;", True),
        ("TRAIN MODEL m\nFEATURES (a;", False),
        ("TRAIN MODEL m USING gbdt FROM t;", True),
    ],
)
def test_is_complete(text: str, *, complete: bool) -> None:
    assert is_complete(text) is complete
