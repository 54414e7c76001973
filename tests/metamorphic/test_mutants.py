"""Every rule can fail: for each there is a fault that it finds, put into the code on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from helpers.thorough import some
from hypothesis.errors import UnsatisfiedAssumption
from random_statements import LEARNS, Statement
from random_tables import Table
from rules import RULES, Connection
from test_rules import keeps

from grouplearn.bind import bind
from grouplearn.catalog.lookup import sessions
from grouplearn.data.encoding import types
from grouplearn.exchange import native
from grouplearn.extract import extract, sorted_rows
from grouplearn.models.forms import items as predict_items
from grouplearn.models.forms import layers as predict_layers
from grouplearn.models.forms import linear as predict_linear
from grouplearn.models.forms import routed as predict_sql
from grouplearn.models.forms.trees import trees as tree_form
from grouplearn.models.forms.trees import walks as predict_trees
from grouplearn.models.metrics.metrics import METRICS
from grouplearn.models.metrics.values import VALUES
from grouplearn.models.outputs.number import Number
from grouplearn.prediction import macro as predict_macro
from grouplearn.prediction.rows import row_reader
from grouplearn.store import copying
from grouplearn.store import writer as store
from grouplearn.train import block_sums
from grouplearn.train.results import ledger, outcome
from grouplearn.train.rows import chosen as chosen_rows
from grouplearn.train.rows import prepare

Break = Callable[[pytest.MonkeyPatch], None]
pytestmark = pytest.mark.filterwarnings("ignore")


@dataclass(frozen=True)
class Mutant:
    """A fault, the rule that finds it, and the learners in which it shows."""

    rule: str
    break_it: Break
    learners: tuple[str, ...]


MUTANTS: dict[str, Mutant] = {}


def found_by(rule: str, *learners: str) -> Callable[[Break], Break]:
    def listed(break_it: Break) -> Break:
        MUTANTS[break_it.__name__] = Mutant(rule, break_it, learners or tuple(LEARNS))
        return break_it

    return listed


def wrap(patch: pytest.MonkeyPatch, place: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by ``change(function, *arguments)``."""
    before = getattr(place, name)
    patch.setattr(place, name, lambda *given, **named: change(before, *given, **named))


def swap_labels(rows: sorted_rows.SortedRows) -> None:
    """Give two rows that differ in them each other's label."""
    other = int(np.argmax(rows.y != rows.y[0]))
    rows.y[[0, other]] = rows.y[[other, 0]]


@found_by("a_group_alone_is_as_among_others", "mlp")
def what_a_network_draws_depends_on_the_groups_before_it(patch: pytest.MonkeyPatch) -> None:
    wrap(patch, prepare, "group_seed", lambda before, seed, group: before(seed + group.id, group))


@found_by("workers_do_not_matter")
def rows_depend_on_the_number_of_workers(patch: pytest.MonkeyPatch) -> None:
    def arrange(before: Any, rows: sorted_rows.SortedRows, threads: int = 1) -> None:
        before(rows, threads)
        if threads > 1:
            swap_labels(rows)

    wrap(patch, sorted_rows.SortedRows, "arrange", arrange)


@found_by("operators_do_not_matter", "linear_regression", "poisson_regression")
def sums_are_added_as_they_come(patch: pytest.MonkeyPatch) -> None:
    def merged(before: Any, sums: Any, other: Any, merge: Any) -> Any:
        wrong = before(sums, other, merge)
        return replace(
            wrong, subtrees=tuple(replace(each, sums=merge(each.sums, each.sums)) for each in wrong.subtrees)
        )

    wrap(patch, block_sums.BlockSums, "merged", merged)


@found_by("memory_does_not_matter")
def rows_in_files_are_not_those_in_memory(patch: pytest.MonkeyPatch) -> None:
    def finish(before: Any, rows: sorted_rows.SortedRows, forget: Any = None) -> None:
        before(rows, forget)
        if rows._sorted:
            swap_labels(rows)

    wrap(patch, sorted_rows.SortedRows, "finish", finish)


