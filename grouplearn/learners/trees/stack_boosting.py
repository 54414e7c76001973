"""Small groups boosted in one call, and their metrics: bit for bit what ``boosting`` makes of each.

The kernel calls LightGBM as ``boosting`` does, without Python between two calls. Groups that it refuses or that need
special treatment are not ``sound``: they train alone and report their reasons.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Stack
from grouplearn.kernels import boosting as kernel
from grouplearn.kernels import metrics as metric_kernel
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import Drawn, HeldOut
from grouplearn.learners.trees.boosting import WITHOUT_SPLITS, is_forest, is_one_vs_all, is_random, native_metric
from grouplearn.learners.trees.lightgbm import objectives, stumps
from grouplearn.learners.trees.lightgbm.group_parameters import lightgbm_parameters
from grouplearn.learners.trees.lightgbm.library import addresses, categorical_columns, joined
from grouplearn.learners.trees.lightgbm.parameters import SEEDS, draws_rows
from grouplearn.learners.trees.predicting import predicted_in_training, shares_of_one, with_ties
from grouplearn.models.label import NUMBER, TWO_CLASSES
from grouplearn.models.metrics import metrics
from grouplearn.models.metrics.deviances import row_losses, with_losses
from grouplearn.models.state import TEXT

#: Share of the labels' range below which changes by single precision need no closer check.
_SURELY = 1e-2
#: Placeholder for the seed.
_SEED = "\0"

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SolvedTrees:
    """The finished models of a stack: G groups, each with the same C configs.

    ``texts`` (G·C) are LightGBM's as uint8, ``gain`` (G, C, d) that of the splits on each feature, ``epochs`` (G, C) the
    rounds of each. ``judged`` (rounds, G, C) is the metric of held-out rows after each round, for ``points`` (G, C) rounds.
    ``sound`` (G,) groups have all their models; the others train alone and report why.
    """

    texts: Ragged
    gain: FloatArray
    epochs: npt.NDArray[np.int64]
    points: npt.NDArray[np.int64]
    judged: FloatArray
    sound: BoolArray

    @property
    def converged(self) -> None:
        """None: boosting does not say."""

    @property
    def importance(self) -> Ragged:
        """The gain of each model's feature columns."""
        return Ragged.of_equal(self.gain.ravel(), self.epochs.size)

    @property
    def drawn(self) -> Drawn:
        """The metric after each round."""
        whole = np.ascontiguousarray(self.judged.transpose(1, 2, 0))
        judged = whole[np.arange(whole.shape[2]) < self.points[:, :, None]]
        return Drawn(self.points, np.full(judged.size, np.nan), judged)

    def as_multiclass(self) -> SolvedTrees:
        """Return them unchanged: texts have all classes."""
        return self

    def tensors(self) -> Mapping[str, Ragged]:
        """Return the texts."""
        return {TEXT: self.texts}

    def take(self, groups: npt.NDArray[Any]) -> SolvedTrees:
        """Return the results of some groups, by mask or in this order."""
        trials = np.arange(self.epochs.size).reshape(self.epochs.shape)[groups].ravel()
        return SolvedTrees(
            self.texts.take(trials),
            self.gain[groups],
            self.epochs[groups],
            self.points[groups],
            self.judged[:, groups],
            self.sound[groups],
        )

    @classmethod
    def nothing(cls, stack: Stack, configs: int) -> SolvedTrees:
        """Return the results of a stack without a sound group."""
        shape = stack.n_groups, configs
        none = np.zeros(shape, np.int64)
        texts = Ragged(np.empty(0, np.uint8), np.zeros(none.size + 1, np.int64))
        judged, sound = np.empty((0, *shape)), np.zeros(shape[0], np.bool_)
        return cls(texts, np.zeros((*shape, stack.x.shape[1])), none, none, judged, sound)

    def with_groups(self, places: npt.NDArray[np.intp], found: SolvedTrees) -> SolvedTrees:
        """Return these results with those of the groups at ``places``, which had none."""
        if len(places) == len(self.epochs):
            return found
        # Where each group is taken from, in all groups followed by the found ones.
        source = np.arange(len(self.epochs))
        source[places] = len(self.epochs) + np.arange(len(places))
        rounds = max(len(self.judged), len(found.judged))
        judged = [_lengthened(each.judged, rounds) for each in (self, found)]
        return SolvedTrees(
            Ragged.joined([self.texts, found.texts]),
            np.concatenate([self.gain, found.gain]),
            np.concatenate([self.epochs, found.epochs]),
            np.concatenate([self.points, found.points]),
            np.concatenate(judged, axis=1),
            np.concatenate([self.sound, found.sound]),
        ).take(source)

    @classmethod
    def beside(cls, parts: Sequence[SolvedTrees], place: npt.NDArray[np.intp]) -> SolvedTrees:
        """Return the results of several sets of configs as one; config i is at ``place[i]`` of all parts."""
        if len(parts) == 1 and (place == np.arange(len(place))).all():
            return parts[0]
        rounds = max(len(part.judged) for part in parts)
        firsts = np.cumsum([0, *(part.epochs.size for part in parts)])
        trials = [
            first + np.arange(part.epochs.size).reshape(part.epochs.shape)
            for first, part in zip(firsts, parts, strict=False)
        ]

        def joined(name: str) -> npt.NDArray[Any]:
            return np.concatenate([getattr(part, name) for part in parts], axis=1)[:, place]

        return cls(
            Ragged.joined([part.texts for part in parts]).take(np.concatenate(trials, axis=1)[:, place].ravel()),
            joined("gain"),
            joined("epochs"),
            joined("points"),
            np.concatenate([_lengthened(part.judged, rounds) for part in parts], axis=2)[:, :, place],
            np.logical_and.reduce([part.sound for part in parts]),
        )


