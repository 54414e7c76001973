"""The hyperparameters of coordinate descent, and those that the configs of a pack share."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.linear import linear_model

TOLERANCE = Hyperparameter(
    "tolerance",
    "float",
    1e-8,
    "training ends when the objective is within this share of its minimum, as what pulls at the weights shows; with l1 and no "
    "l2, when in an epoch none was pulled at by more than the square root of this share of l1, each weight when its turn came; "
    "without penalties, when all further epochs would, as the last two tell, lower the objective by less than this share, and "
    "the last did by less than a hundredth of that",
    "Wright 2015, Coordinate descent algorithms, section 2",
    low=0.0,
    open_low=True,
)
BLOCKS = Hyperparameter(
    "blocks",
    "str",
    "items",
    "the columns that change together between two exchanges of the workers: those of one FEATURES item, or all of"
    " them ('one', as in Sibyl), which takes many more epochs of one exchange each",
    "Rendle, Fetterly, Shekita & Su 2016, section 3.2.3",
    choices=("items", "one"),
)
SELECTION = Hyperparameter(
    "selection",
    "str",
    "cyclic",
    "the columns that change next: those of the next item, or ('greedy') those of the item with the largest "
    "expected gain, judged by its last gain and by how long ago that was; an epoch has equally many changes "
    "either way",
    "Rendle, Fetterly, Shekita & Su 2016, section 4.3",
    choices=("cyclic", "greedy"),
)
ACCELERATION = Hyperparameter(
    "acceleration",
    "str",
    "leaps",
    "whether every fifth epoch, from the eighth on, extrapolates the path of the weights as far as the objective "
    "falls ('leaps'); 'none' is plain descent",
    "Bertrand & Massias 2021, Anderson acceleration of coordinate descent",
    choices=("leaps", "none"),
)


def has_intercept(configs: Sequence[Config]) -> bool:
    """Return whether a pack's models have an intercept."""
    return bool(linear_model.column(configs[:1], linear_model.FIT_INTERCEPT)[0])


def chooses(configs: Sequence[Config]) -> bool:
    """Return whether blocks are chosen by their gains; such a pack has one config."""
    return bool(configs[0].get(SELECTION.name, SELECTION.default) == "greedy")


def leaps(configs: Sequence[Config]) -> bool:
    """Return whether a pack extrapolates every few epochs."""
    return bool(configs[0].get(ACCELERATION.name, ACCELERATION.default) == "leaps")
