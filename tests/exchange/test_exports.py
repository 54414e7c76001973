"""Exported directories, each read by the program that it is for, and native ones read back bit for bit."""

import csv
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import lightgbm
import numpy as np
import onnxruntime
import pytest
import safetensors
from exchange_models import MODELS
from helpers.thorough import THOROUGH
from predictions import SHOWN, assert_same, by_function, by_macro

import grouplearn
from grouplearn.catalog.checks.tables import VERSION
from grouplearn.catalog.schema import TABLES

#: A model of each form in which models are stored.
STORED = MODELS if THOROUGH else ("ridge_value", "svm_multiclass", "wide_value", "wide_multiclass", "trees_binary",
    "trees_multiclass", "net_value", "net_multiclass")  # fmt: skip
VIEWS = ("", "_curves", "_importance", "_features", "_schedule")


def export(con: grouplearn.Connection, name: str, path: Path, kind: str) -> dict[str, Any]:
    con.execute("EXPORT MODEL " + name + " TO ? (FORMAT " + kind + ")", [str(path)]).fetchall()
    manifest = json.loads((path / "manifest.json").read_text())
    assert {entry.name for entry in path.iterdir()} == {"manifest.json", *(e["name"] for e in manifest["files"])}
    for entry in manifest["files"]:
        assert hashlib.sha256((path / entry["name"]).read_bytes()).hexdigest() == entry["sha256"]
    index = path / "index.json"
    return json.loads(index.read_text()) if index.exists() else manifest


# --- native --------------------------------------------------------------------------------------------------------


@pytest.mark.examples(2)
@pytest.mark.parametrize("name", STORED)
def test_native_round_trip_is_bitwise(con: grouplearn.Connection, name: str, tmp_path: Path) -> None:
    export(con, name, tmp_path / "out", "native")
    with grouplearn.connect(str(tmp_path / "other.duckdb"), progress=False) as other:
        other.execute(f"IMPORT MODEL again FROM '{tmp_path / 'out'}'").fetchall()
        for table in TABLES:
            named = ", schema_name, model_name" if table == "models" else ""
            source = f"SELECT * EXCLUDE (model{named}) FROM grouplearn.{table}"
            where = f"WHERE model = (SELECT model FROM grouplearn.models WHERE model_name = '{name}') ORDER BY rowid"
            before = con.sql(f"{source} {where}").to_arrow_table()
            after = other.sql(f"{source} ORDER BY rowid").to_arrow_table()
            assert after.equals(before), table
        for view in VIEWS:
            left = con.sql(f"FROM {name}{view} ORDER BY ALL").to_arrow_table()
            assert other.sql(f"FROM again{view} ORDER BY ALL").to_arrow_table().equals(left), view
        other.execute("CREATE TABLE fresh AS SELECT * FROM read_parquet(?)", [fresh_rows(con, tmp_path)])
        rename = name.rpartition("_")[2]
        other.execute(f"ALTER MODEL again RENAME TO again_{rename}")
        assert by_function(other, f"again_{rename}") == by_function(con, name)
        assert_same(by_macro(other, f"again_{rename}"), by_macro(con, name), 1e-12)


def fresh_rows(con: grouplearn.Connection, tmp_path: Path) -> str:
    path = tmp_path / "fresh.parquet"
    con.execute(f"COPY fresh TO '{path}'")
    return str(path)


def test_import_replaces_keeps_or_refuses(con: grouplearn.Connection, tmp_path: Path) -> None:
    export(con, "ridge_value", tmp_path / "a", "native")
    con.execute("BEGIN")
    copy = f"FROM '{tmp_path / 'a'}'"
    con.execute(f"IMPORT MODEL copy_value {copy}").fetchall()
    with pytest.raises(grouplearn.ProgrammingError, match="IMPORT OR REPLACE MODEL copy_value to replace it"):
        con.execute(f"IMPORT MODEL copy_value {copy}").fetchall()
    kept = con.execute(f"IMPORT MODEL IF NOT EXISTS copy_value {copy}").fetchall()
    assert kept == [("model copy_value exists already; nothing was imported",)]
    con.execute(f"IMPORT OR REPLACE MODEL copy_value {copy}").fetchall()
    assert con.execute("SELECT count(*) FROM grouplearn.models WHERE model_name = 'copy_value'").fetchall() == [(1,)]
    assert by_macro(con, "copy_value") == by_macro(con, "ridge_value")
    assert by_function(con, "copy_value") == by_function(con, "ridge_value")
    con.execute("ROLLBACK")
    assert "copy_value" not in [row[0] for row in con.execute("SHOW MODELS").fetchall()]


