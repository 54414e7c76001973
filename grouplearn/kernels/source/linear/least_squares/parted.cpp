// Least squares and ridge of many columns no two of which are set together: they are eliminated, and the others solve what is left.
#include "lanes/entry.hpp"
#include "linear/least_squares/pivoted.hpp"

using namespace grouplearn;

namespace {

/// Products of `own` columns no two of which are set together, their squares apart, with p - 1 others and an intercept: row k is
/// values at `columns` from starts[k] on, and offset[k] times `shift` (p), which is what centring takes.
struct PartedRows {
    int64_t own, p, width;
    const double *square;
    const int64_t *starts, *columns;
    const double *values, *offset;
    double *shift;
    /// Whether centring loses digits, so that it is done before anything is added up.
    bool centred;

    /// Row k, as it is without `centred` but for what centring takes.
    void write(int64_t k, double *row) const {
        for (int64_t i = 0; i < width; i++) row[i] = centred ? offset[k] * shift[i] : 0;
        for (int64_t e = starts[k]; e < starts[k + 1]; e++) row[columns[e]] += values[e];
    }
};

class PartedSystem {
  public:
    PartedSystem(const PartedRows &rows, const double *cross, double l2)
        : rows(rows), p(rows.p), width(rows.width), length(in_lanes(rows.own + rows.p)), cross(cross), inverse(rows.own),
          matrix(p * width), right(width), scale(width), row(width) {
        for (int64_t k = 0; k < rows.own; k++) inverse[k] = rows.square[k] + l2 > 0 ? 1 / (rows.square[k] + l2) : 0;
    }

    /// Makes the Schur complement of the others' products `rest` (p, p) and of those with the label, on columns of unit length.
    void eliminate(const double *rest, const double *others, double l2) {
        for (int64_t i = 0; i < p; i++) {
            double penalty = i < p - 1 ? l2 : 0;
            for (int64_t j = 0; j < p; j++) matrix[i * width + j] = rest[i * p + j];
            matrix[i * width + i] += penalty;
            scale[i] = inverse_root(rest[i * p + i] + penalty);
            right[i] = others[i];
        }
        rows.centred ? take_centred() : take_apart();
        for (int64_t i = 0; i < p; i++) {
            right[i] *= scale[i];
            for (int64_t j = 0; j < p; j++) matrix[i * width + j] *= scale[i] * scale[j];
        }
    }

    /// Of all weights, own ones first, those of the least sum of squares but for the intercept's; `weights` (own + p).
    void solve(double *weights) {
        Numbers whole(length);
        auto of = [&](const double *last, bool with_label, double *to) { complete(last, with_label, to); };
        if (!smallest_by_pivots(matrix, p, width, right, scale, length, rows.own + p, of, whole)) solve_by_directions(whole);
        if (!stopped()) memcpy(weights, whole, (rows.own + p) * sizeof(double));
    }

  private:
    const PartedRows &rows;
    int64_t p, width, length;
    const double *cross;
    Numbers inverse, matrix, right, scale, row;

    void take_centred() {
        Looks looks;
        for (int64_t k = 0; k < rows.own && !looks.stop(p * p / 8); k++) {
            rows.write(k, row);
            for (int64_t i = 0; i < p; i++)
                if (row[i] != 0) add_multiple(matrix + i * width, -(inverse[k] * row[i]), row, width);
            add_multiple(right, -(inverse[k] * cross[k]), row, width);
        }
    }

