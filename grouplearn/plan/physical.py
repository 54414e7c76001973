"""The physical plan: packs, units and their estimated cost, ready for any operator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from grouplearn.bind.bound import BoundTarget, BoundTrain
from grouplearn.bind.clauses.features import all_fit_float, sized
from grouplearn.data.arrays import block_rows
from grouplearn.data.encoders import is_dense, keeps_single
from grouplearn.data.encoding.registry import encoder_of, widened
from grouplearn.data.processors import processors
from grouplearn.data.shard import BLOCK_ROWS
from grouplearn.data.split import FINAL
from grouplearn.extract.counts.statistics import Statistics
from grouplearn.extract.counts.unused import Unused
from grouplearn.interrupting import run_in_thread, with_checks
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import FeatureBlock
from grouplearn.learners.contract.ways import batch_rows
from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.forms import declared_form
from grouplearn.models.label import Label, label_of
from grouplearn.models.metrics.metric import Family
from grouplearn.plan.cost import durations as cost
from grouplearn.plan.cost.coefficients import Rates
from grouplearn.plan.packing import (
    MAX_PACK,
    are_small,
    folds_in_one_pass,
    gather_small_groups,
    most_packed,
    pack_configs,
    solves,
)
from grouplearn.plan.units import SimilarTasks, Units, alike
from grouplearn.schedule.messages import BlockRange, Push, Unit
from grouplearn.schedule.operators import prepared
from grouplearn.schedule.plan_rules import PackBytes
from grouplearn.schedule.rounds.cells import cell_length
from grouplearn.schedule.sharded.partition import blocks_of, cut_evenly
from grouplearn.schedule.workload import Hops, Visits, Workload

#: Bytes of a round's sums that make one more worker worth fetching from (Rendle et al. 2016, 4.3.2).
PART_BYTES = 128 << 10
#: Seconds of overhead per cell and round, besides the arithmetic.
CELL_SECONDS = 2e-4
#: Most work items of a worker's share, and the part of a round that their steps, and moving the sums of each, may take.
MOST_ITEMS, STEPS_SHARE = 8, 0.05
#: Epochs of a work item that its rows and predictions take a new worker: 0.3 to 1 to cut rows by block and to predict (numbers
#: and categories, 1 and 8 configs), as much to encode them.
TAKEOVER_EPOCHS = 2.0

#: Estimated single-thread seconds above which starting Ray (2 to 4 s, 0.7 GB) pays.
RAY_REPAYS_SECONDS = 120.0
#: The same for seconds of WITHIN: less would go mostly into the start (7 s on a busy machine).
RAY_REPAYS_WITHIN = 30.0


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """What will run: the label, epochs, units, and number of workers; a replayed run has ``recorded`` visits or, by
    unit, ``pushes``.

    ``unused`` rows are counted for EXPLAIN only.

    Units depend on the statement and the data alone: operators and workers decide only where and when they run, so the
    models are the same.
    """

    bound: BoundTrain
    stats: Statistics
    label: Label
    metric: str
    epochs: int
    width: int
    workers: int
    units: Sequence[Unit]
    rates: Rates = field(default_factory=Rates)
    recorded: Visits | None = None
    pushes: Mapping[int, tuple[Push, ...]] = field(default_factory=dict)
    unused: Unused = field(default_factory=Unused)

    def workload(self, workers: int, chosen: int | None = None) -> Workload:
        """Return what operators need to know of the work on this many workers, of which ``chosen`` are said to exist."""
        options = self.bound.options
        work = Workload(
            access=self.bound.learner.access.name,
            rows=self.stats.rows,
            workers=workers,
            epochs=self.epochs if self.bound.learner.declaration.default_epochs is not None else 1,
            block_rows=self.block_rows,
            evaluate_epochs=self._judges_epochs,
            hops=Hops(seed=options.training.seed, recorded=self.recorded),
            pushes={} if chosen is None else self.pushes,  # a simulated plan may be only part of the work
            split_seconds=self._split_seconds,
            split_row_seconds=self.kept_row_seconds,
            solving_seconds=self._solving_seconds,
            epoch_rounds=self.epoch_rounds,
            round_parts=self._round_parts(workers),
            work_items=self.work_items(workers),
            takeover_rounds=TAKEOVER_EPOCHS * self.epoch_rounds,
            rows_shared=self.bound.options.placement.executor != "ray",
            batch_rows=batch_rows(self.bound.learner, self.bound.configs),
        )
        return prepared(work, options.placement.operator, options.of_operators, chosen or workers)

    @property
    def _judges_epochs(self) -> bool:
        """Whether the holdout is scored before the next epoch: for early stopping, or because epochs of rounds are long."""
        in_rounds = self.bound.learner.access.in_rounds and self.bound.holdout.kind != "none"
        return in_rounds or self.bound.options.training.early_stopping is not None

    @property
    def epoch_rounds(self) -> int:
        """Rounds per epoch, as far as the items determine them."""
        return self.bound.learner.cost.epoch_rounds(self.bound.configs, self.feature_blocks())

    def feature_blocks(self, groups: int = 1) -> list[FeatureBlock]:
        """Return at least how many columns of each item some group has, if this many groups shared all distinct values."""
        return _feature_blocks(self.bound, self.stats, groups)

    def _round_parts(self, workers: int) -> int:
        """Return the most parts into which the sums of a round are worth splitting."""
        widest = max((block.width for block in self.feature_blocks()), default=0)
        n_bytes = 2 * cost.VALUE_BYTES * widest * self.outputs * min(MAX_PACK, len(self.bound.configs))
        return max(1, min(workers, n_bytes // PART_BYTES))

    def work_items(self, workers: int) -> int:
        """Return in how many items a worker's share of a group's round is worth cutting, so that others can take some over."""
        if not self.bound.learner.access.in_rounds or workers < 2:
            return 1
        known = self.rates.of(self.bound.learner.way)
        passes = cost.most_passes(self.bound.learner, self.bound.configs, self.epochs, known)
        longest = max((float(tasks.seconds.max(initial=0.0)) for tasks in self.alike), default=0.0)
        a_round = longest / max(1, passes) / self.epoch_rounds / workers
        further = self.step_seconds + self._item_sums_seconds(workers)
        return 1 + min(MOST_ITEMS - 1, int(STEPS_SHARE * a_round / further))

    def _item_sums_seconds(self, workers: int) -> float:
        """Return the estimated time in which who reduces a part of a round takes what one more item of each worker made."""
        sizes = (self.pack_bytes(numbers).sums for numbers in self.distinct_packs())
        machine = self.rates.machine
        speed = machine.network if self.bound.options.placement.executor == "ray" else machine.memory
        return max(sizes, default=0) / self.epoch_rounds * workers / self._round_parts(workers) / speed

    @property
    def step_seconds(self) -> float:
        """Estimated overhead of a step of a unit, besides its arithmetic."""
        machine = self.rates.machine
        return machine.ray_unit if self.bound.options.placement.executor == "ray" else machine.local_step

    @property
    def round_seconds(self) -> float:
        """Estimated time of a round in which the workers of a gang wait for each other: per leaf, or per batch."""
        machine = self.rates.machine
        return machine.descend if self.bound.learner.access.gang_waits == "batch" else machine.exchange

    @property
    def family(self) -> Family:
        """The metrics of its models."""
        return registry.output_class(self.bound.learner, self.label).metrics

    @property
    def kept_row_seconds(self) -> float:
        """Estimated time per row and config to keep the scores for AUC between steps of a unit."""
        in_memory = self.bound.options.placement.executor != "ray"
        if in_memory or not self.label.has_classes or self.stats.label_length > 1:
            return 0.0
        return cost.VALUE_BYTES * self.outputs / self.rates.machine.disk

    @property
    def _split_seconds(self) -> float:
        """A worker with a shard of a unit makes its sums once per pass, and may also be the one that updates."""
        known = self.rates.of(self.bound.learner.way)
        passes = cost.most_passes(self.bound.learner, self.bound.configs, self.epochs, known)
        rows, of_cells = max(self.stats.rows, default=0), 0.0
        if self.bound.learner.access.in_rounds:
            of_cells = self.cell_seconds(rows, cut_evenly(blocks_of(rows, self.block_rows), self.workers)[0])
        return passes * self.epoch_rounds * (2 * self.step_seconds + of_cells)

    @property
    def _solving_seconds(self) -> float:
        known = self.rates.of(self.bound.learner.way)
        rows = max(self.stats.rows, default=0)
        return cost.solving_seconds(self.bound.learner, rows, _columns(self.bound, self.stats), known)

    def seconds_of(self, unit: Unit, epochs: float | None = None) -> float:
        """Return the estimated seconds of a unit; ``epochs`` per trial where the learner decides their number itself."""
        way = self.bound.learner.way
        known = self.rates.of(way)
        if not epochs or known.typical_epochs is None:
            return unit.cost
        rates = Rates({way: replace(known, typical_epochs=math.ceil(epochs))}, self.rates.machine)
        configs, groups = [self.bound.configs[config] for config in unit.configs], (unit.group, *unit.others)
        rows, learner = sum(self.stats.rows[group] for group in groups), self.bound.learner
        return cost.unit_seconds(learner, configs, rows, self.stored, self.epochs, self.outputs, len(groups), rates)

    def cell_seconds(self, rows: int, blocks: BlockRange) -> float:
        """Return the estimated overhead of a round for the cells of these blocks, besides the arithmetic. In process all
        cells count, as one thread at a time calls a kernel."""
        n_blocks = blocks_of(rows, self.block_rows)
        own = len(blocks) if self.bound.options.placement.executor == "ray" else n_blocks
        return CELL_SECONDS * max(1, own // cell_length(n_blocks))

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return block_rows(self.bound.stored_items, self.longest_block)

    @property
    def longest_block(self) -> int:
        """Rows of a block of narrow rows. A group of no more rows is one block, which no operator splits."""
        return BLOCK_ROWS

    def load_seconds(self, group: int) -> float:
        """Return the estimated time to prepare a group's rows on a worker."""
        return cost.load_seconds(self.stats.rows[group], self.stored, self.rates)

    def configs_of(self, unit: Unit) -> tuple[Config, ...]:
        """Return the configurations of a unit's pack."""
        return self._configs(unit.configs)

    def _configs(self, numbers: Sequence[int]) -> tuple[Config, ...]:
        return tuple(self.bound.configs[number] for number in numbers)

    def distinct_packs(self) -> list[tuple[int, ...]]:
        """Return the numbers of the configs of each pack that some unit has, once each."""
        return list(dict.fromkeys(unit.configs for tasks in self.alike for unit in tasks.first))

    def pack_bytes(self, numbers: Sequence[int]) -> PackBytes:
        """Return the estimated bytes of what a pack of these configs moves."""
        kinds = (cost.state_bytes, cost.gradient_bytes, cost.sums_bytes)
        return PackBytes(
            *(n_bytes(self.bound.learner, self._configs(numbers), self.width, self.outputs) for n_bytes in kinds)
        )

    @property
    def stored(self) -> int:
        """Values stored per row."""
        return _stored(self.bound, self.stats, self.width)

    @property
    def row_bytes(self) -> int:
        """Bytes of one encoded row on a worker."""
        items = self.bound.stored_items
        single = is_dense(items, self.width) and all_fit_float(self.bound.items)
        return cost.row_bytes(self.stored, single=single and all(map(keeps_single, items)))

    @property
    def outputs(self) -> int:
        """Width of a score."""
        return self.label.n_scores(len(self.stats.classes)) * max(1, self.stats.label_length)

    @property
    def serial_seconds(self) -> float:
        """Estimated time on one worker."""
        return sum(float(tasks.seconds.sum()) for tasks in self.alike)

    @property
    def alike(self) -> tuple[SimilarTasks, ...]:
        """The units, grouped by what they have in common."""
        return alike(self.units, self.stats.rows)


