"""The form of a prediction, as an object that every room asks: its columns, what ``predict`` returns, its SQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.learners.contract.problem import Link
from grouplearn.learners.contract.state import FloatArray

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Scored:
    """Rows with scores, in SQL: the relation that has them, and what else the final SELECT is made of.

    ``head`` are the columns that come first, ``level`` the SQL of the level whose model was used, ``link`` what a score goes
    through, ``threshold`` the SQL of the probability above which a row is of the positive class. ``judged``: what EVALUATE
    measures is wanted beside the prediction.
    """

    relation: str
    head: str
    level: str
    link: Link
    threshold: str
    judged: bool = False


class Answer(ABC):
    """What a model says of a row. A score is what a learner computes; the answer is what becomes of it.

    ``n_scores`` columns ``__grouplearn_s0``, ... of SQL hold the score of a row. ``width`` numbers, an output, are what the
    scorer computes of it: NaN where there is no prediction.
    """

    n_scores: int = 1
    #: The names of the columns that tables of predictions always have, before others.
    shown: tuple[str, ...] = ("prediction",)
    #: The views that belong to models with such answers, by what follows the model's name.
    views: tuple[str, ...] = ()

    @property
    @abstractmethod
    def width(self) -> int:
        """How many numbers an output has, at least."""

    @property
    def has_threshold(self) -> bool:
        """Whether a probability decides what is predicted, so that the macro takes its threshold."""
        return False

    @abstractmethod
    def select(self, scored: Scored) -> str:
        """Return the SELECT of the head, the columns of the answer and ``model_level`` from rows with scores."""

    @abstractmethod
    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        """Return the columns of the answer, as SQL over what ``predict`` returned; ``judged`` as in ``Scored``."""

    @abstractmethod
    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        """Return the outputs (n, width) of the scores (n, k) of a group that has these ``classes``."""

    @abstractmethod
    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        """Return the fields of what ``predict`` returns, without those that are NULL, of outputs (n, width)."""

    def missing(self, outputs: FloatArray) -> BoolArray:
        """Return which rows (n,) have no prediction."""
        missing: BoolArray = np.logical_or.reduce(np.isnan(outputs), axis=1)
        return missing

    def value(self) -> int | None:
        """Return which number of an output ``predict_value`` returns; None where it is NULL.

        Raises ValueError, with a reason that a user understands, where to ask for it is a mistake.
        """
        return None

    def probability(self) -> int | None:
        """Return which number of an output ``predict_probability`` returns.

        Raises ValueError, with a reason that a user understands, where to ask for it is a mistake.
        """
        raise ValueError("is no classifier of two: predict() has what it predicts")


def list_array(values: FloatArray, lengths: npt.NDArray[np.int64], missing: BoolArray) -> Any:
    """Return the first ``lengths`` values of each row (n, L) as a list, NULL where ``missing``."""
    kept = np.where(missing, 0, lengths)
    offsets = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
    flat = values[np.arange(values.shape[1]) < kept[:, None]]
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(flat), mask=pa.array(missing) if missing.any() else None
    )
