"""Checkpoints of boosting, from which another process can resume: finished models, and the current booster.

A booster resumes from its text: its trees are merged into a new one, whose training rows begin with the trees' scores. Leaf
values are written with all digits, so the next trees have the same bits; only boosters with random draws or reweighted
trees start again (``continues``). A digest checks that the scores are the same as before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.learners.trees.lightgbm.booster import Booster
from grouplearn.models.state import State


@dataclass(frozen=True, slots=True)
class FinishedModel:
    """The model of one config, its rounds, and the metric after each round that was run.

    ``whole``: it has all its rounds.
    """

    text: str
    rounds: int
    curve: tuple[float, ...]
    whole: bool = True


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


def to_state(n_configs: int, kept: Mapping[int, FinishedModel], under_way: UnfinishedModel | None) -> State:
    """Return a checkpoint as a state."""
    tensors: dict[str, npt.NDArray[Any]] = {}
    for index, model in kept.items():
        tensors |= {
            f"kept_text_{index}": _bytes(model.text),
            f"kept_rounds_{index}": np.array([model.rounds, model.whole], dtype=np.int64),
            f"kept_curve_{index}": np.array(model.curve, dtype=np.float64),
        }
    if under_way is not None:
        tensors |= {
            "way_config": np.array([under_way.config], dtype=np.int64),
            "way_text": _bytes(under_way.text),
            "way_trees": np.array(under_way.trees, dtype=np.int64),
            "way_curve": np.array(under_way.curve, dtype=np.float64),
            "way_best": np.array(under_way.best, dtype=np.int64),
            "way_scores": _bytes(under_way.scores),
        }
    return State(tensors, np.zeros(n_configs, dtype=bool))


def from_state(
    state: State, is_sound: Callable[[bytes], bool]
) -> tuple[dict[int, FinishedModel], UnfinishedModel | None]:
    """Inverse of ``to_state``; empty for a state without models, or whose texts or numbers are not ``is_sound``.

    The state comes from a file: anything that ``to_state`` would not write is dropped.
    """
    try:
        kept, under_way = _read(state)
    except (KeyError, IndexError, ValueError, TypeError):
        return {}, None
    texts = [each.text for each in kept.values()] + ([under_way.text] if under_way else [])
    fits = all(each.rounds > 0 for each in kept.values()) and (
        under_way is None or _is_whole(under_way, len(state.done))
    )
    return (kept, under_way) if fits and all(is_sound(text.encode()) for text in texts) else ({}, None)


def _is_whole(reached: UnfinishedModel, n_configs: int) -> bool:
    rounds = len(reached.trees)
    counted = all(0 <= each <= rounds for each in reached.best) and all(each > 0 for each in reached.trees)
    lengths = {len(reached.curve), len(reached.best)} <= {0, rounds}
    return rounds > 0 and lengths and counted and 0 <= reached.config < n_configs


def _read(state: State) -> tuple[dict[int, FinishedModel], UnfinishedModel | None]:
    tensors = state.tensors
    kept = {}
    for index in range(len(state.done)):
        if f"kept_text_{index}" in tensors:
            rounds, whole = tensors[f"kept_rounds_{index}"].tolist()
            curve = tuple(tensors[f"kept_curve_{index}"].tolist())
            kept[index] = FinishedModel(_text(tensors[f"kept_text_{index}"]), rounds, curve, bool(whole))
    if "way_text" not in tensors:
        return kept, None
    trees, curve, best = (tuple(tensors[f"way_{name}"].tolist()) for name in ("trees", "curve", "best"))
    config, text, scores = int(tensors["way_config"][0]), _text(tensors["way_text"]), _text(tensors["way_scores"])
    return kept, UnfinishedModel(config, text, trees, curve, best, scores)


def scores_digest(booster: Booster) -> str:
    """Return the digest of a booster's predictions for its training rows, from its current scores."""
    return hashlib.sha256(booster.running(0).T.data).hexdigest()  # in memory order, without a copy


def _bytes(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _text(tensor: npt.NDArray[Any]) -> str:
    return tensor.tobytes().decode()
