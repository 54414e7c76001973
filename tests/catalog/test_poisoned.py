"""A catalog may hold anything: every column replaced by hostile values, every statement run, in a process that may die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from helpers.thorough import enough
from poison import DEFINED, cases
from victim import SECRET

import grouplearn

HERE = Path(__file__).parent
#: ``make fuzz`` tries every case, in parts that run side by side; the suite so many of them, the same each time.
EXPLORE = "GROUPLEARN_EXPLORE" in os.environ
PARTS = 32 if EXPLORE else 1
WANTED = enough(10, 3)
SEED = int(os.environ.get("GROUPLEARN_SEED", 7))
#: Seconds for one case, in which a statement that hangs is found.
PATIENCE = 30
MODELS = (
    "TRAIN MODEL linear USING linear_regression PREDICT y FEATURES (zscore(x), onehot(c)) FROM t GROUP BY g, c"
    " OVER GRID (l2 IN (0, 1)) VALIDATE SAMPLE 20% WITH (weight = w)",
    "TRAIN MODEL trees USING gbdt PREDICT label FEATURES (x, ordinal(c)) FROM t GROUP BY ROLLUP (g)"
    " VALIDATE NONE WITH (num_iterations = 3)",
    "TRAIN MODEL network USING mlp PREDICT label FEATURES (impute(x), hash(c, 4)) FROM t VALIDATE NONE"
    " WITH (epochs = 2, hidden_layers = [3])",
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a database in which models of several learners are stored."""
    directory = tmp_path_factory.mktemp("poisoned")
    for name in ("secret", "secret.csv"):
        (directory / name).write_text(SECRET)
    with grouplearn.connect(str(directory / "base.duckdb"), progress=None) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, 'c' || i % 4 AS c, i * 1.5 + 1 AS y, 1 + i % 2 AS w,"
            " ['a', 'b', 'd'][i % 3 + 1] AS label FROM range(240) AS r(i)"
        )
        for statement in MODELS:
            con.execute(statement).fetchall()
        for statement in DEFINED:
            con.execute(placed(statement, directory))
    return directory


def placed(sql: str, directory: Path) -> str:
    return sql.replace("{canary}", str(directory / "canary")).replace("{secret}", str(directory / "secret"))


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_runs_reads_or_writes(directory: Path, part: int) -> None:
    with duckdb.connect(str(directory / "base.duckdb"), read_only=True) as con:
        every = cases(con, SEED)
    chosen = every[part::PARTS] if EXPLORE else every[:WANTED]
    (directory / "cases.json").write_text(json.dumps([(case.name, placed(case.sql, directory)) for case in chosen]))
    limit = PATIENCE * len(chosen)
    command = [sys.executable, str(HERE / "victim.py"), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"GROUPLEARN_SEED={SEED}: died in {lines[-1:]}: {done.stderr[-2000:]}"
    assert len([line for line in lines if line.startswith("CASE")]) == len(chosen)
    case, findings = "", []
    for line in lines:
        case = line if line.startswith("CASE") else case
        if line.startswith("FOUND"):
            findings.append(f"{case}\n  {line}")
    assert not findings, "\n".join([f"GROUPLEARN_SEED={SEED}", *findings])
