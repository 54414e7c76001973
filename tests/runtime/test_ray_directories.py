"""Where Ray's processes stand, and where they look for modules: never in the user's current directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.runtime_jobs import job

from grouplearn.failures import TrainingFailed
from grouplearn.runtime.ray.job_rows import JobRows
from grouplearn.runtime.ray.learner_code import LearnerCode
from grouplearn.runtime.ray.worker import WorkerSetup

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

#: Modules that Ray, or what a worker trains with, would import.
RAYS = ("psutil", "uvloop", "setproctitle", "yaml", "aiohttp", "filelock")
PLANTED = (*RAYS, "scipy", "threadpoolctl", "ray", "grouplearn", "random")
PLANT = "import os\nopen({marks!r}, 'a').write(f'{{os.getpid()}} {{__name__}}\\n')\nraise ImportError(__name__)\n"
#: A run of rows beside a database whose path is relative; what is printed: this process, and where Ray's stand.
TRAIN = """
import os
import sys
import grouplearn
from grouplearn.runtime.ray.supervised.processes import of_session
from grouplearn.runtime.ray.supervised.supervisor import CHILDREN
with grouplearn.connect("shop.duckdb", progress=False) as con:
    con.execute("CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, i * 1.5 AS y FROM range(300) AS r(i)")
    found = con.execute(
        "TRAIN MODEL m USING gbdt PREDICT y FEATURES (x) FROM t GROUP BY g "
        "WITH (executor = 'ray', workers = 2, num_iterations = 2, durable = true)"
    ).fetchall()
    assert all("done" in row for row in found), found
    processes = [process for session in CHILDREN.sessions for process in of_session(session)]
    print(os.getpid(), len(processes), *{os.readlink(f"/proc/{each}/cwd") for each in processes}, sep="\\n")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that somebody else has filled, where the user stands."""
    found = tmp_path / "place"
    found.mkdir()
    for name in PLANTED:
        (found / f"{name}.py").write_text(PLANT.format(marks=str(tmp_path / "marks")))
    return found


def run(place: Path, *command: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *command], cwd=place, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.thorough
def test_modules_of_the_current_directory_are_not_run(place: Path, tmp_path: Path) -> None:
    script = tmp_path / "elsewhere" / "train.py"
    script.parent.mkdir()
    script.write_text(TRAIN)
    _, processes, *places = run(place, str(script))
    assert int(processes) > 4
    assert str(place) not in places
    assert not (tmp_path / "marks").exists(), (tmp_path / "marks").read_text()


@pytest.mark.thorough
def test_a_prompt_whose_own_path_has_the_current_directory_does_not_hand_it_over(place: Path, tmp_path: Path) -> None:
    for name in set(PLANTED) - set(RAYS):  # what this process imports itself
        (place / f"{name}.py").unlink()
    own, _, *places = run(place, "-c", f"import sys; assert sys.path[0] == ''\n{TRAIN}")
    assert str(place) not in places
    marks = (tmp_path / "marks").read_text().splitlines() if (tmp_path / "marks").exists() else []
    assert {line.split()[0] for line in marks} <= {own}


NETWORK = """
import {helper}
from torch import nn
def dense(problem, config):
    return nn.Sequential(nn.Linear(problem.n_features, {helper}.WIDTH), nn.Linear({helper}.WIDTH, problem.n_outputs))
"""
PROMPT = """
import grouplearn
with grouplearn.connect(progress=False) as con:
    con.execute("CREATE TABLE t AS SELECT i % 2 AS g, i * 0.01 AS x, i * 0.02 AS y FROM range(80) AS r(i)")
    for name, network in NETWORKS.items():
        grouplearn.register(name, network)
        found = con.execute(
            f"TRAIN MODEL {name} USING {name} PREDICT y FEATURES (x) FROM t GROUP BY g"
            " WITH (executor = 'ray', workers = 1, epochs = 1)"
        ).fetchall()
        assert all("done" in row for row in found), found
"""


@pytest.mark.thorough
def test_networks_of_a_prompt_bring_what_they_imported_from_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").touch()
    for name, helper in (("by_module", "helper"), ("by_package", "parts.sizes")):
        (tmp_path / f"{helper.replace('.', '/')}.py").write_text("WIDTH = 3\n")
        (tmp_path / f"{name}.py").write_text(NETWORK.format(helper=helper))
    given = "import by_module, by_package\nNETWORKS = {'by_module': by_module.dense, 'by_package': by_package.dense}\n"
    run(tmp_path, "-c", given + PROMPT)


def test_a_network_whose_modules_are_not_found_is_told_of_as_such() -> None:
    a_job = job("mlp", ({},), groups=1, rows=4)
    setup = WorkerSetup(a_job, LearnerCode(b"cno_such_module\nWIDTH\n."), JobRows(None, True), None, 0.0)
    with pytest.raises(
        TrainingFailed, match=r"^other processes cannot import .* mlp needs: No module named 'no_such_module'"
    ):
        setup.taken_on()


def test_modules_beside_a_script_are_found_from_wherever_it_is_run(tmp_path: Path) -> None:
    own, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    own.mkdir()
    elsewhere.mkdir()
    (own / "late.py").write_text("WIDTH = 3\n")
    late = "def dense(problem, config):\n    import late\n    from torch import nn\n"
    late += "    return nn.Sequential(nn.Linear(problem.n_features, late.WIDTH), nn.Linear(late.WIDTH, problem.n_outputs))\n"
    (own / "train.py").write_text(f"{late}NETWORKS = {{'dense': dense}}\n{PROMPT}")
    run(elsewhere, str(own / "train.py"))


def test_a_process_that_was_there_before_looks_where_the_user_looks_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "written_later.py").write_text("WIDTH = 7\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    code = b"cwritten_later\nWIDTH\n."
    with pytest.raises(ImportError):
        LearnerCode(code).loaded()
    for _ in range(2):
        assert LearnerCode(code, (str(tmp_path),)).loaded() == 7  # type: ignore[comparison-overlap]
    assert sys.path.count(str(tmp_path)) == 1
    monkeypatch.delitem(sys.modules, "written_later")
