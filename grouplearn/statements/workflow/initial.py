"""WITH (initialize_from = ...): a TRAIN whose groups begin where those of another model are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog.models import load_definition
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.rows.recorded_runs import unknown_model
from grouplearn.catalog.rows.state_rows import load_states
from grouplearn.data.dataset import Group
from grouplearn.data.encoders import FittedItem
from grouplearn.learners.contract.refreshing import source_of
from grouplearn.messages import Span
from grouplearn.plan.physical import PhysicalPlan, definition
from grouplearn.plan.retrying import differing
from grouplearn.prediction.group_models import load_groups
from grouplearn.store.retrying import fitted_on_all
from grouplearn.train.job import Earlier


@dataclass(frozen=True, slots=True)
class Beginning:
    """What groups begin with, by their numbers: ``fitted`` are encoders of all groups, None if they are to be fitted."""

    earlier: dict[int, Earlier] = field(default_factory=dict)
    fitted: dict[int, FittedItem] | None = None


def beginning_of(con: Any, checker: SqlChecker, physical: PhysicalPlan, groups: Sequence[Group]) -> Beginning:
    """Return the states of the model that the statement names for groups with the same keys, nothing if it names none."""
    bound = physical.bound
    name = bound.options.training.initialize_from
    if name is None:
        return Beginning()
    given = (each for each in bound.statement.options if each.name.value.casefold() == "initialize_from")
    span = next(given).value.span
    model = load_definition(con, bound.catalog, bound.schema, name)
    if model is None:
        raise unknown_model(con, checker, name, span)
    _refuse_other(checker, physical, model, span)
    states = load_states(con, model)
    if not states:
        hint = f"TRAIN {name} WITH (keep_state = true), if its learner goes on from a state."
        raise checker.error(f'model "{name}" keeps no state to begin with', span, hint)
    known = {(each.level, each.keys): each for each in load_groups(con, model, only=states)}
    earlier = {
        group.id: Earlier(before.fitted, before.classes, states[before.id])
        for group in groups
        if (before := known.get((group.level, group.keys))) is not None
    }
    return Beginning(earlier, fitted_on_all(con, model) or None)


def _refuse_other(checker: SqlChecker, physical: PhysicalPlan, model: StoredModel, span: Span) -> None:
    """Raise unless both models are of the same learner, features, keys and label."""
    bound, stored = physical.bound, model.definition
    now = definition(physical, stored.statement)
    if now.learner != stored.learner or source_of(bound.learner) not in ("sums", "passes"):
        message = f"{now.shown_learner} does not begin with the state of a model of {stored.shown_learner}"
        hint = "The model is of the same learner, one that goes on from sums or from weights: see REFRESH."
        raise checker.error(message, span, hint)
    what = differing(stored, now) or ("classes" if now.classes != stored.classes else None)
    if what is not None:
        raise checker.error(f'the {what} differ from those of model "{model.location.name}"', span)
