"""The hyperparameters of ``gbdt``: LightGBM's parameters, under its own names with its own defaults."""

from __future__ import annotations

from typing import Any

from grouplearn.learners.contract.config import Config, Conflict, Hyperparameter, Value
from grouplearn.learners.trees.lightgbm.objectives import OBJECTIVES, REFUSED, of_config

_DOCS = "LightGBM parameters"
#: LightGBM's seeds are 32-bit signed integers.
SEEDS = 2**31


def _parameter(name: str, default: Value, doc: str, low: float | None = None, **limits: Any) -> Hyperparameter:
    kind: Any = limits.pop("kind", type(default).__name__)
    return Hyperparameter(name, kind, default, doc, _DOCS, low=low, nullable=default is None, **limits)


def _share(name: str, doc: str, default: float = 1.0, **limits: Any) -> Hyperparameter:
    return _parameter(name, default, doc, 0, open_low=True, high=1, **limits)


def _seed(name: str, what: str, **limits: Any) -> Hyperparameter:
    told = f"seed of {what}; none: by seed and group"
    return _parameter(name, None, told, 0, high=SEEDS - 1, kind="int", **limits)


#: With which values of others some count.
_WITH_GOSS, _WITH_DART = ("data_sample_strategy", ("goss",)), ("boosting", ("dart",))
_WITH_QUANTIZED, _WITH_MONOTONE = ("use_quantized_grad", (True,)), ("monotone_constraints", ())

