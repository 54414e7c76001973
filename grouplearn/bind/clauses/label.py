"""PREDICT bound: the label and whether it has classes, by its type or because its values are 0 and 1; and errors about it."""

from __future__ import annotations

from dataclasses import dataclass

from grouplearn.bind import arrays
from grouplearn.bind.bound import BoundTarget
from grouplearn.bind.clauses.number_texts import cast_of_numbers
from grouplearn.bind.clauses.search import searched
from grouplearn.bind.sql.checker import Column, SqlChecker
from grouplearn.bind.sql.expressions import Replay
from grouplearn.bind.sql.rowwise import refuse_aggregates
from grouplearn.data.encoding import types
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import HasObjectives
from grouplearn.models.label import LABELS_OF_TASK, NUMBER
from grouplearn.models.metrics.metrics import family_of
from grouplearn.parser.statements import Sql, TrainModel

#: Texts of a label that are looked at for numbers.
_TEXTS = 100


@dataclass(frozen=True)
class LabelBinder:
    """Binds the label of a statement over ``source``, its FROM and WHERE.

    ``task`` is what WITH says about the label; ``implied``: whether the objectives given are for classes. None: not
    given. ``weight`` is the weight of a row.
    """

    checker: SqlChecker
    statement: TrainModel
    learner: Learner
    source: tuple[str | Sql, ...]
    replayer: Replay
    task: str | None
    implied: bool | None
    weight: Sql | None

    def bind(self) -> BoundTarget | None:
        """Return the label, None if the learner has none; raises BindError for a label that it cannot learn."""
        if not self.learner.declaration.has_label:
            self._refuse_label()
            return None
        if self.statement.target is None:
            message = f"{self.learner.declaration.name} needs a label, and the statement has no PREDICT clause"
            raise self.checker.error(message, self.statement.learner.span, "Add PREDICT <expression> [AS name].")
        expression, alias = self.statement.target.expression, self.statement.target.alias
        described = self.checker.describe("SELECT", expression, *self.source)
        if len(described) != 1:
            raise self.checker.error(
                f"PREDICT takes one expression, this gives {len(described)} columns", expression.span
            )
        column = described[0]
        name, stored = alias.value if alias else column.name, self.replayer.stored(expression)
        array = arrays.array_type(column.type)
        if array and self.learner.declaration.predicts_arrays:
            classes = arrays.names_classes(
                self.checker, array, expression, self.learner.declaration.labels, self._classified()
            )
            return BoundTarget(name, expression, stored, column.type, classes, array)
        classification = self._is_classification(column, expression)
        return BoundTarget(name, expression, stored, column.type, classification)

    def _is_classification(self, column: Column, expression: Sql) -> bool:
        classifies = self.learner.declaration.classifies
        regresses = self.learner.declaration.regresses
        if types.is_classless(column.type):
            message = f"a label of type {column.type} cannot be predicted"
            untyped = "It is NULL in every row: predict something else." if types.is_untyped(column.type) else None
            raise self.checker.error(
                message, expression.span, untyped or types.about(expression.text.strip(), types.advice(column.type))
            )
        classified = self._classified()
        if classified is not None:
            if not (classifies if classified else regresses):
                raise self.checker.error(
                    f"{self.learner.declaration.name} does no {self.task}", self.statement.learner.span
                )
            classification = classified
        elif self.implied is not None and not types.is_class_label(column.type):
            # There may be as many fractions as rows: only the statement can say that they are classes.
            classification = self.implied and not types.has_fractions(column.type)
        else:
            is_open = classifies and regresses and not types.is_class_label(column.type)
            classification = self._is_zero_or_one(column, expression) if is_open else classifies
        if self.learner.declaration.takes_series and column.type == "BOOLEAN":
            message = f"a forecast is of a number, and the label has type {column.type}"
            hint = (
                f"PREDICT ({expression.text})::INTEGER forecasts 1 for true; ORDER BY left out, classifiers predict it."
            )
            raise self.checker.error(message, expression.span, hint)
        if not classification and types.kind(column.type) != "numeric":
            message = f"{self.learner.declaration.name} predicts numbers, and the label has type {column.type}"
            hint = "Use logistic_regression, gbdt or mlp for classes."
            if not types.is_class_label(column.type):
                hint = "Use logistic_regression for classes, or gbdt or mlp WITH (task = 'classification')."
            if classifies:
                hint = f"PREDICT ({expression.text})::VARCHAR takes its values for classes."
                if types.is_time(column.type):
                    hint = f"{hint[:-1]}; epoch(...) of a time is a number."
            cast = self._cast_of_numbers(expression) if column.type == "VARCHAR" else None
            hint = f"Its texts are numbers: PREDICT {cast}." if cast else hint
            raise self.checker.error(message, expression.span, hint)
        return classification

    def _cast_of_numbers(self, expression: Sql) -> str | None:
        """Return SQL that makes numbers of a label of texts; None unless nearly all of some of them are numbers."""
        found = self.checker.rows("SELECT DISTINCT (", expression, ") AS y", *self.source, f" LIMIT {_TEXTS}")
        return cast_of_numbers(expression.text.strip(), [text for (text,) in found if text is not None])

    def _is_zero_or_one(self, column: Column, expression: Sql) -> bool:
        """Return whether a label of whole numbers is 0 and 1 alone, in the rows that have a weight.

        Objectives that are searched, unless all are for classes, or a metric of numbers say that the label is a number.
        """
        statement, weight = self.statement, self.weight
        names = {name.value.casefold() for name in searched(statement.search)} if statement.search else set[str]()
        of_numbers = family_of(NUMBER).names()
        objective = self.learner.objective_name if isinstance(self.learner, HasObjectives) else None
        number = statement.metric is not None and statement.metric.value.casefold() in of_numbers
        if not types.is_whole(column.type) or objective in names or number:
            return False
        if "(" in expression.text:
            refuse_aggregates(self.checker, self.source, [expression])
        weighs = (", CAST((", weight, ") AS DOUBLE) IS DISTINCT FROM 0 AS weighs") if weight else (", true AS weighs",)
        rows = ("SELECT 1 FROM (SELECT (", expression, ") AS y", *weighs, *self.source, ") WHERE weighs AND y")
        # Each query ends at the first row that it finds.
        others, zero, one = (f"{these} LIMIT 1" for these in ("NOT IN (0, 1)", "= 0", "= 1"))
        found = self.checker.rows
        return not found(*rows, others) and bool(found(*rows, zero)) and bool(found(*rows, one))

    def _classified(self) -> bool | None:
        """Return whether WITH says that the label has classes; None if it does not say."""
        return None if self.task is None else any(each.has_classes for each in LABELS_OF_TASK[self.task])

    def _refuse_label(self) -> None:
        """Raise for a label, or an option about labels, given to a learner without one."""
        statement, told = (
            self.statement,
            f"{self.learner.declaration.name} has no label: it learns from the features alone",
        )
        if statement.target is not None:
            raise self.checker.error(told, statement.target.expression.span, "Leave PREDICT out.")
        if statement.null_label is not None:
            raise self.checker.error(told, statement.learner.span, "Leave ON NULL LABEL out.")
        for option in statement.options:
            if option.name.value.casefold() in ("task", "class_weight", "positive_class"):
                raise self.checker.error(told, option.name.span, f"Leave {option.name.value} out.")
