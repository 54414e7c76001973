"""ALTER MODEL ... ADD TRIAL of a stored model: hyperparameters that are applied to the finished sums over rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grouplearn.bind.alter import check_new, consistent
from grouplearn.bind.run.options import bind_hyperparameter
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.pooling import pools
from grouplearn.messages import did_you_mean
from grouplearn.parser.statements import AddTrial


def bind_late(checker: SqlChecker, statement: AddTrial, learner: Learner, configs: Sequence[Config]) -> Config:
    """Return the configuration of a further trial; hyperparameters that are not given are those of the model's trials."""
    late = {each.name: each for each in learner.declaration.hyperparameters if each.late}
    if not late:
        message = f"{learner.shown_way} has no hyperparameters that are applied to finished sums"
        hint = (
            "TRAIN OR REPLACE MODEL with OVER GRID trains others; ALTER MODEL adds trials to a search while it trains."
        )
        raise checker.error(message, statement.span, hint)
    if statement.parent is not None:
        raise checker.error("FROM TRIAL is for a search in training", statement.parent.span, "Leave it out.")
    given: dict[str, Any] = {}
    for option in statement.options:
        name = option.name.value.casefold()
        value = bind_hyperparameter(checker, learner, option.name, option.value)
        if name not in late:
            message = f"{name} decides how sums are made, so that another value takes another pass over the rows"
            hint = did_you_mean(name, late) or f"A trial can be added with other {', '.join(late)}."
            raise checker.error(message, option.name.span, hint)
        given[name] = value
    differing = [name for name in late if name not in given and len({str(config.get(name)) for config in configs}) > 1]
    if differing:
        message = f"the trials of the model differ in {', '.join(differing)}, and the new one has no value of it"
        raise checker.error(message, statement.span, "Give it, too.")
    config = consistent(checker, statement, learner, {**configs[0], **given})
    if pools(learner, config):
        message = (
            "the trials of the model shrink groups to what they have in common, which takes another pass over the rows"
        )
        raise checker.error(message, statement.span, "TRAIN OR REPLACE MODEL with OVER GRID trains several.")
    check_new(checker, statement, config, dict(enumerate(configs)))
    return config
