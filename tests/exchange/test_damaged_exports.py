"""Exports from a stranger: pipes, links and devices in the place of files, sizes that lie, Parquet that unpacks without end."""

import base64
import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.thorough import enough

import grouplearn
from grouplearn.exchange.parquet_bounds import Unbounded, read_table


def make(folder: Path) -> None:
    """Export a small model to ``folder / "export"``."""
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, 'k' || (i % 4) AS k, i % 7 AS y FROM range(60) AS r(i)"
        )
        con.execute(
            "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x, onehot(k)) FROM t GROUP BY g"
        ).fetchall()
        con.execute(f"EXPORT MODEL m TO '{folder / 'export'}'").fetchall()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    make(folder)
    return folder / "export"


@pytest.fixture
def export(exported: Path, tmp_path: Path) -> Path:
    shutil.copytree(exported, tmp_path / "export")
    return tmp_path / "export"


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        yield connection


def manifest_of(export: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((export / "manifest.json").read_text())
    return found


def sealed(export: Path, name: str, content: bytes) -> None:
    """Put another file in the place of one, and say so in the manifest."""
    (export / name).write_bytes(content)
    manifest = manifest_of(export)
    entry = next(entry for entry in manifest["files"] if entry["name"] == name)
    entry |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (export / "manifest.json").write_text(json.dumps(manifest))


def in_place_of(name: str, make: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(export: Path) -> None:
        (export / name).unlink()
        make(export / name)

    return change


def said_to_have(n_bytes: Any) -> Callable[[Path], None]:
    def change(export: Path) -> None:
        manifest = manifest_of(export)
        manifest["files"][0]["bytes"] = n_bytes
        (export / "manifest.json").write_text(json.dumps(manifest))

    return change


def numbered(export: Path, number: str) -> None:
    """Put a number into the manifest that Python does not write."""
    said_to_have("NUMBER")(export)
    text = (export / "manifest.json").read_text()
    (export / "manifest.json").write_text(text.replace('"NUMBER"', number))


def sparse(path: Path) -> None:
    """Make a file of 16 GB that takes no room."""
    with path.open("wb") as file:
        file.truncate(1 << 34)


def many_parts(path: Path) -> None:
    """Make a small file of JSON that takes 20 times its size in memory."""
    path.write_bytes(b"[" + b"[]," * (1 << 21) + b"0]")


ODD_FILES = {
    "pipe": (in_place_of("models.parquet", lambda path: os.mkfifo(path)), "models.parquet of the export is no regular file"),
    "pipe for a manifest": (in_place_of("manifest.json", lambda path: os.mkfifo(path)), "is no regular file"),
    "device": (in_place_of("groups.parquet", lambda path: path.symlink_to("/dev/zero")), "groups.parquet .* is a link"),
    "link": (in_place_of("groups.parquet", lambda path: path.symlink_to("/etc/passwd")), "groups.parquet .* is a link"),
    "link for a manifest": (in_place_of("manifest.json", lambda path: path.symlink_to("/dev/zero")), "is a link"),
    "directory": (in_place_of("trials.parquet", lambda path: path.mkdir()), "trials.parquet of the export is no regular file"),
    "huge manifest": (in_place_of("manifest.json", sparse), "bytes, which no manifest has"),
    "many parts": (in_place_of("manifest.json", many_parts), "lists and objects"),
    "huge file": (in_place_of("models.parquet", sparse), "it has .* bytes, and manifest.json says"),
    "fewer bytes": (said_to_have(7), r"it has [\d,]+ bytes, and manifest.json says 7"),
    "no bytes": (said_to_have(None), "is not one of an exported model"),
    "bytes as text": (said_to_have("7"), "is not one of an exported model"),
    "bytes of any file": (said_to_have(2**63), "is not one of an exported model"),
    "bytes of 4,000 digits": (said_to_have(10**4000), "is not one of an exported model"),
    "bytes of 5,000 digits": (lambda export: numbered(export, "9" * 5000), "is damaged: it is not JSON"),
    "bytes below 0": (said_to_have(-1), "is not one of an exported model"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_FILES)
def test_only_regular_files_of_the_size_are_read(con: grouplearn.Connection, export: Path, name: str) -> None:
    change, told = ODD_FILES[name]
    change(export)
    with pytest.raises(grouplearn.Error, match=told) as raised:
        con.execute(f"IMPORT MODEL m FROM '{export}'").fetchall()
    assert len(str(raised.value).splitlines()[0]) < 200


@pytest.mark.parametrize("name", ["../models.parquet", "/etc/passwd", "a/b", "", ".", "..", "a\nb", "a\x00b", "\ud800"])
def test_names_in_a_manifest_are_those_of_exports(con: grouplearn.Connection, export: Path, name: str) -> None:
    manifest = manifest_of(export)
    manifest["files"].append({"name": name, "bytes": 1, "sha256": ""})
    (export / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(grouplearn.Error, match=r"manifest.json of that directory is not one of an exported model"):
        con.execute(f"IMPORT MODEL m FROM '{export}'").fetchall()


@pytest.mark.parametrize("name", ["layout", "catalog_version"])
@pytest.mark.parametrize("version", [None, "3", "1", [3], {"a": 3}, 3.0, 1e300, True, 10**400, "\ud800", "x" * 5000])
def test_versions_that_are_none(con: grouplearn.Connection, export: Path, name: str, version: object) -> None:
    (export / "manifest.json").write_text(json.dumps(manifest_of(export) | {name: version}))
    with pytest.raises(grouplearn.Error, match=rf"{name} of manifest.json is .*, and not a whole number") as raised:
        con.execute(f"IMPORT MODEL m FROM '{export}'").fetchall()
    assert len(str(raised.value).splitlines()[0]) < 200
    str(raised.value).encode()


# --- Parquet -------------------------------------------------------------------------------------------------------


def repeated(value: object, count: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array([value]))


BOMBS = {
    "texts": lambda: {"a": repeated("x" * 500_000, 100_000)},
    "texts in one list": lambda: {"a": pa.ListArray.from_arrays([0, 100_000], repeated("x" * 500_000, 100_000))},
    "numbers": lambda: {"a": repeated(1.5, 20_000_000)},
    "bytes": lambda: {"a": repeated(b"x" * 500_000, 100_000)},
}


@pytest.mark.parametrize("name", BOMBS)
def test_parquet_is_bounded_before_it_is_expanded(name: str) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table(BOMBS[name]()), sink, compression="zstd", store_schema=False)
    content = sink.getvalue()
    assert len(content) < 200_000
    before = pa.total_allocated_bytes()
    with pytest.raises(Unbounded, match=r"its rows would take"):
        read_table(content, 1 << 27)
    assert pa.total_allocated_bytes() - before < 1 << 27


def test_what_fits_comes_back_as_it_was() -> None:
    table = pa.table(
        {
            "text": ["a", None, "b"],
            "lists": [[["x"], []], None, [None, ["y", None]]],
            "map": pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
            "structs": [[{"a": "1", "b": 2}], [], [{"a": None, "b": None}]],
            "bytes": [b"1", b"", None],
        }
    )
    for rows in (table, table.slice(0, 0)):
        sink = io.BytesIO()
        pq.write_table(rows, sink, compression="zstd")
        assert read_table(sink.getvalue(), 1 << 20).equals(rows)


def of_another_schema(column: pa.Array, said: pa.Field) -> bytes:
    """Return Parquet of one column of which its footer says that Arrow is to make another type."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema([pa.field(said.name, column.type)]), store_schema=False) as writer:
        writer.write_table(pa.table({said.name: column}))
        schema = base64.b64encode(pa.schema([said]).serialize().to_pybytes()).decode()
        writer.add_key_value_metadata({"ARROW:schema": schema})
    return sink.getvalue()


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([None] * 3, pa.list_(pa.int32())), pa.list_(pa.int32(), 1 << 28)),
        (pa.array([b"A"] * 3, pa.binary(1)), pa.opaque(pa.binary(1), "hugeint", "DuckDB")),
        (pa.array([b""] * 3, pa.binary()), pa.opaque(pa.binary(), "bit", "DuckDB")),
        (pa.array([[b"A"]] * 3, pa.list_(pa.binary(1))), pa.list_(pa.opaque(pa.binary(1), "hugeint", "DuckDB"))),
        (pa.array(["a"] * 3), pa.dictionary(pa.int32(), pa.string())),
        (pa.array([1] * 3), pa.duration("s")),
    ],
)
def test_types_that_no_export_has(column: pa.Array, said: pa.DataType) -> None:
    with pytest.raises(Unbounded, match=r"column .* is of type .*, which no export has"):
        read_table(of_another_schema(column, pa.field("reason", said)), 1 << 30)


def test_what_is_said_of_a_column_besides_its_type_is_not_handed_on() -> None:
    known = {"ARROW:extension:name": "duckdb.hugeint", "ARROW:extension:metadata": ""}
    element = pa.field("element", pa.string(), metadata=known)
    content = of_another_schema(pa.array([["a"]]), pa.field("reason", pa.list_(element), metadata=known))
    found = read_table(content, 1 << 30)
    assert (found.schema.field(0).metadata, found.schema.field(0).type.value_field.metadata) == (None, None)
    assert found.to_pydict() == {"reason": [["a"]]}


def test_types_that_are_nested_without_end() -> None:
    """The reader would follow them one inside the other until its stack is full."""
    kind = pa.int32()
    for _ in range(40):
        kind = pa.list_(kind)
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array([], kind)}), sink)
    with pytest.raises(Unbounded, match="nested too deep"):
        read_table(sink.getvalue(), 1 << 30)


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1" * 3, b"PAR1\xff\xff\xff\x7fPAR1", b"PAR1" + bytes(100) + b"\x50\x00\x00\x00PAR1"]
)
def test_bytes_that_are_no_parquet(con: grouplearn.Connection, export: Path, content: bytes) -> None:
    sealed(export, "models.parquet", content)
    with pytest.raises(grouplearn.Error, match=r"file models.parquet of the export cannot be read as Parquet: "):
        con.execute(f"IMPORT MODEL m FROM '{export}'").fetchall()


def import_mutants(folder: Path, seed: int, count: int) -> None:
    """Import exports some bytes of which are others, their digests right: run in a process of its own."""
    rng = random.Random(seed)
    names = sorted(path.name for path in (folder / "export").glob("*.parquet"))
    with grouplearn.connect(progress=False) as con:
        for number in range(count):
            shutil.rmtree(folder / "mutant", ignore_errors=True)
            shutil.copytree(folder / "export", folder / "mutant")
            name = names[number % len(names)]
            content = bytearray((folder / "mutant" / name).read_bytes())
            for _ in range(rng.randint(1, 4)):
                content[rng.randrange(len(content))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
            sealed(folder / "mutant", name, bytes(content))
            try:
                con.execute(f"IMPORT OR REPLACE MODEL m FROM '{folder / 'mutant'}'").fetchall()
            except duckdb.Error:
                continue
            con.execute("SHOW MODELS").fetchall()
    print("done")


def test_mutants_do_no_harm(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "export")
    script = (
        "import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/..']; from pathlib import Path;"
        f" import test_damaged_exports as t; t.import_mutants(Path(sys.argv[2]), 6, {enough(60, 24)})"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "done\n"
