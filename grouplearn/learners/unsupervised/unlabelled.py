"""What learners without a label have in common: they read sums over rows, and have neither links nor importances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.learners.contract.config import Config, Conflict
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import Access, Problem
from grouplearn.learners.contract.requirement import Requirement
from grouplearn.learners.contract.state import Artifact, State


class Unlabelled:
    """Part of a learner whose task has no label, and which reads dense rows without missing values."""

    access: ClassVar[Access] = Access.ALGEBRAIC
    linear: ClassVar[bool] = False
    log_link: ClassVar[bool] = False
    handles_missing: ClassVar[bool] = False
    handles_sparse: ClassVar[bool] = False
    requires: ClassVar[Requirement | None] = None

    def pack_key(self, config: Config) -> tuple[()]:
        """Return the key of every config: all of them share each pass."""
        del config
        return ()

    def conflict(self, config: Config) -> Conflict | None:
        """Return None: no values contradict each other."""
        del config
        return None

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return False: groups train one by one."""
        del problem, configs
        return False

    def _begun(self, problem: Problem, configs: Sequence[Config], tensors: Mapping[str, npt.NDArray[Any]]) -> State:
        """Return the state before the first pass, with an unknown objective; Diverged where there is nothing to learn from."""
        if not problem.n_features:
            raise Diverged("there are no features")
        return State({**tensors, "loss": np.full(len(configs), np.nan)}, np.zeros(len(configs), dtype=bool))

    def losses(self, state: State) -> FloatArray:
        """Return the training objective per config."""
        loss: FloatArray = state.tensors["loss"]
        return loss

    def as_multiclass(self, artifact: Artifact) -> Artifact:
        """Return the model: there are no classes."""
        return artifact

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:
        """Return None: no feature is more important than another."""
        del artifact, n_features
        return None
