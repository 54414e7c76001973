"""What a training of a recurrent network is given besides the series."""

from __future__ import annotations

from dataclasses import dataclass

from grouplearn.learners.contract.control import Gang
from grouplearn.learners.series.deep.likelihoods import LIKELIHOODS, Likelihood


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The horizon H and the context C of a window in steps, the season's length, the network, and how it is trained.

    ``device`` is one of torch: ``cpu``, ``cuda``, ``cuda:1``, ``mps`` ... The members of a ``gang`` train it together: each
    takes its share of the windows of a batch, and of the series that are forecast.
    """

    horizon: int
    context: int
    season: int = 1
    hidden_units: int = 40
    layers: int = 2
    dropout: float = 0.1
    learning_rate: float = 1e-3
    epochs: int = 20
    batches_per_epoch: int = 50
    batch_size: int = 32
    likelihood: str = "student_t"
    n_samples: int = 200
    seed: int = 0
    device: str = "cpu"
    gang: Gang | None = None

    @property
    def rank(self) -> int:
        """The number of this member."""
        return 0 if self.gang is None else self.gang.rank

    @property
    def members(self) -> int:
        """How many members there are."""
        return 1 if self.gang is None else self.gang.size

    @property
    def distribution(self) -> Likelihood:
        """The distribution of a value."""
        return LIKELIHOODS[self.likelihood]
