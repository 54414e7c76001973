"""Format ``native``: the model's rows of every catalog table as Parquet, restored bit for bit."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from grouplearn.catalog.checks.tables import VERSION
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import TABLES
from grouplearn.data.memory import memory_limit
from grouplearn.exchange.directory_reader import (
    OTHER_VERSION,
    CannotExchange,
    number_in,
    read_file,
    read_manifest,
    readable,
)
from grouplearn.exchange.parquet_bounds import Unbounded, read_table
from grouplearn.store.copying import read_rows


def files(con: duckdb.DuckDBPyConnection, model: StoredModel) -> Iterator[tuple[str, bytes]]:
    """Yield a Parquet file per catalog table."""
    for name in TABLES:
        sink = io.BytesIO()
        _parquet().write_table(read_rows(con, model, name), sink, compression="zstd")
        yield _file(name), sink.getvalue()


def read(path: Path) -> dict[str, Any]:
    """Return the rows of every catalog table of an exported model; each file's SHA-256 is checked before it is parsed."""
    manifest = read_manifest(path)
    if manifest.get("format") != "native":
        message = f'directory "{path}" is an export in format {readable(manifest.get("format"))}, and IMPORT MODEL reads native'
        raise CannotExchange(message, "Export the model with (FORMAT native).")
    version = number_in(manifest, "catalog_version")
    if version != VERSION:
        message = f"the export has tables of version {version}, and this version reads version {VERSION}"
        raise CannotExchange(message, OTHER_VERSION)
    return {name: _parsed(name, read_file(path, manifest, _file(name))) for name in TABLES}


def _parsed(name: str, content: bytes) -> Any:
    try:
        return read_table(content, memory_limit())
    except (pa.ArrowException, OSError, Unbounded, UnicodeDecodeError) as error:
        raise CannotExchange(f"file {_file(name)} of the export cannot be read as Parquet: {error}") from None


def _parquet() -> Any:
    import pyarrow.parquet  # only needed for exports

    return pyarrow.parquet


def _file(name: str) -> str:
    return f"{name}.parquet"
