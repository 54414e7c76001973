"""EXPLAIN says which rows will be skipped, and which will fail their groups."""

from __future__ import annotations

import json
from typing import Any

import pytest

import grouplearn

TABLE = (
    "CREATE TABLE s AS SELECT i % 3 AS g, CASE i % 15 WHEN 0 THEN NULL WHEN 1 THEN 'inf' ELSE i::DOUBLE END AS y, "
    "CASE WHEN i % 7 > 0 THEN i::DOUBLE END AS x, CASE i % 10 WHEN 2 THEN NULL ELSE i % 4 END AS w, ['a', NULL][1 + i % 2] AS c "
    "FROM range(120) r(i)"
)
LABEL, ODD = "without a label", "with a label that is NaN or infinite"
WEIGHT, ZERO, FEATURE = (
    "with a weight that is NULL, infinite or negative", "of weight 0", "with a missing or infinite feature",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "skipped", "failing"),
    [
        ("linear_regression PREDICT y FEATURES (x) FROM s", {LABEL: 8, FEATURE: 15}, {ODD: 8}),
        ("linear_regression PREDICT y FEATURES (impute(x), onehot(c)) FROM s", {LABEL: 8}, {ODD: 8}),
        ("linear_regression PREDICT y FEATURES (w, ordinal(c)) FROM s", {LABEL: 8, FEATURE: 64}, {ODD: 8}),
        ("gbdt PREDICT y FEATURES (x) FROM s ON NULL LABEL ERROR", {}, {LABEL: 8, ODD: 8}),
        ("gbdt PREDICT y > 7 FEATURES (x) FROM s WITH (weight = w)", {LABEL: 8, ZERO: 22}, {WEIGHT: 12}),
        ("gbdt PREDICT y > 7 FEATURES (x) FROM s WHERE y IS NOT NULL", {}, {}),
    ],
)
def test_rows_are_counted_once_by_reason(text: str, skipped: dict[str, int], failing: dict[str, int]) -> None:
    with grouplearn.connect() as con:
        con.execute(TABLE)
        plan: dict[str, Any] = json.loads(
            con.execute(f"EXPLAIN (FORMAT json) TRAIN MODEL m USING {text}").fetchall()[0][0]
        )
        lines = [row[0].strip() for row in con.execute(f"EXPLAIN TRAIN MODEL m USING {text}").fetchall()]
    assert (plan["rows_skipped"], plan["rows_failing"]) == (skipped, failing)
    told = ", ".join(f"{rows} rows {why}" for why, rows in skipped.items())
    assert (f"Skip: {told}" in lines) == bool(skipped)