def seeded(patch: pytest.MonkeyPatch, extra: Callable[[Any], int]) -> None:
    """Let the seed depend on something else of the statement."""

    def bound(before: Any, binder: Any, *given: Any) -> Any:
        found = before(binder, *given)
        penalty = {"l2": 0.1 + 0.1 * (extra(found) % 5)}
        return replace(found, configs=tuple({**config, **penalty} for config in found.configs))

    wrap(patch, bind._Binder, "bind", bound)


@found_by("a_limit_that_is_not_reached_does_not_matter", "logistic_regression", "poisson_regression")
def the_limit_of_epochs_changes_the_objective(patch: pytest.MonkeyPatch) -> None:
    seeded(patch, lambda found: (found.options.training.epochs or 0) // 100)


@found_by("names_do_not_matter", "linear_regression", "logistic_regression", "poisson_regression")
def names_change_the_objective(patch: pytest.MonkeyPatch) -> None:
    seeded(patch, lambda found: sum(len(item.stored.item.name) for item in found.items))


@found_by("the_order_of_rows_does_not_matter")
def rows_are_trained_on_in_the_order_of_the_table(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(extract, "ROW_HASH", "row_number() OVER () + 0 * hash({seed}, {content}) % 1")


@found_by("half_the_weight_twice_is_once", "linear_regression", "poisson_regression")
def weights_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def finish(before: Any, rows: sorted_rows.SortedRows, forget: Any = None) -> None:
        before(rows, forget)
        rows.weight[rows.weight > 0] = 1.0

    wrap(patch, sorted_rows.SortedRows, "finish", finish)


@found_by("equal_values_of_other_types_predict_the_same")
def categories_are_compared_as_text(patch: pytest.MonkeyPatch) -> None:
    for place in (types, row_reader):
        patch.setattr(place, "as_text_of", lambda _: ("CAST((\n", "\n) AS VARCHAR)"))


@found_by("equal_values_of_other_types_train_the_same", "linear_regression", "logistic_regression")
def a_wide_number_is_a_category(patch: pytest.MonkeyPatch) -> None:
    wrap(patch, types, "kind", lambda before, name: "category" if name in ("BIGINT", "HUGEINT") else before(name))


@found_by("macro_and_function_agree", "gbdt")
def a_leaf_in_sql_is_not_that_of_the_text(patch: pytest.MonkeyPatch) -> None:
    def nodes_of(before: Any, forest: Any, columns: Any) -> Any:
        value = forest.value.copy()
        value[0] += 1
        return before(replace(forest, value=value), columns)

    wrap(patch, tree_form, "nodes_of", nodes_of)


@found_by("predictions_keep_the_order_of_rows", "linear_regression", "logistic_regression", "gbdt", "mlp")
def predictions_come_as_the_join_gives_them(patch: pytest.MonkeyPatch) -> None:
    for place in (predict_linear, predict_layers, predict_trees):
        patch.setattr(place, "linked", predict_sql._linked)


@found_by("metrics_are_those_of_the_predictions", "linear_regression", "poisson_regression")
def evaluate_takes_the_mean_of_errors(patch: pytest.MonkeyPatch) -> None:
    wrong = replace(METRICS["rmse"], sql=METRICS["mae"].sql)
    others = tuple(wrong if each.name == "rmse" else each for each in VALUES.metrics)
    patch.setattr(Number, "metrics", replace(VALUES, metrics=others))


@found_by("collations_do_not_matter")
def rows_are_hashed_as_a_collation_reads_them(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(types, "bytewise", lambda name, _: name)


@found_by("predictions_are_of_the_session")
def the_function_predicts_in_a_session_of_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sessions.Sessions, "apply", lambda *_: None)


@found_by("a_copied_database_predicts_the_same")
def models_carry_the_name_of_their_database(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store, "current_database", lambda _: "another")
    patch.setattr(predict_macro, "_has_models", lambda _: "true")


@found_by("exported_and_imported_is_the_same", "linear_regression", "logistic_regression")
def an_export_loses_a_digit(patch: pytest.MonkeyPatch) -> None:
    def read(before: Any, con: Any, model: Any, name: str) -> Any:
        rows = before(con, model, name)
        if name != "trials":
            return rows
        place = rows.column_names.index("epochs")
        return rows.set_column(place, "epochs", pc.add(rows.column("epochs"), 1).cast(rows.column("epochs").type))

    wrap(patch, copying, "read_rows", read)
    patch.setattr(native, "read_rows", copying.read_rows)


@found_by("killed_and_resumed_is_the_same", "gbdt")
def a_ledger_is_read_wrongly(patch: pytest.MonkeyPatch) -> None:
    def init(before: Any, book: Any, directory: Any, **named: Any) -> None:
        before(book, directory, **named)
        book.results = tuple(
            replace(each, trials=replace(each.trials, epochs=each.trials.epochs + 1)) for each in book.results
        )

    wrap(patch, ledger.Ledger, "__init__", init)


@found_by("macro_and_function_agree", "gbdt", "mlp")
def an_array_at_place_zero_takes_what_follows_it(patch: pytest.MonkeyPatch) -> None:
    def form(before: Any, *given: Any) -> Any:
        form = before(*given)
        return form if form[0] == "array" and form[1] else ("", 0)

    wrap(patch, predict_items, "_form", form)


@found_by("a_sample_is_fair")
def equal_rows_are_held_out_together(patch: pytest.MonkeyPatch) -> None:
    def hold_out(before: Any, split: Any, held: Any, leaves: Any, hashes: Any, *given: Any) -> None:
        if held.kind == "sample":
            split[:] = hashes[0] < held.share * 2.0**64

    wrap(patch, extract, "hold_out", hold_out)


@found_by("held_out_rows_do_not_depend_on_features")
def the_split_follows_the_order_of_training(patch: pytest.MonkeyPatch) -> None:
    def hold_out(before: Any, split: Any, held: Any, leaves: Any, hashes: Any, *given: Any) -> None:
        hashes[0][:] = np.arange(hashes[0].size)
        before(split, held, leaves, hashes, *given)

    wrap(patch, extract, "hold_out", hold_out)


@found_by("noise_cannot_be_predicted")
def held_out_rows_train(patch: pytest.MonkeyPatch) -> None:
    def add(before: Any, found: Any, rows: Any, used: Any, held_out: Any) -> None:
        valid = found.n_valid
        before(found, rows, used, held_out)
        held = found.valid[valid : found.n_valid]
        found.train[found.n_train : found.n_train + held.size] = held
        found.n_train += held.size
        found.train[: found.n_train].sort()

    wrap(patch, chosen_rows._Found, "add", add)


@found_by("a_larger_search_is_no_worse", "linear_regression", "logistic_regression")
def the_worst_is_taken_for_the_best(patch: pytest.MonkeyPatch) -> None:
    wrap(patch, outcome, "first_best", lambda before, values, greater: before(values, not greater))


@found_by("a_macro_costs_what_its_rows_cost", "gbdt")
def trees_are_walked_in_sql(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(predict_macro, "_called_or_plain", lambda _, plain: plain)


def test_every_rule_has_a_mutant() -> None:
    assert {mutant.rule for mutant in MUTANTS.values()} == set(RULES)


class Found(BaseException):
    """A rule is broken: no ``Exception``, of which Hypothesis would try the case again to tell of it."""


@pytest.mark.examples(2)
@pytest.mark.parametrize("name", some([*MUTANTS], 8))
def test_mutant_is_found(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    check = RULES[mutant.rule].check

    def told(con: Connection, table: Table, statement: Statement) -> None:
        try:
            check(con, table, statement)
        except UnsatisfiedAssumption:
            raise
        except Exception as error:
            raise Found from error

    mutant.break_it(monkeypatch)
    with pytest.raises(Found):
        keeps(told, mutant.learners, tmp_path, examples=40, shrink=False)
