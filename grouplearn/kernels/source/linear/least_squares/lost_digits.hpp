// What a Gram matrix says of directions, and what is done where it has lost their digits: factors of the rows.
#pragma once
#include "linear/least_squares/moments.hpp"
#include "algebra/semidefinite.hpp"
#include "algebra/systems.hpp"
#include <memory>
#include <vector>

namespace grouplearn {
namespace {

/// Directions below this share of the largest eigenvalue of a correlation matrix carry no information.
constexpr double RANK = 1e-12;
/// Of the largest eigenvalue: below it digits of the weights are lost in a Gram matrix; below it, times d, is its rounding.
constexpr double DOUBT = 1e-9, NONE = 1e-14;
/// Of the largest singular value of rows: what is below it is rounding of the columns as written.
constexpr double ROUNDING = 1e-13;
/// Up to which a Gram matrix is looked at for digits that it has lost.
constexpr int64_t MOST_COLUMNS = 128;
constexpr double EPSILON = 2.220446049250313e-16;

/// Writes D⁻¹GD⁻¹ with a unit diagonal; a constant column is in no other equation, and its weight comes out as zero.
void scale_matrix(double *matrix, const double *gram, const double *inverse, int64_t d, int64_t width) {
    for (int64_t i = 0; i < d; i++) {
        double own = inverse[i];
        for (int64_t j = 0; j < d; j++) matrix[i * width + j] = gram[i * d + j] * (own * inverse[j]);
        for (int64_t j = d; j < width; j++) matrix[i * width + j] = 0;
        matrix[i * width + i] = 1;
    }
}

/// 1/√ of what is above 0, else 0.
double inverse_root(double square) { return square > 0 ? 1 / __builtin_sqrt(square) : 0; }

/// What is rounding of the columns as written, of singular values on columns of unit length.
double rounding_of(const Moments &m, int64_t d) {
    double most = 0;
    for (int64_t j = 0; j < d; j++) {
        double offset = m.square[j] > 0 ? *m.total * (m.mean[j] * m.mean[j]) / m.square[j] : 0;
        if (offset > most) most = offset;
    }
    return ROUNDING * __builtin_sqrt(1 + most);
}

/// A square root F of a Gram matrix of features and label, F'F; directions that are its rounding are none. F (p, p) by rows.
void root_of(const double *whole, int64_t p, double *root) {
    int64_t width = in_lanes(p);
    Numbers inverse(p), matrix(p * width), columns(p * width), values(p);
    for (int64_t i = 0; i < p; i++) inverse[i] = inverse_root(whole[i * p + i]);
    for (int64_t i = 0; i < p; i++)
        for (int64_t j = 0; j < p; j++) matrix[i * width + j] = whole[i * p + j] * inverse[i] * inverse[j];
    int64_t rank = eigenvectors(matrix, p, width, columns, values);
    double largest = 0;
    for (int64_t i = 0; i < rank; i++)
        if (values[i] > largest) largest = values[i];
    memset(root, 0, p * p * sizeof(double));
    for (int64_t i = 0; i < rank; i++) {
        double value = values[i] > NONE * (double)p * largest ? __builtin_sqrt(values[i]) : 0;
        for (int64_t j = 0; j < p; j++) root[i * p + j] = inverse[j] > 0 ? value * columns[i * width + j] / inverse[j] : 0;
    }
}

/// R of QR of rows (n, p), p·p by rows.
void triangle_of_rows(const double *rows, int64_t n, int64_t p, double *triangle) {
    int64_t length = in_lanes(n);
    Numbers columns(p * length);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < p; j++) columns[j * length + i] = rows[i * p + j];
    triangle_of(columns, length, p, triangle);
}

/// Ridge of a factor (p, p) of [X y], p = d + 1, by singular values: the penalty is d more rows, √l2 on the diagonal, of label 0.
/// Directions that are rounding of X have the penalty alone, which is then least where they are not gone along: what rounding
/// says would be divided by it.
double solve_factor(const double *factor, int64_t d, double l2, double tolerance, double *weights) {
    int64_t p = d + 1, length = in_lanes(p + d), width = in_lanes(d);
    Numbers columns(d * length), given(d * length), right(length), scale(width), solution(width), found(width);
    for (int64_t i = 0; i < p; i++) {
        for (int64_t j = 0; j < d; j++) given[j * length + i] = factor[i * p + j];
        right[i] = factor[i * p + d];
    }
    for (int64_t j = 0; j < d; j++) {
        double *column = given + j * length;
        scale[j] = inverse_root(dot(column, column, length));
        for (int64_t i = 0; i < length; i++) columns[j * length + i] = column[i] * scale[j];
        column[p + j] = __builtin_sqrt(l2);
    }
    if (l2 > 0) {
        Numbers basis(d * width), values(d), null(d * width), kept(d * width), unit(width), shares(width);
        double largest = directions(columns, length, basis, d, values);
        int64_t lost = 0, rank = 0;
        for (int64_t i = 0; i < d; i++) {
            double *direction = basis + i * width;
            bool says = values[i] > tolerance * largest;
            if (!says) clean_direction(direction, d);
            double *to = says ? kept + rank * width : null + lost * width;
            for (int64_t j = 0; j < d; j++) to[j] = scale[j] * direction[j];
            if (says) memmove(columns + rank * length, columns + i * length, length * sizeof(double));
            says ? rank++ : lost++;
        }
        lost = make_orthonormal(null, width, lost);
        for (int64_t i = 0; i < rank; i++) {
            double *column = columns + i * length, *direction = kept + i * width;
            take_out(direction, null, width, lost);
            for (int64_t j = 0; j < d; j++) column[p + j] = __builtin_sqrt(l2) * direction[j];
            unit[i] = inverse_root(dot(column, column, length));
            for (int64_t k = 0; k < length; k++) column[k] *= unit[i];
        }
        smallest_solution(columns, length, rank, right, ROUNDING, unit, solution, shares);
        for (int64_t i = 0; i < rank; i++) add_multiple(found, shares[i], kept + i * width, width);
    } else {
        smallest_solution(columns, length, d, right, tolerance, scale, solution, found);
    }
    memcpy(weights, found, d * sizeof(double));
    for (int64_t j = 0; j < d; j++) add_multiple(right, -weights[j], given + j * length, length);
    return 0.5 * dot(right, right, length);
}

/// What a Gram matrix on columns of unit length (d, width) does not see, if its pivots tell: all other directions then have
/// eigenvalues above `DOUBT` of the largest, which is at most d. One-hot columns beside an intercept are such a case, and eigenvectors
/// would take ten times as long.
struct Unseen {
    bool clear = false;
    int64_t count = 0;
    /// The directions as rows of length 1, orthogonal to each other, (count, width).
    std::unique_ptr<Numbers> directions;

