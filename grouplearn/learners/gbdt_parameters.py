"""LightGBM's parameters: those that are hyperparameters of ``gbdt``, with LightGBM's own names, and all that it is given."""

from __future__ import annotations

from typing import Any

from grouplearn.learners.base import Config, Hyperparameter, Problem, Task, Value

_DOCS = "LightGBM parameters"
_OBJECTIVES = {Task.REGRESSION: "regression", Task.BINARY: "binary", Task.MULTICLASS: "multiclass"}

#: LightGBM's seed is a 32-bit signed integer.
_SEEDS = 2**31


def _parameter(name: str, default: Value, doc: str, low: float | None = None, **limits: Any) -> Hyperparameter:
    kind: Any = type(default).__name__
    return Hyperparameter(name, kind, default, doc, _DOCS, low=low, **limits)


HYPERPARAMETERS = (
    _parameter("num_iterations", 100, "boosting rounds (trees), at most", 1),
    _parameter(
        "learning_rate", 0.1, "share of each tree that counts; less learns slower, with more trees", 0, open_low=True
    ),
    _parameter("num_leaves", 31, "most leaves of a tree", 2, high=131072),
    _parameter("max_depth", -1, "most levels of a tree; <= 0 for no limit", -1),
    _parameter("min_data_in_leaf", 20, "fewest rows in a leaf", 0),
    _parameter(
        "min_sum_hessian_in_leaf", 1e-3, "smallest sum of the loss's second derivatives (hessians) in a leaf", 0
    ),
    _parameter("lambda_l1", 0.0, "L1 penalty on leaf values", 0),
    _parameter("lambda_l2", 0.0, "L2 penalty on leaf values", 0),
    _parameter("min_gain_to_split", 0.0, "least by which a split must lower the loss", 0),
    _parameter("max_delta_step", 0.0, "largest leaf value; <= 0 for no limit"),
    _parameter("path_smooth", 0.0, "smoothing of leaf values towards their parent", 0),
    _parameter("extra_trees", False, "draw one random threshold per feature"),
    _parameter("feature_fraction", 1.0, "share of features drawn for each tree", 0, open_low=True, high=1),
    _parameter("feature_fraction_bynode", 1.0, "share of features drawn for each node", 0, open_low=True, high=1),
    _parameter("bagging_fraction", 1.0, "share of rows drawn for a tree", 0, open_low=True, high=1),
    _parameter("bagging_freq", 0, "draw rows anew every so many rounds; 0 for never", 0),
    _parameter(
        "boosting",
        "gbdt",
        "gradient boosting, boosting with dropout (dart), or random forest (rf)",
        choices=("gbdt", "dart", "rf"),
    ),
    _parameter(
        "data_sample_strategy",
        "bagging",
        "rows are drawn at random, or by how wrong they are predicted (goss)",
        choices=("bagging", "goss"),
    ),
    _parameter("top_rate", 0.2, "goss: share of rows kept, those predicted worst", 0, open_low=True, high=1),
    _parameter("other_rate", 0.1, "goss: share of the other rows drawn", 0, open_low=True, high=1),
    _parameter("drop_rate", 0.1, "dart: share of earlier trees dropped in a round", 0, high=1),
    _parameter("max_drop", 50, "dart: most trees dropped in a round; <= 0 for no limit"),
    _parameter("skip_drop", 0.5, "dart: probability of dropping no tree in a round", 0, high=1),
    _parameter("uniform_drop", False, "dart: drop trees uniformly"),
    _parameter("xgboost_dart_mode", False, "dart: normalise as XGBoost does"),
    _parameter("min_data_per_group", 100, "fewest rows of a category", 1),
    _parameter("max_cat_threshold", 32, "most categories on one side of a split", 1),
    _parameter("cat_l2", 10.0, "L2 penalty in categorical splits", 0),
    _parameter("cat_smooth", 10.0, "smoothing of rare categories", 0),
    _parameter("max_cat_to_onehot", 4, "categories up to which one is split off at a time", 1),
    _parameter("boost_from_average", True, "start from the mean of the labels"),
    _parameter("max_bin", 255, "most intervals (bins) that a feature's values are put into", 2, high=65535),
    _parameter("min_data_in_bin", 3, "fewest rows in a bin", 1),
    _parameter("bin_construct_sample_cnt", 200000, "rows drawn to place the bins", 1),
)


def lightgbm_parameters(problem: Problem, config: Config, metric: str = "None") -> dict[str, Any]:
    """Return the parameters of one config for LightGBM; ``num_iterations`` is left to the number of updates.

    Columns are histogrammed one by one on one thread, so that sums have one order on every machine.
    """
    own = {name: value for name, value in complete(config).items() if name != "num_iterations"}
    classes = {"num_class": problem.n_classes} if problem.task is Task.MULTICLASS else {}
    return own | classes | {
        "objective": _OBJECTIVES[problem.task],
        "metric": metric,
        "seed": problem.seed % _SEEDS,
        "deterministic": True,
        "force_col_wise": True,
        "feature_pre_filter": False,
        "num_threads": 1,
        "verbosity": -1,
    }  # fmt: skip


def conflict(config: Config) -> str | None:
    """Return why the parameters of a config contradict each other, or None."""
    config = complete(config)
    bagging = draws_rows(config)
    goss = config["data_sample_strategy"] == "goss"
    if goss and bagging:
        return "data_sample_strategy = 'goss' excludes bagging: set bagging_freq = 0"
    if goss and config["top_rate"] + config["other_rate"] > 1:  # type: ignore[operator]
        return "top_rate + other_rate must be <= 1"
    if config["boosting"] == "rf" and not (bagging or goss or config["feature_fraction"] < 1):  # type: ignore[operator]
        return (
            "boosting = 'rf' needs trees that differ: set bagging_freq = 1 and bagging_fraction < 1, "
            "or feature_fraction < 1"
        )
    return None


def complete(config: Config) -> dict[str, Value]:
    """Return the config with defaults for what it lacks."""
    return {parameter.name: parameter.default for parameter in HYPERPARAMETERS} | dict(config)


def draws_rows(config: Config) -> bool:
    """Return whether a complete config draws rows at random."""
    return config["bagging_freq"] > 0 and config["bagging_fraction"] < 1  # type: ignore[operator]
