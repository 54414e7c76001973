"""A loaded model as arrays for the scoring kernels: its groups' encoders, and their linear models or forests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grouplearn.catalog.records import ModelDefinition
from grouplearn.catalog.sql_forms import feature_columns
from grouplearn.data.dataset import FloatArray
from grouplearn.data.encoders import DENSE_COLUMNS, FittedItem
from grouplearn.kernels.library import Runs
from grouplearn.kernels.scoring import Encoders, LinearModels, Link, linked
from grouplearn.kernels.trees import Forests
from grouplearn.learners import registry
from grouplearn.learners.trees.nodes import FeatureColumns
from grouplearn.learners.trees.scoring import GroupTrees, compile_forests
from grouplearn.models.outputs import link
from grouplearn.models.outputs.output import Output
from grouplearn.prediction.group_models import GroupModel
from grouplearn.prediction.rows.known_values import Codes
from grouplearn.prediction.rows.vocabulary import Layout

#: The kernels' links of linear models: for two classes both probabilities are returned.
_LINKS: Mapping[link.Link, Link] = {
    "identity": Link.VALUE,
    "exp": Link.EXPONENTIAL,
    "logistic": Link.SIGMOID,
    "softmax": Link.SOFTMAX,
}


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """Predicts lines of numbers with the models of all groups at once."""

    encoders: Encoders
    models: LinearModels | Forests
    link: Link
    #: Where the values of arrays are, which the encoders leave as they are.
    arrays: tuple[slice, ...]

    @classmethod
    def of(cls, definition: ModelDefinition, groups: Sequence[GroupModel], layout: Layout) -> CompiledModel | None:
        """Return a model compiled for lines of this layout, None if the kernels do not support it."""
        if definition.label_length or not groups:
            return None
        found = _linear(definition, groups, layout) if definition.linear else _forests(definition, groups, layout)
        if found is None:
            return None
        items = zip(layout.starts, (entry.item for entry in definition.items), strict=True)
        arrays = tuple(slice(start, start + item.buckets) for start, item in items if item.kind == "array")
        encoders = _encoders(definition, [group.fitted for group in groups], finite=definition.linear)
        models, link = found
        return cls(encoders, models, link, arrays)

    def predict(self, x: FloatArray, group: Codes) -> FloatArray:
        """Return the predictions of lines ``x``, which are changed: values (n, 1) or probabilities (n, classes), NaN if
        none."""
        self.encoders.encode(x, group)
        for values in self.arrays if self.encoders.finite else ():
            x[:, values][np.isinf(x[:, values])] = np.nan
        return linked(self.models.scores(x, group), self.link)


@dataclass(frozen=True, slots=True)
class ModelsInRuns:
    """Predicts lines of numbers with the learner's ``score_runs``, the rows of each group being a run."""

    encoders: Encoders
    scores: Callable[[FloatArray, Runs], FloatArray]
    output: Output
    #: Which classes each group has.
    classes: Sequence[tuple[int, ...]]
    classes_of: npt.NDArray[np.int64]

    @classmethod
    def of(cls, definition: ModelDefinition, groups: Sequence[GroupModel]) -> ModelsInRuns | None:
        """Return a model for lines of numbers, None if rows have other columns or the learner has no ``score_runs``."""
        numbers = all(entry.item.kind == "numeric" for entry in definition.items)
        known = registry.is_known(definition.learner) and 0 < len(definition.items) <= DENSE_COLUMNS
        if not (groups and numbers and known) or definition.label_length:
            return None
        scores = registry.learner(definition.learner).score_runs(definition.label, [group.artifact for group in groups])
        if scores is None:
            return None
        number = {classes: place for place, classes in enumerate(dict.fromkeys(group.classes for group in groups))}
        classes_of = np.array([number[group.classes] for group in groups])
        encoders = _encoders(definition, [group.fitted for group in groups], finite=True)
        return cls(encoders, scores, definition.output, tuple(number), classes_of)

    def predict(self, x: FloatArray, group: Codes) -> FloatArray:
        """Return the output's outputs of lines ``x``, which are changed; NaN if none."""
        self.encoders.encode(x, group)
        features = x[:, : self.encoders.fills.shape[1]]
        usable = np.flatnonzero((group >= 0) & np.isfinite(features).all(axis=1))
        order = usable[np.argsort(group[usable], kind="stable")]
        model, first = np.unique(group[order], return_index=True)
        runs = Runs(np.append(first, len(order)).astype(np.int64), model.astype(np.int64))
        # Extreme features may overflow: an infinite value is a prediction, NaN is none.
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self.scores(np.ascontiguousarray(features[order]), runs)
            outputs = np.full((len(x), max(self.output.width, scores.shape[1])), np.nan)
            of_row = self.classes_of[group[order]]
            for place, classes in enumerate(self.classes):
                own = of_row == place
                found = self.output.outputs(scores[own], classes)
                outputs[order[own], : found.shape[1]] = found
        return outputs


