"""The extension in the stock shell: other statements are not slowed, many TRAINs leak nothing, threads do not disturb each other.

``python benchmarks/stock_shell.py [--trains 1000] [--threads 4] [--each 300]``: minutes. Needs the package duckdb-cli.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb

from grouplearn.frontends.native import launch
from grouplearn.frontends.native.build import build

TABLE = "CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i);"
TRAIN = "TRAIN OR REPLACE MODEL {name} USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g VALIDATE NONE;"


def resident(pid: int | str) -> float:
    """Return the memory of a process in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def worker_of(pid: int) -> int:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and "native.worker" in (folder / "cmdline").read_text():
                return int(folder.name)
        except OSError:
            continue
    raise SystemExit("no process of grouplearn's")


def memory(pid: int, name: str) -> str:
    return f"{name} {resident(pid):7.1f} MB, process of ours {resident(worker_of(pid)):7.1f} MB"


def is_shown(number: int, trains: int) -> bool:
    return number in (1, 10) or number % max(1, trains // 10) == 0


def others(repeats: int = 7, statements: int = 3_000) -> None:
    """Print the time of small statements with the extension over that without, alternating in one run."""
    plain = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    loaded = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    loaded.execute(f"LOAD '{build(duckdb.__version__)}'")
    texts = {"SELECT 1": statements, f"SELECT {', '.join(f'{n} AS column_{n}' for n in range(500))}": statements // 50}
    for text, count in texts.items():
        seconds: dict[int, list[float]] = {0: [], 1: []}
        for _ in range(repeats):
            for which, connection in enumerate((plain, loaded)):
                started = time.process_time()
                for _ in range(count):
                    connection.execute(text)
                seconds[which].append(time.process_time() - started)
        ratio = statistics.median(seconds[1]) / statistics.median(seconds[0])
        each = statistics.median(seconds[0]) / count * 1e6
        print(f"{text[:24]:26} {each:8.1f} us without, x {ratio:.3f} with the extension")


def one_shell(trains: int, database: str) -> None:
    """Print the memory of one shell and of its process of ours while it trains many models into a file.

    (A database in memory keeps the room of deleted rows, whoever deletes them.)
    """
    shell = launch.find_shell()
    if shell is None:
        raise SystemExit("there is no duckdb here: pip install duckdb-cli")
    build(launch.version_of(shell))
    start = "import sys; from grouplearn.frontends.shell.shell import main; sys.exit(main())"
    child = subprocess.Popen(
        [sys.executable, "-c", start, "duckdb", "-csv", "-noheader", database],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def say(sql: str) -> None:
        child.stdin.write(sql + f"\nSELECT 'done {len(sql)}';\n")
        child.stdin.flush()
        while not child.stdout.readline().startswith("done"):
            pass

    say(TABLE)
    started = time.monotonic()
    for number in range(1, trains + 1):
        say(TRAIN.format(name="m"))
        if is_shown(number, trains):
            seconds = (time.monotonic() - started) / number
            print(f"{number:6} TRAINs in one shell: {memory(child.pid, 'shell')}, {seconds:.3f} s each", flush=True)
    child.stdin.close()
    print("exit status", child.wait())


def with_parameters(trains: int, database: str) -> None:
    """Print the memory of a Python process that trains with parameters, which is done when the statement is planned."""
    with duckdb.connect(database, config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{build(duckdb.__version__)}'")
        connection.execute(TABLE)
        text = TRAIN.format(name="m").replace("FROM t", "FROM t WHERE x >= $1")
        for number in range(1, trains + 1):
            assert len(connection.execute(text, [number % 3]).fetchall()) == 3
            if is_shown(number, trains):
                print(f"{number:6} TRAINs with $1: {memory(os.getpid(), 'Python')}", flush=True)


def many_threads(threads: int, each: int) -> None:
    """Print the memory of a Python process whose threads train on cursors of one plain connection."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{build(duckdb.__version__)}'")
    connection.execute(TABLE)
    failed: list[str] = []

    def work(number: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ATTACH ':memory:' AS d{number}")
            for _ in range(each):
                try:
                    rows = cursor.execute(TRAIN.format(name=f"d{number}.main.m")).fetchall()
                    assert [row[1] for row in rows] == [100, 100, 100]
                except Exception as error:
                    failed.append(str(error))

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    started = time.monotonic()
    for thread in running:
        thread.start()
    while any(thread.is_alive() for thread in running):
        time.sleep(max(2.0, each / 20))
        print(f"{time.monotonic() - started:6.0f} s: {memory(os.getpid(), 'Python')}", flush=True)
    print(f"{threads} threads x {each} TRAINs in {time.monotonic() - started:.0f} s, {len(failed)} failed", *failed[:3])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trains", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--each", type=int, default=300)
    options = parser.parse_args()
    others()
    with tempfile.TemporaryDirectory() as folder:
        one_shell(options.trains, f"{folder}/a.duckdb")
        with_parameters(options.trains, f"{folder}/b.duckdb")
    many_threads(options.threads, options.each)
