"""The query before rows are read: groups, classes, distinct texts, lengths of arrays, and the limits that depend on values."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grouplearn.bind import arrays
from grouplearn.bind.bound import BoundTarget, BoundTrain
from grouplearn.bind.clauses.feature_advice import AUTO_ONEHOT_LIMIT, FeatureSuggestion, many_texts, refusal
from grouplearn.bind.clauses.features import MAX_CLASSES, BoundItem
from grouplearn.bind.clauses.number_texts import cast_of_numbers
from grouplearn.bind.run.class_options import texts_of
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.dataset import Item
from grouplearn.data.encoding import types
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.data.encoding.wide import is_nearly_wide
from grouplearn.errors import Error
from grouplearn.extract.counts.group_counts import GroupCount, group_counts
from grouplearn.extract.counts.list_counts import list_counts
from grouplearn.interrupting import with_checks
from grouplearn.messages import did_you_mean
from grouplearn.models.metrics.levels import at_level
from grouplearn.parser.statements import Sql
from grouplearn.sqltext import identifier


@dataclass(frozen=True)  # without slots, as ``rows`` is cached
class Statistics:
    """What is known before rows are read: groups in order, the classes, the number of distinct texts per category item.

    ``lengths`` are the items' (1 for all but arrays), ``label_length`` an array label's, else 0. ``n_entries`` counts
    entries of lists. ``mirrored``: of two classes the lesser is the positive one, which comes last.
    ``times`` are columns of FROM with times that vary within a group, if rows are held out at random.
    """

    groups: tuple[GroupCount, ...]
    classes: tuple[str, ...]
    categories: tuple[int, ...]
    n_rows: int
    lengths: tuple[int, ...] = ()
    label_length: int = 0
    n_entries: int = 0
    mirrored: bool = False
    times: tuple[str, ...] = ()

    @functools.cached_property
    def rows(self) -> tuple[int, ...]:
        """The rows of each group."""
        return tuple(group.n_rows for group in with_checks(self.groups))


def statistics(checker: SqlChecker, bound: BoundTrain) -> Statistics:
    """Count the groups, list the classes, and check limits that depend on values."""
    groups, times = group_counts(checker, bound)
    lengths, label_length = _lengths(checker, bound)
    target = bound.target
    classified = target is not None and target.classification
    ascending = _classes(checker, bound, target) if target and classified else ()
    classes = _positive_last(checker, bound, target, ascending) if target and classified else ()
    _refuse_levels(checker, bound, classes)
    _refuse_labels(checker, bound, classes)
    n_rows, categories = _category_counts(checker, bound, groups)
    n_entries, elements = list_counts(checker, bound)
    categories = tuple(elements.get(number, count) for number, count in enumerate(categories))
    mirrored = classes != ascending
    return Statistics(groups, classes, categories, n_rows, lengths, label_length, n_entries, mirrored, times)


def _lengths(checker: SqlChecker, bound: BoundTrain) -> tuple[tuple[int, ...], int]:
    """Return the length of each item (1 for those that are no arrays) and of the label (0 when it is none).

    Raises BindError when the arrays of one column have different lengths, or none at all.
    """
    lengths = []
    for item in bound.items:
        kind, name = item.array, f'feature "{item.stored.item.name}"'
        lengths.append(1 if kind is None else _length(checker, bound, kind, item.source, name))
    target = bound.target
    label = target.array if target else None
    return tuple(lengths), _length(checker, bound, label, target.extract, "the label") if target and label else 0


def _length(checker: SqlChecker, bound: BoundTrain, kind: arrays.ArrayType, expression: Sql, what: str) -> int:
    if kind.length is not None:
        return kind.length
    function = "octet_length" if kind.is_bytes else "len"
    found = checker.rows(
        f"SELECT n, count(*) FROM (SELECT {function}((",
        expression,
        ")) AS n",
        *bound.source,
        ") WHERE n IS NOT NULL GROUP BY n ORDER BY count(*) DESC, n ASC",
    )
    if len(found) > 1:
        (usual, rows), others = found[0], sum(row[1] for row in found[1:])
        message = f"{what} has {rows:,} arrays of {usual:,} values and {others:,} of another length"
        hint = f"Take rows of one length: WHERE {function}({expression.text.strip()}) = {usual}."
        if what.startswith("feature") and not kind.is_bytes:
            hint += " For a list whose order means nothing write multihot(x) or hash(x, 64)."
        raise checker.error(message, expression.span, hint)
    if found and not found[0][0]:
        raise checker.error(f"{what} has empty arrays only", expression.span)
    return int(found[0][0]) if found else 1  # all NULL: every row is incomplete, so any length will do


def refuse_nothing(checker: SqlChecker, bound: BoundTrain, groups: Sequence[GroupCount]) -> None:
    """Raise BindError if there is no row to train on, or no group."""
    if any(group.n_rows for group in groups):
        return
    statement = bound.statement
    n_rows = checker.rows("SELECT count(*)", *bound.source)[0][0]
    if n_rows and statement.having:
        message = f"HAVING holds for no group of the {n_rows:,} rows, so that nothing could be trained"
        raise checker.error(message, statement.having.span)
    raise nothing_read(checker, bound)


def nothing_read(checker: SqlChecker, bound: BoundTrain) -> Error:
    """Return the error for a statement without rows."""
    statement = bound.statement
    message = "WHERE holds for no row of FROM" if statement.where else "FROM has no rows"
    span = statement.where.span if statement.where else statement.source.span
    return checker.error(f"{message}, so that nothing could be trained", span)


def _positive_last(
    checker: SqlChecker, bound: BoundTrain, target: BoundTarget, classes: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the two classes with the statement's positive one last."""
    named = bound.options.rows.positive_class
    if named is None:
        return classes
    ((given, chosen),) = texts_of(checker, named, target.type)
    span = next(
        option.value.span for option in bound.statement.options if option.name.value.casefold() == "positive_class"
    )
    if chosen not in classes:
        message = f'positive_class is "{given}", which is no class of the label\nClasses: {", ".join(classes)}'
        raise checker.error(message, span, did_you_mean(given, classes))
    if len(classes) > 2:
        message = f"positive_class is for labels with two classes, and this one has {len(classes)}"
        raise checker.error(message, span, "Compare the label with the class: PREDICT label = 'class' AS name.")
    return (*(each for each in classes if each != chosen), chosen)


