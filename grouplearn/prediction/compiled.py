"""A loaded model as arrays for the scoring kernels: its groups' encoders, and their linear models or forests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.dataset import FloatArray
from grouplearn.data.encoders import DENSE_COLUMNS, FittedItem
from grouplearn.data.encoding.categories.target import encodings
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.kernels.library import RowRuns
from grouplearn.kernels.scoring import Encoders, LinearModels, Link, linked
from grouplearn.kernels.trees import Forests
from grouplearn.learners import registry
from grouplearn.learners.contract.optional import ScoresRuns
from grouplearn.models.forms.form import GroupModel, Layout
from grouplearn.models.forms.forms import form_of
from grouplearn.models.outputs.output import Output
from grouplearn.prediction.rows.known_values import Codes


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """Predicts lines of numbers with the models of all groups at once."""

    encoders: Encoders
    models: LinearModels | Forests
    link: Link
    #: Where the values of arrays are, which the encoders leave as they are.
    arrays: tuple[slice, ...]
    #: The encodings of categories that are numbers, by the place in a line.
    encodings: Mapping[int, _Encodings]
    #: Where the offset is that is added to scores, -1 for none.
    offset: int = -1

    @classmethod
    def of(cls, definition: ModelDefinition, groups: Sequence[GroupModel], layout: Layout) -> CompiledModel | None:
        """Return a model compiled for lines of this layout, None if the kernels do not support it."""
        if definition.label_length or not groups:
            return None
        form = form_of(definition)
        found = form.compiled(definition, groups, layout)
        if found is None:
            return None
        items = zip(layout.starts, (entry.item for entry in definition.items), strict=True)
        arrays = tuple(slice(start, start + item.buckets) for start, item in items if item.kind == "array")
        encoders = _encoders(definition, [group.fitted for group in groups], finite=not form.handles_missing)
        models, link = found
        encodings = {
            start: _Encodings([group.fitted[number] for group in groups])
            for number, (start, entry) in enumerate(zip(layout.starts, definition.items, strict=True))
            if encoder_of(entry.item).learns_labels
        }
        offset = layout.starts[-1] if definition.offset and isinstance(models, Forests) else -1
        return cls(encoders, models, link, arrays, encodings, offset)

    def predict(self, x: FloatArray, group: Codes) -> FloatArray:
        """Return the predictions of lines ``x``, which are changed: values (n, 1) or probabilities (n, classes), NaN if
        none."""
        self.encoders.encode(x, group)
        for start, own in self.encodings.items():
            x[:, start] = own.of(group, x[:, start])
        for values in self.arrays if self.encoders.finite else ():
            x[:, values][np.isinf(x[:, values])] = np.nan
        if self.offset < 0:
            return linked(self.models.scores(x, group), self.link)
        offsets = x[:, self.offset].copy()
        return linked(
            self.models.scores(x, group) + np.where(np.isfinite(offsets), offsets, np.nan)[:, None], self.link
        )


class _Encodings:
    """The numbers of an item's categories in several groups."""

    def __init__(self, fitted: Sequence[FittedItem]) -> None:
        own = [encodings(each) for each in fitted]
        self._ends = np.cumsum([len(each) for each in own])
        self._values = np.concatenate([*own, [np.nan]])

    def of(self, group: Codes, place: FloatArray) -> FloatArray:
        """Return the number of each row's category, given its place (NaN: none) in its group's list (-1: no group)."""
        last = self._ends[group] - 1
        first = np.concatenate([[0], self._ends[:-1]])[group]
        at = np.where(np.isnan(place), last, first + np.nan_to_num(place).astype(np.int64))
        return np.asarray(self._values[np.where(group < 0, len(self._values) - 1, at)])


@dataclass(frozen=True, slots=True)
class ModelsInRuns:
    """Predicts lines of numbers with the learner's ``score_runs``, the rows of each group being a run."""

    encoders: Encoders
    scores: Callable[[FloatArray, RowRuns], FloatArray]
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
        learner = registry.learner(definition.learner)
        artifacts = [group.artifact for group in groups]
        scores = learner.score_runs(definition.label, artifacts) if isinstance(learner, ScoresRuns) else None
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
        runs = RowRuns(np.append(first, len(order)).astype(np.int64), model.astype(np.int64))
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
