"""The options of a run: every name of WITH and SET has its place in one of the parts."""

from __future__ import annotations

from dataclasses import fields

from grouplearn.bind.run.options import RUN_OPTIONS
from grouplearn.bind.run.run_options import RunOptions

#: What the session itself looks at, and what clauses of the statement say.
SESSION, CLAUSES = {"trust"}, {"enclosed", "within"}


def test_every_option_is_in_one_part() -> None:
    parts = [getattr(RunOptions(), part.name) for part in fields(RunOptions) if part.name != "of_operators"]
    names = [*(field.name for part in parts for field in fields(part)), *RunOptions().of_operators]
    assert sorted(names) == sorted(RUN_OPTIONS.keys() - SESSION | CLAUSES)


def test_what_is_given_is_changed_and_the_rest_stays() -> None:
    options = RunOptions.of({"epochs": 3, "sync": 2, "trust": True}).changed({"sync": "epoch", "replicas": 4})
    assert options.training.epochs == 3
    assert (options.of_operators["sync"], options.of_operators["replicas"], options.repeated) == ("epoch", 4, None)
    assert options.changed({"replicas": 1, "epochs": None}) == RunOptions()
