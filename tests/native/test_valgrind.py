"""The shell under valgrind: no invalid access, no use of unset memory and no leak that has a frame of ours in its stack.

``GROUPLEARN_VALGRIND=1 pytest -s tests/native/test_valgrind.py`` (minutes; needs valgrind, ``apt install valgrind``) prints what
was found in the shell that the test group installs, with ``GROUPLEARN_CLI_VERSIONS=all`` in every one, and in this Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from native_builds import TABLE, TRAIN, built

from grouplearn.frontends.native import launch
from grouplearn.sqltext import string

pytestmark = [
    pytest.mark.skipif(os.environ.get("GROUPLEARN_VALGRIND") != "1", reason="GROUPLEARN_VALGRIND=1 runs it"),
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind here"),
]
EXTENSION = "grouplearn.duckdb_extension"


def session(ours) -> str:
    """What is typed: each kind of statement, each way it can end, and predictions over several chunks."""
    return "\n".join(
        [
            TABLE,
            TRAIN,
            f"EXPLAIN {TRAIN}",
            f"EXPLAIN ANALYZE {TRAIN}",
            "SELECT count(predict_value('m', t)), count(predict('m', t)) FROM t;",
            "CREATE TABLE many AS SELECT i % 3 AS g, i * 0.5 AS x, 'text' || i AS s, [i] AS l FROM range(9000) r(i);",
            "SELECT sum(predict_value('m', many)) FROM many;",
            "SELECT sum(prediction) FROM m_predict(many);",
            "SELECT predict_value('nothing', t) FROM t;",
            f"BEGIN; {TRAIN.replace('MODEL m', 'MODEL n')} ROLLBACK;",
            f"BEGIN; {TRAIN.replace('MODEL m', 'MODEL n')} DROP MODEL n; COMMIT;",
            TRAIN,
            TRAIN.replace("linear_regression", "linear_regresion").replace("MODEL m", "MODEL n"),
            TRAIN.replace("PREDICT y", "PREDICT nothing").replace("MODEL m", "MODEL n"),
            "TRAIN MODEL n USIN x;",
            "SELEC 1; TRAIN MODEL n;",
            "CREATE TABLE n_weights (a INTEGER);",
            TRAIN.replace("MODEL m", "MODEL n"),
            ours("SHOW MODELS;"),
            "DESCRIBE MODEL m; EVALUATE MODEL m ON t; DROP MODEL m;",
            "SELECT 'still here' AS s;",
        ]
    )


def examine(
    command: list[str], report: Path, **options
) -> tuple[subprocess.CompletedProcess[str], list[str], Counter[str]]:
    """Run a command under valgrind; return what became of it, the errors with a frame of ours, and how many have none."""
    valgrind = [
        *("valgrind", "--xml=yes", f"--xml-file={report}", "--leak-check=full", "--show-leak-kinds=definite,indirect"),
        *(
            "--errors-for-leak-kinds=definite,indirect",
            "--num-callers=40",
            "--keep-debuginfo=yes",
            "--trace-children=no",
        ),
    ]
    done = subprocess.run([*valgrind, *command], capture_output=True, text=True, timeout=1500, check=False, **options)
    ours: list[str] = []
    others: Counter[str] = Counter()
    for error in ElementTree.parse(report).getroot().iter("error"):
        kind = error.findtext("kind", "")
        if any(EXTENSION in (place.text or "") for place in error.iter("obj")):
            ours.append(ElementTree.tostring(error, encoding="unicode"))
        else:
            others[kind] += 1
    return done, ours, others


def test_the_shell(shell, ours, tmp_path):
    extension = built(launch.version_of(shell))
    command = [shell, "-unsigned", "-csv", "-cmd", f"LOAD {string(str(extension))}"]
    done, found, others = examine(command, tmp_path / "report.xml", input=session(ours))
    print(f"\n{launch.version_of(shell)}: {len(found)} errors of ours; of others: {dict(others) or 'none'}")
    assert done.stdout.rstrip().endswith("still here"), done.stdout + done.stderr
    assert found == []


PARAMETERS = """
import duckdb, sys
with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
    connection.execute(f"LOAD '{sys.argv[1]}'")
    connection.execute(sys.argv[2])
    for least in range(3):
        text = sys.argv[3].replace("TRAIN", "TRAIN OR REPLACE").replace("FROM t", "FROM t WHERE x >= $1 AND 'text' = $2")
        assert len(connection.execute(text, [least, "text"]).fetchall()) == 3
    try:
        connection.execute(text, [1, [2]])
    except duckdb.Error as error:
        print("still here")
"""


def test_parameters_in_python(tmp_path):
    extension = built(duckdb.__version__)
    command = [sys.executable, "-c", PARAMETERS, str(extension), TABLE, TRAIN]
    environment = {**os.environ, "PYTHONMALLOC": "malloc"}
    done, found, others = examine(command, tmp_path / "report.xml", env=environment)
    print(f"\nPython {duckdb.__version__}: {len(found)} errors of ours; of others: {dict(others) or 'none'}")
    assert done.stdout.rstrip().endswith("still here"), done.stdout + done.stderr
    assert found == []