def plan(bound: BoundTrain, stats: Statistics, rates: Rates | None = None) -> PhysicalPlan:
    """Return the physical plan of a bound statement; ``rates`` are the cost coefficients."""
    rates = rates or Rates()
    bound = replace(bound, items=sized(bound.items, stats.lengths or [1] * len(bound.items)))
    bound = _widened(bound, stats)
    label = learned(bound, stats)
    epochs = bound.options.training.epochs or bound.learner.declaration.default_epochs or 1
    width = _width(bound, stats)
    packs = pack_configs(bound.learner, bound.configs, len(stats.groups), most_packed(bound, stats, label, width))
    return PhysicalPlan(
        bound=bound,
        stats=stats,
        label=label,
        metric=bound.metric or registry.output_class(bound.learner, label).metrics.default,
        epochs=epochs,
        width=width,
        workers=bound.options.placement.workers or processors(),
        units=_units(
            bound,
            stats,
            label,
            packs,
            epochs,
            width,
            gather_small_groups(bound, stats, label, width, BLOCK_ROWS),
            rates,
        ),
        rates=rates,
    )


def _widened(bound: BoundTrain, stats: Statistics) -> BoundTrain:
    """Return the statement with items of many categories as wide ones, if models have a weight for each column."""
    if not declared_form(bound.learner).has_one_weight_per_column:
        return bound
    items = []
    for entry, categories in zip(bound.items, stats.categories, strict=True):
        item, encoder = entry.stored.item, encoder_of(entry.stored.item)
        name = (
            widened(encoder, categories).name if encoder.per_category and encoder.rest(item) is None else encoder.name
        )
        items.append(replace(entry, stored=replace(entry.stored, item=replace(item, encoder=name))))
    return replace(bound, items=tuple(items))


