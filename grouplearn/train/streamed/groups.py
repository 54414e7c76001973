"""Groups whose rows pass once: what is counted, learned and sampled meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.data import encoders
from grouplearn.data.arrivals import Arrivals, BoolArray, IntArray, Keys
from grouplearn.data.dataset import FeatureArray, FloatArray, Group
from grouplearn.data.encoding.registry import widths_of
from grouplearn.data.shard import Shard
from grouplearn.kernels.algebra import finite_rows
from grouplearn.train.job import GroupFacts, Job
from grouplearn.train.reasons import or_failed
from grouplearn.train.rows.prepare import problem_of
from grouplearn.train.rows.used import GroupFailed, Tally
from grouplearn.train.streamed.progress import Progress, new_progress, packs_of
from grouplearn.train.streamed.sample import RowSample

#: Bytes of rows that wait for others of their group.
_WAITING_BYTES = 1 << 25
#: Fewest rows of a group for which its learner is called while there is room for others to wait.
_WORTH_A_CALL = 1 << 10
#: Numbers of so many groups are sorted in the time that it takes to read them.
_FEW_GROUPS = 1 << 16
#: Bytes of a waiting row beside its features.
_ROW_BYTES = 40


class _Rows(NamedTuple):
    """Rows that wait: as in ``Arrivals``."""

    group: IntArray
    x: FeatureArray
    y: FloatArray
    weight: FloatArray
    held: BoolArray

    def take(self, rows: npt.NDArray[np.intp] | BoolArray | slice) -> _Rows:
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_ and rows.all():
            return self
        return _Rows(self.group[rows], self.x[rows], self.y[rows], self.weight[rows], self.held[rows])


@dataclass
class StreamedGroups:
    """The groups of ``job``, which has no rows. They are numbered as they come."""

    job: Job

    def __post_init__(self) -> None:
        job = self.job
        self.fitted = tuple(encoders.fit(item, job.dataset, slice(0, 0)) for item in job.items)
        self.packs = packs_of(job.trainer, job.configs)
        self.keys: list[Keys] = []
        self.progress: list[Progress | GroupFailed] = []
        self.tally = Tally.of_none(np.empty(0, np.int64))
        #: Rows of each group that can be used, and those of them that have all features: (2, G), those held out last.
        self.usable = self.complete = np.zeros((2, 0), np.int64)
        #: Samples of rows that are not held out, and of those that are.
        self.samples = RowSample(), RowSample()
        self._lots = np.random.Generator(np.random.PCG64(job.training.seed))
        self._waiting: list[_Rows] = []
        self._n_waiting = 0

    def take(self, rows: Arrivals) -> None:
        """Count rows, draw samples of them, and learn from them and others as soon as there are enough."""
        self._meet(rows.keys)
        n_groups, usable = len(self.keys), self.tally.add(rows.y, rows.weight, rows.group)
        self.tally.n_rows += np.bincount(rows.group, minlength=n_groups)
        complete = usable & np.isfinite(rows.y) & np.isfinite(rows.weight) & finite_rows(rows.x)
        lots = self._lots.random(rows.group.size)
        for place, part in enumerate((~rows.held, rows.held)):
            self.usable[place] += np.bincount(rows.group[usable & part], minlength=n_groups)
            own = complete & part
            self.complete[place] += np.bincount(rows.group[own], minlength=n_groups)
            self.samples[place].add(rows, lots, own)
        self._waiting.append(_Rows(*rows[1:]).take(complete))
        self._n_waiting += int(np.count_nonzero(complete))
        if self._n_waiting * (rows.x.itemsize * rows.x.shape[1] + _ROW_BYTES) >= _WAITING_BYTES:
            self._learn(_WORTH_A_CALL)

    def end(self) -> None:
        """Learn from the rows that still wait."""
        self._learn(1)

    def _meet(self, keys: Sequence[Keys]) -> None:
        """Begin with groups that come for the first time."""
        if not keys:
            return
        job, facts = self.job, GroupFacts(self.fitted, (), 0, 0, 0)
        for own in keys:
            problem = problem_of(job, Group(len(self.keys), 0, own, ()), job.trainer, facts, 0)
            self.progress.append(new_progress(job.trainer, problem, job.configs, self.packs))
            self.keys.append(own)
        more = ((0, 0), (0, len(keys)))
        self.usable, self.complete = np.pad(self.usable, more), np.pad(self.complete, more)
        rows, faults, weight = self.tally.n_rows, self.tally.faults, self.tally.weight
        self.tally = Tally(np.pad(rows, more[1]), np.pad(faults, more), np.pad(weight, more[1]))

    def _learn(self, fewest: int) -> None:
        """Call the learners of groups with at least so many rows waiting; of all, if most of the rows would go on waiting."""
        if not self._waiting:
            return
        rows = _Rows(*map(np.concatenate, zip(*self._waiting, strict=True)))
        if len(self.keys) > 1:
            number = rows.group.astype(np.uint16) if len(self.keys) <= _FEW_GROUPS else rows.group
            rows = rows.take(np.argsort(number, kind="stable"))
        sizes = np.bincount(rows.group, minlength=len(self.keys))
        chosen = sizes >= fewest
        if 2 * sizes[chosen].sum() < sizes.sum():
            chosen = sizes > 0
        for group, own in _runs(rows, sizes, chosen):
            self._call(group, own)
        rest = rows.take(~chosen[rows.group])
        self._waiting, self._n_waiting = [rest], rest.group.size

    def _call(self, group: int, rows: _Rows) -> None:
        """Let a group's learner take rows, a block at a time; what it raises is the group's failure."""
        columns = encoders.Columns(rows.x, np.empty((len(rows.x), 0), np.int32), None, ())
        x = encoders.encode(self.fitted, columns, sum(widths_of(self.fitted)))
        for first in range(0, len(rows.y), self.job.block_rows):
            block, progress = slice(first, first + self.job.block_rows), self.progress[group]
            if isinstance(progress, GroupFailed):
                return
            shard, held = Shard(x[block], rows.y[block], rows.weight[block]), rows.held[block]
            failed = or_failed(lambda: progress.take(shard, held))  # noqa: B023  (called at once)
            if isinstance(failed, GroupFailed):
                self.progress[group] = failed


def _runs(rows: _Rows, sizes: IntArray, chosen: BoolArray) -> Iterator[tuple[int, _Rows]]:
    """Yield chosen groups, and their rows, which lie group after group."""
    ends = np.cumsum(sizes)
    for group in np.flatnonzero(chosen).tolist():
        yield group, rows.take(slice(int(ends[group] - sizes[group]), int(ends[group])))
