"""What scikit-learn and LightGBM make of a group's rows, with the encoders written again from their definitions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
from random_statements import Statement
from random_tables import Table

Matrix = np.ndarray


@dataclass(frozen=True)
class Rows:
    """Rows of one group: encoded features, labels, weights, ids, which rows train, which columns are categories."""

    x: Matrix
    y: np.ndarray
    weight: np.ndarray
    ids: np.ndarray
    train: np.ndarray
    categorical: tuple[int, ...]


_ITEM = re.compile(r"(zscore|minmax|onehot|ordinal)?\(?(impute)?\(?(\w+)(?:, '(median)')?\)*")


def encoded(con: duckdb.DuckDBPyConnection, table: Table, statement: Statement, where: str) -> Rows:
    """Encode the rows of a group by hand; encoders are fitted on rows that train: all but trees leave out what has gaps."""
    names = [column.name for column in table.columns]
    texts = ", ".join(
        f"CAST({column.name} AS VARCHAR)" if column.role == "category" else f"CAST({column.name} AS DOUBLE)"
        for column in table.columns
    )
    weight = "w" if statement.weighted else "1.0"
    held = "h" if statement.validate == "WHERE h" else "false"
    read = con.sql(f"SELECT {texts}, CAST(y AS VARCHAR), {weight}, {held}, id FROM t WHERE {where}").fetchall()
    values = list(zip(*read, strict=True))
    weights = np.array(values[-3], float)
    labelled = np.array([value is not None for value in values[-4]])
    # A row without a weight, or a label, is as if it were not there.
    fits, keep = ~np.array(values[-2], bool) & (weights > 0) & labelled, labelled.copy()
    parts: list[Matrix] = []
    categorical: list[int] = []
    items = [
        (found.groups(), values[names.index(found[3])]) for found in map(_ITEM.fullmatch, statement.features) if found
    ]
    assert len(items) == len(statement.features)
    for (encoder, imputed, _, _), column in items:
        if statement.learner != "gbdt" and encoder not in ("onehot", "ordinal") and not imputed:
            keep &= np.array([value is not None and np.isfinite(value) for value in column])
    fits &= keep
    for (encoder, imputed, _, median), column in items:
        if encoder in ("onehot", "ordinal"):
            categorical += [sum(part.shape[1] for part in parts)] if encoder == "ordinal" else []
            parts.append(_categories(column, fits, encoder))
            continue
        number = np.array([np.nan if value is None else value for value in column])
        parts.append(_number(number, encoder, imputed, median, fits)[:, None])
    x = np.hstack(parts)[keep]
    return Rows(
        x, np.array(values[-4])[keep], weights[keep], np.array(values[-1])[keep], fits[keep], tuple(categorical)
    )


def _categories(column: tuple[Any, ...], fits: np.ndarray, encoder: str) -> Matrix:
    known = sorted({value for value, fit in zip(column, fits, strict=True) if fit and value is not None})
    if encoder == "ordinal":
        return np.array([[known.index(value) if value in known else np.nan] for value in column])
    return np.array([[float(value == name) for name in known] for value in column]).reshape(len(column), len(known))


def _number(number: np.ndarray, encoder: str | None, imputed: str | None, median: str | None, fits: np.ndarray) -> Any:
    there = number[fits & np.isfinite(number)]
    if imputed:
        fill = 0.0 if not len(there) else np.median(there) if median else there.mean()
        number = np.where(np.isfinite(number), number, fill)
    there = number[fits & np.isfinite(number)]
    if encoder == "zscore" and len(there):
        # What differs by rounding alone is constant: a constant's mean need not be the constant.
        varies = np.ptp(there) > 1e-12 * np.abs(there).max()
        return (number - there.mean()) / (there.std() if varies else 1)
    if encoder == "minmax" and len(there):
        return (number - there.min()) / (np.ptp(there) or 1)
    return number


def fitted(rows: Rows, learner: str, parameters: dict[str, Any]) -> np.ndarray:
    """Return the reference's predictions for all rows: values, or the probability of the greater class."""
    x, y, weight = (part[rows.train] for part in (rows.x, rows.y, rows.weight))
    return _FITS[learner](x, y, weight, rows, parameters)


def _ridge(x: Matrix, y: np.ndarray, weight: np.ndarray, rows: Rows, parameters: dict[str, Any]) -> np.ndarray:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=parameters["l2"], solver="cholesky").fit(x, y.astype(float), weight).predict(rows.x)


def _logistic(x: Matrix, y: np.ndarray, weight: np.ndarray, rows: Rows, parameters: dict[str, Any]) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / parameters["l2"], solver="newton-cholesky", tol=1e-10, max_iter=1000)
    return model.fit(x, y, weight).predict_proba(rows.x)[:, 1]


def _poisson(x: Matrix, y: np.ndarray, weight: np.ndarray, rows: Rows, parameters: dict[str, Any]) -> np.ndarray:
    from sklearn.linear_model import PoissonRegressor

    model = PoissonRegressor(alpha=parameters["l2"] / weight.sum(), solver="newton-cholesky", tol=1e-12, max_iter=1000)
    return model.fit(x, y.astype(float), weight).predict(rows.x)


def _trees(x: Matrix, y: np.ndarray, weight: np.ndarray, rows: Rows, parameters: dict[str, Any]) -> np.ndarray:
    import lightgbm

    classes = sorted(set(y)) if parameters["classes"] else []
    label = np.array([classes.index(value) for value in y]) if classes else y.astype(float)
    given = {
        "objective": "binary" if classes else "regression",
        "num_leaves": parameters.get("num_leaves", 31),
        "learning_rate": parameters.get("learning_rate", 0.1),
        "min_data_in_leaf": 3,
        "verbosity": -1,
        "num_threads": 1,
        "deterministic": True,
        "force_col_wise": True,
        "feature_pre_filter": False,
    }
    data = lightgbm.Dataset(x, label, weight=weight, categorical_feature=list(rows.categorical), free_raw_data=False)
    return lightgbm.train(given, data, 4).predict(rows.x)


_FITS = {"linear_regression": _ridge, "logistic_regression": _logistic, "poisson_regression": _poisson, "gbdt": _trees}
