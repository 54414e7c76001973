// Ridge where some columns follow from others and the penalty is less than what rounding makes of them: they are told by the
// pivots of the Gram matrix without the penalty, once for all penalties.
#pragma once
#include "linear/least_squares/pivoted.hpp"
#include <memory>

namespace grouplearn {
namespace {

/// Ridge on columns of unit length: (A + l2·D⁻²)v = right, with D⁻¹ = `inverse`, w = D⁻¹v, and an A some of whose directions say
/// nothing.
///
/// A small penalty makes of their eigenvalue 0 one of its own size. Whether that is above rounding no factor of the sum tells, and
/// what rounding says along them would be divided by it. So v = (a, 0) + Nb, where a are the weights of A's pivots and N what A does
/// not see. The rows' part depends on a alone, and b is what makes the penalty least: l2·a'Ta, where T is a Schur complement of the
/// penalties on a and b, the same for every l2. What is left to solve, (A₁₁ + l2·T)a = right₁, has no less an eigenvalue than A₁₁.
class Redundant {
  public:
    Redundant(const double *matrix, int64_t count, int64_t width, const double *inverse)
        : matrix(matrix), inverse(inverse), n(count), width(width), factor(count * width, false) {
        memcpy(factor, matrix, count * width * sizeof(double));
        if (are_unequal(inverse, count)) return;
        pivots.reset(new Semidefinite(factor, count, width, 8 * EPSILON * (double)count));
        k = pivots->rank, m = n - k;
        if (stopped() || !m || !(pivots->least_eigenvalue() > CLEAR)) return;
        write_unseen();
        if (stopped() || !factor_unseen()) return;
        write_penalty();
        clear = !stopped();
    }

    /// Writes v (width); false where pivots do not tell.
    bool solve(const double *right, double l2, double *solution) const {
        if (!clear) return false;
        int64_t lanes = in_lanes(k);
        Numbers whole(k * lanes), system(k * lanes), given(lanes), found(lanes), residual(lanes), step(lanes);
        for (int64_t i = 0; i < k; i++) {
            const double *row = matrix + pivots->column(i) * width;
            for (int64_t j = 0; j < k; j++)
                whole[i * lanes + j] = __builtin_fma(l2, penalty->start()[i * lanes + j], row[pivots->column(j)]);
            given[i] = right[pivots->column(i)];
        }
        memcpy(system, whole, k * lanes * sizeof(double));
        Semidefinite own(system, k, lanes, 8 * EPSILON * (double)k);
        if (own.rank < k || !(own.least_eigenvalue() > CLEAR / 2)) return false;
        own.solve(given, found);
        for (int64_t i = 0; i < k; i++) residual[i] = given[i] - dot(whole + i * lanes, found, lanes);
        own.solve(residual, step); // a step of refinement
        memset(solution, 0, width * sizeof(double));
        for (int64_t i = 0; i < k; i++) solution[pivots->column(i)] = (found[i] + step[i]) * inverse[pivots->column(i)];
        take_out_unseen(solution);
        for (int64_t j = 0; j < width; j++) solution[j] = inverse[j] > 0 ? solution[j] / inverse[j] : 0;
        return !stopped();
    }

  private:
    const double *matrix, *inverse;
    int64_t n, width, k = 0, m = 0;
    bool clear = false;
    Numbers factor;
    std::unique_ptr<Semidefinite> pivots, among;
    /// What A does not see as rows of weights of length 1 (m, width), their products (m, m in lanes), and T (k, k in lanes).
    std::unique_ptr<Numbers> unseen, products, penalty;

    double *direction(int64_t i) const { return *unseen + i * width; }

    void write_unseen() {
        unseen.reset(new Numbers(m * width));
        for (int64_t i = 0; i < m && !stop(k * k / 16); i++) {
            pivots->unseen(i, direction(i));
            clean_direction(direction(i), n);
            for (int64_t j = 0; j < n; j++) direction(i)[j] *= inverse[j];
            double size = inverse_root(dot(direction(i), direction(i), width));
            for (int64_t j = 0; j < n; j++) direction(i)[j] *= size;
        }
    }

    bool factor_unseen() {
        int64_t lanes = in_lanes(m);
        products.reset(new Numbers(m * lanes));
        for (int64_t i = 0; i < m && !stop(i * width / 8); i++)
            for (int64_t j = 0; j <= i; j++) (*products)[i * lanes + j] = dot(direction(i), direction(j), width);
        among.reset(new Semidefinite(*products, m, lanes, 8 * EPSILON * (double)width));
        return among->rank == m && among->least_eigenvalue() > CLEAR;
    }

    /// T: the penalties of pivots, less what the others take over of them.
    void write_penalty() {
        int64_t lanes = in_lanes(k), length = in_lanes(m);
        Numbers taken(k * length), row(length);
        for (int64_t i = 0; i < k && !stop(m * m / 8); i++) {
            int64_t own = pivots->column(i);
            for (int64_t t = 0; t < m; t++) row[t] = inverse[own] * direction(t)[own];
            among->half(row, taken + i * length);
        }
        penalty.reset(new Numbers(k * lanes));
        for (int64_t i = 0; i < k && !stop(i * length / 8); i++)
            for (int64_t j = 0; j <= i; j++) {
                double square = i == j ? inverse[pivots->column(i)] * inverse[pivots->column(i)] : 0;
                (*penalty)[i * lanes + j] = (*penalty)[j * lanes + i] =
                    square - dot(taken + i * length, taken + j * length, length);
            }
    }

    void take_out_unseen(double *weights) const {
        Numbers shares(m), found(m);
        for (int again = 0; again < 2; again++) { // what rounding leaves goes the second time
            for (int64_t i = 0; i < m; i++) shares[i] = dot(direction(i), weights, width);
            among->solve(shares, found);
            for (int64_t i = 0; i < m; i++) add_multiple(weights, -found[i], direction(i), width);
        }
    }
};

} // namespace
} // namespace grouplearn
