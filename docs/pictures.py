"""Draws the picture of the README: the statement that the README opens with, one curve per carrier.

python docs/pictures.py writes docs/images/delays.svg; it needs ``pip install 'grouplearn[demo,plot]'``.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

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
    """Train the model, ask it, and draw what it answers."""
    matplotlib.use("svg")
    from matplotlib import pyplot

    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    statement, *_ = re.findall(r"^```sql\n(TRAIN.*?;)", readme, re.MULTILINE | re.DOTALL)
    with grouplearn.connect(progress=None) as con:
        load_flights(con)
        con.execute(statement)
        curves = con.execute(ASKED).fetchall()
    matplotlib.rcParams.update({"svg.hashsalt": "delays", "svg.fonttype": "none", "font.size": 9})
    figure, axes = pyplot.subplots(figsize=(7, 3.2), layout="constrained")
    axes.set_prop_cycle(color=pyplot.colormaps["tab20"].colors)
    for name, minutes, probabilities in curves:
        axes.plot(minutes, probabilities, label=name)
    axes.set(xlabel="minutes late at departure", ylabel="probability to arrive late", ylim=(0, 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1.03))
    figure.savefig(DOCS / "images" / "delays.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
