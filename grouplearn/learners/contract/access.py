"""How a learner reads data (kingpin 2.2), and what follows for planning, training, search and validation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

#: Their names in manifests and schedules.
AccessName = Literal["algebraic", "sequential", "sampling", "rounds"]


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """An access pattern by its properties; ``words`` describe for users what such a learner trains on.

    - ``threaded_from``: feature values of an average unit from which a second thread saves time (measured with 2 threads); if
      each visit changes the state, counted for every configuration and epoch.
    - ``held``: what a worker holds of rows in files: a block at a time, all as bins, or ``some``: all rows of a group of few
      blocks, a block at a time of a larger one.
    - ``gang_waits``: after what the members of a gang wait for each other; None where no gang trains such a learner.
    - ``one_by_one``: the configs of a pack train one after another and share only the prepared rows.
    - ``in_one_go``: training is one step with all its epochs, without a stop in between.
    - ``converges``: training ends by itself at the optimum.
    - ``visits``: every visit of a block changes the state, so that their order matters.
    - ``retunes``: a state can continue with other hyperparameters.
    - ``in_rounds``: an epoch is many rounds of work on every shard, each with a barrier; shards keep data between rounds.
    - ``shared``: the part of the time of a whole group of several blocks in memory in which idle workers of the process help.
    """

    name: AccessName
    words: str
    threaded_from: float
    held: Literal["block", "bins", "some"]
    gang_waits: Literal["leaf", "batch"] | None = "leaf"
    one_by_one: bool = False
    in_one_go: bool = False
    converges: bool = False
    visits: bool = False
    retunes: bool = False
    in_rounds: bool = False
    shared: float = 0.0


#: Sums over blocks release the interpreter lock only in long array operations (1x at 80,000 values, 1.7x at 800,000).
SUMS = AccessPattern("algebraic", "sums over rows", threaded_from=400_000.0, held="block", converges=True)
#: Mini-batches are so short that two threads are slower than one at any size (0.5x), unless a kernel runs all of a block.
PASSES = AccessPattern(
    "sequential", "batches of rows", threaded_from=math.inf, held="some", gang_waits="batch", visits=True, retunes=True
)
#: LightGBM releases the lock in every call (1.1x at 120 values and 10 rounds, 1.5x at 100 rounds, 1.8x at 3,200 values).
BOOSTING = AccessPattern(
    "sampling", "all rows at once", threaded_from=0.0, held="bins", one_by_one=True, in_one_go=True
)
#: All rounds of an epoch over rows in memory are one kernel call, which takes 0.56 times as long on two threads; it is nine
#: tenths of a long training.
ROUNDS = AccessPattern(
    "rounds",
    "rounds of sums over rows",
    threaded_from=100_000.0,
    held="some",
    converges=True,
    in_rounds=True,
    shared=0.8,
)
PATTERNS = (SUMS, PASSES, BOOSTING, ROUNDS)
