"""Small models of every family, over rows with every trap: NULLs, NaN, odd names, unseen categories."""

ROWS = """
    CREATE TABLE t AS SELECT
      (i % 2)::INT AS g,
      CASE WHEN i % 11 = 0 THEN NULL ELSE chr(65 + (i * 7 % 4)::INT) || '''" ,' END AS "od d",
      CASE WHEN i % 13 = 0 THEN NULL WHEN i % 17 = 0 THEN 'nan'::DOUBLE ELSE ((i * 7919) % 1000) / 100.0 END AS x,
      ((i * 104729) % 777) / 77.0 - 3 AS z,
      CASE WHEN i % 23 <> 0 THEN (i * 31 % 14)::VARCHAR END AS cat,
      CASE WHEN i % 19 <> 0 THEN i * i % 1000 END AS w
    FROM range(640) AS r(i);
    ALTER TABLE t ADD COLUMN y DOUBLE;
    UPDATE t SET y = coalesce(nullif(x, 'nan'::DOUBLE), 2) * z / 3 + coalesce(hash(cat) % 5, 2) + g;
    ALTER TABLE t ADD COLUMN kind VARCHAR;
    UPDATE t SET kind = CASE WHEN y < 1 THEN 'low' WHEN y < 4 THEN 'mi''d' ELSE 'high' END WHERE g > 0;
    UPDATE t SET kind = CASE WHEN y < 1 THEN 'low' ELSE 'mi''d' END WHERE g = 0;
    ALTER TABLE t ADD COLUMN id INT; UPDATE t SET id = rowid;
    CREATE TABLE fresh AS SELECT * FROM t WHERE id % 3 = 0 UNION ALL BY NAME
      SELECT 9000 AS id, 99 AS g, 'A''" ,' AS "od d", 1.0 AS x, 2 AS z, 'never seen' AS cat UNION ALL BY NAME
      SELECT 9001 AS id, 1 AS g, NULL AS "od d", 'inf'::DOUBLE AS x, 2 AS z, '' AS cat, 5 AS w;
"""
FEATURES = 'zscore(z), impute(w), ordinal(cat), onehot("od d"), hash(cat, 8)'
TARGETS = {"value": "y", "binary": "y > 2", "multiclass": "kind"}
#: Name of the model: learner, task, features, and what else the statement says.
MODELS = {
    "ridge_value": ("linear_regression", "value", f"impute(x), {FEATURES}", ""),
    "logit_binary": ("logistic_regression", "binary", f"x, {FEATURES}", ""),
    "logit_multiclass": ("logistic_regression", "multiclass", f"impute(x), {FEATURES}", ""),
    "svm_binary": ("linear_svm", "binary", f"x, {FEATURES}", ""),
    "svm_multiclass": ("linear_svm", "multiclass", f"impute(x), {FEATURES}", ""),
    "poisson_value": ("poisson_regression", "value", f"impute(x), {FEATURES}", ""),
    "losses_value": (
        "linear_learner",
        "value",
        f"impute(x), {FEATURES}",
        "OVER GRID (loss IN ('poisson', 'absolute')) OPTIMIZE rmse WITH (epochs = 3)",
    ),
    "precise_binary": ("logistic_regression", "binary", f"x, {FEATURES}", "OPTIMIZE recall_at_precision(0.8)"),
    "recalled_binary": (
        "gbdt",
        "binary",
        f"x, {FEATURES}",
        "OPTIMIZE precision_at_recall(0.9) WITH (num_iterations = 6)",
    ),
    "losses_multiclass": (
        "linear_learner",
        "multiclass",
        f"x, {FEATURES}",
        "OVER GRID (loss IN ('logistic', 'hinge'))",
    ),
    "wide_value": ("linear_regression", "value", f"impute(x), {FEATURES}, hash(cat, 100000)", "WITH (l2 = 1)"),
    "wide_multiclass": ("logistic_regression", "multiclass", f"hash(w, 5000), {FEATURES}", ""),
    "trees_value": ("gbdt", "value", f"x, {FEATURES}", "WITH (seed = 3)"),
    "trees_binary": (
        "gbdt",
        "binary",
        f"x, {FEATURES}",
        "OVER GRID ((boosting, bagging_fraction, bagging_freq, max_cat_to_onehot, min_data_per_group, cat_smooth,"
        " num_iterations) IN (('rf', 0.5, 1, 1, 5, 1, 9), ('dart', 1, 0, 1, 5, 1, 12)))",
    ),
    "trees_multiclass": ("gbdt", "multiclass", f"x, {FEATURES}", "OVER GRID (num_iterations IN (12))"),
    "offset_value": ("gbdt", "value", f"x, {FEATURES}", "WITH (num_iterations = 6, offset = z / 4)"),
    "offset_binary": ("gbdt", "binary", "x, z", "WITH (num_iterations = 6, offset = z / 4)"),
    "roots_value": ("gbdt", "value", "x, z", "WITH (objective = 'fair', reg_sqrt = true, num_iterations = 6)"),
    "rest_multiclass": (
        "gbdt",
        "multiclass",
        "x, z",
        "WITH (objective = 'multiclassova', sigmoid = 1.5, num_iterations = 6)",
    ),
    "net_value": (
        "mlp",
        "value",
        f"impute(x), {FEATURES}",
        "OVER GRID (hidden_layers IN ([5], [6, 4], []), activation IN ('gelu', 'tanh')) WITH (epochs = 3)",
    ),
    "net_binary": ("mlp", "binary", f"x, {FEATURES}", "OVER GRID (hidden_layers IN ([7])) WITH (epochs = 2)"),
    "net_multiclass": (
        "mlp",
        "multiclass",
        f"impute(x), {FEATURES}",
        "OVER GRID (hidden_layers IN ([4, 3, 3]), activation IN ('relu', 'sigmoid')) WITH (epochs = 2)",
    ),
}


def statement(name: str) -> str:
    learner, task, features, rest = MODELS[name]
    positive = " WHERE y >= 0" if learner in ("poisson_regression", "linear_learner") and task == "value" else ""
    return (
        f"TRAIN MODEL {name} USING {learner} PREDICT {TARGETS[task]} AS label FEATURES ({features})"
        f' FROM t{positive} GROUP BY ROLLUP (g, "od d") HAVING count(*) > 60 {rest}'
    )
