"""Rows of a stored model that are deleted to be written again, by RETRY FAILED, REFRESH and ADD TRIAL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from grouplearn.catalog.records import StoredModel, Watermark
from grouplearn.catalog.rows.state_rows import load_watermark, watermarks
from grouplearn.catalog.schema import table
from grouplearn.models.forms.form import Best, SqlForm
from grouplearn.models.forms.forms import form_of
from grouplearn.prediction.group_models import load_groups
from grouplearn.sqltext import literal
from grouplearn.store import writer as store


def delete_rows(
    con: duckdb.DuckDBPyConnection,
    model: StoredModel,
    name: str,
    pairs: Sequence[tuple[int, int | None]],
    also: str = "true",
) -> None:
    """Delete the rows of groups in a table, or of their configurations."""
    groups, configs = zip(*pairs, strict=True) if pairs else ((), ())
    values = pa.table({"group_id": pa.array(groups, pa.int32()), "config": pa.array(configs, pa.int32())})
    with store.registered(con, values) as source:
        con.execute(
            f"DELETE FROM {table(model.location.catalog, name)} AS t USING {source} AS source"
            f" WHERE t.model = '{model.id}'::UUID AND source.group_id = t.group_id AND {also}"
        )


def replace_watermarks(
    con: duckdb.DuckDBPyConnection, model: StoredModel, watermark: Watermark, learned: Mapping[int, bool]
) -> None:
    """Write again the latest times of groups, which have one if they have ``learned`` from their rows."""
    catalog, before = model.location.catalog, load_watermark(con, model)
    if before is not None and before.type != watermark.type:
        value = f"CAST(CAST(CAST(value AS {before.type}) AS {watermark.type}) AS VARCHAR)"
        changes = f"type = {literal(watermark.type)}, value = {value}"
        con.execute(f"UPDATE {table(catalog, 'watermarks')} SET {changes} WHERE model = '{model.id}'::UUID")
    delete_rows(con, model, "watermarks", [(number, None) for number in learned])
    store.insert(con, catalog, model.id, [("watermarks", watermarks(watermark, learned))])


def rewrite_predictions(con: duckdb.DuckDBPyConnection, model: StoredModel) -> SqlForm:
    """Write again what the model's macro reads of the best trials; return the form in which the model predicts."""
    form = form_of(model.definition)
    if not form.tables:
        return model.form
    for name in form.tables:
        con.execute(f"DELETE FROM {table(model.location.catalog, name)} WHERE model = '{model.id}'::UUID")
    best = [Best(group.id, group.fitted, group.artifact) for group in load_groups(con, model)]
    predicts = form.prediction(model.definition, best)
    store.insert(con, model.location.catalog, model.id, predicts.tables)
    return predicts.form
