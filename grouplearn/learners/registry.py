"""The learners there are, what must be installed for them, and the values their hyperparameters take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from grouplearn.errors import MissingDependency, data_error
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Form, Learner
from grouplearn.learners.contract.problem import Link, Task
from grouplearn.learners.linear.linear_regression import LinearRegression
from grouplearn.learners.linear.linear_svm import LinearSvm
from grouplearn.learners.linear.logistic_regression import LogisticRegression
from grouplearn.learners.linear.poisson_regression import PoissonRegression
from grouplearn.learners.neural.mlp import Mlp
from grouplearn.learners.neural.network import Network
from grouplearn.learners.trees.gbdt import Gbdt
from grouplearn.learners.trees.random_forest import RandomForest

LEARNERS: Mapping[str, Callable[[], Learner]] = MappingProxyType(
    {
        LinearRegression.name: LinearRegression,
        LogisticRegression.name: LogisticRegression,
        PoissonRegression.name: PoissonRegression,
        LinearSvm.name: LinearSvm,
        Gbdt.name: Gbdt,
        RandomForest.name: RandomForest,
        Mlp.name: Mlp,
    }
)


#: The networks that this process registered. The mapping is replaced, never changed: who has read it keeps what it was.
_networks: Mapping[str, Network] = MappingProxyType({})


def names() -> tuple[str, ...]:
    """Return the names of all learners: the built-in ones, and the networks registered in this process."""
    return (*LEARNERS, *_networks)


def form(name: str) -> Form:
    """Return the form of a learner's models, "own" where nobody knows the learner."""
    return learner(name).form if name in names() else "own"


def grows_trees(name: str) -> bool:
    """Return whether a learner's models are LightGBM's."""
    return form(name) == "trees"


def has_linear_leaves(name: str, configs: Sequence[Config]) -> bool:
    """Return whether a learner's models may be trees whose leaves are linear models."""
    return name in names() and any(map(learner(name).linear_leaves, configs))


def links(name: str, configs: Sequence[Config], task: Task) -> frozenset[Link]:
    """Return what scores of a learner with these configs go through to be predictions."""
    known = learner(name)
    return frozenset(known.link(config, task) for config in configs)


def learner(name: str) -> Learner:
    """Return the learner of that name; KeyError when there is none."""
    return _networks[name] if name in _networks else LEARNERS[name]()


def network(name: str) -> Network | None:
    """Return the network registered under a name, None for a built-in learner; DataError when nobody has the name."""
    if name in _networks or name in LEARNERS:
        return _networks.get(name)
    hint = f"grouplearn.register('{name}', make_module=...) first"
    raise data_error(f"the network {name} is not registered in this process.\n\nHint: {hint}")


def register(network: Network) -> None:
    """Make a network known under its name, instead of the one known before; ValueError when a learner has the name."""
    global _networks
    if network.name in LEARNERS:
        raise ValueError(f'"{network.name}" is a built-in learner; choose another name')
    _networks = MappingProxyType({**_networks, network.name: network})


def unregister(name: str) -> None:
    """Forget a network; KeyError when there is none of that name."""
    global _networks
    kept = dict(_networks)
    del kept[name]
    _networks = MappingProxyType(kept)


def is_installed(learner: Learner) -> bool:
    """Return whether the package that the learner needs, if it needs one, is installed."""
    return learner.requires is None or learner.requires.installed


def check_installed(learner: Learner) -> None:
    """Raise MissingDependency, with the exact command, when the package the learner needs is not installed."""
    if learner.requires is None or learner.requires.installed:
        return
    raise MissingDependency(
        f"USING {learner.name} needs the package {learner.requires.package}, which is not installed",
        hint=learner.requires.install_hint,
    )
