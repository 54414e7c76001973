"""The notes of TRAIN's result on groups, in SQL: poor or too good models, skipped rows, few rows, unfinished trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from grouplearn.catalog.poor_fits import constant_models, poor_fits
from grouplearn.catalog.records import ModelDefinition
from grouplearn.catalog.schema import table
from grouplearn.learners import registry
from grouplearn.learners.contract.pooling import pools
from grouplearn.learners.series import methods
from grouplearn.models.calibration import FEWEST
from grouplearn.sqltext import literal

#: A group with fewer rows is noted.
FEW_ROWS = 30
#: A larger share of skipped rows is noted.
MUCH_SKIPPED = 0.05
#: Fewer held-out rows do not say that a model is poor.
JUDGES = 10

_OPEN_ENDED = "status = 'done' AND NOT converged"
#: A trial whose time by WITHIN was up before it began.
_NO_TURN = "status = 'stopped' AND epochs = 0"
#: A best trial whose validation is not whole.
_PARTLY_JUDGED = "is_best AND status = 'done' AND error IS NOT NULL"
_HAS_MODEL = "count(*) FILTER (is_best) > 0"


@dataclass(frozen=True, slots=True)
class RowNotes:
    """Notes on a group that follow from its rows: ``urgent`` ones come early, ``mild`` ones last.

    ``kept`` says what became of the model that a group had before its training failed. ``poor`` says that its model is worse
    than a constant, by what metrics alone do not say. ``skipped`` says why rows were skipped, in place of their mere number;
    empty if nothing is to be said of it.
    """

    poor: str | None = None
    urgent: tuple[str, ...] = ()
    skipped: str | None = None
    mild: tuple[str, ...] = ()
    kept: str | None = None


class Judging(NamedTuple):
    """How trials were judged: whether rows were to be held out, and whether the model is one of several learners."""

    validated: bool
    of_several: bool = False


#: By the number of the group.
DataNotes = Mapping[int, RowNotes]
NOTHING_SEEN: DataNotes = MappingProxyType({})


def with_kept(seen: DataNotes, kept: Mapping[int, str]) -> DataNotes:
    """Return notes on groups with those on the models that failed groups had, by group."""
    return {group: replace(seen.get(group, RowNotes()), kept=kept.get(group)) for group in sorted({*seen, *kept})}


def suspected_sql(definition: ModelDefinition, model: str, catalog: str, validated: bool) -> str:
    """Return a query that gives 1 if rows were skipped, 2 if ``notes_sql`` may have a note on some group, 3 if some trial has
    a metric of held-out rows."""
    own = f"WHERE model = '{model}'::UUID"
    trials = f"{table(catalog, 'trials')} {own} AND {_suspect(definition, validated)}"
    groups = f"{table(catalog, 'groups')} {own}"
    judged = ", ".join(f"valid[{place}]" for place in range(1, len(definition.metrics) + 1))
    plain = " OR calibration IS NULL" if definition.calibrate else ""
    few = f"best IS NOT NULL AND ({_MUCH_SKIPPED} OR {_FEW}{plain})"
    return (
        f"(SELECT 1 FROM {groups} AND n_skipped > 0 LIMIT 1) UNION ALL (SELECT 2 FROM {groups} AND {few} LIMIT 1)"
        f" UNION ALL (SELECT 2 FROM {trials} LIMIT 1){_simple_series(definition, model, catalog)}"
        f" UNION ALL (SELECT 3 FROM {table(catalog, 'trials')} {own} AND coalesce({judged}) IS NOT NULL LIMIT 1)"
    )


_MUCH_SKIPPED = f"n_skipped > {MUCH_SKIPPED} * n_rows"
_USED = "n_rows - coalesce(n_skipped, 0)"
_FEW = f"{_USED} < {FEW_ROWS}"
_UNCALIBRATED = f"probabilities are not calibrated: fewer than {FEWEST} rows are held out, or all are of one class"


def _suspect(definition: ModelDefinition, validated: bool) -> str:
    """Return a condition that some trial meets in every group on which ``notes_sql`` may have a note because of its trials."""
    place = definition.metrics.index(definition.metric) + 1
    unjudged = f"{'valid' if validated else 'train'}[{place}] IS NULL"
    constant = constant_models(definition)
    poor = [condition for condition, _ in (*poor_fits(definition), *([constant] if constant else []))]
    held_out = [f"(is_best AND {condition})" for condition, _ in _poor_on_held_out_rows(definition)]
    return f"({' OR '.join([f'({_OPEN_ENDED})', f'({_NO_TURN})', f'({_PARTLY_JUDGED})', unjudged, *poor, *held_out])})"


def notes_sql(
    definition: ModelDefinition, model: str, catalog: str, judging: Judging, seen: DataNotes = NOTHING_SEEN
) -> str:
    """Return the query of ``group_id`` and ``note``, NULL without a note; of several the worst is first."""
    of_rows = {
        name: f"any_value(s.{name})" if seen else "NULL" for name in ("kept", "poor", "urgent", "skipped", "mild")
    }
    notes = [
        of_rows["kept"],
        _poor(definition, of_rows["poor"]),
        of_rows["urgent"],
        *([f"any_value({methods.note_sql('f.value')})"] if _is_of_series(definition) else []),
        f"nullif(coalesce({of_rows['skipped']}, {_skipped()}), '')",
        _few_rows(definition),
        _limited(definition),
        *(
            [f"CASE WHEN {_HAS_MODEL} AND any_value(g.calibration) IS NULL THEN '{_UNCALIBRATED}' END"]
            * bool(definition.calibrate)
        ),
        _without_turn(model, catalog),
        _chosen_by(definition, model, catalog, judging),
        f"any_value(error) FILTER ({_PARTLY_JUDGED})",
        of_rows["mild"],
    ]
    joined = f" LEFT JOIN ({_seen_sql(seen)}) AS s ON s.group_id = t.group_id" if seen else ""
    if _is_of_series(definition):
        same = f"f.model = t.model AND f.group_id = t.group_id AND f.part = {literal(methods.PART)}"
        joined += f" LEFT JOIN {table(catalog, 'factors')} AS f ON {same}"
    return (
        f"SELECT t.group_id, nullif(concat_ws('; ', {', '.join(notes)}), '') AS note FROM {table(catalog, 'trials')} AS t"
        f" JOIN {table(catalog, 'groups')} AS g ON g.model = t.model AND g.group_id = t.group_id{joined}"
        f" WHERE t.model = '{model}'::UUID AND g.model = '{model}'::UUID GROUP BY t.group_id"
    )


def _seen_sql(seen: DataNotes) -> str:
    rows = ", ".join(
        f"({group}, {literal(notes.kept)}, {literal(notes.poor)},"
        f" {_together(notes.urgent)}, {literal(notes.skipped)}, {_together(notes.mild)})"
        for group, notes in seen.items()
    )
    return f"SELECT * FROM (VALUES {rows}) AS seen(group_id, kept, poor, urgent, skipped, mild)"


def _together(notes: Sequence[str]) -> str:
    return literal("; ".join(notes) or None)


def _poor(definition: ModelDefinition, seen: str) -> str:
    """Return SQL for the note on a best trial that is worse than a constant on the rows that it learned from, or is one, or
    is no better on held-out rows; ``seen`` is SQL for what the rows say of it."""
    constant = constant_models(definition)
    own = [f"CASE WHEN count(*) FILTER ({condition}) > 0 THEN {told} END" for condition, told in poor_fits(definition)]
    own += [] if constant is None else [f"any_value({constant[1]}) FILTER ({constant[0]})"]
    judges = f"if(g.n_valid > 0, g.n_valid, g.n_train) >= {JUDGES}"
    held_out = [
        f"CASE WHEN count(*) FILTER (is_best AND {judges} AND {condition}) > 0 THEN {told} END"
        for condition, told in _poor_on_held_out_rows(definition)
    ]
    return f"coalesce({', '.join([*own, seen, *held_out])})"


def _poor_on_held_out_rows(definition: ModelDefinition) -> Iterator[tuple[str, str]]:
    """Yield conditions on a trial that is no better on held-out rows than a constant, and SQL for the notes."""
    value = {name: f"valid[{place}]" for place, name in enumerate(definition.metrics, start=1)}
    known = {**value, "n_classes": str(len(definition.classes))}
    for name in definition.metrics:
        useless = definition.family.named(name).useless
        if useless is not None:
            with suppress(KeyError):
                condition = useless.condition.format_map(known)
                yield condition, f"printf({literal(useless.note)}, any_value({value[name]}) FILTER (is_best))"


def _skipped() -> str:
    """Return SQL for the note on skipped rows of a group, NULL for few."""
    text = literal("%d of %d rows are skipped: a feature or the label is missing")
    counts = "any_value(g.n_skipped), any_value(g.n_rows)"
    return f"CASE WHEN {_HAS_MODEL} AND bool_or({_MUCH_SKIPPED}) THEN printf({text}, {counts}) END"


def _is_of_series(definition: ModelDefinition) -> bool:
    """Return whether each group is a series, with a model of its own."""
    return registry.is_known(definition.learner) and registry.learner(definition.learner).declaration.takes_series


def _simple_series(definition: ModelDefinition, model: str, catalog: str) -> str:
    """Return a further part of ``suspected_sql``: whether a series has a simple model, and a note that says why."""
    own = f"model = '{model}'::UUID AND part = {literal(methods.PART)} AND value <> 0"
    if not _is_of_series(definition):
        return ""
    return f" UNION ALL (SELECT 2 FROM {table(catalog, 'factors')} WHERE {own} LIMIT 1)"


def _few_rows(definition: ModelDefinition) -> str:
    """Return SQL for the note on a group of few rows, NULL for others."""
    if _is_of_series(definition):
        return "NULL"
    counted = f"any_value({_USED})"
    rows = f"concat('only ', if({counted} = 1, '1 row', printf('%d rows', {counted})))"
    # Rows that are skipped are counted by HAVING.
    having = literal(f": HAVING count(*) >= {FEW_ROWS} leaves such groups out")
    leaves_out = f"any_value(g.n_rows) < {FEW_ROWS}" if definition.keys else "false"
    told = f"concat({rows}, if({leaves_out}, {having}, ', too few to rely on'))"
    return f"CASE WHEN {_HAS_MODEL} AND {counted} < {FEW_ROWS}{_alone(definition)} THEN {told} END"


def _alone(definition: ModelDefinition) -> str:
    """Return a further condition: the best trial of a group has not learned from other groups, unless it says that it could
    not."""
    if not registry.is_known(definition.learner):
        return ""
    learner = registry.way(definition.learner, definition.configs)
    shrinking = [number for number, config in enumerate(definition.configs) if pools(learner, config)]
    learned = f"is_best AND error IS NULL AND config IN {(*shrinking, -1)}"
    return f" AND count(*) FILTER ({learned}) = 0" if shrinking else ""


def _limited(definition: ModelDefinition) -> str:
    """Return SQL for the note on a group's trials that have not converged, NULL if all have."""
    known = registry.is_known(definition.learner)
    if known and registry.way(definition.learner, definition.configs).declaration.default_epochs is None:
        declared = registry.way(definition.learner, definition.configs).declaration.hyperparameters
        raised = " or ".join(each.name for each in declared if each.name in ("l1", "tolerance"))
        text, values = f"%d of %d trials have not converged{': raise ' if raised else ''}{raised}", ""
    else:
        text = "%d of %d trials stopped at the limit of %d epochs, not converged: raise epochs"
        values = f", max(epochs) FILTER ({_OPEN_ENDED})"
    counts = f"count(*) FILTER ({_OPEN_ENDED})"
    return f"CASE WHEN {counts} > 0 THEN printf('{text}', {counts}, count(*){values}) END"


