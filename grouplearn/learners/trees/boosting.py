"""Rounds of boosting: binned rows, boosters, and models cut out of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Shard, StoredShard
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Diverged, Gang, Interrupted, Stop
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.trees import offset
from grouplearn.learners.trees.checkpoint import FinishedModel, UnfinishedModel, scores_digest, to_state
from grouplearn.learners.trees.lightgbm import stumps
from grouplearn.learners.trees.lightgbm.binned_data import BinnedData
from grouplearn.learners.trees.lightgbm.booster import Booster
from grouplearn.learners.trees.lightgbm.group_parameters import lightgbm_parameters
from grouplearn.learners.trees.lightgbm.library import LightGBMError
from grouplearn.learners.trees.lightgbm.parameters import draws_rows
from grouplearn.learners.trees.predicting import shares_of_one, with_ties
from grouplearn.learners.trees.refreshing import EarlierTrees
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.metrics import metrics
from grouplearn.models.metrics.deviances import row_losses, with_losses

#: Metrics that LightGBM computes by the same formula during training.
_NATIVE_METRICS = {
    (NUMBER, "rmse"): "rmse",
    (NUMBER, "mae"): "l1",
    (TWO_CLASSES, "log_loss"): "binary_logloss",
    (TWO_CLASSES, "auc"): "auc",
    (SEVERAL_CLASSES, "log_loss"): "multi_logloss",
}


#: Parameters for a tree of one leaf, whose value is the initial score.
WITHOUT_SPLITS = {
    "boosting": "gbdt", "boost_from_average": True, "min_gain_to_split": 1e300, "linear_tree": False, "bagging_freq": 0,
    "bagging_fraction": 1.0, "pos_bagging_fraction": 1.0, "neg_bagging_fraction": 1.0, "num_iterations": 1,
}  # fmt: skip


def native_metric(problem: Problem, config: Config, metric: str) -> str | None:
    """Return LightGBM's name of a metric, None if LightGBM does not compute it."""
    if is_one_vs_all(problem, config):
        return None  # LightGBM uses the classes' shares as they are, whatever their sum
    return _NATIVE_METRICS.get((problem.label, metric))


def is_forest(config: Config) -> bool:
    """Return whether trees are averaged, so that rows often come to equal leaves in different trees.

    LightGBM's running average of these differs in its last bits, by which it ranks rows that tie: their areas under curves are
    ours, of predictions ``with_ties``.
    """
    return config["boosting"] == "rf"


def is_one_vs_all(problem: Problem, config: Config) -> bool:
    """Return whether predictions are one class against the rest each, and do not sum to 1."""
    return problem.label == SEVERAL_CLASSES and config["objective"] == "multiclassova"


def _distributed(gang: Gang | None) -> dict[str, Any]:
    """Return the parameters of a gang's members, each with its own rows."""
    if gang is None:
        return {}
    return {"tree_learner": "data", "num_machines": gang.size, "pre_partition": True}


