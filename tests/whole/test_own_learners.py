"""The learner of docs/how-to/models/own-learner.md: trained by every operator that can, killed, resumed, exported."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.dying_runs import answer, dies
from helpers.pages import blocks

import grouplearn
from grouplearn.bind.run import compatibility
from grouplearn.learners import registry, third_party
from grouplearn.learning import (
    NUMBER,
    SEVERAL_CLASSES,
    AlgebraicLearner,
    Artifact,
    AveragingLearner,
    Config,
    Declaration,
    Hyperparameter,
    Problem,
    StackLearner,
    State,
)
from grouplearn.plan import physical
from grouplearn.schedule.operators import OPERATORS

TABLE = (
    "CREATE TABLE visits AS SELECT if(i < 100, 0, if(i < 900, 1, 2)) AS shop, i % 7 AS day, "
    "(i * 37) % 101 + 10 * shop AS minutes FROM range(1000) AS r(i)"
)
TRAIN = (
    "TRAIN MODEL m USING median_sgd PREDICT minutes FROM visits GROUP BY shop OVER GRID (step IN (1, 10)) "
    "VALIDATE SAMPLE 20% OPTIMIZE mae WITH ({options})"
)
MODELS = "FROM (SELECT a.* EXCLUDE (model) FROM grouplearn.artifacts AS a SEMI JOIN grouplearn.models USING (model)) ORDER BY ALL"


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The file of the page, as a module that other processes find."""
    folder = tmp_path_factory.mktemp("learners")
    (folder / "median_sgd.py").write_text(blocks("how-to/models/own-learner.md", "python")[0].code, encoding="utf-8")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    yield importlib.import_module("median_sgd")
    sys.path.remove(str(folder))
    del sys.modules["median_sgd"]


@pytest.fixture
def median(module: Any) -> Iterator[Any]:
    grouplearn.register_learner(module.MedianSgd)
    yield registry.learner("median_sgd")
    grouplearn.unregister("median_sgd")


