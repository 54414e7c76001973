"""``EXPORT MODEL``: the formats of a model, and writing its directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from grouplearn.catalog.checks.tables import VERSION
from grouplearn.catalog.checks.trust import check
from grouplearn.catalog.records import StoredModel
from grouplearn.exchange import native, plain_files, sql_script
from grouplearn.exchange.dialect_files import Dialect, dialect_files
from grouplearn.exchange.directory_writer import WrittenExport, write
from grouplearn.exchange.onnx import files as onnx_files
from grouplearn.models.forms.forms import form_of


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A format: the files of a model by name and content, and the reason if a model cannot be exported to it, else None.

    ``evaluated``: readers of the files evaluate expressions of the model; in other formats these are data, which are
    checked before use.
    """

    files: Callable[[duckdb.DuckDBPyConnection, StoredModel], Iterator[tuple[str, bytes]]]
    lacking: Callable[[StoredModel], str | None]
    evaluated: bool = False


def _of_scores(lacking: Callable[[StoredModel], str | None]) -> Callable[[StoredModel], str | None]:
    """Return the reason of a format that has scores alone."""
    return lambda model: "its probabilities are calibrated" if model.definition.calibrate else lacking(model)


#: The formats by their name in EXPORT MODEL.
FORMATS: Mapping[str, ExportFormat] = {
    "native": ExportFormat(native.files, lambda _: None),
    "onnx": ExportFormat(onnx_files.files, _of_scores(onnx_files.lacking)),
    "lightgbm": ExportFormat(
        plain_files.lightgbm_files, _of_scores(lambda model: None if _is_text(model) else "it has no trees")
    ),
    "safetensors": ExportFormat(
        plain_files.safetensors_files,
        _of_scores(lambda model: "its trees are not tensors" if _is_text(model) else None),
    ),
    "sql": ExportFormat(sql_script.files, lambda model: model.form.reason or None, evaluated=True),
}


def _is_text(model: StoredModel) -> bool:
    return form_of(model.definition).artifact == "lightgbm"


def export(
    con: duckdb.DuckDBPyConnection,
    model: StoredModel,
    kind: str,
    path: Path,
    *,
    overwrite: bool,
    dialect: Dialect | None = None,
) -> WrittenExport:
    """Write a model's directory in a format that it supports, ``sql`` in the dialect of another database if one is given;
    raises CannotExchange."""
    check(con, model.definition)
    facts: dict[str, Any] = {
        "format": kind,
        "catalog_version": VERSION,
        "model": model.definition.name,
        "learner": model.definition.shown_learner,
        "statement": model.definition.statement,
        **({} if dialect is None else {"dialect": dialect.database.name}),
    }
    files = FORMATS[kind].files(con, model) if dialect is None else dialect_files(con, model, dialect)
    return write(path, facts, files, overwrite=overwrite)
