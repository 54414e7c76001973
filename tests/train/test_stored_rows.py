"""Rows kept in files: trained a block at a time with the same models, and their pages are given back."""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import runtime_jobs

from grouplearn.data import dataset, encoders, shard
from grouplearn.data.dataset import ARRAYS, Dataset, DatasetFiles, Group, Item
from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.data.shard import StoredShard
from grouplearn.data.split import FINAL
from grouplearn.failures import StatementInterrupted
from grouplearn.kernels.linear import coordinate_descent as kernel
from grouplearn.layout.pages import forget_pages, read_ahead
from grouplearn.learners.trees.lightgbm import binned_data as gbdt_data
from grouplearn.models.label import NUMBER, TWO_CLASSES, Label
from grouplearn.runtime.local import LocalRuntime
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.operators import operator
from grouplearn.schedule.workload import Workload
from grouplearn.train import fit
from grouplearn.train.job import Job, UnitResult
from grouplearn.train.pack import Training
from grouplearn.train.results.checkpoints import Checkpointer, Timer
from grouplearn.train.rows import chosen
from grouplearn.train.rows.prepare import prepare

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

BLOCK, COLUMNS, SIZES = 1024, 32, (20 * 1024 + 300, 700, 500)
BLOCK_BYTES = 8 * BLOCK * COLUMNS
#: What the kernel maps around a page that is read, of which some may be mapped while others are forgotten.
AROUND_BYTES = 64 << 10


