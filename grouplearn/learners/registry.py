"""All learners, the packages they need, and the values of their hyperparameters."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from grouplearn.failures import NotInstalled, WrongData
from grouplearn.learners import third_party
from grouplearn.learners.contract.config import SOLVER, Config
from grouplearn.learners.contract.learner import OVER_LAGS, Learner
from grouplearn.learners.contract.optional import GrowsTrees
from grouplearn.learners.contract.problem import FeatureBlock
from grouplearn.learners.contract.standard_errors import HasStandardErrors
from grouplearn.learners.linear import learners as linear
from grouplearn.learners.neural.mlp import Mlp
from grouplearn.learners.series.deep.deepar import DeepAr
from grouplearn.learners.series.lagged.learner import Lagged
from grouplearn.learners.series.learners import LEARNERS as SERIES
from grouplearn.learners.trees.gbdt import Gbdt
from grouplearn.learners.trees.random_forest import RandomForest
from grouplearn.learners.unsupervised.kmeans import KMeans
from grouplearn.learners.unsupervised.pca import Pca
from grouplearn.learners.unsupervised.sketched_pca import SketchedPca
from grouplearn.models.label import Label
from grouplearn.models.metrics.metric import Family
from grouplearn.models.outputs.link import Link
from grouplearn.models.outputs.output import Output
from grouplearn.models.outputs.outputs import OUTPUTS, output_of

_OF_ROWS: tuple[Learner, ...] = (*linear.LEARNERS, Gbdt(), RandomForest(), Mlp())
LEARNERS: Mapping[str, Learner] = MappingProxyType(
    {
        each.declaration.name: each
        for each in (
            *_OF_ROWS,
            KMeans(),
            Pca((SketchedPca(),)),
            *SERIES,
            DeepAr(),
        )
    }
)
#: The learners of series that statements with ORDER BY mean by a learner of rows.
_OVER_LAGS: Mapping[str, Learner] = MappingProxyType(
    {each.declaration.stored_name: each for each in map(Lagged, _OF_ROWS) if each.base.declaration.regresses}
)

#: Registered learners, networks included, and those of installed packages. The mappings are replaced, never changed, so
#: readers keep what they have. Packages are searched when something other than a built-in learner is first needed; None
#: until then.
_own: Mapping[str, Learner] = MappingProxyType({})
_installed: Mapping[str, Learner] | None = None
_looking = threading.RLock()


def names() -> tuple[str, ...]:
    """Return the names of all learners: the built-in ones, those of installed packages, those registered in this process."""
    return (*LEARNERS, *_others())


def of_series(name: str) -> Learner | None:
    """Return the learner of series that a learner of rows makes over earlier values; None if there is none."""
    return _OVER_LAGS.get(f"{OVER_LAGS}{name}")


def is_known(name: str) -> bool:
    """Return whether a learner of that name exists; installed packages are not searched for a built-in one."""
    return _is_built_in(name) or name in _others()


def _is_built_in(name: str) -> bool:
    return name in LEARNERS or name in _OVER_LAGS


def _others() -> Mapping[str, Learner]:
    """Return the learners that are not built in; registered ones take precedence over installed ones."""
    global _installed
    with _looking:
        if _installed is None:
            _installed = MappingProxyType({})  # for calls from packages while they are loaded
            found: dict[str, Learner] = {}
            for each in third_party.installed():
                if _is_built_in(each.declaration.name) or each.declaration.name in found:
                    third_party.warn_taken(each)
                else:
                    found[each.declaration.name] = each
            _installed = MappingProxyType(found)
    return {**_installed, **_own}


def output(name: str, label: Label, classes: Sequence[str], label_type: str) -> Output:
    """Return the form of a learner's predictions for a label with ``classes``, of a type; that of the label if it is unknown."""
    return output_of(_output_class(name, label).of(classes, label_type), label_type)


def outputs() -> Iterator[tuple[Label, type[Output]]]:
    """Yield the class of predictions of each label, the usual one first, then those that learners declare."""
    yield from OUTPUTS.items()
    for name in names():
        own = learner(name).declaration
        if own.output is not None:
            yield from ((label, own.output) for label in own.labels)


def family_of(name: str, label: Label) -> Family:
    """Return the metrics of a learner's models."""
    return _output_class(name, label).metrics


def _output_class(name: str, label: Label) -> type[Output]:
    return output_class(learner(name), label) if is_known(name) else OUTPUTS[label]


