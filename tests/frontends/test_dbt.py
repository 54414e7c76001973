"""The dbt plugin in a real dbt project; dbt's own requirements keep it out of our environment, so it has a folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from overlay import overlay

import grouplearn

TRAIN = "USING linear_regression PREDICT units FEATURES (price)"
FILES = {
    "dbt_project.yml": "name: shop\nversion: 1.0.0\nprofile: shop\nmodels:\n  shop:\n    +materialized: table\n",
    "profiles.yml": """
shop:
  target: dev
  outputs:
    dev: {type: duckdb, path: shop.duckdb, threads: 2, plugins: [{module: grouplearn.frontends.dbt}]}
""",
    "models/sales.sql": "SELECT i % 3 AS region, i * 0.5 AS price, i * 1.5 + 1 AS units FROM range(300) AS t(i)",
    "models/demand.sql": f"""
{{{{ config(materialized='trained') }}}}
{TRAIN} FROM {{{{ ref('sales') }}}} GROUP BY region OVER GRID (l2 IN (0, 1))
""",
    "models/forecast.sql": "FROM {{ grouplearn.predict(ref('demand'), ref('sales')) }}",
    "models/hooked.sql": f"""
{{{{ config(post_hook="TRAIN OR REPLACE MODEL {{{{ this.schema }}}}.by_hook {TRAIN} FROM {{{{ this }}}}") }}}}
FROM {{{{ ref('sales') }}}} WHERE region = 1
""",
    "models/by_python.py": f"""
def model(dbt, session):
    dbt.ref("sales")
    session.execute("TRAIN OR REPLACE MODEL by_session {TRAIN} FROM sales GROUP BY region")
    return session.sql("FROM by_session WHERE is_best").df()
""",
    "models/wrong.sql": "{{ config(materialized='trained') }}\nUSING linear_regresion PREDICT units FROM {{ ref('sales') }}",
}
RUN = """
import json, sys
from dbt.cli.main import dbtRunner
arguments = ["--quiet", "--no-send-anonymous-usage-stats"]
assert dbtRunner().invoke([*arguments, "deps"]).success
results = [dbtRunner().invoke([*arguments, "run"]).result for _ in range(2)]
print(json.dumps([{each.node.name: [str(each.status), each.message] for each in result} for result in results]))
"""


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    # dbt-core 1.12 needs a package that is built from a download of its own.
    return overlay("dbt", "dbt-core>=1.8,<1.12", "dbt-duckdb>=1.11", f"duckdb=={duckdb.__version__}")


def test_a_dbt_project_trains(environment: dict[str, str], tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    command = [sys.executable, "-m", "grouplearn.frontends.dbt"]
    (tmp_path / "packages.yml").write_text(subprocess.run(command, check=True, **options).stdout)
    run = subprocess.run([sys.executable, "-c", RUN], **options)
    assert run.returncode == 0, run.stdout + run.stderr
    first, second = json.loads(run.stdout.splitlines()[-1])
    for results in (first, second):
        status, message = results.pop("wrong")
        assert status == "error"
        assert 'unknown learner "linear_regresion"' in message
        assert "^^^^^^^^^^^^^^^^" in message
        assert {status for status, _ in results.values()} == {"success"}, results
    check_tables(tmp_path / "shop.duckdb")


def check_tables(path: Path) -> None:
    with grouplearn.connect(path, progress=None) as con:
        models = {row[0]: row[1] for row in con.execute("SELECT model, trials FROM (SHOW MODELS)").fetchall()}
        assert models == {"demand": 6, "by_hook": 1, "by_session": 3}
        assert con.execute("SELECT count(*), max(abs(units - prediction)) < 1e-9 FROM forecast").fetchall() == [
            (300, True)
        ]
        assert con.execute("SELECT count(*) FROM by_python WHERE status = 'done'").fetchall() == [(3,)]
