"""The views of a model over the catalog tables: the model table, its weights, its curves, its importances."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import duckdb

from grouplearn.catalog.checks.trust import check
from grouplearn.catalog.notes import NOTHING_SEEN, DataNotes, Judging, notes_sql, suspected_sql
from grouplearn.catalog.records import ModelDefinition
from grouplearn.catalog.schema import first_row, table
from grouplearn.catalog.versions import history_view, versions_view
from grouplearn.data.encoding.encoder import INTERCEPT
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.learners import registry
from grouplearn.learners.contract.problem import OFFSET
from grouplearn.learners.contract.standard_errors import REDUNDANT
from grouplearn.learners.series import methods
from grouplearn.models.forms.drift import endpoints_of, feature_sql
from grouplearn.models.forms.forms import form_of
from grouplearn.models.forms.linear.weights import nonzeros_sql
from grouplearn.models.forms.routed import level_sql
from grouplearn.models.outputs.output import PREDICT, Output
from grouplearn.models.outputs.vectors import VectorView
from grouplearn.sqltext import folded, identifier, literal

#: Suffixes of a model's views; the model table itself has none.
COMMON = ("", "_weights", "_curves", "_importance", "_features", "_schedule", "_versions", "_history")

#: The suffix of a view that models have which keep predictions of held-out rows.
HELD_OUT = "_held_out"

_COMMENTS = {
    "": "One row per group and configuration of the model.",
    "_weights": "Weights of the linear model, on the encoded features; the intercept is feature (intercept).",
    "_curves": "One row per trial and epoch; learners that solve a model in one pass, such as those of series, have one.",
    "_importance": "Importance of every feature column in every trial; weight has a sign, for linear models with one output.",
    "_features": "What each feature was like in the rows that each group was trained on, before it was encoded.",
    "_schedule": "The schedule as it ran: one row per unit and group, or per step of a unit whose group was split.",
    "_held_out": "One row per held-out row: its label, and its prediction by the model that did not learn from it.",
    "_versions": "One row per version of the model that can be used: ALTER MODEL ... USE VERSION.",
    "_history": "One row per TRAIN and REFRESH of the model, also those whose versions are deleted.",
}

#: Columns by which several learners are compared, named unlike any key: see ``compared``, and whether a group has no model.
LEVEL, KEYS, JUDGED, FAILED = (f"__grouplearn_{name}" for name in ("level", "keys", "judged", "failed"))
#: A query in two parts: its columns' names, which may repeat, with their SQL; and FROM with what follows.
View = tuple[list[tuple[str, str]], str]


def view_sql(
    definition: ModelDefinition, model: str, catalog: str | None, suffix: str, also: Sequence[tuple[str, str]] = ()
) -> tuple[str, str]:
    """Return the query of a model's view over the catalog tables of a database (None: the view's own), and its comment.

    The comment says which of its columns have a number in their name. ``also`` are further columns.
    """
    own = next((view for view in definition.output.views if view.suffix == suffix), None)
    make, comment = (_MAKERS[suffix], _COMMENTS[suffix]) if own is None else (partial(_vectors, own), own.comment)
    columns, rows = make(definition, model, catalog)
    names = [name for name, _ in columns]
    numbered = ", ".join(shown for name, shown in zip(names, distinct(names), strict=True) if name != shown)
    told = f" The name without its number belongs to another column: {numbered}." if numbered else ""
    return f"SELECT {select_list([*columns, *also])} {rows}", comment + told


def select_list(columns: Iterable[tuple[str, str]]) -> str:
    """Return ``sql AS "name", ...``; duplicate names get ``_1``, ``_2`` and so on."""
    names, parts = zip(*columns, strict=True)
    return ", ".join(f"{sql} AS {identifier(name)}" for name, sql in zip(distinct(names), parts, strict=True))


def distinct(names: Iterable[str]) -> list[str]:
    """Return the names made different, ignoring case: duplicates get ``_1``, ``_2`` and so on."""
    taken: dict[str, str] = {}
    for name in names:
        free, number = name, 0
        while folded(free) in taken:
            number += 1
            free = f"{name}_{number}"
        taken[folded(free)] = free
    return list(taken.values())


def trial_columns(definition: ModelDefinition) -> list[tuple[str, str]]:
    """Return the columns every view begins with: group columns, level, hyperparameters."""
    parameters = [
        (column.name, f"CAST(c.parameters[{literal(column.name)}] AS {column.type})")
        for column in definition.hyperparameters
    ]
    return [*definition.key_columns("g.keys"), ("model_level", level_sql(definition, "g.level")), *parameters]


def compared(definition: ModelDefinition) -> list[tuple[str, str]]:
    """Return the columns by which the trials of several learners are compared: their group, and what orders them."""
    return [(LEVEL, "g.level"), (KEYS, "g.keys"), (JUDGED, definition.judged_sql("t"))]


def joined(catalog: str | None) -> str:
    """Return FROM with the trials (t), their groups (g) and configs (c)."""
    return (
        f"FROM {table(catalog, 'trials')} AS t"
        f" JOIN {table(catalog, 'groups')} AS g ON g.model = t.model AND g.group_id = t.group_id"
        f" JOIN {table(catalog, 'configs')} AS c ON c.model = t.model AND c.config = t.config"
    )


def where(model: str, *others: str) -> str:
    """Return the condition that the rows of :func:`joined`, and of ``others``, belong to a model."""
    return " AND ".join(f"{alias}.model = '{model}'::UUID" for alias in ("t", "g", "c", *others))


def _trials(definition: ModelDefinition, model: str, catalog: str | None) -> View:
    best = ("is_best", "t.is_best")
    chosen = [("method", _method(catalog))] if _chooses(definition) else []
    columns = [*trial_columns(definition), *chosen, *_result(definition, catalog), best, ("error", "t.error")]
    return columns, f"{joined(catalog)} WHERE {where(model)}"


def _chooses(definition: ModelDefinition) -> bool:
    """Return whether the learner chooses a method for each series."""
    return registry.is_known(definition.learner) and registry.learner(definition.learner).declaration.chooses_method


def _method(catalog: str | None) -> str:
    """Return the SQL of the method of a trial, NULL where it is not the best of its group."""
    own = f"f.model = t.model AND f.group_id = t.group_id AND f.part = {literal(methods.PART)}"
    found = f"SELECT {methods.method_sql('f.vector')} FROM {table(catalog, 'factors')} AS f WHERE {own}"
    return f"CASE WHEN t.is_best THEN ({found}) END"


def _result(definition: ModelDefinition, catalog: str | None) -> list[tuple[str, str]]:
    metrics = [
        (f"{part}_{metric}", f"t.{part}[{place}]")
        for place, metric in enumerate(definition.metrics, start=1)
        for part in ("train", "valid")
    ]
    rows = [(name, f"g.{name}") for name in ("n_rows", "n_train", "n_valid", "n_skipped")]
    factors = f"{table(catalog, 'factors')} AS f WHERE f.model = g.model AND f.group_id = g.group_id"
    rows += [
        (name, f"(SELECT CAST(sum(f.value) AS BIGINT) FROM {factors} AND f.part = {literal(part)})")
        for name, part in definition.output.counted.items()
    ]
    return [
        *rows,
        ("status", "t.status"),
        *metrics,
        ("epochs", "t.epochs"),
        ("converged", "t.converged"),
        ("seconds", "t.seconds"),
    ]


def best_sql(
    con: duckdb.DuckDBPyConnection,
    definition: ModelDefinition,
    model: str,
    catalog: str,
    *,
    validated: bool,
    groups: Sequence[int] | None = None,
    seen: DataNotes = NOTHING_SEEN,
    of_several: bool = False,
) -> str:
    """Return the query of each group's best trial; failed groups come last, with the reason of their first trial.

    It fits into a terminal: metrics of one part of the rows, held-out ones if there are any, the optimised one first; skipped
    rows if there are any. The model table has the rest. ``groups`` are the numbers of those to show, None for all. A column
    ``note`` is added if there is something to note, also of what was ``seen`` in the rows. ``of_several``: the model is of
    one of several learners, and columns to compare them are added. Raises NotTrusted if the definition, which may come from
    a run's directory, cannot be used as SQL.
    """
    check(con, definition)
    chosen = "" if groups is None else f" AND g.group_id IN ({', '.join(map(str, groups))})"
    # Most models have nothing to note, which a query of the trials alone tells in a tenth of the time.
    asked = suspected_sql(definition, model, catalog, validated)
    found = {number for (number,) in con.execute(asked).fetchall()}
    part = "valid" if validated and 3 in found else "train"
    places = sorted(enumerate(definition.metrics, start=1), key=lambda each: each[1] != definition.metric)
    metrics = [(f"{part}_{name}", f"t.{part}[{place}]") for place, name in places]
    notes = notes_sql(definition, model, catalog, Judging(validated, of_several), seen)
    suspected = 2 in found or bool(seen)
    noted = suspected and first_row(con, f"SELECT 1 FROM ({notes}) WHERE note IS NOT NULL LIMIT 1") is not None
    level = ("model_level", level_sql(definition, "g.level"))
    columns = [
        *(column for column in trial_columns(definition) if column != level or len(definition.sets) > 1),
        *((name, f"g.{name}") for name in (("n_rows", "n_skipped") if 1 in found else ("n_rows",))),
        *metrics,
        ("status", "t.status"),
        ("error", "CASE WHEN t.status <> 'done' THEN t.error END"),
    ]
    columns += [("note", "m.note")] if noted else []
    columns += [*compared(definition), (FAILED, "t.status = 'failed'")] if of_several else []
    # Only hyperparameters are read from it, and each further join takes DuckDB half a millisecond to plan.
    chosen_configs = f" LEFT JOIN {table(catalog, 'configs')} AS c ON c.model = g.model AND c.config = g.best"
    return (
        f"SELECT {select_list(columns)} FROM {table(catalog, 'groups')} AS g"
        f" JOIN {table(catalog, 'trials')} AS t"
        " ON t.group_id = g.group_id AND t.config = coalesce(g.best, 0)"  # of one model, as said below
        f"{chosen_configs if definition.hyperparameters else ''}"
        f"{f' LEFT JOIN ({notes}) AS m ON m.group_id = g.group_id' if noted else ''}"
        f" WHERE g.model = '{model}'::UUID AND t.model = '{model}'::UUID{chosen}"
        " ORDER BY coalesce(list_position(['kept', 'failed'], t.status), 0) ASC, g.level ASC, g.group_id ASC"
    )


def each_weight(definition: ModelDefinition, model: str, catalog: str | None, *, intercept: bool = False) -> str:
    """Return the query of the weights of a model with wide items: ``group_id``, ``config``, ``output``, ``feature``,
    ``weight``.

    Wide items have only their nonzero weights, with feature names made here.
    """
    width = "len(g.features)"
    names, listed = "g.features", f"a.weights[(o.output - 1) * {width} + 1 : o.output * {width}]"
    if intercept:
        names, listed = f"list_append({names}, {literal(INTERCEPT)})", f"list_append({listed}, a.intercept[o.output])"
    parts = [(f"unnest({names}) AS feature", listed)]
    for at, entry in enumerate(definition.items, start=1):
        encoder = encoder_of(entry.item)
        if encoder.wide:
            value = encoder.numbers_sql(f"a.places[{at}]", f"g.categories[{at}]")
            named = f"{encoder.named_sql(entry.item, f'({value})')} AS feature"
            parts.append((named, nonzeros_sql(definition, at, "a.", "o.output")))
    source = (
        f"FROM {table(catalog, 'artifacts')} AS a JOIN {table(catalog, 'groups')} AS g"
        " ON g.model = a.model AND g.group_id = a.group_id,"
        f" unnest(range(1, len(a.intercept) + 1)) AS o(output) WHERE a.model = '{model}'::UUID AND g.model = '{model}'::UUID"
    )
    each = [
        f"SELECT a.group_id, a.config, o.output, {feature}, unnest({weights}) AS weight {source}"
        for feature, weights in parts
    ]
    # A column of a wide item is stored for all outputs if one of them has a weight.
    return " UNION ALL ".join([each[0], *(f"FROM ({wide}) WHERE weight <> 0" for wide in each[1:])])


def _joined_with(weights: str, model: str, catalog: str | None) -> str:
    """Return FROM and WHERE for trials (t) with a model, their groups (g), configs (c) and a query of weights (o)."""
    same = "o.group_id = t.group_id AND o.config = t.config"
    return f"{joined(catalog)} JOIN ({weights}) AS o ON {same} WHERE {where(model)}"


def _weights(definition: ModelDefinition, model: str, catalog: str | None) -> View:
    classes = ", ".join(literal(name) for name in definition.classes)
    of_class = f"([{classes}])[g.classes[o.output] + 1]"
    width = "len(g.features)"
    weights = f"a.weights[(o.output - 1) * {width} + 1 : o.output * {width}]"
    head = [*trial_columns(definition), *([("class", of_class)] if definition.label.scores_classes else [])]
    if definition.is_wide:
        weights = each_weight(definition, model, catalog, intercept=True)
        return [*head, ("feature", "o.feature"), ("weight", "o.weight")], _joined_with(weights, model, catalog)
    columns = [
        *head,
        ("feature", f"unnest(list_append(g.features, {literal(INTERCEPT)}))"),
        ("weight", f"unnest(list_append({weights}, a.intercept[o.output]))"),
        *(_error_columns(f"list_append({weights}, a.intercept[o.output])") if _has_errors(definition) else []),
    ]
    outputs = "unnest(range(1, len(a.intercept) + 1)) AS o(output)"
    return columns, f"{joined(catalog)} {_artifacts(catalog)}, {outputs} WHERE {where(model, 'a')}"


def _has_errors(definition: ModelDefinition) -> bool:
    """Return whether weights of a model that is not wide may have standard errors."""
    if definition.label.scores_classes or not registry.is_known(definition.learner):
        return False
    return registry.has_standard_errors(definition.learner, definition.configs)


def _error_columns(weights: str) -> list[tuple[str, str]]:
    """Return what follows from the standard errors of the list ``weights``."""
    size, errors = f"len({weights})", "a.standard_errors"
    each = f"range(1, {size} + 1)"
    is_offset = f"coalesce(g.features[i] = {literal(OFFSET)} AND ({weights})[i] = 1, false)"
    some = f"CASE WHEN {is_offset} THEN 'the offset: its weight is 1' ELSE coalesce(a.without_errors, {literal(REDUNDANT)}) END"
    note = f"CASE WHEN {errors} IS NOT NULL THEN {some} ELSE a.without_errors END"
    has_weight = f"(i < {size} OR ({weights})[i] <> 0)"  # a model without an intercept has none to say something about
    note = f"CASE WHEN {errors}[i] IS NULL AND {has_weight} THEN {note} END"
    columns = {
        "standard_error": f"{errors}[i]",
        "statistic": f"({weights})[i] / {errors}[i]",
        "p_value": "a.p_values[i]",
        "lower": f"({weights})[i] - a.critical * {errors}[i]",
        "upper": f"({weights})[i] + a.critical * {errors}[i]",
        "note": note,
    }
    return [(name, f"unnest(list_transform({each}, lambda i: {sql}))") for name, sql in columns.items()]


def _curves(definition: ModelDefinition, model: str, catalog: str | None) -> View:
    columns = [
        *trial_columns(definition),
        ("epoch", "p.epoch"),
        ("train_loss", "p.train_loss"),
        (f"valid_{definition.metric}", "p.valid_metric"),
    ]
    same = "p.model = t.model AND p.group_id = t.group_id AND p.config = t.config"
    return columns, f"{joined(catalog)} JOIN {table(catalog, 'curves')} AS p ON {same} WHERE {where(model, 'p')}"


def _importance(definition: ModelDefinition, model: str, catalog: str | None) -> View:
    columns = [
        *trial_columns(definition),
        ("is_best", "t.is_best"),
        *zip(("feature", "importance", "weight"), importances(definition), strict=True),
    ]
    return columns, with_importances(definition, model, catalog)


def importances(definition: ModelDefinition) -> tuple[str, str, str]:
    """Return the SQL of a trial's features, their importances, and their weights (NULL if there are none)."""
    if not form_of(definition).has_one_weight_per_column:
        return "unnest(g.features)", "unnest(t.importance)", "NULL::DOUBLE"
    signed = not definition.label.scores_classes
    if definition.is_wide:
        return "o.feature", "o.importance", "o.weight" if signed else "NULL::DOUBLE"
    # Σ over outputs of |w|, from the stored weights.
    column = "list_transform(range(len(a.intercept)), lambda o: abs(a.weights[o * len(g.features) + j]))"
    sums = f"unnest(list_transform(range(1, len(g.features) + 1), lambda j: list_sum({column})))"
    return "unnest(g.features)", sums, "unnest(a.weights)" if signed else "NULL::DOUBLE"


