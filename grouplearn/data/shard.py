"""A shard: the encoded rows of one group (or part of it) that a learner sees."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # slow to import, and only needed for sparse rows
    import scipy.sparse

FloatArray: TypeAlias = npt.NDArray[np.float64]
FeatureArray: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Matrix: TypeAlias = "FeatureArray | scipy.sparse.csr_matrix"
RowNumbers: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.int32]

#: Rows per block. Blocks are cut from a group's training rows, so they depend on the data alone, never on workers.
BLOCK_ROWS = 16_384
#: Rows whose labels and weights are in memory together where only sums are needed.
SUMMED_ROWS = 16 * BLOCK_ROWS


@dataclass(frozen=True, slots=True)
class Totals:
    """What a learner must know of all training rows of a group when it sees only a part.

    ``weight`` is Σw; ``label_mean`` and ``label_scale`` are the weighted mean and standard deviation of the labels, the
    latter 1 for constant labels.
    """

    n_rows: int
    weight: float
    label_mean: float
    label_scale: float

    @classmethod
    def of(cls, y: FloatArray, weight: FloatArray) -> Totals:
        """Return the totals of rows with labels ``y`` and positive weights."""
        runs = [slice(start, start + SUMMED_ROWS) for start in range(0, len(y), SUMMED_ROWS)]
        return cls.of_runs(lambda: ((y[run], weight[run]) for run in runs))

    @classmethod
    def of_runs(cls, runs: Callable[[], Iterable[tuple[FloatArray, FloatArray]]]) -> Totals:
        """Return the totals of rows whose labels and weights come ``SUMMED_ROWS`` at a time, in two passes."""
        n_rows, total, labels = 0, 0.0, 0.0
        for y, weight in runs():
            n_rows, total, labels = n_rows + len(y), total + weight.sum(), labels + (_numbers(y) * weight).sum()
        if not n_rows:
            return cls(0, 0.0, 0.0, 1.0)
        mean = float(labels / total)
        scale = math.sqrt(sum(((_numbers(y) - mean) ** 2 * weight).sum() for y, weight in runs()) / total)
        return cls(n_rows, float(total), mean, scale if scale > 1e-12 * abs(mean) else 1.0)

    def numbers(self) -> FloatArray:
        """Return them as an array (4,)."""
        return np.array([self.n_rows, self.weight, self.label_mean, self.label_scale])

    def followed_by(self, later: Totals) -> Totals:
        """Return these with the counts of ``later`` rows added; labels are scaled as they were."""
        return Totals(self.n_rows + later.n_rows, self.weight + later.weight, self.label_mean, self.label_scale)


def _numbers(y: FloatArray) -> FloatArray:
    """Return one number per label: the mean of an array."""
    return y if y.ndim == 1 else y.mean(axis=1)


class _Blocks(ABC):
    """Rows of one group cut into blocks."""

    __slots__ = ()
    cuts: tuple[int, ...] | None
    first: int
    whole: Totals | None

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    @abstractmethod
    def totals(self) -> Totals:
        """Return the part as the whole of its group."""

    @property
    def directory(self) -> str | None:
        """The folder of the files with the rows, None if they are in memory."""
        return None

    @abstractmethod
    def read(self) -> Shard:
        """Return the rows in memory."""

    @abstractmethod
    def matrices(self) -> Iterator[Matrix]:
        """Yield the features of all rows, in parts that fit into memory."""

    @abstractmethod
    def label_runs(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield ``y`` and ``weight`` of all rows, in parts."""

    def labels(self) -> tuple[FloatArray, FloatArray]:
        """Return ``y`` and ``weight`` of all rows."""
        y, weight = zip(*self.label_runs(), strict=True)
        return np.concatenate(y), np.concatenate(weight)

    def total_weight(self) -> float:
        """Return the sum of weights, block by block."""
        return sum(float(weight.sum()) for block in self.blocks() for _, weight in block.label_runs())

    @abstractmethod
    def _rows(self, start: int, stop: int, cuts: tuple[int, ...] | None, first: int, whole: Totals | None) -> Self: ...

    @property
    def bounds(self) -> tuple[int, ...]:
        """Rows at which blocks begin and end, from 0 to n."""
        return (*range(0, self.n_rows, BLOCK_ROWS), self.n_rows) if self.cuts is None else self.cuts

    @property
    def n_blocks(self) -> int:
        """Number of blocks, including those without rows."""
        return len(self.bounds) - 1

    def blocks(self, rows: int | None = None) -> Iterator[Self]:
        """Yield the shard's blocks in order, or runs of ``rows`` rows; an empty shard yields none.

        A block without rows had all of them left out.
        """
        bounds = self.bounds if rows is None else (*range(0, self.n_rows, rows), self.n_rows)
        for number, (start, stop) in enumerate(itertools.pairwise(bounds), start=self.first):
            yield self._rows(start, stop, None, number, self.whole)

    def part(self, first: int, last: int) -> Self:
        """Return blocks [first, last) of the group, all of which must be in this shard."""
        if not 0 <= first - self.first <= last - self.first <= self.n_blocks:
            raise IndexError(f"blocks {first} to {last} are not among {self.n_blocks} from {self.first}")
        bounds = self.bounds[first - self.first : last - self.first + 1]
        cuts = tuple(bound - bounds[0] for bound in bounds)
        return self._rows(bounds[0], bounds[-1], cuts, first, self.totals)


