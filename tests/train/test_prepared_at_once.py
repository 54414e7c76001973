"""Small groups prepared at once are those prepared one by one, to the bit: rows, features, labels, and what is said of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from helpers.runtime_jobs import job_with
from hypothesis import event, given, settings
from hypothesis import strategies as st

from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.data.encoding.categories import category
from grouplearn.data.split import FINAL
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.train.job import Job
from grouplearn.train.rows.prepare import prepare
from grouplearn.train.rows.prepare_stack import Preparation, prepare_stacks
from grouplearn.train.rows.sampled import group_seed
from grouplearn.train.rows.used import GroupFailed

TEXTS = ("a", "b", "c", "d", "e")
LEARNERS = (
    ("linear_regression", NUMBER),
    ("logistic_regression", TWO_CLASSES),
    ("logistic_regression", SEVERAL_CLASSES),
    ("gbdt", TWO_CLASSES),
    ("gbdt", NUMBER),
)
NUMBERS = [
    (encoder, impute, scope)
    for encoder in ("none", "zscore", "minmax")
    for impute in (None, "mean", "median", 2.5)
    for scope in ("group", "all")
]
KINDS = (("category", "onehot"), ("category", "ordinal"), ("hash", "hash"))
CATEGORIES = [(kind, name, scope) for kind, name in KINDS for scope in ("group", "all")]


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Jobs of up to eight groups of up to 30 rows, some with values, labels or weights that are missing or refused."""
    random = np.random.default_rng(draw(st.integers(0, 999)))
    sizes = random.integers(0, 31, draw(st.integers(1, 8)))
    n = int(sizes.sum())
    learner, label = draw(st.sampled_from(LEARNERS))
    numbers = draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=3))
    kinds = draw(st.lists(st.sampled_from(CATEGORIES), max_size=2))
    numeric = np.round(random.normal(size=(n, len(numbers))) * 10.0 ** random.integers(-3, 4), 3)
    codes = random.integers(0, len(TEXTS), (n, len(kinds))) ** 2 // 4
    y = random.normal(size=n) if label == NUMBER else random.integers(0, 2 + (label == SEVERAL_CLASSES), n) * 1.0
    weight = random.choice([0.5, 1.0, 3.0], n)
    for values, odd in ((numeric, np.nan), (numeric, np.inf), (codes, -1), (y, np.nan), (weight, 0.0)):
        if draw(st.booleans()):
            values[random.random(values.shape) < draw(st.sampled_from([0.02, 0.3]))] = odd
    if n and draw(st.integers(0, 4)) == 0:
        refused = [(y, np.inf), (weight, -1.0), (weight, np.nan), (weight, np.inf)]
        array, odd = draw(st.sampled_from([*refused, *[(y, 1e-200)] * (label == NUMBER)]))
        array[random.integers(n)] = odd
    folds = draw(st.sampled_from([0, 0, 3]))
    starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    items = [Item(f"x{place}", "numeric", place, *each) for place, each in enumerate(numbers)]
    for place, (kind, name, scope) in enumerate(kinds):
        items.append(Item(f"c{place}", kind, place, name, None, scope, len(TEXTS) * (kind == "hash")))
    data = Dataset(
        numeric.astype(draw(st.sampled_from([np.float32, np.float64]))),
        codes.astype(np.int32),
        y,
        weight,
        random.integers(0, folds or 2, n).astype(np.int16),
        tuple(TEXTS if kind == "category" else () for kind, *_ in kinds),
        () if label == NUMBER else TEXTS[: 2 + (label == SEVERAL_CLASSES)],
    )
    fitted = {number: encoders.fit(item, data, slice(None)) for number, item in enumerate(items) if item.scope == "all"}
    weights = [None] if label == NUMBER else [None, "balanced", {0: 2.0}]
    rules: dict[str, Any] = {
        "class_weight": draw(st.sampled_from(weights)),
        "min_rows": draw(st.sampled_from([1, 5])),
        "folds": folds,
        "holds_out": draw(st.booleans()),
    }
    return job_with(
        learner=learner,
        label=label,
        configs=({},),
        items=tuple(items),
        groups=tuple(
            Group(number, 0, (str(number),), ((start, stop),))
            for number, (start, stop) in enumerate(itertools.pairwise(starts))
        ),
        dataset=data,
        fitted=fitted,
        metric="rmse" if label == NUMBER else "log_loss",
        epochs=5,
        seed=3,
        null_label=draw(st.sampled_from(["skip", "error"])),
        **rules,
    )


