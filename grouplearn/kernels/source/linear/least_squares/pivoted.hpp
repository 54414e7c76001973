// The smallest weights that solve a positive semidefinite system of many columns, where its pivots tell which directions count.
#pragma once
#include "algebra/semidefinite.hpp"
#include "linear/least_squares/lost_digits.hpp"

namespace grouplearn {
namespace {

/// An eigenvalue of a correlation matrix that is surely above its rounding.
constexpr double CLEAR = 1e-8;

/// Takes from `whole` (length in lanes) what it has in common with `count` columns that are independent of each other.
void take_out_all(double *whole, double *columns, int64_t length, int64_t count) {
    int64_t width = in_lanes(count);
    Numbers products(count * width), shares(width), found(width);
    for (int64_t i = 0; i < count; i++) {
        double *one = columns + i * length, size = inverse_root(dot(one, one, length));
        for (int64_t j = 0; j < length; j++) one[j] *= size;
        if (stop((i + 2) * length / 8)) return;
        for (int64_t j = 0; j <= i; j++) products[i * width + j] = dot(one, columns + j * length, length);
    }
    Semidefinite pivots(products, count, width, 8 * EPSILON * (double)length);
    for (int again = 0; again < 2; again++) { // what rounding leaves goes the second time
        for (int64_t i = 0; i < count; i++) shares[i] = dot(columns + i * length, whole, length);
        pivots.solve(shares, found);
        for (int64_t i = 0; i < count; i++) add_multiple(whole, -found[i], columns + i * length, length);
    }
}

/// Solves Av = right for a positive semidefinite A (count, width) with a diagonal of at most 1; false where A's pivots leave open
/// which directions say nothing. `complete(scale·v, with_label, to)` makes weights (length in lanes, of `columns`) of a solution, or
/// of a direction that says nothing; `whole` are those with the smallest sum of squares.
template <class Complete>
bool smallest_by_pivots(const double *matrix, int64_t count, int64_t width, const double *right, const double *scale,
                        int64_t length, int64_t columns, Complete complete, double *whole) {
    if (are_unequal(scale, count)) return false;
    Numbers factor(count * width, false), solution(width), direction(width), residual(width);
    memcpy(factor, matrix, count * width * sizeof(double));
    Semidefinite pivots(factor, count, width, 8 * EPSILON * (double)count);
    if (!(pivots.least_eigenvalue() > CLEAR)) return stopped();
    pivots.solve(right, solution);
    for (int64_t i = 0; i < count; i++) residual[i] = right[i] - dot(matrix + i * width, solution, width);
    pivots.solve(residual, direction); // a step of refinement
    for (int64_t i = 0; i < count; i++) solution[i] = (solution[i] + direction[i]) * scale[i];
    complete(solution, true, whole);
    int64_t lost = count - pivots.rank;
    Numbers unseen(lost * length);
    for (int64_t place = 0; place < lost && !stop(length / 2 + pivots.rank * pivots.rank / 16); place++) {
        pivots.unseen(place, direction);
        clean_direction(direction, count, columns);
        for (int64_t j = 0; j < count; j++) direction[j] *= scale[j];
        complete(direction, false, unseen + place * length);
    }
    take_out_all(whole, unseen, length, lost);
    return true;
}

} // namespace
} // namespace grouplearn
