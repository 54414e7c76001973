"""A trained statement as the catalog stores it: complete enough to predict without the statement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config, Kind
from grouplearn.learners.contract.learner import OVER_LAGS
from grouplearn.models.label import Label, label_length
from grouplearn.models.metrics.metric import Family, Metric
from grouplearn.models.outputs.output import Output

#: The name of the source's row in replayed expressions; stored SQL may refer to ``__grouplearn_row.x``.
ROW = "__grouplearn_row"
#: Databases and schemas in which unqualified names are looked up, in order; None is the model's own database.
SearchPath = tuple[tuple[str | None, str], ...]


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One GROUP BY key: its column name in results, its SQL over the source's columns, its SQL type."""

    name: str
    sql: str
    type: str


@dataclass(frozen=True, slots=True)
class Watermark:
    """The latest time of the rows that groups have learned from: its SQL over their source, and its type.

    ``latest`` are the times as text by the groups' numbers. All other groups have the time ``others``, None if they have
    learned from no row.
    """

    sql: str
    type: str
    latest: Mapping[int, str]
    others: str | None = None


_CAST = re.compile(r"CAST\(\(\n(.*)\n\) AS (?:DOUBLE|VARCHAR)\)", re.DOTALL)
#: An expression of the user's in SQL of ours.
_WITHIN = re.compile(r"\(\n([^\n]*)\n\)")


@dataclass(frozen=True, slots=True)
class ItemColumn:
    """One scalar feature: its SQL over the source's columns, and the type of its expression in training.

    The SQL yields DOUBLE for ``numeric``, VARCHAR for ``category``, and the bucket number (INTEGER) for ``hash``; for the
    last two it casts values to ``type`` first.
    """

    item: Item
    sql: str
    type: str

    @property
    def expression(self) -> str:
        """The expression in FEATURES that the SQL casts to a number or text, or the SQL if it is more than a cast."""
        found = _CAST.fullmatch(self.sql)
        return found[1] if found else self.sql

    @property
    def written(self) -> str:
        """The expression in FEATURES of which the SQL is made, for messages; the SQL if it is made of several."""
        within = _WITHIN.findall(self.sql)
        return str(within[0]) if len(within) == 1 else self.expression


#: The SQL type of a hyperparameter, by its kind.
SQL_TYPES: Mapping[Kind, str] = {
    "float": "DOUBLE",
    "int": "BIGINT",
    "bool": "BOOLEAN",
    "str": "VARCHAR",
    "ints": "BIGINT[]",
    "ints_by_feature": "VARCHAR",
    "floats_by_feature": "VARCHAR",
    "feature_sets": "VARCHAR",
}