    /// What centring takes is the same for all rows but for a factor, so that it is taken once.
    void take_apart() {
        Numbers mixed(width);
        double both = 0, labelled = 0;
        Looks looks;
        for (int64_t k = 0; k < rows.own; k++) {
            int64_t first = rows.starts[k], last = rows.starts[k + 1], count = last - first;
            bool is_long = count > p / 8;
            if (looks.stop(1 + count * (is_long ? width / 8 : count))) return;
            if (is_long) rows.write(k, row);
            for (int64_t e = first; e < last; e++) {
                int64_t i = rows.columns[e];
                double factor = inverse[k] * rows.values[e], *to = matrix + i * width;
                if (is_long) add_multiple(to, -factor, row, width);
                else
                    for (int64_t f = first; f < last; f++)
                        to[rows.columns[f]] = __builtin_fma(-factor, rows.values[f], to[rows.columns[f]]);
                mixed[i] = __builtin_fma(factor, rows.offset[k], mixed[i]);
                right[i] = __builtin_fma(-factor, cross[k], right[i]);
            }
            both += inverse[k] * rows.offset[k] * rows.offset[k];
            labelled += inverse[k] * rows.offset[k] * cross[k];
        }
        for (int64_t i = 0; i < p; i++) {
            add_multiple(matrix + i * width, -(mixed[i] + both * rows.shift[i]), rows.shift, width);
            add_multiple(matrix + i * width, -rows.shift[i], mixed, width);
        }
        add_multiple(right, -labelled, rows.shift, width);
    }

    /// The weights of the own columns that follow from those of the others, `last` (width), with the label or without it.
    void complete(const double *last, bool with_label, double *to) {
        double shifted = dot(rows.shift, last, width);
        Looks looks;
        for (int64_t k = 0; k < rows.own; k++) {
            if (looks.stop(rows.centred ? width / 4 : 4)) return;
            double left = with_label ? cross[k] : 0;
            if (rows.centred) {
                rows.write(k, row);
                left -= dot(row, last, width);
            } else {
                left -= rows.offset[k] * shifted;
                for (int64_t e = rows.starts[k]; e < rows.starts[k + 1]; e++) left -= rows.values[e] * last[rows.columns[e]];
            }
            to[k] = inverse[k] * left;
        }
        memcpy(to + rows.own, last, p * sizeof(double));
        to[rows.own + p - 1] = 0; // the intercept's size is of no consequence
    }

    /// By singular values, one direction after the other.
    void solve_by_directions(double *whole) {
        Numbers basis(p * width), values(p), null(p * length), solution(width);
        double largest = directions(matrix, width, basis, p, values);
        int64_t lost = 0;
        for (int64_t i = 0; i < p && !stop(rows.own * p / 4); i++) {
            double *direction = basis + i * width;
            bool kept = values[i] > RANK * (largest > 1 ? largest : 1);
            if (kept) add_multiple(solution, dot(matrix + i * width, right, width) / values[i] / values[i], direction, width);
            if (kept) continue;
            clean_direction(direction, p, rows.own + p);
            for (int64_t j = 0; j < p; j++) direction[j] *= scale[j];
            complete(direction, false, null + lost++ * length);
        }
        for (int64_t j = 0; j < p; j++) solution[j] *= scale[j];
        complete(solution, true, whole);
        take_out(whole, null, length, make_orthonormal(null, length, lost));
    }
};

} // namespace

/// Ridge of `own` columns no two of which are set together, and of p - 1 others and the intercept: products `square` (own) of the
/// first; `values` at `columns` from starts[k] to starts[k + 1] of column k with the others, less offset[k] times `beyond` (p - 1),
/// and offset[k] with the intercept; `rest` (p, p) of these; and those with the label. The first follow from the others, which
/// solve a Schur complement. `weights`: own, then p, of many solutions the smallest but for the last one's size.
GROUPLEARN_ENTRY void parted_least_squares(int64_t own, int64_t p, const double *square, const int64_t *starts,
                                           const int64_t *columns, const double *values, const double *offset,
                                           const double *beyond, const double *rest, const double *cross,
                                           const double *others, double l2, int64_t centred, double *weights) {
    Arithmetic arithmetic;
    int64_t width = in_lanes(p);
    Numbers shift(width);
    for (int64_t i = 0; i < p - 1; i++) shift[i] = -beyond[i];
    shift[p - 1] = 1;
    PartedRows rows{own, p, width, square, starts, columns, values, offset, shift, centred != 0};
    PartedSystem parted(rows, cross, l2);
    parted.eliminate(rest, others, l2);
    parted.solve(weights);
}