def repacked(physical: PhysicalPlan, packs: tuple[tuple[int, ...], ...]) -> PhysicalPlan:
    """Return the plan with other packs for the same configs."""
    bound, stats, label, width = physical.bound, physical.stats, physical.label, physical.width
    gathered = gather_small_groups(bound, stats, label, width, BLOCK_ROWS)
    return replace(physical, units=_units(bound, stats, label, packs, physical.epochs, width, gathered, physical.rates))


def learned(bound: BoundTrain, stats: Statistics) -> Label:
    """Return what is learned; it depends on how many classes the label has."""
    return label_of(
        bound.learner.declaration.labels, len(stats.classes) if bound.target and bound.target.classification else None
    )


def _width(bound: BoundTrain, stats: Statistics) -> int:
    """Return the most feature columns of a group: a group may know fewer categories."""
    width = 0
    for item, categories in zip(bound.items, stats.categories, strict=True):
        width += encoder_of(item.stored.item).width(item.stored.item, categories)
    return max(1, width)


def _feature_blocks(bound: BoundTrain, stats: Statistics, groups: int) -> list[FeatureBlock]:
    blocks = []
    for entry, categories in zip(bound.items, stats.categories, strict=True):
        item, encoder = entry.stored.item, encoder_of(entry.stored.item)
        width = encoder.width(item, math.ceil(categories / groups))
        blocks.append(FeatureBlock(item.name, width, encoder.pure or width <= 1))
    return blocks