def _without_turn(model: str, catalog: str) -> str:
    """Return SQL for the note on a group for which WITHIN left no time; NULL for others."""
    groups = f"SELECT group_id FROM {table(catalog, 'trials')} WHERE model = '{model}'::UUID GROUP BY ALL"
    those = f"(SELECT count(*) FROM ({groups} HAVING bool_and({_NO_TURN})))"
    text = literal("one of %d groups that had no turn: RETRY FAILED MODEL trains them, for as long again")
    return f"CASE WHEN bool_and({_NO_TURN}) THEN printf({text}, {those}) END"


def _chosen_by(definition: ModelDefinition, model: str, catalog: str, judging: Judging) -> str:
    """Return SQL for the note on a group whose best trial is not chosen by the optimised metric of held-out rows."""
    parts = ("valid", "train") if judging.validated else ("train",)
    known = {
        f"{part}_{metric.name}": f"count({part}[{definition.metrics.index(metric.name) + 1}]) > 0"
        for part in parts
        for metric in definition.choosing
        if metric.name in definition.metrics
    }
    wanted, own = next(iter(known)), f"train_{definition.metric}"
    chosen = f"CASE {' '.join(f'WHEN {condition} THEN {literal(name)}' for name, condition in known.items())} END"
    several = "true" if judging.of_several else "count(*) > 1"
    alone = literal(f": there is no {wanted}, and {own} is of the rows that were learned from")
    # With FOLDS no row is held out for good: if folds could not be scored, metrics are NULL or there is an error.
    nothing_held = (
        "max(g.n_valid) = 0 AND max(len(valid)) = 0 AND count(*) FILTER (status <> 'failed' AND error IS NULL) > 0"
    )
    groups = f"FROM {table(catalog, 'groups')} WHERE model = '{model}'::UUID"
    counts = f"count(*) FILTER (n_valid = 0 AND best IS NOT NULL) AS spared, count(*) AS every {groups}"
    spared = f"(SELECT if(every > 1, printf(', as in %d of %d groups', spared, every), '') FROM (SELECT {counts}))"
    best = f"': the best is chosen by ' || {chosen}"
    held = f"WHEN {nothing_held} THEN 'no row is held out' || {spared} ||"
    held += (
        f" CASE WHEN {several} THEN {best} || ', of the rows that were learned from' WHEN {known[own]} THEN {alone} END"
    )
    return (
        f"CASE WHEN {known[wanted]} THEN NULL {held if judging.validated else ''}"
        f" WHEN {several} THEN {literal(f'no trial has a {wanted}')} || {best} END"
    )
