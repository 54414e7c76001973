"""TRAIN of several learners: a model of each, stored in one transaction with what chooses the best of each group."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from grouplearn.bind.bind import bind
from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.several import bind_several, one_learner
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog import views
from grouplearn.catalog.combinations import Combination, combination_at
from grouplearn.catalog.schema import Location, names_of_views
from grouplearn.catalog.views import FAILED, JUDGED, KEYS, LEVEL
from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.errors import ModelExists, TrainingError
from grouplearn.parser.render import render
from grouplearn.parser.statements import ExplainTrain, Name, TrainModel
from grouplearn.prediction.combined import LEARNER, ORDER, PLACE, columns_beside_keys
from grouplearn.sqltext import identifier, literal
from grouplearn.statements import result_sql
from grouplearn.statements import train as one
from grouplearn.statements.context import StatementContext
from grouplearn.statements.train import Finished, Place, Read, Trained, Training, best_sql, nothing_trained
from grouplearn.statements.workflow.finishing import finish
from grouplearn.statements.workflow.streams import readable
from grouplearn.store import combined, objects
from grouplearn.store import writer as store


def train(statement: TrainModel, checker: SqlChecker, at: StatementContext) -> str:
    """Carry out TRAIN of one learner or of several, and return a query of the best trial of each group."""
    if not statement.other_learners:
        return one.train(one_learner(checker, statement), checker, at)
    trained = _Several(statement, checker, at).run()
    if trained is None:
        return nothing_trained(statement)
    return result_sql.arranged(_best(statement, trained, at), trained[0].definition, at)


def explain(statement: ExplainTrain, checker: SqlChecker, at: StatementContext) -> str:
    """Return a query of the plan of one learner; raises for several."""
    train = statement.train
    if train.other_learners:
        hint = f"Explain them one by one: EXPLAIN TRAIN MODEL {train.name.qualified} USING {train.learner.value} ..."
        raise checker.error("EXPLAIN TRAIN plans one learner", train.other_learners[0].span, hint)
    return one.explain(ExplainTrain(one_learner(checker, train), statement.format, statement.analyze), checker, at)


class _Run(NamedTuple):
    """The training of one learner: the rows that it has read, and where its model is to be stored."""

    training: Training
    read: Read
    place: Place
    directory: RunDirectory


@dataclass(frozen=True)
class _Several:
    """One TRAIN of several learners."""

    statement: TrainModel
    checker: SqlChecker
    at: StatementContext

    @property
    def learners(self) -> tuple[Name, ...]:
        """The learners as they are written."""
        return self.statement.learner, *self.statement.other_learners

    def run(self) -> tuple[Trained, ...] | None:
        """Train and store the models; None if the model exists and IF NOT EXISTS was given."""
        with ExitStack() as until_stored:
            with self.at.databases.transaction(storing=True):
                place = Training(self.statement, self.checker, self.at).place()
                if place is None:
                    return None
                runs = self._read(place, until_stored)
            finished = [run.training.finished(run.read, run.place, run.directory) for run in runs]
            self._refuse_failures(finished)
            return self._stored(place, runs, finished)

    def _read(self, place: Place, until_stored: ExitStack) -> list[_Run]:
        """Return the rows of each learner, all as they are now."""
        at, checker, catalog, schema = self.at, self.checker, place.catalog, place.schema
        whole = Training(self.statement, checker, at)
        whole.refuse_read_only(place)
        self._refuse_taken(place)
        known_views = names_of_views(at.connection)

        def bound_by(each: TrainModel) -> BoundTrain:
            return bind(checker, each, catalog, schema, at.settings, known_views)

        def every_bound(statement: TrainModel) -> tuple[BoundTrain, ...]:
            return bind_several(checker, statement, bound_by)

        runs = []
        with readable(self.statement, checker, at, every_bound, whole.memory_limit) as source:
            for bound in map(source.as_written, every_bound(source.statement)):
                training = Training(bound.statement, checker, at)
                own = training.replacing(catalog, schema)
                directory = until_stored.enter_context(RunDirectory.beside(own.file, checker.outside.refusal))
                runs.append(_Run(training, training.read(bound, own, directory, alone=False), own, directory))
        return runs

    def _stored(self, place: Place, runs: Sequence[_Run], finished: Sequence[Finished]) -> tuple[Trained, ...]:
        """Store the models and what chooses among them in one transaction."""
        at, combination = self.at, self._combination(place)

        def store_all() -> tuple[Trained, ...]:
            self._drop_replaced(combination)
            trained = tuple(run.training.stored(each, run.directory) for run, each in zip(runs, finished, strict=True))
            combined.write(at.connection, combination)
            return trained

        done = at.databases.write(place.catalog, store_all, self.statement.name.span, self.checker)
        for run in runs:
            finish(run.directory, at.databases)
        return done

    def _combination(self, place: Place) -> Combination:
        location = Location(place.catalog, place.schema, self.statement.name.name)
        return Combination(location, tuple(each.value for each in self.learners), render(self.statement))

    def _refuse_taken(self, place: Place) -> None:
        """Raise if the name of a learner's model is taken by anything but a model that is replaced."""
        combination = self._combination(place)
        before = combination_at(self.at.connection, place.catalog, place.schema, self.statement.name.name)
        ours = before.learners if before and self.statement.replace else ()
        for name, member in zip(self.learners, combination.members, strict=True):
            suffixes, macros = views.suffixes_of(name.value), views.macros_of(name.value)
            conflict = objects.exists(
                self.at.connection,
                member.catalog,
                member.schema,
                member.name,
                replace=name.value in ours,
                suffixes=suffixes,
                macros=macros,
            )
            if conflict is not None:
                hint = (
                    f"The model of {name.value} needs the name: rename the other, or choose another name for the model."
                )
                raise ModelExists(conflict.message, text=self.checker.text, span=name.span, hint=hint)

    def _drop_replaced(self, combination: Combination) -> None:
        """Drop what OR REPLACE replaces, but the models of learners that are trained again."""
        con, at = self.at.connection, combination.location
        if not self.statement.replace:
            return
        before = combination_at(con, at.catalog, at.schema, at.name)
        if before is not None:
            combined.drop(con, before, keep=frozenset(combination.learners))
        store.drop(con, at.catalog, at.schema, at.name)

    def _refuse_failures(self, finished: Sequence[Finished]) -> None:
        """Raise TrainingError if a group failed with every learner and the statement says ON GROUP FAILURE ERROR."""
        if self.statement.group_failure != "error":
            return
        failed = [{(group.level, group.keys) for group in each.outcome.found.failed_groups()} for each in finished]
        if lost := set.intersection(*failed):
            every = len(finished[0].outcome.found.groups)
            message = f"{len(lost)} of {every} groups failed with every learner, and nothing was stored"
            hint = "ON GROUP FAILURE KEEP stores the other groups."
            raise TrainingError(message, text=self.checker.text, span=self.statement.name.span, hint=hint)


