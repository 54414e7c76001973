"""Gradient boosted decision trees: LightGBM, one binned data set shared by the configs of a pack."""

from __future__ import annotations

import ctypes
import functools
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from grouplearn.data.shard import Matrix, Shard
from grouplearn.learners import metrics
from grouplearn.learners.base import (
    Access,
    Artifact,
    Boosted,
    Config,
    Diverged,
    FloatArray,
    Gang,
    Hyperparameter,
    Interrupted,
    Problem,
    State,
    Stop,
    Task,
    Value,
)
from grouplearn.learners.gbdt_parameters import HYPERPARAMETERS, complete, conflict, draws_rows, lightgbm_parameters

#: Our metrics that LightGBM computes itself, by the same formula, while it boosts.
_NATIVE_METRICS = {
    (Task.REGRESSION, "rmse"): "rmse",
    (Task.REGRESSION, "mae"): "l1",
    (Task.BINARY, "log_loss"): "binary_logloss",
    (Task.BINARY, "auc"): "auc",
    (Task.MULTICLASS, "log_loss"): "multi_logloss",
}

#: Parameters that decide how features are binned: configs that agree on them share one LightGBM Dataset.
_DATASET_PARAMETERS = ("max_bin", "min_data_in_bin", "bin_construct_sample_cnt")

#: Bytes of model texts that stay parsed between calls of ``score``: thousands of small forests, or hundreds of default ones.
_PARSED_BYTES = 1 << 26


