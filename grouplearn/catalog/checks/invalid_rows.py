"""Invalid rows in a model's catalog tables, found in SQL before they are read.

Whoever wrote the file may have left out constraints. Two rows for one tree node double the rows of every join that
predicts, a missing level ends a list, a short list ends a loop: each table that a statement reads is checked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import duckdb

from grouplearn.catalog.checks.damage import damaged
from grouplearn.catalog.checks.fragments import is_simple_type
from grouplearn.catalog.checks.trust import check, hiding
from grouplearn.catalog.records import ModelDefinition, StoredModel
from grouplearn.catalog.schema import table
from grouplearn.data.encoding.categories.category import NULL
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.data.encoding.types import bytewise
from grouplearn.errors import DataError, data_error
from grouplearn.models.forms.form import Checks, every, once
from grouplearn.models.forms.forms import TABLES
from grouplearn.sqltext import literal

#: Tables with texts that are cast to the model's types; they are checked first.
_OF_CASTS = frozenset({"models", "groups"})
#: Row counts of a group, and their maximum: their sum over all groups must also fit.
_COUNTS, _MOST_ROWS = ("n_rows", "n_train", "n_valid", "n_skipped"), 1 << 48


def refuse_invalid_rows(con: duckdb.DuckDBPyConnection, model: StoredModel, parts: Iterable[str]) -> None:
    """Raise DataError if one of these tables has invalid rows for the model."""
    definition, catalog = model.definition, model.location.catalog
    for part in parts:
        if part in _OF_CASTS:
            check(con, definition)
        flaws = _checks(part, definition)
        if not flaws:
            continue
        checks = ", ".join(f"coalesce({sound}, true)" for sound in flaws.values())
        query = f"SELECT {checks} FROM {table(catalog, part)} AS t WHERE t.model = '{model.id}'::UUID"
        try:
            (found,) = con.sql(query).fetchall()  # by sql(), after whose errors a transaction of DuckDB 2 goes on
        except (duckdb.CatalogException, duckdb.BinderException, duckdb.ParserException) as error:  # unknown type
            raise _unsound(con, model, part, str(error).splitlines()[0]) from None
        for flaw, sound in zip(flaws, found, strict=True):
            if not sound:
                raise _unsound(con, model, part, flaw)


def _unsound(con: duckdb.DuckDBPyConnection, model: StoredModel, part: str, flaw: str) -> DataError:
    """Return the error of a flaw, which a macro may have made up that hides a function by which flaws are found."""
    try:
        macro = hiding(con)
    except duckdb.TransactionException:  # the error has ended the transaction
        macro = None
    if macro is None:
        return damaged(model.location.catalog, model.location.name, part, flaw)
    return data_error(
        f'model "{model.location.name}" cannot be read while macro {macro.whole} hides DuckDB\'s own function of that name\n\n'
        f"Hint: {macro.drop}, or give it another name"
    )


def _fits(text: str, kind: str) -> str:
    """Return the condition that a text is NULL or castable to the type that readers cast it to."""
    return f"{text} IS NULL OR TRY_CAST({text} AS {kind}) IS NOT NULL"


def _models(definition: ModelDefinition) -> Checks:
    kind = definition.label_type
    if kind is None or kind == "VARCHAR" or not definition.classes or definition.label_length:
        return {}
    others = f"len(list_filter(classes, lambda text: NOT ({_fits('text', kind)})))"
    return {"a class does not have the label's type": every(f"{others} = 0")}


def _groups(definition: ModelDefinition) -> Checks:
    n_items, n_classes = len(definition.items), len(definition.classes)
    lists = ("starts", "fills", "centers", "scales", "categories", "category_values")
    lengths = " AND ".join(f"len({name}) = {n_items}" for name in lists)
    known = " AND ".join(f"list_count({name}) = {n_items}" for name in lists if name != "fills")
    flaws = {
        "two rows are the same group": once("group_id"),
        "a group has no number": every("group_id >= 0"),
        "a group has a level that the model does not have": every(f"level >= 0 AND level < {len(definition.sets)}"),
        "two groups have the same keys": once("level", bytewise("keys", "VARCHAR[]")),
        f"a group does not have {len(definition.keys)} keys": every(f"len(keys) = {len(definition.keys)}"),
        **{
            f'the value of key "{key.name}" is not of its type in a group': every(_fits(f"keys[{place}]", key.type))
            for place, key in enumerate(definition.keys, start=1)
            if key.type != "VARCHAR"
        },
        "the number of rows of a group is missing": every("n_rows IS NOT NULL"),
        "the number of rows of a group is negative or too large": every(
            " AND ".join(f"({name} IS NULL OR {name} BETWEEN 0 AND {_MOST_ROWS})" for name in _COUNTS)
        ),
        "the configuration of a group's best trial does not exist": every(
            f"best IS NULL OR (best >= 0 AND best < {len(definition.configs)})"
        ),
        f"a group does not have {n_items} encoders": every(
            f"(features IS NULL AND best IS NULL) OR (features IS NOT NULL AND {lengths} AND {known})"
        ),
        "the calibration of a group is no function of probabilities": every(
            "calibration IS NULL OR (len(calibration) = 2 AND len(calibration[1]) > 0 AND list_count(calibration[1]) ="
            " len(calibration[1]) AND len(calibration[2]) = len(calibration[1]) AND list_count(calibration[2]) ="
            " len(calibration[2]) AND list_sort(list_distinct(calibration[1])) = calibration[1])"
        ),
        "a feature column has no name": every("features IS NULL OR list_count(features) = len(features)"),
        "a group has a category that is NULL": every(
            "features IS NULL OR list_count(flatten(categories)) = len(flatten(categories))"
        ),
        "a group does not have a number for each category whose encoding is one": every(
            f"features IS NULL OR ({_numbers_fit(definition)})"
        ),
        "the ends of a group's bins are not ascending numbers": every(f"features IS NULL OR ({_bins_fit(definition)})"),
        "the feature columns of a group differ from those of its encoders": every(
            f"features IS NULL OR ({_columns_fit(definition)})"
        ),
    }
    if not definition.label.has_classes:
        flaws["a group has classes, and the label has none"] = every("classes IS NULL OR len(classes) = 0")
    elif n_classes < 2:
        flaws["a group has a model, and the label does not have two classes"] = every("best IS NULL")
    else:
        inside = f"list_min(classes) >= 0 AND list_max(classes) < {n_classes}"
        flaws["the classes of a group differ from those of the model"] = every(
            f"best IS NULL OR (len(classes) > 0 AND {inside} AND len(list_distinct(classes)) = len(classes))"
        )
    return flaws


def _columns_fit(definition: ModelDefinition) -> str:
    """Return the condition that features and starts are as the encoders would make them."""
    if not definition.items:
        return "len(features) = 0 AND len(starts) = 0"
    # -1 categories: as many as their list has.
    widths = [encoder_of(entry.item).stored_width(entry.item, -1) for entry in definition.items]
    width = "CASE WHEN w < 0 THEN len(categories[i]) ELSE w END"
    ends = f"list_transform({widths}::INTEGER[], lambda w, i: {width} + starts[i])"
    return f"starts[1] = 0 AND list_append(starts[2:], len(features)) = {ends}"


def _numbers_fit(definition: ModelDefinition) -> str:
    """Return the condition that the categories of items that learn from labels have a number each, and others none."""
    conditions = ["true"]
    for place, entry in enumerate(definition.items, start=1):
        numbers = f"category_values[{place}]"
        if encoder_of(entry.item).learns_labels:
            finite = f"len(list_filter({numbers}, lambda number: isfinite(number))) = len(categories[{place}])"
            conditions.append(f"len({numbers}) = len(categories[{place}]) AND {finite} AND isfinite(fills[{place}])")
        else:
            conditions.append(f"len({numbers}) = 0")
    return " AND ".join(conditions)


def _bins_fit(definition: ModelDefinition) -> str:
    """Return the condition that the bins of each item have lower ends, the first of them -inf."""
    conditions = ["true"]
    for place, entry in enumerate(definition.items, start=1):
        if entry.item.kind == "binned":
            ends = f"list_filter(categories[{place}], lambda text: text <> {literal(NULL)})"
            numbers = f"list_transform({ends}, lambda text: TRY_CAST(text AS DOUBLE))"
            ascend = f"list_sort(list_distinct({numbers})) = {numbers} AND coalesce(({ends})[1], '-inf') = '-inf'"
            conditions.append(f"list_count({numbers}) = len({numbers}) AND {ascend}")
    return " AND ".join(conditions)


def _configs(definition: ModelDefinition) -> Checks:
    numbered = f"count(*) = {len(definition.configs)} AND min(config) = 0 AND max(config) = count(*) - 1"
    return {
        "configurations are not numbered from 0 on": f"count(*) = 0 OR ({numbered} AND {once('config')})",
        **{
            f'the value of hyperparameter "{column.name}" is not of its type': every(
                _fits(f"parameters[{literal(column.name)}]", column.type)
            )
            for column in definition.hyperparameters
            if column.type != "VARCHAR" and is_simple_type(column.type)
        },
    }


def _trials(definition: ModelDefinition) -> Checks:
    return {
        "two rows are the same trial": once("group_id", "config"),
        "the configuration of a trial does not exist": every(
            f"config >= 0 AND config < {len(definition.configs)} AND group_id >= 0"
        ),
        "the status of a trial is not done, stopped, failed or kept": every(
            "status IN ('done', 'stopped', 'failed', 'kept')"
        ),
        "the number of epochs of a trial is negative": every("epochs >= 0"),
        "a trial has more metrics than the model": every(
            f"len(train) <= {len(definition.metrics)} AND len(valid) <= {len(definition.metrics)}"
        ),
    }


def _curves(_: ModelDefinition) -> Checks:
    return {"a point has no epoch": every("epoch >= 0 AND group_id >= 0 AND config >= 0")}


def _artifacts(definition: ModelDefinition) -> Checks:
    flaws = {"two rows belong to the same trial": once("group_id", "config")}
    if definition.is_wide:
        sizes = "list_transform({}, lambda each: len(each))"
        fits = f"{sizes.format('nonzeros')} = list_transform(places, lambda each: len(each) * len(intercept))"
        whole = " AND ".join(f"list_count(flatten({name})) = len(flatten({name}))" for name in ("places", "nonzeros"))
        items = f"len(places) = {len(definition.items)}"
        flaws["weights and columns differ in number"] = every(f"{items} AND {fits} AND {whole}")
    return flaws


def _states(_: ModelDefinition) -> Checks:
    return {"two rows are the state of one group": once("group_id"), "a state has no group": every("group_id >= 0")}


def _refreshed(_: ModelDefinition) -> Checks:
    known = "status IN ('new', 'updated', 'kept', 'failed', 'unchanged')"
    return {"two rows are of one group": once("group_id"), "what was done to a group has no name": every(known)}


def _watermarks(_: ModelDefinition) -> Checks:
    return {
        "two rows are of one group": once("group_id"),
        "groups have times of two kinds": "count(DISTINCT (sql, type)) <= 1",
    }


def _units(_: ModelDefinition) -> Checks:
    blocks = "(first_block IS NULL AND last_block IS NULL) OR (first_block >= 0 AND last_block >= first_block)"
    return {
        "a unit has no number": every("unit >= 0 AND group_id >= 0 AND worker >= 0"),
        "a unit has no configurations": every("list_count(configs) = len(configs)"),
        "a step has no epoch": every("kind IS NOT NULL AND (epoch IS NULL OR epoch >= 1)"),
        "a training step has no blocks": every(f"kind <> 'train' OR (epoch IS NOT NULL AND ({blocks}))"),
        "a unit has no time": every("isfinite(started) AND isfinite(ended)"),
    }


def _errors(_: ModelDefinition) -> Checks:
    return {"an error has no group": every("group_id >= 0 AND reason IS NOT NULL")}


def _profiles(definition: ModelDefinition) -> Checks:
    lists = ("quantiles", "shares", "categories", "counts")
    return {
        "two rows describe the same feature of a group": once("group_id", "item"),
        "a row describes a feature that the model does not have": every(
            f"group_id >= 0 AND item BETWEEN 1 AND {len(definition.items)}"
        ),
        "the number of rows of a feature is negative or too large": every(
            f"n_missing BETWEEN 0 AND n_rows AND n_rows <= {_MOST_ROWS}"
        ),
        "quantiles or categories of a feature lack a number": every(
            "len(quantiles) IS NOT DISTINCT FROM len(shares) AND len(categories) IS NOT DISTINCT FROM len(counts) AND "
            + " AND ".join(f"({name} IS NULL OR list_count({name}) = len({name}))" for name in lists)
        ),
    }


def _held_out(definition: ModelDefinition) -> Checks:
    n_keys, n_classes = len(definition.held_out or ()), len(definition.classes)
    alike = "len(list_filter({}, lambda each: len(each) IS DISTINCT FROM len(labels))) = 0"
    flaws = {
        "a held-out row has no group": every("group_id >= 0"),
        "held-out rows lack a key, a label or a prediction": every(
            f"len(keys) = {n_keys} AND len(outputs) >= {definition.output.width} AND list_count(labels) = len(labels)"
            f" AND {alike.format('keys')} AND {alike.format('outputs')}"
        ),
        **{
            f'the key "{key.name}" of a held-out row is not of its type': every(
                f"len(list_filter(keys[{place}], lambda text: NOT ({_fits('text', key.type)}))) = 0"
            )
            for place, key in enumerate(definition.held_out or (), start=1)
            if key.type != "VARCHAR"
        },
    }
    if definition.label.has_classes:
        inside = f"len(list_filter(labels, lambda y: y < 0 OR y >= {n_classes} OR y <> floor(y))) = 0"
        flaws["the label of a held-out row is no class"] = every(inside)
    return flaws


_OF: Mapping[str, Callable[[ModelDefinition], Checks]] = {
    "models": _models, "past_models": _models, "groups": _groups, "configs": _configs, "trials": _trials, "curves": _curves,
    "artifacts": _artifacts, "states": _states, "refreshed": _refreshed, "watermarks": _watermarks, "units": _units,
    "errors": _errors, "profiles": _profiles, "held_out": _held_out,
}  # fmt: skip


def _checks(part: str, definition: ModelDefinition) -> Checks:
    return _OF[part](definition) if part in _OF else TABLES[part].checks(definition)[part]
