"""RETRY FAILED MODEL: the part of a statement's plan and rows that trains the failed trials again."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from grouplearn import sqltext
from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.clauses.features import BoundItem
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.dataset import Group
from grouplearn.data.encoding import types
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.extract.counts.group_counts import GroupCount
from grouplearn.extract.counts.list_counts import entry_count
from grouplearn.extract.counts.statistics import Statistics
from grouplearn.models.definition import ItemColumn, ModelDefinition
from grouplearn.parser.statements import Sql
from grouplearn.schedule.messages import Unit


def cut(units: Sequence[Unit], wanted: Mapping[int, Collection[int]]) -> tuple[Unit, ...]:
    """Return the units that train the ``wanted`` configs of each group, and nothing else.

    Groups side by side stay so where the same configs of each are wanted. Before: a unit of groups 0, 1, 2 and configs 0,
    1, and ``{0: {0, 1}, 2: {0, 1}}``. After: one of groups 0, 2 and configs 0, 1.
    """
    found: list[Unit] = []
    numbers = itertools.count(1 + max((unit.id for unit in units), default=-1))
    for unit in units:
        groups_of: dict[tuple[int, ...], list[int]] = {}
        for group in unit.groups:
            configs = tuple(config for config in unit.configs if config in wanted.get(group, ()))
            if configs:
                groups_of.setdefault(configs, []).append(group)
        for place, (configs, (first, *others)) in enumerate(groups_of.items()):
            share = (1 + len(others)) * len(configs) / (len(unit.groups) * len(unit.configs))
            number = next(numbers) if place else unit.id
            found.append(
                replace(unit, id=number, group=first, others=tuple(others), configs=configs, cost=unit.cost * share)
            )
    return tuple(found)


def only(bound: BoundTrain, groups: Sequence[GroupCount]) -> BoundTrain:
    """Return the statement with a source that has only the rows of these groups.

    Keys are compared as text behind a letter, so that NULL is a value like any other.
    """
    texts: dict[int, list[str]] = {}
    for group in groups:
        members = bound.sets[group.level]
        keys = ("n" if group.keys[key] is None else f"v{group.keys[key]}" for key in members)
        texts.setdefault(group.level, []).append(f"([{', '.join(map(sqltext.string, keys))}]::VARCHAR[])")
    chosen: list[str | Sql] = []
    for place, (level, values) in enumerate(texts.items()):
        chosen += [*(["OR"] if place else []), "[", *_key_texts(bound, bound.sets[level])]
        chosen += [f"]::VARCHAR[] IN (SELECT key FROM (VALUES {', '.join(values)}) AS failed(key))"]
    return replace(bound, source=(*bound.source, "AND (", *chosen, ")"))


def _key_texts(bound: BoundTrain, members: Sequence[int]) -> Iterator[str | Sql]:
    for place, key in enumerate(members):
        before, after = types.as_text(bound.keys[key].stored.type)
        yield f"{', ' if place else ''}coalesce('v' || {before}"
        yield bound.keys[key].extract
        yield f"{after}, 'n')"


def rows_of(checker: SqlChecker, bound: BoundTrain, stats: Statistics, groups: Sequence[GroupCount]) -> Statistics:
    """Return the statistics of some groups' rows, the only ones that ``bound`` reads; the rest is as for the whole table."""
    n_rows: int = checker.rows("SELECT count(*)", *bound.source)[0][0]
    return replace(stats, groups=tuple(groups), n_rows=n_rows, n_entries=entry_count(checker, bound))


def numbered(every: Sequence[GroupCount], read: Sequence[Group]) -> tuple[Group, ...]:
    """Return all groups by their numbers in the plan; those that were not read have no rows."""
    rows = {(group.level, group.keys): group for group in read}

    def group(number: int, counted: GroupCount) -> Group:
        found = rows.get((counted.level, counted.keys))
        return Group(number, counted.level, counted.keys, ()) if found is None else replace(found, id=number)

    return tuple(itertools.starmap(group, enumerate(every)))


def changed(stored: ModelDefinition, now: ModelDefinition) -> str | None:
    """Return what differs between the stored statement and the same one bound today; None if nothing does."""
    if not set(now.classes) <= set(stored.classes):
        new = sorted(set(now.classes) - set(stored.classes))
        return f"the label has classes that the model does not know: {', '.join(new[:3])}"
    what = differing(stored, now) or ("configurations" if _points(stored) != _points(now) else None)
    return None if what is None else f"its {what} differ from those of the model"


def differing(stored: ModelDefinition, now: ModelDefinition) -> str | None:
    """Return which of features, keys and label two statements do not share; None if they share all."""
    compared = (
        ("features", list(map(_identity_of, stored.items)), list(map(_identity_of, now.items))),
        ("keys", stored.keys, now.keys),
        ("label", (stored.target_sql, stored.label_type), (now.target_sql, now.label_type)),
    )
    return next((what for what, old, new in compared if old != new), None)


def differences(stored: ModelDefinition, now: ModelDefinition) -> str:
    """Return a line on the keys, the label and the features that two statements do not share."""
    found = [
        f"{new.name} is {new.type}, not {old.type}"
        for old, new in zip(stored.keys, now.keys, strict=False)
        if old.name == new.name and old.type != new.type
    ]
    if stored.label_type != now.label_type:
        found.append(f"the label is {now.label_type}, not {stored.label_type}")
    known = set(map(_identity_of, stored.items))
    features = [entry.item.name for entry in now.items if _identity_of(entry) not in known]
    found += [f"feature {name} has another type or encoder" for name in features[:3]]
    return "\n" + "; ".join(found) if found else ""


def stored_as(bound: BoundTrain, stored: ModelDefinition) -> BoundTrain:
    """Return a statement bound today whose items are wide where the stored model's are: the number of categories may have
    changed."""
    before = {entry.item.name: entry.item for entry in stored.items}

    def as_before(entry: BoundItem) -> BoundItem:
        item = entry.stored.item
        known = before.get(item.name)
        if known is None or (encoder_of(known).call, known.kind) != (encoder_of(item).call, item.kind):
            return entry
        return replace(entry, stored=replace(entry.stored, item=replace(item, encoder=known.encoder)))

    return replace(bound, items=tuple(map(as_before, bound.items)))


def _identity_of(entry: ItemColumn) -> tuple[object, ...]:
    item = entry.item
    return (
        item.name,
        item.kind,
        item.column,
        item.encoder,
        item.impute,
        item.scope,
        item.buckets,
        item.options,
        entry.sql,
    )


def _points(definition: ModelDefinition) -> list[tuple[object, ...]]:
    names = [column.name for column in definition.hyperparameters]
    # A file from elsewhere may have anything here, also a name that no configuration has.
    return [tuple(config.get(name) for name in names) for config in definition.configs]
