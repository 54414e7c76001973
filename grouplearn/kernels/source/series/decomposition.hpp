// The seasons of a regular series without missing steps, as deviations from its trend or ratios to it.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace grouplearn::series {

/// Intercept (before the first step, which is 1) and slope of the straight line with the least squares.
struct Line {
    double intercept, slope;
};

inline Line straight_line(const double *y, int64_t n) {
    double middle = 0.5 * (double)(n + 1), mean = 0, products = 0, squares = 0;
    for (int64_t t = 0; t < n; t++) mean += y[t];
    mean /= (double)n;
    for (int64_t t = 0; t < n; t++) {
        double off = (double)(t + 1) - middle;
        products += off * (y[t] - mean), squares += off * off;
    }
    double slope = n > 1 ? products / squares : 0;
    return {mean - slope * middle, slope};
}

/// cos x and sin x for 0 ≤ x ≤ 2π by their series: a C library's last bits depend on the processor.
inline void cosine_and_sine(double x, double *cosine, double *sine) {
    double off = x - M_PI, term = 1, sums[2] = {0, 0};
    for (int k = 0; k < 30; k++) {
        sums[k % 2] += k % 4 < 2 ? term : -term;
        term *= off / (k + 1);
    }
    *cosine = -sums[0], *sine = -sums[1];
}

/// The line beside one wave per season, of series that are shorter than three seasons of m > 2 steps.
inline Line line_beside_wave(const double *y, int64_t n, int64_t m) {
    std::vector<double> columns[4];
    for (auto &each : columns) each.resize((size_t)n);
    for (int64_t t = 0; t < n; t++) {
        columns[0][t] = 1, columns[1][t] = (double)(t + 1);
        cosine_and_sine(2 * M_PI * (double)((t + 1) % m) / (double)m, &columns[2][t], &columns[3][t]);
    }
    // The intercept and the slope are what stands last in an orthogonal basis: waves first (Gram and Schmidt).
    const int order[4] = {2, 3, 0, 1};
    std::vector<double> rest(y, y + n);
    double square[4], share[4], of_one[4] = {};
    auto product = [n](const std::vector<double> &a, const std::vector<double> &b) {
        double sum = 0;
        for (int64_t t = 0; t < n; t++) sum += a[t] * b[t];
        return sum;
    };
    for (int i = 0; i < 4; i++) {
        auto &own = columns[order[i]];
        for (int k = 0; k < i; k++) {
            auto &before = columns[order[k]];
            double part = product(own, before) / square[k];
            if (i == 3) of_one[k] = part;
            for (int64_t t = 0; t < n; t++) own[t] -= part * before[t];
        }
        square[i] = product(own, own);
        share[i] = product(rest, own) / square[i];
        for (int64_t t = 0; t < n; t++) rest[t] -= share[i] * own[t];
    }
    return {share[2] - share[3] * of_one[2], share[3]};
}

/// The mean of a season around each step, which half a season at either end is without: NaN.
inline void moving_average(const double *y, int64_t n, int64_t m, double *trend) {
    int64_t half = m / 2;
    for (int64_t t = 0; t < n; t++) {
        trend[t] = (double)NAN;
        if (t < half || t + half >= n) continue;
        double sum = m % 2 ? 0 : 0.5 * (y[t - half] + y[t + half]);
        for (int64_t i = t - half + (m % 2 == 0); i <= t + half - (m % 2 == 0); i++) sum += y[i];
        trend[t] = sum / (double)m;
    }
}

/// The figure of each of m seasons by classical decomposition: what steps are on average beside the trend, their sum 0, or over it,
/// their mean 1.
inline void seasonal_figure(const double *y, int64_t n, int64_t m, bool multiplicative, double *figure) {
    std::vector<double> trend((size_t)n);
    moving_average(y, n, m, trend.data());
    double mean = 0;
    for (int64_t i = 0; i < m; i++) {
        double sum = 0, count = 0;
        for (int64_t t = i; t < n; t += m)
            if (trend[t] == trend[t]) sum += multiplicative ? y[t] / trend[t] : y[t] - trend[t], count++;
        figure[i] = sum / count;
        mean += figure[i];
    }
    mean /= (double)m;
    for (int64_t i = 0; i < m; i++) figure[i] = multiplicative ? figure[i] / mean : figure[i] - mean;
}

} // namespace grouplearn::series