def test_rollback_undoes_an_import(con: grouplearn.Connection, tmp_path: Path) -> None:
    export(con, "trees_value", tmp_path / "a", "native")
    con.execute("BEGIN")
    con.execute(f"IMPORT MODEL passing FROM '{tmp_path / 'a'}'").fetchall()
    con.execute("ROLLBACK")
    assert con.execute("SELECT count(*) FROM grouplearn.models WHERE model_name = 'passing'").fetchall() == [(0,)]


# --- damaged and hostile directories -------------------------------------------------------------------------------


def test_changed_bytes_are_refused_before_they_are_parsed(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(con, "trees_value", tmp_path / "a", "native")
    monkeypatch.setattr("grouplearn.exchange.native._parsed", lambda name, content: pytest.fail(f"parsed {name}"))
    for name in (f"{table}.parquet" for table in TABLES[:1]):
        content = bytearray((tmp_path / "a" / name).read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / "a" / name).write_bytes(content)
        with pytest.raises(grouplearn.Error, match=f"{name} of the export was changed or is damaged"):
            con.execute(f"IMPORT MODEL x FROM '{tmp_path / 'a'}'").fetchall()


def test_missing_file(con: grouplearn.Connection, tmp_path: Path) -> None:
    export(con, "ridge_value", tmp_path / "a", "native")
    for table in TABLES:
        file = (tmp_path / "a" / f"{table}.parquet").rename(tmp_path / "elsewhere")
        with pytest.raises(grouplearn.Error, match=f"file {table}.parquet of the export cannot be read"):
            con.execute(f"IMPORT MODEL x FROM '{tmp_path / 'a'}'").fetchall()
        file.rename(tmp_path / "a" / f"{table}.parquet")
    assert con.execute("SELECT count(*) FROM grouplearn.models WHERE model_name = 'x'").fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is no export of a model: it has no manifest.json"),
        ("{", "is damaged: it is not JSON"),
        ("[" * 100_000, "is damaged: it is not JSON"),
        ('{"layout": 1' + "0" * 5000 + "}", "is damaged: it is not JSON"),
        ("[]", "is not one of an exported model"),
        ('{"program": "other", "files": []}', "is not one of an exported model"),
        ('{"program": "grouplearn", "layout": 1, "files": [7]}', "is not one of an exported model"),
        ('{"program": "grouplearn", "layout": 9, "files": []}', "layout 9, and this version reads layout 1"),
        (
            '{"program": "grouplearn", "layout": 1, "format": "native", "catalog_version": 99, "files": []}',
            "version 99",
        ),
        (
            f'{{"program": "grouplearn", "layout": 1, "format": "native", "catalog_version": {VERSION}, "files": []}}',
            "damaged",
        ),
    ],
)
def test_manifests_that_are_none(con: grouplearn.Connection, tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(grouplearn.Error, match=message):
        con.execute(f"IMPORT MODEL x FROM '{tmp_path}'").fetchall()


def forge(path: Path, table: str, change: Any) -> None:
    """Change a table of an export and its digest with it, as somebody who means harm would."""
    import pyarrow.parquet as pq

    file = path / f"{table}.parquet"
    pq.write_table(change(pq.read_table(file)), file)
    manifest = json.loads((path / "manifest.json").read_text())
    entry = next(e for e in manifest["files"] if e["name"] == file.name)
    content = file.read_bytes()
    entry |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_expression_that_hides_a_statement_is_refused(con: grouplearn.Connection, tmp_path: Path) -> None:
    export(con, "ridge_value", tmp_path / "a", "native")

    def hide(rows: Any) -> Any:
        import pyarrow as pa

        (keys,) = rows.column("keys").to_pylist()
        keys[0]["sql"] = "1) AS a, 2 AS b); DROP TABLE fresh; SELECT (1"
        place = rows.column_names.index("keys")
        return rows.set_column(place, "keys", pa.array([keys], rows.schema.field("keys").type))

    forge(tmp_path / "a", "models", hide)
    with pytest.raises(grouplearn.Error, match="cannot be imported"):
        con.execute(f"IMPORT MODEL x FROM '{tmp_path / 'a'}'").fetchall()
    assert con.execute("SELECT count(*) > 0 FROM fresh").fetchall() == [(True,)]


FORGERIES = {
    "no model": ("models", lambda rows: rows.slice(0, 0), "there is not one model in it"),
    "two models": ("models", lambda rows: doubled(rows), "there is not one model in it"),
    "no items": ("models", lambda rows: rows.drop_columns(["items"]), "models has no column items"),
    "no fills": ("groups", lambda rows: rows.drop_columns(["fills"]), "groups has no column fills"),
    "groups twice": ("groups", lambda rows: doubled(rows), "two rows are the same group"),
    "trials twice": ("trials", lambda rows: doubled(rows), "two rows are the same trial"),
    "artifacts twice": ("artifacts", lambda rows: doubled(rows), "two rows belong to the same trial"),
    "an artifact less": ("artifacts", lambda rows: rows.slice(1), "its best trial has no artifact"),
}


def doubled(rows: Any) -> Any:
    import pyarrow as pa

    return pa.concat_tables([rows, rows])


def test_tables_that_are_no_model_are_refused(con: grouplearn.Connection, tmp_path: Path) -> None:
    export(con, "ridge_value", tmp_path / "good", "native")
    before = con.execute("SELECT count(*) FROM grouplearn.groups").fetchall()
    for number, (table, change, message) in enumerate(FORGERIES.values()):
        forged = shutil.copytree(tmp_path / "good", tmp_path / str(number))
        forge(forged, table, change)
        with pytest.raises(grouplearn.Error, match=f"cannot be imported: .*{message}"):
            con.execute(f"IMPORT MODEL x FROM '{forged}'").fetchall()
    assert con.execute("SELECT count(*) FROM grouplearn.groups").fetchall() == before


# --- where an export goes ------------------------------------------------------------------------------------------


def test_failed_export_leaves_nothing(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(con, "ridge_value", tmp_path / "a", "native")
    before = sorted((entry.name, entry.read_bytes()) for entry in (tmp_path / "a").iterdir())
    calls = iter(range(3))

    def broken(*_: Any) -> Any:
        if next(calls) == 2:
            raise OSError(28, "No space left on device")
        return con.sql("SELECT 1 AS a").to_arrow_table()

    monkeypatch.setattr("grouplearn.exchange.native.read_rows", broken)
    with pytest.raises(grouplearn.Error, match="could not be written: No space left on device"):
        con.execute(f"EXPORT MODEL ridge_value TO '{tmp_path / 'a'}' (OVERWRITE)").fetchall()
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
    assert sorted((entry.name, entry.read_bytes()) for entry in (tmp_path / "a").iterdir()) == before


def test_overwrite_replaces_exports_and_nothing_else(con: grouplearn.Connection, tmp_path: Path) -> None:
    out = tmp_path / "a"
    out.mkdir()
    export(con, "trees_value", out, "native")  # an empty directory is taken
    with pytest.raises(grouplearn.Error, match="is not empty"):
        con.execute(f"EXPORT MODEL trees_value TO '{out}' (FORMAT lightgbm)").fetchall()
    con.execute(f"EXPORT MODEL trees_value TO '{out}' (FORMAT lightgbm, OVERWRITE)").fetchall()
    assert not (out / "models.parquet").exists()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(grouplearn.Error, match=r"has files that no export made, such as thesis.tex"):
        con.execute(f"EXPORT MODEL trees_value TO '{out}' (OVERWRITE)").fetchall()
    assert (out / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a\0b", "cannot have the character 0"),
        ("x" * 300, "File name too long"),
        ("/dev/null", "no directory|not a directory"),
        ("nowhere/deep", "there is no directory"),
        ("", "the name of the directory is empty"),
        ("s3://bucket/m", "is an address"),
    ],
)
def test_places_that_cannot_be_are_errors_of_ours(con: grouplearn.Connection, path: str, message: str) -> None:
    for statement in ("EXPORT MODEL ridge_value TO ?", "IMPORT MODEL x FROM ?"):
        with pytest.raises(grouplearn.Error, match=message) as error:
            con.execute(statement, [path])
        assert "LINE 1" in str(error.value)


UNPRIVILEGED = """
import os, sys, grouplearn
con = grouplearn.connect(sys.argv[1], read_only=True, progress=False)
con.execute("SHOW MODELS")
if os.geteuid() == 0:
    os.seteuid(65534)  # root may write everywhere
for place in ("new", "old' (OVERWRITE) --"):
    try:
        con.execute(f"EXPORT MODEL ridge_value TO '{sys.argv[2]}/{place}'")
    except grouplearn.Error as error:
        print(str(error).splitlines()[0])
"""


def test_a_place_that_may_not_be_written_keeps_what_it_has(
    con: grouplearn.Connection, database: Path, tmp_path: Path
) -> None:
    con.execute("CHECKPOINT")
    copy, closed = tmp_path / "copy.duckdb", tmp_path / "closed"
    shutil.copy(database, copy)
    closed.mkdir()
    export(con, "ridge_value", closed / "old", "native")
    closed.chmod(0o555)
    before = sorted((entry.name, entry.read_bytes()) for entry in (closed / "old").iterdir())
    command = [sys.executable, "-c", UNPRIVILEGED, str(copy), str(closed)]
    run = subprocess.run(command, capture_output=True, text=True)
    closed.chmod(0o755)
    assert [line.rpartition(": ")[2] for line in run.stdout.splitlines()] == ["Permission denied"] * 2, run.stderr
    assert sorted((entry.name, entry.read_bytes()) for entry in (closed / "old").iterdir()) == before
    assert [entry.name for entry in closed.iterdir()] == ["old"]


def test_a_manifest_does_not_make_a_directory_ours(con: grouplearn.Connection, tmp_path: Path) -> None:
    export(con, "ridge_value", tmp_path / "a", "native")
    (tmp_path / "a" / "models.parquet").unlink()
    (tmp_path / "a" / "models.parquet").mkdir()
    (tmp_path / "a" / "models.parquet" / "thesis.tex").write_text("years of work")
    with pytest.raises(grouplearn.Error, match=r"has files that no export made, such as models.parquet"):
        con.execute(f"EXPORT MODEL ridge_value TO '{tmp_path / 'a'}' (OVERWRITE)").fetchall()
    assert (tmp_path / "a" / "models.parquet" / "thesis.tex").read_text() == "years of work"


def test_a_manifest_cannot_lead_elsewhere(con: grouplearn.Connection, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("mine")
    export(con, "ridge_value", tmp_path / "a", "native")
    text = (tmp_path / "a" / "manifest.json").read_text()
    (tmp_path / "a" / "manifest.json").write_text(text.replace("models.parquet", "../secret.txt"))
    with pytest.raises(grouplearn.Error, match=r"manifest.json of that directory is not one of an exported model"):
        con.execute(f"IMPORT MODEL x FROM '{tmp_path / 'a'}'")
    with pytest.raises(grouplearn.Error, match=r"manifest.json of that directory is not one of an exported model"):
        con.execute(f"EXPORT MODEL ridge_value TO '{tmp_path / 'a'}' (OVERWRITE)")
    assert secret.read_text() == "mine"


def test_read_only_database_exports_and_does_not_import(
    con: grouplearn.Connection, database: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.duckdb"
    con.execute("CHECKPOINT")
    shutil.copy(database, copy)
    with grouplearn.connect(str(copy), read_only=True, progress=False) as reader:
        export(reader, "ridge_value", tmp_path / "a", "native")
        with pytest.raises(grouplearn.Error, match="is read-only: a model cannot be stored in it"):
            reader.execute(f"IMPORT MODEL x FROM '{tmp_path / 'a'}'").fetchall()


# --- the formats of others -----------------------------------------------------------------------------------------


def inputs(con: grouplearn.Connection, index: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """What the graphs take: the SQL of every item over the rows, as the index says."""
    items = ", ".join(f"({item['sql']}\n) AS i{place}" for place, item in enumerate(index["inputs"]))
    rows = con.execute(f"SELECT id, {items} FROM fresh AS __grouplearn_row").fetchall()
    nothing = {"numeric": np.nan, "category": "\0 no category", "hash": -1}
    kinds = {"numeric": np.float64, "category": object, "hash": np.int64}
    return {
        row[0]: {
            item["name"]: np.array([[nothing[item["kind"]] if value is None else value]], dtype=kinds[item["kind"]])
            for item, value in zip(index["inputs"], row[1:], strict=True)
        }
        for row in rows
    }


@pytest.mark.examples(2)
@pytest.mark.parametrize("name", MODELS)
def test_onnx_predicts_the_same(con: grouplearn.Connection, name: str, tmp_path: Path) -> None:
    index = export(con, name, tmp_path / "out", "onnx")
    task = name.rpartition("_")[2]
    sessions = {
        (group["level"], json.dumps(group["keys"])): onnxruntime.InferenceSession(tmp_path / "out" / group["file"])
        for group in index["groups"]
    }
    expected = by_function(con, name)
    rows = inputs(con, index)
    keys = {row[0]: row[1:] for row in con.execute('SELECT id, g::VARCHAR, "od d" FROM fresh').fetchall()}
    compared = 0
    for number, feed in list(rows.items())[::3] + list(rows.items())[-2:]:
        *values, level = expected[number]
        key = dict(zip([entry["name"] for entry in index["group_by"]], keys[number], strict=True))
        wanted = {part: key[part] for part in (level.split(", ") if level != "()" else [])}
        session = sessions[level, json.dumps(wanted)]
        names = [entry.name for entry in session.get_outputs()]
        assert names == list(dict.fromkeys(["prediction", SHOWN[task]]))
        found = session.run(None, {k: v for k, v in feed.items() if k in {i.name for i in session.get_inputs()}})
        shares = found[-1].ravel().tolist()
        if values[0] is None:
            assert np.isnan(shares).all()
            assert task == "value" or found[0].item() == ""
            continue
        ordered = sorted(index["classes"]) if task == "multiclass" else [""]
        shares = [shares[index["classes"].index(c)] for c in ordered] if task == "multiclass" else shares
        np.testing.assert_allclose(shares, values[: len(shares)], rtol=1e-5, atol=1e-5)
        if task != "value":
            assert task == "binary" or found[0].item() == values[-1]
        compared += 1
    assert compared > 50


def test_lightgbm_loads_its_models(con: grouplearn.Connection, tmp_path: Path) -> None:
    index = export(con, "trees_value", tmp_path / "out", "lightgbm")
    query = "SELECT g.group_id, a.content FROM grouplearn.artifacts a JOIN grouplearn.groups g USING (model, group_id)"
    query += " JOIN grouplearn.models m USING (model) WHERE model_name = 'trees_value' AND a.config = g.best"
    own = dict(con.execute(query).fetchall())
    rng = np.random.default_rng(0)
    assert len(index["groups"]) == len(own) > 4
    for group in index["groups"]:
        booster = lightgbm.Booster(model_file=str(tmp_path / "out" / group["file"]))
        x = rng.normal(size=(40, booster.num_feature())) * 3
        number = int(group["file"].removeprefix("group_").removesuffix(".txt"))
        mine = lightgbm.Booster(model_str=own[number].decode())
        assert (booster.predict(x) == mine.predict(x)).all()
        assert len(booster.feature_name()) == len(group["features"])
        assert booster.feature_name()[:3] == ["x", "z", "w"]
        assert booster.feature_name()[-8:] == [f"cat_2_{bucket}_" for bucket in range(8)]


@pytest.mark.parametrize("name", ["ridge_value", "net_multiclass"])
def test_safetensors_hold_the_tensors_and_say_what_they_are(
    con: grouplearn.Connection, name: str, tmp_path: Path
) -> None:
    index = export(con, name, tmp_path / "out", "safetensors")
    for group in index["groups"]:
        with safetensors.safe_open(tmp_path / "out" / group["file"], "numpy") as file:
            metadata, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        assert metadata["learner"] == index["learner"]
        assert json.loads(metadata["features"]) == group["features"]
        first = tensors.get("weights", tensors.get("weight_0"))
        assert first.shape[1] == len(group["features"])


@pytest.mark.examples(4)
@pytest.mark.parametrize("name", STORED)
def test_sql_script_runs_in_plain_duckdb(con: grouplearn.Connection, name: str, tmp_path: Path) -> None:
    export(con, name, tmp_path / "out", "sql")
    plain = duckdb.connect()
    plain.execute(f"CREATE TABLE fresh AS FROM '{fresh_rows(con, tmp_path)}'")
    plain.execute((tmp_path / "out" / "model.sql").read_text())
    assert_same(by_macro(plain, name), by_macro(con, name), 1e-12)


def test_sql_script_runs_in_the_stock_shell(con: grouplearn.Connection, tmp_path: Path) -> None:
    shell = shutil.which("duckdb") or str(Path(sys.executable).parent / "duckdb")
    if not Path(shell).exists():
        pytest.skip("the duckdb shell is not installed")
    export(con, "trees_value", tmp_path / "out", "sql")
    commands = (
        f"CREATE TABLE fresh AS FROM '{fresh_rows(con, tmp_path)}';\n.read {tmp_path / 'out' / 'model.sql'}\n"
        ".mode csv\nSELECT id, prediction FROM trees_value_predict(fresh);"
    )
    run = subprocess.run([shell, ":memory:"], input=commands, capture_output=True, text=True, timeout=120, check=True)
    rows = list(csv.DictReader(run.stdout.splitlines()))
    expected = by_macro(con, "trees_value")
    assert len(rows) == len(expected)
    for row in rows:
        assert float(row["prediction"]) == pytest.approx(expected[int(row["id"])][0], rel=1e-9)


def test_onnx_that_is_not_installed_is_said_with_how_to_install_it(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(grouplearn.Error) as error:
        con.execute(f"EXPORT MODEL ridge_value TO '{tmp_path / 'a'}' (FORMAT onnx)").fetchall()
    assert "FORMAT onnx needs the package onnx, which is not installed" in str(error.value)
    assert "Hint: pip install 'grouplearn[onnx]'" in str(error.value)
    assert not list(tmp_path.iterdir())


ARRAYS = {
    "gbdt": ("[x, z]::DOUBLE[]", "[1, 2, 3]::DOUBLE[]"),
    "mlp": ("encode(lpad(w::VARCHAR, 3, '0'))", "'4444'::BLOB"),
    "linear_regression": ("[x, z]::FLOAT[2]", "[1, 2, 3]::FLOAT[]"),
}


@pytest.mark.parametrize("learner", ARRAYS)
def test_arrays_in_sql_and_in_onnx(con: grouplearn.Connection, tmp_path: Path, learner: str) -> None:
    column, too_long = ARRAYS[learner]
    given = {"gbdt": "OVER GRID (num_iterations IN (5))", "mlp": "WITH (epochs = 1)"}.get(learner, "")
    con.execute("BEGIN")
    con.execute(f"CREATE TABLE arrays AS SELECT id, {column} AS a, z, y FROM t WHERE w IS NOT NULL")
    con.execute(f"TRAIN MODEL a_value USING {learner} PREDICT y FEATURES (zscore(z), a) FROM arrays {given}").fetchall()
    assert dict(con.execute("DESCRIBE MODEL a_value").fetchall())["prediction"] == "SQL"
    con.execute("INSERT INTO arrays VALUES (5000, NULL, 1, 2)")
    assert_same(by_macro(con, "a_value", "arrays"), by_function(con, "a_value", "arrays"), 1e-6)
    index = export(con, "a_value", tmp_path / "out", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "out" / index["groups"][0]["file"])
    rows = con.execute("SELECT a, z, prediction FROM a_value_predict(arrays) WHERE id < 200").fetchall()
    lists = [[byte / 255 for byte in a] if isinstance(a, bytes) else a for a, *_ in rows]
    a = np.array([[np.nan if value is None else value for value in row] for row in lists], dtype=np.float64)
    z = np.array([[float(z)] for _, z, _ in rows])
    (found,) = session.run(None, {"a": a, "z": z})
    predicted = np.array([np.nan if value is None else value for *_, value in rows])
    np.testing.assert_allclose(found.ravel(), predicted, rtol=1e-5, atol=1e-5)
    con.execute(f"CREATE TABLE longer AS SELECT 1 AS id, {too_long} AS a, 2 AS z")
    with pytest.raises(
        duckdb.Error, match=r'takes \d values of "a", and (a row has|1 of these rows have) another number'
    ):
        con.execute("FROM a_value_predict(longer)").fetchall()
    con.execute("ROLLBACK")


@pytest.mark.examples(3)
@pytest.mark.parametrize("label", ["y", "y > 5"])
@pytest.mark.parametrize(
    ("learner", "options"), [("linear_regression", ""), ("gbdt", "WITH (num_iterations = 2)"), ("mlp", "")]
)
def test_onnx_of_features_with_the_names_of_a_graph(
    con: grouplearn.Connection, tmp_path: Path, learner: str, options: str, label: str
) -> None:
    learner = "logistic_regression" if ">" in label and learner.startswith("linear") else learner
    names = ["prediction", "probability", "prediction_", "constant_0", "value_1", "value_2", "Z"]
    columns = ", ".join(f'(i % {number + 3})::DOUBLE AS "{name}"' for number, name in enumerate(names))
    con.execute("BEGIN")
    con.execute(f"CREATE TABLE named AS SELECT {columns}, i % 7 + i % 5 AS y, i FROM range(120) AS r(i)")
    features = ", ".join(f'"{name}"' for name in names)
    con.execute(f"TRAIN MODEL named_so USING {learner} PREDICT {label} AS y FEATURES ({features}) FROM named {options}")
    index = export(con, "named_so", tmp_path / "out", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "out" / index["groups"][0]["file"])
    outputs = [each.name for each in session.get_outputs()]
    assert outputs == (["prediction__", "probability_"] if ">" in label else ["prediction__"])
    rows = np.array(con.execute(f"SELECT {features} FROM named ORDER BY i").fetchall())
    found = session.run(None, {name: rows[:, [column]] for column, name in enumerate(names)})[-1]
    shown = "probability" if ">" in label else "value"
    query = f"SELECT predict('named_so', named).{shown} FROM named ORDER BY i"
    expected = [value for (value,) in con.execute(query).fetchall()]
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-5, atol=1e-5)
    con.execute("ROLLBACK")


def test_import_into_another_database_and_schema(con: grouplearn.Connection, tmp_path: Path) -> None:
    export(con, "trees_value", tmp_path / "a", "native")
    con.execute("ATTACH ':memory:' AS other; CREATE SCHEMA other.s")
    assert (
        con.execute(f"IMPORT MODEL other.s.trees_value FROM '{tmp_path / 'a'}'").fetchall()[0][0].startswith("model tr")
    )
    own = con.execute("SELECT id, prediction FROM trees_value_predict(fresh) ORDER BY id").fetchall()
    assert con.execute("SELECT id, prediction FROM other.s.trees_value_predict(fresh) ORDER BY id").fetchall() == [
        (number, pytest.approx(value, rel=1e-12)) for number, value in own
    ]
    con.execute("DETACH other")


@pytest.mark.parametrize(
    ("learner", "options", "first"),
    [
        ("kmeans", "", "cluster"),
        ("pca", "", "projection"),
        ("pca", "WITH (whiten = true, n_components = 3)", "projection"),
    ],
)
def test_onnx_of_learners_without_a_label(
    con: grouplearn.Connection, tmp_path: Path, learner: str, options: str, first: str
) -> None:
    name, second = f"without_{learner}{len(options)}", {"cluster": "distance", "projection": "residual"}[first]
    con.execute(
        "CREATE OR REPLACE TABLE few AS SELECT i % 2 AS g, hash(i) % 1000 / 100.0 AS x, 'k' || i % 3 AS k,"
        " CASE WHEN i % 7 > 0 THEN i % 5 END AS h, CASE WHEN i % 11 > 0 THEN hash(i + 7) % 1000 / 9.0 END AS y"
        " FROM range(300) AS r(i)"
    )
    con.execute(
        f"TRAIN MODEL {name} USING {learner} FEATURES (zscore(x), y, onehot(k), hash(h, 3), ordinal(k) AS place)"
        f" FROM few GROUP BY g {options}"
    )
    index = export(con, name, tmp_path / "out", "onnx")
    for group in index["groups"]:
        session = onnxruntime.InferenceSession(tmp_path / "out" / group["file"])
        of_group = f"few AS __grouplearn_row WHERE g = {group['keys']['g']} ORDER BY rowid"
        feed = {}
        for item in index["inputs"]:
            kind, nothing = {"category": (object, "\0"), "hash": (np.int64, -1)}.get(item["kind"], (np.float64, np.nan))
            values = [row[0] for row in con.execute(f"SELECT {item['sql']} FROM {of_group}").fetchall()]
            feed[item["name"]] = np.array([[nothing if value is None else value] for value in values], kind)
        found = dict(zip([entry.name for entry in session.get_outputs()], session.run(None, feed), strict=True))
        macro = con.execute(
            f"SELECT {first}, {second} FROM {name}_predict(few) WHERE g = {group['keys']['g']}"
        ).fetchall()
        missing = [row[1] is None for row in macro]
        assert any(missing)
        assert np.isnan(found[second][:, 0]).tolist() == missing
        nothing = {"cluster": [0], "projection": [np.nan] * found[first].shape[1]}[first]
        wanted = np.array([nothing if row[0] is None else np.atleast_1d(row[0]) for row in macro], np.float64)
        np.testing.assert_allclose(found[first], wanted, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            found[second][:, 0], [np.nan if row[1] is None else row[1] for row in macro], rtol=1e-9, atol=1e-9
        )


@pytest.mark.examples(2)
@pytest.mark.parametrize("values", ["[i % 5, i % 7]", "encode('ab' || chr(97 + (i % 7)::INT))"])
@pytest.mark.parametrize("learner", ["kmeans", "gbdt"])
def test_sql_of_arrays_reads_them_as_the_model_does(tmp_path: Path, values: str, learner: str) -> None:
    rows = f"CREATE TABLE t AS SELECT i % 2 AS g, {values} AS v, i AS y FROM range(120) AS r(i)"
    label = "" if learner == "kmeans" else "PREDICT y"
    with grouplearn.connect(progress=None) as con:
        con.execute(rows)
        con.execute(f"TRAIN MODEL m USING {learner} {label} FEATURES (v) FROM t GROUP BY g")
        con.execute(f"EXPORT MODEL m TO '{tmp_path / 'out'}' (FORMAT sql)")
        expected = con.execute("FROM m_predict(t)").fetchall()
    with duckdb.connect() as other:
        other.execute(rows)
        other.execute((tmp_path / "out" / "model.sql").read_text())
        assert other.execute("FROM m_predict(t)").fetchall() == expected
