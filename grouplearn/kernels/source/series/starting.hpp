// Where the fit of a model of exponential smoothing begins: seasons by decomposition, level and slope by a line through the first
// two seasons or ten steps without them.
#pragma once
#include "series/decomposition.hpp"
#include "series/filter.hpp"
#include "series/series.hpp"

namespace grouplearn::series {

/// What a step is beside the trend of its series, or over it, for all steps.
inline std::vector<double> seasonal_part(const Series &series, Season kind, int64_t m) {
    std::vector<double> part((size_t)series.n);
    const double *y = series.filled.data();
    if (series.n < 3 * m) {
        Line line = line_beside_wave(y, series.n, m);
        for (int64_t t = 0; t < series.n; t++) {
            double trend = line.intercept + line.slope * (double)(t + 1);
            part[t] = kind == ADDITIVE ? y[t] - trend : y[t] / trend;
        }
        return part;
    }
    seasonal_figure(y, series.n, m, kind == MULTIPLICATIVE, part.data());
    for (int64_t t = m; t < series.n; t++) part[t] = part[t - m];
    return part;
}

/// Level and slope of a series without seasons.
inline void start_level(const std::vector<double> &adjusted, int64_t steps, double *level, double *slope) {
    if (slope) {
        Line line = straight_line(adjusted.data(), steps);
        bool vanishes = fabs(line.intercept + line.slope) < 1e-8; // there is no error relative to a forecast of 0
        *level = line.intercept * (vanishes ? 1 + 1e-3 : 1), *slope = line.slope * (vanishes ? 1 - 1e-3 : 1);
        return;
    }
    double sum = 0;
    for (int64_t t = 0; t < steps; t++) sum += adjusted[t];
    *level = sum / (double)steps;
}

/// The states to start from, at their places in `numbers`, of a season of m steps.
inline void start_states(const Series &series, const Model &model, const Layout &layout, int64_t m, double *numbers) {
    constexpr double least_ratio = 0.01;
    std::vector<double> adjusted = series.filled;
    if (model.season) {
        std::vector<double> part = seasonal_part(series, (Season)model.season, m);
        double *seasons = numbers + layout.seasons, sum = 0;
        for (int64_t t = 0; t < series.n; t++)
            adjusted[t] = model.season == ADDITIVE ? adjusted[t] - part[t] : adjusted[t] / std::max(part[t], least_ratio);
        for (int i = 0; i < layout.seasons_fitted; i++) {
            seasons[i] = model.season == ADDITIVE ? part[i + 1] : std::max(part[i + 1], least_ratio);
            sum += seasons[i];
        }
        if (model.season == MULTIPLICATIVE && sum > (double)m) // the first one, which is m less the others, must be positive
            for (int i = 0; i < layout.seasons_fitted; i++) seasons[i] *= (double)(m - 1) / sum;
    }
    int64_t steps = std::min(std::max((int64_t)10, 2 * (model.season ? m : 1)), series.n);
    start_level(adjusted, steps, numbers + layout.level, model.trend ? numbers + layout.slope : nullptr);
}

/// Weights to start from: alpha, the shares of beta and gamma, and phi.
struct Start {
    double alpha, beta, gamma, phi;

    void write(const Layout &layout, double *numbers) const {
        numbers[layout.alpha] = alpha;
        if (layout.beta >= 0) numbers[layout.beta] = beta;
        if (layout.gamma >= 0) numbers[layout.gamma] = gamma;
        if (layout.phi >= 0) numbers[layout.phi] = phi;
    }
};

/// The likelihood has several maxima.
constexpr Start STARTS[] = {
    {0.05, 0.05, 0.05, 0.97}, {0.3, 0.05, 0.05, 0.97}, {0.7, 0.05, 0.05, 0.97}, {0.95, 0.95, 0.05, 0.97},
    {0.1, 0.4, 0.4, 0.9},     {0.3, 0.1, 0.8, 0.97},   {0.6, 0.3, 0.5, 0.9},    {0.95, 0.5, 0.05, 0.85},
};

} // namespace grouplearn::series
