"""Small groups boosted by LightGBM in one call (``source/trees/boosting.cpp``), which gets the addresses of its C API."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, features, function, single_or_double
from grouplearn.layout.ragged import Ragged

FloatArray = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

#: The functions of LightGBM's C API, in the order of ``Api``.
FUNCTIONS = (
    "LGBM_DatasetCreateFromMat", "LGBM_DatasetSetField", "LGBM_DatasetFree", "LGBM_BoosterCreate",
    "LGBM_BoosterLoadModelFromString", "LGBM_BoosterAddValidData", "LGBM_BoosterUpdateOneIter",
    "LGBM_BoosterGetCurrentIteration", "LGBM_BoosterGetEval", "LGBM_BoosterGetPredict", "LGBM_BoosterSaveModelToString",
    "LGBM_BoosterPredictForMat", "LGBM_BoosterFree",
)  # fmt: skip
#: What is recorded after each round: nothing, LightGBM's metric of the held-out rows, or predictions for them.
NOTHING, METRIC, PREDICTIONS = range(3)

_POINTER, _LONG = ctypes.c_void_p, ctypes.c_int64


class Refused(Exception):
    """LightGBM returned an error, and has its message."""


class BoostingRows(NamedTuple):
    """Rows of groups, concatenated: ``x`` (n, d), ``label`` and ``weight`` (n,) float32, ``start`` (G + 1,)."""

    x: npt.NDArray[Any]
    label: npt.NDArray[np.float32]
    weight: npt.NDArray[np.float32]
    start: Counts


class Parameters(NamedTuple):
    """LightGBM's parameters; the group's seed goes between them."""

    head: bytes
    tail: bytes


class ConfigFamily(NamedTuple):
    """Configs that are prefixes of one booster, each of so many ``rounds``. If it ``recovers``, a round without a split may
    be followed by one with a split; else it is the last."""

    parameters: Parameters
    rounds: tuple[int, ...]
    recovers: bool


class Scale(NamedTuple):
    """How scores follow from the leaves of a config's texts: their sum, or ``mean`` over trees, times ``factor``.

    ``linear``: leaves are linear functions.
    """

    factor: float = 1.0
    mean: bool = False
    linear: bool = False


class BoostingPlan(NamedTuple):
    """What to train: ``families`` on the ``bins`` of each group's rows, the number of ``outputs``, a ``seed`` per group
    (G,)."""

    bins: Parameters
    families: tuple[ConfigFamily, ...]
    outputs: int
    seed: Counts
    watched: int = NOTHING

    @property
    def configs(self) -> int:
        """Number of configs of all families."""
        return sum(len(family.rounds) for family in self.families)


class BoostedModels(NamedTuple):
    """Models of G groups with C configs, family after family.

    ``texts`` (G·C) are uint8, ``rounds`` (G, C) those of each model, ``gain`` (G, C, d) that of the splits on each feature,
    ``run`` (G, families) the rounds that were boosted, ``watched`` the records after each. Only ``sound`` (G,) groups have
    results: for the others LightGBM returned an error, or made a leaf that is not a number.
    """

    texts: Ragged
    rounds: Counts
    gain: FloatArray
    run: Counts
    sound: npt.NDArray[np.bool_]
    watched: FloatArray


class _Rows(ctypes.Structure):
    _fields_ = tuple((name, _POINTER) for name in ("x_single", "x", "label", "weight", "start"))


class _CBoostingPlan(ctypes.Structure):
    _fields_ = (
        *((name, _LONG) for name in ("groups", "d", "outputs", "boosters", "watched")),
        *((name, _POINTER) for name in ("seed", "head", "tail", "first", "limit", "recovers")),
    )


class _Found(ctypes.Structure):
    _fields_ = tuple((name, _POINTER) for name in ("kept", "text_end", "run", "gain", "sound"))


def boost(api: Sequence[int], plan: BoostingPlan, train: BoostingRows, valid: BoostingRows | None) -> BoostedModels:
    """Return the models of every family on every group; ``valid`` are held-out rows of the same groups, if any are
    recorded."""
    groups, d, configs = train.start.size - 1, train.x.shape[1], plan.configs
    rounds, ends, run = (np.zeros((groups, each), np.int64) for each in (configs, configs, len(plan.families)))
    gain, sound = np.zeros((groups, configs, d)), np.zeros(groups, np.bool_)
    found = _Found(*(each.ctypes.data for each in (rounds, ends, run, gain, sound)))
    given, kept = _plan(plan, groups, d)
    rows, held_out = _rows(train), _rows(train if valid is None else valid)
    functions, grown = (_POINTER * len(FUNCTIONS))(*api), (_POINTER * 2)()
    try:
        function("boost_groups", *[_POINTER] * 6)(
            *map(ctypes.addressof, (functions, given, rows[0], held_out[0], found, grown))
        )
        texts = _copied(grown[0], int(ends[-1, -1]) if ends.size else 0, np.uint8)
        watched = _copied(grown[1], _watched(plan, run, valid), np.float64)
    finally:
        for each in grown:
            function("free_grown", _POINTER)(each)
    del kept
    start = np.concatenate([np.zeros(1, np.int64), ends.ravel()])
    return BoostedModels(Ragged(texts, start), rounds, gain, run, sound, watched)


def predict(api: Sequence[int], rows: BoostingRows, texts: Ragged, outputs: int, scales: Sequence[Scale]) -> FloatArray:
    """Return the scores of the groups' models, one per config of ``scales``, for rows of the same groups: (n, C, outputs).

    They are sums as ``trees.Forests`` makes them, to the last bit, or with linear leaves LightGBM's. Raises Refused.
    """
    groups, d = rows.start.size - 1, rows.x.shape[1]
    nothing = Parameters(b"", b"")
    families = (ConfigFamily(nothing, (1,) * len(scales), False),)
    given, kept = _plan(BoostingPlan(nothing, families, outputs, np.zeros(groups, np.int64)), groups, d)
    scores = np.empty((len(rows.x), len(scales), outputs))
    functions, held = (_POINTER * len(FUNCTIONS))(*api), _rows(rows)
    factor = np.array([each.factor for each in scales], np.float64)
    mean, linear = (np.array([getattr(each, name) for each in scales], np.uint8) for name in ("mean", "linear"))
    scale = (_POINTER * 3)(address(factor), address(mean), address(linear))
    values, start = np.ascontiguousarray(texts.values), np.ascontiguousarray(texts.start)
    arguments = (*map(ctypes.addressof, (functions, given, held[0])), address(values), address(start))
    refused = function("predict_groups", *[_POINTER] * 7, returns=ctypes.c_int)(
        *arguments, ctypes.addressof(scale), address(scores)
    )
    del kept
    if refused:
        raise Refused
    return scores


def _rows(rows: BoostingRows) -> tuple[_Rows, tuple[npt.NDArray[Any], ...]]:
    """Return rows for the kernel, and objects to keep alive meanwhile."""
    x = features(rows.x)
    label, weight = (np.ascontiguousarray(each, np.float32) for each in (rows.label, rows.weight))
    start = np.ascontiguousarray(rows.start, np.int64)
    return _Rows(*single_or_double(x), address(label), address(weight), address(start)), (x, label, weight, start)


def _plan(plan: BoostingPlan, groups: int, d: int) -> tuple[_CBoostingPlan, tuple[Any, ...]]:
    """Return a plan for the kernel, and objects to keep alive meanwhile."""
    every = [plan.bins, *(family.parameters for family in plan.families)]
    heads, tails = ((ctypes.c_char_p * len(every))(*(each[part] for each in every)) for part in range(2))
    first = np.cumsum([0, *(len(family.rounds) for family in plan.families)], dtype=np.int64)
    limit = np.array([rounds for family in plan.families for rounds in family.rounds], np.int64)
    recovers = np.array([family.recovers for family in plan.families], np.uint8)
    seed = np.ascontiguousarray(plan.seed, np.int64)
    numbers = (groups, d, plan.outputs, len(plan.families), plan.watched, address(seed))
    pointers = (ctypes.addressof(heads), ctypes.addressof(tails), address(first), address(limit), address(recovers))
    return _CBoostingPlan(*numbers, *pointers), (heads, tails, first, limit, recovers, seed)


def _watched(plan: BoostingPlan, run: Counts, valid: BoostingRows | None) -> int:
    """Return how many numbers are recorded."""
    if valid is None or plan.watched == NOTHING:
        return 0
    of_round = 1 if plan.watched == METRIC else plan.outputs * np.diff(valid.start)[:, None]
    return int((run * of_round).sum())


def _copied(place: int | None, count: int, kind: Any) -> npt.NDArray[Any]:
    if not count or place is None:
        return np.empty(0, kind)
    size = count * np.dtype(kind).itemsize
    return np.frombuffer(ctypes.string_at(place, size), kind)