def with_importances(definition: ModelDefinition, model: str, catalog: str | None) -> str:
    """Return FROM and WHERE for trials (t) with importances, their groups (g) and configs (c)."""
    if not form_of(definition).has_one_weight_per_column:
        return f"{joined(catalog)} WHERE {where(model)} AND t.importance IS NOT NULL"
    if definition.is_wide:
        weights = each_weight(definition, model, catalog)
        order = " ORDER BY output ASC" if definition.label.scores_classes else ""
        sums = f"SELECT group_id, config, feature, sum(abs(weight){order}) AS importance, any_value(weight) AS weight"
        return _joined_with(f"{sums} FROM ({weights}) GROUP BY group_id, config, feature", model, catalog)
    return f"{joined(catalog)} {_artifacts(catalog)} WHERE {where(model, 'a')}"


def _features(definition: ModelDefinition, model: str, catalog: str | None) -> View:
    types = ", ".join(literal(entry.type) for entry in definition.items)
    columns = [
        *definition.key_columns("g.keys"),
        ("model_level", level_sql(definition, "g.level")),
        ("feature", feature_sql(definition, "p.item")),
        ("type", f"([{types}]::VARCHAR[])[p.item]"),
        *((name, f"p.{name}") for name in ("n_rows", "n_missing", "mean")),
        *(("std", "p.deviation"), ("min", "p.low"), ("max", "p.high")),
        *((name, f"p.{name}") for name in ("quantiles", "shares", "categories", "counts")),
    ]
    return columns, (
        f"FROM {table(catalog, 'profiles')} AS p"
        f" JOIN {table(catalog, 'groups')} AS g ON g.model = p.model AND g.group_id = p.group_id"
        f" WHERE p.model = '{model}'::UUID AND g.model = '{model}'::UUID ORDER BY g.level ASC, g.group_id ASC, p.item ASC"
    )


