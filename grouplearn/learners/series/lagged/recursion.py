"""Forecasts from the last values of series, step by step; and what a model keeps to make others, from other features."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.series.lagged.features import CALLS, LagFeatures
from grouplearn.learners.series.lagged.scaling import Scaling
from grouplearn.models.label import NUMBER
from grouplearn.models.state import Artifact, Tensors

#: The forecast of rows (n, d), by a model.
Model = Callable[[FloatArray], FloatArray]
#: The names of features of a window, by whose places they are kept.
_WINDOWS = [name for name in CALLS if name != "lags"]
_NAMES = frozenset({"lags", "windows", "differences", "direct", "shift", "factor", "last"})
_MODEL = re.compile(r"model([0-9]{1,5})\.(.+)")


@dataclass(frozen=True, slots=True)
class Recursion:
    """How values follow from those before: by a model of one step ahead, or if ``direct`` by one for each step of the horizon.

    What is learned are the values after ``differences``, one after another, of which ``features`` are made.
    """

    features: LagFeatures
    differences: tuple[int, ...]
    direct: bool

    @property
    def steps(self) -> tuple[int, ...]:
        """How many of the last values are needed, then of their first differences, and so on."""
        return (*self.differences, self.features.reach)

    def values(self, models: Sequence[Model], last: Sequence[FloatArray], ahead: FloatArray) -> FloatArray:
        """Return the next values of m series (m, H), with features ``ahead`` (m, H, p); ``last`` are arrays (m, steps)."""
        histories, found = list(last), []
        for step in range(ahead.shape[1]):
            now = last[-1] if self.direct else histories[-1]
            x = np.column_stack([*self.features.made(lambda lag, now=now: now[:, -lag]), ahead[:, step]])  # type: ignore[misc]
            found.append(self._appended(histories, models[step if self.direct else 0](x)))
        return np.stack(found, axis=1)

    def _appended(self, histories: list[FloatArray], learned: FloatArray) -> FloatArray:
        """Return the values of the next step, given what is learned of them, and append them to ``histories``."""
        value = learned
        for level in reversed(range(len(histories))):
            if level < len(self.differences):
                value = value + histories[level][:, -self.differences[level]]
            histories[level] = np.column_stack([histories[level][:, 1:], value])
        return value


@dataclass(frozen=True, slots=True)
class Kept:
    """What forecasts of G series go on from: their ``last`` scaled values as in ``Recursion.values``, and the ``models``."""

    recursion: Recursion
    scaling: Scaling
    last: Sequence[FloatArray]
    models: Sequence[Artifact]

    def tensors(self) -> Tensors:
        """Return it as tensors; LightGBM's text is bytes."""
        recursion = self.recursion
        windows = [(_WINDOWS.index(name), width) for name, width in recursion.features.windows]
        numbers: Mapping[str, Any] = {
            "lags": recursion.features.lags,
            "windows": list(itertools.chain.from_iterable(windows)),
            "differences": recursion.differences,
            "direct": [recursion.direct],
            "shift": self.scaling.shift,
            "factor": self.scaling.factor,
            "last": np.concatenate([each.ravel() for each in self.last]),
        }
        models = {
            f"model{number}.{name}": each
            for number, artifact in enumerate(self.models)
            for name, each in (artifact.tensors or {"text": np.frombuffer(artifact.text, np.uint8)}).items()
        }
        return {name: np.asarray(each, np.float64) for name, each in numbers.items()} | models

    @classmethod
    def of(cls, tensors: Tensors) -> Kept:
        """Return what tensors hold; raises ValueError if that cannot be."""
        if not tensors.keys() >= _NAMES:
            raise ValueError("it does not keep what other forecasts need")
        given = {name: _whole(tensors[name]) for name in ("lags", "windows", "differences")}
        pairs = list(zip(given["windows"][::2], given["windows"][1::2], strict=True))
        if any(place >= len(_WINDOWS) for place, _ in pairs) or any(each < 1 for each in given["lags"]):
            raise ValueError("its lags are none")
        features = LagFeatures(tuple(given["lags"]), tuple((_WINDOWS[place], width) for place, width in pairs))
        recursion = Recursion(features, tuple(given["differences"]), bool(tensors["direct"].any()))
        scaling = Scaling(tensors["shift"], tensors["factor"])
        count, bounds = scaling.shift.size, np.cumsum(recursion.steps)
        if scaling.factor.size != count or tensors["last"].size != count * bounds[-1]:
            raise ValueError("its last values are not those of its series")
        last = [each.reshape(count, -1) for each in np.split(tensors["last"], count * bounds[:-1])]
        return cls(recursion, scaling, last, [*_models(tensors)])

    def validation_error(self, base: Learner, n_features: int, horizon: int) -> str | None:
        """Return how its models are not those of ``base`` for a horizon, over ``n_features`` beside those of earlier values."""
        if len(self.models) != (horizon if self.recursion.direct else 1):
            return "it has another number of models than of steps"
        problem = Problem(NUMBER, self.recursion.features.count + n_features)
        return next(filter(None, (base.validation_error(problem, each) for each in self.models)), None)

    def values(self, base: Learner, series: int, ahead: FloatArray) -> FloatArray:
        """Return the next values of a series (H,), with features ``ahead`` (H, p); raises ValueError if it has no such model."""
        if self.recursion.direct and len(ahead) > len(self.models):
            raise ValueError(f"with strategy = 'direct' it has models of {len(self.models)} steps")
        own = [each[series : series + 1] for each in self.last]
        models = [scoring(base, each) for each in self.models]
        found: FloatArray = self.scaling.undone(self.recursion.values(models, own, ahead[None]), np.array([series]))[0]
        return found


def without_models(tensors: Tensors) -> Tensors:
    """Return the tensors that are not of the base learner's models: lists of numbers."""
    return {name: each for name, each in tensors.items() if not _MODEL.fullmatch(name)}


def scoring(base: Learner, artifact: Artifact, look: Callable[[], None] = lambda: None) -> Model:
    """Return the forecast by a model of the base learner, which calls ``look`` first."""

    def forecast(x: FloatArray) -> FloatArray:
        look()
        if not len(x):
            return np.empty(0)
        found = base.score(NUMBER, artifact, np.ascontiguousarray(x))
        return np.asarray(found, np.float64).reshape(len(x), -1)[:, 0]

    return forecast


def _models(tensors: Tensors) -> Iterator[Artifact]:
    """Yield the models of the base learner in order."""
    found: dict[int, dict[str, Any]] = {}
    for name, each in tensors.items():
        if match := _MODEL.fullmatch(name):
            found.setdefault(int(match[1]), {})[match[2]] = each
    if sorted(found) != list(range(len(found))):
        raise ValueError("a model of a step is missing")
    for number in range(len(found)):
        own = found[number]
        yield Artifact("lightgbm", text=own["text"].tobytes()) if "text" in own else Artifact("tensors", own)


def _whole(numbers: FloatArray) -> list[int]:
    if not (np.isfinite(numbers) & (numbers == np.floor(numbers)) & (numbers >= 0) & (numbers < 1e6)).all():
        raise ValueError("a number of steps is not whole")
    return [int(each) for each in numbers]
