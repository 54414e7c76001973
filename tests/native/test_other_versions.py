"""A database or an export of another version of the catalog is refused: in Python, in both shells, by IMPORT."""

import json
import subprocess
from pathlib import Path

import pytest
from helpers.thorough import some
from native_builds import GROUPLEARN

import grouplearn
from grouplearn.catalog.checks.tables import VERSION

TRAIN = "TRAIN MODEL {} USING linear_regression PREDICT y FROM t"
CHANGES = {
    "UPDATE grouplearn.schema_version SET version = 10": ("an earlier version", 10),
    "DROP TABLE grouplearn.schema_version": ("an earlier version", 0),
    "UPDATE grouplearn.schema_version SET version = 99": ("a later version", 99),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with a model, which both shells can open."""
    path = tmp_path / "a.duckdb"
    with grouplearn.connect(path, storage_version="v1.4.0", progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT range AS x, range * 2 AS y FROM range(100)")
        con.execute(TRAIN.format("m"))
    return path


@pytest.mark.examples(2)
@pytest.mark.parametrize("change", CHANGES)
def test_a_database_of_another_version(run, path: Path, change: str) -> None:
    made, version = CHANGES[change]
    message = f'the models in database "a" were made by {made} of grouplearn: their tables have version {version}, '
    message += f"and this one reads version {VERSION}"
    hint = 'or train again: DROP SCHEMA "a"."grouplearn" CASCADE, DROP MODEL'
    statements = (TRAIN.format("n"), "SHOW MODELS", "DESCRIBE MODEL m", "SELECT predict_value('m', t) FROM t")
    with grouplearn.connect(path, progress=False) as con:
        con.execute(change)
        for statement in statements:
            with pytest.raises(grouplearn.Error) as error:
                con.execute(statement).fetchall()
            assert message in str(error.value)
            assert hint in str(error.value)
    for statement in some(statements, 2):
        ours = subprocess.run(
            [GROUPLEARN, str(path)], input=f"{statement};", capture_output=True, text=True, timeout=120, check=False
        )
        assert message in ours.stderr
        assert hint in ours.stderr
    stock = run(str(path), stdin="".join(f"{statement};\n" for statement in statements))
    assert stock.stderr.count(message) == stock.stderr.count(hint) == len(statements)


def test_what_the_hint_says_trains_again(path: Path) -> None:
    with grouplearn.connect(path, progress=False) as con:
        con.execute("UPDATE grouplearn.schema_version SET version = 10")
        con.execute("DROP SCHEMA a.grouplearn CASCADE")
        con.execute("DROP MODEL m")
        con.execute(TRAIN.format("m"))
        assert con.execute("SELECT count(prediction) FROM m_predict(t)").fetchall() == [(100,)]


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_an_export_of_another_version(path: Path, tmp_path: Path, version: int) -> None:
    with grouplearn.connect(path, progress=False) as con:
        con.execute(f"EXPORT MODEL m TO '{tmp_path / 'x'}'")
        manifest = tmp_path / "x" / "manifest.json"
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"catalog_version": version}))
        with pytest.raises(grouplearn.Error) as error:
            con.execute(f"IMPORT MODEL n FROM '{tmp_path / 'x'}'")
        assert f"the export has tables of version {version}, and this version reads version {VERSION}" in str(
            error.value
        )
        assert "Export it again, or import it with the grouplearn that exported it." in str(error.value)