def output_class(learner: Learner, label: Label) -> type[Output]:
    """Return the class of a learner's predictions for a label; KeyError for a label that it cannot have."""
    own: type[Output] | None = learner.declaration.output
    return OUTPUTS[label] if own is None else own


def has_linear_leaves(name: str, configs: Sequence[Config]) -> bool:
    """Return whether a learner's models may be trees with linear leaves."""
    known = learner(name) if is_known(name) else None
    return isinstance(known, GrowsTrees) and any(map(known.has_linear_leaves, configs))


def links(name: str, configs: Sequence[Config], label: Label) -> frozenset[Link]:
    """Return the links of a learner's scores with these configs."""
    known = other(name, configs) or way(name, configs)
    return frozenset(known.link(config, label) for config in configs)


def learner(name: str) -> Learner:
    """Return the learner of that name; KeyError when there is none."""
    built_in = LEARNERS.get(name) or _OVER_LAGS.get(name)
    return built_in or _others()[name]


def ways(learner: Learner) -> tuple[Learner, ...]:
    """Return the ways of a learner, the default first."""
    return (learner, *learner.declaration.further_ways)


def way_within(
    learner: Learner, config: Config, blocks: Sequence[FeatureBlock], outputs: int, most: int
) -> tuple[str, int] | None:
    """Return the solver of the first way that trains a config on these columns with at most this many numbers in memory,
    and its number; None if no way does."""
    every = ways(LEARNERS[learner.declaration.stored_name]) if learner.declaration.stored_name in LEARNERS else ()
    found = ((each.declaration.solver, each.cost.most_values(config, blocks, outputs)) for each in every)
    return next((each for each in found if each[1] <= most), None)


def way(name: str, configs: Sequence[Config]) -> Learner:
    """Return the way that trains these configurations, which all name the same; KeyError for an unknown learner."""
    return _chosen(learner(name), configs)


def _chosen(first: Learner, configs: Sequence[Config]) -> Learner:
    solver = next((config[SOLVER] for config in configs if SOLVER in config), None)
    if solver is None:
        return first
    return next((each for each in ways(first)[1:] if each.declaration.solver == solver), first)


def has_standard_errors(name: str, configs: Sequence[Config]) -> bool:
    """Return whether the weights of any of these configurations have standard errors."""
    trainer = way(name, configs)
    if not trainer.declaration.has_standard_errors:
        return False
    return any(map(cast(HasStandardErrors, trainer).is_estimate, configs))


def every_way() -> tuple[Learner, ...]:
    """Return all ways of all learners."""
    return tuple(way for name in names() for way in ways(learner(name)))


def by_way(way: str) -> Learner | None:
    """Return the learner whose ``Learner.way`` is this; None if there is none."""
    name = way.split(" ", 1)[0]
    found = ways(learner(name)) if is_known(name) else ()
    return next((each for each in found if each.way == way), None)


def other(name: str, configs: Sequence[Config] = ()) -> Learner | None:
    """Return the learner of a name that trains such configurations, None for a built-in one; DataError if unknown."""
    if _is_built_in(name):
        return None
    if name in _others():
        return _chosen(_others()[name], configs)
    raise WrongData(f"the learner {name} is not registered in this process.\n\nHint: {how_to_register(name)} first")


def how_to_register(name: str) -> str:
    """Return the advice for an unknown learner's name."""
    return f"grouplearn.register('{name}', make_module=...), or grouplearn.register_learner(...) of one that is no network,"


def register(learner: Learner) -> None:
    """Register a learner under its name, replacing an earlier one; ValueError if a built-in one has the name."""
    global _own
    if _is_built_in(learner.declaration.name):
        raise ValueError(f'"{learner.declaration.name}" is a built-in learner; choose another name')
    _own = MappingProxyType({**_own, learner.declaration.name: learner})


def unregister(name: str) -> None:
    """Remove a registered learner; KeyError for an unknown name."""
    global _own
    kept = dict(_own)
    del kept[name]
    _own = MappingProxyType(kept)


def is_installed(learner: Learner) -> bool:
    """Return whether the package that the learner needs, if any, is installed."""
    needed = learner.declaration.requires
    return needed is None or needed.installed


def check_installed(learner: Learner) -> None:
    """Raise NotInstalled, with the exact command, when the package the learner needs is not installed."""
    needed = learner.declaration.requires
    if needed is None or needed.installed:
        return
    raise NotInstalled(
        f"USING {learner.declaration.name} needs the package {needed.package}, which is not installed",
        hint=needed.install_hint,
    )
