"""The results of many small groups as arrays, without an object per trial."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.layout.ragged import Ragged
from grouplearn.models.metrics.ranking import in_order
from grouplearn.models.state import Artifact
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import CurvePoint, GroupFacts, TrialResult

IntArray = npt.NDArray[np.int32]
#: The tensor name of models that are texts.
TEXT = "text"


@dataclass(frozen=True, slots=True)
class Models:
    """Models of some groups of a pack: ``members`` (g,) are their places.

    ``tensors`` are the artifacts' by name, the first group's configs first; without rows for trials without a model. Text
    models have one tensor, ``TEXT``, of uint8. ``importance`` has a number per feature column, if the learner gives any.
    """

    members: npt.NDArray[np.intp]
    tensors: Mapping[str, Ragged]
    importance: Ragged | None = None

    @property
    def count(self) -> int:
        """Number of trials, -1 if tensors differ in it."""
        counts = {len(each) for each in self.tensors.values()}
        return counts.pop() if len(counts) == 1 else -1

    @property
    def nbytes(self) -> int:
        """Bytes of the models."""
        return sum(each.values.nbytes for each in self.tensors.values())

    def artifact(self, trial: int) -> Artifact:
        """Return the model of a trial, numbered over groups and configs."""
        own = {name: each[trial] for name, each in self.tensors.items()}
        if TEXT in own:
            return Artifact("lightgbm", text=own[TEXT].tobytes())
        if any(each.dtype != np.float64 for each in own.values()):
            raise ValueError("the numbers of models are in double precision")
        return Artifact("tensors", own)

    def of_group(self, at: int, configs: int) -> Models:
        """Return the models of one of the groups, with this many configs each."""
        trials = at * configs, (at + 1) * configs
        own = {name: each.part(*trials) for name, each in self.tensors.items()}
        importance = None if self.importance is None else self.importance.part(*trials)
        return Models(self.members[at : at + 1], own, importance)

    def take(self, chosen: npt.NDArray[np.bool_], configs: int) -> Models:
        """Return the models of the chosen groups (g,), with this many configs each."""
        trials = (np.flatnonzero(chosen)[:, None] * configs + np.arange(configs)).ravel()
        own = {name: each.take(trials) for name, each in self.tensors.items()}
        importance = None if self.importance is None else self.importance.take(trials)
        return Models(self.members[chosen], own, importance)

    def beside_none(self, place: npt.NDArray[np.intp], configs: int) -> Models:
        """Return models of one config per group at ``place`` (g,) among so many, the others without models."""
        count = len(self.members)
        trials = np.full((count, configs), count)
        trials[np.arange(count), place] = np.arange(count)

        def placed(each: Ragged) -> Ragged:
            return Ragged.joined([each, each.none(1)]).take(trials.ravel())

        own = {name: placed(each) for name, each in self.tensors.items()}
        return Models(self.members, own, None if self.importance is None else placed(self.importance))

    def none(self, configs: int) -> Models:
        """Return the same groups with this many configs without models."""
        count = len(self.members) * configs
        importance = None if self.importance is None else self.importance.none(count)
        return Models(self.members, {name: each.none(count) for name, each in self.tensors.items()}, importance)


@dataclass(frozen=True, slots=True)
class Curves:
    """The objective after each epoch of every trial: ``lengths`` (G, C), and ``losses`` concatenated over trials.

    ``metrics`` are those of held-out rows after each epoch; None if only finished models were measured.
    """

    lengths: IntArray
    losses: FloatArray
    metrics: FloatArray | None = None

    def take(self, groups: npt.NDArray[np.intp], trials: npt.NDArray[np.intp]) -> Curves:
        """Return the curves of these groups, and so of their trials."""
        sizes = self.lengths.ravel()
        losses = Ragged.of_sizes(self.losses, sizes).take(trials).values
        metrics = None if self.metrics is None else Ragged.of_sizes(self.metrics, sizes).take(trials).values
        return Curves(self.lengths[groups], losses, metrics)


@dataclass(frozen=True, slots=True)
class Packed:
    """Trials of G groups x C configs. Arrays are (G, C); ``reasons`` has the failed trials by place.

    ``train`` and ``valid`` are metrics by name, NaN if there is none. ``converged`` is None if the learner does not say.
    ``seconds`` is each trial's equal share. ``facts`` (G) is None for a group that was not prepared. ``notes`` belong to
    trials that did not fail.
    """

    groups: tuple[int, ...]
    configs: tuple[int, ...]
    facts: tuple[GroupFacts | None, ...]
    reasons: Mapping[tuple[int, int], str]
    epochs: IntArray
    converged: npt.NDArray[np.bool_] | None
    seconds: float
    train: Mapping[str, FloatArray]
    valid: Mapping[str, FloatArray]
    curves: Curves
    models: tuple[Models, ...]
    notes: Mapping[tuple[int, int], str] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of groups and configs."""
        return len(self.groups), len(self.configs)

    def only(self, places: npt.NDArray[np.intp]) -> Packed:
        """Return the groups at these places, in this order."""
        new = np.full(len(self.groups), -1)
        new[places] = np.arange(len(places))
        trials = (places[:, None] * len(self.configs) + np.arange(len(self.configs))).ravel()

        def renumbered(texts: Mapping[tuple[int, int], str]) -> dict[tuple[int, int], str]:
            return {(int(new[group]), config): text for (group, config), text in texts.items() if new[group] >= 0}

        models = [each.take(new[each.members] >= 0, len(self.configs)) for each in self.models]
        return replace(
            self,
            groups=tuple(self.groups[place] for place in places.tolist()),
            facts=tuple(self.facts[place] for place in places.tolist()),
            reasons=renumbered(self.reasons),
            notes=renumbered(self.notes),
            epochs=self.epochs[places],
            converged=None if self.converged is None else self.converged[places],
            train={name: each[places] for name, each in self.train.items()},
            valid={name: each[places] for name, each in self.valid.items()},
            curves=self.curves.take(places, trials),
            models=tuple(replace(each, members=new[each.members]) for each in models if len(each.members)),
        )

    def done(self) -> npt.NDArray[np.bool_]:
        """Return which trials have a model, (G, C)."""
        done = np.ones(self.shape, dtype=bool)
        for place in self.reasons:
            done[place] = False
        return done

    def trials(self, metric: str) -> Iterator[tuple[TrialResult, ...]]:
        """Yield the trials of each group as objects; ``metric`` is that of the curves."""
        models = {int(group): (each, place) for each in self.models for place, group in enumerate(each.members)}
        ends = np.cumsum(self.curves.lengths.ravel()).reshape(self.shape)
        for group in range(len(self.groups)):
            yield tuple(self._trial(group, place, models.get(group), int(ends[group, place]), metric)
                        for place in range(len(self.configs)))  # fmt: skip

    def _trial(self, group: int, place: int, model: tuple[Models, int] | None, end: int, metric: str) -> TrialResult:
        drawn = slice(end - int(self.curves.lengths[group, place]), end)
        losses = self.curves.losses[drawn].tolist()
        if self.curves.metrics is not None:
            judged = self.curves.metrics[drawn].tolist()
        else:
            last = float(self.valid[metric][group, place]) if metric in self.valid else np.nan
            judged = [*[np.nan] * (len(losses) - 1), last][-len(losses) :] if losses else []
        points = zip(losses, judged, strict=True)
        curve = tuple(CurvePoint(epoch, *point) for epoch, point in enumerate(points, 1))
        number, reason = self.configs[place], self.reasons.get((group, place))
        if reason is not None:
            return TrialResult(number, "failed", reason, seconds=self.seconds, curve=curve)
        trial = TrialResult(
            config=number,
            status="done",
            reason=self.notes.get((group, place)),
            epochs=int(self.epochs[group, place]),
            converged=None if self.converged is None else bool(self.converged[group, place]),
            seconds=self.seconds,
            train=_known(self.train, group, place),
            valid=_known(self.valid, group, place),
            curve=curve,
        )
        if model is None:  # of a fold
            return trial
        found, at = model
        number = at * len(self.configs) + place
        importance = None if found.importance is None else tuple(found.importance[number].tolist())
        return replace(trial, artifact=found.artifact(number), importance=importance)


