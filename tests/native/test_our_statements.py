"""The extension and the parser agree on which statements of a text are ours, and where each begins and ends."""

import re
import subprocess
from pathlib import Path

import pytest

from grouplearn.frontends.native.build import BuildError, compiler
from grouplearn.frontends.native.locate import sources
from grouplearn.parser.lexer.cursor import Cursor
from grouplearn.parser.lexer.statement_split import TextPiece, split
from grouplearn.parser.lexer.tokens import Kind, Token, lex
from grouplearn.parser.misspelt import misspelt
from grouplearn.parser.nested import _begun_after_with, _candidates, _places
from grouplearn.parser.outline import Outline
from grouplearn.parser.parse import _parser_of, prepared_ours

PRINTER = """
#include <cstdio>
#include <iostream>
#include <iterator>
#include "statements/nested.cpp"
#include "statements/statements.cpp"
int main() {
	std::string all((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
	for (size_t from = 0; from < all.size();) {
		auto to = all.find('\0', from);
		for (auto &piece : grouplearn::Split(all.substr(from, to - from))) {
			printf("%zu %zu %d %d", piece.stop, piece.end, piece.ours, piece.misspelt);
			for (auto &name : piece.parameters) {
				printf(" %s", name.c_str());
			}
			for (auto &place : piece.places) {
				printf(" %zu-%zu", place.start, place.stop);
			}
			printf("\\n");
		}
		printf("-\\n");
		from = to + 1;
	}
}
"""
TEXTS = [
    "",
    ";",
    "  ; ;",
    "TRAIN MODEL m",
    "train;",
    "TRAIN(1)",
    "train.x = 1",
    "SELECT 1; TRAIN MODEL m; SELECT 'TRAIN MODEL m; x'",
    "CREATE MODEL m; CREATE OR REPLACE MODEL m; CREATE TABLE model (a INTEGER); CREATE MODEL.x",
    "EXPLAIN TRAIN MODEL m; EXPLAIN ANALYZE TRAIN m; EXPLAIN (FORMAT json) TRAIN m; EXPLAIN SELECT 1; EXPLAIN ANALYZE SELECT 1",
    "SHOW MODELS; SHOW LEARNERS; SHOW RUNS; SHOW TABLES; SHOW MODELS.x; SHOW",
    "DESCRIBE MODEL; DESCRIBE MODEL m; DESC LEARNER x; DESCRIBE model.t; DESCRIBE t",
    'SET grouplearn_workers = 1; SET "grouplearn_x" = 1; SET threads = 1; RESET grouplearn_workers; SET GLOBAL grouplearn_x = 1',
    "RESET CALIBRATION; RESET calibration.x; CALIBRATE; CALIBRATE linear_regression; calibrate(1); SET LOCAL",
    "DROP MODEL m; DROP MODEL IF EXISTS m; DROP RUN 'x'; DROP TABLE model; ALTER MODEL m RENAME TO n",
    "ALTER TABLE model RENAME TO n",
    "EVALUATE MODEL m ON t; RESUME MODEL m; RETRY FAILED MODEL m; RETRY FAILED; EXPORT MODEL m TO 'x'; IMPORT MODEL m FROM 'x'",
    "RESUME OR REPLACE MODEL m; EXPORT DATABASE 'x'; IMPORT DATABASE 'x'; REFRESH MODEL m",
    "/* ; /* nested ; */ TRAIN */ TRAIN MODEL m -- ; SELECT\n; SELECT 1 -- TRAIN",
    "TRAIN MODEL m PREDICT t.y FOR t; TRAIN MODEL m USING mlp FOR t; TRAIN m FOR t; TRAIN MODEL m PREDICT [y FOR y IN l]; TRAIN",
    "CREATE MODEL('gpt', 'a'); GET MODELS; DELETE MODEL 'a'; UPDATE MODEL('a'); CREATE GLOBAL MODEL('a'); GET MODEL 'a'",
    "FROM (train model) JOIN b USING (c); FROM (evaluate model) JOIN b ON x; FROM (WITH a AS (FROM b) EVALUATE MODEL m ON a)",
    "SELECT $$ ; TRAIN $$; TRAIN MODEL $tag$ ; $tag$; SELECT $1; SELECT $name; TRAIN $1",
    "SELECT E'\\'; TRAIN'; TRAIN m; SELECT x'ab'; SELECT 'it''s; TRAIN'",
    "SELECT (1; TRAIN m); TRAIN m; SELECT [1; 2]; SELECT {a: 1; b: 2}",
    "SELECT 1.5, .5, 1e10, 1_000; TRAIN m; SELECT 0.01+.5;TRAIN n",
    "SELECT 'unclosed; TRAIN m",
    'SELECT "unclosed; TRAIN m',
    "/* unclosed; TRAIN m",
    "TRAIN MODEL größe USING x; SELECT '漢字; TRAIN'; TRAIN MODEL 漢字",
    "WITH train AS (SELECT 1) FROM train; FROM model; SELECT a FROM t WHERE train > 1",
    "TRAIN ?, ?; TRAIN $a + $b$c$ + $1x, $a; TRAIN ?2, ?1, ?22a; SELECT ?; TRAIN $größe, $, $$ ? $$, '?', x$y, $a1 -- ?",
    "PREPARE p AS TRAIN MODEL m; EXECUTE p; COPY model TO 'x'",
    "FROM (SHOW MODELS); COPY (show /* all */ models -- of them\n) TO 'x'; WITH c AS (SHOW RUNS), d AS (SHOW LEARNERS) FROM c, d",
    "CREATE TABLE e AS EVALUATE MODEL m ON (FROM t) -- comment\n; INSERT INTO x EVALUATE MODEL größe ON t WHERE y = ?;FROM m",
    "WITH c AS (SELECT (1), [2]), d(x) AS MATERIALIZED (FROM c) TRAIN MODEL m; WITH c AS (TABLE t) SELECT train MODEL",
    "EXPLAIN (FORMAT json) WITH c AS (FROM t) TRAIN MODEL m; WITH c AS (FROM t) EVALUATE MODEL m ON c; EXPLAIN WITH c AS (FROM t)"
    " EVALUATE MODEL m ON c; WITH c AS (FROM t) CREATE OR REPLACE MODEL m; WITH c AS (FROM t) FROM model",
    "FROM (DESCRIBE MODEL m), (DESC LEARNER \"x\"), (DESCRIBE model), (DESCRIBE model.t), (SHOW MODELS LIKE 'a'), (SHOW TABLES)",
    "FROM (EVALUATE MODEL m ON (SELECT * FROM (SHOW MODELS))) JOIN (EVALUATE MODEL n ON t) ON (a = ?); SELECT f(evaluate, model)",
    "CREATE VIEW v AS FROM (SHOW MODELS); CREATE TABLE x (train MODEL); CREATE TABLE x AS TRAIN MODEL m USING y",
    "SELECT 'FROM (SHOW MODELS)', $$(SHOW MODELS)$$, \"(SHOW MODELS)\" /* (SHOW MODELS) */ FROM show -- (SHOW MODELS)",
    "WITH evaluate AS (SELECT 1 AS model), train AS (FROM evaluate) SELECT model ON, evaluate.model FROM train",
    "PREPARE p AS INSERT INTO x EVALUATE MODEL m ON t; PREPARE p (INTEGER) AS DROP MODEL m; PREPARE p AS DROP TABLE model",
    "PREPARE p",
    "PREPARE p AS EXPLAIN ANALYZE TRAIN m; PREPARE p AS SHOW MODELS LIKE 'a'; PREPARE p AS RETRY FAILED MODEL m; PREPARE p AS",
    "PREPARE p AS INSERT INTO x VALUES ('EVALUATE MODEL m ON t'); PREPARE p AS SET grouplearn_x = 1",
    "PREPARE p AS RESET CALIBRATION; PREPARE p AS TRAIN(1)",
    "PREPARE p AS FROM (SHOW MODELS); EXPLAIN FROM (SHOW MODELS); UPDATE t SET x = (FROM (SHOW MODELS)); (SHOW RUNS)",
    "TRIAN MODEL m; TRAINS MODELL m; TRAI MODEL m; TARIN MODEL; TRAINSS MODEL; RAIN MODEL.x; TRIAN (1); TRIAN",
    "PREDICT MODEL m ON t; EXPLAIN PREDICT MODEL m FROM t; PREDICT m; PREDICT MODEL; PREDICT(m)",
    "RETRY; RETRY MODEL m; RETRY FAILED m; RETRY 'x'; RETYR FAILED m; RESUME \"m\"; EVALUATE m; EVALUATE(1); RESUME größe",
    'DROP MODLE m; DROP "MODLE" m; DROP TABEL t; DROP RUNS; DROP RU; DROP; SHOW MODEL m; SHOW MODEL.x; SHOW M; DESC MODULE x',
    "EXPLAIN TRIAN MODEL m; EXPLAIN (FORMAT json) CREATE OR REPLACE MODLE m; EXPLAIN SHOW MODELS; EXPLAIN DROP MODLE; EXPLAIN",
    "CREATE OR REPLACE MODE m; CREATE OR MODLE; EXPORT MODEL.x; EXPROT MODEL m; RESET CALIBRATON; CALIBRAT LEARNER; SHOW tables",
]


