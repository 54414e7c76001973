"""One pass over the rows for many linear models, of which each has a loss of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from grouplearn.data.shard import FloatArray
from grouplearn.learners.contract.config import Config, Conflict, Hyperparameter, Value
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.linear.linear_learner import LinearLearner, LinearObjective
from grouplearn.learners.linear.stochastic_gradient.hyperparameters import BATCH_SIZE
from grouplearn.learners.linear.stochastic_gradient.solver import StochasticGradientSolver
from grouplearn.models.label import NUMBER, Label
from grouplearn.models.losses.loss import Loss
from grouplearn.models.losses.residuals import HUBER, QUANTILE
from grouplearn.models.metrics.metrics import family_of
from grouplearn.models.outputs.link import Link

ALPHA = Hyperparameter(
    "alpha",
    "float",
    0.5,
    "the quantile that loss quantile predicts: 0.9 is above nine labels of ten",
    "Koenker & Bassett 1978",
    low=1e-6,
    high=1 - 1e-6,
    only_with=("loss", (QUANTILE.name,)),
)
DELTA = Hyperparameter(
    "delta",
    "float",
    1.0,
    "the error, in units of the label, above which loss huber grows linearly",
    "Huber 1964",
    low=0.0,
    open_low=True,
    only_with=("loss", (HUBER.name,)),
)


class ManyLossesSolver(StochasticGradientSolver):
    """Model packing: the configurations of a pack share one pass over the rows, whatever their losses, penalties and rates.

    Each is trained as ``StochasticGradientSolver`` trains it alone (Liberty et al. 2020, section 3; Kumar et al. 2016).
    """

    summary: ClassVar[str] = ""
    default_epochs: ClassVar[int | None] = 10
    refused = MappingProxyType(
        {name: meant for name, meant in LinearLearner.refused.items() if name != ALPHA.name}
        | {"quantile": "it is alpha here", "epsilon": "it is delta here", "objective": "it is loss here"}
    )
    #: The hyperparameter that says what is minimised.
    objective_name: ClassVar[str] = "loss"

    def __init__(self, objective: LinearObjective) -> None:
        """Take an objective whose losses a hyperparameter chooses from."""
        super().__init__(objective, ())
        logs = tuple(loss for loss in self.usable_losses if loss.log_link)
        self._of_logs = StochasticGradientSolver(replace(objective, losses=logs, choice=None), ())

    def _hyperparameters(self, *, is_first: bool) -> Iterator[Hyperparameter]:
        for each in super()._hyperparameters(is_first=is_first):
            yield each
            if each.name == self.objective_name:
                yield from (ALPHA, DELTA)

    def _documented(self, choice: Hyperparameter) -> str:
        return choice.doc

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return the batch size: steps of all configurations are along the same rows."""
        return (config.get(BATCH_SIZE.name, BATCH_SIZE.default),)

    def predicts_as(self, config: Config) -> Learner:
        """Return the learner whose ``score`` predicts by this config's models: with a log link or without."""
        return self._of_logs if self.link(config, NUMBER) == "exp" else self

    def link(self, config: Config, label: Label) -> Link:
        """Return the link of a config's scores: its loss decides for numbers."""
        if label == NUMBER and self._fits(config, label):
            return "exp" if self.loss(label, config).log_link else "identity"
        return super().link(config, label)

    def classifies(self, config: Config) -> bool | None:
        """Return whether the loss is for classes; None without one, or for an unknown one."""
        chosen = [*self._chosen(config)]
        return None if config.get("loss") is None or not chosen else not self._fits(config, NUMBER)

    def label_conflict(self, config: Config, classes: bool) -> Conflict | None:
        """Return None: what a loss does not need is refused as without effect."""
        del config, classes
        return None

    def default_metric(self, config: Config, classes: bool) -> str | None:
        """Return the metric that goes with the loss, None for the label's default."""
        return next((loss.judged_by for loss in self._chosen(config) if classes != (NUMBER in loss.labels)), None)

    def check_labels(self, loss: Loss, y: FloatArray, weight: FloatArray) -> None:
        """Raise ValueError, with a reason a user understands, for labels that have no loss."""
        loss.check_labels(y, weight, f"loss = '{loss.chosen_as}'")

    def loss_metric(self, config: Config, label: Label) -> str | None:
        """Return the metric of the loss; None if its predictions are not calibrated."""
        loss = self.loss(label, config)
        return (loss.judged_by or family_of(label).default) if loss.is_calibrated else None

    def _chosen(self, config: Config) -> Iterator[Loss]:
        """Yield the losses that a config names, each for other labels; all if it names none."""
        name = config.get("loss")
        return (loss for loss in self.usable_losses if name in (None, loss.chosen_as))

    def _fits(self, config: Config, label: Label) -> bool:
        return any(label in loss.labels for loss in self._chosen(config))
