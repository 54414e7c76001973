"""From sums over rows to what is kept of a model's standard errors: errors, p-values, critical values, and reasons."""

from __future__ import annotations

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.learners.contract.standard_errors import FEW_ROWS, SEPARATED, ErrorOptions, packed
from grouplearn.learners.linear.errors import covariance, distributions
from grouplearn.learners.linear.errors.sums import LinearErrorSums, ModelSums


def estimates(
    sums: LinearErrorSums,
    of_model: ModelSums,
    weights: FloatArray,
    squares: FloatArray | None,
    fit_intercept: bool,
    options: ErrorOptions,
) -> FloatArray:
    """Return the ``packed`` errors (G, 2·(d + 1) + 2) of models ``weights`` (G, d + 1), the intercept last.

    ``squares`` (G,) are the weighted sums of squared residuals of least squares, None of other losses.
    """
    about = (lambda each: each) if fit_intercept else covariance.without_intercept
    plain = about(sums.plain)
    found = covariance.inverse_of(plain)
    can = covariance.estimable(plain, found, fit_intercept)
    known = np.concatenate([can.weights, can.intercepts[:, None]], axis=1)
    freedom, inverse, infinite = sums.rows - can.rank, found.inverse, np.zeros_like(can.weights)
    bread = plain
    if of_model.bread is not None:
        bread = about(of_model.bread)
        both = ~found.left[:, :, None] & ~found.left[:, None, :]
        curved = covariance.inverse_of({**bread, "gram": np.where(both, bread["gram"], 0.0)}, least=0.0)
        inverse, infinite = curved.inverse, covariance.separated(found, curved, sums.rows)
    with np.errstate(all="ignore"):
        if of_model.scores is None:
            variance = np.ones(len(weights)) if squares is None else squares / freedom
            variances = covariance.classical(bread, inverse, variance)
        else:
            middle = covariance.middle_of(bread, of_model.scores)
            factor = np.ones(len(weights)) if squares is None else sums.rows / freedom
            variances = covariance.robust(bread, inverse, middle, factor)
        known[:, :-1] &= ~infinite
        known[:, -1] &= ~infinite.any(axis=1)
        known &= (freedom > 0)[:, None] & np.isfinite(variances) & (variances >= 0)
        errors = np.where(known, np.sqrt(np.where(known, variances, 0.0)), np.nan)
        if not fit_intercept:
            errors[:, -1] = np.nan
        statistic = weights / errors
    degrees = freedom if squares is not None else np.full(len(weights), np.inf)
    p_values = distributions.two_sided(statistic, degrees[:, None])
    reason = np.where(freedom > 0, np.where(infinite.any(axis=1), SEPARATED, 0), FEW_ROWS)
    return packed(errors, p_values, distributions.critical(options.confidence, degrees), reason)
