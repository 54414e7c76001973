"""Checkpoints of boosting, from which another process, or a later rung of a search, goes on: finished models, and boosters.

A booster resumes from its text: its trees are merged into a new one, whose training rows begin with the trees' scores. Leaf
values are written with all digits, so the next trees have the same bits; only boosters with random draws or reweighted
trees start again (``continues``). A digest checks that the scores are the same as before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.learners.trees.lightgbm.booster import Booster
from grouplearn.models.state import State

#: The tensors of a booster, see ``UnfinishedModel``.
_WAY = ("text", "trees", "curve", "best", "scores")


@dataclass(frozen=True, slots=True)
class FinishedModel:
    """The model of one config, its rounds, and the metric after each round that was run.

    ``whole``: it has all its rounds. ``reached``: its booster, if it may get more rounds later.
    """

    text: str
    rounds: int
    curve: tuple[float, ...]
    whole: bool = True
    reached: UnfinishedModel | None = None


@dataclass(frozen=True, slots=True)
class UnfinishedModel:
    """A booster between two rounds: the config it is trained for, its text, and the records of each round.

    ``scores`` is the digest of its predictions for the training rows.
    """

    config: int
    text: str
    trees: tuple[int, ...]
    curve: tuple[float, ...]
    best: tuple[int, ...]
    scores: str


def to_state(n_configs: int, kept: Mapping[int, FinishedModel], under_way: Iterable[UnfinishedModel]) -> State:
    """Return a checkpoint as a state."""
    tensors: dict[str, npt.NDArray[Any]] = {}
    for index, model in kept.items():
        tensors |= {
            f"kept_text_{index}": _bytes(model.text),
            f"kept_rounds_{index}": np.array([model.rounds, model.whole], dtype=np.int64),
            f"kept_curve_{index}": np.array(model.curve, dtype=np.float64),
        }
    for each in under_way:
        tensors |= {
            f"way_text_{each.config}": _bytes(each.text),
            f"way_trees_{each.config}": np.array(each.trees, dtype=np.int64),
            f"way_curve_{each.config}": np.array(each.curve, dtype=np.float64),
            f"way_best_{each.config}": np.array(each.best, dtype=np.int64),
            f"way_scores_{each.config}": _bytes(each.scores),
        }
    return State(tensors, np.zeros(n_configs, dtype=bool))


def of_config(state: State, index: int) -> State | None:
    """Return the state of the booster of one config alone, None if it has none."""
    names = {name: f"way_{name}_{index}" for name in _WAY}
    if any(stored not in state.tensors for stored in names.values()):
        return None
    return State({f"way_{name}_0": state.tensors[stored] for name, stored in names.items()}, state.done[:1])


def of_pack(states: Sequence[State]) -> State:
    """Return the state of several configs from those of each (``of_config``)."""
    tensors = {f"way_{name}_{n}": each.tensors[f"way_{name}_0"] for n, each in enumerate(states) for name in _WAY}
    return State(tensors, np.zeros(len(states), dtype=bool))


def from_state(
    state: State, is_sound: Callable[[bytes], bool]
) -> tuple[dict[int, FinishedModel], dict[int, UnfinishedModel]]:
    """Inverse of ``to_state``; empty for a state without models, or whose texts or numbers are not ``is_sound``.

    The state comes from a file: anything that ``to_state`` would not write is dropped.
    """
    try:
        kept, under_way = _read(state)
    except (KeyError, IndexError, ValueError, TypeError):
        return {}, {}
    texts = [each.text for each in kept.values()] + [each.text for each in under_way.values()]
    fits = all(each.rounds > 0 for each in kept.values()) and all(map(_is_whole, under_way.values()))
    return (kept, under_way) if fits and all(is_sound(text.encode()) for text in texts) else ({}, {})


def _is_whole(reached: UnfinishedModel) -> bool:
    rounds = len(reached.trees)
    counted = all(0 <= each <= rounds for each in reached.best) and all(each > 0 for each in reached.trees)
    lengths = {len(reached.curve), len(reached.best)} <= {0, rounds}
    return rounds > 0 and lengths and counted


def _read(state: State) -> tuple[dict[int, FinishedModel], dict[int, UnfinishedModel]]:
    tensors = state.tensors
    kept: dict[int, FinishedModel] = {}
    under_way: dict[int, UnfinishedModel] = {}
    for index in range(len(state.done)):
        if f"kept_text_{index}" in tensors:
            rounds, whole = tensors[f"kept_rounds_{index}"].tolist()
            curve = tuple(tensors[f"kept_curve_{index}"].tolist())
            kept[index] = FinishedModel(_text(tensors[f"kept_text_{index}"]), rounds, curve, bool(whole))
        if f"way_text_{index}" in tensors:
            text, scores = (_text(tensors[f"way_{name}_{index}"]) for name in ("text", "scores"))
            trees, curve, best = (tuple(tensors[f"way_{name}_{index}"].tolist()) for name in ("trees", "curve", "best"))
            under_way[index] = UnfinishedModel(index, text, trees, curve, best, scores)
    return kept, under_way


def scores_digest(booster: Booster) -> str:
    """Return the digest of a booster's predictions for its training rows, from its current scores."""
    return hashlib.sha256(booster.running(0).T.data).hexdigest()  # in memory order, without a copy


def _bytes(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _text(tensor: npt.NDArray[Any]) -> str:
    return tensor.tobytes().decode()
