"""No room but learners, models and schedule asks which learner, metric or operator it has: it asks what that declares."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest

import grouplearn
from grouplearn.learners import registry
from grouplearn.learners.contract import access
from grouplearn.schedule import averages, workload
from grouplearn.schedule.messages import StepKind
from grouplearn.schedule.operators import OPERATORS, OPTIONS
from grouplearn.schedule.options import OperatorOption

PACKAGE = Path(grouplearn.__file__).parent
#: Where they are at home.
ROOMS = ("learners", "models", "schedule")
#: Why a file may do so all the same.
ALLOWED = {
    "kernels/clusters/clustering.py": "inertia is a sum of its passes",
    "learning.py": "what learners of packages import",
    "kernels/metrics.py": "which metrics it computes of linear models of many groups in one call",
}


@dataclass(frozen=True)
class Rule:
    """What code may not contain: ``names`` of Python, texts that are nothing but one of ``words``, and ``fields`` of objects,
    which are read and not called."""

    what: str
    names: frozenset[str]
    words: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()


RULES = (
    Rule(
        "an access pattern",
        frozenset({"Access", "AccessPattern", "AccessName"}),
        frozenset(p.name for p in access.PATTERNS),
    ),
    Rule(
        "an access pattern",
        frozenset(name for name, value in vars(access).items() if value in (*access.PATTERNS, access.PATTERNS)),
    ),
    Rule("a label", frozenset({"TWO_CLASSES", "SEVERAL_CLASSES", "CLUSTERING", "PROJECTION"})),
    Rule(
        "a learner",
        frozenset(type(learner).__name__ for learner in registry.LEARNERS.values()),
        frozenset(registry.LEARNERS),
    ),
    Rule(
        "a metric",
        frozenset(),
        frozenset(each.name for _, output in registry.outputs() for each in output.metrics.metrics),
    ),
    Rule("an output", frozenset({"Clusters", "Projection", "TwoClasses", "SeveralClasses"})),
    Rule(
        "an operator",
        frozenset(declared.make.__name__ for declared in OPERATORS.values()) - {"<lambda>"},
        frozenset(OPERATORS) - {"gap"},  # which is a class of CSS, too
    ),
    Rule(
        "an operator's option",
        frozenset(
            name for room in (averages, workload) for name, value in vars(room).items() if type(value) is OperatorOption
        ),
        frozenset(OPTIONS) - frozenset(get_args(StepKind)),
        frozenset(OPTIONS),
    ),
)


def findings(source: str) -> Iterator[str]:
    """Yield what of the rules a module breaks, and where; docstrings and messages may say anything."""
    tree = ast.parse(source)
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        named = {ast.Attribute: "attr", ast.alias: "name"}.get(type(node))  # nothing has a name that is not imported
        for rule in RULES:
            if named and getattr(node, named) in rule.names:
                yield f"line {getattr(node, 'lineno', '?')} names {rule.what}: {getattr(node, named)}"
            if isinstance(node, ast.Attribute) and node.attr in rule.fields and node not in called:
                yield f"line {node.lineno} reads {rule.what}: {ast.unparse(node)}"
            if isinstance(node, ast.Constant) and node.value in rule.words:
                yield f"line {node.lineno} names {rule.what}: {node.value!r}"
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            kinds = [part for part in ast.walk(node.args[1]) if getattr(part, "id", "").endswith("Learner")]
            if kinds:
                yield f"line {node.lineno} asks for a learner's protocol: {ast.unparse(node)}"


def modules() -> list[str]:
    found = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    return sorted(str(path) for path in found if path.parts[0] not in (*ROOMS, "sql", "udfs"))


def test_nobody_else_asks_which_learner_or_access_pattern_there_is() -> None:
    broken = {
        path: said
        for path in modules()
        if (said := [*findings((PACKAGE / path).read_text(encoding="utf-8"))]) and path not in ALLOWED
    }
    assert broken == {}


def test_what_is_allowed_is_there() -> None:
    there = modules()
    assert [
        path for path in ALLOWED if path not in there or not [*findings((PACKAGE / path).read_text(encoding="utf-8"))]
    ] == []


@pytest.mark.parametrize(
    "planted",
    [
        "if learner.access.name == 'sequential': pass",
        "from grouplearn.learners.contract.access import SUMS",
        "print(access.AccessPattern)",
        "if definition.learner == 'gbdt': pass",
        "from grouplearn.models.label import SEVERAL_CLASSES",
        "from grouplearn.learners.neural.mlp import Mlp",
        "run['operator'] = 'mop'",
        "if options['staleness']: pass",
        "from grouplearn.models.outputs.classes import SeveralClasses",
        "most = max(workers, workload.averages.partitions)",
        "given = options.of_operators[averages.PARTITIONS.name]",
        "from grouplearn.schedule.workload import SCHEDULER as first",
        "from grouplearn.schedule.mop.hopper import Mop",
        "return {'rmse': 'sqrt(square / total)'}",
        "isinstance(learner, (int, MomentsLearner))",
    ],
)
def test_a_planted_use_is_found(planted: str) -> None:
    assert len([*findings(planted)]) == 1


def test_what_is_called_is_no_option() -> None:
    """A channel sends, and a learner reduces."""
    assert [*findings("channel.send(learner.reduce(parts))")] == []


def test_texts_for_people_may_name_learners() -> None:
    assert [*findings('"""As gbdt does."""\nhint = "Use a network, such as mlp."')] == []