def _known(metrics: Mapping[str, FloatArray], group: int, place: int) -> dict[str, float]:
    """Return the metrics of one trial; empty if there were no rows to measure on."""
    values = {name: float(each[group, place]) for name, each in metrics.items()}
    return {} if all(math.isnan(value) for value in values.values()) else values


def failed_pack(unit: Unit, reason: str, seconds: float) -> Packed:
    """Return the results of a unit whose trials all failed for one reason."""
    shape = len(unit.groups), len(unit.configs)
    return Packed(
        groups=unit.groups,
        configs=unit.configs,
        facts=(None,) * shape[0],
        reasons=dict.fromkeys(np.ndindex(shape), reason),
        epochs=np.zeros(shape, dtype=np.int32),
        converged=np.zeros(shape, dtype=np.bool_),
        seconds=seconds / max(1, shape[0] * shape[1]),
        train={},
        valid={},
        curves=Curves(np.zeros(shape, dtype=np.int32), np.empty(0)),
        models=(),
    )


def mean_known(measured: Sequence[Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
    """Return the mean of every metric over the folds that have one."""
    names = dict.fromkeys(name for each in measured for name in each)
    means = {}
    for name in names:
        values = np.stack([each[name] for each in measured if name in each])
        known = ~np.isnan(values)
        total, count = in_order(np.where(known, values, 0.0)), known.sum(axis=0)
        means[name] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return means


def beside(parts: Sequence[Packed]) -> Packed:
    """Return several packs of the same groups as one, configs in order of number."""
    if len(parts) == 1:
        return parts[0]
    numbers = [number for part in parts for number in part.configs]
    order = np.argsort(numbers, kind="stable")
    place_of = {int(old): new for new, old in enumerate(order)}
    starts = np.cumsum([0, *(len(part.configs) for part in parts)])

    def placed(texts: Sequence[Mapping[tuple[int, int], str]]) -> dict[tuple[int, int], str]:
        return {
            (group, place_of[int(start) + place]): text
            for start, each in zip(starts, texts, strict=False)
            for (group, place), text in each.items()
        }

    return Packed(
        groups=parts[0].groups,
        configs=tuple(numbers[int(old)] for old in order),
        facts=parts[0].facts,
        reasons=placed([part.reasons for part in parts]),
        notes=placed([part.notes for part in parts]),
        epochs=np.concatenate([part.epochs for part in parts], axis=1)[:, order],
        converged=_converged_beside(parts, order),
        seconds=float(np.mean([part.seconds for part in parts])),
        train=_joined([part.train for part in parts], order),
        valid=_joined([part.valid for part in parts], order),
        curves=_curves_beside(parts, order),
        models=_models_beside(parts, order),
    )


def _joined(parts: Sequence[Mapping[str, FloatArray]], order: npt.NDArray[np.intp]) -> dict[str, FloatArray]:
    return {
        name: np.concatenate([part[name] for part in parts], axis=1)[:, order]
        for name in parts[0]
        if all(name in part for part in parts)
    }


def _converged_beside(parts: Sequence[Packed], order: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_] | None:
    known = [part.converged for part in parts if part.converged is not None]
    return np.concatenate(known, axis=1)[:, order] if len(known) == len(parts) else None


def _curves_beside(parts: Sequence[Packed], order: npt.NDArray[np.intp]) -> Curves:
    lengths = np.concatenate([part.curves.lengths for part in parts], axis=1)
    places = _places_beside(len(parts[0].groups), [len(part.configs) for part in parts])[:, order].ravel()

    def placed(values: Sequence[FloatArray]) -> FloatArray:
        cut = [Ragged.of_sizes(each, part.curves.lengths.ravel()) for each, part in zip(values, parts, strict=True)]
        taken: FloatArray = Ragged.joined(cut).take(places).values
        return taken

    metrics = [part.curves.metrics for part in parts if part.curves.metrics is not None]
    losses = placed([part.curves.losses for part in parts])
    return Curves(lengths[:, order], losses, placed(metrics) if len(metrics) == len(parts) else None)


def _models_beside(parts: Sequence[Packed], order: npt.NDArray[np.intp]) -> tuple[Models, ...]:
    """Stacks that all parts share stay together; if one part was trained group by group, all groups are separated."""
    if any(len(part.models) != len(parts[0].models) for part in parts):
        parts = [replace(part, models=_one_by_one(part)) for part in parts]
    columns = [{tuple(each.members.tolist()): each for each in part.models} for part in parts]
    configs = [len(part.configs) for part in parts]
    found = []
    for members in dict.fromkeys(members for column in columns for members in column):
        known = next(column[members] for column in columns if members in column)
        alike = [column.get(members) or known.none(count) for column, count in zip(columns, configs, strict=True)]
        places = _places_beside(len(members), configs)[:, order].ravel()
        tensors = {name: Ragged.joined([each.tensors[name] for each in alike]).take(places) for name in known.tensors}
        told = [each.importance for each in alike if each.importance is not None]
        importance = Ragged.joined(told).take(places) if len(told) == len(alike) else None
        found.append(Models(known.members, tensors, importance))
    return tuple(found)


def _places_beside(groups: int, configs: Sequence[int]) -> npt.NDArray[np.intp]:
    """Return the places of trials (groups, configs of all parts) in the concatenated parts."""
    firsts = np.cumsum([0, *(groups * count for count in configs)])[:-1]
    places = [
        first + np.arange(groups * count).reshape(groups, count) for first, count in zip(firsts, configs, strict=True)
    ]
    return np.concatenate(places, axis=1)


def _one_by_one(part: Packed) -> tuple[Models, ...]:
    configs = len(part.configs)
    return tuple(each.of_group(at, configs) for each in part.models for at in range(len(each.members)))