@pytest.fixture
def con(median: Any) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute(TABLE)
        yield connection


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that the large group is split between workers."""
    monkeypatch.setattr(physical, "BLOCK_ROWS", 128)


def medians(con: grouplearn.Connection) -> list[float]:
    query = "SELECT shop, prediction FROM m_predict(visits) GROUP BY ALL ORDER BY shop"
    return [row[1] for row in con.execute(query).fetchall()]


def trained(con: grouplearn.Connection, options: str) -> list[Any]:
    con.execute(TRAIN.format(options=options).replace("TRAIN", "TRAIN OR REPLACE")).fetchall()
    return con.execute(MODELS).fetchall()


def test_it_finds_medians_of_rows_it_has_not_seen(con: grouplearn.Connection) -> None:
    trained(con, "epochs = 20")
    for shop, found in enumerate(medians(con)):
        minutes = con.execute("SELECT minutes FROM visits WHERE shop = ?", [shop]).fetchnumpy()["minutes"]
        assert abs(found - np.median(minutes)) < 6
        mae, constant = con.execute(
            "SELECT valid_mae, (SELECT 50) FROM m WHERE is_best AND shop = ?", [shop]
        ).fetchall()[0]
        assert mae < 0.6 * constant
    evaluated = con.execute("EVALUATE MODEL m ON visits").fetchall()
    assert len(evaluated) == 3


@pytest.mark.usefixtures("small_blocks")
def test_every_operator_that_can_run_it_does(con: grouplearn.Connection, median: Any) -> None:
    runs = {name: compatibility.runtimes(name, median) for name in OPERATORS}
    assert runs == {
        "group_task_parallel": ("local", "ray"), "model_task_parallel": ("local", "ray"), "gap": ("local", "ray"),
        "mop": ("local", "ray"), "averaging": (), "parameter_server": (), "coordinate_descent": (), "data_parallel": (),
        "switching": (),
    }  # fmt: skip
    whole = trained(con, "operator = 'group_task_parallel', workers = 1")
    where = medians(con)
    for name in (name for name, places in runs.items() if places):
        found = trained(con, f"operator = '{name}', workers = 2")
        assert con.execute("SELECT DISTINCT status FROM m").fetchall() == [("done",)]
        if compatibility.changes_models(name, median):
            np.testing.assert_allclose(medians(con), where, atol=6)
        else:
            assert found == whole


@pytest.mark.usefixtures("small_blocks")
def test_one_that_can_be_averaged_is_averaged_and_pushed(con: grouplearn.Connection, module: Any) -> None:
    """It says which tensors are averaged, and no more: changes of these add up."""
    declaration = replace(module.MedianSgd.declaration, name="averaged_median")
    own = type("Averaged", (module.MedianSgd, AveragingLearner), {"declaration": declaration, "averaged": ("median",)})
    grouplearn.register_learner(own)
    try:
        for options in ("operator = 'averaging'", *(f"operator = 'parameter_server', staleness = {s}" for s in (0, 2))):
            statement = TRAIN.format(options=f"{options}, workers = 2, partitions = 4, epochs = 30")
            con.execute(statement.replace("TRAIN", "TRAIN OR REPLACE").replace("median_sgd", "averaged_median"))
            assert con.execute("SELECT DISTINCT status FROM m").fetchall() == [("done",)]
            whole = [
                con.execute(f"SELECT median(minutes) FROM visits WHERE shop = {shop}").fetchone() for shop in (0, 1, 2)
            ]
            np.testing.assert_allclose(medians(con), [found[0] for found in whole if found], atol=8)
        pushes = con.execute(
            "SELECT max(len(pushes)) FROM grouplearn.units SEMI JOIN grouplearn.models USING (model)"
        ).fetchall()
        assert pushes == [(4 * 30,)]
    finally:
        grouplearn.unregister("averaged_median")


@pytest.mark.parametrize("operator", ["data_parallel", "switching"])
def test_operators_that_cannot_say_why(con: grouplearn.Connection, operator: str) -> None:
    con.execute(
        "DROP TABLE visits; CREATE VIEW visits AS SELECT error('a row was read')::INTEGER AS shop, 1 AS day, 2 AS minutes"
    )
    with pytest.raises(grouplearn.BindError) as error:
        trained(con, f"operator = '{operator}', executor = 'ray'")
    assert str(error.value).startswith(
        f"operator {operator} does not run median_sgd, because several workers cannot train one model of it\n"
    )


def test_workers_import_it(con: grouplearn.Connection) -> None:
    assert trained(con, "executor = 'ray', workers = 2") == trained(con, "executor = 'local'")


def test_a_run_that_is_killed_is_resumed(tmp_path: Path, median: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.duckdb"
    answer(path, TABLE)
    statement = TRAIN.format(options="durable = true, operator = 'group_task_parallel'")
    answer(path, statement)
    undisturbed = answer(path, MODELS)
    answer(path, "DROP MODEL m")
    dies(path, monkeypatch, statement, 1)
    answer(path, "RESUME MODEL m")
    assert answer(path, MODELS) == undisturbed
    answer(path, "DROP MODEL m")
    dies(path, monkeypatch, statement, 1)
    grouplearn.unregister("median_sgd")
    with pytest.raises(grouplearn.BindError, match="the run trains the learner median_sgd, which is not registered"):
        answer(path, "RESUME MODEL m")
    grouplearn.register_learner(median)


def test_a_model_says_so_where_its_learner_is_not_known(tmp_path: Path, median: Any) -> None:
    path = tmp_path / "d.duckdb"
    answer(
        path,
        TABLE,
        TRAIN.format(options="seed = 1"),
        "TRAIN MODEL other USING linear_regression PREDICT minutes FROM visits",
    )
    grouplearn.unregister("median_sgd")
    assert len(answer(path, "FROM m_predict(visits)")) == 1000  # it is SQL alone
    for asked in ("EVALUATE MODEL m ON visits", "SELECT predict('m', visits) FROM visits"):
        with pytest.raises(grouplearn.Error, match="the learner median_sgd, which is not registered in this process"):
            answer(path, asked)
    assert answer(path, "DESCRIBE MODEL m")  # which says so
    assert len(answer(path, "FROM other_predict(visits)")) == 1000
    grouplearn.register_learner(median)
    assert len(answer(path, "EVALUATE MODEL m ON visits")) == 3


@pytest.mark.examples(2)
@pytest.mark.parametrize("kind", ["native", "safetensors", "sql", "onnx"])
def test_it_is_exported(con: grouplearn.Connection, tmp_path: Path, kind: str) -> None:
    trained(con, "seed = 1")
    before = medians(con)
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'm'}' (FORMAT {kind})").fetchall()
    assert [*(tmp_path / "m").iterdir()]
    if kind == "native":
        con.execute("DROP MODEL m")
        con.execute(f"IMPORT MODEL m FROM '{tmp_path / 'm'}'").fetchall()
        assert medians(con) == before


def test_a_class_of_a_script_runs_here_and_is_not_sent(tmp_path: Path) -> None:
    here, elsewhere = TRAIN.format(options="seed = 1"), TRAIN.format(options="executor = 'ray'")
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import grouplearn
{blocks("how-to/models/own-learner.md", "python")[0].code}
if __name__ == "__main__":
    grouplearn.register_learner(MedianSgd)
    con = grouplearn.connect(progress=False)
    con.execute({TABLE!r})
    con.execute({here!r}).fetchall()
    con.execute("DROP MODEL m")
    try:
        con.execute({elsewhere!r}).fetchall()
    except grouplearn.TrainingError as error:
        print(error)
"""
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "the learner median_sgd cannot be sent to worker processes: its class is of __main__\n\nHint: write MedianSgd into a "
        "module that they can import, not into a script or a notebook; or executor = 'local'\n"
    )