def _lengthened(judged: FloatArray, rounds: int) -> FloatArray:
    return np.concatenate([judged, np.full((rounds - len(judged), *judged.shape[1:]), np.nan)])


@dataclass(frozen=True, slots=True)
class StackBooster:
    """Complete configs of one problem, for groups that differ only in rows and seeds; ``boosters`` are lists of config
    numbers that share their bins, and within these, lists that are prefixes of one booster."""

    problem: Problem
    configs: Sequence[Config]
    boosters: Sequence[Sequence[Sequence[int]]]

    def boosted(self, train: Stack, held_out: HeldOut) -> SolvedTrees:
        """Return the models of all groups of a stack that can be trained in one call."""
        learned = _single_holds(self.configs, train) & self._draws_some(train)
        parts = [self._with_bins(families, train, held_out, learned) for families in self.boosters]
        order = [number for families in self.boosters for family in families for number in family]
        return SolvedTrees.beside(parts, np.argsort(order))

    def _with_bins(
        self, families: Sequence[Sequence[int]], train: Stack, held_out: HeldOut, learned: BoolArray
    ) -> SolvedTrees:
        """Return the models of configs that share their bins, family by family, for groups that can be ``learned`` (G,)."""
        solved = SolvedTrees.nothing(train, sum(map(len, families)))
        for native, chosen in self._watched(held_out, [self.configs[family[0]] for family in families]):
            kept = learned & chosen
            if kept.any():
                valid = None if held_out.rows is None or native is None else held_out.rows.take(kept)
                found = self._boosted(families, train.take(kept), HeldOut(valid, held_out.metric), native or "None")
                solved = solved.with_groups(np.flatnonzero(kept), found)
        return solved

    def _draws_some(self, train: Stack) -> BoolArray:
        """Return which groups (G,) have enough rows for sampling."""
        fractions = [float(each["bagging_fraction"]) for each in self.configs if draws_rows(each)]  # type: ignore[arg-type]
        return np.diff(train.start) * min(fractions, default=np.inf) >= 1

    def _watched(self, held_out: HeldOut, firsts: Sequence[Config]) -> Iterator[tuple[str | None, BoolArray | bool]]:
        """Yield the metric that LightGBM computes after each round (None: none, as there are no rows), and its groups
        (G,); ``firsts`` are the first configs of families."""
        rows = held_out.rows
        if rows is None:
            yield None, True
            return
        native = native_metric(self.problem, firsts[0], held_out.metric)
        native = None if native == "auc" and any(map(is_forest, firsts)) else native
        some = np.diff(rows.start) > 0
        least, most = (_of_groups(each, rows) for each in (np.minimum, np.maximum))
        measured = some & (native is not None)
        if self.problem.label.has_classes:
            measured &= most < self.problem.n_classes
            measured &= (most > least) | (native != "auc")
        yield None, ~some
        yield native or "None", measured
        yield "None", some & ~measured

    def _boosted(self, families: Sequence[Sequence[int]], train: Stack, held_out: HeldOut, native: str) -> SolvedTrees:
        """Return the models of groups with the same tracked metric: LightGBM's ``native``, or its predictions."""
        watched = kernel.NOTHING if held_out.rows is None else kernel.METRIC if native != "None" else kernel.PREDICTIONS
        found = kernel.boost(
            addresses(kernel.FUNCTIONS),
            kernel.BoostingPlan(
                self._given(families[0][0], "None"),
                tuple(self._family(family, native) for family in families),
                self.problem.n_outputs,
                _seeds(train),
                watched,
            ),
            _rows(train),
            None if held_out.rows is None else _rows(held_out.rows),
        )
        found = self._with_beginnings(found, families, train, watched)
        limits = np.array([self._rounds(number) for family in families for number in family])
        points = np.minimum(np.repeat(found.run, [len(family) for family in families], axis=1), limits)
        points = points if watched else np.zeros_like(points)
        judged = np.full((int(points.max(initial=0)), *points.shape), np.nan)
        for group, family, values in self._numbers(found, families, held_out, watched):
            first = sum(map(len, families[:family]))
            for place in range(first, first + len(families[family])):
                judged[: points[group, place], group, place] = values[: points[group, place]]
        return SolvedTrees(found.texts, found.gain, found.rounds, points, judged, found.sound)

    def _with_beginnings(
        self, found: kernel.BoostedModels, families: Sequence[Sequence[int]], train: Stack, watched: int
    ) -> kernel.BoostedModels:
        """Return models of forests with the initial score in trees without a split, see ``stumps``.

        With held-out rows such groups are not sound, as their curves belong to the unchanged models.
        """
        configs = [number for family in families for number in family]
        forests = [place for place, number in enumerate(configs) if is_forest(self.configs[number])]
        some = np.zeros((len(found.sound), len(configs)), np.bool_)
        for group, place in itertools.product(np.flatnonzero(found.sound).tolist(), forests):
            some[group, place] = stumps.has_some(_text(found, group, place))
        chosen = np.logical_or.reduce(some, axis=1)
        groups = np.flatnonzero(chosen)
        if not groups.size:
            return found
        sound = found.sound.copy()
        sound[groups] = False
        if watched:
            return found._replace(sound=sound)
        seeds, bins = _seeds(train)[groups], self._given(families[0][0], "None")
        alone = tuple(
            kernel.ConfigFamily(self._given(configs[place], "None", WITHOUT_SPLITS), (1,), False) for place in forests
        )
        rows = _rows(train.take(chosen))
        begun = kernel.boost(
            addresses(kernel.FUNCTIONS), kernel.BoostingPlan(bins, alone, self.problem.n_outputs, seeds), rows, None
        )
        sound[groups] = begun.sound
        texts = [found.texts[trial] for trial in range(len(found.texts))]
        for at, group in enumerate(groups.tolist()):
            for place in np.flatnonzero(some[group] & sound[group]).tolist():
                values = stumps.beginnings(_text(begun, at, forests.index(place)))
                text = stumps.with_beginnings(_text(found, group, place), values)
                texts[group * len(configs) + place] = np.frombuffer(text.encode(), np.uint8)
        return found._replace(texts=Ragged.of(texts), sound=sound)

    def _numbers(
        self, found: kernel.BoostedModels, families: Sequence[Sequence[int]], held_out: HeldOut, watched: int
    ) -> Iterator[tuple[int, int, FloatArray]]:
        """Yield group, family, and the metric after each round, for sound groups."""
        if held_out.rows is None:
            return
        first, begun, metric = self.configs[families[0][0]], 0, held_out.metric
        losses, one_vs_all = row_losses((metric,), first), is_one_vs_all(self.problem, first)
        of_round = np.ones(len(found.run), np.int64)
        if watched == kernel.PREDICTIONS:
            of_round = self.problem.n_outputs * np.diff(held_out.rows.start)
        for group, family in np.argwhere(found.run > 0).tolist():
            rounds = int(found.run[group, family])
            values = found.watched[begun : begun + rounds * int(of_round[group])]
            begun += len(values)
            if watched == kernel.PREDICTIONS:
                running = [each.reshape((-1, self.problem.n_outputs), order="F") for each in values.reshape(rounds, -1)]
                scores = np.stack([shares_of_one(each) if one_vs_all else each for each in running], axis=1)
                if is_forest(self.configs[families[family][0]]):
                    scores = with_ties(self.problem.label, scores)
                rows = held_out.rows.part(group, group + 1)
                values = _measured(self.problem, scores, rows, losses, (metric,))[metric]
            yield group, family, values

    def _family(self, family: Sequence[int], native: str) -> kernel.ConfigFamily:
        first = self.configs[family[0]]
        return kernel.ConfigFamily(self._given(family[0], native), tuple(map(self._rounds, family)), is_random(first))

    def _rounds(self, number: int) -> int:
        return int(self.configs[number]["num_iterations"])  # type: ignore[arg-type]

    def _given(self, number: int, native: str, others: Mapping[str, Any] = MappingProxyType({})) -> kernel.Parameters:
        parameters = lightgbm_parameters(self.problem, self.configs[number]) | {
            **others,
            "metric": native,
            "seed": _SEED,
        }
        head, tail = joined({**parameters, **categorical_columns(self.problem.categorical)}).split(_SEED.encode())
        return kernel.Parameters(head, tail)


