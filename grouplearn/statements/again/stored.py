"""The statement of a stored model, bound once more: what RETRY FAILED and REFRESH train by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grouplearn.bind.bind import bind
from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.run import compatibility
from grouplearn.bind.run.options import executor_again
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog.checks.damage import damaged
from grouplearn.catalog.checks.trust import other_name
from grouplearn.catalog.lookup import search_path
from grouplearn.catalog.records import Outcome, RunOutcome, StoredModel, Watermark
from grouplearn.catalog.rows.profile_rows import renumbered as rows_renumbered
from grouplearn.catalog.rows.state_rows import load_watermark
from grouplearn.data.frequency import Frequency
from grouplearn.errors import Error, ParseError
from grouplearn.extract.streams.keeping import files_of
from grouplearn.learners import registry
from grouplearn.learners.contract.pooling import pools
from grouplearn.messages import Span
from grouplearn.parser.parse import parse
from grouplearn.parser.statements import Option, QualifiedName, TrainModel, sql_of
from grouplearn.plan.physical import PhysicalPlan, definition
from grouplearn.plan.retrying import changed
from grouplearn.prediction.prediction import predictor_for
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.options import REPLAY
from grouplearn.statements.context import StatementContext
from grouplearn.store.retrying import Record


@dataclass(frozen=True, slots=True)
class StoredStatement:
    """A stored model and its TRAIN statement; errors point at the model's ``name`` in the statement that asks for it."""

    model: StoredModel
    name: QualifiedName
    checker: SqlChecker
    at: StatementContext

    @classmethod
    def to_change(cls, name: QualifiedName, checker: SqlChecker, at: StatementContext) -> StoredStatement:
        """Return the model that a name means; raise unless it is of one learner, alone and known, where models can be changed."""
        at.databases.refuse_several(name, checker)
        model = at.databases.model(name, checker)
        at.databases.refuse_member(model.location, name.span, checker)
        at.databases.refuse_change(model.location.catalog, name.span, checker)
        stored = cls(model, name, checker, at)
        stored.refuse_unknown_learner()
        return stored

    def refuse_unknown_learner(self) -> None:
        """Raise if the model's learner is not registered."""
        learner = self.model.definition.learner
        if not registry.is_known(learner):
            hint = f"{registry.how_to_register(learner)} as before."
            raise self.refusal(f"the model is of the learner {learner}, which is not registered", hint)

    def refusal(self, message: str, hint: str | None) -> Error:
        """Return an error at the model's name."""
        return self.checker.error(message, self.span, hint)

    @property
    def span(self) -> Span:
        """Where the model is named."""
        return self.name.span

    def parsed(self) -> TrainModel:
        """Return the model's statement, a TRAIN."""
        location, text = self.model.location, self.model.definition.statement
        try:
            found = list(parse(text))
        except ParseError as error:
            raise damaged(
                location.catalog, location.name, "models", f"the stored statement cannot be read: {error.message}"
            ) from None
        if len(found) != 1 or not isinstance(found[0], TrainModel):
            raise damaged(location.catalog, location.name, "models", "the statement is not one TRAIN")
        return found[0]

    def bound(self, judge: SqlChecker, train: TrainModel, given: Mapping[str, Any]) -> BoundTrain:
        """Return the statement bound against the current tables, with the options ``given`` by name; ``judge`` has its text."""
        known, location = self.model.definition, self.model.location
        if any(files_of(train)):
            message = f'FROM of model "{location.name}" could be read once, and its rows are gone'
            raise self.refusal(message, "TRAIN OR REPLACE MODEL trains on other rows.")
        guard = predictor_for(self.at.connection).guard
        guard.admit(self.at.connection, known)
        guard.admit_statement(self.at.connection, known, train.source.text, sql_of(train))
        self._refuse_other_names(train)
        settings = {
            **self.at.settings,
            "seed": known.seed,
            "durable": False,
            "task": _task(self.model),
            **self._frequency(),
        }
        bound = bind(judge, train, location.catalog, location.schema, settings)
        if bound.search is not None:
            message = f'the trials of model "{location.name}" were chosen in rounds, from how the others did'
            raise self.refusal(message, "TRAIN OR REPLACE MODEL searches anew.")
        if any(pools(bound.learner, config) for config in bound.configs):
            message = f'groups of model "{location.name}" shrink to what they have in common: one that changes changes the others'
            raise self.refusal(message, "TRAIN OR REPLACE MODEL trains all of them.")
        given = {**given, "executor": self._executor(bound, given)}
        return replace(bound, options=bound.options.changed({"durable": False, **given, REPLAY.name: None}))

    def watermark(self) -> Watermark | None:
        """Return the latest times of the rows that the model's groups have learned from; raise if its SQL may not be run."""
        con, known = self.at.connection, self.model.definition
        found = load_watermark(con, self.model)
        if found is not None:
            guard = predictor_for(con).guard
            guard.admit(con, known)
            guard.admit_statement(con, known, self.parsed().source.text, [found.sql])
        return found

    def _frequency(self) -> dict[str, Any]:
        """Return the frequency of the model's series, which a few rows may not show."""
        learner = registry.learner(self.model.definition.learner)
        item = self.model.definition.items[0].item if learner.declaration.takes_series else None
        return {} if item is None else {"frequency": Frequency.of(item.options)}

    def _refuse_other_names(self, train: TrainModel) -> None:
        """Raise if an unqualified name in the statement means another table, view, macro or type than in training."""
        known = self.model.definition
        found = other_name(self.at.connection, known, train.source.text, sql_of(train))
        if found is not None:
            name, path = found
            here = self.at.databases.attachments()
            then, now = search_path.shown(path), search_path.shown(search_path.current(here))
            message = f'"{name}" is not what it was when model "{known.name}" was trained'
            places = f"Names were looked for in {then}, and now in {now}"
            raise self.refusal(f"{message}\n{places}", search_path.advice(path, here))

    def _executor(self, bound: BoundTrain, given: Mapping[str, Any]) -> str:
        """Return where the trials train, which the stored statement does not decide; raise if they cannot train there."""
        operator = given.get("operator", bound.options.placement.operator)
        executor = executor_again(bound.options.placement.executor, given, self.at.settings)
        refusal = compatibility.refusal_reason(operator, bound.learner, executor)
        if refusal:
            raise self.refusal(refusal, compatibility.remedy(operator, bound.learner))
        return executor

    def as_before(self, record: Record, given: Mapping[str, Any], options: tuple[Option, ...]) -> dict[str, Any]:
        """Return the operator and workers of the first run, if the models of that operator depend on them."""
        operator, learner = record.operator, registry.way(self.model.definition.learner, self.model.definition.configs)
        if not compatibility.changes_models(operator, learner):
            return {}
        fixed = {"operator": operator, "workers": record.workers}
        for option in options:
            name = option.name.value.casefold()
            if name in fixed and given[name] != fixed[name]:
                what = compatibility.depends_on(operator)
                message = (
                    f"the model was trained by operator {operator}, on {fixed['workers']} workers, and its models "
                )
                raise self.checker.error(f"{message}depend on {what}", option.value.span)
        return fixed

    def refuse_other(self, physical: PhysicalPlan, record: Record, what: str, hint: str) -> None:
        """Raise unless a plan made today is of the same learner, features, keys, label and configurations."""
        stored = self.model.definition
        now = definition(physical, stored.statement)
        if (now.learner, now.metric) != (stored.learner, stored.metric):
            where = self.model.location
            raise damaged(where.catalog, where.name, "models", "the statement is of another learner or metric")
        reason = changed(replace(stored, configs=stored.configs[: record.configs]), now)
        if reason is not None:
            raise self.refusal(f"{what}: {reason}", hint)