def together(found: Preparation) -> dict[int, Any]:
    """Return what is known of every group, whichever stack it is in."""
    groups: dict[int, Any] = {place: str(reason) for place, reason in found.failed.items()}
    groups |= dict.fromkeys(found.alone, "alone")
    for stack in found.stacks:
        for at, place in enumerate(stack.members):
            rows = {
                name: plain(*(part[slice(*each.start[at : at + 2])] for part in (each.x, each.y, each.weight)))
                for name, each in (("train", stack.train), ("valid", stack.valid))
                if each is not None and each.start[at] < each.start[at + 1]
            }
            seed = None if stack.train.seed is None else int(stack.train.seed[at])
            unweighted = stack.row_weight[slice(*stack.train.start[at : at + 2])].tolist()
            groups[place] = repr((stack.facts[at], rows, unweighted, replace(stack.problem, seed=0), seed))
    return groups


def one_by_one(a_job: Job, group: Group, fold: int) -> Any:
    """Return the same of a group that is prepared alone."""
    try:
        prepared = prepare(a_job, group, fold)
    except GroupFailed as failure:
        return str(failure)
    learner: Any = a_job.trainer
    if not isinstance(prepared.train.read().x, np.ndarray) or not learner.gathers(prepared.problem, a_job.configs):
        return "alone"
    parts = {name: part.read() for name, part in (("train", prepared.train), ("valid", prepared.valid)) if part}
    rows = {name: plain(part.x, part.y, part.weight) for name, part in parts.items()}
    seed = group_seed(a_job.training.seed, group) if learner.declaration.draws else None
    problem = replace(prepared.problem, seed=0)
    return repr((prepared.facts, rows, prepared.judged.labels()[1].tolist(), problem, seed))


def plain(*arrays: Any) -> list[Any]:
    return [(each.dtype.str, each.tolist()) for each in arrays]


@settings(max_examples=150)
@given(jobs(), st.sampled_from([0, 16]))
def test_groups_prepared_at_once_are_those_prepared_one_by_one(a_job: Job, most_in_table: int) -> None:
    fold = 1 if a_job.split.folds else FINAL
    with patch.object(category, "_TABLE", most_in_table):
        found = prepare_stacks(a_job, a_job.groups, fold)
    event(f"{len(found.stacks)} stacks, {len(found.alone)} alone, {len(found.failed)} failed")
    assert together(found) == {place: one_by_one(a_job, group, fold) for place, group in enumerate(a_job.groups)}


def test_usual_groups_with_missing_values_are_prepared_at_once() -> None:
    """What is slow for many groups is not for a NULL here and there, or encoders that are fitted on each."""
    random = np.random.default_rng(5)
    n = 400
    numeric, codes, y = random.normal(size=(n, 2)), random.integers(-1, 5, (n, 2)), random.integers(0, 2, n) * 1.0
    numeric[::9, 0], numeric[::11, 1], y[::13] = np.nan, np.nan, np.nan
    items = (
        Item("x0", "numeric", 0, "zscore", "mean"),
        Item("x1", "numeric", 1),
        Item("c0", "category", 0, "onehot"),
        Item("c1", "category", 1, "ordinal"),
    )
    data = Dataset(numeric, codes.astype(np.int32), y, np.ones(n), np.zeros(n, np.int16), (TEXTS, TEXTS), ("f", "t"))
    groups = tuple(Group(number, 0, (str(number),), ((number * 50, number * 50 + 50),)) for number in range(8))
    a_job = job_with(
        learner="logistic_regression", label=TWO_CLASSES, configs=({},), items=items, groups=groups, dataset=data,
        metric="log_loss", epochs=5, seed=3,
    )  # fmt: skip
    found = prepare_stacks(a_job, groups)
    assert sorted(place for stack in found.stacks for place in stack.members) == [*range(8)]
    assert sum(facts.n_skipped for stack in found.stacks for facts in stack.facts) > 50