def _schedule(definition: ModelDefinition, model: str, catalog: str | None) -> View:
    facts = ("unit", "configs", "fold", "kind", "epoch", "first_block", "last_block", "worker", "started", "ended")
    columns = [
        *definition.key_columns("g.keys"),
        ("model_level", level_sql(definition, "g.level")),
        *((name, f"u.{name}") for name in (*facts, "loaded", "fetched")),
    ]
    return columns, (
        f"FROM {table(catalog, 'units')} AS u"
        f" JOIN {table(catalog, 'groups')} AS g ON g.model = u.model AND g.group_id = u.group_id"
        f" WHERE u.model = '{model}'::UUID AND g.model = '{model}'::UUID ORDER BY u.started ASC, u.unit ASC"
    )


def _held_out(definition: ModelDefinition, model: str, catalog: str | None) -> View:
    keys = definition.held_out or ()
    texts, outputs = ([f"__grouplearn_{letter}{n}" for n in range(count)]
                      for letter, count in (("k", len(keys)), ("o", definition.output.width)))  # fmt: skip
    own = definition.threshold_sql("t.") if definition.threshold_metric else "NULL"
    unnested = [
        *(f"unnest(h.keys[{place}]) AS {name}" for place, name in enumerate(texts, start=1)),
        *(f"unnest(h.outputs[{place}]) AS {name}" for place, name in enumerate(outputs, start=1)),
    ]
    rows = (
        f"SELECT g.keys, g.level, h.fold, coalesce({own}, 0.5) AS threshold, {', '.join(unnested)},"
        f" unnest(h.labels) AS label FROM {table(catalog, 'held_out')} AS h"
        f" JOIN {table(catalog, 'groups')} AS g ON g.model = h.model AND g.group_id = h.group_id"
        f" JOIN {table(catalog, 'trials')} AS t ON t.model = h.model AND t.group_id = h.group_id AND t.is_best"
        f" WHERE h.model = '{model}'::UUID AND g.model = '{model}'::UUID AND t.model = '{model}'::UUID"
    )
    classes = ", ".join(f"CAST({literal(name)} AS {definition.label_type})" for name in definition.classes)
    columns = [
        *definition.key_columns("r.keys"),
        ("model_level", level_sql(definition, "r.level")),
        *((key.name, f"CAST(r.{name} AS {key.type})") for name, key in zip(texts, keys, strict=True)),
        ("fold", "r.fold"),
        ("label", f"([{classes}])[CAST(r.label AS BIGINT) + 1]" if classes else "r.label"),
        *definition.output.held_out([f"nullif(r.{name}, 'nan'::DOUBLE)" for name in outputs], "r.threshold"),
    ]
    return columns, f"FROM ({rows}) AS r"


