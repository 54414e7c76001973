// Means and standard deviations of the forecasts of exponential smoothing (Hyndman et al. 2008, chapter 6).
#pragma once
#include "series/models.hpp"
#include <algorithm>
#include <vector>

namespace grouplearn::series {

/// Where a series ended: its model's weights, the last states with the next step's season first, and σ² of the one-step errors.
struct Ended {
    Model model;
    int64_t m;
    double alpha, beta, gamma, phi, level, slope;
    const double *seasons;
    double variance;

    /// The forecast of a step, 1 for the next one, if `sum` is φ + φ² + ... + φ^step.
    double mean(int64_t step, double sum) const {
        double trend = level + sum * slope;
        if (!model.season) return trend;
        double season = seasons[(step - 1) % m];
        return model.season == ADDITIVE ? trend + season : trend * season;
    }
};

/// The end of a series from parameters (4) and states (2 + m), NaN where the model has none.
inline Ended ended(const Model &model, int64_t m, const double *parameters, const double *states, double variance) {
    return {model,
            m,
            parameters[0],
            model.trend ? parameters[1] : 0,
            model.season ? parameters[2] : 0,
            model.trend == DAMPED_TREND ? parameters[3] : 1,
            states[0],
            model.trend ? states[1] : 0,
            states + 2,
            variance};
}

/// Linear forecasts: after j steps an error has the weight cⱼ = α + β·(φ + ... + φʲ) + γ·[j divisible by m]. With relative errors
/// θₕ = μₕ² + σ²·Σ cⱼ²·θₕ₋ⱼ are the second moments of forecasts.
inline void forecast_linear(const Ended &from, int64_t horizon, double *mean, double *deviation) {
    std::vector<double> squares((size_t)horizon), moment((size_t)horizon);
    double power = 1, sum = 0, total = 1;
    for (int64_t h = 0; h < horizon; h++) {
        power *= from.phi, sum += power;
        mean[h] = from.mean(h + 1, sum);
        double weight = from.alpha + from.beta * sum + (from.model.season && (h + 1) % from.m == 0 ? from.gamma : 0);
        squares[h] = weight * weight;
        if (!from.model.relative) {
            deviation[h] = __builtin_sqrt(from.variance * total);
            total += squares[h];
            continue;
        }
        double spread = 0;
        for (int64_t j = 1; j <= h; j++) spread += squares[j - 1] * moment[h - j];
        moment[h] = mean[h] * mean[h] + from.variance * spread;
        deviation[h] = __builtin_sqrt(std::max(0.0, (1 + from.variance) * moment[h] - mean[h] * mean[h]));
    }
}

/// Level and slope times one season: their means and second moments.
class SeasonMoments {
  public:
    SeasonMoments(const Ended &from, double season)
        : alpha(from.alpha), beta(from.beta), phi(from.phi), variance(from.variance), level(from.level * season),
          slope(from.slope * season), level_level(level * level), level_slope(level * slope), slope_slope(slope * slope) {}

    double mean() const { return level + phi * slope; }
    double deviation() const { return __builtin_sqrt(std::max(0.0, (1 + variance) * square() - mean() * mean())); }

    /// Go on by one step; `gamma` is the weight of its error in this season, 0 in steps of other seasons.
    void step(double gamma) {
        // x becomes F·x + g·q·r with q = w'x, and in its own season (1 + γr) times that.
        double q = mean(), second = square(), spread = variance * gamma;
        double past_level = level_level + phi * level_slope, past_slope = phi * (level_slope + phi * slope_slope);
        double by_level = past_level + past_slope, by_slope = past_slope; // of F·P·w
        double own = 1 + spread * gamma, across = 2 * spread, both = variance * second * (1 + 3 * spread * gamma);
        level_level = own * second + 2 * across * alpha * by_level + both * alpha * alpha;
        level_slope = own * past_slope + across * (alpha * by_slope + beta * by_level) + both * alpha * beta;
        slope_slope = own * phi * phi * slope_slope + 2 * across * beta * by_slope + both * beta * beta;
        level = q + spread * alpha * q;
        slope = phi * slope + spread * beta * q;
    }

  private:
    double alpha, beta, phi, variance, level, slope, level_level, level_slope, slope_slope;

    double square() const { return level_level + phi * (2 * level_slope + phi * slope_slope); }
};

inline void forecast(const Ended &from, int64_t horizon, double *mean, double *deviation) {
    if (from.model.season != MULTIPLICATIVE) return forecast_linear(from, horizon, mean, deviation);
    for (int64_t first = 0; first < from.m && first < horizon; first++) {
        SeasonMoments moments(from, from.seasons[first]);
        for (int64_t h = 0; h < horizon; h++) {
            bool own = h % from.m == first;
            if (own) mean[h] = moments.mean(), deviation[h] = moments.deviation();
            moments.step(own ? from.gamma : 0);
        }
    }
}

} // namespace grouplearn::series
