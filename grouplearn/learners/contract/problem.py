"""What a pack learns on one group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from grouplearn.data.frequency import Frequency
from grouplearn.data.shard import Matrix
from grouplearn.models.label import Label


class FeatureBlock(NamedTuple):
    """The feature columns of one item: its ``name``, their number, and whether it is ``pure``: each row has at most one
    nonzero in them. Numbers, ``onehot``, ``ordinal`` and ``hash`` of one value are, lists and arrays are not."""

    name: str
    width: int
    pure: bool = True


#: The name of the feature that is a known part of the score.
OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class Problem:
    """What a pack learns on one group.

    - ``n_outputs``: the width of a score: 1 for regression and binary, ``n_classes`` for multiclass, times ``label_length``
    if the
      label is an array.
    - ``seed`` depends only on the statement's seed and the group.
    - ``categorical``: the indexes of columns with ordinal codes, for learners that treat them natively.
    - ``epochs``: the most epochs that will run.
    - ``among_more``: the group has two classes of a label that has more elsewhere. It is learned as any two classes; the
    finished
      model then goes through ``as_multiclass``.
    - ``n_unseen``: classes of held-out rows that no training row has, numbered after those that are learned.
    - ``items``: the FEATURES items in order, each a block of feature columns.
    - ``frequency``: that of the steps of series.
    - ``series``: the keys of the group's series as texts, in the order of their numbers, if it may have many.
    - ``ahead``: the features (m, d) of the rows that do not train, for learners that know features ahead; else None.
    - ``offset``: the last feature column is a known part of the score, whose weight is 1.
    - ``mirrored``: of two classes the positive one, 1, is the lesser, as the statement says so.
    """

    label: Label
    n_features: int
    n_classes: int = 0
    seed: int = 0
    epochs: int = 1
    categorical: tuple[int, ...] = ()
    label_length: int = 1
    among_more: bool = False
    n_unseen: int = 0
    items: tuple[FeatureBlock, ...] = ()
    mirrored: bool = False
    frequency: Frequency | None = None
    series: tuple[str, ...] = ()
    ahead: Matrix | None = field(default=None, compare=False)
    offset: bool = False

    @property
    def n_outputs(self) -> int:
        """Width of a score."""
        return self.label.n_scores(self.n_classes) * self.label_length
