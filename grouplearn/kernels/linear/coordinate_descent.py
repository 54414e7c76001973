"""Coordinate descent by feature blocks: rows cut by block, rounds over them, and whole epochs
(``source/linear/coordinate_descent/coordinate_descent.cpp``).

Numbers that models have per column lie as (columns, groups, outputs, lanes), each lane one model: ``in_lanes`` and
``out_of_lanes``.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, features, function, single_or_double, threads
from grouplearn.kernels.linear.generalised_linear import GlmPenalties
from grouplearn.kernels.linear.loss_numbers import number_of
from grouplearn.layout import spilled
from grouplearn.layout.pages import forget_pages, read_ahead
from grouplearn.layout.spilled import NewArray

FloatArray = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Matrix = Any
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64
#: Rows that the kernels take together, and models side by side.
_TILE, _LANES = 8, 8
#: How the entries of a block are kept: all values of one column, a column per row, or some per row; the latter with values or 1.
ONE_COLUMN, CODES, CODES_WITH_VALUES, RAGGED, RAGGED_WITH_VALUES = range(5)


class Survey(NamedTuple):
    """What rows say of columns and items.

    For columns of items that may be centred (centred, 4): ``total`` Σw·x, and ``low``, ``high`` and ``count`` of entries that
    are not 0; of those of the others (others,) the ``largest`` abs(x); of items (3, items) the ``most`` entries of a row, their
    number, and of how many the value is not 1.
    """

    columns: FloatArray
    largest: FloatArray
    items: Numbers


class _Given:
    """Rows as they lie, dense or CSR, for the kernels."""

    def __init__(self, x: Matrix) -> None:
        self.n_rows, self.n_columns = x.shape
        self.kept: tuple[npt.NDArray[Any], ...]
        self.places: tuple[int | None, ...]
        if isinstance(x, np.ndarray):
            self.kept = (features(x),)
            self.places = (*single_or_double(self.kept[0]), None, None)
            return
        x = x if x.has_sorted_indices else x.sorted_indices()
        values, indices = np.ascontiguousarray(x.data, np.float64), np.ascontiguousarray(x.indices, np.int32)
        self.kept = (values, indices, np.ascontiguousarray(x.indptr, np.int64))
        self.places = (None, *(address(each) for each in self.kept))


def survey(pieces: Iterable[Matrix], weight: FloatArray, first: Numbers, centred: npt.NDArray[np.bool_]) -> Survey:
    """Return what rows (n, d), some after others, dense or CSR, say of columns and items.

    Item i is from column ``first[i]``; ``centred`` (items,) says of which the columns may be.
    """
    widths = np.diff(first)
    own, others = (np.cumsum(np.where(each, widths, 0)) for each in (centred, ~centred))
    place = np.where(centred, own - widths, -1 - (others - widths))
    columns = np.tile([0.0, np.inf, -np.inf, 0.0], (int(widths[centred].sum()), 1))
    found = Survey(columns, np.zeros(int(widths[~centred].sum())), np.zeros((3, len(widths)), np.int64))
    kinds = (*[_POINTER] * 4, _COUNT, _COUNT, _POINTER, _COUNT, *[_POINTER] * 5)
    for rows, start in _one_by_one(pieces):
        function("coordinate_survey", *kinds)(
            *(*rows.places, rows.n_rows, rows.n_columns, address(weight[start:]), len(widths)),
            *(*map(address, (first, place)), *map(address, found)),
        )
    return found


def merged(left: Survey, right: Survey) -> Survey:
    """Return what the rows of both say."""
    columns = np.empty_like(left.columns)
    one, other = (np.ascontiguousarray(each.columns) for each in (left, right))
    function("coordinate_merge", _POINTER, _POINTER, _COUNT, _POINTER)(
        address(one), address(other), len(columns), address(columns)
    )
    most = np.maximum(left.items[:1], right.items[:1])
    items = np.concatenate([most, left.items[1:] + right.items[1:]])
    return Survey(columns, np.maximum(left.largest, right.largest), items)


def _one_by_one(pieces: Iterable[Matrix]) -> Iterator[tuple[_Given, int]]:
    """Yield rows, and how many there were before."""
    start = 0
    for rows in map(_Given, pieces):
        yield rows, start
        start += rows.n_rows


@dataclass(frozen=True, slots=True)
class ColumnBlocks:
    """How columns are cut: block b has the columns ``first[b]`` to ``first[b + 1]``, kept in one of the ways above, ``form[b]``.

    ``mean`` (d,) is taken from the values of blocks of one column.
    """

    first: Numbers
    form: Numbers
    mean: FloatArray

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.form)


class Cell:
    """Rows of a group cut by block, their labels and weights, and the predictions of all models for them.

    ``read`` reads the rows anew, some after others. ``blocks`` (B, 3) says where each block's arrays lie: where a row's entries
    begin, their columns, their values. Arrays are in files of a ``directory``, if one is given, as far as it has
    room.
    """

    def __init__(
        self,
        read: Callable[[], Iterable[Matrix]],
        labels: tuple[FloatArray, FloatArray],
        cut: ColumnBlocks,
        shape: GroupShape,
        directory: str | None = None,
    ) -> None:
        self.n_rows, self.cut, self.stored = len(labels[0]), cut, directory is not None
        new: NewArray = np.empty if directory is None else functools.partial(spilled.array, directory)
        padded = -(-self.n_rows // _TILE) * _TILE
        self.label, self.weight = new((padded,), np.float64), new((padded,), np.float64)
        for own, given in zip((self.label, self.weight), labels, strict=True):
            own[: self.n_rows], own[self.n_rows :] = given, 0.0
        self.predictions = new((shape.groups, shape.outputs, padded, shape.lanes), np.float64)
        self.predictions[...] = 0.0
        self.places = np.array([address(each) for each in (self.label, self.weight, self.predictions)], np.int64)
        entries = _entries(read, cut)
        self._arrays = [_block(form, count, self.n_rows, new) for form, count in zip(cut.form, entries, strict=True)]
        self.blocks = np.zeros((cut.n_blocks, 3), np.int64)
        for block, arrays in enumerate(self._arrays):
            self.blocks[block] = [0 if each is None else address(each) for each in arrays]
        kinds = (*[_POINTER] * 4, *[_COUNT] * 2, _POINTER, _COUNT, _POINTER, _COUNT, _POINTER)
        for rows, start in _one_by_one(read()):
            function("coordinate_cut", *kinds)(
                *(*rows.places, rows.n_rows, rows.n_columns, address(cut.first), cut.n_blocks),
                *(address(cut.mean), start, address(self.blocks)),
            )
        self.forget_pages(range(cut.n_blocks))

    def read_ahead(self, block: int) -> None:
        """Let the operating system read the columns of a block that is in files, while something else is worked on."""
        if self.stored:
            for array in self._arrays[block]:
                if array is not None:
                    read_ahead(array)

    def forget_pages(self, blocks: Iterable[int]) -> None:
        """Let the operating system take back the memory of rows, and of some of their blocks, that are in files."""
        if self.stored:
            of_blocks = (array for block in blocks for array in self._arrays[block] if array is not None)
            for array in (self.label, self.weight, self.predictions, *of_blocks):
                forget_pages(array)


def _entries(read: Callable[[], Iterable[Matrix]], cut: ColumnBlocks) -> list[int]:
    """Return how many entries ragged blocks have; of others it is not asked."""
    count = np.zeros(cut.n_blocks, np.int64)
    kinds = (*[_POINTER] * 4, *[_COUNT] * 2, *[_POINTER] * 2)
    for rows, _ in _one_by_one(read()) if (cut.form >= RAGGED).any() else ():
        function("coordinate_entries", *kinds)(
            *rows.places, rows.n_rows, rows.n_columns, address(cut.first), address(count)
        )
    return count.tolist()


def _block(form: int, entries: int, n_rows: int, new: NewArray) -> tuple[npt.NDArray[Any] | None, ...]:
    """Return the arrays of a block: where entries begin, their columns, their values."""
    padded = -(-n_rows // _TILE) * _TILE
    if form in (RAGGED, RAGGED_WITH_VALUES):
        values = None if form == RAGGED else new((entries,), np.float64)
        return new((n_rows + 1,), np.int64), new((entries,), np.int32), values
    columns = None if form == ONE_COLUMN else new((padded,), np.int32)
    values = None if form == CODES else new((padded,), np.float64)
    for array, nothing in ((columns, -1), (values, 0.0)):
        if array is not None:
            array[...] = nothing
    return None, columns, values


@dataclass(frozen=True, slots=True)
class GroupShape:
    """The loss of a group's models, their number and how many outputs each has."""

    loss: str
    configs: int
    outputs: int

    @property
    def lanes(self) -> int:
        """Models side by side."""
        return 1 if self.configs == 1 else _LANES

    @property
    def groups(self) -> int:
        """How many times so many models there are."""
        return -(-self.configs // self.lanes)

    def in_lanes(self, values: FloatArray) -> FloatArray:
        """Return a copy of numbers of models (C, K, columns) as (columns, groups, K, lanes); lanes to spare are 0."""
        if self.configs == 1:
            return values.transpose(2, 0, 1)[..., None].copy(order="C")
        lanes = np.zeros((values.shape[2], self.groups, values.shape[1], self.lanes))
        for group in range(self.groups):
            some = values[group * self.lanes : (group + 1) * self.lanes]
            lanes[:, group, :, : len(some)] = some.transpose(2, 1, 0)
        return lanes

    def out_of_lanes(self, lanes: FloatArray) -> FloatArray:
        """Inverse of ``in_lanes``."""
        values = lanes.transpose(1, 3, 2, 0).reshape(self.groups * self.lanes, self.outputs, len(lanes))
        return np.ascontiguousarray(values[: self.configs])

    def of_models(self, values: npt.NDArray[Any], spare: float = 0.0) -> FloatArray:
        """Return a number per model (C,) as (groups, lanes)."""
        lanes = np.full(self.groups * self.lanes, spare)
        lanes[: self.configs] = values
        return lanes


class EpochProgress(NamedTuple):
    """Per config (C,): the objective, that before the first epoch, the last epoch's gain, whether it is done, and the sum of the
    squares of what pulled at columns in this epoch, without l2 the most of it.

    The gain is below 0 where little may be to come after that epoch. ``pull`` is 0 for models that are known to be done.
    """

    loss: FloatArray
    start: FloatArray
    gain: FloatArray
    done: npt.NDArray[np.bool_]
    pull: FloatArray


class Order(NamedTuple):
    """The block of each round of an epoch (B,), -1 where it is not known yet.

    Where blocks are chosen by what they gained: the mean of what each did, and for how many rounds it was not chosen (B,).
    """

    block: Numbers
    gain: FloatArray | None = None
    waits: Numbers | None = None

    @property
    def places(self) -> tuple[int | None, ...]:
        """Where they lie."""
        return tuple(None if each is None else address(each) for each in self)

    def copy(self) -> Order:
        """Return one that a kernel may change."""
        if self.gain is None or self.waits is None:
            return Order(self.block.copy())
        return Order(self.block.copy(), self.gain.copy(), self.waits.copy())


#: A leap follows from so many moves, and the weights before each of them, of which the first are those after epoch ``FIRST``; so
#: many points of it are looked at.
MOVES, FIRST, POINTS = 5, 3, 8


def kept_before(epoch: int) -> int:
    """Return how many weights are kept when an epoch begins to end, the start being 0; with ``MOVES`` it ends with a leap."""
    return 0 if epoch <= FIRST else 1 + (epoch - FIRST - 1) % MOVES


@functools.cache
def _of_group(symbol: str, kinds: str, returns: Any) -> Callable[..., Any]:
    types = [_COUNT if kind == "n" else _POINTER for kind in kinds]
    return function(symbol, _POINTER, _POINTER, *types, returns=returns)


class GroupRounds:
    """What rounds of one group have in common; ``complete`` says in which blocks every row has one entry, 1; ``unit`` (d + 1,) is
    1/max|x|, 0 for a column of zeros, 1 for the intercept; ``leaps``: every few epochs end with a leap."""

    def __init__(
        self,
        shape: GroupShape,
        cut: ColumnBlocks,
        complete: npt.NDArray[Any],
        unit: FloatArray,
        fit_intercept: bool,
        penalties: GlmPenalties,
        leaps: bool = False,
    ) -> None:
        self.shape, self.cut, self.unit, self.leaps = shape, cut, unit, leaps
        self._kept = [np.ascontiguousarray(cut.first), np.ascontiguousarray(complete, np.int64), unit]
        self._kept += [shape.of_models(each) for each in (penalties.l1, penalties.l2, penalties.tolerance)]
        self._places = np.array([address(each) for each in self._kept], np.int64)
        numbers = [number_of(shape.loss), shape.outputs, shape.groups, shape.lanes, cut.n_blocks, 1]
        self._numbers = np.array([*numbers, int(fit_intercept), int(leaps)], np.int64)

    def _call(self, symbol: str, kinds: str, *given: Any, returns: Any = None) -> Any:
        """Call a kernel whose first arguments describe the group; ``kinds`` says whether each argument is a number (n) or
        an array."""
        found = _of_group(symbol, kinds, returns)
        arguments = [address(each) if isinstance(each, np.ndarray) else each for each in given]
        return found(address(self._numbers), address(self._places), *arguments)

    def pass_over(
        self,
        cell: Cell,
        moved: tuple[int | None, FloatArray] | None,
        block: int | None,
        radius: FloatArray | None,
        done: FloatArray,
    ) -> FloatArray:
        """Move predictions by the steps (columns, groups, K, lanes) of a block that has moved (None: the intercept), and
        return the sums (columns, groups, K, 2, lanes) of another; none without it."""
        shape = self.shape
        width = 0 if block is None else int(self.cut.first[block + 1] - self.cut.first[block])
        sums = np.zeros((width, shape.groups, shape.outputs, 2, shape.lanes))
        blocks = np.zeros((2, 3), np.int64)
        if moved is not None and moved[0] is not None:
            blocks[0] = cell.blocks[moved[0]]
        if block is not None:
            blocks[1] = cell.blocks[block]
        step = None if moved is None else np.ascontiguousarray(moved[1])
        first = -1 if block is None else int(self.cut.first[block])
        given = (cell.n_rows, cell.places, blocks, int(moved is not None), step, first, radius, done)
        self._call("coordinate_pass", "naanana" + "aa", *given, sums)
        cell.forget_pages(each for each in (None if moved is None else moved[0], block) if each is not None)
        return sums

    def measure(
        self,
        cell: Cell,
        weights: FloatArray,
        radius: FloatArray | None,
        done: FloatArray,
        leap: FloatArray | None = None,
    ) -> FloatArray:
        """Make a cell's predictions anew from ``weights`` (d + 1, groups, K, lanes), the intercept last, and return the sums (1,
        groups, K, 3, lanes) of losses, and of their derivatives by the intercept, whose ``radius`` is given.

        With a ``leap`` of the weights the sums (``POINTS``, ...) are those at its points, of which the first is the weights.
        """
        shape = self.shape
        sums = np.zeros((1 if leap is None else POINTS, shape.groups, shape.outputs, 3, shape.lanes))
        given = (cell.n_rows, cell.places, cell.blocks, weights, leap, radius, done, sums)
        self._call("coordinate_measure", "naaaaaaa", *given)
        cell.forget_pages(range(self.cut.n_blocks))
        return sums

    def solve(
        self,
        round_: int,
        sums: FloatArray,
        weights: FloatArray,
        radius: FloatArray | None,
        about: tuple[EpochProgress, Order],
    ) -> tuple[FloatArray, EpochProgress]:
        """Give the columns of a round's block, to which ``sums`` belong, and the intercept, last among the ``weights`` (columns +
        1, groups, K, lanes), new values, and the columns new radii, in place; the order goes on in place, too.

        Returns how far rows with a 1 in each column move (columns, groups, K, lanes), and the models' progress.
        """
        progress, order = about
        step, numbers = np.empty_like(weights[:-1]), self._lanes_of(progress)
        given = (np.ascontiguousarray(sums), weights[:-1], weights[-1:], radius, numbers, step)
        self._call("coordinate_solve", "naaaaaa" + "aaa", round_, *given, *order.places)
        return step, self._progress_of(numbers)

    def shift(self, weights: FloatArray, done: FloatArray) -> None:
        """Shift weights, by which no prediction changes, to where they cost least, in place: those of all classes of a softmax,
        and those of complete blocks where there is no intercept."""
        self._call("coordinate_shift", "aa", done, weights)

    def leap(self, path: FloatArray, weights: FloatArray, done: FloatArray) -> FloatArray:
        """Return where models would leap to from ``weights`` (d + 1, groups, K, lanes) after an epoch, less these; ``path``
        (``MOVES``, d + 1, groups, K, lanes) are the weights after the epochs before."""
        found = np.empty_like(weights)
        self._call("coordinate_leap", "aaaa", path, weights, done, found)
        return found

    def close(
        self,
        sums: FloatArray,
        weights: FloatArray,
        radius: FloatArray | None,
        about: tuple[EpochProgress, Order],
        leap: FloatArray | None = None,
    ) -> tuple[FloatArray, EpochProgress]:
        """Return the weights after an epoch, and what models have come to, from the sums of ``measure``; then the intercept
        makes its step in place, and the order becomes that of the next."""
        progress, order = about
        before, numbers = np.empty_like(weights), self._lanes_of(progress)
        given = (np.ascontiguousarray(sums), numbers, weights, before, radius, leap)
        self._call("coordinate_close", "aaaaaa" + "aaa", *given, *order.places)
        return before, self._progress_of(numbers)

    def descend(
        self,
        cells: Sequence[Cell],
        arrays: tuple[FloatArray, FloatArray, FloatArray | None, FloatArray | None],
        about: tuple[EpochProgress, Order],
        epochs: tuple[int, int],
    ) -> tuple[EpochProgress, FloatArray, Numbers]:
        """Go through whole epochs until all models are done, from the one of a number, 0 before the end of the start, at most so
        many, ``epochs``, changing in place the ``arrays``, which are weights, their values before, radii and the path, and the
        order; return what models have come to, the objective after each epoch (epochs, C), and how many each
        took (C,). Cells are shared between ``threads()``, whose number changes no bit."""
        (progress, order), (number, most) = about, epochs
        numbers = self._numbers.copy()
        numbers[5] = len(cells)
        counts = np.array([cell.n_rows for cell in cells], np.int64)
        rows = np.stack([cell.places for cell in cells])
        blocks = np.stack([cell.blocks for cell in cells])
        reached, curve = self._lanes_of(progress), np.empty((most, self.shape.groups * self.shape.lanes))
        passes = np.zeros(curve.shape[1], np.int64)
        given = [None if each is None else address(each) for each in (*arrays, reached, curve, passes)]
        kinds = (*[_POINTER] * 5, _COUNT, _COUNT, *[_POINTER] * 10, _COUNT)
        taken = function("coordinate_descend", *kinds, returns=_COUNT)(
            *(address(each) for each in (numbers, self._places, counts, rows, blocks)),
            number,
            most,
            *given,
            *order.places,
            threads(),
        )
        configs = self.shape.configs
        return self._progress_of(reached), curve[:taken, :configs], passes[:configs]

    def lanes_of_done(self, done: npt.NDArray[np.bool_]) -> FloatArray:
        """Return which models are done, as the kernels take it; lanes to spare are."""
        return self.shape.of_models(done, 1.0)

    def _lanes_of(self, progress: EpochProgress) -> FloatArray:
        spare = (0.0, 0.0, 0.0, 1.0, 0.0)
        return np.stack([self.shape.of_models(each, other) for each, other in zip(progress, spare, strict=True)])

    def _progress_of(self, numbers: FloatArray) -> EpochProgress:
        loss, start, gain, done, pull = (each[: self.shape.configs].copy() for each in numbers)
        return EpochProgress(loss, start, gain, done != 0, pull)
