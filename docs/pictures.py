"""Draws the pictures of the pages: of the statement that the README opens with, and of the tutorial on forecasts.

python docs/pictures.py writes docs/images; it needs ``pip install 'grouplearn[demo,plot]'``.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

import grouplearn
from grouplearn.frontends.shell.flights import load_flights

DOCS = Path(__file__).parent
#: What if each carrier's flights of 24 December had left from -10 to 60 minutes late? Their mean probability to be late.
ASKED = """
    WITH asked AS (
        SELECT * REPLACE (minutes AS dep_delay) FROM flights, range(-10, 61, 5) AS r(minutes) WHERE month = 12 AND day = 24
    )
    SELECT coalesce(name, carrier), list(minutes ORDER BY minutes), list(p ORDER BY minutes)
    FROM (SELECT carrier, minutes, avg(probability) AS p FROM delays_predict(asked) GROUP BY ALL) JOIN airlines USING (carrier)
    GROUP BY ALL ORDER BY last(p ORDER BY minutes) DESC
"""


def main() -> None:
    """Draw both."""
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "font.size": 9})
    draw_delays()
    draw_forecast()


def draw_delays() -> None:
    """Train the model of the README, ask it, and draw a curve per carrier of what it answers."""
    from matplotlib import pyplot

    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    statement, *_ = re.findall(r"^```sql\n(TRAIN.*?;)", readme, re.MULTILINE | re.DOTALL)
    with grouplearn.connect(progress=None) as con:
        load_flights(con)
        con.execute(statement)
        curves = con.execute(ASKED).fetchall()
    figure, axes = pyplot.subplots(figsize=(7, 3.2), layout="constrained")
    axes.set_prop_cycle(color=pyplot.colormaps["tab20"].colors)
    for name, minutes, probabilities in curves:
        axes.plot(minutes, probabilities, label=name)
    axes.set(xlabel="minutes late at departure", ylabel="probability to arrive late", ylim=(0, 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1.03))
    _save(figure, "delays")


def draw_forecast() -> None:
    """Run the tutorial on forecasts as far as its picture."""
    page = (DOCS / "tutorials" / "forecasting.md").read_text(encoding="utf-8")
    scope: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            exec(compile(block, "forecasting.md", "exec"), scope)  # noqa: S102 - a page of ours
    _save(scope["pictures"][0].figure, "forecast")
    scope["con"].close()


def _save(figure: Figure, name: str) -> None:
    matplotlib.rcParams["svg.hashsalt"] = name
    figure.savefig(DOCS / "images" / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
