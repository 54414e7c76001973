// Positive semidefinite systems of hundreds or thousands of columns: Cholesky's factor, the largest pivot first, block by block
// (Higham 1990; LAPACK's pstrf), and the directions that the matrix does not see.
#pragma once
#include "algebra/matrices.hpp"
#include "algebra/products.hpp"
#include <vector>

namespace grouplearn {

/// Σ aᵢbᵢ of `count` numbers wherever they lie: four sums of every fourth.
inline double dot_of(const double *a, const double *b, int64_t count) {
    double sums[4] = {};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (int k = 0; k < 4; k++) sums[k] = __builtin_fma(a[i + k], b[i + k], sums[k]);
    for (int k = 0; i < count; i++, k++) sums[k] = __builtin_fma(a[i], b[i], sums[k]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

class Semidefinite {
  public:
    /// Factors P'AP = LL' for `matrix` A (count, width), whose lower triangle it overwrites, until no pivot is above `least`.
    Semidefinite(double *matrix, int64_t count, int64_t width, double least)
        : a(matrix), n(count), width(width), order(count), gone(count), turned(PANEL * in_lanes(count)), part(count) {
        for (int64_t i = 0; i < n; i++) order[i] = i;
        while (rank < n && factor_panel(least)) update_rest(rank - PANEL);
    }

    /// How many columns were pivots, and the largest diagonal that is left of the others.
    int64_t rank = 0;
    double left = 0;

    /// About the least eigenvalue of the pivots' part, from above, by inverse iteration.
    double least_eigenvalue() {
        if (!rank) return 0;
        double length = 0, value = 0;
        for (int64_t i = 0; i < rank; i++) part[i] = 1 + (double)(i * 37 % 101) / 101;
        for (int turn = 0; turn < 6; turn++) {
            length = __builtin_sqrt(dot_of(part, part, rank));
            for (int64_t i = 0; i < rank; i++) part[i] /= length;
            if (stop(rank * rank / 2)) return 0;
            forward();
            backward();
            value = 1 / __builtin_sqrt(dot_of(part, part, rank));
        }
        return value;
    }

    /// The column that is pivot, or left, at a place.
    int64_t column(int64_t place) const { return order[place]; }

    /// L⁻¹P'right of a matrix of full rank, whose products with each other are those with its inverse.
    void half(const double *right, double *found) {
        for (int64_t i = 0; i < rank; i++) part[i] = right[order[i]];
        forward();
        memcpy(found, part, rank * sizeof(double));
    }

    /// `v` (count) with Av = right as far as the pivots' rows say, 0 for the other columns.
    void solve(const double *right, double *v) {
        for (int64_t i = 0; i < rank; i++) part[i] = right[order[i]];
        forward();
        backward();
        for (int64_t i = 0; i < n; i++) v[order[i]] = i < rank ? part[i] : 0;
    }

    /// `v` (count) of which A makes nothing: 1 for column `place` of those that are no pivots.
    void unseen(int64_t place, double *v) {
        const double *row = a + (rank + place) * width;
        for (int64_t i = 0; i < rank; i++) part[i] = -row[i];
        backward();
        for (int64_t i = 0; i < n; i++) v[order[i]] = i < rank ? part[i] : i == rank + place ? 1 : 0;
    }

  private:
    static constexpr int64_t PANEL = 64;
    double *a;
    int64_t n, width;
    std::vector<int64_t> order;
    /// Of each column, what the panel so far has taken from its diagonal; the panel's columns as rows, negative; a solution.
    Numbers gone, turned, part;

    /// Makes the next columns of L; false when the factor ends within or after them.
    bool factor_panel(double least) {
        int64_t first = rank, last = n - first < PANEL ? n : first + PANEL;
        for (int64_t i = first; i < n; i++) gone[i] = 0;
        for (int64_t j = first; j < last; j++) {
            if (stop((n - j) * (j - first + 8) / 4)) return false;
            int64_t pivot = j;
            left = 0;
            for (int64_t i = j; i < n; i++) {
                if (j > first) gone[i] = __builtin_fma(a[i * width + j - 1], a[i * width + j - 1], gone[i]);
                double diagonal = a[i * width + i] - gone[i];
                if (diagonal > left) left = diagonal, pivot = i;
            }
            if (!(left > least)) return false;
            exchange_columns(j, pivot);
            double *own = a + j * width, root = __builtin_sqrt(left);
            own[j] = root;
            for (int64_t i = j + 1; i < n; i++) {
                double *row = a + i * width;
                row[j] = (row[j] - dot_of(row + first, own + first, j - first)) / root;
            }
            rank = j + 1;
            left = 0;
        }
        return rank < n;
    }

    /// Takes the panel of columns from `first` on from the lower triangle of the columns after it.
    void update_rest(int64_t first) {
        int64_t next = first + PANEL, rest = in_lanes(n - next);
        for (int64_t i = next; i < n; i++)
            for (int64_t k = 0; k < PANEL; k++) turned[k * rest + i - next] = -a[i * width + first + k];
        for (int64_t k = 0; k < PANEL; k++)
            for (int64_t i = n - next; i < rest; i++) turned[k * rest + i] = 0;
        for (int64_t row = next; row < n && !stopped(); row += PANEL) {
            int64_t rows = n - row < PANEL ? n - row : PANEL, columns = in_lanes(row + rows - next);
            multiply<D>(Product<double>{a + row * width + first, width, 1, turned, rest, a + row * width + next, width, rows,
                                        columns / 8, PANEL, nullptr, true});
        }
    }

    void exchange_columns(int64_t j, int64_t k) {
        if (j == k) return;
        auto swap = [](double &one, double &other) {
            double kept = one;
            one = other;
            other = kept;
        };
        std::swap(order[j], order[k]);
        swap(gone[j], gone[k]);
        swap(a[j * width + j], a[k * width + k]);
        for (int64_t i = 0; i < j; i++) swap(a[j * width + i], a[k * width + i]);
        for (int64_t i = j + 1; i < k; i++) swap(a[i * width + j], a[k * width + i]);
        for (int64_t i = k + 1; i < n; i++) swap(a[i * width + j], a[i * width + k]);
    }

    void forward() {
        Looks looks;
        for (int64_t i = 0; i < rank && !looks.stop(i / 8); i++)
            part[i] = (part[i] - dot_of(a + i * width, part, i)) / a[i * width + i];
    }

    void backward() {
        Looks looks;
        for (int64_t i = rank - 1; i >= 0 && !looks.stop(i / 8); i--) {
            const double *row = a + i * width;
            double found = part[i] = part[i] / row[i];
            for (int64_t k = 0; k < i; k++) part[k] = __builtin_fma(-found, row[k], part[k]);
        }
    }
};

} // namespace grouplearn