def _text(found: kernel.BoostedModels, group: int, place: int) -> str:
    return found.texts[group * found.rounds.shape[1] + place].tobytes().decode()


def measure(
    problem: Problem, configs: Sequence[Config], stack: Stack, solved: SolvedTrees, wanted: Collection[str]
) -> dict[str, FloatArray]:
    """Return the ``wanted`` metrics, (G, C) each, of finished models on rows of the same groups; NaN if undefined."""
    scores = _predicted(problem, configs, stack, solved.texts)
    kinds = {NUMBER: metric_kernel.VALUES, TWO_CLASSES: metric_kernel.BINARY}
    found = metric_kernel.of_scores(
        metric_kernel.LabelledRows(stack.y, stack.weight, stack.start),
        scores,
        kinds.get(problem.label, metric_kernel.CLASSES),
        metric_kernel.ClassCount(problem.n_classes, problem.n_unseen),
        [name for name in wanted if name in metric_kernel.NAMES],
    )
    others = [name for name in wanted if name not in metric_kernel.NAMES]
    losses = row_losses(others, configs[0])
    for name in others:
        found[name] = np.full((stack.n_groups, len(configs)), np.nan)
    for group in range(stack.n_groups if others else 0):
        rows = stack.part(group, group + 1)
        if rows.y.size:
            own = scores[stack.start[group] : stack.start[group + 1]]
            for name, values in _measured(problem, own, rows, losses, others).items():
                found[name][group] = values
    return found