    Unseen(const double *matrix, const double *inverse, int64_t d, int64_t width) {
        if (are_unequal(inverse, d)) return;
        Numbers factor(d * width, false);
        memcpy(factor, matrix, d * width * sizeof(double));
        Semidefinite pivots(factor, d, width, 8 * EPSILON * (double)d);
        // The least eigenvalue is found from above; that of a part is at most that of the whole.
        if (!(pivots.least_eigenvalue() > 2 * DOUBT * (double)d) || stopped()) return;
        clear = true;
        count = d - pivots.rank;
        directions.reset(new Numbers(count * width));
        for (int64_t i = 0; i < count; i++) pivots.unseen(i, *directions + i * width);
        count = make_orthonormal(*directions, width, count);
    }
};

/// Whether a Gram matrix loses digits of a direction.
bool loses(const double *gram, int64_t d, SystemSolver &systems) {
    int64_t width = in_lanes(d);
    if (!d || d > MOST_COLUMNS) return false;
    Numbers inverse(width), matrix(d * width), right(width), solution(width);
    for (int64_t j = 0; j < d; j++) inverse[j] = inverse_root(gram[j * d + j]);
    scale_matrix(matrix, gram, inverse, d, width);
    System system{matrix, right, inverse, 0, solution};
    bool regular;
    double trace;
    systems.solve(&system, 1, EPSILON, &regular, &trace);
    if (regular && trace * DOUBT * (double)d < 0.5) return false;
    Unseen unseen(matrix, inverse, d, width);
    if (unseen.clear) return unseen.count > 0;
    Numbers columns(d * width), values(d);
    int64_t rank = eigenvectors(matrix, d, width, columns, values);
    double largest = 0, least = rank < d ? 0 : INFINITY;
    for (int64_t i = 0; i < rank; i++) {
        if (values[i] > largest) largest = values[i];
        if (values[i] < least) least = values[i];
    }
    return least <= DOUBT * largest;
}

} // namespace
} // namespace grouplearn
