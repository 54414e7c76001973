"""Checks a row of ``models`` before anything is made of it: a file may contain anything.

Its numbers decide how many columns are made and how long lists are, its words what is done: TRAIN must have been able to
write each, or the model is damaged.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping
from typing import Any

from grouplearn.bind.clauses.features import MAX_CLASSES, MAX_ITEMS
from grouplearn.catalog.checks.damage import damaged, shown
from grouplearn.data.dataset import Item
from grouplearn.data.encoding.encoder import Encoder
from grouplearn.data.encoding.numbers.array import LONGEST_ARRAY
from grouplearn.data.encoding.registry import BY_NAME
from grouplearn.errors import DataError
from grouplearn.learners import registry
from grouplearn.models.calibration import KINDS as CALIBRATIONS
from grouplearn.models.label import Label, label_length
from grouplearn.models.outputs.outputs import OUTPUTS

_TEXTS = (
    "schema_name", "model_name", "learner", "task", "statement", "metric",
)  # fmt: skip
#: Columns about the label, NULL without one.
_LABEL = ("target_name", "target_sql", "label_type")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "missing_group": ("parent", "null", "error"),
    "null_label": ("skip", "error"),
    "group_failure": ("keep", "error"),
}
#: Tells items that share an array of a dataset.
_CODED, _LISTED = operator.attrgetter("is_coded"), operator.attrgetter("is_list")
#: Most characters of a name in the search path.
_LONGEST_NAME = 10_000
#: Most entries of lists in a row; TRAIN stays below.
_LONGEST: Mapping[str, int] = {
    "classes": MAX_CLASSES, "keys": 1_000, "series": 1_000, "held_out": 1_000, "sets": 1 << 16, "items": MAX_ITEMS,
    "hyperparameters": 1_000, "metrics": 1_000, "search_path": 1_000,
}  # fmt: skip
_OPTION_BYTES = (
    "list_sum(list_transform(map_entries(x.options), lambda e: strlen(e.key) + coalesce(strlen(e.value), 0)))"
)
_KEY = ("strlen(x.name)", "strlen(x.sql)", "strlen(x.type)")
#: What counts as the bytes, or numbers, of an entry of each list.
_SIZES: Mapping[str, tuple[str, ...]] = {
    "classes": ("strlen(x)",), "keys": _KEY, "series": _KEY, "held_out": _KEY, "sets": ("len(x)",),
    "items": ("strlen(x.name)", "strlen(x.sql)", "strlen(x.type)", _OPTION_BYTES),
    "hyperparameters": ("strlen(x.name)", "strlen(x.type)"), "metrics": ("strlen(x)",),
    "search_path": ("strlen(x.schema)", "strlen(x.database)"),
}  # fmt: skip
_LONG_TEXTS = ("statement", "target_name", "target_sql", "weight_sql", "label_type")
#: Most bytes of a text or of all texts in a list, and most key numbers in all grouping sets: more than any statement has.
_MOST_BYTES, _MOST_NUMBERS = 1 << 24, 1 << 20
#: Most characters of the type of a numeric array.
_LONGEST_TYPE = 200


def too_long() -> dict[str, str]:
    """Return per column of ``models`` an SQL condition that its value is too long.

    A file of a few MB can expand to lists and texts of many millions of equal entries, each of which would become a Python
    object.
    """
    found = {name: f"strlen({name}) > {_MOST_BYTES}" for name in _LONG_TEXTS}
    for name, most in _LONGEST.items():
        size = " + ".join(f"coalesce({part}, 0)" for part in _SIZES[name])
        inside = f"list_sum(list_transform({name}, lambda x: {size}))"
        longest = _MOST_NUMBERS if name == "sets" else _MOST_BYTES
        found[name] = f"len({name}) > {most} OR (len({name}) <= {most} AND {inside} > {longest})"
    return found


def check_definition(catalog: str, values: Mapping[str, Any], part: str = "models") -> None:
    """Raise DataError unless a row of ``models`` or ``past_models``, by column, can be a model's."""
    checks = _Checks(catalog, values, part)
    checks.words()
    checks.classes()
    checks.groups()
    checks.items()
    checks.results()
    checks.search_path()