def _task(model: StoredModel) -> str | None:
    """Return how the model's label was taken, as its values may be others now."""
    known = model.definition
    if known.target_name is None:
        return None
    return "classification" if known.label.has_classes else "regression"


def renumbered(outcome: RunOutcome, numbers: Mapping[int, int]) -> RunOutcome:
    """Return the outcome with other numbers of groups."""
    found = outcome.found
    new = np.array([numbers[number] for number in found.ids.tolist()], np.int32)
    order, trials = np.argsort(new), replace(found.trials, group=new[found.place])
    found = Outcome(
        groups=tuple(replace(found.groups[place], id=int(new[place])) for place in order.tolist()),
        facts=tuple(found.facts[place] for place in order.tolist()),
        trials=trials.ordered(),
        best=found.best[order],
    )

    def unit(each: Unit) -> Unit:
        return replace(each, group=numbers[each.group], others=tuple(numbers[other] for other in each.others))

    units = tuple(replace(each, unit=unit(each.unit)) for each in outcome.units)
    profiles, held_out = (rows_renumbered(rows, numbers) for rows in (outcome.profiles, outcome.held_out))
    watermark = outcome.watermark
    if watermark is not None:
        latest = {numbers[number]: time for number, time in watermark.latest.items() if number in numbers}
        watermark = replace(watermark, latest=latest)
    return replace(outcome, found=found, units=units, profiles=profiles, held_out=held_out, watermark=watermark)
