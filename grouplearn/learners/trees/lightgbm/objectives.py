"""LightGBM's objectives: their labels, their links, and the metrics that go with them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.outputs.link import Link

#: The objective of a label when the statement names none.
_OF_TASK: Mapping[Label, str] = {NUMBER: "regression", TWO_CLASSES: "binary", SEVERAL_CLASSES: "multiclass"}


@dataclass(frozen=True, slots=True)
class _Domain:
    """Which numeric labels an objective refuses, with the message; ``not_all_zero``: at least one must not be 0."""

    refuses: Callable[[FloatArray], npt.NDArray[np.bool_]]
    wrong: str
    allowed: str
    not_all_zero: bool = False


_NOT_NEGATIVE = _Domain(lambda y: y < 0, "negative", ">= 0", not_all_zero=True)
_POSITIVE = _Domain(lambda y: y <= 0, "not positive", "> 0")
_SHARES = _Domain(lambda y: (y < 0) | (y > 1), "not between 0 and 1", "shares or probabilities, between 0 and 1")


@dataclass(frozen=True, slots=True)
class LightGBMObjective:
    """An objective: its ``labels``, ``link``, and the ``metric`` that is optimised by default.

    ``roots``: with reg_sqrt it is fitted to the labels' roots. ``renews``: once a tree has grown, its leaves are made anew from
    the labels (medians and the like), which no monotone constraint holds.
    """

    name: str
    labels: frozenset[Label]
    metric: str | None = None
    link: Link = "identity"
    domain: _Domain | None = None
    roots: bool = False
    renews: bool = False


_NUMBERS = frozenset({NUMBER})
OBJECTIVES: Mapping[str, LightGBMObjective] = MappingProxyType(
    {
        objective.name: objective
        for objective in (
            LightGBMObjective("regression", _NUMBERS, roots=True),
            LightGBMObjective("regression_l1", _NUMBERS, "mae", roots=True, renews=True),
            LightGBMObjective("huber", _NUMBERS, "mae"),
            LightGBMObjective("fair", _NUMBERS, "mae", roots=True),
            LightGBMObjective("poisson", _NUMBERS, "poisson_deviance", "exp", _NOT_NEGATIVE),
            LightGBMObjective("quantile", _NUMBERS, "pinball", roots=True, renews=True),
            LightGBMObjective("mape", _NUMBERS, "mape", roots=True, renews=True),
            LightGBMObjective("gamma", _NUMBERS, "gamma_deviance", "exp", _POSITIVE),
            LightGBMObjective("tweedie", _NUMBERS, "tweedie_deviance", "exp", _NOT_NEGATIVE),
            LightGBMObjective("cross_entropy", _NUMBERS, "cross_entropy", "logistic", _SHARES),
            LightGBMObjective("binary", frozenset({TWO_CLASSES}), link="logistic"),
            LightGBMObjective("multiclass", frozenset({SEVERAL_CLASSES}), link="softmax"),
            LightGBMObjective("multiclassova", frozenset({SEVERAL_CLASSES}), link="one_vs_all"),
        )
    }
)

#: Other objectives of LightGBM.
REFUSED = (
    ("lambdarank", "ranking is of queries, and a group here is a model of its own"),
    ("rank_xendcg", "ranking is of queries, and a group here is a model of its own"),
    ("cross_entropy_lambda", "it predicts an intensity and not the label; cross_entropy predicts the label"),
    ("custom", "a loss of one's own is no SQL"),
    ("l1", "it is regression_l1 here"),
    ("mae", "it is regression_l1 here"),
    ("l2", "it is regression here"),
    ("mse", "it is regression here"),
    ("rmse", "it is regression here"),
    ("softmax", "it is multiclass here"),
    ("ova", "it is multiclassova here"),
    ("xentropy", "it is cross_entropy here"),
)

#: Share of the labels' deviation that rounding may change, and share of the largest label below which labels are constant.
_ROUNDED, _ALIKE = 0.02, 1e-14

_IN_TEXT = re.compile(rb"^objective=([^\n]*)$", re.MULTILINE)


def of_config(config: Config) -> LightGBMObjective | None:
    """Return the objective that a config names, None if it depends on the label."""
    name = config.get("objective")
    return None if name is None else OBJECTIVES.get(str(name))


def name_for(problem: Problem, config: Config) -> str:
    """Return LightGBM's objective for a group; always ``binary`` for two classes of a label that has more.

    Raises Diverged if the objective does not fit the label.
    """
    chosen = of_config(config)
    if chosen is None or problem.among_more:
        return _OF_TASK[problem.label]
    if problem.label in chosen.labels:
        return chosen.name
    if problem.label == NUMBER:
        raise Diverged(f"objective = '{chosen.name}' is for classes, and the label is a number")
    if chosen.labels == _NUMBERS:
        raise Diverged(f"objective = '{chosen.name}' is for numbers, and the label has classes")
    other = "binary" if problem.label == TWO_CLASSES else "multiclass or multiclassova"
    count = "two classes" if chosen.name == "binary" else "three classes or more"
    raise Diverged(f"objective = '{chosen.name}' is for {count}, and the label has {problem.n_classes}: use {other}")


def classifies(config: Config) -> bool | None:
    """Return whether a config's objective is for classes; None if it names none."""
    chosen = of_config(config)
    return None if chosen is None else chosen.labels != _NUMBERS


