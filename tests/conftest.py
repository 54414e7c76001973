import collections
import functools
import importlib.util
import itertools
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from helpers import scopes
from helpers.thorough import left_out
from hypothesis import settings
from threadpoolctl import ThreadpoolController

from grouplearn.catalog import schema
from grouplearn.catalog.checks import tables
from grouplearn.plan import packing

# A shell that runs tests in the background has them, and all that they start, ignore Ctrl-C, which some of them press.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where no bytecode may be written, each of the hundreds of processes that are started here would compile every module again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The same examples every time, so that what passes here passes there; GROUPLEARN_EXPLORE=1 looks for new ones.
settings.register_profile("grouplearn", derandomize="GROUPLEARN_EXPLORE" not in os.environ, deadline=None)
settings.load_profile("grouplearn")
# Of itself a later Hypothesis draws numbers that stand in the modules that are loaded, which differ from process to process.
if "GROUPLEARN_EXPLORE" not in os.environ and importlib.util.find_spec("hypothesis.internal.conjecture.providers"):
    providers = importlib.import_module("hypothesis.internal.conjecture.providers")
    if hasattr(providers, "_get_local_constants"):
        providers._get_local_constants = functools.partial(getattr, providers, "_local_constants")

#: The files that take longest: where two run at a time, none of them is to begin when the others have ended.
LONGEST = (
    "slt", "ray_steps", "typed", "every_pair", "forecasts", "docs", "ray_faults", "stock_shell", "durable",
    "durable_runs", "nested", "hostile_files", "expressions", "prediction", "exports", "plain_python", "dbt",
    "names", "magics", "predicting", "rules", "damaged", "ray_neighbours", "faults", "classes", "lists",
    "searching", "outside", "model", "durable_inside", "trust", "coordinate_descent", "other_versions", "ray",
    "kept_models", "stored_rows", "same_model", "channel", "networks", "coordinate_runs", "same_bits", "evaluation",
    "wide_weights", "conformance", "changed_names", "averaging_runs", "interrupts", "own_learners", "pages", "fans",
    "adbc", "gang_members", "snapshots", "wide", "shell", "sql_prediction", "durable_searches", "all_rows",
    "ray_directories", "gather_boosted", "hostile_runs", "damaged_exports", "outliers", "model_names", "end_to_end",
    "looks", "replayed_names", "ray_address", "extract", "own_encoders",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("xdist"):
        config.option.loadscopereorder = False  # which puts the files of few tests last, many of which are the longest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out files, but those that share a cluster as one, and one of many scripts in parts."""
    from xdist.scheduler import LoadFileScheduling

    class ByClusters(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return scopes.scope(nodeid)

    return ByClusters(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    without = set(left_out(items))
    config.hook.pytest_deselected(items=[*without])
    items[:] = [each for each in items if each not in without]
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = {f"test_{name}": at for at, name in enumerate(LONGEST)}
        tests = collections.Counter(item.path for item in items)
        items.sort(key=lambda item: (place.get(item.path.stem, len(place)), -tests[item.path], item.path))


@pytest.fixture(scope="session", autouse=True)
def uncommented() -> Iterator[None]:
    """Leave out what the catalog's tables and columns say of themselves, which is half of a new database's time."""
    text = "\n".join(part for part in tables.creation().splitlines() if not part.startswith("COMMENT ON "))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "creation", lambda: text)
        yield


@pytest.fixture
def commented(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say of new tables what they are, as outside of tests."""
    monkeypatch.setattr(schema, "creation", tables.creation)


#: Where tests look at what users are shown.
AS_SHOWN = ("slt", "project")


@pytest.fixture(scope="module", autouse=True)
def many_units(request: pytest.FixtureRequest) -> Iterator[None]:
    """Cut the groups of small tables into as many units as those of larger ones, so that workers and deaths have some."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name not in AS_SHOWN:
            patch.setattr(packing, "LEAST_GATHERED_VALUES", 1)
        yield


#: Where learners and kernels are called without a run, which would have one thread for each unit.
AS_IN_UNITS = ("learners", "kernels")


@pytest.fixture(scope="session")
def libraries() -> ThreadpoolController:
    return ThreadpoolController()


@pytest.fixture(scope="module", autouse=True)
def one_thread(request: pytest.FixtureRequest, libraries: ThreadpoolController) -> Iterator[None]:
    """Compute as in a unit of a run: several threads wait for each other longer than they work on small matrices."""
    with libraries.limit(limits=1) if request.path.parent.name in AS_IN_UNITS else nullcontext():
        yield


@pytest.fixture(scope="session")
def calibrations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a file that is not there to each test: a directory for each takes longer than many a test."""
    folder = tmp_path_factory.mktemp("calibrations")
    return (folder / f"{number}.json" for number in itertools.count())


@pytest.fixture(autouse=True)
def no_calibration(calibrations: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test plans with the default coefficients, whatever was measured on the machine it runs on."""
    monkeypatch.setenv("GROUPLEARN_CALIBRATION", str(next(calibrations)))
    monkeypatch.setenv("GROUPLEARN_CALIBRATE_RUNS", "off")
