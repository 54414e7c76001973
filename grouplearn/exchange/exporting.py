"""``EXPORT MODEL``: which formats a model has, and its directory written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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

Files = Iterator[tuple[str, bytes]]
_MAKERS: Mapping[str, Callable[[duckdb.DuckDBPyConnection, StoredModel], Files]] = {
    "native": native.files,
    "onnx": onnx_files.files,
    "lightgbm": plain_files.lightgbm_files,
    "safetensors": plain_files.safetensors_files,
    "sql": sql_script.files,
}


def formats_of(model: StoredModel) -> dict[str, str | None]:
    """Return every format with the reason why the model has none of that kind, None for one that it has."""
    definition = model.definition
    trees = registry.form(definition.learner) == "trees"
    own = not definition.linear and registry.form(definition.learner) == "own"
    return {
        "native": None,
        "onnx": "only its module, which is Python, knows what its tensors mean" if own else _no_graph(model),
        "lightgbm": None if trees else "it has no trees",
        "safetensors": "its trees are not tensors" if trees else None,
        "sql": model.form.reason or None,
    }


def _no_graph(model: StoredModel) -> str | None:
    definition = model.definition
    if registry.has_linear_leaves(definition.learner, definition.configs):
        return "the leaves of its trees are linear models"
    return "it predicts arrays" if definition.label_length else None


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
    return write(path, facts, _MAKERS[kind](con, model), overwrite=overwrite)
