"""What the author of a model wrote, in a script that a program cuts into statements by its own rules."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import grouplearn

#: Expressions of one number more or less, in which a program may see the end of a statement and a command after it.
EXPRESSIONS = {
    "comment in a comment": "x + 0 * /* /* */ ;\n.shell touch {mark}\n*/ 1",
    "escaped quote": "x + 0 * length(E'\\' ;\n.shell touch {mark}\n')",
    "dollars": "x + 0 * length($$ ' ;\n.shell touch {mark}\n$$)",
    "comment to the end of a line": "x -- ' \n + 0 * length(';\n.shell touch {mark}\n')",
    "brackets": "x + 0 * length(['] ;\n.shell touch {mark}\n'][1])",
    "type": "x + 0 * (CAST(0 AS DOUBLE /* /* */ ;\n.shell touch {mark}\n*/))",
}


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        yield connection


def train(con: grouplearn.Connection, feature: str, key: str = "g") -> None:
    con.execute("CREATE TABLE few AS SELECT i % 7 AS x, i % 7 * 2 + i % 3 AS y, i % 2 AS g FROM range(200) AS r(i)")
    con.execute(
        f"TRAIN MODEL scripted USING linear_regression PREDICT y FEATURES ({feature} AS f) FROM few GROUP BY {key} AS k"
    )


@pytest.mark.parametrize("place", ["feature", "key"])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_no_line_of_an_author_is_a_command_of_the_shell(
    con: grouplearn.Connection, tmp_path: Path, name: str, place: str
) -> None:
    shell = shutil.which("duckdb") or pytest.skip("there is no duckdb command here (pip install duckdb-cli)")
    mark, out = tmp_path / "mark", tmp_path / "out"
    expression = EXPRESSIONS[name].format(mark=mark)
    train(con, expression if place == "feature" else "x", f"({expression})" if place == "key" else "g")
    predicted = con.execute("SELECT prediction FROM scripted_predict(few) ORDER BY ALL").fetchall()
    con.execute(f"EXPORT MODEL scripted TO '{out}' (FORMAT sql)").fetchall()
    script = (out / "model.sql").read_text()
    table = "CREATE TABLE few AS SELECT i % 7 AS x, i % 2 AS g FROM range(200) AS r(i);\n"
    ask = ".mode list\n.headers off\nSELECT prediction FROM scripted_predict(few) ORDER BY ALL;\n"
    done = subprocess.run([shell], input=script + table + ask, capture_output=True, text=True, timeout=60)
    assert not mark.exists()
    assert [float(line) for line in done.stdout.split()] == [value for (value,) in predicted], done.stderr


def test_a_text_with_a_control_character_is_refused(con: grouplearn.Connection, tmp_path: Path) -> None:
    train(con, "x + length('\r')")
    with pytest.raises(grouplearn.Error, match=r'feature "f" cannot be written into a script, for it has a control'):
        con.execute(f"EXPORT MODEL scripted TO '{tmp_path}/out' (FORMAT sql)")
    assert not (tmp_path / "out").exists()


def test_a_script_of_expressions_that_need_trust_needs_it(tmp_path: Path) -> None:
    other = tmp_path / "other.duckdb"
    (tmp_path / "file.txt").write_text("text")
    with grouplearn.connect(other) as con:
        train(con, f"x + (SELECT count(*) FROM read_text('{tmp_path}/file.txt'))")
        con.execute(f"EXPORT MODEL scripted TO '{tmp_path}/trained_here' (FORMAT sql)")
        con.execute(f"EXPORT MODEL scripted TO '{tmp_path}/native'")
    script = [
        "import grouplearn",
        f"con = grouplearn.connect({str(other)!r})",
        "try:",
        f"    con.execute(\"EXPORT MODEL scripted TO '{tmp_path}/refused' (FORMAT sql)\")",
        "except grouplearn.NotTrusted as error:",
        "    print(error)",
        "con.execute('SET grouplearn_trust = true')",
        f"con.execute(\"EXPORT MODEL scripted TO '{tmp_path}/trusted' (FORMAT sql)\")",
    ]

    done = subprocess.run([sys.executable, "-c", "\n".join(script)], capture_output=True, text=True, check=True)
    assert 'feature "f" of model "scripted" calls read_text' in done.stdout
    assert not (tmp_path / "refused").exists()
    assert (tmp_path / "trusted" / "model.sql").exists()
