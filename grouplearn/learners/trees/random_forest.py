"""Random forests: LightGBM's trees, each of other rows and features, averaged."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from grouplearn.learners.contract.config import Config, Hyperparameter, Value
from grouplearn.learners.trees.gbdt import Gbdt
from grouplearn.learners.trees.lightgbm.parameters import HYPERPARAMETERS, complete

#: Parameters that do not apply to forests, whose trees are independent.
_OF_BOOSTING = (
    "boosting", "learning_rate", "drop_rate", "max_drop", "skip_drop", "uniform_drop",
    "xgboost_dart_mode", "drop_seed",
)  # fmt: skip
#: Expected share of distinct rows in a bootstrap sample: 1 - 1/e.
_DIFFERENT = 0.632
#: Defaults that differ from those of ``gbdt``.
_DEFAULTS: Config = {
    "num_leaves": 255,
    "min_data_in_leaf": 5,
    "bagging_freq": 1,
    "bagging_fraction": _DIFFERENT,
    "feature_fraction_bynode": None,
}
_DOCS = {"feature_fraction_bynode": "share of features drawn for each node; none: the square root of their number"}


def _of_forests(parameter: Hyperparameter) -> Hyperparameter:
    name = parameter.name
    default = _DEFAULTS.get(name, parameter.default)
    return replace(parameter, default=default, doc=_DOCS.get(name, parameter.doc), nullable=default is None)


class RandomForest(Gbdt):
    """Random forests (Breiman 2001) by LightGBM: the mean of trees that see random rows and, at each node, random features.

    It is ``gbdt`` with ``boosting = 'rf'`` and other defaults; rows are drawn without replacement.
    """

    declaration = replace(
        Gbdt.declaration,
        name="random_forest",
        has_offset=False,
        summary="Random forests (LightGBM)",
        refused={
            **Gbdt.declaration.refused,
            **dict.fromkeys(_OF_BOOSTING, "trees of a forest do not follow from each other; gbdt has it"),
        },
        hyperparameters=tuple(_of_forests(each) for each in HYPERPARAMETERS if each.name not in _OF_BOOSTING),
    )

    refresh_ways: ClassVar[tuple[str, ...]] = ()

    def filled(self, config: Config) -> dict[str, Value]:
        """Return the config completed by the defaults of forests."""
        return complete({**_DEFAULTS, **config, "boosting": "rf"})