def link(config: Config, label: Label) -> Link:
    """Return the link of sums of leaves; a config whose objective does not fit the label has no model."""
    chosen = of_config(config) or OBJECTIVES[_OF_TASK[label]]
    if label == TWO_CLASSES:
        return "logistic"
    if label == SEVERAL_CLASSES:
        return "one_vs_all" if chosen.link == "one_vs_all" else "softmax"
    return "signed_square" if chosen.roots and _takes_roots(config) else chosen.link


def _takes_roots(config: Config) -> bool:
    return bool(config.get("reg_sqrt", False))


def check_labels(config: Config, runs: Iterable[tuple[FloatArray, FloatArray]]) -> None:
    """Raise Diverged for numeric labels (and weights) that the objective cannot learn, or LightGBM cannot represent."""
    chosen = of_config(config)
    domain = None if chosen is None else chosen.domain
    wrong, any_positive, held = 0, False, _HeldLabels()
    for y, weight in runs:
        counts = weight > 0
        held.add(y[counts])
        wrong += 0 if domain is None else int((domain.refuses(y) & counts).sum())
        any_positive = any_positive or bool((y[counts] > 0).any())
    held.refuse_rounded()
    if chosen is None or domain is None:
        return
    head = f"objective = '{chosen.name}'"
    if wrong:
        rows = f"{wrong} row" + ("" if wrong == 1 else "s")
        raise Diverged(f"the label is {domain.wrong} in {rows}; {head} takes labels that are {domain.allowed}")
    if domain.not_all_zero and not any_positive:
        raise Diverged(f"the label is 0 in all rows, and {head} has no mean to begin with")


#: LightGBM cuts the values of leaves at this.
_MOST = 1e38


class _HeldLabels:
    """Labels as LightGBM holds them, in single precision, compared with the originals."""

    def __init__(self) -> None:
        self._count, self._low, self._high = 0, math.inf, -math.inf
        # Squares are of differences from the first label, so that large similar labels have a variance.
        self._first, self._sum, self._squares, self._errors = 0.0, 0.0, 0.0, 0.0

    def add(self, y: FloatArray) -> None:
        """Add labels."""
        if not y.size:
            return
        self._first = self._first if self._count else float(y[0])
        self._count += y.size
        self._low, self._high = min(self._low, float(y.min())), max(self._high, float(y.max()))
        with np.errstate(all="ignore"):
            apart = y - self._first
            self._sum += float(apart.sum())
            self._squares += float((apart * apart).sum())
            self._errors += float(((y.astype(np.float32) - y) ** 2).sum())

    def refuse_rounded(self) -> None:
        """Raise Diverged if rounding loses the labels or their differences."""
        if not self._count:
            return
        largest, single = max(abs(self._low), abs(self._high)), np.finfo(np.float32)
        if not largest <= _MOST or 0 < largest < single.tiny:
            held = f"of up to {_MOST:g}" if largest > 1 else "in single precision"
            direction = "down" if largest > 1 else "up"
            raise Diverged(f"LightGBM holds labels {held}, and these are up to {largest:.2g}; scale them {direction}")
        deviation = math.sqrt(max(0.0, self._squares / self._count - (self._sum / self._count) ** 2))
        error = math.sqrt(self._errors / self._count)
        # Labels that differ by no more than rounding of sums are constant, and learned as such.
        if deviation > _ALIKE * largest and error > _ROUNDED * deviation:
            raise Diverged(
                f"labels from {self._low:.12g} to {self._high:.12g} lie closer together than single precision, in which"
                f" LightGBM holds them, can tell ({float(np.spacing(np.float32(largest))):.2g} apart there); hint:"
                f" predict how they differ from one number: PREDICT y - {self._low / 2 + self._high / 2:.0f}"
            )


def written(label: Label, n_classes: int) -> tuple[bytes, ...]:
    """Return patterns of the objectives that LightGBM writes for a group's label."""
    several = label == SEVERAL_CLASSES and n_classes != 2
    sigmoid = rb"(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
    if label != NUMBER:
        many = rb"(?:multiclass num_class:%d|multiclassova num_class:%d sigmoid:" % (n_classes, n_classes)
        return (many + sigmoid + rb")",) if several else (rb"binary sigmoid:" + sigmoid,)
    return tuple(
        name.encode() + (rb"(?: sqrt)?" if objective.roots else b"")
        for name, objective in OBJECTIVES.items()
        if objective.labels == _NUMBERS
    )


@dataclass(frozen=True, slots=True)
class WrittenObjective:
    """A model text's objective: the link of its predictions, and the factor of its scores."""

    link: Link
    factor: float = 1.0


def in_text(text: bytes) -> WrittenObjective:
    """Return the objective of a trusted model text."""
    found = _IN_TEXT.search(text)
    words = found[1].decode().split() if found else ["regression"]
    objective = OBJECTIVES[words[0]]
    factor = next((float(word[8:]) for word in words if word.startswith("sigmoid:")), 1.0)
    return WrittenObjective("signed_square" if "sqrt" in words else objective.link, factor)
