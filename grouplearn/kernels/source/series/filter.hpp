// The recursions of exponential smoothing with eight sets of parameters side by side, one per lane, and their likelihood.
//
// With the forecast f, the error e = y − f and what was smoothed before, q = level + φ·slope:
//     level = q + α·e, slope = φ·slope + β·e, season += γ·e,
// and with multiplicative seasons, f = q·season and the relative error r = e/f:
//     level = q + α·q·r, slope = φ·slope + β·q·r, season += γ·season·r.
// A step that is missing has no error.
//
// −2·log likelihood is n·log Σe², and n·log Σr² + 2·Σ log|f| where the error is multiplicative. The likelihood is largest where the
// sum of squares of e, or of r·exp(mean of log|f|), is least.
#pragma once
#include "lanes/elementary.hpp"
#include "series/models.hpp"
#include <type_traits>

namespace grouplearn::series {

/// Eight sets of weights and first states.
struct Smoothing {
    D alpha, beta, gamma, phi, level, slope;
    alignas(64) double seasons[8 * LONGEST_SEASON]; // of the next step first
};

/// Σ e², or Σ r² and Σ log|f| where the error is multiplicative.
struct ErrorSums {
    D squares, logs;

    /// −2·log likelihood of so many steps, without what is the same for all models, at least −1e10; NaN stays NaN.
    D deviance(int64_t steps) const { return larger(all(-1e10), fma(all((double)steps), logarithm(squares), logs + logs)); }
};

/// The forecast of a step and what it is made of, the trend times φ; and the error e or r.
struct Step {
    D forecast, level, trend, season, error;
};

/// Go through observations (steps,), NaN where they are missing; `smoothing` ends with the last states, the next step's season
/// at `steps` % m. `each(t, step)` sees every `Step`.
template <bool relative, bool trend, int season, class Each>
inline ErrorSums filter(const double *y, int64_t steps, int64_t m, Smoothing &smoothing, const Each &each) {
    D alpha = smoothing.alpha, beta = smoothing.beta, gamma = smoothing.gamma, phi = smoothing.phi;
    D level = smoothing.level, slope = smoothing.slope, squares = zero<D>(), product = all(1.0), exponents = zero<D>();
    double *own = smoothing.seasons, *end = smoothing.seasons + 8 * m;
    for (int64_t t = 0; t < steps; t++) {
        D damped = trend ? phi * slope : zero<D>(), q = trend ? level + damped : level;
        D s = season ? load(own) : zero<D>(), f = season == ADDITIVE ? q + s : season == MULTIPLICATIVE ? q * s : q;
        bool there = y[t] == y[t];
        D e = there ? all(y[t]) - f : zero<D>(), r = relative && there ? e / f : e;
        if (relative && there) {
            product = product * size(f);
            exponents += exponent(product), product = mantissa(product);
        }
        squares = fma(r, r, squares);
        each(t, Step{f, level, damped, s, r});
        if (season == MULTIPLICATIVE) e = q * r;
        level = fma(alpha, e, q);
        if (trend) slope = fma(beta, e, damped);
        if (season) {
            store(own, fma(gamma, season == MULTIPLICATIVE ? s * r : e, s));
            own = own + 8 == end ? smoothing.seasons : own + 8;
        }
    }
    smoothing.level = level, smoothing.slope = slope;
    D logs = relative ? fma(exponents, all(0.6931471805599453), logarithm(product)) : zero<D>();
    return {squares, logs};
}

/// `filter` of a model that is known at run time.
template <class Each>
inline ErrorSums filter_model(const Model &model, const double *y, int64_t steps, int64_t m, Smoothing &smoothing,
                              const Each &each) {
    auto with_trend = [&](auto trend) {
        constexpr bool has_trend = decltype(trend)::value;
        if (model.season == MULTIPLICATIVE) return filter<true, has_trend, MULTIPLICATIVE>(y, steps, m, smoothing, each);
        if (model.season == ADDITIVE)
            return model.relative ? filter<true, has_trend, ADDITIVE>(y, steps, m, smoothing, each)
                                  : filter<false, has_trend, ADDITIVE>(y, steps, m, smoothing, each);
        return model.relative ? filter<true, has_trend, NO_SEASON>(y, steps, m, smoothing, each)
                              : filter<false, has_trend, NO_SEASON>(y, steps, m, smoothing, each);
    };
    return model.trend ? with_trend(std::true_type{}) : with_trend(std::false_type{});
}

/// Whether all roots of zⁿ + cₙ₋₁zⁿ⁻¹ + ... + c₀ lie within the unit circle (Schur 1917, Cohn 1922); c is used up.
inline DMask is_stable(D *c, int64_t n) {
    D one = all(1.0);
    c[n] = one;
    DMask stable = one <= one;
    for (; n; n--) {
        D last = c[0], scale = one / fnma(last, last, one), next[LONGEST_SEASON + 2];
        stable = stable & (size(last) <= one);
        for (int64_t i = 0; i < n; i++) next[i] = fnma(last, c[n - 1 - i], c[i + 1]) * scale;
        for (int64_t i = 0; i < n; i++) c[i] = next[i];
    }
    return stable;
}

/// Whether errors die out of the states: always without seasons, as the weights are within their ranges.
inline DMask is_admissible(const Smoothing &with, int64_t m) {
    D alpha = with.alpha, beta = with.beta, gamma = with.gamma, phi = with.phi, one = all(1.0);
    D both = fnma(alpha, phi, alpha + beta), c[LONGEST_SEASON + 2];
    c[0] = phi * (one - alpha - gamma);
    c[1] = both + gamma - one;
    for (int64_t i = 2; i < m; i++) c[i] = both;
    c[m] = alpha + beta - phi;
    return is_stable(c, m + 1);
}

} // namespace grouplearn::series
