"""Runs .slt scripts on a plain ``duckdb.connect()`` with the extension loaded: ``EXTENSION SCRIPT ...``.

It is a program of its own, so that any python with any DuckDB can run it: nothing of grouplearn is imported here. It
prints what differs and exits with 1. Errors are compared without DuckDB's word for their kind ("Binder Error: ").
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import duckdb

#: What errors say differently here, by a part of the statement: no error of ours aborts the user's transaction before it is
#: explained, DuckDB 1 marks a word where DuckDB 2 marks a call, and a letter where it marks a word, that a parameter has no
#: value is said by DuckDB, and so is that a table or setting is not there.
ELSEWHERE = (
    "weight = count(*)",
    "sine(distance)",
    "SHOW MODELS LIKE",
    "city = ?",
    "area * $factor",
    "SHOW MODELZ",
    "RESET CALIBRATON",
    "EVALUATE(1)",
    "DROP TABEL t",
)

#: Whose answers have four digits in the scripts, others six: see tests/slt/test_slt.py.
TRAINS = re.compile(r"\s*(?:TRAIN|CREATE\s+MODEL|RETRY|RESUME|REFRESH)\b", re.IGNORECASE)


def main(extension, *scripts):
    with tempfile.TemporaryDirectory() as folder:  # what scripts export goes there
        os.chdir(folder)
        failed = 0
        for script in scripts:
            failed += run_script(extension, script)
            for exported in Path(folder).iterdir():  # the process of the extension stays in this folder
                exported.unlink() if exported.is_file() else shutil.rmtree(exported)
        os.chdir("/")
    return 1 if failed else 0


def run_script(extension, script):
    """Run the records of a script; return how many differ."""
    failed = 0
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{extension}'")
    for number, record in enumerate(re.split(r"^====\n", Path(script).read_text(), flags=re.MULTILINE), 1):
        lines = record.strip("\n").split("\n")
        while lines and lines[0].startswith("#"):
            lines.pop(0)
        if not lines or not lines[0]:
            continue
        sql, _, expected = "\n".join(lines[1:]).partition("\n----")
        if lines[0] == "error" and any(part in sql for part in ELSEWHERE):
            continue
        seen = run(connection, lines[0], sql)
        if not same(seen, expected.strip("\n")):
            failed += 1
            print(f"{script}, record {number}: {sql}\n--- expected\n{expected.strip()}\n--- seen\n{seen}\n")
    connection.close()
    return failed


def run(connection, head, sql):
    try:
        rows = connection.execute(sql).fetchall()
    except duckdb.Error as error:
        return str(error)
    digits = 4 if TRAINS.match(sql) else 6
    lines = ["\t".join(show(value, digits) for value in row) for row in rows]
    return "" if head == "statement" else "\n".join(sorted(lines) if head == "query sorted" else lines)


def show(value, digits):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):  # the residuals of an exact fit
        return "0" if abs(value) < 1e-13 else f"{value:.{digits}g}"
    return str(value)


def without_kind(text):
    text = re.sub(r"^\w+( \w+)? Error: ", "", text.rstrip())
    return text.removeprefix("Python exception occurred while executing the UDF: DataError: ")


def same(seen, expected):
    pattern = ".*".join(re.escape(part) for part in without_kind(expected).split("<ignore>"))
    return re.fullmatch(pattern, without_kind(seen)) is not None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