@dataclass(frozen=True, slots=True)
class Shard(_Blocks):
    """Rows of one group: ``x`` (n, d) dense float32 or float64 (C order) or CSR of float64, ``y`` (n,), ``weight`` (n,).

    ``y`` is the value or the class number as a float, (n, L) for an array label. Weights include row and class weights, and
    are positive. ``cuts`` are the rows at which blocks begin and end, from 0 to n; None for runs of ``BLOCK_ROWS``.
    ``first`` is the number of the first block in the group, ``whole`` the totals of the group if these rows are a part of
    it. ``cluster`` (n,) is the number of each row's cluster, None unless standard errors are by cluster.
    """

    x: Matrix
    y: FloatArray
    weight: FloatArray
    cuts: tuple[int, ...] | None = None
    first: int = 0
    whole: Totals | None = None
    cluster: Codes | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.y.shape[0])

    @property
    def totals(self) -> Totals:
        """Return the part as the whole of its group."""
        return Totals.of(self.y, self.weight) if self.whole is None else self.whole

    def read(self) -> Shard:
        """Return itself."""
        return self

    def matrices(self) -> Iterator[Matrix]:
        """Yield ``x``."""
        yield self.x

    def label_runs(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield ``y`` and ``weight``."""
        yield self.y, self.weight

    def labels(self) -> tuple[FloatArray, FloatArray]:
        """Return ``y`` and ``weight``."""
        return self.y, self.weight

    def _rows(self, start: int, stop: int, cuts: tuple[int, ...] | None, first: int, whole: Totals | None) -> Shard:
        rows = slice(start, stop)
        x = self.x[rows] if isinstance(self.x, np.ndarray) else _adjoining(self.x, rows)
        cluster = None if self.cluster is None else self.cluster[rows]
        return Shard(x, self.y[rows], self.weight[rows], cuts, first, whole, cluster)


@dataclass(frozen=True, slots=True)
class StoredShard(_Blocks):
    """Rows of one group in files: ``encode`` reads and encodes rows by number each time they are needed.

    One block at a time is in memory. ``label`` reads ``y`` and ``weight``, ``clusters`` the clusters; ``kept_in`` is the
    folder. The rest as in ``Shard``.
    """

    numbers: RowNumbers
    encode: Callable[[RowNumbers], Matrix]
    label: Callable[[RowNumbers], tuple[FloatArray, FloatArray]]
    cuts: tuple[int, ...]
    first: int
    whole: Totals
    kept_in: str
    clusters: Callable[[RowNumbers], Codes | None] | None = None

    @property
    def directory(self) -> str | None:
        """The folder of the files."""
        return self.kept_in

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.numbers.size)

    @property
    def totals(self) -> Totals:
        """Return the part as the whole of its group."""
        return self.whole

    def read(self) -> Shard:
        """Return the rows in memory."""
        cluster = None if self.clusters is None else self.clusters(self.numbers)
        x, (y, weight) = self.encode(self.numbers), self.label(self.numbers)
        return Shard(x, y, weight, self.cuts, self.first, self.whole, cluster)

    def matrices(self) -> Iterator[Matrix]:
        """Yield the features block by block."""
        for start, stop in itertools.pairwise(self.bounds):
            if start < stop:
                yield self.encode(self.numbers[start:stop])

    def label_runs(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield ``y`` and ``weight``, ``SUMMED_ROWS`` at a time."""
        for start in range(0, max(1, self.n_rows), SUMMED_ROWS):
            yield self.label(self.numbers[start : start + SUMMED_ROWS])

    def picked(self, places: RowNumbers) -> Iterator[Matrix]:
        """Yield the features of rows at these ascending places, block by block."""
        for start, stop in itertools.pairwise(np.searchsorted(places, self.bounds).tolist()):
            if start < stop:
                yield self.encode(self.numbers[places[start:stop]])

    def _rows(
        self, start: int, stop: int, cuts: tuple[int, ...] | None, first: int, whole: Totals | None
    ) -> StoredShard:
        cuts = (0, stop - start) if cuts is None else cuts
        own = self.numbers[start:stop]
        about = cuts, first, whole or self.whole, self.kept_in
        return StoredShard(own, self.encode, self.label, *about, self.clusters)


@dataclass(frozen=True, slots=True)
class Stack:
    """Rows of several groups, concatenated: ``x`` (n, d) float32 or float64 in C order, ``y`` and ``weight`` (n,).

    Group g has the rows ``start[g]`` to ``start[g + 1]`` (half-open), maybe none; ``start`` is (G + 1,). ``seed`` (G,)
    seeds each group's random numbers, None if none are drawn. ``before`` are sums of earlier rows of each group, (G, ...)
    by name, to which those of these rows are added, or the states in which its models start. ``keeps_sums``: the result
    has the sums. ``cluster`` (n,) as in ``Shard``.
    """

    x: FeatureArray
    y: FloatArray
    weight: FloatArray
    start: RowNumbers
    seed: npt.NDArray[np.uint64] | None = None
    before: Mapping[str, npt.NDArray[Any]] | None = None
    keeps_sums: bool = False
    cluster: Codes | None = None

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.start.size) - 1

    @property
    def sizes(self) -> RowNumbers:
        """Rows of each group, (G,)."""
        return np.diff(self.start)

    def take(self, groups: npt.NDArray[np.bool_]) -> Stack:
        """Return the chosen groups (G,)."""
        if groups.all():
            return self
        sizes = self.sizes
        rows = np.repeat(groups, sizes)
        return self._of_groups(groups)._of_rows(rows, starts(sizes[groups]))

    def where(self, rows: npt.NDArray[np.bool_]) -> Stack:
        """Return the chosen rows (n,) of every group."""
        if rows.all():
            return self
        before = np.concatenate([[0], np.cumsum(rows)])
        return self._of_rows(rows, before[self.start])

    def part(self, first: int, last: int) -> Stack:
        """Return groups [first, last) without copying them."""
        rows = slice(self.start[first], self.start[last])
        start = self.start[first : last + 1] - self.start[first]
        return self._of_groups(slice(first, last))._of_rows(rows, start)

    def _of_rows(self, rows: slice | npt.NDArray[np.bool_], start: RowNumbers) -> Stack:
        """Return these rows, whose groups begin at ``start``."""
        cluster = None if self.cluster is None else self.cluster[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], weight=self.weight[rows], start=start, cluster=cluster)

    def _of_groups(self, groups: slice | npt.NDArray[np.bool_]) -> Stack:
        """Return the stack with what it has of each group for these groups alone."""
        seed = None if self.seed is None else self.seed[groups]
        before = None if self.before is None else {name: each[groups] for name, each in self.before.items()}
        return replace(self, seed=seed, before=before)


def _adjoining(x: scipy.sparse.csr_matrix, rows: slice) -> scipy.sparse.csr_matrix:
    """Return adjoining rows of a matrix without copying their values: ``x[rows]`` would, in each pass over blocks anew."""
    ends = x.indptr[rows.start : rows.stop + 1]
    own = slice(int(ends[0]), int(ends[-1]))
    part = type(x)((len(ends) - 1, x.shape[1]), dtype=x.dtype)
    # Given to the constructor, a small part of an array would be copied.
    part.data, part.indices, part.indptr = x.data[own], x.indices[own], ends - ends[0]
    part.has_sorted_indices = x.has_sorted_indices
    return part


def starts(sizes: npt.ArrayLike) -> RowNumbers:
    """Return where groups of ``sizes`` (G,) begin, and where the last one ends, (G + 1,)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