def _artifacts(catalog: str | None) -> str:
    return (
        f"JOIN {table(catalog, 'artifacts')} AS a"
        " ON a.model = t.model AND a.group_id = t.group_id AND a.config = t.config"
    )


def suffixes(definition: ModelDefinition) -> tuple[str, ...]:
    """Return the suffixes of a model's views."""
    weights = form_of(definition).has_one_weight_per_column
    common = tuple(suffix for suffix in COMMON if suffix != "_weights" or weights)
    held_out = () if definition.held_out is None else (HELD_OUT,)
    return (*common, *held_out, *(view.suffix for view in definition.output.views))


def suffixes_of(learner: str) -> tuple[str, ...]:
    """Return the suffixes that models of a learner may have."""
    outputs = _outputs([learner] if registry.is_known(learner) else ())
    return (*COMMON, *(view.suffix for output in outputs for view in output.views))


def macros_of(learner: str) -> tuple[str, ...]:
    """Return the suffixes of the macros that models of a learner may have."""
    outputs = _outputs([learner] if registry.is_known(learner) else ())
    return tuple({endpoint.suffix: None for output in outputs for endpoint in endpoints_of(output)}) or (
        PREDICT.suffix,
    )


def comments() -> dict[str, str]:
    """Return the beginning of the comment of every view that models may have, by its suffix."""
    return {
        **_COMMENTS,
        **{view.suffix: view.comment for output in _outputs(registry.names()) for view in output.views},
    }


