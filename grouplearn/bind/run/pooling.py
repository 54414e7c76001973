"""WITH (pooling = 'shrink'): what a statement must be for its groups to learn from each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grouplearn.bind.clauses.features import BoundItem
from grouplearn.bind.clauses.search import place_of, searched
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoders import needs_no_fit
from grouplearn.data.encoding.encoder_calls import SCOPE
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.errors import Error
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.pooling import POOLING, parents_of, pools
from grouplearn.parser.statements import TrainModel
from grouplearn.search.procedures import SearchPlan

_SHRINK = f"{POOLING.name} = 'shrink'"


def pooled_items(
    checker: SqlChecker,
    statement: TrainModel,
    learner: Learner,
    search: tuple[Sequence[Config], SearchPlan | None],
    items: tuple[BoundItem, ...],
) -> tuple[BoundItem, ...]:
    """Return the items, fitted on all groups if groups shrink: their weights then mean the same everywhere.

    Raises BindError for a statement whose groups cannot shrink.
    """
    configs, plan = search
    drawn = {name.value.casefold() for name in searched(statement.search)} if plan and statement.search else set[str]()
    if not any(pools(learner, config) for config in configs) and POOLING.name not in drawn:
        return items
    _refuse_groups(checker, statement)
    _refuse_options(checker, statement)
    if plan is not None:
        message = f"{_SHRINK} trains all groups together, and OVER {plan.method.upper()} trains them in rounds"
        raise _error(checker, statement, message, f"OVER GRID ({POOLING.name} IN ('none', 'shrink')) compares both.")
    _refuse_scope(checker, statement)
    return tuple(_of_all_groups(checker, item) for item in items)


def _refuse_groups(checker: SqlChecker, statement: TrainModel) -> None:
    """Raise for groups that have no siblings, or several parents."""
    if statement.group_by is None or statement.group_by.sets == ((),):
        message = f"{_SHRINK} is for groups, and the statement has one model"
        raise _error(checker, statement, message, "GROUP BY ROLLUP (...) trains groups and their parents.")
    if parents_of(statement.group_by.sets) is None:
        message = f"{_SHRINK} needs one parent of each group, and here some have several"
        raise checker.error(message, statement.group_by.text.span, "GROUP BY ROLLUP (...) has one parent of each.")


def _refuse_options(checker: SqlChecker, statement: TrainModel) -> None:
    """Raise for options of models that go on from their own sums alone."""
    given = {option.name.value.casefold(): option for option in statement.options}
    if "initialize_from" in given:
        message = f"a group begins with the state of another model, or by {_SHRINK} with what its parent has in common"
        raise checker.error(message, given["initialize_from"].name.span, "Leave one of them out.")
    if "keep_state" in given and checker.constant(given["keep_state"].value):
        message = f"models by {_SHRINK} keep no state: new rows of one group change the models of others"
        raise checker.error(message, given["keep_state"].name.span, "Leave it out.")


def _refuse_scope(checker: SqlChecker, statement: TrainModel) -> None:
    for option in (each for feature in statement.features or () for each in feature.options):
        if option.name.value.casefold() == SCOPE.name and checker.constant(option.value) == SCOPE.default:
            message = f"{_SHRINK} compares the weights of groups, and encoders of each group give them other meanings"
            raise checker.error(message, option.value.span, "Leave it out, or write scope := 'all'.")


def _of_all_groups(checker: SqlChecker, bound: BoundItem) -> BoundItem:
    """Return an item that is fitted on the rows of all groups."""
    item, call = bound.stored.item, encoder_of(bound.stored.item).call
    if needs_no_fit(item):
        return bound
    if call is None or SCOPE not in call.options:
        shown = encoder_of(item).shown
        message = f"{_SHRINK} compares the weights of groups, and {shown} gives them another meaning in each"
        raise checker.error(message, bound.span, "Use onehot(x), or features without an encoder.")
    return replace(bound, stored=replace(bound.stored, item=replace(item, scope="all")))


def _error(checker: SqlChecker, statement: TrainModel, message: str, hint: str) -> Error:
    return checker.error(message, place_of(statement, POOLING.name), hint)
