"""How a learner reads data (kingpin 2.2), and what follows from it for those who plan, train, search and judge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

#: As manifests of runs and schedules name them.
AccessName = Literal["algebraic", "sequential", "sampling", "rounds"]


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """An access pattern as what is asked about it; ``words`` are what such a learner trains on, for a person.

    ``threaded_from``: feature values of an average unit from which on a second thread gains time. Measured with 2 threads.
    Where each visit changes the state, those of every configuration and epoch count.
    ``held``: what a worker holds of rows that are kept in files: a block at a time, all as bins, or ``some``, which are all rows
    of a group that has but some blocks, and of a larger one a block at a time.
    ``gang_waits``: after what the members of a gang wait for each other.
    ``one_by_one``: the configs of a pack train one after another, and share no more than how the rows are made ready.
    ``in_one_go``: training is one step with all its epochs, which nobody stops or looks at in between.
    ``converges``: training ends by itself, where nothing is left to gain.
    ``visits``: every visit of a block changes the state, so that the order of visits matters.
    ``retunes``: a state in training goes on with other hyperparameters.
    ``in_rounds``: an epoch is many rounds of work on every shard, each with a barrier; shards remember what they need of rows.
    """

    name: AccessName
    words: str
    threaded_from: float
    held: Literal["block", "bins", "some"]
    gang_waits: Literal["leaf", "batch"] = "leaf"
    one_by_one: bool = False
    in_one_go: bool = False
    converges: bool = False
    visits: bool = False
    retunes: bool = False
    in_rounds: bool = False


#: Sums over blocks release the interpreter lock inside long array operations only (1x at 80,000 values, 1.7x at 800,000).
SUMS = AccessPattern("algebraic", "sums over rows", threaded_from=400_000.0, held="block", converges=True)
#: Mini-batches are so short that two threads take longer than one at any size (0.5x), but where a kernel runs all of a block.
PASSES = AccessPattern(
    "sequential", "batches of rows", threaded_from=math.inf, held="some", gang_waits="batch", visits=True, retunes=True
)
#: LightGBM releases the lock in every call (1.1x at 120 values and 10 rounds, 1.5x at 100 rounds, 1.8x at 3,200 values).
BOOSTING = AccessPattern(
    "sampling", "all rows at once", threaded_from=0.0, held="bins", one_by_one=True, in_one_go=True
)
#: Whole epochs of rounds over rows in memory are one call of a kernel.
ROUNDS = AccessPattern(
    "rounds", "rounds of sums over rows", threaded_from=100_000.0, held="some", converges=True, in_rounds=True
)
PATTERNS = (SUMS, PASSES, BOOSTING, ROUNDS)
