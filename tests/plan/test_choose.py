"""The planner's choice among simulated operators: legal, within memory, fastest, with a reason in words."""

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest
from helpers.plans import candidate, planned

from grouplearn.bind.run import compatibility, sizes
from grouplearn.bind.run.options import RUN_OPTIONS
from grouplearn.data import memory
from grouplearn.learners import registry
from grouplearn.learners.contract.access import BOOSTING
from grouplearn.plan.operator_choice import affordable, choose, threads
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.schedule.operators import OPERATORS, RunRules

TRAIN = "TRAIN MODEL m USING {learner} PREDICT y FROM t GROUP BY g"


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT least(i // 10, 3) AS g, i AS x, i % 2 = 0 AS y FROM range(100) AS r(i)"
    )
    yield connection
    connection.close()


def plan_of(con: duckdb.DuckDBPyConnection, learner: str = "logistic_regression", **settings: object) -> PhysicalPlan:
    return planned(con, TRAIN.format(learner=learner), **{"workers": 2, **settings})


def test_the_smallest_makespan_wins_whatever_the_order(con: duckdb.DuckDBPyConnection) -> None:
    slow, fast = candidate("group_task_parallel", 2.0), candidate("gap", 1.0)
    for order in ([slow, fast], [fast, slow]):
        assert choose(plan_of(con), order, ray_installed=False).operator == "gap"


def test_makespans_about_equal_go_to_the_fewer_loads_then_to_the_first(con: duckdb.DuckDBPyConnection) -> None:
    first, second = candidate("group_task_parallel", 1.004, loads=4), candidate("model_task_parallel", 1.0, loads=9)
    choice = choose(plan_of(con), [first, second], ray_installed=False)
    assert (choice.operator, choice.why) == ("group_task_parallel", "no operator is faster, and it loads rows 4 times")
    same = candidate("model_task_parallel", 1.0, loads=4)
    assert choose(plan_of(con), [first, same], ray_installed=False).operator == "group_task_parallel"
    assert choose(plan_of(con), [same, first], ray_installed=False).operator == "model_task_parallel"
    quicker = candidate("model_task_parallel", 0.96, loads=9)  # by less than estimates are good for
    choice = choose(plan_of(con), [first, quicker], ray_installed=False)
    assert choice.why == "no operator is clearly faster, and it loads rows 4 times"
    quicker = candidate("model_task_parallel", 0.95, loads=9)
    assert choose(plan_of(con), [first, quicker], ray_installed=False).operator == "model_task_parallel"


def test_skew_is_the_reason_when_one_group_keeps_a_worker_busy(con: duckdb.DuckDBPyConnection) -> None:
    waiting, even = candidate("group_task_parallel", 2.0, idle=0.4), candidate("gap", 1.2, idle=0.05)
    why = choose(plan_of(con), [waiting, even], ray_installed=False).why
    assert why.startswith("the largest group has 70% of the rows, and group_task_parallel would keep one worker busy")
    assert why.endswith("of 2 s while the other waits")


def test_an_operator_that_does_not_fit_is_named_and_not_chosen(con: duckdb.DuckDBPyConnection) -> None:
    fast, small = candidate("data_parallel", 1.0, peak_bytes=600), candidate("group_task_parallel", 2.0, peak_bytes=500)
    choice = choose(plan_of(con, memory_limit=1000), [fast, small], ray_installed=False)
    assert choice.operator == "group_task_parallel"
    assert choice.refused == (("data_parallel", "needs 1.2 kB on 2 workers, and the memory limit is 1 kB"),)
    none = choose(plan_of(con, memory_limit=10), [fast, small], ray_installed=False)
    assert (none.operator, none.why) == (
        "group_task_parallel",
        "no operator fits into 10 B; this one needs least, 500 B per worker",
    )


def test_workers_are_fewer_where_memory_or_work_is_short(con: duckdb.DuckDBPyConnection) -> None:
    free = planned(con, TRAIN.format(learner="gbdt"), memory_limit=2500)
    four = [candidate("group_task_parallel", 2.0, peak_bytes=1000, used=4)]
    assert affordable(free, four, 4) == 2
    assert affordable(free, [candidate("group_task_parallel", 2.0, peak_bytes=9000, used=2)], 2) == 1
    assert affordable(free, [candidate("group_task_parallel", 2.0, peak_bytes=9000, used=1)], 1) == 1
    assert affordable(plan_of(con, memory_limit=2500), four, 2) == 2  # two were asked for
    few = choose(free, [candidate("group_task_parallel", 2.0, used=1)], False, simulated=free.workers)
    assert few.workers == 1
    assert (few.workers < free.workers) == few.why_workers.startswith("there is no work for more of the")


