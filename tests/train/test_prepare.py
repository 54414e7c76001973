"""From rows to shards: which rows train, what is fitted on them, and reasons why a group cannot be trained."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from helpers.runtime_jobs import dataset, job, one_group

import grouplearn
from grouplearn.data.dataset import Group, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.data.split import FINAL
from grouplearn.learners import registry
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.train.job import Job
from grouplearn.train.rows.prepare import Prepared, prepare
from grouplearn.train.rows.prepare_stack import prepare_stacks
from grouplearn.train.rows.sampled import group_seed
from grouplearn.train.rows.used import GroupFailed

NAN, INF = np.nan, np.inf


def ready(a_job: Job, fold: int = -1) -> Prepared:
    return prepare(a_job, a_job.groups[0], fold)


def reason(a_job: Job, fold: int = -1) -> str:
    with pytest.raises(GroupFailed) as failure:
        ready(a_job, fold)
    return str(failure.value)


def test_encoders_are_fitted_on_training_rows_alone() -> None:
    data = dataset([[1.0], [3.0], [100.0]], [0.0, 1.0, 2.0], split=[0, 0, 1])
    prepared = ready(one_group(data, items=(Item("x", "numeric", 0, "zscore"),)))
    assert prepared.train.x.tolist() == [[-1.0], [1.0]]
    assert prepared.valid is not None
    assert prepared.valid.x.tolist() == [[98.0]]
    assert (prepared.facts.n_train, prepared.facts.n_valid) == (2, 1)


def test_items_fitted_on_all_rows_are_taken_as_they_are() -> None:
    item = Item("x", "numeric", 0, "zscore", scope="all")
    data = dataset([[1.0], [3.0]], [0.0, 1.0])
    prepared = ready(one_group(data, items=(item,), fitted={0: FittedItem(item, None, 10.0, 2.0)}))
    assert prepared.train.x.tolist() == [[-4.5], [-3.5]]


def test_a_fold_holds_out_its_rows_and_the_final_fit_none() -> None:
    data = dataset(np.arange(6.0)[:, None], np.arange(6.0), split=[0, 1, 2, 0, 1, 2])
    a_job = one_group(data, folds=3)
    fold, final = ready(a_job, 1), ready(a_job)
    assert fold.valid is not None
    assert (fold.train.y.tolist(), fold.valid.y.tolist()) == ([0, 2, 3, 5], [1, 4])
    assert (final.train.n_rows, final.valid) == (6, None)


def test_runs_of_rows_are_put_together_in_order() -> None:
    a_job = one_group(dataset(np.arange(6.0)[:, None], np.arange(6.0)), groups=(Group(0, 0, (), ((4, 6), (0, 2))),))
    assert ready(a_job).train.y.tolist() == [4, 5, 0, 1]


def test_rows_with_missing_features_are_skipped_unless_the_learner_handles_them() -> None:
    x = [[1.0, 2.0], [NAN, 2.0], [INF, 2.0], [1.0, 3.0], [NAN, 1.0]]
    a_job = one_group(dataset(x, np.arange(5.0), split=[0, 0, 0, 0, 1]))
    skipping, handling = ready(a_job), ready(replace(a_job, learner="gbdt"))
    assert skipping.train.y.tolist() == [0, 3]
    assert (skipping.valid, skipping.facts.n_skipped) == (None, 3)
    assert (handling.train.n_rows, handling.facts.n_valid, handling.facts.n_skipped) == (4, 1, 0)


def test_missing_values_in_sparse_rows_are_found_in_their_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grouplearn.train.rows.prepare.encoders.DENSE_COLUMNS", 1)
    monkeypatch.setattr("grouplearn.train.rows.prepare.encoders.is_dense", lambda items, width: False)
    data = dataset([[0.0, 1.0], [0.0, NAN], [0.0, 0.0], [INF, 5.0], [7.0, 0.0]], np.arange(5.0))
    train = ready(one_group(data)).train
    assert scipy.sparse.issparse(train.x)
    assert train.y.tolist() == [0, 2, 4]
    assert train.x.toarray().tolist() == [[0, 1], [0, 0], [7, 0]]


def test_classes_of_the_group_are_renumbered() -> None:
    data = dataset(np.arange(6.0)[:, None], [1, 3, 1, 3, 0, 3], split=[0, 0, 0, 0, 1, 1], classes=("a", "b", "c", "d"))
    prepared = ready(one_group(data, SEVERAL_CLASSES))
    assert prepared.facts.classes == (1, 3)
    assert (prepared.problem.label, prepared.problem.n_classes, prepared.problem.n_outputs) == (TWO_CLASSES, 2, 1)
    assert prepared.train.y.tolist() == [0, 1, 0, 1]
    assert prepared.valid is not None
    assert prepared.valid.y.tolist() == [2, 1], "a class that no training row has comes after those that are learned"
    assert (prepared.problem.n_unseen, prepared.facts.n_skipped) == (1, 0)


def test_balanced_class_weights_are_those_of_scikit_learn() -> None:
    from sklearn.utils.class_weight import compute_sample_weight

    label, weight = np.array([0, 0, 0, 1, 1, 0]), np.array([1.0, 2.0, 1.0, 1.0, 3.0, 4.0])
    data = dataset(np.arange(6.0)[:, None], label, classes=("f", "t"))
    prepared = ready(one_group(data, TWO_CLASSES, class_weight="balanced"))
    assert prepared.train.weight == pytest.approx(compute_sample_weight("balanced", label))
    weighted = ready(one_group(replace(data, weight=weight), TWO_CLASSES, class_weight="balanced"))
    totals = [weighted.train.weight[label == each].sum() for each in (0, 1)]
    assert totals == pytest.approx([weight.sum() / 2] * 2)
    assert weighted.judged.weight.tolist() == weight.tolist()


def test_class_weights_by_number() -> None:
    data = dataset(np.arange(3.0)[:, None], [0, 2, 2], classes=("a", "b", "c"))
    prepared = ready(one_group(data, SEVERAL_CLASSES, class_weight={2: 5.0}))
    assert prepared.train.weight.tolist() == [1, 5, 5]


def test_rows_of_weight_zero_are_as_if_not_there() -> None:
    data = dataset([[1.0], [3.0], [50.0]], [0.0, 1.0, 9.0], weight=[1, 1, 0])
    prepared = ready(one_group(data, items=(Item("x", "numeric", 0, "zscore"),)))
    assert prepared.train.x.tolist() == [[-1.0], [1.0]]


def test_wide_features_are_made_dense_for_a_learner_of_dense_ones_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = Item("hash(tail)", "hash", 0, "hash", buckets=600)
    data = dataset(np.zeros((2, 0)), [0.0, 1.0], codes=[[5], [599]], dictionaries=((),))
    mlp = registry.LEARNERS["mlp"]
    monkeypatch.setattr(mlp, "declaration", replace(mlp.declaration, handles_sparse=False))
    a_job = one_group(data, learner="mlp", items=(wide,))
    assert np.argwhere(ready(a_job).train.x).tolist() == [[0, 5], [1, 599]]
    monkeypatch.setattr("grouplearn.train.rows.chosen.DENSE_BYTES", 1000)
    assert reason(a_job).startswith("mlp takes dense features only, and 2 rows x 600 columns exceed")


def test_facts_and_problem_name_the_columns() -> None:
    items = (
        Item("x", "numeric", 0),
        Item("origin", "category", 0, "onehot"),
        Item("size", "category", 1, "ordinal"),
    )
    data = dataset(
        [[1.0], [2.0]], [0.0, 1.0], codes=[[0, 1], [1, 0]], dictionaries=(("EWR", "JFK", "LGA"), ("big", "small"))
    )
    prepared = ready(one_group(data, items=items))
    assert prepared.facts.features == ("x", "origin=EWR", "origin=JFK", "size")
    assert prepared.problem.categorical == (3,)
    assert prepared.problem.n_features == 4


def test_seeds_depend_on_the_group_not_on_its_number() -> None:
    group = Group(5, 0, ("UA", None), ((0, 1),))
    assert group_seed(1, group) == group_seed(1, replace(group, id=9, ranges=((7, 9),)))
    others = [
        group_seed(2, group),
        group_seed(1, replace(group, level=1)),
        group_seed(1, replace(group, keys=("UA", "NULL"))),
    ]
    assert len({group_seed(1, group), *others}) == 4
    assert 0 <= group_seed(1, group) < 2**31


def test_reasons_name_what_is_wrong_with_the_group() -> None:
    x, label = np.ones((4, 1)), [0.0, 1.0, 0.0, 1.0]
    where = "hint: filter such rows in WHERE"
    number = "hint: a weight is a number >= 0"
    binary = {"classes": ("false", "true")}
    assert reason(one_group(dataset(np.ones((0, 1)), []))) == "the group has no rows"
    assert reason(one_group(dataset(x, label), min_rows=9)) == "the group has 4 rows, fewer than min_rows = 9"
    unlabelled = one_group(dataset(x, [0, NAN, NAN, 1]), null_label="error")
    assert reason(unlabelled) == "the label is NULL in 2 of 4 rows; hint: ON NULL LABEL SKIP leaves such rows out"
    assert reason(one_group(dataset(x, [NAN] * 4))) == "the label is NULL in each of the 4 rows"
    few = one_group(dataset(x, [0, NAN, NAN, 1]), min_rows=3)
    assert reason(few) == "the group has 2 rows with a label, fewer than min_rows = 3"
    assert reason(one_group(dataset(x, [0, 1, -INF, NAN]))) == f"the label is NaN or infinite in 1 of 4 rows; {where}"
    arrays = one_group(dataset(x, [[0, 1], [0, NAN], [NAN, NAN], [1, 0]]))
    assert reason(arrays) == f"an element of the label is NULL, NaN or infinite in 1 of 4 rows; {where}"
    nan_weight = one_group(dataset(x, label, weight=[1, NAN, 1, 1]))
    assert reason(nan_weight) == f"the weight is NULL, NaN or infinite in 1 of 4 rows; {number}"
    assert (
        reason(one_group(dataset(x, label, weight=[1, -2, 1, 1]))) == f"the weight is negative in 1 of 4 rows; {number}"
    )
    assert reason(one_group(dataset(x, label, weight=np.zeros(4)))) == "the weight is 0 in each of the 4 rows"
    too_much = one_group(dataset(x, label, weight=np.full(4, 1e308)))
    assert reason(too_much) == "the sum of the weights overflows; scale the weights down"
    assert reason(one_group(dataset(x, label, split=np.ones(4)))) == (
        "no row is left to train on: VALIDATE holds out all 4 rows"
    )
    assert reason(one_group(dataset(x, np.zeros(4), **binary), TWO_CLASSES)) == (
        "the label is false in all of the group's 4 training rows"
    )
    one_class_left = dataset([[1.0], [NAN], [1.0], [NAN]], label, **binary)
    assert reason(one_group(one_class_left, TWO_CLASSES)) == "the label is false in all of the group's 2 training rows"
    assert reason(one_group(dataset(x * NAN, label))) == (
        "each of the 4 training rows has a missing or infinite feature value; "
        "hint: impute(...) the features, or filter such rows in WHERE"
    )


SPLIT, NO_WEIGHT, NO_FEATURE = np.arange(6) > 0, (np.arange(6) == 0) * 1.0, np.where(np.arange(6) == 0, 1.0, NAN)


@pytest.mark.parametrize(
    ("data", "counts"),
    [
        ({"split": SPLIT}, (1, 5, 0)),
        ({"weight": NO_WEIGHT}, (1, 0, 5)),
        ({"x": NO_FEATURE[:, None]}, (1, 0, 5)),
        ({"x": NO_FEATURE[:, None], "split": np.arange(6) > 4}, (1, 0, 5)),
    ],
    ids=["held out", "weight 0", "no feature", "no feature, held out"],
)
def test_min_rows_counts_rows_that_train(data: dict[str, Any], counts: tuple[int, int, int]) -> None:
    """Alone, and side by side with others; the rows that are used and skipped are counted and told."""
    rows = dataset(**{"x": np.ones((6, 1)), "y": np.arange(6.0)} | data)
    assert ready(one_group(rows)).train.n_rows == 1
    a_job = one_group(rows, min_rows=2)
    with pytest.raises(GroupFailed) as alone:
        ready(a_job)
    for each in (alone.value, prepare_stacks(a_job, a_job.groups).failed[0]):
        assert str(each) == "the group has 1 training row, fewer than min_rows = 2"
        assert each.facts is not None
        assert (each.facts.n_train, each.facts.n_valid, each.facts.n_skipped) == counts


def test_of_folds_min_rows_counts_the_rows_of_all() -> None:
    x, split = np.where(np.arange(6) < 4, 1.0, NAN)[:, None], np.arange(6) % 3
    for fold in (FINAL, 0, 1, 2):
        assert ready(one_group(dataset(x, np.arange(6.0), split=split), folds=3, min_rows=4), fold).train.n_rows >= 2
        few = one_group(dataset(x, np.arange(6.0), split=split), folds=3, min_rows=5)
        assert reason(few, fold) == "the group has 4 training rows, fewer than min_rows = 5"


def test_of_a_part_of_the_rows_min_rows_counts_the_whole() -> None:
    rows = dataset(np.ones((10_000, 1)), np.arange(10_000.0))
    assert ready(one_group(rows, share=0.2, min_rows=9000)).train.n_rows < 9000
    many = one_group(rows, share=0.2, min_rows=10_001)
    assert reason(many) == "the group has 10000 rows, fewer than min_rows = 10001"
    few = dataset(np.where(np.arange(10_000) < 8999, 1.0, NAN)[:, None], np.arange(10_000.0))
    assert (
        reason(one_group(few, share=0.2, min_rows=9000))
        == "the group has 8999 training rows, fewer than min_rows = 9000"
    )


def test_a_fold_can_fail_where_the_whole_does_not() -> None:
    data = dataset(np.ones((3, 1)), [0, 0, 1], split=[0, 0, 1], classes=("false", "true"))
    a_job = one_group(data, TWO_CLASSES, folds=2)
    assert ready(a_job).train.n_rows == 3
    assert reason(a_job, 1) == "the label is false in all of the group's 2 training rows"


def test_one_epoch_for_learners_without_epochs() -> None:
    assert ready(one_group(dataset([[1.0], [2.0]], [0.0, 1.0]), epochs=50)).problem.epochs == 1
    assert ready(job(epochs=7)).problem.epochs == 7


@pytest.mark.parametrize(("learner", "options"), [("random_forest", "num_iterations = 5"), ("mlp", "epochs = 2")])
def test_the_type_of_a_key_changes_no_model(learner: str, options: str) -> None:
    """1, 1.0 and 1.00 are one key: its seed is one, whatever the type of the column."""
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 3 * 10 AS g, hash(i) % 100 / 100 AS x, hash(i + 1) % 100 / 100 AS y"
            " FROM range(300) AS r(i)"
        )
        found = []
        for kind in ("INTEGER", "DOUBLE", "FLOAT", "DECIMAL(9, 3)", "HUGEINT"):
            con.execute(
                f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT y FEATURES (x) FROM (SELECT * REPLACE (g::{kind} AS g) FROM t)"
                f" GROUP BY g VALIDATE SAMPLE 20% WITH ({options})"
            )
            found.append(
                con.execute(
                    "SELECT group_id, sha256 FROM grouplearn.artifacts SEMI JOIN grouplearn.models USING (model) ORDER BY ALL"
                ).fetchall()
            )
        assert len(found[0]) == 3
        assert found == [found[0]] * 5


@pytest.mark.parametrize(
    ("y", "weight", "told"),
    [
        ([0.0, 1e-151, 0.0], 1.0, "the squares of the label underflow; scale the label up"),
        ([3e-162, -1e-200, 1e-180], 1.0, "the squares of the label underflow; scale the label up"),
        ([1e-100, 3e-100, 2e-100], 1e-120, "the weighted squares of the label underflow; scale the weights up"),
        ([1e-200, 1e-200, 1e-200], 1.0, None),
        ([0.0, 0.0, 0.0], 1e-300, None),
        ([0.0, 2e-150, 1e-200], 1.0, None),
        ([1.0, 1.0 + 2e-16, 1.0], 1e-290, "the weighted squares of the label underflow; scale the weights up"),
        ([1.0, 1e-200, 2.0], 1.0, None),
        ([1.0, 2.0, 4.0], 1e-290, None),
    ],
)
def test_labels_whose_squares_are_none_fail_their_group(y: list[float], weight: float, told: str | None) -> None:
    """Alone, and side by side with others, of numbers; equal labels have metrics, and the labels of classes no squares."""
    rows = dataset(np.arange(3.0)[:, None], y, weight=np.full(3, weight))
    a_job = one_group(rows)
    failed = prepare_stacks(a_job, a_job.groups).failed
    assert [str(each) for each in failed.values()] == ([told] if told else [])
    if told:
        assert reason(a_job) == told
        assert failed[0].facts is not None
        assert failed[0].facts.n_train == 3
    else:
        assert ready(a_job).train.n_rows == 3


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    "learner",
    [
        "linear_regression WITH (solver = 'moments')",
        "linear_regression WITH (solver = 'coordinate_descent')",
        "linear_regression WITH (solver = 'sgd')",
        "poisson_regression",
        "mlp",
        "gbdt",
        "random_forest",
    ],
)
def test_every_learner_refuses_labels_that_have_no_metrics(learner: str) -> None:
    """Of 8 groups the labels are 10^-k: what is done has the metrics of what it predicts."""
    name, _, options = learner.partition(" ")
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 8 AS g, hash(i) % 100 / 100 AS x, (1 + hash(i + 1) % 100) * 10.0::DOUBLE **"
            " [0, -100, -140, -153, -158, -162, -200, -290][1 + i % 8] AS y FROM range(800) AS r(i)"
        )
        con.execute(f"TRAIN MODEL m USING {name} PREDICT y FEATURES (x) FROM t GROUP BY g VALIDATE FOLDS 2 {options}")
        con.execute(f"TRAIN MODEL whole USING {name} PREDICT y FEATURES (x) FROM t GROUP BY g VALIDATE NONE {options}")
        for model in ("m", "whole"):
            found = dict(con.execute(f"SELECT g, coalesce(error, status) FROM {model}").fetchall())
            told = ["the squares of the label underflow; scale the label up"] * 5
            assert [found[group] for group in range(3, 8)] == told
            assert (name in ("gbdt", "random_forest")) == ("scale them up" in found[1])
            by_hand = con.execute(
                f"SELECT g, sqrt(avg((y - prediction) ** 2)) FROM {model}_predict(t) WHERE prediction IS NOT NULL GROUP BY g"
            ).fetchall()
            reported = dict(con.execute(f"SELECT g, train_rmse FROM {model} WHERE train_rmse IS NOT NULL").fetchall())
            assert model == "m" or set(reported) == {group for group in range(8) if found[group] == "done"}
            for group, value in by_hand:
                assert group not in reported or reported[group] == pytest.approx(value, rel=1e-9)


def test_held_out_labels_too_small_beside_the_errors_are_told_to_be_scaled_up() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i, hash(i) % 100 / 100 AS x, if(i % 5 = 0, 1e-160 * (i % 3), 1 + 3 * x) AS y"
            " FROM range(300) AS r(i)"
        )
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t VALIDATE WHERE i % 5 = 0")
        told = "the squares of the label are too small beside those of its errors (r2); scale the label up"
        assert con.execute("SELECT error FROM m").fetchall() == [(told,)]
