// Least squares of residuals that depend on some numbers within ranges, by Levenberg (1944) and Marquardt (1963).
//
// Steps solve (J'J + λ·diag(J'J))·δ = −J'u for the numbers that are not held at a bound, and are cut off there. J is made of
// differences: residuals are wanted at eight points at a time, one per lane.
#pragma once
#include "algebra/matrices.hpp"
#include "lanes/elementary.hpp"
#include <algorithm>

namespace grouplearn::series {

/// What residuals of eight points are to be multiplied by, and whether the points are allowed.
struct Points {
    D scale;
    DMask allowed;
};

class LevenbergMarquardt {
  public:
    static constexpr int MOST = 32; // numbers

    /// For so many residuals at most.
    explicit LevenbergMarquardt(int64_t rows)
        : stride(in_lanes(std::max(rows, (int64_t)1))), points(8 * MOST), residuals(8 * stride), columns((MOST + 8) * stride),
          normal(MOST * MOST), factor(MOST * MOST) {}

    double low[MOST], high[MOST], numbers[MOST]; // the ranges, and where to begin and what was found
    double squares;                              // the sum of squares there

    /// Find the least squares of `rows` residuals by the first `n` of some numbers in some steps; whether it has converged.
    /// `residuals_at(points, residuals)` writes (rows, 8) from points (numbers, 8).
    template <class Residuals> bool solve(int n, int all_numbers, int64_t rows, const Residuals &residuals_at, int steps) {
        squares = INFINITY, constants = all_numbers;
        if (!evaluate(n, rows, numbers, residuals_at)) return false;
        accept(n, squares = found);
        double damping = 1e-3;
        for (int step = 0; step < steps; step++) {
            double next[MOST];
            if (!propose(n, damping, next)) return true;
            if (evaluate(n, rows, next, residuals_at) && found < squares) {
                double gain = (double)rows * logarithm_of(squares / found);
                std::copy(next, next + n, numbers);
                accept(n, found);
                damping = std::max(damping * 0.1, LEAST_DAMPING);
                if (!(gain > TOLERANCE)) return true;
            } else if ((damping *= 10) > MOST_DAMPING) return true;
        }
        return false;
    }

  private:
    static constexpr double DIFFERENCE = 1e-6, TOLERANCE = 1e-6, LEAST_DAMPING = 1e-9, MOST_DAMPING = 1e6;

    int64_t stride;
    int constants;
    Numbers points, residuals, columns, normal, factor; // columns: the residuals, then those of J
    double found, gradient[MOST];

    double *column(int64_t i) { return columns + i * stride; }

    /// Residuals and J at some numbers; false where they are not allowed.
    template <class Residuals> bool evaluate(int n, int64_t rows, const double *at, const Residuals &residuals_at) {
        double step[MOST];
        for (int i = 0; i < n; i++) step[i] = at[i] + DIFFERENCE > high[i] ? -DIFFERENCE : DIFFERENCE;
        for (int i = n; i < constants; i++) store(points + 8 * i, all(numbers[i]));
        for (int first = 0; first <= n; first += 8) {
            for (int i = 0; i < n; i++)
                for (int lane = 0; lane < 8; lane++) points[8 * i + lane] = at[i] + (first + lane == i + 1 ? step[i] : 0);
            Points are = residuals_at(points, residuals);
            if (!first) {
                double allowed[8];
                store(allowed, select(are.allowed & (size(are.scale) < all((double)INFINITY)), all(1.0), zero<D>()));
                if (!allowed[0]) return false;
            }
            spread(first, rows, are.scale);
            if (!first && !((found = dot(column(0), column(0), stride)) < INFINITY)) return false;
        }
        for (int i = 0; i < n; i++) {
            double *own = column(i + 1), inverse = 1 / step[i];
            for (int64_t t = 0; t < stride; t++) own[t] = (own[t] - column(0)[t]) * inverse;
        }
        return true;
    }

    /// Turn eight points' residuals into columns.
    void spread(int first, int64_t rows, D scale) {
        for (int64_t t = 0; t < stride; t += 8) {
            D part[8];
            for (int64_t k = 0; k < 8; k++) part[k] = t + k < rows ? load(residuals + 8 * (t + k)) * scale : zero<D>();
            turn(part);
            for (int lane = 0; lane < 8; lane++) store(column(first + lane) + t, part[lane]);
        }
    }

    /// Keep J'J and J'u of the numbers that were evaluated.
    void accept(int n, double value) {
        squares = value;
        for (int i = 0; i < n; i++) {
            const double *own = column(i + 1);
            gradient[i] = dot(own, column(0), stride);
            for (int j = 0; j <= i; j++) normal[i * MOST + j] = normal[j * MOST + i] = dot(own, column(j + 1), stride);
        }
    }

    /// The numbers after a step; false where none leads anywhere. Those that come to a bound stay there, and the others go on.
    bool propose(int n, double damping, double *next) {
        int free[MOST], count = 0;
        double pull[MOST];
        for (int i = 0; i < n; i++) {
            bool is_held = gradient[i] > 0 ? numbers[i] <= low[i] : numbers[i] >= high[i];
            double own = normal[i * MOST + i];
            if (!is_held && own > 0 && own < INFINITY) free[count++] = i;
            next[i] = numbers[i], pull[i] = -gradient[i];
        }
        for (int before = count + 1; count && count < before;) {
            double step[MOST];
            if (!factorise(free, count, damping, pull, step)) return false;
            before = count, count = 0;
            for (int k = 0; k < before; k++) {
                int i = free[k];
                next[i] = std::min(std::max(numbers[i] + step[k], low[i]), high[i]);
                if (next[i] == numbers[i] + step[k]) free[count++] = i;
                else
                    for (int j = 0; j < n; j++) pull[j] -= normal[i * MOST + j] * (next[i] - numbers[i]);
            }
        }
        return !std::equal(next, next + n, numbers);
    }

    /// The step of some numbers by Cholesky's factor of their part of J'J.
    bool factorise(const int *free, int count, double damping, const double *pull, double *step) {
        for (int i = 0; i < count; i++) {
            for (int j = i; j < count; j++) factor[i * MOST + j] = normal[free[i] * MOST + free[j]];
            factor[i * MOST + i] *= 1 + damping;
            step[i] = pull[free[i]];
        }
        for (int k = 0; k < count; k++) {
            double *pivot = factor + k * MOST;
            if (!(pivot[k] > 0)) return false;
            double inverse = 1 / __builtin_sqrt(pivot[k]);
            for (int j = k; j < count; j++) pivot[j] *= inverse;
            step[k] *= inverse;
            for (int i = k + 1; i < count; i++) {
                double *own = factor + i * MOST;
                for (int j = i; j < count; j++) own[j] -= pivot[i] * pivot[j];
                step[i] -= pivot[i] * step[k];
            }
            pivot[k] = inverse;
        }
        for (int k = count - 1; k >= 0; k--) {
            for (int j = k + 1; j < count; j++) step[k] -= factor[k * MOST + j] * step[j];
            step[k] *= factor[k * MOST + k];
        }
        return true;
    }
};

} // namespace grouplearn::series
