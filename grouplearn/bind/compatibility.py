"""Which operator runs which learner where: one table, asked before any row is read."""

from __future__ import annotations

from dataclasses import dataclass

from grouplearn.learners.contract.problem import Access

RUNTIMES = ("local", "ray")


@dataclass(frozen=True, slots=True)
class Rule:
    """An operator runs learners of these access patterns on these runtimes only; ``reason`` finishes "because ..."."""

    operator: str
    access: frozenset[Access]
    runtimes: tuple[str, ...]
    reason: str


#: What is not listed is legal. An operator that cannot run an access pattern at all has a rule without runtimes.
RULES: tuple[Rule, ...] = (
    Rule(
        "data_parallel",
        frozenset({Access.SEQUENTIAL, Access.SAMPLING}),
        ("ray",),
        "its workers are processes that talk to each other in every batch or tree",
    ),
    Rule(
        "gap",
        frozenset({Access.SAMPLING}),
        ("ray",),
        "the workers of a split group are processes that exchange the statistics of every tree",
    ),
    Rule(
        "mop",
        frozenset({Access.ALGEBRAIC, Access.SAMPLING}),
        (),
        "only a network, which trains batch by batch, can go from worker to worker between batches",
    ),
    Rule(
        "switching",
        frozenset({Access.SEQUENTIAL, Access.SAMPLING}),
        ("ray",),
        "it ends in data parallelism, whose workers are processes",
    ),
)


#: Operators whose models depend on the number of workers: LightGBM's sums and a network's effective batches do, and the order
#: in which a hopping network sees the rows. They run when they are asked for, never because a machine has more cores.
_OWN_MODELS = frozenset(
    {
        ("gap", Access.SAMPLING),
        ("mop", Access.SEQUENTIAL),
        *(
            (operator, access)
            for operator in ("data_parallel", "switching")
            for access in (Access.SAMPLING, Access.SEQUENTIAL)
        ),
    }
)


def changes_models(operator: str, access: Access) -> bool:
    """Return whether the operator's models of such learners are others than one worker's."""
    return (operator, access) in _OWN_MODELS


def depends_on(operator: str) -> str:
    """Return what the models of an operator that changes them depend on."""
    return "the order in which they see the rows" if operator == "mop" else "the number of workers"


def runtimes(operator: str, access: Access) -> tuple[str, ...]:
    """Return the runtimes on which the operator runs learners of this access pattern, none if it never does."""
    rule = _rule(operator, access)
    return rule.runtimes if rule else RUNTIMES


def refusal(operator: str, access: Access, executor: str) -> str | None:
    """Return why the operator cannot run such learners there (``auto``: anywhere), as a message, or None if it can."""
    rule = _rule(operator, access)
    if rule is None or executor in rule.runtimes or (executor == "auto" and rule.runtimes):
        return None
    if not rule.runtimes:
        return f"operator {operator} does not run learners that train on {access.words}, because {rule.reason}"
    places = " or ".join(f"'{name}'" for name in rule.runtimes)
    what = f"learners that train on {access.words}"
    return f"operator {operator} runs {what} with executor = {places} only, because {rule.reason}"


def remedy(operator: str, access: Access) -> str | None:
    """Return what to write where RETRY or RESUME would go on in this process and the operator cannot."""
    if "ray" not in runtimes(operator, access):
        return None
    return "WITH (executor = 'ray') starts other processes, and SET grouplearn_trust = true does what the file says."


def _rule(operator: str, access: Access) -> Rule | None:
    return next((rule for rule in RULES if rule.operator == operator and access in rule.access), None)