# --- what is refused when it is registered -----------------------------------------------------------------------------


class Sums(AlgebraicLearner):
    """The mean."""

    declaration = Declaration(name="sums", summary="the mean", labels=frozenset({NUMBER}))

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        return State({"loss": np.full(len(configs), np.nan)}, np.zeros(len(configs), bool))

    def finalize(self, *_: Any) -> Artifact:
        return Artifact("tensors", {})

    def score(self, *_: Any) -> Any:
        return np.zeros((1, 1))

    def accumulate(self, *_: Any) -> Any:
        return {}

    def merge(self, *_: Any) -> Any:
        return {}

    def step(self, *_: Any) -> Any:
        return State({}, np.ones(1, bool))


def test_a_model_that_is_not_of_the_form_is_none() -> None:
    def finalize(*_: Any) -> Artifact:
        return Artifact("tensors", {"weights": np.zeros((3, 1)), "intercept": np.zeros(2)})

    step = staticmethod(
        lambda problem, configs, state, sums: State({"loss": np.zeros(len(configs))}, np.ones(len(configs), bool))
    )
    scores = staticmethod(lambda problem, configs, state, x: np.zeros((len(x), len(configs), 1)))
    declaration = replace(Sums.declaration, name="misshapen", form="linear")
    changes = {"declaration": declaration, "finalize": finalize, "step": step, "scores": scores}
    grouplearn.register_learner(type("Misshapen", (Sums,), changes))
    try:
        with grouplearn.connect(progress=False) as con:
            con.execute(TABLE)
            con.execute("TRAIN MODEL m USING misshapen PREDICT minutes FEATURES (day, shop) FROM visits")
            assert con.execute("SELECT status, error FROM m").fetchall() == [
                (
                    "failed",
                    "misshapen made a model that is not of its form: its tensor weights is float64[3, 1], not float64[1, 2]",
                )
            ]
    finally:
        grouplearn.unregister("misshapen")


def hyperparameter(**changes: Any) -> Hyperparameter:
    return Hyperparameter(**{"name": "p", "kind": "float", "default": 1.0, "doc": "d", "source": "s", **changes})