def _predicted(problem: Problem, configs: Sequence[Config], stack: Stack, texts: Ragged) -> FloatArray:
    """Return predictions (n, C, outputs); what follows from a config is the same in the texts of all groups."""
    first = [texts[place].tobytes() if len(texts) else b"" for place in range(len(configs))]
    scales = [
        kernel.Scale(objectives.in_text(text).factor, config["boosting"] == "rf", bool(config["linear_tree"]))
        for text, config in zip(first, configs, strict=True)
    ]
    found = kernel.predict(addresses(kernel.FUNCTIONS), _rows(stack), texts, problem.n_outputs, scales)
    for place, text in enumerate(first):
        found[:, place] = predicted_in_training(problem, text, found[:, place])
    return found


def _measured(
    problem: Problem, scores: FloatArray, rows: Stack, losses: Collection[Any], wanted: Iterable[str]
) -> Mapping[str, FloatArray]:
    """Return one group's metrics, as ``train.pack.measure`` does."""
    sums = metrics.measure(
        metrics.family_of(problem.label), problem.n_classes, scores, rows.y, rows.weight, problem.n_unseen
    )
    return metrics.family_of(problem.label).finish(with_losses(sums, losses, scores, rows.y, rows.weight), *wanted)


def _rows(stack: Stack) -> kernel.BoostingRows:
    return kernel.BoostingRows(stack.x, stack.y.astype(np.float32), stack.weight.astype(np.float32), stack.start)