def _encoders(definition: ModelDefinition, fitted: Sequence[tuple[FittedItem, ...]], *, finite: bool) -> Encoders:
    numeric = [number for number, entry in enumerate(definition.items) if entry.item.kind == "numeric"]
    shape = (len(fitted), len(numeric))
    values = ((own[number].fill, own[number].center, own[number].scale) for own in fitted for number in numeric)
    flat = np.array([(np.nan if fill is None else fill, *others) for fill, *others in values], dtype=np.float64)
    fills, centers, scales = (np.ascontiguousarray(each).reshape(shape) for each in flat.reshape(-1, 3).T)
    return Encoders(fills, centers, scales, finite)


def _linear(
    definition: ModelDefinition, groups: Sequence[GroupModel], layout: Layout
) -> tuple[LinearModels, Link] | None:
    several, n_outputs = definition.label.scores_classes, definition.output.n_scores
    weights = np.zeros((len(groups), n_outputs, layout.n_numbers))
    intercepts = np.full((len(groups), n_outputs), -np.inf if several else 0.0)
    starts = np.zeros((len(groups), n_outputs, layout.width - layout.n_numbers), dtype=np.int64)
    flat, base = [], 0
    for place, group in enumerate(groups):
        own, intercept = group.artifact.tensors["weights"], group.artifact.tensors["intercept"]
        outputs = list(group.classes) if several else [0]
        intercepts[place, outputs] = intercept
        # For a class that the group does not have any weights will do: its intercept, and so its score, is minus infinity.
        row = np.zeros(n_outputs, dtype=np.int64)
        row[outputs] = base + np.arange(len(outputs)) * own.shape[1]
        row[[number for number in range(n_outputs) if number not in outputs]] = base
        columns: list[int] = []
        features: list[int] = []
        at = 0
        for item, start in zip(group.fitted, layout.starts, strict=True):
            if start >= layout.n_numbers:
                starts[place, :, start - layout.n_numbers] = row + at
            else:
                columns += range(start, start + item.width)
                features += range(at, at + item.width)
            at += item.width
        weights[place, np.array(outputs)[:, None], columns] = own[:, features]
        flat.append(own.ravel())
        base += own.size
    (link,) = registry.links(definition.learner, definition.configs, definition.label)
    return LinearModels(weights, intercepts, starts, np.concatenate(flat)), _LINKS[link]


def _forests(definition: ModelDefinition, groups: Sequence[GroupModel], layout: Layout) -> tuple[Forests, Link] | None:
    if any(group.artifact.format != "lightgbm" for group in groups):
        return None
    known: dict[tuple[int, ...], FeatureColumns] = {}
    models = []
    for group in groups:
        widths = tuple(item.width for item in group.fitted)
        if widths not in known:
            known[widths] = feature_columns(group.fitted, layout.starts)
        models.append(GroupTrees(group.artifact.text, known[widths], group.classes))
    return compile_forests(models, definition.label, len(definition.classes))
