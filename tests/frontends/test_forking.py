"""fork() while another thread imports: the child imports the same modules, and does not wait for that thread."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="this system does not fork")

#: A child that hangs is ended by SIGALRM, and its status is not 0.
FORKS = """
import os, signal, sys, threading, time
import grouplearn
{work}
thread = threading.Thread(target=work)
thread.start()
while {module!r} not in sys.modules:
    time.sleep(0.001)
child = os.fork()
if child == 0:
    signal.alarm(30)
    work()
    os._exit(0)
thread.join()
print(os.waitpid(child, 0)[1])
"""
IMPORTS = """
def work():
    import slow
"""
TRAINS = """
def work():
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i % 5 AS g, i % 11 AS x, i AS y FROM range(500) AS r(i)")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g").fetchall()
"""


@pytest.mark.parametrize(
    ("work", "module"),
    [
        (IMPORTS, "slow"),
        pytest.param(TRAINS, "grouplearn.frontends.python.dbapi", marks=pytest.mark.thorough),
        (TRAINS, "grouplearn.statements.handlers"),
    ],
    ids=["a module", "a connection", "TRAIN"],
)
def test_a_child_of_a_process_that_imports_does_not_hang(tmp_path: Path, work: str, module: str) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.5)\n")
    code = FORKS.format(work=work, module=module)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
