"""What a training of a recurrent network is given besides the series."""

from __future__ import annotations

from dataclasses import dataclass

from grouplearn.learners.series.deep.likelihoods import LIKELIHOODS, Likelihood


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The horizon H and the context C of a window in steps, the season's length, the network, and how it is trained.

    ``device`` is one of torch: ``cpu``, ``cuda``, ``cuda:1``, ``mps`` ...
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

    @property
    def distribution(self) -> Likelihood:
        """The distribution of a value."""
        return LIKELIHOODS[self.likelihood]
