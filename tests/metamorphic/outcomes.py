"""What a statement has left in the database, in a form that two statements can be compared by."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import duckdb

Keys = tuple[str | None, ...]


@dataclass(frozen=True)
class Trial:
    """A trained model: how it ended, its metrics by name, and the SHA-256 of its parameters."""

    status: str
    reason: str | None
    epochs: int
    is_best: bool
    train: dict[str, float | None]
    valid: dict[str, float | None]
    sha256: str | None


@dataclass(frozen=True)
class Prediction:
    """A row's prediction: its value or class, the probability of each class, the group level used."""

    value: Any
    shares: dict[str, float]
    level: str | None


def classes_of(con: duckdb.DuckDBPyConnection, model: str = "m") -> list[str]:
    """Return the class names of a model, in order; none for numbers."""
    (row,) = con.execute("SELECT classes FROM grouplearn.models WHERE model_name = ?", [model]).fetchall()
    return list(row[0])


def trials(con: duckdb.DuckDBPyConnection, model: str = "m") -> dict[tuple[int, Keys, int], Trial]:
    """Return the trials of a model by (level, group, config)."""
    rows = con.execute(
        """
        SELECT g.level, g.keys, t.config, t.status, t.error, t.epochs, t.is_best, m.metrics, t.train, t.valid, a.sha256
        FROM grouplearn.models AS m JOIN grouplearn.groups AS g USING (model)
        JOIN grouplearn.trials AS t USING (model, group_id)
        LEFT JOIN grouplearn.artifacts AS a USING (model, group_id, config)
        WHERE m.model_name = ?
        """,
        [model],
    ).fetchall()
    return {
        (level, tuple(keys), config): Trial(
            status, error, epochs, best, _named(names, train), _named(names, valid), sha256
        )
        for level, keys, config, status, error, epochs, best, names, train, valid, sha256 in rows
    }


def _named(names: list[str], values: list[float | None]) -> dict[str, float | None]:
    return dict(zip(names, values, strict=False))


def predictions(con: duckdb.DuckDBPyConnection, source: str = "t", model: str = "m") -> dict[int, Prediction]:
    """Return what the macro predicts, by ``id``; that it gives each row once is asserted."""
    rows = con.sql(f"FROM {model}_predict({source})").to_arrow_table().to_pylist()
    names = classes_of(con, model.split(".")[-1])
    found = {row["id"]: Prediction(row["prediction"], _shares(row, names), row["model_level"]) for row in rows}
    assert len(found) == len(rows), "a row was predicted twice"
    return found


def predictions_by_function(
    con: duckdb.DuckDBPyConnection, source: str = "t", model: str = "m"
) -> dict[int, Prediction]:
    """Return what the function predicts, by ``id``; that the functions of its numbers say the same is asserted."""
    names = classes_of(con, model)
    field = "probability" if names else "value"
    number = "NULL::DOUBLE" if len(names) > 2 else f"predict_{field}('{model}', r)"  # of several there is no single one
    sql = f"SELECT id, predict('{model}', r) AS p, {number} AS number FROM {source} AS r"
    found = {}
    for row in con.sql(sql).to_arrow_table().to_pylist():
        p = row["p"]
        assert near(row["number"], p[field], 0)
        value = p["prediction"] if names else p["value"]
        found[row["id"]] = Prediction(value, _shares(p, names), p["model_level"])
    return found


def _shares(row: dict[str, Any], names: list[str]) -> dict[str, float]:
    if row.get("probabilities"):
        return dict(row["probabilities"])
    if row.get("probability") is None or len(names) != 2:
        return {}
    return {names[0]: 1 - row["probability"], names[1]: row["probability"]}


def near(a: float | None, b: float | None, tolerance: float) -> bool:
    """Whether two numbers agree to a tolerance relative to 1 or to their size; NULL agrees with NULL."""
    if a is None or b is None:
        return a is b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))


def assert_same_predictions(
    found: dict[int, Prediction], expected: dict[int, Prediction], tolerance: float, levels: bool = True
) -> None:
    """Compare predictions: numbers and probabilities to a tolerance, classes where they are not tied."""
    assert found.keys() == expected.keys()
    for row, want in expected.items():
        got = found[row]
        assert not levels or got.level == want.level, (row, got, want)
        shares = {**dict.fromkeys(want.shares, 0.0), **got.shares}, {**dict.fromkeys(got.shares, 0.0), **want.shares}
        assert bool(got.shares) == bool(want.shares), (row, got, want)
        assert all(near(shares[0][name], shares[1][name], tolerance) for name in shares[0]), (row, got, want)
        if isinstance(want.value, float) and isinstance(got.value, float) and not want.shares:
            assert near(got.value, want.value, tolerance), (row, got, want)
        elif not want.shares or _ahead(want.shares) > 10 * tolerance:
            assert str(got.value).lower() == str(want.value).lower(), (row, got, want)


def _ahead(shares: dict[str, float]) -> float:
    """Return by how much the most probable class leads."""
    ranked = sorted(shares.values(), reverse=True)
    return ranked[0] - ranked[1]


#: Metrics that count rows or pairs of rows: of two that are nearly tied the smallest difference of models may turn them.
_COUNTS = {"auc", "pr_auc", "accuracy", "balanced_accuracy", "f1", "precision", "recall"}


def assert_same_trials(found: dict[Any, Trial], expected: dict[Any, Trial], bits: bool = True) -> None:
    """Compare trials, bit for bit or their metrics, but for those that count, to 1e-6."""
    assert found.keys() == expected.keys()
    for place, want in expected.items():
        got = found[place]
        if bits:
            assert got == want, place
            continue
        assert (got.status, got.is_best) == (want.status, want.is_best), (place, got, want)
        for name in {*want.train, *want.valid} - _COUNTS:
            for mine, other in ((got.train, want.train), (got.valid, want.valid)):
                assert near(mine.get(name), other.get(name), 1e-6), (place, name, got, want)