def macro_comments() -> dict[str, str]:
    """Return the beginning of the comment of every macro that models may have, by its suffix."""
    return {each.suffix: each.comment for output in _outputs(registry.names()) for each in endpoints_of(output)}


def _outputs(learners: Iterable[str]) -> Iterator[Output]:
    """Yield the outputs that models of these learners may have."""
    for name in learners:
        yield from _outputs_of_ours(name) if name in registry.LEARNERS else _outputs_of(name)


@functools.cache
def _outputs_of_ours(name: str) -> tuple[Output, ...]:
    return tuple(_outputs_of(name))


def _outputs_of(name: str) -> Iterator[Output]:
    for label in sorted(registry.learner(name).declaration.labels, key=lambda label: label.name):
        yield registry.output(name, label, (), "")


def _vectors(view: VectorView, definition: ModelDefinition, model: str, catalog: str | None) -> View:
    """Return the view of a field (f) of each group's best trial, with the mean of its rows (o) if there is one."""
    factors = table(catalog, "factors")
    rows = (
        f"{joined(catalog)} JOIN {factors} AS f ON f.model = g.model AND f.group_id = g.group_id"
        f" LEFT JOIN {factors} AS o ON o.model = g.model AND o.group_id = g.group_id AND o.part = 'mean'"
        f" WHERE {where(model, 'f')} AND t.config = g.best AND f.part = {literal(view.part)}"
    )
    return [*trial_columns(definition), *view.columns], f"{rows} ORDER BY g.level ASC, g.group_id ASC, f.place ASC"


_MAKERS: dict[str, Callable[[ModelDefinition, str, str | None], View]] = {
    "": _trials,
    "_weights": _weights,
    "_curves": _curves,
    "_importance": _importance,
    "_features": _features,
    "_schedule": _schedule,
    HELD_OUT: _held_out,
    "_versions": versions_view,
    "_history": history_view,
}