def test_workers_that_only_help_are_workers(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE s AS SELECT i % 9 AS c, i % 2 = 0 AS y FROM range(9) AS r(i)")
    text = "TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (c) FROM s VALIDATE NONE"
    physical = replace(planned(con, text), workers=4)
    for helping, workers in ((0, 1), (1, 2), (3, 4), (9, 4)):
        found = choose(physical, [candidate("group_task_parallel", 1.0, used=1, helping=helping)], False)
        assert found.workers == workers
        assert ("help" in found.why_workers) == (workers == 4)


def test_an_operator_that_was_asked_for_takes_its_executor_along(con: duckdb.DuckDBPyConnection) -> None:
    physical = plan_of(con, "gbdt", operator="data_parallel")
    choice = choose(physical, [candidate("group_task_parallel", 1.0), candidate("data_parallel", 9.0)], True)
    assert (choice.operator, choice.why, choice.executor) == ("data_parallel", "as asked", "ray")


def test_illegal_operators_are_not_chosen(con: duckdb.DuckDBPyConnection) -> None:
    physical = plan_of(con, "gbdt", executor="local")
    choice = choose(physical, [candidate("group_task_parallel", 9.0), candidate("data_parallel", 1.0)], True)
    assert choice.operator == "group_task_parallel"
    assert (
        "data_parallel runs learners that train on all rows at once with executor = 'ray' only"
        in dict(choice.refused)["data_parallel"]
    )


def test_the_table_of_legality() -> None:
    sums, passes = registry.learner("linear_regression"), registry.learner("mlp")
    assert compatibility.runtimes("gap", sums) == ("local", "ray")
    assert compatibility.runtimes("data_parallel", passes) == ("ray",)
    assert compatibility.refusal_reason("data_parallel", passes, "auto") is None
    assert compatibility.refusal_reason("data_parallel", passes, "local") == (
        "operator data_parallel runs learners that train on batches of rows with executor = 'ray' only, "
        "because its workers are processes that talk to each other in every batch or tree"
    )


def test_an_illegal_combination_is_refused_at_its_place(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = replace(OPERATORS["model_task_parallel"], runs={BOOSTING.name: RunRules((), "this is a test")})
    monkeypatch.setattr(compatibility, "OPERATORS", {**OPERATORS, "model_task_parallel": operator})
    text = TRAIN.format(learner="gbdt")
    with pytest.raises(duckdb.Error) as caught:
        planned(con, f"{text} WITH (operator = 'model_task_parallel')")
    assert str(caught.value).splitlines() == [
        "operator model_task_parallel does not run learners that train on all rows at once, because this is a test",
        "",
        f"LINE 1: {text} WITH (operator = 'model_task_parallel')",
        " " * len(f"LINE 1: {text} WITH (operator = ") + "^" * len("'model_task_parallel'"),
    ]
    with pytest.raises(duckdb.Error, match="The operator comes from SET grouplearn_operator"):
        planned(con, text, operator="model_task_parallel")


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GB", 8 * 10**9), ("8 gib", 8 * 2**30), ("1.5 MB", 1_500_000), ("100B", 100), ("2TiB", 2 * 2**40)],
)
def test_sizes(text: str, size: int) -> None:
    assert sizes.check_size(text) == size


@pytest.mark.parametrize("value", ["8", "GB", "-1GB", "0 kB", "0.1B", 8, None, True, "8 PB"])
def test_what_is_no_size(value: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        sizes.check_size(value)


@pytest.mark.parametrize("value", [None, True, "1", "", -0.01, float("nan"), float("inf"), [1]])
def test_what_is_no_price(value: object) -> None:
    with pytest.raises(ValueError, match="must be a price"):
        RUN_OPTIONS["node_price"].check(value)


def test_the_default_limit_is_most_of_the_memory() -> None:
    assert 0 < memory.memory_limit() < 2**50


def test_threads_are_used_where_they_help_or_are_asked_for(con: duckdb.DuckDBPyConnection) -> None:
    """A tree's arithmetic is worth a second thread sooner than sums over rows are; batches of a package never are."""
    con.execute("CREATE TABLE s AS SELECT i % 4 AS g, sin(i) AS x, i % 3 = 0 AS y FROM range(40000) AS r(i)")
    text = "TRAIN MODEL m USING {} PREDICT y FEATURES (x) FROM s GROUP BY g VALIDATE NONE{}"
    seen = {}

    def threads_of(text: str) -> int:
        physical = planned(con, text)
        return threads(
            physical, replace(choose(physical, [candidate("group_task_parallel", 1.0, used=2)], False), workers=2)
        )

    for learner in ("gbdt", "logistic_regression", "mlp"):
        for options in ("", " WITH (workers = 2)"):
            seen[learner, bool(options)] = threads_of(text.format(learner, options))
    assert [seen[learner, False] for learner in ("gbdt", "logistic_regression", "mlp")] == [2, 1, 1]
    assert all(seen[learner, True] == 2 for learner in ("gbdt", "logistic_regression", "mlp"))
    # What a batch takes is the more the more configurations and epochs there are.
    assert threads_of(text.format("mlp", " WITH (epochs = 39)")) == 1
    assert threads_of(text.format("mlp", " WITH (epochs = 40)")) == 2
    rates = text.replace(" VALIDATE", " OVER GRID (learning_rate IN ({})) VALIDATE").format(
        "mlp", "0.1, 0.2, 0.3, 0.4", "{}"
    )
    assert threads_of(rates.format("")) == 2
    assert threads_of(rates.format(" WITH (epochs = 9)")) == 1


def test_a_run_that_ends_soon_does_not_start_ray(con: duckdb.DuckDBPyConnection) -> None:
    text = TRAIN.format(learner="mlp") + " WITHIN {} SECONDS WITH (epochs = 100000000)"
    work = [candidate("group_task_parallel", 1000.0)]
    assert choose(planned(con, text.format(40), workers=2), work, True).executor == "ray"
    short = choose(planned(con, text.format(2), workers=2), work, True)
    assert (short.executor, short.reason) == (
        "local",
        "WITHIN 2 SECONDS is too short a time to start Ray in (from 30 s)",
    )
    assert choose(planned(con, text.format(2), workers=2, executor="ray"), work, True).executor == "ray"
