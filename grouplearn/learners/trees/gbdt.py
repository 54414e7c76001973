"""Gradient boosted decision trees: LightGBM, one binned data set shared by the configs of a pack."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import ClassVar

import numpy as np

from grouplearn.data.shard import Matrix, Shard, Stack, StoredShard
from grouplearn.kernels.library import calling_back
from grouplearn.learners.contract.config import Config, Conflict, Value
from grouplearn.learners.contract.control import Boosted, Diverged, Gang, Interrupted, Stop
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.refreshing import Continuation
from grouplearn.learners.contract.requirement import Requirement
from grouplearn.learners.contract.stacks import BoostedStackLearner, HeldOut
from grouplearn.learners.gang_sockets import NoGang
from grouplearn.learners.trees import checkpoint, offset, stack_boosting
from grouplearn.learners.trees.boosting import BinnedRows, BoostingControl, boost_family, continues
from grouplearn.learners.trees.cost import COST
from grouplearn.learners.trees.gang import network
from grouplearn.learners.trees.lightgbm import model_text as gbdt_text
from grouplearn.learners.trees.lightgbm import objectives as gbdt_objectives
from grouplearn.learners.trees.lightgbm.booster import Booster
from grouplearn.learners.trees.lightgbm.library import LightGBMError, library
from grouplearn.learners.trees.lightgbm.parameters import (
    DATASET_PARAMETERS,
    DEFAULTS,
    HYPERPARAMETERS,
    complete,
    conflict,
    draws_rows,
)
from grouplearn.learners.trees.lightgbm.refused_parameters import REFUSED
from grouplearn.learners.trees.predicting import TextCache, TextScores, predicted, predicted_in_training
from grouplearn.learners.trees.refreshing import earlier_trees, state_before
from grouplearn.learners.trees.stack_boosting import SolvedTrees, StackBooster
from grouplearn.models.label import LABELLED, Label
from grouplearn.models.metrics.metrics import family_of
from grouplearn.models.outputs.link import Link
from grouplearn.models.state import Artifact, FloatArray, State

#: What LightGBM writes for a leaf without rows, or whose linear function it could not compute.
_NO_NUMBER = re.compile(rb"^leaf_(?:value|const|coeff)=[^\n]*(?:nan|inf)", re.MULTILINE)
_NO_SPLIT = "no tree has a split, so no feature has an effect"
#: Bytes of model texts that stay parsed between predictions: thousands of small forests, or hundreds of default ones.
_PARSED_BYTES = 1 << 26
#: The same in training, where a pack is measured once.
_PARSED_IN_TRAINING_BYTES = 1 << 23


class Gbdt(BoostedStackLearner):
    """Gradient boosted decision trees by LightGBM (Ke et al. 2017), under LightGBM's own parameter names.

    The model of a trial equals that of ``lightgbm.train(params, Dataset(x, y, weight))`` with ``params`` from
    ``lightgbm_parameters``. Losses: the ``objective``'s, by default log loss, multinomial log loss, ½(y-ŷ)². NaN means
    missing; columns of ``problem.categorical`` hold category codes. State: ``model_i``, the model text of config i as
    bytes.
    """

    objective_name: ClassVar[str] = "objective"
    declaration = Declaration(
        name="gbdt",
        summary="Gradient boosted decision trees (LightGBM)",
        labels=LABELLED,
        hyperparameters=HYPERPARAMETERS,
        form="trees",
        handles_missing=True,
        handles_sparse=True,
        draws=True,
        has_offset=True,
        rounds="num_iterations",
        refused=REFUSED,
        requires=Requirement("lightgbm", "grouplearn[gbdt]", library),
        cost=COST,
    )
    refresh_ways: ClassVar[tuple[str, ...]] = ("add", "leaves")

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Configs that bin features in the same way share the binned rows."""
        config = self.filled(config)
        return tuple(config[name] for name in DATASET_PARAMETERS)

    def filled(self, config: Config) -> dict[str, Value]:
        """Return the config completed by defaults."""
        return complete(config)

    def conflict(self, config: Config) -> Conflict | None:
        """Return why the parameters contradict each other, or None."""
        return conflict(self.filled(config))

    def label_conflict(self, config: Config, classes: bool) -> Conflict | None:
        """Return which parameter applies to no objective of such a label."""
        if config.get("objective") is not None:
            return None  # conflicts with the objective are reported by ``conflict``
        filled = self.filled(config)
        found = [
            _objective_conflict(name, filled) for name in (("binary", "multiclass") if classes else ("regression",))
        ]
        blamed = found[0].parameters if found[0] and all(found) else None
        other = "numbers, and the label has classes" if classes else "classes, and the label is a number"
        return Conflict(f"{blamed[0]} is for {other}", blamed) if blamed else None

    def offset_conflict(self, config: Config) -> Conflict | None:
        """Return why a config takes no offset, None if it does."""
        return offset.conflict(self.filled(config))

    def classifies(self, config: Config) -> bool | None:
        """Return whether the objective is for classes; None without one."""
        return gbdt_objectives.classifies(config)

    def default_metric(self, config: Config, classes: bool) -> str | None:
        """Return the metric of the objective, None for the label's default."""
        del classes
        objective = gbdt_objectives.of_config(config)
        return None if objective is None else objective.metric

    def loss_metric(self, config: Config, label: Label) -> str | None:
        """Return the metric of the objective; None if classes are weighted, or roots fitted."""
        config = self.filled(config)
        if any(config[name] != DEFAULTS[name] for name in ("reg_sqrt", "is_unbalance", "scale_pos_weight")):
            return None
        return self.default_metric(config, label.has_classes) or family_of(label).default

    def constant_model_notes(self, config: Config, n_rows: str) -> Sequence[tuple[str, str]]:
        """Return a note on trees without a split; LightGBM puts values of at least ``min_data_in_bin`` rows into one bin."""
        config = self.filled(config)
        leaf, bins = (int(str(config[name])) for name in ("min_data_in_leaf", "min_data_in_bin"))
        of_leaves = f"{_NO_SPLIT}: lower min_data_in_leaf (or min_sum_hessian_in_leaf)"
        of_bins = f"{_NO_SPLIT}: lower min_data_in_bin (or min_sum_hessian_in_leaf)"
        if leaf > 1 or bins <= 1:
            return ((f"{n_rows} >= {2 * leaf} AND {n_rows} < {leaf + bins}", of_bins), ("true", of_leaves))
        return (("true", of_bins),)

    def has_linear_leaves(self, config: Config) -> bool:
        """Return whether leaves are linear models."""
        return bool(config.get("linear_tree", False))

    def undivided(self, config: Config) -> str | None:
        """Return which hyperparameter of a config does not support rows split over workers."""
        return _undivided_reason(self.filled(config))

    def link(self, config: Config, label: Label) -> Link:
        """Return the link of sums of leaves."""
        return gbdt_objectives.link(config, label)

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:  # noqa: ARG002
        """Return the state without models."""
        empty = {f"model_{index}": np.empty(0, dtype=np.uint8) for index in range(len(configs))}
        return State(empty, np.zeros(len(configs), dtype=bool))

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return True: boosting checks a state's parts, and resumes from the valid ones."""
        del problem, configs, state
        return True

    def continued(
        self, problem: Problem, configs: Sequence[Config], models: Sequence[Artifact], how: Continuation
    ) -> State:
        """Return the state in which configs go on from these models; see ``refreshing``."""
        del problem
        return state_before([self.filled(config) for config in configs], models, how)

    def boost(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        shard: Shard | StoredShard,
        valid: Shard | StoredShard | None,
        stop: Stop,
        gang: Gang | None = None,
    ) -> tuple[State, Boosted]:
        """Train every config to its end; a round of a config is an epoch of its curve.

        With ``stop.patience`` and a validation shard each model is cut to its best round. In a gang LightGBM's members
        exchange histograms (tree_learner = 'data'). Raises Diverged if there is nothing to learn from, parameters
        contradict each other or LightGBM refuses the data, and Interrupted if cancelled.
        """
        filled = [self.filled(config) for config in configs]
        for config in filled:
            _check(problem, config, shard.n_rows, gang)
        for config in {config["objective"]: config for config in filled}.values():
            gbdt_objectives.check_labels(config, shard.label_runs())
        found, under_way = checkpoint.from_state(
            state, lambda text: self.validation_error(problem, Artifact("lightgbm", text=text)) is None
        )
        kept, before = {index: each for index, each in found.items() if each.whole}, earlier_trees(state)
        with _network(gang):
            for binned_alike in _grouped(
                filled, self.pack_key, (each for each in range(len(configs)) if each not in kept)
            ):
                data = BinnedRows(problem, filled[binned_alike[0]], shard, valid, stop, gang)
                for family in _grouped(filled, _family, binned_alike):
                    reached, earlier = under_way.get(family[0]), before.get(family[0])
                    control = BoostingControl(stop, len(configs), kept, family[0], reached, earlier)
                    members = [filled[index] for index in family]
                    kept.update(zip(family, boost_family(data, members, control), strict=True))
                    control.keep(None)
        tensors = {
            f"model_{index}": np.frombuffer(result.text.encode(), dtype=np.uint8) for index, result in kept.items()
        }
        in_order = [kept[index] for index in range(len(configs))]
        done = np.array([result.whole for result in in_order])
        boosted = Boosted(tuple(r.rounds for r in in_order), tuple(r.curve for r in in_order))
        boosters = [replace(r.reached, config=index) for index, r in enumerate(in_order) if r.reached]
        return State(tensors | checkpoint.to_state(len(configs), {}, boosters).tensors, done), boosted

    def trial_state(self, state: State, index: int) -> State | None:
        """Return the booster of a config, from which it gets more rounds."""
        return checkpoint.of_config(state, index)

    def pack_state(self, states: Sequence[State]) -> State:
        """Return the boosters of several configs."""
        return checkpoint.of_pack(states)

    def continues(self, config: Config) -> bool:
        """Return whether trees of later rounds follow from those of earlier ones alone."""
        return continues(self.filled(config))

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return whether there are features: together, Python has nothing to do between two LightGBM calls. Groups with an
        offset train alone."""
        del configs
        return problem.n_features > 0 and problem.label_length == 1 and not problem.offset

    def boost_together(
        self,
        problem: Problem,
        configs: Sequence[Config],
        train: Stack,
        held_out: HeldOut,
        cancelled: Callable[[], bool],
    ) -> SolvedTrees:
        """Return what ``boost`` would make of every ordinary group; see ``stack_boosting``."""
        filled = [self.filled(config) for config in configs]
        for config in filled:
            _check_config(problem, config)

        def look() -> None:
            if cancelled():
                raise Interrupted

        alike = _grouped(filled, self.pack_key, range(len(filled)))
        boosters = [list(_grouped(filled, _family, binned_alike)) for binned_alike in alike]
        with calling_back(look):
            return StackBooster(problem, filled, boosters).boosted(train, held_out)

    def measure(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: SolvedTrees, wanted: Collection[str]
    ) -> dict[str, FloatArray]:
        """Return the metrics of solved models on rows of the same groups; see ``stacks.GatheringLearner``."""
        return stack_boosting.measure(problem, [self.filled(config) for config in configs], stack, solved, wanted)

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predictions, shape (n, c, n_outputs)."""
        texts = (_artifact(state, index).text for index in range(len(configs)))
        return np.stack([predicted_in_training(problem, text, _in_training(text)(x)) for text in texts], axis=1)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:  # noqa: ARG002
        """Return the model of config ``index`` in LightGBM's text format; raises Diverged if one of its leaves is not a
        number."""
        artifact = _artifact(state, index)
        if _NO_NUMBER.search(artifact.text):
            if self.filled(configs[index])["linear_tree"]:
                why = "linear_tree does with infinite or very large features; hint: linear_tree = false, or least() of them"
            else:
                why = "bagging does when it leaves no rows for a tree; hint: WITH (min_rows = 10), or a larger bagging_fraction"
            raise Diverged(f"LightGBM made a tree with a leaf that is no number, as {why}")
        return artifact

    def score(self, label: Label, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return values or probabilities, shape (n, n_outputs); the text is our own, or passed ``validation_error``."""
        return predicted(label, artifact.text, _in_prediction(artifact.text)(x))

    def validation_error(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return what LightGBM cannot have written in the text for such a group."""
        if artifact.format != "lightgbm":
            return f"it is {artifact.format}, not lightgbm"
        try:
            gbdt_text.check([(problem, artifact.text)])
        except gbdt_text.WrongText as error:
            return str(error)
        return None

    def are_valid(self, models: Sequence[tuple[Problem, Artifact]]) -> bool:
        """Return whether LightGBM could have written all these texts."""
        try:
            gbdt_text.check([(problem, artifact.text) for problem, artifact in models])
        except gbdt_text.WrongText:
            return False
        return all(artifact.format == "lightgbm" for _, artifact in models)

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:  # noqa: ARG002
        """Return the total gain of the splits on each feature."""
        return Booster.of_text(artifact.text).gain()


def _artifact(state: State, index: int) -> Artifact:
    return Artifact("lightgbm", text=state.tensors[f"model_{index}"].tobytes())


@contextmanager
def _network(gang: Gang | None) -> Iterator[None]:
    """Connect LightGBM to the other members of a gang."""
    with ExitStack() as stack:
        if gang is not None:
            try:
                stack.enter_context(network(gang))
            except NoGang as error:
                raise Diverged(f"LightGBM: {error}") from error
        try:
            yield
        except LightGBMError as error:
            raise Diverged(f"LightGBM: {error}") from error


_in_prediction, _in_training = TextCache(TextScores, _PARSED_BYTES), TextCache(TextScores, _PARSED_IN_TRAINING_BYTES)


def _check(problem: Problem, config: Config, n_rows: int, gang: Gang | None) -> None:
    if not n_rows:
        raise Diverged("there are no training rows")
    _check_config(problem, config)
    undivided = None if gang is None else _undivided_reason(config)
    if undivided:
        raise Diverged(f"{undivided} needs all rows of a group in one place: choose another operator")
    if draws_rows(config) and int(config["bagging_fraction"] * n_rows) == 0:  # type: ignore[operator, arg-type]
        raise Diverged(f"bagging_fraction = {config['bagging_fraction']} of {n_rows} rows leaves none")


def _check_config(problem: Problem, config: Config) -> None:
    """Raise Diverged for a config with which no group of such a problem can train."""
    if problem.n_features <= problem.offset:
        raise Diverged("there are no features")
    contradiction = conflict(config) or (offset.conflict(config) if problem.offset else None)
    contradiction = contradiction or _objective_conflict(gbdt_objectives.name_for(problem, config), config)
    if contradiction:
        raise Diverged(contradiction.message)


def _undivided_reason(config: Config) -> str | None:
    """Return what LightGBM does not support on rows split over workers: it would ignore it, or end the process."""
    if config["linear_tree"]:
        return "linear_tree = true"
    if config["interaction_constraints"] is not None:
        return "interaction_constraints"
    if config["monotone_constraints"] is not None and config["monotone_constraints_method"] != "basic":
        return f"monotone_constraints_method = '{config['monotone_constraints_method']}'"
    return None


def _objective_conflict(objective: str, config: Config) -> Conflict | None:
    """Return which parameter belongs to another objective than the label's, and would have no effect."""
    wanted = []
    if objective not in ("binary", "multiclassova"):
        wanted += [name for name in ("is_unbalance", "scale_pos_weight") if config[name] != DEFAULTS[name]]
    if objective != "binary":
        wanted += [name for name in ("pos_bagging_fraction", "neg_bagging_fraction") if config[name] != 1]
    if config["reg_sqrt"] and not gbdt_objectives.OBJECTIVES[objective].roots:
        wanted += ["reg_sqrt"]
    if not wanted:
        return None
    return Conflict(f"{wanted[0]} is not for objective = '{objective}', which the label has", tuple(wanted))


def _family(config: Config) -> tuple[Value, ...]:
    """Configs with equal keys differ only in their number of rounds: they are prefixes of one booster.

    Not with dart, whose later rounds rescale earlier trees.
    """
    return tuple(
        value for name, value in sorted(config.items()) if name != "num_iterations" or config["boosting"] == "dart"
    )


def _grouped(
    configs: Sequence[Config], key: Callable[[Config], tuple[Value, ...]], indexes: Iterable[int]
) -> Iterator[list[int]]:
    """Yield the indexes of configs with equal keys, in order of first appearance."""
    numbers = list(indexes)
    if len(numbers) < 2:  # as in most small groups; computing keys would take a tenth of their time
        yield from ([number] for number in numbers)
        return
    groups: dict[tuple[Value, ...], list[int]] = {}
    for index in numbers:
        groups.setdefault(key(configs[index]), []).append(index)
    yield from groups.values()
