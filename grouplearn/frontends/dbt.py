"""A dbt-duckdb plugin: models, hooks and operations of a dbt project can TRAIN.

In ``profiles.yml``, beside ``type: duckdb``::

    plugins:
      - module: grouplearn.frontends.dbt

From then on everything that dbt runs on its connection may be a statement of ours: a hook
(``post_hook="TRAIN OR REPLACE MODEL delays ... FROM {{ this }}"``), a Python model (``session.execute("TRAIN ...")``), an
operation. For a model that *is* a model, name the package in ``packages.yml`` (``python -m grouplearn.frontends.dbt`` prints
these lines, and ``dbt deps`` reads them)::

    packages:
      - local: .../grouplearn/frontends/dbt_package

and write in ``models/delays.sql``::

    {{ config(materialized='trained') }}
    USING logistic_regression PREDICT late FEATURES (zscore(distance)) FROM {{ ref('flights') }} GROUP BY carrier

which trains ``delays`` anew; others read it with ``ref('delays')``, or predict with
``FROM {{ grouplearn.predict(ref('delays'), ref('flights')) }}``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from grouplearn.catalog.schema import ensure_schema
from grouplearn.errors import not_installed
from grouplearn.frontends.python.dbapi import wrap

try:
    from dbt.adapters.duckdb.environments import RetryableCursor, local
    from dbt.adapters.duckdb.plugins import BasePlugin
except ImportError as error:
    raise not_installed("the plugin", "dbt-duckdb", "dbt") from error

PACKAGE = Path(__file__).parent / "dbt_package"
_DuckDBCursor = local.DuckDBCursorWrapper


class TrainingCursor(_DuckDBCursor):  # type: ignore[misc,valid-type]  # dbt is not looked into
    """dbt-duckdb's cursor over a connection of ours."""

    def __init__(self, cursor: Any) -> None:
        if isinstance(cursor, RetryableCursor):
            cursor._cursor = wrap(cursor._cursor, progress=None)
        else:
            cursor = wrap(cursor, progress=None)
        super().__init__(cursor)


class Plugin(BasePlugin):  # type: ignore[misc]  # dbt is not looked into
    """Makes every cursor of dbt's local environment one of ours.

    dbt-duckdb lets plugins configure its cursors, not make them, so the cursor class itself is replaced: for the whole
    process, which has one environment.
    """

    def initialize(self, plugin_config: dict[str, Any]) -> None:  # noqa: ARG002  (dbt's signature)
        """Replace the cursor class; there are no options."""
        local.DuckDBCursorWrapper = TrainingCursor

    def configure_connection(self, conn: duckdb.DuckDBPyConnection) -> None:
        """Create the catalog tables first, as models train side by side, each in its own transaction."""
        ensure_schema(conn)


if __name__ == "__main__":
    print(f"packages:\n  - local: {PACKAGE}")
