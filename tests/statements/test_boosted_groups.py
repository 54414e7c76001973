"""A statement whose groups are boosted in one call stores what it stores where each group trains alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.thorough import THOROUGH

import grouplearn
from grouplearn.plan import packing

pytest.importorskip("lightgbm")

#: Small groups with missing values, a weight, a category, NULL labels, a group of one row and one of one class.
TABLE = """
CREATE TABLE t AS
SELECT i % 23 AS g, if(i % 11 = 3, NULL, sin(i * 1.1)) AS a, cos(i * 2.3)::FLOAT AS b, chr(97 + (i * i % 5)::INT) AS c,
    if(i % 41 = 7, NULL, a + b * 2 + sin(i * 7.7)) AS y, chr(if(i % 23 = 4, 98, floor(99 + 1.5 * b + sin(i * 3.3))::INT)) AS k,
    1 + i % 3 AS w, i % 5 = 0 AS held_out
FROM range(900) r(i)
UNION ALL SELECT 99, 1, 2, 'a', 3, 'b', 1, false
"""
STATEMENTS = {
    "numbers": "PREDICT y FEATURES (a, b, ordinal(c)) FROM t GROUP BY g",
    "classes": "PREDICT k FEATURES (a, b, onehot(c)) FROM t GROUP BY g VALIDATE SAMPLE 30% OPTIMIZE auc WITH (weight = w)",
    "two classes": "PREDICT k > 'c' AS k FEATURES (a, b) FROM t GROUP BY g WITH (class_weight = 'balanced')",
    "configurations": "PREDICT y FEATURES (a, b) FROM t GROUP BY g OVER GRID (num_leaves IN (3, 31), max_bin IN (8, 255)) "
    "VALIDATE WHERE held_out KEEP BEST 2",
    "folds": "PREDICT k FEATURES (a, b) FROM t GROUP BY g OVER GRID (num_leaves IN (3, 31)) VALIDATE FOLDS 3 OPTIMIZE f1",
    "refitted": "PREDICT y FEATURES (a, b) FROM t GROUP BY g OVER GRID (num_iterations IN (2, 5)) VALIDATE WHERE held_out REFIT",
}
#: What is stored, but for the time that it took and where units ran.
STORED = {
    "groups": "* EXCLUDE (model)",
    "trials": "* EXCLUDE (model, seconds)",
    "curves": "* EXCLUDE (model)",
    "artifacts": "* EXCLUDE (model)",
    "trees": "* EXCLUDE (model, roots), len(roots) AS trees",
    "errors": "* EXCLUDE (model)",
}


def stored(learner: str, rest: str, database: Path | str = ":memory:") -> dict[str, list[Any]]:
    with grouplearn.connect(str(database), progress=False) as con:
        con.execute(TABLE)
        iterations = "" if "num_iterations" in rest else "num_iterations = 4"
        options = rest.partition(" WITH (")[2].removesuffix(")")
        every = ", ".join(each for each in (options, iterations, "min_data_in_leaf = 3") if each)
        con.execute(f"TRAIN MODEL m USING {learner} {rest.partition(' WITH (')[0]} WITH ({every})")
        return {
            name: con.execute(f"SELECT {columns} FROM grouplearn.{name} ORDER BY ALL").fetchall()
            for name, columns in STORED.items()
        }


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("name", "learner"),
    [
        (name, learner)
        for at, name in enumerate(STATEMENTS)
        for number, learner in enumerate(("gbdt", "random_forest"))
        if THOROUGH or number == at % 2
    ],
)
def test_what_is_stored_is_the_same(name: str, learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = stored(learner, STATEMENTS[name])
    monkeypatch.setattr(packing, "MOST_BOOSTED_VALUES", 0)
    alone = stored(learner, STATEMENTS[name])
    assert len(together["artifacts"]) > 20
    for table, rows in alone.items():
        assert repr(together[table]) == repr(rows), table
