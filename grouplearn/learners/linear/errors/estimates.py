"""From sums over rows to what is kept of a model's standard errors: errors, p-values, critical values, and reasons."""

from __future__ import annotations

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.learners.contract.standard_errors import FEW_ROWS, ONE_CLUSTER, SEPARATED, ErrorOptions, packed
from grouplearn.learners.linear.errors import covariance, distributions
from grouplearn.learners.linear.errors.sums import LinearErrorSums, ModelSums
from grouplearn.models.state import Tensors


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
        variances = _variances(sums.rows, bread, inverse, of_model, freedom, squares)
        known[:, :-1] &= ~infinite
        known[:, -1] &= ~infinite.any(axis=1)
        known &= (freedom > 0)[:, None] & np.isfinite(variances) & (variances >= 0)
        errors = np.where(known, np.sqrt(np.where(known, variances, 0.0)), np.nan)
        if not fit_intercept:
            errors[:, -1] = np.nan
        statistic = weights / errors
    degrees = freedom if squares is not None else np.full(len(weights), np.inf)
    reason = np.where(infinite.any(axis=1), SEPARATED, 0)
    if of_model.clusters is not None:
        many = of_model.clusters.counts
        degrees = many - 1.0 if squares is not None else degrees
        reason = np.where(many > 1, reason, ONE_CLUSTER)
    reason = np.where(freedom > 0, reason, FEW_ROWS)
    p_values = distributions.two_sided(statistic, degrees[:, None])
    return packed(errors, p_values, distributions.critical(options.confidence, degrees), reason)


def _variances(
    rows: FloatArray,
    bread: Tensors,
    inverse: FloatArray,
    of_model: ModelSums,
    freedom: FloatArray,
    squares: FloatArray | None,
) -> FloatArray:
    """Return the variances (G, d + 1) of weights and intercepts; see ``covariance``."""
    ones = np.ones(len(rows))
    if of_model.clusters is not None:
        many = of_model.clusters.counts
        factor = many / (many - 1.0) * (rows - 1.0) / freedom
        return covariance.robust(bread, inverse, covariance.middle_of_clusters(bread, of_model.clusters), factor)
    if of_model.scores is not None:
        factor = ones if squares is None else rows / freedom
        return covariance.robust(bread, inverse, covariance.middle_of(bread, of_model.scores), factor)
    return covariance.classical(bread, inverse, ones if squares is None else squares / freedom)