def _seeds(stack: Stack) -> npt.NDArray[np.int64]:
    """Return each group's seed in LightGBM's form."""
    if stack.seed is None:
        raise ValueError("groups that draw random numbers have seeds")
    return (stack.seed % np.uint64(SEEDS)).astype(np.int64)


def _of_groups(ufunc: np.ufunc, stack: Stack) -> FloatArray:
    """Return a function's value for each group's labels (G,), 0 for no rows."""
    some, found = np.diff(stack.start) > 0, np.zeros(stack.n_groups)
    if some.any():
        found[some] = ufunc.reduceat(stack.y, stack.start[:-1][some])
    return found


def _single_holds(configs: Sequence[Config], train: Stack) -> BoolArray:
    """Return which groups (G,) have labels that objective and single precision accept, as ``check_labels`` does."""
    limits = np.finfo(np.float32)
    least, most = (_of_groups(each, train) for each in (np.minimum, np.maximum))
    largest, some = np.maximum(np.abs(least), np.abs(most)), np.diff(train.start) > 0
    with np.errstate(all="ignore"):
        error = np.abs(train.y.astype(np.float32) - train.y)
        worst = _of_groups(np.maximum, Stack(train.x, error, train.weight, train.start))
        within = (largest == 0) | ((largest < limits.max / 2) & (largest > 2 * limits.tiny))
        # The deviation is least with two labels at the ends of the range and all others at their mean.
        deviation = (most - least) / np.sqrt(2.0 * np.maximum(1, np.diff(train.start)))
        sure = within & ((worst == 0) | (worst <= _SURELY * deviation))
    of_objectives = {config["objective"]: config for config in configs}.values()
    if any(
        (chosen := objectives.of_config(config)) is not None and chosen.domain is not None for config in of_objectives
    ):
        sure[:] = False
    for group in np.flatnonzero(~sure & some).tolist():
        rows = train.part(group, group + 1)
        sure[group] = _are_taken(of_objectives, rows)
    taken: BoolArray = sure & some
    return taken


def _are_taken(configs: Iterable[Config], rows: Stack) -> bool:
    try:
        for config in configs:
            objectives.check_labels(config, [(rows.y, rows.weight)])
    except Diverged:
        return False
    return True
