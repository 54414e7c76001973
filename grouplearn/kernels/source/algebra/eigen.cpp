// Eigenvalues and vectors of positive semidefinite matrices: Cholesky's factor with the largest pivot first, turned until its
// columns are orthogonal (one-sided Jacobi), which finds small values to as many digits as the matrix has of them.
#include "lanes/entry.hpp"
#include "algebra/matrices.hpp"
#include <algorithm>
#include <vector>

namespace grouplearn::eigen {
namespace {

/// Of the largest eigenvalue, times the size of the matrix or this, what is less is rounding of sums over rows.
constexpr int64_t SMALL = 64;
/// Entries whose sizes differ by less of them are taken for equal where a sign is chosen.
constexpr double ALIKE = 1e-9;

/// Makes the largest entry of a direction, the first of those alike, positive.
void turn_up(double *direction, int64_t size) {
    double largest = 0;
    for (int64_t j = 0; j < size; j++) largest = std::max(largest, __builtin_fabs(direction[j]));
    int64_t first = 0;
    while (first < size && __builtin_fabs(direction[first]) < largest * (1 - ALIKE)) first++;
    if (first == size || !(direction[first] < 0)) return;
    for (int64_t j = 0; j < size; j++) direction[j] = direction[j] == 0 ? 0 : -direction[j];
}

class Solver {
  public:
    explicit Solver(int64_t size) : size(size), width(in_lanes(size)), matrix(size * width), columns(size * width), found(size), order(size) {}

    /// Writes the eigenvalues, the largest first, and the directions as rows, 0 where the value is; returns how many are not.
    int64_t solve(const double *given, double *values, double *directions) {
        double largest = 0;
        for (int64_t j = 0; j < size; j++) {
            if (!std::isfinite(given[j * size + j])) return nothing(values, directions);
            largest = std::max(largest, given[j * size + j]);
        }
        // The numbers of the matrix are brought near 1, by a power of two, so that products of them neither overflow nor vanish.
        int power = 0;
        if (largest > 0) frexp(largest, &power);
        power = std::max(power, -1000);
        double scale = ldexp(1.0, -power);
        for (int64_t i = 0; i < size; i++)
            for (int64_t j = 0; j < size; j++) matrix[i * width + j] = given[i * size + j] * scale;
        int64_t rank = largest > 0 ? eigenvectors(matrix, size, width, columns, found) : 0;
        if (stopped()) return 0;
        for (int64_t i = 0; i < rank; i++) order[i] = i;
        std::stable_sort(order.begin(), order.begin() + rank, [&](int64_t one, int64_t other) { return found[one] > found[other]; });
        double least = rank ? found[order[0]] * (double)std::max(size, SMALL) * 2.220446049250313e-16 : 0;
        while (rank && !(found[order[rank - 1]] > least)) rank--;
        for (int64_t i = 0; i < rank; i++) {
            double *column = columns + order[i] * width;
            turn_up(column, size);
            values[i] = found[order[i]] / scale;
            memcpy(directions + i * size, column, (size_t)size * sizeof(double));
        }
        memset(values + rank, 0, (size_t)(size - rank) * sizeof(double));
        memset(directions + rank * size, 0, (size_t)(size - rank) * (size_t)size * sizeof(double));
        return rank;
    }

  private:
    const int64_t size, width;
    Numbers matrix, columns, found;
    std::vector<int64_t> order;

    int64_t nothing(double *values, double *directions) const {
        for (int64_t i = 0; i < size; i++) values[i] = (double)NAN;
        for (int64_t i = 0; i < size * size; i++) directions[i] = (double)NAN;
        return 0;
    }
};

} // namespace

/// Of each of `count` symmetric matrices (size, size) the eigenvalues (size), the largest first, what is rounding as 0; the directions
/// as rows (size, size), 0 where the value is; and how many values are not 0. NaN of a matrix whose diagonal is not finite.
GROUPLEARN_ENTRY void eigen_directions(const double *matrices, int64_t count, int64_t size, double *values, double *directions,
                                       int64_t *rank) {
    Arithmetic arithmetic;
    Solver solver(size);
    for (int64_t i = 0; i < count && !stop(size * size); i++)
        rank[i] = solver.solve(matrices + i * size * size, values + i * size, directions + i * size * size);
}

} // namespace grouplearn::eigen
