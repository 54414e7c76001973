"""Moves the training of one config from one pack to another: how a trial continues in a later round.

A state is cut by its config axis. A tensor with as many rows as there are configs belongs to them; one with a single row is
shared by all. A config continues bit for bit if the learner's arithmetic does not depend on the rest of the pack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.ways import SamplingLearner
from grouplearn.models.state import State
from grouplearn.train.pack import Fit, Training
from grouplearn.train.results.trials import TrialProgress


def progress_of(learner: Learner, training: Training, index: int) -> TrialProgress | None:
    """Return what config ``index`` of a pack needs to continue, None if it begins again."""
    if not learner.access.in_one_go:
        return extract_trial(training, index)
    alone, fit = cast(SamplingLearner, learner).trial_state(training.state, index), training.fits[index]
    return None if alone is None else TrialProgress(fit.epochs, alone.to_bytes(), tuple(fit.curve))


def training_from(learner: Learner, carried: Sequence[TrialProgress]) -> Training:
    """Return the training of a pack from what its configs carry."""
    if not learner.access.in_one_go:
        return combine_trials(carried)
    state = cast(SamplingLearner, learner).pack_state([State.from_bytes(each.state) for each in carried])
    return Training(state, _fits(carried), carried[0].epochs)


def extract_trial(training: Training, index: int) -> TrialProgress:
    """Return what config ``index`` of a pack needs to continue; the training is between two epochs."""
    state, n_configs = training.state, len(training.state.done)
    tensors = {}
    for name, tensor in state.tensors.items():
        if len(tensor) not in (1, n_configs):
            raise ValueError(f"the state's {name} has {len(tensor)} rows for {n_configs} configs: it cannot be cut")
        tensors[name] = tensor[index : index + 1] if len(tensor) == n_configs else tensor
    alone = State(tensors, state.done[index : index + 1])
    return TrialProgress(training.epochs, alone.to_bytes(), tuple(training.fits[index].curve))


def combine_trials(carried: Sequence[TrialProgress]) -> Training:
    """Return the training of a pack from those of its configs, which all have had equally many epochs."""
    states = [State.from_bytes(each.state) for each in carried]
    epochs = {each.epochs for each in carried}
    if len(epochs) > 1:
        raise ValueError(f"a pack continues from one epoch, not from {sorted(epochs)}")
    names = states[0].tensors
    tensors = {name: np.concatenate([state.tensors[name] for state in states]) for name in names}
    state = State(tensors, np.concatenate([state.done for state in states]))
    return Training(state, _fits(carried), carried[0].epochs)


def _fits(carried: Sequence[TrialProgress]) -> tuple[Fit, ...]:
    return tuple(Fit(each.epochs, list(each.curve)) for each in carried)
