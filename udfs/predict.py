"""``predict('model', row)``: the prediction of any model for a row given as a struct, vectorised over Arrow."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from grouplearn.catalog.prediction import predictor_for, predictor_of_token
from grouplearn.catalog.scoring import PREDICTION


def grouplearn_predict(tokens: Any, transactions: Any, models: Any, rows: Any) -> Any:
    """Return the predictions for a chunk: which connection asks, in which transaction, for which model, for which rows.

    A NULL model or a NULL row gives NULL.
    """
    models, rows = (_array(column) for column in (models, rows))
    return predictor_of_token(tokens[0].as_py()).predict_each(transactions[0].as_py(), models, rows)


def _array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make ``predict`` known to the connection."""
    token = predictor_for(connection).token
    try:
        connection.create_function(
            "grouplearn_predict",
            grouplearn_predict,
            None,
            PREDICTION,
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )
    except (duckdb.CatalogException, duckdb.NotImplementedException) as error:
        # Functions belong to the database instance: another connection to it, or this one, was here before.
        if "already" not in str(error):
            raise
    # Temporary macros belong to the connection, so this is how the function learns who asks.
    connection.execute(
        "CREATE OR REPLACE TEMP MACRO predict(model, features) AS"
        f" grouplearn_predict('{token}', current_transaction_id(), model, features)"
    )
