// Which groups have lost digits in their Gram matrices, and factors of rows.
#include "lanes/entry.hpp"
#include "rows/features.hpp"
#include "linear/least_squares/lost_digits.hpp"

using namespace grouplearn;

namespace {

/// Whether a direction that a Gram matrix on columns of unit length (d, width) has lost is one of columns of very unequal sizes.
bool weighs_unequally(const double *matrix, const double *inverse, int64_t d) {
    if (!are_unequal(inverse, d)) return false;
    int64_t width = in_lanes(d);
    Numbers columns(d * width), basis(d * width), values(d), sizes(d);
    memcpy(columns, matrix, d * width * sizeof(double));
    double largest = directions(columns, width, basis, d, values);
    for (int64_t i = 0; i < d; i++) {
        if (values[i] > DOUBT * largest) continue;
        double *direction = basis + i * width;
        clean_direction(direction, d);
        for (int64_t j = 0; j < d; j++) sizes[j] = direction[j] != 0 ? inverse[j] : 0;
        if (are_unequal(sizes, d)) return true;
    }
    return false;
}

} // namespace

/// Of each group of rows (start as in row_moments) whose moments are given: 0 where its Gram matrix keeps all digits or is not
/// finite, 1 where it may have lost some, but its rows have nothing there, 2 where they have, or
/// a direction that says nothing is of columns of such sizes that its weights say something.
GROUPLEARN_ENTRY void lost_directions(int64_t groups, int64_t d, double *const *moments, const float *x_single,
                                      const double *x_double, const double *weight, const int64_t *start, uint8_t *found) {
    Arithmetic arithmetic;
    Features x{x_single, x_double};
    Moments all{moments[0], moments[1], moments[2], moments[3], moments[4], moments[5], moments[6]};
    int64_t width = in_lanes(d);
    SystemSolver systems(d, width);
    Numbers inverses(8 * width), matrices(8 * d * width), right(width), solutions(8 * width), row(width);
    Looks looks;
    for (int64_t first = 0; first < groups && !looks.stop(d * d); first += 8) {
        int count = (int)(groups - first < 8 ? groups - first : 8);
        System side_by_side[8];
        bool regular[8], known[8];
        double trace[8];
        for (int i = 0; i < count; i++) {
            const double *gram = all.gram + (first + i) * d * d;
            double *inverse = inverses + i * width, *matrix = matrices + i * d * width, sum = 0;
            for (int64_t j = 0; j < d * d; j++) sum += __builtin_fabs(gram[j]) <= 1.7976931348623157e308 ? 0 : 1;
            known[i] = sum == 0;
            for (int64_t j = 0; j < d; j++) inverse[j] = known[i] ? inverse_root(gram[j * d + j]) : 0;
            if (known[i]) scale_matrix(matrix, gram, inverse, d, width);
            side_by_side[i] = {matrix, right, inverse, 0, solutions + i * width};
        }
        systems.solve(side_by_side, count, EPSILON, regular, trace);
        for (int i = 0; i < count; i++) {
            int64_t g = first + i;
            found[g] = 0;
            const double *matrix = matrices + i * d * width, *inverse = inverses + i * width;
            if (!known[i] || (regular[i] && trace[i] * DOUBT * (double)d < 0.5)) continue;
            Moments m = all.at(g, d, 1);
            double left = 0;
            auto standardised = [&](int64_t r) {
                for (int64_t j = 0; j < d; j++) row[j] = (x[r * d + j] - m.mean[j]) * inverse[j];
            };
            // What the rows have beyond the directions that the Gram matrix knows.
            auto has_more = [&](int64_t lost) {
                return __builtin_sqrt(left) > rounding_of(m, d) * __builtin_sqrt((double)lost);
            };
            Unseen unseen(matrix, inverse, d, width);
            if (unseen.clear) {
                if (!unseen.count) continue;
                for (int64_t r = start[g]; r < start[g + 1]; r++) {
                    if (looks.stop(d / 4 + unseen.count * (width / 8 + 1))) return;
                    standardised(r);
                    for (int64_t k = 0; k < unseen.count; k++) {
                        double share = dot(row, *unseen.directions + k * width, width);
                        left += weight[r] * share * share;
                    }
                }
                found[g] = has_more(unseen.count) ? 2 : 1;
                continue;
            }
            Numbers columns(d * width), values(d);
            int64_t rank = eigenvectors(matrix, d, width, columns, values), known_well = 0;
            double largest = 0;
            for (int64_t k = 0; k < rank; k++)
                if (values[k] > largest) largest = values[k];
            for (int64_t k = 0; k < rank; k++)
                if (values[k] > DOUBT * largest) memmove(columns + known_well++ * width, columns + k * width, width * sizeof(double));
            if (known_well == d) continue;
            for (int64_t r = start[g]; r < start[g + 1]; r++) {
                if (looks.stop(d / 4 + known_well * (width / 4 + 1))) return;
                standardised(r);
                for (int64_t k = 0; k < known_well; k++) {
                    const double *direction = columns + k * width;
                    add_multiple(row, -dot(row, direction, width), direction, width);
                }
                left += weight[r] * dot(row, row, width);
            }
            found[g] = has_more(d - known_well) || weighs_unequally(matrix, inverse, d) ? 2 : 1;
        }
    }
}

/// R (p, p) of QR of rows (n, p).
GROUPLEARN_ENTRY void triangle_of_rows(const double *rows, int64_t n, int64_t p, double *triangle) {
    Arithmetic arithmetic;
    grouplearn::triangle_of_rows(rows, n, p, triangle);
}

/// A square root F (p, p) of a symmetric matrix F'F (p, p).
GROUPLEARN_ENTRY void root_of_gram(const double *whole, int64_t p, double *root) {
    Arithmetic arithmetic;
    root_of(whole, p, root);
}
