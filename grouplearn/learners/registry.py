"""The learners there are, what must be installed for them, and the values their hyperparameters take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from grouplearn.errors import MissingDependency, data_error
from grouplearn.learners import third_party
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Form, Learner
from grouplearn.learners.contract.problem import Link, Problem, Task
from grouplearn.learners.contract.state import Artifact
from grouplearn.learners.linear.linear_regression import LinearRegression
from grouplearn.learners.linear.linear_svm import LinearSvm
from grouplearn.learners.linear.logistic_regression import LogisticRegression
from grouplearn.learners.linear.poisson_regression import PoissonRegression
from grouplearn.learners.neural.mlp import Mlp
from grouplearn.learners.trees.gbdt import Gbdt
from grouplearn.learners.trees.random_forest import RandomForest
from grouplearn.learners.unsupervised.kmeans import KMeans
from grouplearn.learners.unsupervised.pca import Pca

LEARNERS: Mapping[str, Callable[[], Learner]] = MappingProxyType(
    {
        LinearRegression.name: LinearRegression,
        LogisticRegression.name: LogisticRegression,
        PoissonRegression.name: PoissonRegression,
        LinearSvm.name: LinearSvm,
        Gbdt.name: Gbdt,
        RandomForest.name: RandomForest,
        Mlp.name: Mlp,
        KMeans.name: KMeans,
        Pca.name: Pca,
    }
)


#: Learners of users, networks among them, and of installed packages. The mappings are replaced, never changed: who has read
#: one keeps what it was. Packages are looked at when somebody first asks for more than the built-in learners: None until then.
_own: Mapping[str, Learner] = MappingProxyType({})
_installed: Mapping[str, Learner] | None = None
_looking = threading.RLock()


def names() -> tuple[str, ...]:
    """Return the names of all learners: the built-in ones, those of installed packages, those registered in this process."""
    return (*LEARNERS, *_others())


def _others() -> Mapping[str, Learner]:
    """Return the learners that are not built in; one registered in this process comes before one that is installed."""
    global _installed
    with _looking:
        if _installed is None:
            _installed = MappingProxyType({})  # what a package asks for while it is loaded
            found: dict[str, Learner] = {}
            for each in third_party.installed():
                if each.name in LEARNERS or each.name in found:
                    third_party.warn_taken(each)
                else:
                    found[each.name] = each
            _installed = MappingProxyType(found)
    return {**_installed, **_own}


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
    known = other(name) or learner(name)
    return frozenset(known.link(config, task) for config in configs)


def learner(name: str) -> Learner:
    """Return the learner of that name; KeyError when there is none."""
    return LEARNERS[name]() if name in LEARNERS else _others()[name]


def other(name: str) -> Learner | None:
    """Return the learner of a name, None for a built-in one; DataError when nobody has the name."""
    if name in LEARNERS:
        return None
    if name in _others():
        return _others()[name]
    raise data_error(f"the learner {name} is not registered in this process.\n\nHint: {how_to_register(name)} first")


def misfit(learner: Learner, problem: Problem, artifact: Artifact) -> str | None:
    """Return why a model that was just finished is none of its form: asked of learners that are neither networks nor ours."""
    if learner.name in LEARNERS or learner.functions():
        return None
    return third_party.misfit(learner, problem, artifact)


def how_to_register(name: str) -> str:
    """Return what to do where nobody has the name of a learner."""
    return f"grouplearn.register('{name}', make_module=...), or grouplearn.register_learner(...) of one that is no network,"


def register(learner: Learner) -> None:
    """Make a learner known under its name, instead of the one known before; ValueError when a built-in one has the name."""
    global _own
    if learner.name in LEARNERS:
        raise ValueError(f'"{learner.name}" is a built-in learner; choose another name')
    _own = MappingProxyType({**_own, learner.name: learner})


def unregister(name: str) -> None:
    """Forget a registered learner; KeyError when there is none of that name."""
    global _own
    kept = dict(_own)
    del kept[name]
    _own = MappingProxyType(kept)


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
