"""Several epochs of a small group in one call: the same models, curves and metrics as epoch by epoch."""

from collections.abc import Iterator

import pytest

import grouplearn
from grouplearn.kernels.linear import stochastic_gradient
from grouplearn.train import fit

CASES = {
    "least squares": "linear_regression PREDICT y OVER GRID (l1 IN (0, 0.1, 10), l2 IN (0, 1))",
    "two classes, batches": "logistic_regression PREDICT b OVER GRID (l1 IN (0, 0.1), batch_size IN (1, 7))",
    "three classes": "logistic_regression PREDICT k",
    "counts": "poisson_regression PREDICT y OVER GRID (schedule IN ('constant', 'inverse_sqrt', 'bottou'))",
    "one against the rest": "linear_svm PREDICT k OVER GRID (loss IN ('hinge', 'squared_hinge'))",
    "some end sooner": "linear_regression PREDICT y OVER GRID (tolerance IN (0, 0.001, 0.1), l2 IN (0, 1000))",
    "some diverge": "linear_regression PREDICT y OVER GRID (learning_rate IN (0.5, 1e9), tolerance IN (0, 0.01))",
}


@pytest.fixture(scope="module")
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE c AS SELECT i % 4 AS g, (hash(i) % 1000) / 1e3 AS x, (hash(i, 1) % 1000) / 1e2 AS z,"
            " 'c' || (i % 5) AS s, (hash(i, 3) % 7)::DOUBLE AS y, hash(i, 5) % 2 = 0 AS b, 'k' || hash(i, 7) % 3 AS k"
            " FROM range(480) AS t(i)"
        )
        yield con


def trained(con: grouplearn.Connection, case: str, validate: str) -> list[object]:
    learner, *rest = case.split(" OVER ")
    features = "FEATURES (x, z, onehot(s)) FROM c GROUP BY g"
    search = "".join(f" OVER {each}" for each in rest)
    con.execute(f"TRAIN OR REPLACE MODEL m USING {learner} {features}{search} {validate} WITH (solver = 'sgd')")
    views = ("SELECT * EXCLUDE (seconds) FROM m", "FROM m_weights", "FROM m_curves")
    # as text, in which NaN equals NaN
    return [repr(con.execute(f"{view} ORDER BY ALL").fetchall()) for view in views]


@pytest.mark.examples(4)
@pytest.mark.parametrize("validate", ["VALIDATE NONE", "VALIDATE SAMPLE 20%"])
@pytest.mark.parametrize("case", CASES)
def test_epochs_in_one_call_are_those_of_as_many_calls(
    con: grouplearn.Connection, case: str, validate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = trained(con, CASES[case], validate)
    monkeypatch.setattr(fit, "runs_epochs", lambda _: False)
    assert together == trained(con, CASES[case], validate)


def test_a_group_is_laid_out_once_and_not_once_an_epoch(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = []
    before = stochastic_gradient._Laid.of

    def counted(*arguments: object) -> object:
        laid.append(1)
        return before(*arguments)

    monkeypatch.setattr(stochastic_gradient._Laid, "of", counted)
    trained(con, CASES["three classes"], "VALIDATE NONE")
    assert len(laid) == 4
