"""Boosters that go on from finished models: by further rounds, or by renewing the values of their leaves.

A state has the text of the model of each config, ``before_i``, and how it goes on: ``rounds`` (1,) to add, or the ``decay`` (1,)
of leaf values, w ← decay · w + (1 − decay) · w', where w' is the value that the new rows alone would give the leaf (LightGBM's
refit).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.refreshing import Continuation
from grouplearn.models.state import Artifact, State

#: Further rounds by default, as a share of the model's.
_SHARE = 10


@dataclass(frozen=True, slots=True)
class EarlierTrees:
    """The model that a config goes on from: its text, the ``rounds`` to add, or the ``decay`` of its leaves."""

    text: str
    rounds: int = 0
    decay: float | None = None


def state_before(configs: Sequence[Config], models: Sequence[Artifact], how: Continuation) -> State:
    """Return the state in which configs go on from these models; raises Diverged where LightGBM has no way."""
    for config in configs:
        for name, value in (("boosting", "dart"), ("boosting", "rf"), ("linear_tree", True)):
            if config[name] == value:
                shown = "true" if value is True else f"'{value}'"
                raise Diverged(f"models with {name} = {shown} are not refreshed from new rows alone")
    rounds = [
        max(1, int(str(config["num_iterations"])) // _SHARE) if how.rounds is None else how.rounds for config in configs
    ]
    tensors = {f"before_{place}": np.frombuffer(model.text, np.uint8) for place, model in enumerate(models)}
    number = {"decay": np.array([how.decay])} if how.way == "leaves" else {"rounds": np.array(rounds, np.int64)}
    return State({**tensors, **number}, np.zeros(len(configs), np.bool_))


def earlier_trees(state: State) -> dict[int, EarlierTrees]:
    """Return the models that configs go on from, none in a new state."""
    found = {}
    for place in range(len(state.done)):
        text = state.tensors.get(f"before_{place}")
        if text is not None and "decay" in state.tensors:
            found[place] = EarlierTrees(text.tobytes().decode(), decay=float(state.tensors["decay"][0]))
        elif text is not None:
            found[place] = EarlierTrees(text.tobytes().decode(), rounds=int(state.tensors["rounds"][place]))
    return found
