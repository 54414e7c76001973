"""``predict('model', row)``: the prediction of any model for a row given as a struct, vectorised over Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
from duckdb.func import FunctionNullHandling, PythonUDFType

from grouplearn.catalog.lookup.sessions import SETTINGS
from grouplearn.catalog.predicting_connections import (
    EXPLANATION,
    INEXACT_TYPES,
    PREDICTION,
    STEPS,
    TRANSACTION,
    entry_of,
    entry_of_token,
)
from grouplearn.errors import data_error

#: Whether a row has values that would not arrive as they are; known when the statement is planned.
_INEXACT = f"system.main.regexp_matches(system.main.typeof(features), '\\b({'|'.join(INEXACT_TYPES)})\\b')"


def grouplearn_predict(
    tokens: Any, transactions: Any, sessions: Any, models: Any, rows: Any, types: Any, texts: Any
) -> Any:
    """Return the predictions for a chunk: which connection asks, in which transaction and session, for which model and rows.

    A NULL model or a NULL row gives NULL. Where Arrow cannot hold a value of the rows, ``types`` is their SQL type and
    ``texts`` are the rows as JSON.
    """
    from grouplearn.prediction.predictions import PredictionPart

    wanted = (PredictionPart.ALL, _first(tokens), _first(transactions), _first(sessions), _first(types))
    return _predicted(wanted, models, rows, texts)


def grouplearn_predict_number(
    parts: Any, tokens: Any, transactions: Any, sessions: Any, models: Any, rows: Any, types: Any, texts: Any
) -> Any:
    """As ``grouplearn_predict``, of one number of each prediction: the member of ``PredictionPart`` that ``parts`` says."""
    wanted = (_first(parts), _first(tokens), _first(transactions), _first(sessions), _first(types))
    return _predicted(wanted, models, rows, texts)


def grouplearn_explanation(
    tokens: Any, transactions: Any, sessions: Any, models: Any, rows: Any, types: Any, texts: Any
) -> Any:
    """As ``grouplearn_predict``, of what each item adds to the score of each row."""
    from grouplearn.prediction.predictions import PredictionPart

    wanted = (PredictionPart.EXPLANATION, _first(tokens), _first(transactions), _first(sessions), _first(types))
    return _predicted(wanted, models, rows, texts)


def grouplearn_forecast(
    horizons: Any,
    levels: Any,
    tokens: Any,
    transactions: Any,
    sessions: Any,
    models: Any,
    rows: Any,
    types: Any,
    texts: Any,
) -> Any:
    """As ``grouplearn_predict``, of the steps after the series of each row: so many, with intervals of such levels."""
    from grouplearn.prediction.ahead import with_horizon
    from grouplearn.prediction.predictions import PredictionPart

    wanted = (PredictionPart.STEPS, _first(tokens), _first(transactions), _first(sessions), _first(types))
    return _predicted(wanted, models, with_horizon(*map(_array, (rows, horizons, levels))), texts)


def _predicted(wanted: Any, models: Any, rows: Any, texts: Any) -> Any:
    from grouplearn.prediction.prediction import Caller, predictor_of_token
    from grouplearn.prediction.predictions import PredictionPart
    from grouplearn.prediction.rows.exact_rows import ExactRows

    part, token, transaction, session, kind = wanted
    models, rows, texts = (_array(column) for column in (models, rows, texts))
    if not (isinstance(transaction, int) and isinstance(session, int | None) and isinstance(kind, str | None)):
        raise data_error(
            "grouplearn_predict is for predict, which calls it with the connection, transaction and session"
        )
    exact = None if kind is None else ExactRows(kind, texts)
    return predictor_of_token(token).predict_each(
        Caller(transaction, session), models, rows, exact, PredictionPart(part)
    )


def grouplearn_session(tokens: Any, settings: Any, variables: Any) -> Any:
    """Keep the settings and variables of the session that asks for predictions, and return the number it is known by."""
    import pyarrow as pa

    sessions = entry_of_token(_first(tokens)).sessions
    found = [sessions.keep(*each) for each in zip(settings.to_pylist(), variables.to_pylist(), strict=True)]
    return pa.array(found, pa.int64())


def _first(column: Any) -> Any:
    """Return the value that a column has in every row."""
    return column[0].as_py()


def _array(column: Any) -> Any:
    import pyarrow as pa

    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make ``predict`` known to the connection."""
    _create(connection, grouplearn_predict, PREDICTION)
    _create(connection, grouplearn_predict_number, "DOUBLE")
    _create(connection, grouplearn_explanation, EXPLANATION)
    _create(connection, grouplearn_forecast, STEPS)
    _create(connection, grouplearn_session, "BIGINT")
    define(connection)


def define(connection: duckdb.DuckDBPyConnection) -> None:
    """Define ``predict`` so that it hands over the variables the connection has, and those it is about to have.

    ``grouplearn_number`` is what ``predict_value`` and ``predict_probability`` are made of: a struct of everything that can
    be said of a row takes longer than to predict it.
    """
    entry = entry_of(connection)
    entry.sessions.expect(
        name for (name,) in connection.execute("SELECT name FROM system.main.duckdb_variables()").fetchall()
    )
    session = f"system.main.grouplearn_session('{entry.token}', {SETTINGS}, {entry.sessions.variables_sql()})"
    arguments = (
        f"'{entry.token}', {TRANSACTION}, {session}, model, features,"
        f" CASE WHEN {_INEXACT} THEN system.main.typeof(features) END,"
        f" CASE WHEN {_INEXACT} THEN system.main.to_json(features) END"
    )
    # Temporary macros belong to the connection, so this is how the function learns who asks.
    connection.execute(
        f"CREATE OR REPLACE TEMP MACRO predict(model, features) AS system.main.grouplearn_predict({arguments});"
        " CREATE OR REPLACE TEMP MACRO grouplearn_number(part, model, features) AS"
        f" system.main.grouplearn_predict_number(part, {arguments});"
        " CREATE OR REPLACE TEMP MACRO grouplearn_explain(model, features) AS"
        f" system.main.grouplearn_explanation({arguments});"
        " CREATE OR REPLACE TEMP MACRO forecast(model, features, horizon := NULL, level := 0.9) AS"
        f" system.main.grouplearn_forecast(CAST(horizon AS BIGINT), CAST(level AS DOUBLE), {arguments})"
    )


def _create(connection: duckdb.DuckDBPyConnection, function: Callable[..., Any], returned: str) -> None:
    try:
        connection.create_function(
            function.__name__,
            function,
            None,
            returned,
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )
    except (duckdb.CatalogException, duckdb.NotImplementedException) as error:
        # Functions belong to the database instance: another connection to it, or this one, was here before.
        if "already" not in str(error):
            raise