@dataclass(frozen=True, slots=True)
class HyperparameterColumn:
    """A hyperparameter shown in the model table, with its SQL type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class ModelDefinition:
    """A bound TRAIN statement, complete enough to predict without it.

    ``keys`` and ``sets`` are the GROUP BY (``sets`` finest first; ``((),)`` without GROUP BY). ``classes`` are label values
    as text, in class order, castable to ``label_type``; empty for other labels. Without a label ``target_name``,
    ``target_sql`` and ``label_type`` are None. ``weight_sql`` is the weight of a row over the source's columns, None for 1.
    ``catalog`` is the database's name at training time (None: the current one); it is not stored. ``search_path`` is where
    the statement's unqualified names were looked up. ``series`` is SERIES BY: what tells the series of a group apart.
    ``keep_versions`` is how many versions of the model stay, this one included. ``held_out`` is what tells rows apart whose
    held-out predictions are kept, None if they are not. ``calibrate`` is how probabilities are calibrated, None if not.
    """

    catalog: str | None
    schema: str
    name: str
    learner: str
    label: Label
    statement: str
    target_name: str | None
    target_sql: str | None
    label_type: str | None
    classes: tuple[str, ...]
    keys: tuple[KeyColumn, ...]
    sets: tuple[tuple[int, ...], ...]
    items: tuple[ItemColumn, ...]
    hyperparameters: tuple[HyperparameterColumn, ...]
    configs: tuple[Config, ...]
    metric: str
    greater_is_better: bool
    metrics: tuple[str, ...]
    missing_group: Literal["parent", "null", "error"] = "parent"
    seed: int = 0
    keep_best: int | None = None
    keep_versions: int = 3
    null_label: Literal["skip", "error"] = "skip"
    group_failure: Literal["keep", "error"] = "keep"
    weight_sql: str | None = None
    refit: bool = False
    search_path: SearchPath = ()
    series: tuple[KeyColumn, ...] = ()
    held_out: tuple[KeyColumn, ...] | None = None
    calibrate: str | None = None

    @property
    def offset(self) -> bool:
        """Whether the last item is the offset."""
        return any(encoder_of(entry.item).required for entry in self.items[-1:])

    @property
    def threshold_metric(self) -> str | None:
        """The metric that is the threshold of each group's predictions, if the optimised metric chooses one."""
        return self.family.named(self.metric).threshold if self.output.has_threshold else None

    def threshold_sql(self, trials: str) -> str:
        """Return the threshold of a trial, NULL for none: of held-out rows, where there are none of the training rows."""
        place = self.metrics.index(self.threshold_metric) + 1 if self.threshold_metric in self.metrics else 0
        return f"coalesce({trials}valid[{place}], {trials}train[{place}])"

    def key_columns(self, keys: str) -> list[tuple[str, str]]:
        """Return name and SQL of the typed group columns, given the SQL of the list of key texts."""
        return _typed(self.keys, keys)

    def series_columns(self, keys: str) -> list[tuple[str, str]]:
        """Return the same of the columns that tell the series of a group apart."""
        return _typed(self.series, keys)

    def free_parameter(self, name: str) -> str:
        """Return the name of a macro's parameter, with underscores until no fragment of the model mentions it.

        DuckDB replaces every column of that name in the macro's body by the argument.
        """
        texts = [*(key.sql for key in self.keys), *(entry.sql for entry in self.items), self.target_sql or ""]
        mentioned = "\n".join(texts).casefold()
        while re.search(rf"\b{name}\b", mentioned):
            name += "_"
        return name

    @property
    def label_length(self) -> int:
        """Number of values of an array label, from its type; 0 for a single value."""
        return label_length(self.label_type or "")

    @property
    def shown_learner(self) -> str:
        """The name of the learner as in USING."""
        return self.learner.removeprefix(OVER_LAGS)

    @property
    def described(self) -> str:
        """The learner, and the label if there is one, in words."""
        return self.shown_learner if self.target_name is None else f"{self.shown_learner} of {self.target_name}"

    @property
    def output(self) -> Output:
        """The form of its predictions."""
        return registry.output(self.learner, self.label, self.classes, self.label_type or "")

    @property
    def family(self) -> Family:
        """Its metrics."""
        return registry.family_of(self.learner, self.label)

    @property
    def choosing(self) -> tuple[Metric, ...]:
        """The metrics that choose its best trials: the first that is known of any trial of a group."""
        return self.family.choosing(self.metric)

    def judged_sql(self, trial: str) -> str:
        """Return SQL of a list that orders trials, given the alias of ``trials``: the best first, NULL of one without metrics.

        It has the place of the first metric that is known, of those that choose, and the value, the less the better.
        """
        known = [
            (f"{trial}.{part}[{self.metrics.index(metric.name) + 1}]", "-" if metric.greater_is_better else "")
            for part in ("valid", "train")
            for metric in self.choosing
            if metric.name in self.metrics
        ]
        cases = (f"WHEN {value} IS NOT NULL THEN [{at}, {sign}{value}]" for at, (value, sign) in enumerate(known))
        return f"CASE {' '.join(cases)} END"

    @property
    def is_wide(self) -> bool:
        """Whether any item is wide, with weights stored by column."""
        return any(encoder_of(entry.item).wide for entry in self.items)

    @property
    def positive_class(self) -> str | None:
        """The class, as text, whose probability is ``probability``: the second of two; None for other labels."""
        return self.classes[1] if not self.label.scores_classes and len(self.classes) == 2 else None


def _typed(keys: tuple[KeyColumn, ...], texts: str) -> list[tuple[str, str]]:
    return [(key.name, f"CAST({texts}[{place}] AS {key.type})") for place, key in enumerate(keys, start=1)]