class BinnedRows:
    """Binned training and validation rows, and the metric that is tracked on the latter."""

    def __init__(
        self,
        problem: Problem,
        config: Config,
        shard: Shard | StoredShard,
        valid: Shard | StoredShard | None,
        stop: Stop,
        gang: Gang | None,
    ) -> None:
        self.problem, self.metric, self.gang, self.train_rows = problem, stop.metric, gang, shard
        self.valid = valid if valid is not None and valid.n_rows else None
        self._valid_labels = self.valid.labels() if self.valid else None
        # LightGBM rejects classes without training rows.
        watched = self.valid is not None and not problem.n_unseen
        native = native_metric(problem, config, stop.metric) if watched else None
        if native == "auc" and self._valid_labels and np.ptp(self._valid_labels[0]) == 0:
            native = None  # LightGBM's area under the curve of a single class is 1
        self.one_vs_all = is_one_vs_all(problem, config)
        self.native = native or "None"
        self.losses = row_losses((stop.metric,), config)
        parameters = lightgbm_parameters(problem, config) | _distributed(gang)
        self._given = config, parameters

        def look() -> None:
            if stop.cancelled():
                raise Interrupted

        columns = problem.categorical
        names = offset.column_names(problem.n_features) if problem.offset else ()
        self.train_set = BinnedData(shard, columns, parameters, None, look, names)
        self.valid_set = None
        if self.valid:
            self.valid_set = BinnedData(self.valid, columns, parameters, self.train_set, look, names)

    def booster(self, config: Config, text: str | None = None) -> Booster:
        """Return a new booster, or one that continues from the trees in ``text``."""
        given, parameters = self._given
        if given is not config:
            parameters = lightgbm_parameters(self.problem, config) | _distributed(self.gang)
        parameters = parameters | {"metric": self.native}
        before = None if text is None else Booster.of_text(text.encode())
        with nullcontext() if before is None else self._scored(before):
            booster = Booster.on(self.train_set, parameters)
            if before is not None:
                booster.merge(before)
            if self.valid_set is not None:
                booster.watch(self.valid_set)
        return booster

    def plain_booster(self, config: Config, further: Mapping[str, Any]) -> Booster:
        """Return a new booster on the training rows alone, with further parameters."""
        parameters = lightgbm_parameters(self.problem, config) | {"metric": "None", **further}
        return Booster.on(self.train_set, parameters)

    @contextmanager
    def _scored(self, before: Booster) -> Iterator[None]:
        """Let rows begin with the scores of a booster meanwhile: a new booster copies them."""
        sets = [(self.train_set, self.train_rows), (self.valid_set, self.valid)]
        known = [(data, rows) for data, rows in sets if data is not None and rows is not None]
        for data, rows in known:
            scores = [self._scores(before, block.read().x) for block in rows.blocks()]
            data.begin_with(np.concatenate(scores).ravel(order="F"))
        try:
            yield
        finally:
            for data, _ in known:
                data.begin_with(None)

    def _scores(self, before: Booster, x: Matrix) -> FloatArray:
        """Return the scores (n, outputs) that rows reached, bit for bit: to offsets trees are added one by one."""
        if not self.problem.offset:
            return before.predict(x, raw=True)
        found = offset.of_rows(x)[:, None]
        for tree in range(before.iterations):
            found = found + before.predict(x, raw=True, first=tree, rounds=1)
        return found

    def beginnings(self, config: Config) -> list[str]:
        """Return a config's initial scores, one per output, as LightGBM writes them."""
        parameters = lightgbm_parameters(self.problem, config) | WITHOUT_SPLITS
        booster = Booster.on(self.train_set, parameters | {"metric": "None"})
        booster.update()
        return stumps.beginnings(booster.to_text())

    def measure(self, booster: Booster, config: Config) -> float:
        """Return the metric on the validation rows of the booster of a config."""
        forest = is_forest(config)
        if self.native != "None" and not (forest and self.native == "auc"):
            return booster.watched_metric()
        return self._metric_of(booster.running(1), forest)

    def curve(self, text: str, rounds: int) -> list[float]:
        """Return the metric on the validation rows after each round of a finished forest."""
        booster, found = Booster.of_text(text.encode()), []
        for count in range(1, rounds + 1):
            blocks = self.valid.blocks() if self.valid else ()
            found.append(
                self._metric_of(np.concatenate([booster.predict(each.read().x, rounds=count) for each in blocks]), True)
            )
        return found

    def _metric_of(self, predicted: FloatArray, forest: bool) -> float:
        y, weight = self._valid_labels  # type: ignore[misc]
        problem = self.problem
        shares = shares_of_one(predicted) if self.one_vs_all else predicted
        shares = with_ties(problem.label, shares) if forest else shares
        scores = shares.reshape(len(y), 1, problem.n_outputs)
        sums = metrics.measure(metrics.family_of(problem.label), problem.n_classes, scores, y, weight, problem.n_unseen)
        sums = with_losses(sums, self.losses, scores, y, weight)
        return float(metrics.family_of(problem.label).finish(sums, self.metric)[self.metric][0])

    @property
    def greater_is_better(self) -> bool:
        """Whether larger values of the metric are better."""
        return metrics.named(self.metric).greater_is_better


@dataclass(frozen=True, slots=True)
class BoostingControl:
    """How a family of configs is boosted: when to stop, where to resume, how to checkpoint.

    ``kept`` are all finished models of the pack; ``config`` is the number of the family's first config, which ``reached`` a
    booster. ``before`` is the model that the only config of the family goes on from.
    """

    stop: Stop
    n_configs: int
    kept: Mapping[int, FinishedModel]
    config: int
    reached: UnfinishedModel | None
    before: EarlierTrees | None = None

    def beginning(self, config: Config) -> UnfinishedModel | None:
        """Return the booster to resume, None to begin."""
        return self.reached if continues(config) else None

    def keep(self, under_way: Callable[[], UnfinishedModel] | None) -> None:
        """Checkpoint what is finished and, if it can be resumed, the current booster."""
        self.stop.keep(lambda: to_state(self.n_configs, self.kept, [under_way()] if under_way else []))


def boost_family(data: BinnedRows, family: Sequence[Config], control: BoostingControl) -> list[FinishedModel]:
    """Train the config of a family with most rounds, and cut the models of the others out of it."""
    try:
        return _boost_longest(data, family, control)
    except LightGBMError as error:
        # "Check failed: (a) < (b) at /path/file.hpp, line 9 .": users need not see the place.
        raise Diverged(f"LightGBM: {re.sub(r' at [^ ]+, line [0-9]+ *[.]?', '', str(error)).strip()}") from error