_BOOSTING = (
    _parameter(
        "objective",
        None,
        "loss; none: regression, binary or multiclass, by the label",
        kind="str",
        choices=tuple(OBJECTIVES),
        refused=REFUSED,
    ),
    _parameter("num_iterations", 100, "boosting rounds (trees), at most", 1, remedy="raise"),
    _parameter(
        "learning_rate",
        0.1,
        "factor of each tree (shrinkage); a smaller one needs more trees",
        0,
        open_low=True,
        remedy="lower",
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
    _share("feature_fraction", "share of features drawn for each tree"),
    _share("feature_fraction_bynode", "share of features drawn for each node"),
    _share("bagging_fraction", "share of rows drawn for a tree"),
    _share("pos_bagging_fraction", "binary: share of rows of the positive class drawn for a tree"),
    _share("neg_bagging_fraction", "binary: share of the other rows drawn for a tree"),
    _parameter("bagging_freq", 0, "draw other rows every so many rounds; 0 for never", 0),
    _parameter(
        "boosting",
        "gbdt",
        "gradient boosting, boosting with dropout (dart), or random forest (rf)",
        choices=("gbdt", "dart", "rf"),
        refused=(("goss", "say data_sample_strategy = 'goss'"),),
    ),
    _parameter(
        "data_sample_strategy",
        "bagging",
        "rows are drawn at random, or by the size of their error (goss)",
        choices=("bagging", "goss"),
    ),
    _share("top_rate", "goss: share of rows kept, those predicted worst", 0.2, only_with=_WITH_GOSS),
    _share("other_rate", "goss: share of the other rows drawn", 0.1, only_with=_WITH_GOSS),
    _parameter("drop_rate", 0.1, "dart: share of earlier trees dropped in a round", 0, high=1, only_with=_WITH_DART),
    _parameter("max_drop", 50, "dart: most trees dropped in a round; <= 0 for no limit", only_with=_WITH_DART),
    _parameter("skip_drop", 0.5, "dart: probability of dropping no tree in a round", 0, high=1, only_with=_WITH_DART),
    _parameter("uniform_drop", False, "dart: drop trees uniformly", only_with=_WITH_DART),
    _parameter("xgboost_dart_mode", False, "dart: normalise as XGBoost does", only_with=_WITH_DART),
)

_OF_OBJECTIVES = (
    _parameter("boost_from_average", True, "start from the mean of the labels"),
    _parameter(
        "alpha",
        0.9,
        "quantile: which one, below 1; huber: error from which it is linear",
        0,
        open_low=True,
        only_with=("objective", ("quantile", "huber")),
    ),
    _parameter(
        "fair_c",
        1.0,
        "fair: size of the errors that begin to count less",
        0,
        open_low=True,
        only_with=("objective", ("fair",)),
    ),
    _parameter(
        "poisson_max_delta_step",
        0.7,
        "poisson: what is added to hessians on the log scale",
        0,
        open_low=True,
        only_with=("objective", ("poisson",)),
    ),
    _parameter(
        "tweedie_variance_power",
        1.5,
        "tweedie: variance is the mean to this power; from 1 to below 2",
        1,
        high=2,
        only_with=("objective", ("tweedie",)),
    ),
    _parameter("reg_sqrt", False, "fit the square root of the label, and square what is predicted"),
    _parameter("is_unbalance", False, "binary, multiclassova: weigh classes to equal sums"),
    _parameter("scale_pos_weight", 1.0, "binary, multiclassova: weight of the positive class", 0, open_low=True),
    _parameter(
        "sigmoid",
        1.0,
        "binary, multiclassova: factor of scores in the logistic function",
        0,
        open_low=True,
        only_with=("objective", (None, "binary", "multiclassova")),
    ),
)

_CONSTRAINTS = (
    _parameter(
        "monotone_constraints",
        None,
        "features with which a prediction may only rise (1) or fall (-1), such as {'age': 1}",
        -1,
        high=1,
        kind="ints_by_feature",
    ),
    _parameter(
        "monotone_constraints_method",
        "basic",
        "how constraints are kept: the later ones are slower and constrain less",
        choices=("basic", "intermediate", "advanced"),
        only_with=_WITH_MONOTONE,
    ),
    _parameter(
        "monotone_penalty",
        0.0,
        "levels of a tree near the root without splits on monotone features",
        0,
        only_with=_WITH_MONOTONE,
    ),
    _parameter(
        "interaction_constraints",
        None,
        "features that may be on one path, such as [['a', 'b'], ['c']]; those in no list are not used",
        kind="feature_sets",
    ),
    _parameter(
        "feature_contri",
        None,
        "factor of the gain of splits on features, such as {'a': 0.5}; others 1",
        0,
        kind="floats_by_feature",
    ),
    _parameter("cegb_tradeoff", 1.0, "factor of all costs below (cost-effective gradient boosting)", 0),
    _parameter("cegb_penalty_split", 0.0, "cost of a split", 0),
    _parameter("cegb_penalty_feature_lazy", None, "cost of a feature per row; others 0", 0, kind="floats_by_feature"),
    _parameter(
        "cegb_penalty_feature_coupled", None, "cost of a feature per model; others 0", 0, kind="floats_by_feature"
    ),
)

_CATEGORIES = (
    _parameter("min_data_per_group", 100, "fewest rows of a category", 1),
    _parameter("max_cat_threshold", 32, "most categories on one side of a split", 1),
    _parameter("cat_l2", 10.0, "L2 penalty in categorical splits", 0),
    _parameter("cat_smooth", 10.0, "smoothing of rare categories", 0),
    _parameter("max_cat_to_onehot", 4, "categories up to which one is split off at a time", 1),
)

_BINS = (
    _parameter("max_bin", 255, "most intervals (bins) that a feature's values are put into", 2, high=65535),
    _parameter(
        "max_bin_by_feature", None, "the same by feature; others max_bin", 2, high=65535, kind="ints_by_feature"
    ),
    _parameter("min_data_in_bin", 3, "fewest rows in a bin", 1),
    _parameter("bin_construct_sample_cnt", 200000, "rows drawn to place the bins", 1),
    _parameter("enable_bundle", True, "put features that are never set together into one"),
    _parameter("is_enable_sparse", True, "keep bins of features that are mostly 0 sparse"),
    _parameter("use_missing", True, "learn where missing values go; false: they are 0"),
    _parameter("zero_as_missing", False, "take 0 for missing"),
)

_WAYS = (
    _parameter("linear_tree", False, "a linear model in each leaf, of the features on its path"),
    _parameter(
        "linear_lambda", 0.0, "linear_tree: L2 penalty of the linear models", 0, only_with=("linear_tree", (True,))
    ),
    _parameter("use_quantized_grad", False, "round gradients to few levels: faster on many rows"),
    _parameter("num_grad_quant_bins", 4, "use_quantized_grad: levels", 2, high=127, only_with=_WITH_QUANTIZED),
    _parameter(
        "quant_train_renew_leaf",
        False,
        "use_quantized_grad: leaf values from gradients that are not rounded",
        only_with=_WITH_QUANTIZED,
    ),
    _parameter(
        "stochastic_rounding", True, "use_quantized_grad: round up or down at random", only_with=_WITH_QUANTIZED
    ),
)

_SEEDS_OF = (
    _seed("bagging_seed", "the draws of rows"),
    _seed("feature_fraction_seed", "the draws of features"),
    _seed("extra_seed", "the thresholds of extra_trees", only_with=("extra_trees", (True,))),
    _seed("drop_seed", "dart's draws of trees", only_with=_WITH_DART),
    _seed("data_random_seed", "the draw of rows for the bins"),
    _seed("objective_seed", "what an objective draws"),
)

HYPERPARAMETERS = (*_BOOSTING, *_OF_OBJECTIVES, *_CONSTRAINTS, *_CATEGORIES, *_BINS, *_WAYS, *_SEEDS_OF)
DEFAULTS: Config = {parameter.name: parameter.default for parameter in HYPERPARAMETERS}
#: Parameters that decide how features are binned and stored: configs that agree on them share a Dataset.
DATASET_PARAMETERS = (*(parameter.name for parameter in _BINS), "data_random_seed", "linear_tree")
#: Parameters with a value per feature name, and the default of other features (None: ``max_bin``).
BY_FEATURE: dict[str, float | None] = {
    "monotone_constraints": 0,
    "feature_contri": 1.0,
    "cegb_penalty_feature_lazy": 0.0,
    "cegb_penalty_feature_coupled": 0.0,
    "max_bin_by_feature": None,
}
#: Fractions of rows in bagging: of all, and by class.
_FRACTIONS = ("bagging_fraction", "pos_bagging_fraction", "neg_bagging_fraction")
#: Objectives whose scores have a second scale for weighted classes.
_WEIGHED = ("binary", "multiclassova")


def conflict(config: Config) -> Conflict | None:
    """Return why the parameters of a config contradict each other, or None."""
    config = complete(config)
    return _sampling_conflict(config) or _objective_conflict(config) or _tree_conflict(config)


def _sampling_conflict(config: Config) -> Conflict | None:
    bagging = draws_rows(config)
    goss = config["data_sample_strategy"] == "goss"
    if goss and bagging:
        message = "data_sample_strategy = 'goss' excludes bagging: set bagging_freq = 0"
        return Conflict(message, ("data_sample_strategy", "bagging_freq", *_FRACTIONS))
    if goss and config["top_rate"] + config["other_rate"] > 1:  # type: ignore[operator]
        return Conflict("top_rate + other_rate must be <= 1", ("top_rate", "other_rate", "data_sample_strategy"))
    by_class = tuple(name for name in _FRACTIONS[1:] if config[name] < 1)  # type: ignore[operator]
    if by_class and config["objective"] not in (None, "binary"):
        message = f"{by_class[0]} is for objective = 'binary', not '{config['objective']}'"
        return Conflict(message, (*by_class, "objective"))
    if config["boosting"] == "rf" and not (bagging or goss or config["feature_fraction"] < 1):  # type: ignore[operator]
        message = "a random forest needs trees that differ: set bagging_freq = 1 and bagging_fraction < 1"
        message += ", or feature_fraction < 1"
        blamed = _FRACTIONS if config["bagging_freq"] else ("bagging_freq",)
        return Conflict(message, (*blamed, "boosting", "bagging_freq", "bagging_fraction"))
    fractions = (
        _FRACTIONS if config["objective"] == "binary" else _FRACTIONS[:1]
    )  # with other labels they are refused for the label
    drawn = tuple(name for name in fractions if config[name] < 1)  # type: ignore[operator]
    if drawn and not config["bagging_freq"] and not goss:
        message = (
            f"{drawn[0]} = {config[drawn[0]]} does nothing while bagging_freq is 0: 1 draws rows anew for every tree"
        )
        return Conflict(message, (*drawn, "bagging_freq"))
    return None


def _objective_conflict(config: Config) -> Conflict | None:
    objective = of_config(config)
    weighs = tuple(name for name in ("is_unbalance", "scale_pos_weight") if config[name] != DEFAULTS[name])
    if len(weighs) == 2:
        return Conflict("is_unbalance and scale_pos_weight both weigh the classes: give one of them", weighs)
    if config["tweedie_variance_power"] >= 2:  # type: ignore[operator]
        name = "tweedie_variance_power"
        return Conflict(f"{name} must be < 2: objective = 'gamma' is the case of 2", (name,))
    if objective is None:
        return None
    if config["reg_sqrt"] and not objective.roots:
        return Conflict(f"reg_sqrt does not go with objective = '{objective.name}'", ("reg_sqrt", "objective"))
    if config["monotone_constraints"] is not None and objective.renews:
        message = f"monotone_constraints does not go with objective = '{objective.name}'"
        return Conflict(message, ("monotone_constraints", "objective"))
    if weighs and objective.name not in _WEIGHED:
        message = f"{weighs[0]} is for objective = 'binary' or 'multiclassova', not '{objective.name}'"
        return Conflict(message, (*weighs, "objective"))
    if objective.name == "quantile" and config["alpha"] >= 1:  # type: ignore[operator]
        return Conflict(f"objective = 'quantile' needs alpha < 1, got {config['alpha']}", ("alpha", "objective"))
    return None


def _tree_conflict(config: Config) -> Conflict | None:
    if config["linear_tree"]:
        for name, value in (("zero_as_missing", True), ("objective", "regression_l1")):
            if config[name] == value:
                said = str(value).lower() if value is True else repr(value)
                return Conflict(f"linear_tree does not go with {name} = {said}", ("linear_tree", name))
    method = config["monotone_constraints_method"]
    if method != "basic" and config["feature_fraction_bynode"] != 1:  # None: a forest's share
        message = f"monotone_constraints_method = '{method}' does not go with feature_fraction_bynode < 1"
        return Conflict(message, ("monotone_constraints_method", "feature_fraction_bynode"))
    if config["zero_as_missing"] and not config["use_missing"]:
        return Conflict("zero_as_missing needs use_missing = true", ("zero_as_missing", "use_missing"))
    return None


def complete(config: Config) -> dict[str, Value]:
    """Return the config completed by defaults."""
    return {**DEFAULTS, **config}


def draws_rows(config: Config) -> bool:
    """Return whether a complete config samples rows."""
    return config["bagging_freq"] > 0 and any(config[name] < 1 for name in _FRACTIONS)  # type: ignore[operator]