def _refuse_levels(checker: SqlChecker, bound: BoundTrain, classes: Sequence[str]) -> None:
    """Raise BindError for a metric of two classes and a label with more."""
    metric = bound.statement.metric
    if metric is not None and len(classes) > 2 and at_level(bound.metric or "") is not None:
        message = f"{metric.value} is for labels with two classes, and this one has {len(classes)}"
        raise checker.error(message, metric.span, "Compare the label with the class: PREDICT label = 'class' AS name.")


def _refuse_labels(checker: SqlChecker, bound: BoundTrain, classes: Sequence[str]) -> None:
    """Raise BindError for an encoder that learns from labels, and labels that have no mean."""
    learning = next((each for each in bound.items if encoder_of(each.stored.item).learns_labels), None)
    if learning is None:
        return
    name, why = encoder_of(learning.stored.item).shown, None
    if bound.target is None:
        why = f"{bound.learner.declaration.name} has no label"
    elif bound.target.array:
        why = "this label is an array"
    elif len(classes) > 2:
        why = f"this label has {len(classes)} classes"
    if why is not None:
        message = f"{name} takes the mean of a label that is a number or has two classes, and {why}"
        raise checker.error(message, learning.span, "For a category write onehot(x), ordinal(x) or hash(x, 64).")


def _classes(checker: SqlChecker, bound: BoundTrain, target: BoundTarget) -> tuple[str, ...]:
    finite = "AND isfinite(t)" if types.is_floating(target.type) else ""
    before, after = arrays.each_class(target.array) if target.array else _uncollated(target.type)
    weight = bound.options.rows.weight
    # A class whose rows all have weight 0 is none: no row of it trains, or is judged.
    weighs = (", CAST((", weight, ") AS DOUBLE) IS DISTINCT FROM 0 AS weighs") if weight else (", true AS weighs",)
    rows = checker.rows(
        f"SELECT {'t'.join(types.as_text(target.type))} FROM (SELECT DISTINCT {before}",
        target.extract,
        f"{after} AS t",
        *weighs,
        *bound.source,
        f") WHERE weighs AND t IS NOT NULL {finite} ORDER BY t ASC LIMIT {MAX_CLASSES + 1}",
    )
    if len(rows) > MAX_CLASSES:
        message = f"the label has more than {MAX_CLASSES:,} distinct values, which is too many classes"
        raise checker.error(message, target.extract.span, _of_fewer_classes(bound, target, [row[0] for row in rows]))
    return tuple(row[0] for row in rows)