def _boost_longest(data: BinnedRows, family: Sequence[Config], control: BoostingControl) -> list[FinishedModel]:
    if control.before is not None and control.before.decay is not None:
        return [_with_new_leaves(data, family[0], control.before)]
    limits, stop = [int(config["num_iterations"]) for config in family], control.stop  # type: ignore[arg-type]
    if control.before is not None:
        limits = [control.before.rounds]
    booster, run = _begun(data, family[0], control)
    keep = control.keep if continues(family[0]) else lambda _: control.keep(None)
    run = _boosted(booster, run, max(limits), family[0], stop, data if data.valid else None, keep, control.config)
    carries = stop.carries and data.gang is None and continues(family[0])
    reached = _unfinished(booster, run, control.config) if carries else None
    results = []
    for config, limit in zip(family, limits, strict=True):
        count = min(limit, len(run.trees))
        if data.valid and stop.patience is not None:
            count = run.best[count - 1] or count
        model, trees = booster, run.trees[count - 1]
        if config["boosting"] == "dart" and count < len(run.trees):
            # Later rounds of dart rescaled the earlier trees: train again, up to the best round.
            model = data.booster(config)
            trees = _boosted(model, _Boosting([], [], []), count, config, stop, None).trees[-1]
        whole = not run.expired or limit <= len(run.trees)
        text, curve = model.to_text(trees), run.curve[:limit]
        if is_forest(config) and stumps.has_some(text):
            text = stumps.with_beginnings(text, data.beginnings(config))
            curve = curve and data.curve(text, count) + curve[count:]
        later = reached if limit >= len(run.trees) else None
        results.append(FinishedModel(text, count, tuple(curve), whole, later))
    return results


@dataclass(frozen=True, slots=True)
class _Boosting:
    """After each round: the booster's iterations, the metric, and the best round so far (0: none defined).

    ``expired``: the time was up before the last round.
    """

    trees: list[int]
    curve: list[float]
    best: list[int]
    expired: bool = False


def _begun(data: BinnedRows, config: Config, control: BoostingControl) -> tuple[Booster, _Boosting]:
    """Return a family's booster and its rounds so far: those of a checkpoint, if it can be resumed."""
    reached = control.beginning(config)
    if reached is not None and data.gang is None:
        booster = data.booster(config, reached.text)
        if scores_digest(booster) == reached.scores:
            return booster, _Boosting(list(reached.trees), list(reached.curve), list(reached.best))
    return data.booster(config, None if control.before is None else control.before.text), _Boosting([], [], [])


def _with_new_leaves(data: BinnedRows, config: Config, before: EarlierTrees) -> FinishedModel:
    """Return a model with leaf values renewed by the rows."""
    old = Booster.of_text(before.text.encode())
    blocks = [block.read().x for block in data.train_rows.blocks()]
    leaves = np.concatenate([old.leaves(x) for x in blocks])
    booster = data.plain_booster(config, {"refit_decay_rate": before.decay})
    booster.merge(old)
    booster.refit(leaves)
    return FinishedModel(booster.to_text(), old.iterations, ())


def _boosted(
    booster: Booster,
    run: _Boosting,
    rounds: int,
    config: Config,
    stop: Stop,
    watch: BinnedRows | None,
    keep: Callable[[Callable[[], UnfinishedModel]], None] | None = None,
    number: int = 0,
) -> _Boosting:
    """Boost up to ``rounds``, or until no round can add a tree or ``stop.patience`` rounds brought no improvement."""
    merits = [value if watch is None or watch.greater_is_better else -value for value in run.curve]
    record = max((merit for merit in merits if merit == merit), default=-math.inf)
    may_recover = is_random(config)

    begun = len(run.trees)
    for count in range(begun + 1, rounds + 1):
        if stop.cancelled():
            raise Interrupted
        if count > begun + 1 and keep is not None:
            keep(lambda: _unfinished(booster, run, number))
        if run.trees and stop.expired():
            return replace(run, expired=True)
        stalled = booster.update()
        if stalled and run.trees and not may_recover:
            break
        run.trees.append(booster.iterations)
        if watch is None:
            continue
        run.curve.append(watch.measure(booster, config))
        merit = run.curve[-1] if watch.greater_is_better else -run.curve[-1]
        run.best.append(count if merit > record else run.best[-1] if run.best else 0)
        record = max(record, merit) if merit == merit else record
        if stop.patience is not None and run.best[-1] and count - run.best[-1] >= stop.patience:
            break
    return run


def _unfinished(booster: Booster, run: _Boosting, config: int) -> UnfinishedModel:
    scores = scores_digest(booster)
    return UnfinishedModel(config, booster.to_text(), tuple(run.trees), tuple(run.curve), tuple(run.best), scores)


def continues(config: Config) -> bool:
    """Whether a booster continues from its trees as if it had never stopped.

    That excludes random draws, reweighted trees, costs that depend on earlier trees, and linear trees, whose predictions in
    training differ from later ones, as they train on single-precision features.
    """
    remembers = config["cegb_penalty_feature_lazy"] or config["cegb_penalty_feature_coupled"]
    return not (is_random(config) or remembers or config["linear_tree"])


def is_random(config: Config) -> bool:
    """Return whether a round that found no split may be followed by one that does."""
    whole = config["feature_fraction"] == config["feature_fraction_bynode"] == 1 and not draws_rows(config)
    plain = config["boosting"] == "gbdt" and config["data_sample_strategy"] == "bagging"
    return not (whole and plain) or bool(config["extra_trees"] or config["use_quantized_grad"])