class _Checks:
    def __init__(self, catalog: str, row: Mapping[str, Any], part: str) -> None:
        self._catalog, self._row, self._part = catalog, row, part

    def words(self) -> None:
        """Check single words and their allowed values."""
        for name in _TEXTS:
            self._need(isinstance(self._row[name], str), f"{name} is {shown(self._row[name])}, not a text")
        for name, allowed in _CHOICES.items():
            self._need(
                self._row[name] in allowed, f"{name} is {shown(self._row[name])}, and it is one of {', '.join(allowed)}"
            )
        has_label = self._label().is_given
        for name in _LABEL:
            value = self._row[name]
            fits = isinstance(value, str) if has_label else value is None
            self._need(fits, f"{name} is {shown(value)}, and task is {self._row['task']}")
        self._need(_integer(self._row["seed"]), f"seed is {shown(self._row['seed'])}, not a whole number")
        keep = self._row["keep_best"]
        self._need(keep is None or (_integer(keep) and keep > 0), f"keep_best is {shown(keep)}")
        versions = self._row["keep_versions"]
        self._need(_integer(versions) and versions > 0, f"keep_versions is {shown(versions)}")
        kind = self._row["calibrate"]
        label = self._label()
        fits = kind is None or (kind in CALIBRATIONS and label.has_classes and not label.scores_classes)
        self._need(fits, f"calibrate is {shown(kind)}, and task is {self._row['task']}")
        weight = self._row["weight_sql"]
        self._need(weight is None or isinstance(weight, str), f"weight_sql is {shown(weight)}, not a text")

    def _label(self) -> Label:
        """Return the label, which the learner has; labels of unknown learners are the usual ones."""
        task, name = self._row["task"], self._row["learner"]
        own = registry.learner(name).declaration if registry.is_known(name) else None
        labels = {label.name: label for label in (own.labels if own and own.output else OUTPUTS)}
        said = f"task is {shown(task)}, and the tasks of {shown(name)} are {', '.join(sorted(labels))}"
        if own is None:
            said += f"; if there is such a learner, {registry.how_to_register(name)} comes first"
        self._need(task in labels, said)
        return labels[task]

    def classes(self) -> None:
        """Check the label: its classes, and its length if it is an array."""
        label, classes = self._label(), self._texts("classes")
        kind = self._row["label_type"] or ""
        # Do not even parse a number of thousands of digits.
        length = label_length(kind) if len(kind) < _LONGEST_TYPE or not kind.endswith("]") else LONGEST_ARRAY + 1
        self._need(length <= LONGEST_ARRAY, f"label_type is {shown(kind)}, and an array has {LONGEST_ARRAY:,} values")
        self._need(len(set(classes)) == len(classes), "two classes are the same")
        self._need(label.allows(len(classes)), f"there are {len(classes)} classes, and task is {label.name}")
        if length:
            self._need(all(map(_is_number, classes)), "classes of an array are no numbers")

    def groups(self) -> None:
        """Check keys and grouping sets."""
        keys = self._structs("keys", ("name", "sql", "type"))
        series = self._structs("series", ("name", "sql", "type"))
        held_out = [] if self._row["held_out"] is None else self._structs("held_out", ("name", "sql", "type"))
        self._need(all(_is_name(key["name"]) for key in (*keys, *series, *held_out)), "a key has no name")
        sets = self._row["sets"]
        self._need(isinstance(sets, list) and len(sets) > 0, f"sets is {shown(sets)}")
        for each in sets:
            inside = isinstance(each, list) and all(_integer(key) and 0 <= key < len(keys) for key in each)
            self._need(inside and len(set(each)) == len(each), f"a grouping set is {shown(each)} of {len(keys)} keys")

    def items(self) -> None:
        """Check the features: their kinds, and their columns."""
        items = self._structs("items", ("name", "kind", "encoder", "scope", "type", "sql"))
        for entry in items:
            self._item(entry)
        names = [entry["name"] for entry in items]
        self._need(len(set(names)) == len(names), "two items have the same name")
        made = [Item(each["name"], each["kind"], each["position"], buckets=each["buckets"]) for each in items]
        numbers = [(each.column, each.numbers) for each in made if each.is_numeric]
        codes, lists = ([(each.column, 1) for each in made if some(each)] for some in (_CODED, _LISTED))
        for columns in (numbers, codes, lists):
            there = sum(count for _, count in columns)
            beyond = next((first for first, count in columns if first + count > there), None)
            self._need(beyond is None, f"an item is at position {beyond} of {there}")

    def _item(self, entry: Mapping[str, Any]) -> None:
        name, kind, buckets, position = (entry[part] for part in ("name", "kind", "buckets", "position"))
        what = f"item {shown(name)}"
        encoder = BY_NAME.get((kind, entry["encoder"]))
        self._need(encoder is not None, f"{what} is {shown(kind)}, {shown(entry['encoder'])}")
        self._need(entry["scope"] in ("group", "all"), f"{what} has scope {shown(entry['scope'])}")
        self._need(_integer(position) and position >= 0, f"{what} is at position {shown(position)}")
        most = encoder.most if encoder is not None else None
        fits = _integer(buckets) and (buckets >= 0 if most is None else 1 <= buckets <= most)
        self._need(fits, f"{what} has {shown(buckets)} buckets" + (f", and at most {most:,}" if most else ""))
        impute = entry["impute"]
        self._need(impute in (None, "mean", "median") or _is_number(impute), f"{what} is imputed by {shown(impute)}")
        options = entry["options"]
        self._need(encoder is not None and _fit(encoder, options), f"{what} has options {shown(options)}")

    def results(self) -> None:
        """Check hyperparameters and metrics."""
        given = self._structs("hyperparameters", ("name", "type"))
        self._need(all(_is_name(each["name"]) for each in given), "a hyperparameter has no name")
        metric, metrics = self._row["metric"], self._texts("metrics")
        self._need(metric in metrics, f"metric is {shown(metric)}, and metrics are {shown(list(metrics))}")
        family = registry.family_of(self._row["learner"], self._label())
        unknown = next((name for name in metrics if not family.has(name)), None)
        self._need(unknown is None, f"metrics has {shown(unknown)}, and there are {', '.join(family.names())}")
        greater = self._row["greater_is_better"]
        self._need(isinstance(greater, bool), f"greater_is_better is {shown(greater)}")
        refit = self._row["refit"]
        self._need(isinstance(refit, bool), f"refit is {shown(refit)}")

    def search_path(self) -> None:
        """Check the stored search path: it is only compared, never used as SQL."""
        path = self._structs("search_path", ("schema",))
        self._need(len(path) > 0, "search_path has no entries")
        for each in path:
            database = each.get("database")
            names = [each["schema"], *([] if database is None else [database])]
            self._need(all(map(_is_name, names)), f"search_path has {shown(each)}")

    def _texts(self, name: str) -> list[str]:
        values = self._row[name]
        self._need(
            isinstance(values, list) and all(isinstance(each, str) for each in values), f"{name} is {shown(values)}"
        )
        return list(values)

    def _structs(self, name: str, texts: Collection[str]) -> list[dict[str, Any]]:
        values = self._row[name]
        self._need(isinstance(values, list), f"{name} is {shown(values)}")
        for each in values:
            whole = isinstance(each, dict) and all(isinstance(each.get(text), str) for text in texts)
            self._need(whole, f"{name} has {shown(each)}")
        return list(values)

    def _need(self, fits: bool, why: str) -> None:
        if not fits:
            raise self._damaged(why)

    def _damaged(self, why: str) -> DataError:
        name = self._row["model_name"]
        return damaged(self._catalog, name if isinstance(name, str) else shown(name), self._part, why)


def _fit(encoder: Encoder, options: Any) -> bool:
    """Return whether these are options of an item of the encoder, as texts by name."""
    if not isinstance(options, dict) or not all(isinstance(each, str) for each in options.values()):
        return False
    try:
        encoder.stored_options(options)
    except ValueError:
        return False
    return True


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text) <= _LONGEST_NAME and "\0" not in text


def _is_number(text: Any) -> bool:
    try:
        return math.isfinite(float(text))
    except (TypeError, ValueError):
        return False