def in_memory(label: Label) -> Job:
    rng = np.random.default_rng(5)
    n_rows = sum(SIZES)
    x = rng.normal(size=(n_rows, COLUMNS))
    x[rng.integers(n_rows, size=40), 3] = np.nan
    y = x[:, 0] - x[:, 1] + rng.normal(size=n_rows)
    classes: tuple[str, ...] = ()
    if label == TWO_CLASSES:
        y, classes = np.asarray(y > 0, dtype=np.float64), ("false", "true")
    starts = np.cumsum([0, *SIZES])
    split = np.concatenate([np.arange(size) < size // 10 for size in SIZES])
    weight = rng.integers(0, 4, size=n_rows).astype(float)
    data = runtime_jobs.dataset(x, y, split=split, weight=weight, classes=classes)
    groups = tuple(Group(g, 0, (str(g),), ((int(starts[g]), int(starts[g + 1])),)) for g in range(len(SIZES)))
    items = tuple(Item(f"x{c}", "numeric", c, "zscore" if c == 5 else "none") for c in range(COLUMNS))
    job = runtime_jobs.one_group(data, label, items=items, epochs=4, configs=({"l2": 0.1}, {"l2": 5.0}))
    balanced = "balanced" if label == TWO_CLASSES else None
    return runtime_jobs.changed(
        job, groups=(*groups, Group(3, 1, (None,), ((0, n_rows),))), class_weight=balanced, block_rows=BLOCK
    )


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory(tmp_path / "runs") as made:
        yield made


def stored(job: Job, directory: RunDirectory) -> Job:
    data: Dataset = job.dataset
    for name in ARRAYS:
        array = getattr(data, name)
        directory.array(name, array.shape, array.dtype)[...] = array
    directory.forget_pages()
    files = DatasetFiles(str(directory.path), 0, data.n_rows, data.dictionaries, data.classes)
    return replace(job, dataset=files.open())


def resident_bytes(file: str = "numeric.npy") -> int:
    """Return how much of a mapped file is in memory here; smaps, which tells all of all files, takes ten times as long."""
    found = 0
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pages:
        for line in Path("/proc/self/maps").read_text().splitlines():
            if line.split("/")[-1] == file:
                first, last = (int(address, 16) // mmap.PAGESIZE for address in line.split()[0].split("-"))
                pages.seek(8 * first)
                there = np.frombuffer(pages.read(8 * (last - first)), np.uint64) >> np.uint64(63)
                found += mmap.PAGESIZE * int(there.sum())
    return found


def run(job: Job, name: str, workers: int) -> tuple[UnitResult, ...]:
    units = [Unit(number, group.id, (0, 1), FINAL, 1.0) for number, group in enumerate(job.groups)]
    rows = tuple(group.n_rows for group in job.groups)
    workload = Workload(job.trainer.access.name, rows, workers, job.training.epochs, BLOCK, False)
    return LocalRuntime().run(job, operator(name, units, workload), workers, runtime_jobs.Watcher(), lambda: False)


def models(results: Sequence[UnitResult]) -> list[Any]:
    return [
        (
            trial.config,
            trial.reason,
            trial.train,
            trial.valid,
            {k: v.tobytes() for k, v in trial.artifact.tensors.items()},
        )
        for result in results
        for trial in result.trials
        if trial.artifact is not None
    ]


@pytest.mark.examples(2)
@pytest.mark.parametrize("label", [NUMBER, TWO_CLASSES])
@pytest.mark.parametrize(("name", "workers"), [("group_task_parallel", 1), ("gap", 2)])
def test_a_block_at_a_time_is_in_memory_and_models_are_the_same(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, label: Label, name: str, workers: int
) -> None:
    monkeypatch.setattr(shard, "SUMMED_ROWS", 2 * BLOCK)
    # One worker prepares a group, reading whole columns and then rows, while the other is looked at.
    monkeypatch.setattr(dataset, "_COLUMN_ROWS", BLOCK)
    monkeypatch.setattr(chosen, "BLOCK_ROWS", BLOCK)
    job = in_memory(label)
    expected = models(run(job, name, workers))
    assert len(expected) == 2 * len(job.groups)
    files = stored(job, directory)
    assert isinstance(prepare(files, job.groups[0]).train, StoredShard)
    most, pass_over, encode = [0], fit._learner_sums, encoders.encode

    def spied(*given: Any) -> Any:
        sums = pass_over(*given)
        most.append(resident_bytes())
        return sums

    def encoded(*given: Any) -> Any:
        most.append(resident_bytes())  # preparing encodes, too: its pages are still there
        return encode(*given)

    monkeypatch.setattr(fit, "_learner_sums", spied)
    monkeypatch.setattr(encoders, "encode", encoded)
    assert models(run(files, name, workers)) == expected
    # Of 20 blocks: what the workers look at, and pages that the kernel mapped around them.
    assert max(most) < 6 * BLOCK_BYTES
    # Of two workers, one may map pages around its own that the other has left.
    assert workers > 1 or resident_bytes() <= AROUND_BYTES


#: Few rows place the bins, so that there is something to leave in files.
TREES: dict[str, Any] = {"bin_construct_sample_cnt": 3000, "num_iterations": 4, "min_data_in_leaf": 5}
OTHERS: dict[str, dict[str, Any]] = {
    "other bins": {"max_bin": 31},
    "bagging": {"bagging_fraction": 0.5, "bagging_freq": 1},
    "linear": {"linear_tree": True},
}


def of_trees(label: Label, other: str, metric: str, wide: bool) -> Job:
    """Return a job with categories, a column of nearly all zeros, and one that is missing often."""
    job, rng = in_memory(label), np.random.default_rng(6)
    data = job.dataset
    data.numeric[:, 7] *= rng.random(data.n_rows) < 0.02
    data.numeric[rng.random(data.n_rows) < 0.3, 8] = np.nan
    levels = 600 if wide else 40
    codes = rng.integers(-1, levels, size=(data.n_rows, 1), dtype=np.int32)
    dictionary = tuple(f"c{each:03}" for each in range(levels))
    items = (*job.items, Item("c", "category", 0, "onehot" if wide else "ordinal"))
    configs = (TREES, TREES | OTHERS[other])
    found = replace(data, codes=codes, dictionaries=(dictionary,))
    return runtime_jobs.changed(
        job, learner="gbdt", dataset=found, items=items, configs=configs, metric=metric, epochs=1, patience=2
    )


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("label", "metric", "other", "wide"),
    [
        (NUMBER, "rmse", "other bins", False),
        (NUMBER, "r2", "bagging", True),
        (TWO_CLASSES, "auc", "linear", False),
    ],
)
def test_trees_are_those_of_rows_in_memory(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, label: Label, metric: str, other: str, wide: bool
) -> None:
    monkeypatch.setattr(shard, "SUMMED_ROWS", 2 * BLOCK)
    job = of_trees(label, other, metric, wide)
    expected = runtime_jobs.models(run(job, "group_task_parallel", 1))
    assert [status for _, status, *_ in expected] == ["done"] * 2 * len(job.groups)
    files, most, call = stored(job, directory), [0], gbdt_data.call

    def spied(name: str, *given: Any) -> None:
        call(name, *given)
        if name.startswith("LGBM_DatasetPushRows"):
            most.append(resident_bytes())

    monkeypatch.setattr(gbdt_data, "call", spied)
    assert runtime_jobs.models(run(files, "group_task_parallel", 1)) == expected
    # The largest group and that of all rows have 21 and 22 blocks, of which some pieces are held out.
    assert len(most) > 40
    assert max(most) < 6 * BLOCK_BYTES
    assert resident_bytes() <= AROUND_BYTES


def of_categories(way: dict[str, Any], label: Label, levels: int) -> Job:
    """Return a job with numbers, and two categories, one of them missing now and then."""
    job, rng = in_memory(label), np.random.default_rng(8)
    codes = rng.integers(-1, (levels, 7), size=(job.dataset.n_rows, 2), dtype=np.int32)
    dictionaries = tuple(tuple(f"c{each:03}" for each in range(size)) for size in (levels, 7))
    items = (*job.items[:4], Item("wide", "category", 0, "onehot"), Item("few", "category", 1, "onehot"))
    found = replace(job.dataset, numeric=job.dataset.numeric[:, :4].copy(), codes=codes, dictionaries=dictionaries)
    learner = "logistic_regression" if label == TWO_CLASSES else "linear_regression"
    configs = tuple({**way, **config} for config in job.configs)
    return runtime_jobs.changed(job, learner=learner, dataset=found, items=items, configs=configs)


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("solver", "name", "workers"),
    [
        ("coordinate_descent", "group_task_parallel", 1),
        ("coordinate_descent", "coordinate_descent", 2),
        ("sgd", "group_task_parallel", 1),
        ("sgd", "averaging", 2),
    ],
)
@pytest.mark.parametrize(("label", "levels"), [(TWO_CLASSES, 800), (NUMBER, 20)])
def test_models_of_rounds_and_passes_are_those_of_rows_in_memory(
    directory: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
    *,
    solver: str,
    name: str,
    workers: int,
    label: Label,
    levels: int,
) -> None:
    monkeypatch.setattr(shard, "SUMMED_ROWS", 2 * BLOCK)
    monkeypatch.setattr(dataset, "_COLUMN_ROWS", BLOCK)
    job = of_categories({"solver": solver}, label, levels)
    expected = models(run(job, name, workers))
    assert len(expected) == 2 * len(job.groups)
    files = stored(job, directory)
    most, read = [0], shard.StoredShard.read

    def spied(rows: StoredShard) -> Any:
        found = read(rows)
        most.append(rows.n_rows)
        return found

    monkeypatch.setattr(shard.StoredShard, "read", spied)
    assert models(run(files, name, workers)) == expected
    assert 0 < max(most) <= BLOCK
    assert workers > 1 or resident_bytes("codes.npy") <= AROUND_BYTES  # see above


def test_a_run_goes_on_within_an_epoch_from_rows_in_files_and_in_memory(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A pass over rows in files may take minutes, so that checkpoints are also written between its rounds."""
    monkeypatch.setattr(shard, "SUMMED_ROWS", 2 * BLOCK)
    job = of_categories({"solver": "coordinate_descent"}, TWO_CLASSES, 20)
    job = replace(job, groups=job.groups[:1])
    expected, rounds = models(run(job, "group_task_parallel", 1)), 7
    states = tmp_path / "states"
    states.mkdir()
    for dies_after in (2, rounds, 2 * rounds + 3):
        with monkeypatch.context() as dying:
            dying.setattr(Timer, "due", lambda _: True)
            kept = count_down(dying, dies_after)
            with pytest.raises(StatementInterrupted):
                run(runtime_jobs.changed(stored(job, directory), states=str(states)), "group_task_parallel", 1)
        assert kept[-1].state.tensors["round"][0] == (dies_after - 1) % rounds
        for number, again in enumerate((job, stored(job, directory))):
            found = Path(shutil.copytree(states, tmp_path / f"{dies_after}-{number}"))
            with monkeypatch.context() as without:
                without.delattr(kernel, "survey")  # what begins anew would need it
                assert models(run(runtime_jobs.changed(again, states=str(found)), "group_task_parallel", 1)) == expected
        shutil.rmtree(states)
        states.mkdir()


def count_down(monkeypatch: pytest.MonkeyPatch, left: int) -> list[Training]:
    """Die after some checkpoints, and return them."""
    kept: list[Training] = []
    keep = Checkpointer.keep

    def dies(self: Checkpointer, reached: Callable[[], Training]) -> None:
        keep(self, reached)
        kept.append(reached())
        if len(kept) == left:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpointer, "keep", dies)
    return kept


@pytest.mark.parametrize("solver", ["coordinate_descent", "sgd"])
def test_many_categories_take_a_part_of_the_memory_that_their_codes_would(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, solver: str
) -> None:
    """As rows without their zeros they would take ten times the bytes of their codes."""
    monkeypatch.setattr(shard, "SUMMED_ROWS", 2 * BLOCK)
    monkeypatch.setattr(dataset, "_COLUMN_ROWS", BLOCK)
    job, items, levels = of_categories({"solver": solver}, TWO_CLASSES, 7), 40, 20
    codes = np.random.default_rng(9).integers(0, levels, size=(job.dataset.n_rows, items), dtype=np.int32)
    dictionaries = (tuple(f"c{each:02}" for each in range(levels)),) * items
    data = replace(job.dataset, numeric=np.empty((len(codes), 0)), codes=codes, dictionaries=dictionaries)
    coded = tuple(Item(f"c{column}", "category", column, "onehot") for column in range(items))
    files = stored(runtime_jobs.changed(job, dataset=data, items=coded, epochs=2), directory)
    files, small = (replace(files, groups=files.groups[place : place + 1]) for place in (0, 1))
    run(small, "group_task_parallel", 1)  # what is loaded once
    tracemalloc.start()
    try:
        run(files, "group_task_parallel", 1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * codes.nbytes


@pytest.mark.examples(2)
@pytest.mark.parametrize(("name", "workers"), [("group_task_parallel", 1), ("coordinate_descent", 2)])
@pytest.mark.parametrize("selection", ["cyclic", "greedy"])
def test_the_columns_of_the_next_block_are_read_while_the_present_one_is_worked_on(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, selection: str, name: str, workers: int
) -> None:
    """Before a round what comes in the next one; the first of an epoch, unless it is chosen, when the one before has ended."""
    events: list[tuple[kernel.Cell, str, int]] = []
    read_ahead, pass_over = kernel.Cell.read_ahead, kernel.GroupRounds.pass_over

    def reads(self: kernel.Cell, block: int) -> None:
        if self.stored:
            events.append((self, "read", block))
        read_ahead(self, block)

    def works(self: kernel.GroupRounds, cell: kernel.Cell, moved: Any, block: int | None, *others: Any) -> Any:
        if block is not None:
            events.append((cell, "work", block))
        return pass_over(self, cell, moved, block, *others)

    monkeypatch.setattr(kernel.Cell, "read_ahead", reads)
    monkeypatch.setattr(kernel.GroupRounds, "pass_over", works)
    job = of_categories({"solver": "coordinate_descent", "selection": selection}, TWO_CLASSES, 20)
    monkeypatch.setattr(shard, "SUMMED_ROWS", 2 * BLOCK)
    monkeypatch.setattr(dataset, "_COLUMN_ROWS", BLOCK)
    run(job, name, workers)
    assert not [block for _, what, block in events if what == "read"]
    events.clear()
    run(stored(job, directory), name, workers)
    assert {what for _, what, _ in events} == {"read", "work"}
    for cell in {id(cell): cell for cell, _, _ in events}.values():
        own = [(what, block) for each, what, block in events if each is cell]
        worked = [block for what, block in own if what == "work"]
        assert len(worked) > 2
        late, before, since = 0, set[int](), set[int]()
        for what, block in own:
            if what == "read":
                since.add(block)
                continue
            late += block not in before
            assert selection == "greedy" or block in before | since
            before, since = since, set()
        assert late <= -(-len(worked) // cell.cut.n_blocks)


def test_what_is_read_ahead_is_there_and_nobody_waits_for_the_disk(tmp_path: Path) -> None:
    path, n_bytes = tmp_path / "column", 32 << 20
    path.write_bytes(os.urandom(n_bytes))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        pages = mmap.mmap(file.fileno(), n_bytes, prot=mmap.PROT_READ)
        column = np.frombuffer(pages, np.int32)

        def faults(after: Callable[[], object]) -> int:
            """Return how often the disk was waited for in a look at what was in no memory."""
            forget_pages(column)
            os.posix_fadvise(file.fileno(), 0, n_bytes, os.POSIX_FADV_DONTNEED)
            after()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
            column.sum()
            return resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before

        if not faults(lambda: None):
            pytest.skip("this system keeps files in memory")

        def ahead(seconds: float) -> None:
            read_ahead(column)
            time.sleep(seconds)

        # A disk that others use needs longer. Without reading ahead no time is enough.
        assert any(faults(partial(ahead, seconds)) == 0 for seconds in (0.2, 1.0, 5.0, 20.0))


def test_a_column_is_read_and_forgotten(directory: RunDirectory) -> None:
    job = in_memory(NUMBER)
    data = stored(job, directory).dataset
    for rows in (slice(None), np.arange(3, job.dataset.n_rows, 7)):
        np.testing.assert_array_equal(data.column("numeric", 4, rows), job.dataset.numeric[rows, 4])
    assert resident_bytes() <= AROUND_BYTES