def _of_fewer_classes(bound: BoundTrain, target: BoundTarget, some: Sequence[str]) -> str:
    """Return a hint for a label with very many values, of which these are ``some``."""
    cast = cast_of_numbers(target.extract.text.strip(), some) if target.type == "VARCHAR" else None
    if cast is not None:
        return f"They are numbers written as text: PREDICT {cast} AS {identifier(target.name)} learns a number."
    if types.kind(target.type) != "numeric":
        return "Predict an expression that has fewer, such as left(y, 1), or a comparison."
    regresses = bound.learner.declaration.regresses
    number = "WITH (task = 'regression')" if regresses else "USING linear_regression, gbdt or mlp"
    return f"For a number write {number}, or predict an expression such as y > 15."


def _uncollated(type_name: str) -> tuple[str, str]:
    before, _, after = types.uncollated("\0", type_name).partition("\0")
    return before, after


def _category_counts(
    checker: SqlChecker, bound: BoundTrain, groups: Sequence[GroupCount]
) -> tuple[int, tuple[int, ...]]:
    """Return the number of rows, and the distinct values of every category item (0 for others), after checking the limit."""
    wanted = [item for item in bound.items if item.stored.item.kind == "category" or _is_wide_code(item.stored.item)]
    if not wanted and bound.statement.having is None:  # each level has every row in exactly one group
        return sum(group.n_rows for group in with_checks(groups) if group.level == 0), (0,) * len(bound.items)
    # Numbers take a tenth of the time of their texts. If the count decides about the form of a model, texts are counted,
    # which does not depend on a column's type.
    as_read = [(item, (item.read,) if item.whole else _distinct(item)) for item in wanted]
    n_rows, counts = _counted(checker, bound, as_read)
    near = [(item, _distinct(item)) for item in wanted if item.whole and is_nearly_wide(counts[id(item)])]
    counts |= _counted(checker, bound, near)[1] if near else {}
    _refuse_many_texts(checker, bound, counts)
    return n_rows, tuple(counts.get(id(item), 0) for item in bound.items)


def _refuse_many_texts(checker: SqlChecker, bound: BoundTrain, counts: Mapping[int, int]) -> None:
    """Raise one error for all columns of many texts that the statement does not encode."""
    candidates = []
    for item in bound.items:
        name, count = item.stored.item.name, counts.get(id(item), 0) if item.automatic else 0
        candidate = FeatureSuggestion(name, item.source, item.stored.type, item.span)
        candidates.append(many_texts(candidate, count) if count > AUTO_ONEHOT_LIMIT else candidate)
    if any(each.why is not None for each in candidates):
        raise refusal(checker, bound.source, bound.statement.features or (), candidates)


def _distinct(item: BoundItem) -> tuple[str | Sql, ...]:
    """Return what tells a category item's values apart."""
    before, after = _uncollated("VARCHAR" if item.stored.item.is_named else "INTEGER")
    return before, item.extract, after


def _counted(
    checker: SqlChecker, bound: BoundTrain, values: Sequence[tuple[BoundItem, tuple[str | Sql, ...]]]
) -> tuple[int, dict[int, int]]:
    """Return the number of rows, and of the distinct ``values`` of each item, by its identity; only about, where it is encoded as
    the statement says."""
    pieces: list[str | Sql] = ["SELECT count(*)"]
    for item, value in values:
        pieces += [", count(DISTINCT " if item.automatic else ", approx_count_distinct(", *value, ")"]
    n_rows, *counts = checker.rows(*pieces, *bound.source)[0]
    return n_rows, {id(item): count for (item, _), count in zip(values, counts, strict=True)}


def _is_wide_code(item: Item) -> bool:
    return item.is_coded and encoder_of(item).wide
