"""The results of trials as columns: one shape from the worker that trains them to the catalog that stores them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.layout.ragged import Ragged
from grouplearn.models.state import TEXT, Artifact

IntArray = npt.NDArray[np.int32]
Places = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]
#: What became of a trial, by its number in ``Trials.status``. A kept one failed, and its group keeps the model of before.
STATUSES = ("failed", "stopped", "done", "kept")
FAILED, STOPPED, DONE, KEPT = range(4)
#: The columns with a value or a row for each trial.
COLUMNS = ("group", "config", "status", "epochs", "converged", "seconds", "train", "valid")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One epoch of one trial: the training objective and the validation metric (NaN when there is none)."""

    epoch: int
    train_loss: float
    valid_metric: float


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """What a trial continues from after a barrier: epochs, its own state (``State.to_bytes``), its curve."""

    epochs: int
    state: bytes
    curve: tuple[CurvePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial; metrics by name (``train`` is empty in a fold's unit).

    ``stopped``: it should have had more epochs or folds; without any epoch it has no model but a ``reason``. ``converged``:
    it ended at the optimum; None if the learner does not say. The ``reason`` of a trial that is done is a note. ``state`` is
    what the model can be refreshed from.
    """

    config: int
    status: Literal["done", "stopped", "failed", "kept"]
    reason: str | None = None
    epochs: int = 0
    seconds: float = 0.0
    train: Mapping[str, float] = field(default_factory=dict)
    valid: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[CurvePoint, ...] = ()
    artifact: Artifact | None = None
    importance: tuple[float, ...] | None = None
    carried: TrialProgress | None = None
    converged: bool | None = None
    state: bytes | None = None

    @property
    def usable(self) -> bool:
        """Whether there is a model."""
        return self.status in ("done", "kept") or (self.status == "stopped" and self.artifact is not None)


@dataclass(frozen=True, slots=True)
class States:
    """The states that m models can be refreshed from, as safetensors files: model i has that of number ``of[i]`` (m,), -1 if it
    has none. Models of one group may share a state."""

    of: Places
    contents: Ragged

    def take(self, at: npt.NDArray[Any]) -> States:
        """Return the states of the models at these places."""
        return States(self.of[at], self.contents)

    def state(self, at: int) -> bytes | None:
        """Return the state of a model."""
        own = int(self.of[at])
        return None if own < 0 else self.contents[own].tobytes()


@dataclass(frozen=True, slots=True)
class Models:
    """Models of one shape: ``places`` (m,) are their trials.

    ``tensors`` are the artifacts' by name, m arrays each; ``scalars`` names those without an axis. Text models have one
    tensor, ``TEXT``, of uint8. ``importance`` has a number per feature column, if the learner gives any. ``states`` are
    what they can be refreshed from, if anything is kept.
    """

    places: Places
    tensors: Mapping[str, Ragged]
    importance: Ragged | None = None
    scalars: tuple[str, ...] = ()
    states: States | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the models."""
        return sum(each.values.nbytes for each in self.tensors.values())

    def artifact(self, at: int) -> Artifact:
        """Return one of the models."""
        own = {name: each[at] for name, each in self.tensors.items()}
        if TEXT in own:
            return Artifact("lightgbm", text=own[TEXT].tobytes())
        return Artifact("tensors", own | {name: own[name].reshape(()) for name in self.scalars})

    def take(self, chosen: npt.NDArray[Any], places: Places) -> Models:
        """Return the chosen models (m,), by mask or place, as those of the trials at ``places``."""
        at = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        if len(at) == len(self.places) and (at == np.arange(len(at))).all():
            return replace(self, places=places)
        own = {name: each.take(at) for name, each in self.tensors.items()}
        states = self.states and self.states.take(at)
        return Models(places, own, self.importance and self.importance.take(at), self.scalars, states)

    @classmethod
    def of(cls, records: Sequence[TrialResult]) -> tuple[Models, ...]:
        """Return the models of trials that have one, those of one shape together."""
        alike: defaultdict[object, list[int]] = defaultdict(list)
        for place, record in enumerate(records):
            if record.artifact is not None:
                shape = [(name, each.dtype, each.shape[1:], each.ndim) for name, each in _named(record.artifact)]
                alike[record.importance is None, *shape].append(place)
        found = []
        for places in alike.values():
            every = [dict(_named(artifact)) for place in places if (artifact := records[place].artifact) is not None]
            tensors = {name: Ragged.of([np.atleast_1d(each[name]) for each in every]) for name in every[0]}
            told = [
                np.array(importance, np.float64) for p in places if (importance := records[p].importance) is not None
            ]
            scalars = tuple(name for name, each in every[0].items() if not each.ndim)
            states = _states([records[place].state for place in places])
            found.append(cls(np.array(places, np.intp), tensors, Ragged.of(told) if told else None, scalars, states))
        return tuple(found)


def _states(given: Sequence[bytes | None]) -> States | None:
    known = [np.frombuffer(each, np.uint8) for each in given if each is not None]
    if not known:
        return None
    has = np.array([each is not None for each in given])
    return States(np.where(has, np.cumsum(has) - 1, -1).astype(np.intp), Ragged.of(known))


def _named(artifact: Artifact) -> list[tuple[str, npt.NDArray[Any]]]:
    """Return a model as named arrays, a text as its bytes."""
    return [(TEXT, np.frombuffer(artifact.text, np.uint8))] if artifact.text else sorted(artifact.tensors.items())


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves of T trials: the objective and the validation metric (NaN if there is none) of ``lengths`` (T,) epochs
    from the first one, trial after trial."""

    lengths: IntArray
    losses: FloatArray
    judged: FloatArray

    @classmethod
    def of(cls, curves: Sequence[Sequence[CurvePoint]]) -> Curves:
        """Return the curves of trials."""
        points = [point for curve in curves for point in curve]
        losses, judged = [point.train_loss for point in points], [point.valid_metric for point in points]
        return cls(np.array([len(curve) for curve in curves], np.int32), np.array(losses, np.float64),
                   np.array(judged, np.float64))  # fmt: skip

    @classmethod
    def none(cls, count: int) -> Curves:
        """Return no points for so many trials."""
        return cls(np.zeros(count, np.int32), np.empty(0), np.empty(0))

    def take(self, places: Places) -> Curves:
        """Return the curves of the trials at these places."""
        losses, judged = (
            Ragged.of_sizes(each, self.lengths).take(places).values for each in (self.losses, self.judged)
        )
        return Curves(self.lengths[places], losses, judged)


@dataclass(frozen=True, slots=True)
class Trials:
    """T trials: the numbers (T,) of their ``group`` and ``config``, what became of them (``STATUSES``), how long they trained.

    ``train`` and ``valid`` (T, M) are the metrics called ``names``, NaN if there is none. ``converged`` (T,) is 1 or 0, or -1
    if the learner does not say. By place, ``texts`` are the reasons of trials that failed or stopped and notes on others, and
    ``carried`` what a search continues from.
    """

    group: IntArray
    config: IntArray
    status: npt.NDArray[np.int8]
    epochs: IntArray
    converged: npt.NDArray[np.int8]
    seconds: FloatArray
    train: FloatArray
    valid: FloatArray
    names: tuple[str, ...]
    texts: Mapping[int, str]
    curves: Curves
    models: tuple[Models, ...] = ()
    carried: Mapping[int, TrialProgress] = field(default_factory=dict)

    @classmethod
    def of(cls, group: int, records: Sequence[TrialResult], names: Sequence[str]) -> Trials:
        """Return the trials of one group as columns."""
        metrics = (
            np.array([[values.get(name, np.nan) for name in names] for values in part], np.float64)
            for part in ([each.train for each in records], [each.valid for each in records])
        )
        train, valid = (each.reshape(len(records), len(names)) for each in metrics)
        return cls(
            group=np.full(len(records), group, np.int32),
            config=np.array([each.config for each in records], np.int32),
            status=np.array([STATUSES.index(each.status) for each in records], np.int8),
            epochs=np.array([each.epochs for each in records], np.int32),
            converged=np.array([-1 if each.converged is None else each.converged for each in records], np.int8),
            seconds=np.array([each.seconds for each in records], np.float64),
            train=train,
            valid=valid,
            names=tuple(names),
            texts={place: each.reason for place, each in enumerate(records) if each.reason is not None},
            curves=Curves.of([each.curve for each in records]),
            models=Models.of(records),
            carried={place: each.carried for place, each in enumerate(records) if each.carried is not None},
        )

    @classmethod
    def alike(
        cls, groups: Sequence[int], configs: Sequence[int], status: int, reason: str | None = None, seconds: float = 0.0
    ) -> Trials:
        """Return trials of every config of every group, of one status for one reason, without metrics and models."""
        shape = len(groups), len(configs)
        count = shape[0] * shape[1]
        return cls(
            group=np.repeat(np.array(groups, np.int32), shape[1]),
            config=np.tile(np.array(configs, np.int32), shape[0]),
            status=np.full(count, status, np.int8),
            epochs=np.zeros(count, np.int32),
            converged=np.full(count, -1, np.int8),
            seconds=np.full(count, seconds / max(1, count)),
            train=np.empty((count, 0)),
            valid=np.empty((count, 0)),
            names=(),
            texts={} if reason is None else dict.fromkeys(range(count), reason),
            curves=Curves.none(count),
        )

    @classmethod
    def joined(cls, parts: Sequence[Trials]) -> Trials:
        """Return the trials of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.alike((), (), FAILED)
        names = tuple(dict.fromkeys(name for names in {part.names: None for part in parts} for name in names))
        starts = np.cumsum([0, *map(len, parts)]).tolist()
        every = [part.measured(names) for part in parts]
        return cls(
            **{name: np.concatenate([getattr(each, name) for each in every]) for name in COLUMNS},
            names=names,
            texts={start + place: text for start, part in zip(starts, parts, strict=False) for place, text in part.texts.items()},
            curves=Curves(*(np.concatenate([getattr(part.curves, name) for part in parts])
                            for name in ("lengths", "losses", "judged"))),
            models=tuple(
                replace(each, places=each.places + start)
                for start, part in zip(starts, parts, strict=False) for each in part.models
            ),
            carried={start + place: each for start, part in zip(starts, parts, strict=False)
                     for place, each in part.carried.items()},
        )  # fmt: skip

    def measured(self, names: tuple[str, ...]) -> Trials:
        """Return the trials with these metrics, NaN for those that they do not have."""
        if names == self.names:
            return self
        train, valid = (np.stack([self.metric(part, each) for each in names], axis=1) for part in ("train", "valid"))
        return replace(self, names=names, train=train, valid=valid)

    def metric(self, part: str, name: str) -> FloatArray:
        """Return a metric (T,) of ``train`` or ``valid``, NaN where there is none."""
        if name not in self.names:
            return np.full(len(self), np.nan)
        found: FloatArray = getattr(self, part)[:, self.names.index(name)]
        return found

    @property
    def key(self) -> npt.NDArray[np.int64]:
        """A number (T,) for group and config, in their order."""
        return (self.group.astype(np.int64) << 32) + self.config

    @property
    def has_model(self) -> BoolArray:
        """Which trials (T,) have a model."""
        found = np.zeros(len(self), np.bool_)
        for each in self.models:
            found[each.places] = True
        return found

    @property
    def usable(self) -> BoolArray:
        """Which trials (T,) can be their group's best."""
        return np.asarray((self.status >= DONE) | ((self.status == STOPPED) & self.has_model))

    def take(self, places: npt.NDArray[Any]) -> Trials:
        """Return the trials at these places, in this order."""
        if len(places) == len(self) and (places == np.arange(len(self))).all():
            return self
        new = np.full(len(self), -1, np.intp)
        new[places] = np.arange(len(places))
        taken = replace(
            self,
            **{name: getattr(self, name)[places] for name in COLUMNS},
            texts={int(new[place]): text for place, text in self.texts.items() if new[place] >= 0},
            curves=self.curves.take(places),
            models=(),
            carried={int(new[place]): each for place, each in self.carried.items() if new[place] >= 0},
        )
        return taken.with_models_of(self, np.arange(len(places)), places)

    def ordered(self) -> Trials:
        """Return the trials in order of group and config."""
        return self.take(np.argsort(self.key, kind="stable"))

    def only(self, group: int) -> Trials:
        """Return the trials of one group, of trials in order."""
        first, last = np.searchsorted(self.group, [group, group + 1]).tolist()
        return self.take(np.arange(first, last))

    def without_models(self, which: BoolArray) -> Trials:
        """Return the trials of which some (T,) have no model."""
        models = (each.take(~which[each.places], each.places[~which[each.places]]) for each in self.models)
        return replace(self, models=tuple(each for each in models if len(each.places)))

    def with_models_of(self, other: Trials, at: Places, own: Places) -> Trials:
        """Return the trials with the models of another's trials ``own`` as those of the trials ``at``."""
        new = np.full(len(other), -1, np.intp)
        new[own] = at
        models = (each.take(new[each.places] >= 0, new[each.places][new[each.places] >= 0]) for each in other.models)
        return replace(self, models=(*self.models, *(each for each in models if len(each.places))))

    def failed(self, reasons: Mapping[int, str]) -> Trials:
        """Return the trials with some failed for ``reasons``, by place."""
        which = np.zeros(len(self), np.bool_)
        which[[*reasons]] = True
        return replace(
            self.without_models(which),
            status=np.where(which, FAILED, self.status).astype(np.int8),
            epochs=np.where(which, 0, self.epochs).astype(np.int32),
            converged=np.where(which, -1, self.converged).astype(np.int8),
            train=np.where(which[:, None], np.nan, self.train),
            valid=np.where(which[:, None], np.nan, self.valid),
            texts={**self.texts, **reasons},
        )

    def __len__(self) -> int:
        """Return how many trials these are."""
        return len(self.group)

    def __getitem__(self, place: int) -> TrialResult:
        """Return one trial."""
        return next(iter(self.take(np.arange(len(self))[[place]])))

    def __iter__(self) -> Iterator[TrialResult]:
        """Yield the trials one by one."""
        models = {int(place): (each, at) for each in self.models for at, place in enumerate(each.places)}
        ends = np.cumsum(self.curves.lengths).tolist()
        for place, (end, length) in enumerate(zip(ends, self.curves.lengths.tolist(), strict=True)):
            losses, judged = (each[end - length : end].tolist() for each in (self.curves.losses, self.curves.judged))
            model, at = models.get(place, (None, 0))
            importance = None if model is None or model.importance is None else model.importance[at].tolist()
            yield TrialResult(
                config=int(self.config[place]),
                status=STATUSES[self.status[place]],  # type: ignore[arg-type]
                reason=self.texts.get(place),
                epochs=int(self.epochs[place]),
                seconds=float(self.seconds[place]),
                train=self._known(self.train[place]),
                valid=self._known(self.valid[place]),
                curve=tuple(map(CurvePoint, range(1, length + 1), losses, judged)),
                artifact=None if model is None else model.artifact(at),
                importance=None if importance is None else tuple(importance),
                carried=self.carried.get(place),
                converged=None if self.converged[place] < 0 else bool(self.converged[place]),
                state=None if model is None or model.states is None else model.states.state(at),
            )

    def _known(self, values: FloatArray) -> dict[str, float]:
        """Return the metrics of one trial; empty if there were no rows to measure on."""
        found = dict(zip(self.names, values.tolist(), strict=True))
        return {} if all(map(math.isnan, found.values())) else found