def wrong(kind: str, /, **declared: Any) -> type[Sums]:
    return type(kind, (Sums,), {"declaration": replace(Sums.declaration, **declared)})


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": "a-b"}, "its name is an identifier, such as my_unet, got 'a-b'"),
    "case": ({"name": "Sums"}, "its name is in lower case, got 'Sums'"),
    "summary": ({"summary": 3}, "it declares no summary, which is a text"),
    "labels": ({"labels": {"regression"}}, "its labels are a frozenset of Label, got {'regression'}"),
    "epochs": ({"default_epochs": 0}, "its default_epochs are a whole number from 1 on or None, got 0"),
    "form": ({"form": "oval"}, "its form is one of linear, trees, layers, vectors, own, or a Form, got 'oval'"),
    "multiclass": (
        {"form": "linear", "labels": frozenset({SEVERAL_CLASSES})},
        "a linear learner of more than two classes has as_multiclass()",
    ),
    "cost": ({"cost": 3}, "its cost is a Cost, got 3"),
    "requires": ({"requires": "torch"}, "what it requires is a Requirement or None, got 'torch'"),
    "hyperparameters": ({"hyperparameters": ["p"]}, "its hyperparameters are a tuple of Hyperparameter, got ['p']"),
    "twice": (
        {"hyperparameters": (hyperparameter(), hyperparameter())},
        "hyperparameters have lower-case names, each another, got 'p'",
    ),
    "default": ({"hyperparameters": (hyperparameter(low=2.0),)}, "the default is not allowed: p must be >= 2, got 1.0"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_declaration_is_said_at_once(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(grouplearn.ProgrammingError) as error:
        grouplearn.register_learner(wrong("Wrong", **changes))
    assert str(error.value) == f"register_learner: Wrong: {message}"
    assert "sums" not in registry.names()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": AlgebraicLearner.step}, "it has no step()"),
        ({"declaration": "sums"}, "its declaration is a Declaration, got 'sums'"),
    ],
)
def test_what_a_learner_lacks_is_said_at_once(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(grouplearn.ProgrammingError) as error:
        grouplearn.register_learner(type("Wrong", (Sums,), changes))
    assert str(error.value) == f"register_learner: Wrong: {message}"


@pytest.mark.parametrize("lacking", ["gathers", "measure", "solve"])
def test_a_learner_of_stacks_supplies_what_they_need(lacking: str) -> None:
    supplied = {name: lambda *_: {} for name in ("gathers", "measure", "solve") if name != lacking}
    with pytest.raises(grouplearn.ProgrammingError, match=rf"it has no {lacking}\(\)"):
        grouplearn.register_learner(type("Stacked", (Sums, StackLearner), supplied))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (object, "object has to inherit from one of AlgebraicLearner, SequentialLearner, SamplingLearner of"),
        (wrong("Taken", name="gbdt"), '"gbdt" is a built-in learner; choose another name'),
        (type("Bare", (Sums,), {"__init__": lambda self, x: None}), "Bare cannot be made without arguments"),
        (wrong("Option", hyperparameters=(hyperparameter(name="seed"),)), "seed is an option of TRAIN"),
    ],
)
def test_what_is_no_learner_of_ones_own(given: Any, message: str) -> None:
    with pytest.raises(grouplearn.ProgrammingError) as error:
        grouplearn.register_learner(given)
    assert str(error.value).startswith(f"register_learner: {message}")


# --- entry points ------------------------------------------------------------------------------------------------------


@pytest.fixture
def offered(module: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Let packages that are installed offer learners, which nobody has looked at yet."""

    def offer(**named: str) -> None:
        points = [importlib.metadata.EntryPoint(name, value, third_party.GROUP) for name, value in named.items()]
        monkeypatch.setattr(third_party, "entry_points", lambda group: points if group == third_party.GROUP else [])
        monkeypatch.setattr(registry, "_installed", None)

    yield offer
    registry._installed = None


def test_a_package_offers_a_learner(offered: Callable[..., None]) -> None:
    offered(median_sgd="median_sgd:MedianSgd")
    with grouplearn.connect(progress=False) as con:
        con.execute(TABLE)
        trained(con, "seed = 1")
        assert "median_sgd" in [row[0] for row in con.execute("SHOW LEARNERS").fetchall()]
    assert "median_sgd" in registry.names()


def test_a_package_that_is_broken_breaks_no_other(offered: Callable[..., None]) -> None:
    offered(absent="no_such_package.here:Learner", other="median_sgd:MedianSgd", median_sgd="median_sgd:MedianSgd")
    with pytest.warns(UserWarning) as caught:  # noqa: PT030
        names = registry.names()
    assert [str(warning.message) for warning in caught] == [
        'the package no_such_package.here offers the learner "absent", which cannot be used: '
        "ModuleNotFoundError: No module named 'no_such_package'",
        'the package median_sgd offers the learner "other", which cannot be used: '
        "ValueError: median_sgd:MedianSgd calls itself median_sgd",
    ]
    assert names == (*registry.LEARNERS, "median_sgd")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert registry.names() == names


def test_a_package_cannot_take_a_built_in_name(offered: Callable[..., None], module: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module.MedianSgd, "declaration", replace(module.MedianSgd.declaration, name="gbdt"))
    offered(gbdt="median_sgd:MedianSgd")
    with pytest.warns(UserWarning, match='the learner "gbdt" of median_sgd is left out: the name is taken'):
        assert registry.names() == (*registry.LEARNERS,)
