"""An operator with an option of its own touches one room: a file in ``schedule`` and its entry there.

The package is seen through links, with these two instead of its own, by child processes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import grouplearn

PACKAGE = Path(grouplearn.__file__).parent

PATIENT = '''
"""Group task parallelism that says what its option was."""

import glob
import os
import sys

from grouplearn.schedule.options import Contradiction, OperatorOption, whole
from grouplearn.schedule.task_parallel import GroupTaskParallel

PATIENCE = OperatorOption("patience", "nothing but a number", whole(1, 9), 3)


def contradiction(given, learner):
    if given.get("patience", 3) == 8 and learner.access.visits:
        return Contradiction("patience", f"nobody waits 8 for {learner.declaration.name}", "Wait less.")
    if given.get("patience", 3) == 9 and given.get("workers") == 1:
        return Contradiction("workers", "one worker has not the patience", "Add workers = 2.")
    return None


class Patient(GroupTaskParallel):
    name = "patient"

    def __init__(self, units, workload):
        super().__init__(units)
        print("patience", workload.options[PATIENCE.name])

    def on(self, event):
        kept = glob.glob(f"{sys.argv[1]}.grouplearn/*/manifest")  # a simulation comes before
        if "IMPATIENT" in os.environ and type(event).__name__ == "UnitDone" and kept:
            os._exit(9)
        return super().on(event)
'''

CHILD = """
import sys
import grouplearn
con = grouplearn.connect(sys.argv[1])
for statement in sys.argv[2:]:
    try:
        print(*con.execute(statement).fetchall(), sep="\\n")
    except grouplearn.Error as error:
        print(type(error).__name__, error)
"""

TRAIN = """TRAIN MODEL m USING logistic_regression FEATURES (x) PREDICT c FROM t GROUP BY g
  WITH (executor = 'local', durable = true, {})"""
TABLE = "CREATE TABLE t AS SELECT i % 6 AS g, i * 7 % 11 AS x, i % 5 < 2 AS c FROM range(600) AS r(i)"
DIGEST = "SELECT g, feature, weight FROM m_weights ORDER BY ALL"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the package with the operator."""
    folder = tmp_path_factory.mktemp("package")
    linked(PACKAGE, folder / "grouplearn", apart="schedule")
    linked(PACKAGE / "schedule", folder / "grouplearn" / "schedule", apart="operators.py")
    (folder / "grouplearn/schedule/patient.py").write_text(PATIENT)
    registry = (PACKAGE / "schedule/operators.py").read_text()
    own = "        Gap.name: OperatorDeclaration("
    entry = "        Patient.name: OperatorDeclaration(Patient, whole=True, options=(PATIENCE,), contradiction=contradiction),\n"
    after = "from grouplearn.schedule.options import"
    named = "from grouplearn.schedule.patient import PATIENCE, Patient, contradiction\n"
    assert (registry.count(own), registry.count(after)) == (1, 1)
    changed = registry.replace(own, entry + own).replace(after, named + after)
    (folder / "grouplearn/schedule/operators.py").write_text(changed)
    return folder


def linked(source: Path, target: Path, apart: str) -> None:
    target.mkdir()
    for each in source.iterdir():
        if each.name not in (apart, "__pycache__"):
            (target / each.name).symlink_to(each.resolve())


def said(package: Path, database: Path, *statements: str, **environment: str) -> tuple[str, int]:
    """Return what a process of its own prints of the statements, and how it ends."""
    variables = {**os.environ, **environment, "PYTHONPATH": str(package)}
    command = [sys.executable, "-c", CHILD, str(database), *statements]
    found = subprocess.run(command, env=variables, cwd=package, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in found.stderr, found.stderr
    return found.stdout, found.returncode


def test_the_option_of_a_new_operator(package: Path, tmp_path: Path) -> None:
    trained = TRAIN.format("operator = 'patient', patience = 2")
    words, ended = said(
        package,
        tmp_path / "plain.db",
        TABLE,
        TRAIN.format("operator = 'patient', patience = 10"),
        TRAIN.format("patience = 2"),
        f"EXPLAIN {TRAIN.format('workers = 2')}",
        f"EXPLAIN {trained}",
        f"EXPLAIN (FORMAT json) {trained}",
        trained,
        "SELECT DISTINCT operator FROM grouplearn.models",
        DIGEST,
    )
    assert ended == 0
    assert "patience must be a whole number of at most 9, got 10" in words
    assert words.split("got 10")[1].split("\n")[3].strip() == "^^"
    assert (
        "patience is an option of operator patient, and this statement is run by the operator that is fastest" in words
    )
    assert "Add operator = 'patient'." in words
    assert "patience 3\n" in words, "simulated beside others, at its default"
    assert "patience 2\n" in words
    assert "Run: patient (patience = 2), local" in words
    assert '"operator_options": {\\n    "patience": 2\\n  }' in words
    assert "('patient',)\n" in words
    usual, _ = said(package, tmp_path / "usual.db", TABLE, TRAIN.format("operator = 'group_task_parallel'"), DIGEST)
    assert words.split("('patient',)\n")[1] == usual[usual.index("(0, '(intercept)'") :]


def test_what_a_new_operator_refuses(package: Path, tmp_path: Path) -> None:
    """Its options with those of others, from WITH and from SET, and with a learner."""
    alone = TRAIN.format("operator = 'patient', patience = 9, workers = 1")
    words, _ = said(
        package,
        tmp_path / "refused.db",
        TABLE,
        alone,
        "SET grouplearn_workers = 1",
        alone.replace(", workers = 1", ""),
        TRAIN.format("operator = 'patient', patience = 8").replace("logistic_regression", "mlp"),
        TRAIN.format("operator = 'patient', patience = 2, patience = 3"),
        "SET grouplearn_patience = 2",
    )
    lone, by_setting, visiting, twice, setting = re.split("(?:Bind|Parse)Error ", words)[1:]
    assert marked(lone) == ("one worker has not the patience", "workers")
    assert marked(by_setting) == ("one worker has not the patience", "operator")
    assert marked(visiting) == ("nobody waits 8 for mlp", "patience")
    assert marked(twice) == ('the option "patience" is given twice', "patience")
    assert setting.startswith('unknown setting "grouplearn_patience"')


def marked(error: str) -> tuple[str, str]:
    """Return an error's first line, and what of the statement the carets are under."""
    lines = error.split("\n")
    number = next(number for number, line in enumerate(lines) if line.startswith("LINE "))
    start, end = lines[number + 1].index("^"), len(lines[number + 1])
    return lines[0], lines[number][start:end]


@pytest.mark.thorough
def test_a_resumed_run_has_the_option_of_a_new_operator(package: Path, tmp_path: Path) -> None:
    text = TRAIN.format("operator = 'patient', patience = 2, workers = 1")
    _, ended = said(package, tmp_path / "resumed.db", TABLE, text, IMPATIENT="")
    assert ended == 9
    words, ended = said(
        package, tmp_path / "resumed.db", "RESUME MODEL m", "SELECT count(*) FROM m WHERE status = 'done'"
    )
    assert (ended, words.split("\n")[0], words.split("\n")[-2]) == (0, "patience 2", "(6,)")
