"""marimo: SQL cells on a connection and on an engine of ours, and a server of its own whose cells are interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import websockets
from helpers.promptness import STOPS_WITHIN_SECONDS

TABLE = "CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i)"
TRAIN = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g OVER GRID (l2 IN (0, 1))"


NOTEBOOK = f"""
import marimo

app = marimo.App()

@app.cell
def _():
    import marimo as mo
    import pandas as pd
    import sqlalchemy
    import grouplearn
    con = grouplearn.connect(progress=None)
    engine = sqlalchemy.create_engine("grouplearn:///:memory:")
    return con, engine, mo, pd

@app.cell
def _(con, engine, mo):
    _ = mo.sql("{TABLE}", engine=con)
    _ = mo.sql("{TABLE}", engine=engine)
    ready = True
    return (ready,)

@app.cell
def _(con, engine, mo, ready):
    best = mo.sql(f\"\"\"
        {TRAIN}
    \"\"\", engine=con)
    by_engine = mo.sql(f\"\"\"
        {TRAIN}
    \"\"\", engine=engine)
    return best, by_engine

@app.cell
def _(pd):
    frame = pd.DataFrame({{"g": [0, 2], "x": [1.0, 5.0]}})
    return (frame,)

@app.cell
def _(best, con, frame, mo):
    predicted = mo.sql("FROM m_predict(frame) ORDER BY g", engine=con)
    return (predicted,)

@app.cell
def _(con, mo, ready):
    try:
        mo.sql("TRAIN MODEL x USING linear_regresion PREDICT y FROM t", engine=con)
    except Exception as error:
        message = str(error)
    return (message,)
"""
RUN = """
import notebook
from marimo._sql.get_engines import get_engines_from_variables
_, made = notebook.app.run()
print([type(engine).__name__ for _, engine in get_engines_from_variables([("con", made["con"]), ("e", made["engine"])])])
print(made["best"].select("g", "l2", "status").rows())
print(made["by_engine"].select("g", "l2", "status").rows())
print([round(value, 6) for value in made["predicted"]["prediction"]])
print(made["message"])
"""


def test_marimo_cells_train_and_see_data_frames(tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text(NOTEBOOK, encoding="utf-8")
    run = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    engines, best, by_engine, predicted, *message = run.stdout.splitlines()
    assert engines == "['DBAPIEngine', 'SQLAlchemyEngine']"
    assert best == by_engine == "[(0, 0.0, 'done'), (1, 0.0, 'done'), (2, 0.0, 'done')]"
    assert predicted == "[4.0, 16.0]"
    assert message[0] == 'unknown learner "linear_regresion"'
    assert "                       ^^^^^^^^^^^^^^^^" in "\n".join(message)


INTERACTIVE = f"""
import marimo

app = marimo.App()

@app.cell
def setup():
    import marimo as mo
    import grouplearn
    con = grouplearn.connect()
    _ = con.execute("{TABLE}")
    return con, mo

@app.cell
def endless(con, mo):
    _ = mo.sql(f"TRAIN MODEL slow USING mlp PREDICT y FROM t WITH (epochs = 10000000, executor = 'local')", engine=con)
    return

@app.cell
def goes_on(con, mo):
    _ = mo.sql(f"{TRAIN}", engine=con)
    con.model("m")
    return

@app.cell
def left_behind(con):
    str(con.execute("SELECT count(*) FROM duckdb_views() WHERE view_name LIKE 'slow%'").fetchall())
    return
"""


class Browser:
    """As much of marimo's page as it takes to run cells and to interrupt them."""

    def __init__(self, port: int, page: Any) -> None:
        self._url, self._page = f"http://127.0.0.1:{port}/api/kernel", page
        self._cells: dict[str, tuple[str, str]] = {}
        self.status: dict[str, str] = {}
        self.shown: dict[str, Any] = {}

    def post(self, what: str, body: Any) -> None:
        headers = {"Content-Type": "application/json", "Marimo-Session-Id": "page"}
        request = urllib.request.Request(f"{self._url}/{what}", json.dumps(body).encode(), headers)
        urllib.request.urlopen(request).read()

    def run(self, name: str) -> None:
        number, code = self._cells[name]
        self.post("run", {"cellIds": [number], "codes": [code]})

    async def output_of(self, name: str) -> Any:
        self.run(name)
        for status in ("running", "idle"):
            await self.read_until(lambda status=status: self.status.get(name) == status)
        return self.shown[name]["data"]

    async def read_until(self, reached: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not reached():
                self._take(json.loads(await self._page.recv()))

    async def open(self) -> None:
        await self.read_until(lambda: self._cells)
        self.post("instantiate", {"objectIds": [], "values": [], "autoRun": False})

    def _take(self, message: Any) -> None:
        data = message.get("data", message)
        if message["op"] == "kernel-ready":
            known = zip(data["names"], data["cell_ids"], data["codes"], strict=True)
            self._cells = {name: (number, code) for name, number, code in known}
        elif message["op"] == "cell-op":
            name = next(name for name, (number, _) in self._cells.items() if number == data["cell_id"])
            self.status[name] = data.get("status") or self.status.get(name, "")
            if data.get("output"):
                self.shown[name] = data["output"]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A marimo server of a notebook, on a port that was free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    (tmp_path / "notebook.py").write_text(INTERACTIVE, encoding="utf-8")
    options = ["--headless", "--no-token", "--no-skew-protection", "--skip-update-check", "--port", str(port)]
    command = [str(Path(sys.executable).parent / "marimo"), "edit", *options, "notebook.py"]
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        yield port
    finally:
        server.terminate()
        server.wait(20)


def wait_for(port: int) -> None:
    ends = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health").read()
            return
        assert time.monotonic() < ends
        time.sleep(0.1)


@pytest.mark.thorough
def test_interrupting_a_cell_stops_train_and_the_session_goes_on(port: int) -> None:
    wait_for(port)

    async def use() -> None:
        url = f"ws://127.0.0.1:{port}/ws?session_id=page&file=notebook.py"
        async with websockets.connect(url, max_size=None) as page:
            browser = Browser(port, page)
            await browser.open()
            browser.run("endless")  # and what it needs
            await browser.read_until(lambda: browser.status.get("endless") == "running")
            await asyncio.sleep(2)
            sent = time.monotonic()
            browser.post("interrupt", {})
            await browser.read_until(lambda: browser.status["endless"] == "idle")
            assert time.monotonic() - sent < STOPS_WITHIN_SECONDS
            assert browser.shown["endless"]["data"] == [{"type": "interruption"}]
            assert (await browser.output_of("goes_on")).startswith('<div class="grouplearn-table">')
            assert "[(0,)]" in await browser.output_of("left_behind")

    asyncio.run(use())