def _columns(bound: BoundTrain, stats: Statistics) -> int:
    """Return at least how many columns some group has: groups may share no category."""
    return sum(block.width for block in _feature_blocks(bound, stats, max(1, len(stats.rows))))


def _stored(bound: BoundTrain, stats: Statistics, width: int) -> int:
    """Return the values stored per row: every column of a dense row, one per item of a sparse one, all entries of lists."""
    items = bound.stored_items
    if is_dense(items, width):
        return width
    return -(-stats.n_entries // max(1, stats.n_rows)) + sum(max(1, each.numbers) for each in items if not each.is_list)


def _units(
    bound: BoundTrain,
    stats: Statistics,
    label: Label,
    packs: tuple[tuple[int, ...], ...],
    epochs: int,
    width: int,
    gathered: tuple[tuple[int, ...], ...],
    rates: Rates,
) -> Units:
    outputs = label.n_scores(len(stats.classes))
    together = bound.holdout.split.folds if bound.holdout.kind == "folds" and folds_in_one_pass(bound, width) else 0
    folds = (FINAL,) if together else bound.holdout.split.fits
    stored, solved, columns = _stored(bound, stats, width), solves(bound, label), _columns(bound, stats)
    sizes = np.array(stats.rows, np.int64)

    def estimated(pack: tuple[int, ...], n_rows: int, groups: int) -> float:
        configs = tuple(bound.configs[config] for config in pack)
        return cost.unit_seconds(bound.learner, configs, n_rows, stored, epochs, outputs, groups, rates, columns)

    members = np.fromiter(map(len, with_checks(gathered)), np.int64, len(gathered))
    placed = np.fromiter(itertools.chain.from_iterable(with_checks(gathered)), np.int64, int(members.sum()))
    starts = np.cumsum(members) - members
    n_rows = np.add.reduceat(sizes[placed], starts) if len(gathered) else sizes[:0]
    stacked = are_small(bound, sizes[placed[starts]], width, BLOCK_ROWS) & solved
    # Many thousand groups share few sizes.
    sizes_of = np.stack([n_rows, members], axis=1)
    distinct, which = run_in_thread(lambda: np.unique(sizes_of, axis=0, return_inverse=True), len(n_rows))
    costs = [
        [estimated(pack, rows, groups) for pack in with_checks(packs)]
        for rows, groups in with_checks(distinct.tolist())
    ]
    seconds = np.array(costs, np.float64).reshape(len(distinct), len(packs))[which.reshape(-1)]
    return Units(gathered, packs, folds, together, stacked, n_rows, seconds)


def _label_type(target: BoundTarget, stats: Statistics) -> str:
    """Return the SQL type of predictions; the length of an array tells the catalog that it is one."""
    if target.array:
        return f"{target.array.element if target.classification else 'DOUBLE'}[{stats.label_length}]"
    return target.type if target.classification else "DOUBLE"


def definition(physical: PhysicalPlan, statement: str) -> ModelDefinition:
    """Return the model definition that the catalog stores."""
    bound, target = physical.bound, physical.bound.target
    return ModelDefinition(
        catalog=bound.catalog,
        schema=bound.schema,
        name=bound.name,
        learner=bound.learner.declaration.stored_name,
        label=physical.label,
        statement=statement,
        target_name=target.name if target else None,
        target_sql=target.stored if target else None,
        label_type=_label_type(target, physical.stats) if target else None,
        classes=physical.stats.classes,
        keys=tuple(key.stored for key in bound.keys),
        sets=bound.sets,
        items=tuple(item.stored for item in bound.items),
        hyperparameters=bound.hyperparameters,
        configs=bound.configs,
        metric=physical.metric,
        greater_is_better=physical.family.named(physical.metric).greater_is_better,
        metrics=physical.family.usual(bool(target and target.array), physical.metric),
        missing_group=bound.statement.missing_group or "parent",
        seed=bound.options.training.seed,
        keep_best=bound.keep_best,
        keep_versions=bound.options.storage.keep_versions,
        null_label=bound.statement.null_label or "skip",
        group_failure=bound.statement.group_failure or "keep",
        weight_sql=bound.weight_sql,
        refit=bound.refit or bound.holdout.split.folds > 0,
        series=tuple(key.stored for key in bound.series.keys) if bound.series else (),
        calibrate=bound.options.training.calibrate,
        held_out=None if bound.held_out is None else tuple(key.stored for key in bound.held_out),
    )
