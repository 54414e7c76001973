"""Names that learners have in other libraries, and what to write for them here."""

from __future__ import annotations

import re

_BOOSTED = "Write USING gbdt: boosted trees, trained by LightGBM."
_SERIES = "Write USING exponential_smoothing, arima, theta, seasonal_naive or croston, with ORDER BY <time>."
#: What to write, by names in lower case without underscores and without "classifier" or "regressor" at the end.
_MEANT = {
    "xgboost xgb lightgbm lgbm lgb catboost gbm gbt gradientboosting histgradientboosting boostedtree boostedtrees": _BOOSTED,
    "decisiontree tree cart extratrees rf": "Write USING random_forest, or USING gbdt for boosted trees.",
    "ols lm linear leastsquares linearmodel": "Write USING linear_regression.",
    "ridge": "Write USING linear_regression WITH (l2 = 1): Ridge's alpha is l2.",
    "lasso": "Write USING linear_regression WITH (l1 = 1).",
    "elasticnet": "Write USING linear_regression WITH (l1 = 1, l2 = 1).",
    "logistic logit": "Write USING logistic_regression.",
    "poisson glm": "Write USING poisson_regression, which predicts counts.",
    "svc linearsvc": "Write USING linear_svm.",
    "nn dnn ann neuralnet neuralnetwork deeplearning perceptron": "Write USING mlp.",
    "cluster clustering": "Write USING kmeans.",
    "svd truncatedsvd principalcomponents": "Write USING pca.",
    "prophet timeseries forecast autotheta": _SERIES,
    "sarima sarimax autoarima arimaplus": "Write USING arima, with ORDER BY <time>.",
    "ets autoets holt holtwinters ses": "Write USING exponential_smoothing, with ORDER BY <time>.",
    "naive snaive": "Write USING seasonal_naive, with ORDER BY <time>.",
    "tsb sba intermittent": "Write USING croston WITH (variant = 'tsb'), with ORDER BY <time>.",
}
_BY_NAME = {name: hint for names, hint in _MEANT.items() for name in names.split()}
_ENDING = re.compile(r"(classifier|classification|regressor|regression|reg)$")


def learner_meant(typed: str) -> str | None:
    """Return what to write for a learner that has this name elsewhere; None if it is not known."""
    name = typed.casefold().replace("_", "")
    return _BY_NAME.get(name) or _BY_NAME.get(_ENDING.sub("", name))
