"""The parameters that LightGBM gets for a config and a group: objective, seeds, and constraints by feature column."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from typing import Any

from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.trees.lightgbm import objectives as gbdt_objectives
from grouplearn.learners.trees.lightgbm.parameters import BY_FEATURE, DEFAULTS, SEEDS
from grouplearn.models.label import SEVERAL_CLASSES
from grouplearn.sqltext import folded

#: The least sum of second derivatives in a leaf that LightGBM is given. It counts a side of a split without rows as 1e-15, would
#: take it for a leaf if 0 were enough, and then end training with "Check failed: (best_split_info.left_count) > (0)".
_LEAST_HESSIAN = 1e-14
#: Parameters that are passed in another form, or not at all.
_APART = ("num_iterations", "objective", "interaction_constraints", *BY_FEATURE)


def lightgbm_parameters(problem: Problem, config: Config) -> dict[str, Any]:
    """Return the parameters of a complete config for LightGBM; ``num_iterations`` is the number of updates instead.

    Defaults are left out, as LightGBM parses all parameters for every small model. Histograms are built column by column on
    one thread, so that sums have one order on every machine; by rows only for ``mape``, where LightGBM 4 would otherwise
    use the first row's weight for all.
    """
    own = {
        name: value
        for name, value in config.items()
        if name not in _APART and value is not None and (name == "num_leaves" or value != DEFAULTS.get(name))
    }
    if config["min_sum_hessian_in_leaf"] == 0:
        own["min_sum_hessian_in_leaf"] = _LEAST_HESSIAN
    if config["feature_fraction_bynode"] is None:
        own["feature_fraction_bynode"] = 1 / math.sqrt(max(1, problem.n_features))
    classes = {"num_class": problem.n_classes} if problem.label == SEVERAL_CLASSES else {}
    objective = gbdt_objectives.name_for(problem, config)
    return own | classes | _by_column(problem, config) | {
        "objective": objective,
        "metric": "None",
        "seed": problem.seed % SEEDS,
        "deterministic": True,
        "force_row_wise" if objective == "mape" else "force_col_wise": True,
        "feature_pre_filter": False,
        "num_threads": 1,
        "verbosity": -1,
    }  # fmt: skip


def _by_column(problem: Problem, config: Config) -> dict[str, str]:
    """Return a setting by feature in LightGBM's form: a number per feature column, or sets of column numbers."""
    starts = list(itertools.accumulate((block.width for block in problem.items), initial=0))
    columns: dict[str, list[int]] = {}
    for block, (first, last) in zip(problem.items, itertools.pairwise(starts), strict=True):
        columns.setdefault(folded(block.name), []).extend(range(first, last))
    given: dict[str, str] = {}
    for parameter, otherwise in BY_FEATURE.items():
        if config[parameter] is not None:
            rest = config["max_bin"] if otherwise is None else otherwise
            given[parameter] = _numbers(json.loads(str(config[parameter])), columns, [rest] * problem.n_features)
    if config["interaction_constraints"] is not None:
        sets = json.loads(str(config["interaction_constraints"]))
        members = ([column for name in each for column in columns.get(folded(name), [])] for each in sets)
        given["interaction_constraints"] = ",".join(f"[{','.join(map(str, each))}]" for each in members if each)
    return given


def _numbers(by_name: Mapping[str, float], columns: Mapping[str, list[int]], numbers: list[Any]) -> str:
    for name, number in by_name.items():
        for column in columns.get(folded(name), []):
            numbers[column] = number
    return ",".join(map(str, numbers))
