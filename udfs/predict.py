"""``predict('model', row)``: the prediction of any model for a row given as a struct, vectorised over Arrow."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from grouplearn.catalog.prediction import predictor_for, predictor_of_token
from grouplearn.catalog.scoring import PREDICTION
from grouplearn.errors import DataError


def grouplearn_predict(tokens: Any, transactions: Any, models: Any, rows: Any) -> Any:
    """Return the predictions for a chunk: which connection asks, in which transaction, for which model, for which rows.

    A NULL model or a NULL row gives NULL.
    """
    models, rows = (_array(column) for column in (models, rows))
    if not (pa.types.is_struct(rows.type) or pa.types.is_null(rows.type)):
        raise DataError("predict takes a row, that is a struct of columns: predict('model', t) ... FROM t")
    coded = models.dictionary_encode()
    wanted = np.asarray(coded.indices.fill_null(-1)).copy()
    wanted[np.asarray(rows.is_null())] = -1
    predictor, transaction = predictor_of_token(tokens[0].as_py()), transactions[0].as_py()
    parts, places = [], []
    for number in np.unique(wanted[wanted >= 0]):
        at = np.flatnonzero(wanted == number)
        parts.append(predictor.predict(transaction, coded.dictionary[int(number)].as_py(), rows.take(pa.array(at))))
        places.append(at)
    if not parts:
        return pa.nulls(len(rows), _ARROW_TYPE)
    position = np.full(len(rows), -1)
    position[np.concatenate(places)] = np.arange(sum(map(len, places)))
    together = pa.concat_arrays(parts)
    return together.take(pa.array(position, mask=position < 0))


_ARROW_TYPE = pa.struct(
    [
        ("prediction", pa.string()),
        ("value", pa.float64()),
        ("probability", pa.float64()),
        ("probabilities", pa.map_(pa.string(), pa.float64())),
        ("model_level", pa.string()),
        ("group_id", pa.int32()),
        ("predicted", pa.list_(pa.float64())),
    ]
)


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
        f" grouplearn_predict('{token}', txid_current(), model, features)"
    )
