"""What kernels compute has the same bits on every processor: models, metrics and predictions, whatever the libraries choose.

Each case trains the same models in a process of its own that is told it has another processor, and prints what they are.
"""

import os
import subprocess
import sys

import pytest
from helpers.kernel_builds import compiled
from helpers.thorough import THOROUGH

from grouplearn.kernels.build import builds

#: Groups of 45, 30, 20 and 5 rows that train together, and one of 2,500 that trains block by block.
SCRIPT = """
import hashlib
import sys
from pathlib import Path
import grouplearn
from grouplearn.kernels.build import compiling
from grouplearn.plan import physical

physical.BLOCK_ROWS = 2048
build, library, own = *sys.argv[1:], compiling.path_of
compiling.path_of = lambda name: Path(library) if name == build else own(name)
con = grouplearn.connect(progress=False)
con.execute("SET enable_progress_bar = false")  # DuckDB draws one under python -c where a query takes seconds
con.execute('''
    CREATE TABLE t AS
    SELECT CASE WHEN i < 100 THEN (i % 20 > 8)::INT + (i % 20 > 14)::INT + (i % 20 > 18)::INT ELSE 4 END AS g,
           i * 7919 % 1009 / 97 AS x, i * 104729 % 1013 / 89 - 4 AS z, ['a', 'b', 'c'][i * 31 % 3 + 1] AS c,
           [i * 17 % 5, i * 31 % 7, i * 17 % 5][1 : i % 4 + 1] AS l,
           (i * 613 % 11 + i * 7919 % 1009 / 97) / 3 AS y, i * 613 % 5 AS n, i * 613 % 7 < 3 AS b
    FROM range(2600) AS r(i)''')
VIEWS = {"net": "curves", "clusters": "centroids", "components": "components"}
for name, rows in {
    "ridge": "USING linear_regression PREDICT y FEATURES (x, z, onehot(c)) {} OVER GRID (l2 IN (0, 0.5, 20)) VALIDATE FOLDS 3",
    "lasso": "USING linear_regression PREDICT y FEATURES (x, z, onehot(c)) {} OVER GRID (l1 IN (0.1, 4), l2 IN (0, 1))",
    "categories": "USING linear_regression PREDICT y FEATURES (onehot((x * 97)::INT % 530), onehot((z * 89)::INT % 40), z) {}"
        " OVER GRID (l2 IN (0, 1))",
    "codes": "USING logistic_regression PREDICT b FEATURES (onehot(c), onehot((x * 97)::INT % 40)) {}"
        " WITH (solver = 'coordinate_descent', l2 = 1)",
    "logistic": "USING logistic_regression PREDICT b FEATURES (zscore(x), z) {} OVER GRID (l1 IN (0, 1.5), l2 IN (0.1, 3))",
    "softmax": "USING logistic_regression PREDICT c FEATURES (x, z) {} OVER GRID (l2 IN (0.1, 3))",
    "svm": "USING linear_svm PREDICT c FEATURES (x, z) {} OVER GRID (l1 IN (0, 1.5), l2 IN (0.1, 3))",
    "hinge": "USING linear_svm PREDICT c FEATURES (x, z) {} OVER GRID (loss IN ('hinge'), l1 IN (0, 1.5), l2 IN (0.1, 3))",
    "poisson": "USING poisson_regression PREDICT n FEATURES (x, z) {} OVER GRID (l2 IN (0.1, 3))",
    "cells": "USING linear_regression PREDICT y FEATURES (x, onehot(c), multihot(l)) {} OVER GRID (l1 IN (0, 4), l2 IN (0.1, 1))"
        " WITH (solver = 'coordinate_descent')",
    "descent": "USING logistic_regression PREDICT c FEATURES (z, hash(l, 3)) {} OVER GRID (l1 IN (0, 1.5), l2 IN (1, 3))"
        " WITH (solver = 'coordinate_descent')",
    "chosen": "USING logistic_regression PREDICT b FEATURES (z, onehot(c), multihot(l)) {} OVER GRID (l1 IN (0, 1), l2 IN (0, 1))"
        " WITH (solver = 'coordinate_descent', selection = 'greedy', epochs = 6)",
    "steps": "USING poisson_regression PREDICT n FEATURES (zscore(x, z), multihot(l)) {} OVER GRID (l1 IN (0, 1), l2 IN (1, 3))"
        " WITH (solver = 'sgd', epochs = 3)",
    "means": "USING logistic_regression PREDICT b FEATURES (zscore(x, z), hash(l, 3)) {} OVER GRID (l2 IN (1, 3))"
        " WITH (solver = 'sgd', epochs = 3, operator = 'averaging', partitions = 2)",
    "clusters": "USING kmeans FEATURES (zscore(x, z), onehot(c)) {} OVER GRID (k IN (2, 3))",
    "components": "USING pca FEATURES (x, z, onehot(c)) {} OVER GRID (n_components IN (1, 2))",
    "net": "USING mlp PREDICT b FEATURES (zscore(x, z)) {} OVER GRID (learning_rate IN (0.01, 0.001)) WITH (epochs = 2)",
}.items():
    where = "FROM (FROM t WHERE g < 4) GROUP BY g" if name == "net" else "FROM t GROUP BY g"
    con.execute(f"TRAIN MODEL {name} " + rows.format(where)).fetchall()
    said = hashlib.sha256()
    for query in (
        f"SELECT * EXCLUDE (seconds) FROM {name} ORDER BY ALL",
        f"SELECT predict('{name}', t) FROM t WHERE rowid % 17 = 0 ORDER BY rowid",
        f"FROM {name}_{VIEWS.get(name, 'weights')} ORDER BY ALL",
    ):
        said.update(repr(con.execute(query).fetchall()).encode())
    print(name, said.hexdigest())
"""
PLAIN: dict[str, str] = {}
OTHERS = [build for build in builds.available() if build != builds.name()] or [builds.name()]
NEHALEM = {
    "OPENBLAS_CORETYPE": "Nehalem",
    "ATEN_CPU_CAPABILITY": "default",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4",
}


def models(build: str, settings: dict[str, str]) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in (*NEHALEM, builds.VARIABLE)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, build, str(compiled()[build])],
        env={**kept, **settings, builds.VARIABLE: build},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def here() -> str:
    return models(builds.name(), PLAIN)


@pytest.mark.parametrize("build", OTHERS if THOROUGH else OTHERS[-1:])
def test_neither_builds_nor_libraries_that_choose_for_another_processor_change_a_bit(here: str, build: str) -> None:
    """Libraries choose otherwise beside the build that is least like this one: a process less."""
    assert models(build, NEHALEM if build == OTHERS[-1] else PLAIN) == here
