"""The list of learners, what they need installed, and the values of hyperparameters."""

import math
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from grouplearn.failures import NotInstalled
from grouplearn.learners import registry
from grouplearn.learners.contract import hyperparameter_values
from grouplearn.learners.contract.config import Hyperparameter
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.requirement import Requirement
from grouplearn.learners.trees.gbdt import Gbdt


def parameter(kind, name="p", **limits):
    return Hyperparameter(name, kind, None, "doc", "source", **limits)


L1 = parameter("float", "l1", low=0)
RATE = parameter("float", "learning_rate", low=0, open_low=True)
SHARE = parameter("float", "share", low=0, high=1, open_low=True)
DROPOUT = parameter("float", "dropout", low=0, high=0.95)
STEP = parameter("float", "max_delta_step")
LEAVES = parameter("int", "num_leaves", low=2, high=131072)
ROUNDS = parameter("int", "num_iterations", low=1)
FLAG = parameter("bool", "extra_trees")
OPTIMIZER = parameter("str", "optimizer", choices=("adam", "sgd"))
LAYERS = parameter("ints", "hidden_layers", low=1, nullable=True)


@pytest.mark.parametrize(
    ("hyperparameter", "value", "expected"),
    [
        (L1, 1, 1.0),
        (L1, 0, 0.0),
        (L1, Decimal("0.05"), 0.05),
        (L1, np.float32(0.5), 0.5),
        (L1, np.int64(3), 3.0),
        (STEP, -2.5, -2.5),
        (SHARE, 1, 1.0),
        (LEAVES, 3.0, 3),
        (LEAVES, Decimal("31"), 31),
        (LEAVES, np.int32(31), 31),
        (LEAVES, 131072, 131072),
        (FLAG, True, True),
        (FLAG, np.bool_(False), False),
        (OPTIMIZER, "SGD", "sgd"),
        (LAYERS, [64, 32], (64, 32)),
        (LAYERS, (8.0,), (8,)),
        (LAYERS, np.array([5, 6]), (5, 6)),
        (LAYERS, 16, (16,)),
        (LAYERS, [], ()),
        (LAYERS, None, None),
    ],
)
def test_values_become_the_type_of_the_hyperparameter(hyperparameter, value, expected):
    resolved = hyperparameter_values.resolve(hyperparameter, value)
    assert resolved == expected
    assert type(resolved) is type(expected)


@pytest.mark.parametrize(
    ("hyperparameter", "value", "message"),
    [
        (L1, -1, "l1 must be >= 0, got -1"),
        (L1, Decimal("-0.5"), "l1 must be >= 0, got -0.5"),
        (L1, "much", "l1 must be a number >= 0, got 'much'"),
        (L1, None, "l1 must be a number >= 0, got NULL"),
        (L1, True, "l1 must be a number >= 0, got true"),
        (L1, math.nan, "l1 must be a number >= 0, got nan"),
        (L1, math.inf, "l1 must be a number >= 0, got inf"),
        (L1, [1, 2], "l1 must be a number >= 0, got [1, 2]"),
        (RATE, 0, "learning_rate must be > 0, got 0"),
        (SHARE, 0, "share must be > 0 and <= 1, got 0"),
        (SHARE, 1.5, "share must be > 0 and <= 1, got 1.5"),
        (DROPOUT, 1, "dropout must be between 0 and 0.95, got 1"),
        (STEP, "x", "max_delta_step must be a number, got 'x'"),
        (LEAVES, 2.5, "num_leaves must be an integer between 2 and 131072, got 2.5"),
        (LEAVES, 1, "num_leaves must be an integer between 2 and 131072, got 1"),
        (LEAVES, 131073, "num_leaves must be an integer between 2 and 131072, got 131073"),
        (LEAVES, math.inf, "num_leaves must be an integer between 2 and 131072, got inf"),
        (LEAVES, "31", "num_leaves must be an integer between 2 and 131072, got '31'"),
        (LEAVES, False, "num_leaves must be an integer between 2 and 131072, got false"),
        (ROUNDS, 0, "num_iterations must be an integer >= 1, got 0"),
        (FLAG, 1, "extra_trees must be true or false, got 1"),
        (FLAG, "true", "extra_trees must be true or false, got 'true'"),
        (OPTIMIZER, "sdg", "optimizer must be one of adam, sgd, got 'sdg'"),
        (OPTIMIZER, 3, "optimizer must be one of adam, sgd, got 3"),
        (LAYERS, [8, 0], "hidden_layers must be a list of integers >= 1, got [8, 0]"),
        (LAYERS, [8, "x"], "hidden_layers must be a list of integers >= 1, got [8, 'x']"),
        (LAYERS, "8", "hidden_layers must be a list of integers >= 1, got '8'"),
        (LAYERS, [8, None], "hidden_layers must be a list of integers >= 1, got [8, NULL]"),
    ],
)
def test_what_is_not_allowed_is_said(hyperparameter, value, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        hyperparameter_values.resolve(hyperparameter, value)
    assert str(caught.value) == message


def test_every_learner_is_listed_under_its_name_and_declares_itself():
    assert "linear_regression" in registry.names()
    for name in registry.names():
        learner = registry.learner(name)
        assert isinstance(learner, Learner)
        assert learner.declaration.name == name
        names = [parameter.name for parameter in learner.declaration.hyperparameters]
        assert len(names) == len(set(names))
        for each in learner.declaration.hyperparameters:
            assert each.doc
            assert each.source
            assert hyperparameter_values.resolve(each, each.default) == each.default


def test_an_unknown_learner_is_a_key_error():
    with pytest.raises(KeyError):
        registry.learner("oracle")


def test_a_missing_package_names_the_command_that_installs_it():
    class Lacking(Gbdt):
        declaration = replace(Gbdt.declaration, requires=Requirement("no_such_package_here", "grouplearn[gbdt]"))

    with pytest.raises(NotInstalled) as caught:
        registry.check_installed(Lacking())
    assert str(caught.value) == (
        "USING gbdt needs the package no_such_package_here, which is not installed\n\n"
        'Hint: pip install "grouplearn[gbdt]"'
    )


def test_installed_and_built_in_learners_pass_the_check():
    for name in registry.names():
        registry.check_installed(registry.learner(name))
    assert registry.learner("gbdt").declaration.requires.install_hint == 'pip install "grouplearn[gbdt]"'
    assert registry.learner("arima").declaration.requires.install_hint == 'pip install "grouplearn[forecast]"'
    assert registry.learner("linear_regression").declaration.requires is None
    assert registry.learner("mlp").declaration.requires is None


def test_importing_the_registry_loads_no_optional_package():
    code = (
        "import sys, grouplearn.learners.registry;"
        "print([m for m in ('torch', 'lightgbm', 'sklearn', 'statsforecast', 'pandas', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
