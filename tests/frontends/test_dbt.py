"""The dbt plugin in a real dbt project; dbt's own requirements keep it out of our environment, so it has a folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from helpers.overlay import overlay

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
    "models/nightly.sql": f"""
{{{{ config(materialized='trained', refresh='ON WORSE KEEP') }}}}
{TRAIN} FROM {{{{ ref('sales') }}}} GROUP BY region
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
import json, pathlib, sys
from dbt.cli.main import dbtRunner
arguments = ["--quiet", "--no-send-anonymous-usage-stats"]
assert dbtRunner().invoke([*arguments, "deps"]).success
results = []
for files in ({}, json.loads(sys.argv[1])):
    for name, text in files.items():
        pathlib.Path(name).write_text(text)
    results.append(dbtRunner().invoke([*arguments, "run"]).result)
print(json.dumps([{each.node.name: [str(each.status), each.message] for each in result} for result in results]))
"""


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    # dbt-core 1.12 needs a package that is built from a download of its own.
    return overlay("dbt", "dbt-core>=1.8,<1.12", "dbt-duckdb>=1.11", f"duckdb=={duckdb.__version__}")


def test_a_dbt_project_trains(environment: dict[str, str], tmp_path: Path) -> None:
    for results in run(environment, tmp_path, FILES, {}):
        status, message = results.pop("wrong")
        assert status == "error"
        assert 'unknown learner "linear_regresion"' in message
        assert "^^^^^^^^^^^^^^^^" in message
        assert {status for status, _ in results.values()} == {"success"}, results
    check_tables(tmp_path / "shop.duckdb")


@pytest.mark.thorough
def test_what_had_the_name_stays_where_training_fails(environment: dict[str, str], tmp_path: Path) -> None:
    good = FILES["models/demand.sql"]
    bad = good.replace("PREDICT units", "PREDICT nothere")
    hooked = good.replace("materialized='trained'", "materialized='trained', post_hook='SELECT nothere'")
    table, view = "SELECT 42 AS only_copy", "{{ config(materialized='view') }} SELECT 43 AS only_copy"
    project = {name: FILES[name] for name in ("dbt_project.yml", "profiles.yml", "models/sales.sql")}
    places = ("table", "view", "hooked", "trained")
    before = {f"models/was_{place}.sql": text for place, text in zip(places, (table, view, table, good), strict=True)}
    failing = {f"models/was_{place}.sql": text for place, text in zip(places, (bad, bad, hooked, bad), strict=True)}
    _, failed = run(environment, tmp_path, {**project, **before}, failing)
    assert {name: status for name, (status, _) in failed.items()} == {
        "sales": "success",
        **{f"was_{place}": "error" for place in places},
    }
    with grouplearn.connect(tmp_path / "shop.duckdb", progress=None) as con:
        assert [con.execute(f"FROM was_{place}").fetchall() for place in places[:3]] == [[(42,)], [(43,)], [(42,)]]
        assert con.execute("SELECT model, trials FROM (SHOW MODELS)").fetchall() == [("was_trained", 6)]
        assert con.execute("SELECT count(*) FROM was_trained_predict(sales)").fetchall() == [(300,)]
    without = project["profiles.yml"].replace("threads: 2", "threads: 2, disable_transactions: true")
    trained = dict.fromkeys(failing, good)
    refused, done = run(environment, tmp_path, {**project, **trained, "profiles.yml": without}, project)
    assert "with disable_transactions a TRAIN that fails would lose it" in refused["was_table"][1]
    assert refused["was_trained"][0] == "success"
    assert {status for status, _ in done.values()} == {"success"}, done
    with grouplearn.connect(tmp_path / "shop.duckdb", progress=None) as con:
        assert con.execute("SELECT count(*) FROM (SHOW MODELS)").fetchall() == [(4,)]


def run(
    environment: dict[str, str], folder: Path, files: dict[str, str], later: dict[str, str]
) -> list[dict[str, list[str]]]:
    """Run a project of these files, and again with what ``later`` has of them; status and message of each model."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    options: dict[str, Any] = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    command = [sys.executable, "-m", "grouplearn.frontends.dbt"]
    (folder / "packages.yml").write_text(subprocess.run(command, check=True, **options).stdout)
    ran = subprocess.run([sys.executable, "-c", RUN, json.dumps(later)], **options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results: list[dict[str, list[str]]] = json.loads(ran.stdout.splitlines()[-1])
    return results


def check_tables(path: Path) -> None:
    with grouplearn.connect(path, progress=None) as con:
        models = {row[0]: row[1] for row in con.execute("SELECT model, trials FROM (SHOW MODELS)").fetchall()}
        assert models == {"demand": 6, "nightly": 3, "by_hook": 1, "by_session": 3}
        versions = (
            "SELECT model_name, count(*) FROM grouplearn.history WHERE model_name IN ('demand', 'nightly') GROUP BY ALL"
        )
        # Each run trains one anew, and refreshes the other, whose rows are the same.
        assert sorted(con.execute(versions).fetchall()) == [("demand", 2), ("nightly", 1)]
        assert con.execute("SELECT count(*), max(abs(units - prediction)) < 1e-9 FROM forecast").fetchall() == [
            (300, True)
        ]
        assert con.execute("SELECT count(*) FROM by_python WHERE status = 'done'").fetchall() == [(3,)]