@pytest.fixture(scope="module")
def printer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        with_what = compiler()
    except BuildError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("statements")
    (folder / "printer.cpp").write_text(PRINTER)
    command = [with_what, "-std=c++17", f"-I{sources()}", str(folder / "printer.cpp"), "-o", str(folder / "printer")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "printer"


def scripts() -> list[str]:
    found = [path.read_text() for path in (Path(__file__).parents[1] / "slt").glob("*.slt")]
    records = [text for script in found for text in re.split("^====$", script, flags=re.MULTILINE)]
    return [
        re.sub("^#.*\n", "", re.split("^----$", text, flags=re.MULTILINE)[0], flags=re.MULTILINE) for text in records
    ]


def test_they_agree(printer: Path) -> None:
    texts = TEXTS + scripts()
    seen = subprocess.run(
        [printer], input="\0".join([*texts, ""]).encode(), capture_output=True, check=True
    ).stdout.decode()
    for text, lines in zip(texts, seen.split("-\n"), strict=False):
        expected = [
            (
                str(len(text[: piece.stop].encode())),
                str(len(text[: piece.end].encode())),
                str(int(is_ours(text, piece))),
                str(
                    int(
                        _parser_of(text, piece.start, piece.stop, piece.head) is None
                        and misspelt(text, piece.start, piece.stop) is not None
                    )
                ),
                *parameters(text[piece.start : piece.stop]),
                *places(text, piece),
            )
            for piece in split(text)
        ]
        assert [tuple(line.split()) for line in lines.splitlines()] == expected, text


def tokens_of(text: str, piece: TextPiece) -> list[Token]:
    return [*lex(text, piece.start, piece.stop)]


def is_ours(text: str, piece: TextPiece) -> bool:
    parser = _parser_of(text, piece.start, piece.stop, piece.head)
    return parser is not None or _begun_after_with(Outline(tokens_of(text, piece))) is not None


def places(text: str, piece: TextPiece) -> list[str]:
    """Return where statements of ours are inside of one of DuckDB's, as byte offsets."""
    tokens = tokens_of(text, piece)
    if is_ours(text, piece):
        return []
    begins = prepared_ours(piece.head)
    found = [*_candidates(Outline(tokens))] if begins is None else [begins]
    if not found:
        return []
    cursor = Cursor(text, piece.start, piece.stop)
    ends = [
        (tokens[start].start, tokens[stop].start if stop < len(tokens) else piece.stop)
        for start, stop in _places(cursor, found)
    ]
    return ["-".join(str(len(text[:offset].encode())) for offset in each) for each in ends]


def parameters(text: str) -> list[str]:
    """Return the names of a statement's parameters, as the parser counts them: it refuses statements that mix their styles."""
    found: dict[str, None] = {}
    for token in lex(text):
        if token.kind is Kind.PARAMETER:
            found[token.text[1:] or str(len(found) + 1)] = None
    return list(found)
