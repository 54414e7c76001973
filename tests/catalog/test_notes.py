"""What TRAIN's answer says beside the numbers."""

import grouplearn


def answer(con: grouplearn.Connection, train: str) -> list[dict[str, object]]:
    con.execute(
        "CREATE TABLE t AS SELECT i % 2 AS g, hash(i) % 1000 / 1000 AS a, hash(i * 3) % 1000 / 1000 AS b,"
        " hash(i) % 1000 > hash(i * 5) % 1000 AS y FROM range(1000) AS r(i)"
    )
    rows: list[dict[str, object]] = con.execute(train).fetch_arrow_table().to_pylist()
    return rows


def test_trials_at_the_limit_of_epochs() -> None:
    with grouplearn.connect(progress=False) as con:
        train = "TRAIN MODEL m USING logistic_regression PREDICT y FROM t GROUP BY g OVER GRID (l2 IN (0.1, 1))"
        rows = answer(con, f"{train} WITH (epochs = 2)")
        told = "2 of 2 trials stopped at the limit of 2 epochs, not converged: raise epochs"
        assert [row["note"] for row in rows] == [told, told]
        rows = con.execute(train.replace("TRAIN", "TRAIN OR REPLACE")).fetch_arrow_table().to_pylist()
        assert all("note" not in row for row in rows)


def test_held_out_rows_that_judge_no_trial() -> None:
    with grouplearn.connect(progress=False) as con:
        train = (
            "TRAIN MODEL m USING logistic_regression PREDICT y AND g = 0 AS z FEATURES (a, b) FROM t"
            " OVER GRID (l2 IN (0.1, 1)) VALIDATE WHERE g = 1 OPTIMIZE auc"
        )
        (row,) = answer(con, train)
        assert row["note"] == "no trial has a valid_auc: the best is chosen by train_auc"
