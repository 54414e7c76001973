"""Each group's models predict what scikit-learn and LightGBM predict that were trained on the group's rows alone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from outcomes import classes_of, predictions, trials
from random_statements import Statement, cases
from random_tables import Table, create
from references import encoded, fitted
from rules import of_group
from trying import trying, wanted

import grouplearn

TOLERANCE = {"linear_regression": 1e-6, "logistic_regression": 1e-5, "poisson_regression": 1e-5, "gbdt": 1e-6}
EXACTLY = "l2 IN (2), tolerance IN (1e-14)"
GRIDS = {"linear_regression": "l2 IN (2)", "logistic_regression": EXACTLY, "poisson_regression": EXACTLY}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.examples(2)
@pytest.mark.parametrize("learner", TOLERANCE)
def test_each_group_is_what_a_reference_makes_of_it(learner: str, tmp_path: Path) -> None:
    @trying(wanted(5))
    @given(case=cases((learner,), arrays=False))
    def check(case: tuple[Table, Statement]) -> None:
        table, statement = case
        assume(table.label != "three classes" and statement.has_optimum)
        assume(not any(encoder in text for text in statement.features for encoder in ("hash(", "multihot(")))
        statement = replace(statement, grouping="g", validate="WHERE h" if statement.weighted else "NONE")
        if learner in GRIDS:
            statement = replace(statement, grid=EXACTLY if statement.solver else GRIDS[learner])
        else:
            # LightGBM has a bin of its own for 0, and a value that is the mean is 0 but for rounding, of either sign.
            unscaled = tuple(re.sub(r"zscore\((.+)\)", r"\1", text) for text in statement.features)
            statement = replace(statement, grid=statement.grid or "num_leaves IN (4)", features=unscaled)
        with grouplearn.connect(progress=False) as con:
            create(con, table)
            con.execute(statement.train())
            compare(con, table, statement)

    check()


def compare(con: grouplearn.Connection, table: Table, statement: Statement) -> None:
    guessed, classes = predictions(con), classes_of(con)
    for (_, keys, config), trial in trials(con).items():
        if trial.status == "failed" or not trial.is_best:
            continue
        rows = encoded(con, table, statement, of_group(keys[0]))
        ours = np.array(
            [guessed[row].shares.get(classes[-1], np.nan) if classes else guessed[row].value for row in rows.ids], float
        )
        parameters = parameters_of(con, config) | {"classes": bool(classes)}
        expected = fitted(rows, statement.learner, parameters)
        scale = np.maximum(1, np.abs(expected))
        assert np.all(np.abs(ours - expected) <= TOLERANCE[statement.learner] * scale), (keys, ours, expected)


def parameters_of(con: grouplearn.Connection, config: int) -> dict[str, float]:
    ((found,),) = con.execute(f"SELECT parameters FROM grouplearn.configs WHERE config = {config}").fetchall()
    return {name: float(text) for name, text in found.items() if re.fullmatch(r"[\d.e+-]+", text or "")} | {
        name: int(text) for name, text in found.items() if name == "num_leaves"
    }