def _best(statement: TrainModel, trained: Sequence[Trained], at: StatementContext) -> str:
    """Return the query of the best trial of each group, with its learner; failed groups come last."""
    first = trained[0].definition
    *keys, learner, level, status, error, note = columns_beside_keys(
        first, "learner", "model_level", "status", "error", "note"
    )
    keys += [level] if len(first.sets) > 1 else []
    names = [statement.learner.value, *(each.value for each in statement.other_learners)]
    parts: list[str] = []
    columns: dict[str, None] = {}
    hidden = set(map(identifier, (LEVEL, KEYS, JUDGED, FAILED)))
    for place, (name, each) in enumerate(zip(names, trained, strict=True)):
        own = each.definition
        query = best_sql(each, at, of_several=True)
        columns |= dict.fromkeys(column for column, *_ in at.connection.execute(f"DESCRIBE {query}").fetchall())
        parameters = (column.name for column in own.hyperparameters)
        hidden |= set(columns_beside_keys(own, *parameters)[len(own.keys) :])
        parts.append(f"SELECT {place} AS {PLACE}, {literal(name)} AS {LEARNER}, * FROM ({query})")
    shown = [name for name in map(identifier, columns) if name not in hidden and name not in keys]
    shown.sort(key=lambda name: name in (status, error, note))
    ranked = f"QUALIFY row_number() OVER (PARTITION BY {LEVEL}, {KEYS} ORDER BY {FAILED}, {ORDER}) = 1"
    selected = ", ".join([*keys, f"{LEARNER} AS {learner}", *shown])
    ends = ", ".join([FAILED, *keys])
    return f"SELECT {selected} FROM ({' UNION ALL BY NAME '.join(parts)}) {ranked} ORDER BY {ends}"
