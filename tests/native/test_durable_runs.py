"""The directory of a durable run is removed when its model is committed, by the statement that commits it."""

import importlib.metadata
from pathlib import Path

import duckdb
import pytest
from native_builds import TABLE, TRAIN, built

DURABLE = TRAIN.replace("VALIDATE NONE", "VALIDATE NONE WITH (durable = true)")


def left(database: Path) -> list[str]:
    """Return what is left beside a database."""
    return sorted(path.name for path in Path(f"{database}.grouplearn").rglob("*") if path.is_file())


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    "statements",
    [
        (DURABLE,),
        (DURABLE, DURABLE.replace("TRAIN", "TRAIN OR REPLACE")),
        ("BEGIN;", DURABLE, "COMMIT;"),
        (f"BEGIN; {DURABLE} COMMIT;",),
        ("BEGIN;", DURABLE, "ROLLBACK;", "RESUME MODEL m;"),
    ],
    ids=["alone", "twice", "committed", "at once", "resumed"],
)
def test_nothing_is_left_when_the_shell_ends(run, tmp_path, statements):
    database = tmp_path / "a.duckdb"
    done = run(
        str(database), "-csv", "-noheader", stdin="\n".join([TABLE, *statements, "SELECT 'rows', count(*) FROM m;"])
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "rows,3"
    assert left(database) == []


def test_a_run_that_is_rolled_back_can_be_resumed(run, tmp_path):
    database = tmp_path / "a.duckdb"
    done = run(
        str(database),
        "-csv",
        stdin="\n".join([TABLE, "BEGIN;", DURABLE, "ROLLBACK;", "CREATE TABLE other (a INTEGER);"]),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "manifest" in left(database)
    done = run(str(database), "-csv", stdin="RESUME MODEL m;")
    assert (done.returncode, done.stderr, left(database)) == (0, "", [])


def test_with_parameters_and_in_the_open_database(tmp_path):
    """In Python with DuckDB alone, which binds parameters."""
    database = tmp_path / "a.duckdb"
    with duckdb.connect(str(database), config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{built(importlib.metadata.version('duckdb'))}'; {TABLE}")
        connection.execute(DURABLE.replace("FROM t", "FROM t WHERE x >= $1"), [3]).fetchall()
        assert left(database) == []
        connection.execute("BEGIN")
        connection.execute(DURABLE.replace("MODEL m", "MODEL n")).fetchall()
        assert left(database) != []
        connection.execute("COMMIT")
        assert left(database) == []
