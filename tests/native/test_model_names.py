"""Names of models and tables in the stock shell mean what they mean in Python."""

import pytest
from native_builds import TRAIN

TABLES = "CREATE TABLE shop.t AS SELECT (i % 3)::INTEGER AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i);"
PLACES = f"ATTACH ':memory:' AS shop; {TABLES} CREATE SCHEMA shop.s; CREATE TABLE t AS FROM shop.t;"
FINDS = (
    "SELECT value FROM (DESCRIBE MODEL {}) WHERE property = 'model';",
    "SELECT n_rows FROM (EVALUATE MODEL {} ON shop.main.t) LIMIT 1;",
    "SELECT count(predict_value('{}', t)) FROM shop.main.t AS t;",
)


@pytest.mark.thorough
def test_a_model_is_found_as_its_view_is(run):
    """In schemas of the search path, and then in main of the default database, by statements and by predict."""
    train = TRAIN.replace("MODEL m", "MODEL shop.m").replace("FROM t", "FROM shop.t")
    begin = f"{PLACES}{train}\n"
    lost = run("-csv", "-noheader", stdin=begin + "\n".join(FINDS).replace("{}", "m"))
    unknown = ('unknown model "m"', 'model "m" does not exist')
    assert sum(lost.stderr.count(told) for told in unknown) == len(FINDS), lost.stderr
    assert lost.stderr.count('Did you mean "shop.m"?') == len(FINDS), lost.stderr
    places = (("memory", "shop.m"), ("shop", "m"), ("shop.s", "m"), ("memory,shop", "m"))
    found = "".join(f"SET search_path = '{path}';\n" + "\n".join(FINDS).replace("{}", name) for path, name in places)
    done = run("-csv", "-noheader", stdin=begin + found)
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.splitlines()[-3 * len(places) :]
    assert {name.rpartition(".")[2] for name in told[::3]} == {"m"}
    assert [*zip(told[1::3], told[2::3], strict=True)] == [("100", "300")] * len(places)


def test_retry_reads_the_table_that_was_trained_on_or_says_where_it_is(run):
    failing = TRAIN.replace("VALIDATE NONE", "ON NULL LABEL ERROR VALIDATE NONE")
    begin = f"{PLACES}UPDATE shop.t SET y = NULL WHERE g = 1 AND x < 5; USE shop;\n{failing}\nUSE memory;\n"
    done = run("-csv", "-noheader", stdin=f"{begin}RETRY FAILED MODEL shop.m;\n")
    assert '"t" is not what it was when model "m" was trained' in done.stderr
    assert "Names were looked for in shop.main, and now in memory.main" in done.stderr
    assert "Hint: USE shop looks for them there again." in done.stderr
    repair = "UPDATE shop.t SET y = 1 WHERE y IS NULL; USE shop;\nRETRY FAILED MODEL m;\n"
    done = run("-csv", "-noheader", stdin=f"{begin}{repair}SELECT count(*) FROM m WHERE status = 'done';\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "3"


def test_a_name_in_a_view_means_the_model_where_the_view_is(run):
    """In the query itself it means the default database's; a prepared query does not say which view asks."""
    train = TRAIN.replace("FROM t", "FROM shop.t")
    other = train.replace("MODEL m", "MODEL shop.m").replace("PREDICT y", "PREDICT y + 100")
    begin = f"{PLACES}{train}\n{other}\nCREATE VIEW shop.v AS SELECT x, predict_value('m', t) AS p FROM shop.t;\n"
    own = "(SELECT predict_value('m', t) AS p FROM t)"
    counts = [f"SELECT count(*) FROM {table} WHERE p > 99;\n" for table in ("shop.v", own, "shop.v AS v")]
    done = run("-csv", "-noheader", stdin=begin + "".join(counts))
    assert (done.returncode, done.stderr) == (0, "")
    in_view, in_query, again = map(int, done.stdout.splitlines()[-3:])
    assert in_view == again == 300 > in_query
    both = f"SELECT (SELECT count(*) FROM shop.v WHERE p > 99), (SELECT count(*) FROM {own} WHERE p > 99);\n"
    refused = run("-csv", "-noheader", stdin=begin + both + "PREPARE q AS FROM shop.v;\nEXECUTE q;\n" + counts[0])
    assert refused.stderr.count('model "m" may be memory.m or shop.m') == 2
    assert "Write the name with its database, in views, too: predict('shop.m', ...)." in refused.stderr
    assert refused.stdout.splitlines()[-1] == "300"
