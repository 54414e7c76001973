"""The macros of models on a connection of ours as they are where nothing of ours is installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any


@contextmanager
def in_plain_sql(con: Any) -> Iterator[None]:
    """In the block the macros of trees do not find our function, and predict in SQL alone."""
    duckdb = con.native  # to our connection it would be a macro of the user's
    duckdb.execute("DROP MACRO temp.main.grouplearn_predictions")
    try:
        yield
    finally:
        con.native.execute(resources.files("grouplearn.udfs").joinpath("predict.sql").read_text(encoding="utf-8"))
