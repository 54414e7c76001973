// The models of exponential smoothing (Hyndman, Koehler, Ord & Snyder 2008): how error, trend and season enter, and the order of
// what is fitted.
#pragma once
#include <cmath>
#include <cstdint>

namespace grouplearn::series {

/// The most steps of a season.
constexpr int LONGEST_SEASON = 24;

enum Trend : int64_t { NO_TREND, TREND, DAMPED_TREND };
enum Season : int64_t { NO_SEASON, ADDITIVE, MULTIPLICATIVE };

/// Three numbers, as Python gives them: whether the error is multiplicative, the trend and the season.
struct Model {
    int64_t relative, trend, season;
};

/// The ranges of the weights: of alpha, beta and gamma, and of phi. Also beta ≤ alpha and gamma ≤ 1 − alpha.
constexpr double LEAST_WEIGHT = 1e-4, MOST_WEIGHT = 0.9999, LEAST_DAMPING = 0.8, MOST_DAMPING = 0.98;

/// Where a model's numbers stand among those that are fitted, and how many there are. Beta and gamma are fitted as shares, from 0
/// to 1, of their ranges; the first of m seasons follows from the others, which stand from `seasons` on.
struct Layout {
    Layout(const Model &model, int64_t m) : seasons_fitted(model.season ? (int)m - 1 : 0) {
        if (model.trend) beta = count++;
        if (model.season) gamma = count++;
        if (model.trend == DAMPED_TREND) phi = count++;
        level = count++;
        if (model.trend) slope = count++;
        seasons = count;
        count += seasons_fitted;
    }

    void set_ranges(double *low, double *high) const {
        for (int i = 0; i < count; i++) low[i] = -INFINITY, high[i] = INFINITY;
        low[alpha] = LEAST_WEIGHT, high[alpha] = MOST_WEIGHT;
        if (beta >= 0) low[beta] = 0, high[beta] = 1;
        if (gamma >= 0) low[gamma] = 0, high[gamma] = 1;
        if (phi >= 0) low[phi] = LEAST_DAMPING, high[phi] = MOST_DAMPING;
    }

    int alpha = 0, beta = -1, gamma = -1, phi = -1, level, slope = -1, seasons, seasons_fitted, count = 1;
};

} // namespace grouplearn::series
