"""LightGBM parameters that are not hyperparameters here, with reasons, and aliases of those that are."""

from __future__ import annotations

from collections.abc import Mapping

_FILES = "trees are grown on rows of the database, and files are not read or written"
_LOADING = "it is about reading files, and rows come from FROM"
_THREADS = "a model trains on one thread, and models side by side: WITH (workers = n)"
_DEVICE = "models train on the processor"
_NETWORK = "WITH (operator = ..., workers = ...) says how a group is divided among workers"
_QUIET = "nothing is printed: what went on is in the model table and m_curves"
_RANKING = "ranking is not learned: a group is a model of its own, not a query"
_PREDICTION = "it is about prediction: see m_predict and predict"
_METRICS = "OPTIMIZE says which metric counts, and every metric is a column of the model table"
_STOPPING = "say WITH (early_stopping = n), and OPTIMIZE which metric"
_FIXED = "it is set so that one seed gives one model on any number of workers"
_FORCED = "trees find their splits themselves"

_REASONS: Mapping[str, tuple[str, ...]] = {
    _FILES: (
        "config", "data", "valid", "input_model", "output_model", "saved_feature_importance_type", "snapshot_freq",
        "save_binary", "forcedbins_filename", "initscore_filename", "valid_data_initscores", "output_result",
        "convert_model", "convert_model_language",
    ),
    _LOADING: (
        "header", "label_column", "group_column", "ignore_column", "two_round", "pre_partition", "precise_float_parser",
        "parser_config_file",
    ),
    _THREADS: ("num_threads",),
    _DEVICE: ("device_type", "gpu_platform_id", "gpu_device_id", "gpu_device_id_list", "gpu_use_dp", "num_gpu"),
    _NETWORK: (
        "tree_learner", "num_machines", "local_listen_port", "time_out", "machine_list_filename", "machines", "top_k",
    ),
    _QUIET: ("verbosity", "metric_freq", "is_provide_training_metric"),
    _RANKING: (
        "bagging_by_query", "lambdarank_truncation_level", "lambdarank_norm", "label_gain", "eval_at",
        "lambdarank_position_bias_regularization",
    ),
    _PREDICTION: (
        "start_iteration_predict", "num_iteration_predict", "predict_raw_score", "predict_leaf_index", "predict_contrib",
        "predict_disable_shape_check", "pred_early_stop", "pred_early_stop_freq", "pred_early_stop_margin",
    ),
    _METRICS: ("metric", "multi_error_top_k", "auc_mu_weights"),
    _STOPPING: ("early_stopping_round", "early_stopping_min_delta", "first_metric_only"),
    _FIXED: ("deterministic", "force_col_wise", "force_row_wise"),
    _FORCED: ("forcedsplits_filename",),
    "the statement says what is done: TRAIN, RETRY or predict": ("task",),
    "how many classes there are is counted in the labels of each group": ("num_class",),
    "FEATURES says which features are categories: ordinal(x)": ("categorical_feature",),
    "WITH (weight = ...) gives the weight of a row": ("weight_column",),
    "WITH (memory_limit = '8GB') limits memory": ("histogram_pool_size",),
    "rows are put into bins once for all configurations, whatever they prune": ("feature_pre_filter",),
    "it is an option of REFRESH MODEL m FROM new_rows WITH (refresh = 'leaves')": ("refit_decay_rate",),
}  # fmt: skip

#: LightGBM's aliases of its parameters.
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "objective": ("objective_type", "app", "application", "loss"),
    "boosting": ("boosting_type", "boost"),
    "num_iterations": (
        "num_iteration", "n_iter", "num_tree", "num_trees", "num_round", "num_rounds", "nrounds", "num_boost_round",
        "n_estimators", "max_iter",
    ),
    "learning_rate": ("shrinkage_rate", "eta"),
    "num_leaves": ("num_leaf", "max_leaves", "max_leaf", "max_leaf_nodes"),
    "tree_learner": ("tree", "tree_type", "tree_learner_type"),
    "num_threads": ("num_thread", "nthread", "nthreads", "n_jobs"),
    "device_type": ("device",),
    "seed": ("random_seed", "random_state"),
    "min_data_in_leaf": ("min_data_per_leaf", "min_data", "min_child_samples", "min_samples_leaf"),
    "min_sum_hessian_in_leaf": (
        "min_sum_hessian_per_leaf", "min_sum_hessian", "min_hessian", "min_child_weight",
    ),
    "bagging_fraction": ("sub_row", "subsample", "bagging"),
    "pos_bagging_fraction": ("pos_sub_row", "pos_subsample", "pos_bagging"),
    "neg_bagging_fraction": ("neg_sub_row", "neg_subsample", "neg_bagging"),
    "bagging_freq": ("subsample_freq",),
    "bagging_seed": ("bagging_fraction_seed",),
    "feature_fraction": ("sub_feature", "colsample_bytree"),
    "feature_fraction_bynode": ("sub_feature_bynode", "colsample_bynode"),
    "extra_trees": ("extra_tree",),
    "early_stopping_round": ("early_stopping_rounds", "n_iter_no_change"),
    "max_delta_step": ("max_tree_output", "max_leaf_output"),
    "lambda_l1": ("reg_alpha", "l1_regularization"),
    "lambda_l2": ("reg_lambda", "lambda", "l2_regularization"),
    "min_gain_to_split": ("min_split_gain",),
    "drop_rate": ("rate_drop",),
    "monotone_constraints": ("mc", "monotone_constraint", "monotonic_cst"),
    "monotone_constraints_method": ("monotone_constraining_method", "mc_method"),
    "monotone_penalty": ("monotone_splits_penalty", "ms_penalty", "mc_penalty"),
    "feature_contri": ("feature_contrib", "fc", "fp", "feature_penalty"),
    "forcedsplits_filename": ("fs", "forced_splits_filename", "forced_splits_file", "forced_splits"),
    "verbosity": ("verbose",),
    "linear_tree": ("linear_trees",),
    "max_bin": ("max_bins",),
    "bin_construct_sample_cnt": ("subsample_for_bin",),
    "data_random_seed": ("data_seed",),
    "is_enable_sparse": ("is_sparse", "enable_sparse", "sparse"),
    "enable_bundle": ("is_enable_bundle", "bundle"),
    "categorical_feature": ("cat_feature", "categorical_column", "cat_column", "categorical_features"),
    "num_class": ("num_classes",),
    "is_unbalance": ("unbalance", "unbalanced_sets"),
    "metric": ("metrics", "metric_types"),
    "num_machines": ("num_machine",),
}  # fmt: skip

_WHY = {name: reason for reason, names in _REASONS.items() for name in names}
_MEANS = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}


def _reason(name: str) -> str:
    meant = _MEANS.get(name, name)
    if meant in _WHY:
        return _WHY[meant]
    return "it is seed here: WITH (seed = 7)" if meant == "seed" else f"it is {meant} here"


#: Parameters of LightGBM that are no hyperparameters, and why, or what they are called here.
REFUSED = {name: _reason(name) for name in (*_WHY, *_MEANS)}