class Gbdt:
    """Gradient boosted decision trees by LightGBM (Ke et al. 2017), under LightGBM's own parameter names.

    The model of a trial is that of ``lightgbm.train(params, Dataset(x, y, weight))`` with ``params`` as
    ``lightgbm_parameters`` returns them. Losses: log loss, multinomial log loss, ½(y-ŷ)². NaN means missing; columns
    of ``problem.categorical`` hold category codes. State: ``model_i``, the text of the model of config i as bytes.
    """

    name: ClassVar[str] = "gbdt"
    summary: ClassVar[str] = "Gradient boosted decision trees (LightGBM)"
    access: ClassVar[Access] = Access.SAMPLING
    tasks: ClassVar[frozenset[Task]] = frozenset(Task)
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = HYPERPARAMETERS
    default_epochs: ClassVar[int | None] = None
    linear: ClassVar[bool] = False
    log_link: ClassVar[bool] = False
    handles_missing: ClassVar[bool] = True
    handles_sparse: ClassVar[bool] = True
    requires: ClassVar[tuple[str, str] | None] = ("lightgbm", "grouplearn[gbdt]")

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Configs that bin the features in the same way share the binned rows."""
        config = complete(config)
        return tuple(config[name] for name in _DATASET_PARAMETERS)

    def conflict(self, config: Config) -> str | None:
        """Return why the parameters contradict each other, or None."""
        return conflict(config)

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:  # noqa: ARG002
        """Return the state without models."""
        empty = {f"model_{index}": np.empty(0, dtype=np.uint8) for index in range(len(configs))}
        return State(empty, np.zeros(len(configs), dtype=bool))

    def boost(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        shard: Shard,
        valid: Shard | None,
        stop: Stop,
        gang: Gang | None = None,
    ) -> tuple[State, Boosted]:
        """Train every config to its end; a round of a config is an epoch of its curve.

        With ``stop.patience`` and a validation shard each model is cut to its best round. In a gang LightGBM's members
        exchange histograms (tree_learner = 'data'). Raises Diverged when there is nothing to learn from, when parameters
        contradict each other or when LightGBM refuses the data, and Interrupted when cancelled.
        """
        _check(problem, configs, shard)
        filled = [complete(config) for config in configs]
        kept: dict[int, _Kept] = {}
        with _network(gang):
            for binned_alike in _grouped(filled, self.pack_key, range(len(configs))):
                data = _Binned(problem, filled[binned_alike[0]], shard, valid, stop.metric, gang)
                for family in _grouped(filled, _family, binned_alike):
                    members = [filled[index] for index in family]
                    kept.update(zip(family, _boost_family(data, members, stop), strict=True))
        tensors = dict(state.tensors)
        for index, result in kept.items():
            tensors[f"model_{index}"] = np.frombuffer(result.text.encode(), dtype=np.uint8)
        in_order = [kept[index] for index in range(len(configs))]
        done = np.array([result.whole for result in in_order])
        boosted = Boosted(tuple(r.rounds for r in in_order), tuple(r.curve for r in in_order))
        return State(tensors, done), boosted

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predictions, shape (n, c, n_outputs)."""
        models = (self.finalize(problem, configs, state, index) for index in range(len(configs)))
        return np.stack([self.score(problem.task, model, x) for model in models], axis=1)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:  # noqa: ARG002
        """Return the model of config ``index`` in LightGBM's text format."""
        return Artifact("lightgbm", text=state.tensors[f"model_{index}"].tobytes())

    def score(self, task: Task, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return values or probabilities, shape (n, n_outputs). The text must come from a source that is trusted."""
        booster = _parsed(artifact.text)
        if not x.shape[0]:
            return np.empty((0, booster.num_model_per_iteration() if task is Task.MULTICLASS else 1))
        scores: FloatArray = np.asarray(booster.predict(x, num_threads=1), dtype=np.float64)
        return scores.reshape(x.shape[0], -1)

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:  # noqa: ARG002
        """Return the total gain of the splits on each feature."""
        gain: FloatArray = _parsed(artifact.text).feature_importance(importance_type="gain")
        return gain


@functools.cache
def _lightgbm() -> Any:
    import lightgbm

    return lightgbm


@contextmanager
def _network(gang: Gang | None) -> Iterator[None]:
    """Connect LightGBM, of which a process has one network, to the other members of a gang.

    LightGBM offers no choice here: while members connect, and only then, it listens on every interface of the machine.
    """
    if gang is None:
        yield
        return
    basic = _lightgbm().basic
    machines = ",".join(f"127.0.0.1:{port}" for port in gang.ports)
    minutes = max(1, math.ceil(gang.seconds / 60))
    call, library = basic._safe_call, basic._LIB
    try:
        call(
            library.LGBM_NetworkInit(machines.encode(), *map(ctypes.c_int, (gang.ports[gang.rank], minutes, gang.size)))
        )
        yield
    except basic.LightGBMError as error:
        raise Diverged(f"LightGBM: {error}") from error
    finally:
        call(library.LGBM_NetworkFree())


def _distributed(gang: Gang | None) -> dict[str, Any]:
    """Return the parameters of a gang's members, each of which has rows of its own."""
    if gang is None:
        return {}
    return {"tree_learner": "data", "num_machines": gang.size, "pre_partition": True}


class _Parsed:
    """The boosters of the model texts that were asked for last, ``_PARSED_BYTES`` of text at most."""

    def __init__(self) -> None:
        self._boosters: OrderedDict[bytes, Any] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __call__(self, text: bytes) -> Any:
        """Return the booster of a model text."""
        with self._lock:
            if text in self._boosters:
                self._boosters.move_to_end(text)
                return self._boosters[text]
        booster = _lightgbm().Booster(model_str=text.decode())
        with self._lock:
            self._bytes += len(text) if text not in self._boosters else 0
            self._boosters[text] = booster
            while self._bytes > _PARSED_BYTES and len(self._boosters) > 1:
                self._bytes -= len(self._boosters.popitem(last=False)[0])
        return booster


_parsed = _Parsed()


def _check(problem: Problem, configs: Sequence[Config], shard: Shard) -> None:
    if not shard.n_rows:
        raise Diverged("there are no training rows")
    if not problem.n_features:
        raise Diverged("there are no features")
    for config in map(complete, configs):
        contradiction = conflict(config)
        if contradiction:
            raise Diverged(contradiction)
        if draws_rows(config) and int(config["bagging_fraction"] * shard.n_rows) == 0:  # type: ignore[operator, arg-type]
            raise Diverged(f"bagging_fraction = {config['bagging_fraction']} of {shard.n_rows} rows leaves none")


def _family(config: Config) -> tuple[Value, ...]:
    """Configs with equal keys differ in their number of rounds only: they are prefixes of one booster.

    Not with dart, whose later rounds rescale earlier trees.
    """
    return tuple(
        value for name, value in sorted(config.items()) if name != "num_iterations" or config["boosting"] == "dart"
    )


def _grouped(
    configs: Sequence[Config], key: Callable[[Config], tuple[Value, ...]], indexes: Iterable[int]
) -> Iterator[list[int]]:
    """Yield the indexes of configs with equal keys, in order of first appearance."""
    groups: dict[tuple[Value, ...], list[int]] = {}
    for index in indexes:
        groups.setdefault(key(configs[index]), []).append(index)
    yield from groups.values()


class _Binned:
    """The binned training and validation rows, and the metric watched on the latter."""

    def __init__(
        self, problem: Problem, config: Config, shard: Shard, valid: Shard | None, metric: str, gang: Gang | None
    ) -> None:
        self.problem, self.metric, self.gang = problem, metric, gang
        self.valid = valid if valid is not None and valid.n_rows else None
        native = _NATIVE_METRICS.get((problem.task, metric)) if self.valid else None
        if native == "auc" and self.valid and np.ptp(self.valid.y) == 0:
            native = None  # LightGBM calls the area under the curve of a single class 1
        self.native = native or "None"
        parameters = lightgbm_parameters(problem, config) | _distributed(gang)
        self.train_set = self._data_set(shard, params=parameters)
        self.valid_set = self._data_set(self.valid, params=parameters, reference=self.train_set) if self.valid else None

    def booster(self, config: Config) -> Any:
        """Return a booster without trees."""
        parameters = lightgbm_parameters(self.problem, config, self.native) | _distributed(self.gang)
        booster = _lightgbm().Booster(parameters, self.train_set)
        if self.valid_set is not None:
            booster.add_valid(self.valid_set, "valid")
        return booster

    def measure(self, booster: Any) -> float:
        """Return the metric of the booster so far on the validation rows."""
        own = None if self.native != "None" else self._own_metric
        return float(booster.eval_valid(feval=own)[0][2])

    def _own_metric(self, predictions: FloatArray, _: Any) -> tuple[str, float, bool]:
        rows: Shard = self.valid  # type: ignore[assignment]
        scores = predictions.reshape(rows.n_rows, 1, self.problem.n_outputs)
        sums = metrics.measure(self.problem.task, self.problem.n_classes, scores, rows.y, rows.weight)
        return self.metric, float(metrics.finish(sums)[self.metric][0]), self.greater_is_better

    @property
    def greater_is_better(self) -> bool:
        """Whether larger values of the metric are better."""
        return metrics.METRICS[self.metric].greater_is_better

    def _data_set(self, shard: Shard, **options: Any) -> Any:
        # LightGBM is faster without weights, and unit weights give the same trees.
        weight = None if np.all(shard.weight == 1) else shard.weight
        categorical = list(self.problem.categorical) or "auto"
        return _lightgbm().Dataset(shard.x, shard.y, weight=weight, categorical_feature=categorical, **options)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The model of one config, the rounds it holds, the metric after each round that was run.

    ``whole``: it has all rounds that it was to have.
    """

    text: str
    rounds: int
    curve: tuple[float, ...]
    whole: bool = True


def _boost_family(data: _Binned, family: Sequence[Config], stop: Stop) -> list[_Kept]:
    """Train the config of a family that has most rounds and cut the others out of it."""
    try:
        return _boost_longest(data, family, stop)
    except _lightgbm().basic.LightGBMError as error:
        # "Check failed: (a) < (b) at /path/file.hpp, line 9 ." ends in a place that means nothing to a user.
        raise Diverged(f"LightGBM: {re.sub(r' at [^ ]+, line [0-9]+ *[.]?', '', str(error)).strip()}") from error


def _boost_longest(data: _Binned, family: Sequence[Config], stop: Stop) -> list[_Kept]:
    limits = [int(config["num_iterations"]) for config in family]  # type: ignore[arg-type]
    booster = data.booster(family[0])
    run = _boosted(booster, max(limits), family[0], stop, data if data.valid else None)
    results = []
    for config, limit in zip(family, limits, strict=True):
        count = min(limit, len(run.trees))
        if data.valid and stop.patience is not None:
            count = run.best[count - 1] or count
        model, trees = booster, run.trees[count - 1]
        if config["boosting"] == "dart" and count < len(run.trees):
            # Later rounds of dart rescaled the earlier trees: grow them once more, up to the best round.
            model = data.booster(config)
            trees = _boosted(model, count, config, stop, None).trees[-1]
        whole = not run.expired or limit <= len(run.trees)
        results.append(_Kept(model.model_to_string(num_iteration=trees), count, tuple(run.curve[:limit]), whole))
    return results


@dataclass(frozen=True, slots=True)
class _Run:
    """After each round: the iterations the booster holds, the metric, and the best round so far (0: none defined).

    ``expired``: the time was up before the last round.
    """

    trees: list[int]
    curve: list[float]
    best: list[int]
    expired: bool = False


def _boosted(booster: Any, rounds: int, config: Config, stop: Stop, watch: _Binned | None) -> _Run:
    """Boost up to ``rounds``, or until no round can add a tree or ``stop.patience`` rounds were no better."""
    run = _Run([], [], [])
    record = -math.inf
    may_recover = _is_random(config)
    for count in range(1, rounds + 1):
        if stop.cancelled():
            raise Interrupted
        if run.trees and stop.expired():
            return replace(run, expired=True)
        stalled = booster.update()
        if stalled and run.trees and not may_recover:
            break
        run.trees.append(booster.current_iteration())
        if watch is None:
            continue
        run.curve.append(watch.measure(booster))
        merit = run.curve[-1] if watch.greater_is_better else -run.curve[-1]
        run.best.append(count if merit > record else run.best[-1] if run.best else 0)
        record = max(record, merit) if merit == merit else record
        if stop.patience is not None and run.best[-1] and count - run.best[-1] >= stop.patience:
            break
    return run


def _is_random(config: Config) -> bool:
    """Return whether a round that found no split may be followed by one that does."""
    whole = config["feature_fraction"] == config["feature_fraction_bynode"] == config["bagging_fraction"] == 1
    plain = config["boosting"] == "gbdt" and config["data_sample_strategy"] == "bagging"
    return not (whole and plain) or bool(config["extra_trees"])
