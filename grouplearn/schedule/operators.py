"""All operators by name: how each is made, which learners it runs and where, and what its models depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from grouplearn.learners.contract.access import BOOSTING, PASSES, ROUNDS, SUMS, AccessName, AccessPattern
from grouplearn.schedule import closed_forms
from grouplearn.schedule.closed_forms import ClosedForm
from grouplearn.schedule.messages import Operator, Unit
from grouplearn.schedule.mop import mop_rules
from grouplearn.schedule.mop.hopper import Mop
from grouplearn.schedule.options import Contradiction, OperatorOption, no_contradiction
from grouplearn.schedule.plan_rules import PlanRules
from grouplearn.schedule.rounds import round_rules
from grouplearn.schedule.rounds.averaging import Averaging
from grouplearn.schedule.rounds.coordinate_descent import CoordinateDescent
from grouplearn.schedule.rounds.parameter_server import ParameterServer
from grouplearn.schedule.sharded.data_parallel import DataParallel
from grouplearn.schedule.sharded.gap import Gap
from grouplearn.schedule.sharded.switching import Switching
from grouplearn.schedule.task_parallel import GroupTaskParallel, ModelTaskParallel
from grouplearn.schedule.workload import Workload

if TYPE_CHECKING:
    from grouplearn.learners.contract.learner import Learner

RUNTIMES = ("local", "ray")


@dataclass(frozen=True, slots=True)
class RunRules:
    """How an operator runs learners of an access pattern: on which ``runtimes``, none if it does not run them.

    ``reason`` completes "because ...". In ``gangs`` several workers train one model. ``own_models`` differ from the models
    of one worker: such an operator runs only when asked for, never because a machine has more cores. With ``means``, models
    must support averaging.
    """

    runtimes: tuple[str, ...] = RUNTIMES
    reason: str = ""
    gangs: bool = False
    own_models: bool = False
    means: bool = False


@dataclass(frozen=True, slots=True)
class OperatorDeclaration:
    """An operator: its state machine, and how it runs each access pattern.

    ``models_depend_on`` names what its models depend on besides data and options. ``whole``: it runs a unit as a whole, so
    that the order of a group's blocks is independent of other units. ``steady``: it splits units, but the order is equally
    independent, on any number of workers. ``divides``: it splits the rows of every group among workers. Without a
    ``closed_form`` its cost is only simulated. ``plan`` is what plans ask of it.

    ``options`` are options of WITH that only some operators have. ``contradiction`` is asked with all options that a
    statement or SET gives, by name, and with the learner, if it is known. ``searches``: with these options making it takes
    seconds, in which a schedule is searched for. ``prepare`` puts options, given by name and complete, into fields of the
    workload that the operator has of its own, for a number of workers; ``prepared`` returns them from there.
    """

    make: Callable[[Iterable[Unit], Workload], Operator]
    runs: Mapping[AccessName, RunRules] = field(default_factory=lambda: MappingProxyType({}))
    models_depend_on: str = "the number of workers"
    whole: bool = False
    divides: bool = False
    steady: bool = False
    closed_form: ClosedForm | None = None
    options: tuple[OperatorOption, ...] = ()
    contradiction: Callable[[Mapping[str, Any], Learner | None], Contradiction | None] = no_contradiction
    searches: Callable[[Mapping[str, Any]], bool] = lambda _: False
    prepare: Callable[[Workload, Mapping[str, Any], int], Workload] = lambda workload, _, __: workload
    prepared: Callable[[Workload], Mapping[str, Any]] = lambda _: {}
    plan: PlanRules = field(default_factory=PlanRules)

    def how(self, access: AccessPattern) -> RunRules:
        """Return how it runs learners of an access pattern."""
        return self.runs.get(access.name, RunRules())

    def own(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return its own options: as in ``options`` by name, else at their defaults."""
        return {each.name: options.get(each.name, each.default) for each in self.options}

    def unusual(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return its own options that are not at their defaults."""
        return {
            each.name: value for each in self.options if (value := options.get(each.name, each.default)) != each.default
        }

    def accepts_workload(self, workload: Workload, in_batches: bool) -> bool:
        """Return whether options could have prepared the workload, for a learner that says what its batches do or does not."""
        options = self.prepared(workload)
        own = [(each, options[each.name]) for each in self.options if each.name in options]
        return all(each.made(value) and each.suits(value, in_batches) for each, value in own)

    def accepts_options(self, options: Mapping[str, Any], others: Mapping[str, Any], learner: Learner | None) -> bool:
        """Return whether a statement that gives the ``others`` could have left these own options, exactly as checked."""
        declared = {each.name: each for each in self.options}
        if not options.keys() <= declared.keys() or not all(
            declared[name].made(value) for name, value in options.items()
        ):
            return False
        return not options or self.contradiction({**others, **self.unusual(options)}, learner) is None


def _in_gangs(reason: str) -> RunRules:
    """Return rules for gangs, as LightGBM's sums and a network's effective batches depend on the number of workers."""
    return RunRules(("ray",), reason, gangs=True, own_models=True)


def _of_gangs(reason: str) -> Mapping[AccessName, RunRules]:
    return {access.name: _in_gangs(reason) for access in (PASSES, BOOSTING)} | {ROUNDS.name: _STAYS_WHOLE}


_NEVER_AVERAGED = RunRules(
    (), "only models that are trained batch by batch can learn apart from each other and be averaged"
)
_AVERAGED: Mapping[AccessName, RunRules] = {access.name: _NEVER_AVERAGED for access in (SUMS, BOOSTING, ROUNDS)} | {
    PASSES.name: RunRules(own_models=True, means=True)
}
_NEVER_HOPS = RunRules((), "only what trains batch by batch can go from worker to worker between batches")
_NO_ROUNDS = RunRules((), "only what trains one block of columns after the other goes by such rounds")
_STAYS_WHOLE = RunRules((), "each of its rounds takes what the one before made of all rows of a group, on one worker")
OPERATORS: Mapping[str, OperatorDeclaration] = MappingProxyType(
    {
        GroupTaskParallel.name: OperatorDeclaration(
            lambda units, _: GroupTaskParallel(units), whole=True, closed_form=closed_forms.group_task_parallel
        ),
        ModelTaskParallel.name: OperatorDeclaration(
            lambda units, _: ModelTaskParallel(units), whole=True, closed_form=closed_forms.model_task_parallel
        ),
        Gap.name: OperatorDeclaration(
            Gap,
            {
                BOOSTING.name: _in_gangs(
                    "the workers of a split group are processes that exchange the statistics of every tree"
                ),
                ROUNDS.name: _STAYS_WHOLE,
            },
            closed_form=closed_forms.gap,
        ),
        Mop.name: OperatorDeclaration(
            Mop,
            {
                SUMS.name: _NEVER_HOPS,
                BOOSTING.name: _NEVER_HOPS,
                ROUNDS.name: _NEVER_HOPS,
                PASSES.name: RunRules(own_models=True),
            },
            models_depend_on="the order in which they see the rows",
            options=mop_rules.OPTIONS,
            contradiction=mop_rules.contradiction,
            searches=mop_rules.searches,
            prepare=mop_rules.prepare,
            prepared=mop_rules.prepared,
            plan=mop_rules.PLAN,
        ),
        Averaging.name: OperatorDeclaration(
            Averaging,
            _AVERAGED,
            models_depend_on="the number of partitions",
            divides=True,
            steady=True,
            closed_form=closed_forms.averaging,
            options=round_rules.OF_AVERAGING,
            prepare=round_rules.prepare,
            prepared=round_rules.prepared,
            plan=round_rules.AVERAGING,
        ),
        ParameterServer.name: OperatorDeclaration(
            ParameterServer,
            _AVERAGED,
            models_depend_on="the number of partitions and the order of their pushes",
            divides=True,
            closed_form=closed_forms.parameter_server,
            options=round_rules.OF_SERVER,
            contradiction=round_rules.contradiction,
            prepare=round_rules.prepare,
            prepared=round_rules.prepared,
            plan=round_rules.SERVER,
        ),
        CoordinateDescent.name: OperatorDeclaration(
            CoordinateDescent,
            {access.name: _NO_ROUNDS for access in (SUMS, PASSES, BOOSTING)},
            closed_form=closed_forms.coordinate_descent,
            plan=round_rules.DESCENT,
        ),
        DataParallel.name: OperatorDeclaration(
            DataParallel,
            _of_gangs("its workers are processes that talk to each other in every batch or tree"),
            divides=True,
            closed_form=closed_forms.data_parallel,
        ),
        Switching.name: OperatorDeclaration(
            Switching, _of_gangs("it ends in data parallelism, whose workers are processes"), divides=True
        ),
    }
)
#: Options that only some operators have, with these operators.
OWNERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        option.name: tuple(name for name, other in OPERATORS.items() if option in other.options)
        for declared in OPERATORS.values()
        for option in declared.options
    }
)
#: These options by name.
OPTIONS: Mapping[str, OperatorOption] = MappingProxyType(
    {option.name: option for declared in OPERATORS.values() for option in declared.options}
)
#: The operator that others are compared with: it loads every group once, and splits none.
BASELINE = GroupTaskParallel.name
#: Operators that run a unit as a whole.
WHOLE = tuple(name for name, declared in OPERATORS.items() if declared.whole)
#: Operators whose models are the same on any number of workers, and in the rounds of a search as in one long run.
STEADY = tuple(name for name, declared in OPERATORS.items() if declared.whole or declared.steady)


def prepared(workload: Workload, name: str, options: Mapping[str, Any], workers: int) -> Workload:
    """Return the workload with all ``options``; the operator ``name`` (``auto``: none) is prepared for this many workers, and
    others, which are simulated beside it, for those of the workload."""
    for other, declared in sorted(OPERATORS.items(), key=lambda each: each[0] == name):
        workload = declared.prepare(workload, options, workers if other == name else workload.workers)
    return replace(workload, options=own_options(name, options))


def searches(name: str, options: Mapping[str, Any]) -> bool:
    """Return whether making the operator ``name`` (``auto``: none) takes seconds with these ``options``, all by name."""
    return name in OPERATORS and OPERATORS[name].searches(options)


def most_workers(name: str, units: Sequence[Unit], workers: int) -> int:
    """Return how many of ``workers`` can have work at the same time; more need not be started."""
    return max(1, min(workers, len(units))) if OPERATORS[name].whole else workers


def operator(name: str, units: Iterable[Unit], workload: Workload) -> Operator:
    """Return a new state machine of the operator ``name`` (a key of ``OPERATORS``) over ``units``."""
    declared = OPERATORS[name]
    return declared.make(units, replace(workload, options=declared.own(workload.options)))


def own_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return of all ``options`` those of the operator ``name`` (``auto``: none), at their defaults where they are missing."""
    return OPERATORS[name].own(options) if name in OPERATORS else {}
