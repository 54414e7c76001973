"""``EXPORT MODEL``: which formats a model has, and its directory written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from grouplearn.catalog.checks.trust import check
from grouplearn.catalog.models import StoredModel
from grouplearn.catalog.schema import VERSION
from grouplearn.exchange import native, plain_files, sql_script
from grouplearn.exchange.onnx import files as onnx_files
from grouplearn.exchange.writing import WrittenExport, write
from grouplearn.learners import registry


@dataclass(frozen=True, slots=True)
class Format:
    """A format: the name and content of each file of a model, and why a model has none of that kind, None for one that has.

    ``evaluated``: whoever reads the files has expressions of the model evaluated; of others they are data, which is looked at
    before it is used.
    """

    files: Callable[[duckdb.DuckDBPyConnection, StoredModel], Iterator[tuple[str, bytes]]]
    lacking: Callable[[StoredModel], str | None]
    evaluated: bool = False


#: The formats by the name that EXPORT MODEL has for them.
FORMATS: Mapping[str, Format] = {
    "native": Format(native.files, lambda _: None),
    "onnx": Format(onnx_files.files, onnx_files.lacking),
    "lightgbm": Format(plain_files.lightgbm_files, lambda model: None if _has_trees(model) else "it has no trees"),
    "safetensors": Format(
        plain_files.safetensors_files, lambda model: "its trees are not tensors" if _has_trees(model) else None
    ),
    "sql": Format(sql_script.files, lambda model: model.form.reason or None, evaluated=True),
}


def _has_trees(model: StoredModel) -> bool:
    return registry.form(model.definition.learner) == "trees"


def export(
    con: duckdb.DuckDBPyConnection, model: StoredModel, kind: str, path: Path, *, overwrite: bool
) -> WrittenExport:
    """Write the directory of a model in a format that it has; raises CannotExchange."""
    check(con, model.definition)
    facts: dict[str, Any] = {
        "format": kind,
        "catalog_version": VERSION,
        "model": model.definition.name,
        "learner": model.definition.learner,
        "statement": model.definition.statement,
    }
    return write(path, facts, FORMATS[kind].files(con, model), overwrite=overwrite)
