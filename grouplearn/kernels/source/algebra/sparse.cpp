// Products of sparse rows: each number is a sum in the order of the rows or of the columns, each product rounded before it is
// added, whatever the processor. A compiler may fuse the two in SciPy's loops, and does on ARM.
#include "lanes/entry.hpp"
#include "lanes/looks.hpp"
#include "lanes/memory.hpp"

namespace grouplearn::sparse {
namespace {

inline void add_scaled(double *__restrict to, double factor, const double *__restrict from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += factor * from[i];
}

/// The columns that a row of a product sets, each once, in the order in which they are met.
class Met {
  public:
    bool reserve(int64_t columns) {
        if (!seen.reserve(columns) || !order.reserve(columns)) return false;
        for (int64_t i = 0; i < columns; i++) seen[i] = -1;
        return true;
    }
    /// Whether `column` is new in this row.
    bool meet(int64_t row, int32_t column) {
        if (seen[column] == row) return false;
        seen[column] = row;
        order[count++] = column;
        return true;
    }
    int64_t count = 0;
    Scratch<int32_t> order;

  private:
    Scratch<int64_t> seen;
};

/// Calls pair(e, f) for the entries e of column j and the entries f of the rows that these are in.
template <class Pair>
inline bool each_pair(const int64_t *starts, const int32_t *rows_of, const int64_t *column_starts, int64_t j, Looks &looks, Pair pair) {
    for (int64_t e = column_starts[j]; e < column_starts[j + 1]; e++) {
        int64_t first = starts[rows_of[e]], last = starts[rows_of[e] + 1];
        if (looks.stop(1 + (last - first) / 2)) return false;
        for (int64_t f = first; f < last; f++) pair(e, f);
    }
    return true;
}

} // namespace

/// out (n, c) = x (n, d) · b (d, c), for x in compressed rows.
GROUPLEARN_ENTRY void sparse_product(const double *values, const int32_t *columns, const int64_t *starts, int64_t n,
                                     const double *b, int64_t c, double *out) {
    Arithmetic arithmetic;
    Looks looks;
    for (int64_t row = 0; row < n; row++) {
        if (looks.stop(1 + (starts[row + 1] - starts[row]) * (1 + c / 8))) return;
        if (c == 1) { // kept in a register
            double sum = 0;
            for (int64_t e = starts[row]; e < starts[row + 1]; e++) sum += values[e] * b[columns[e]];
            out[row] = sum;
            continue;
        }
        for (int64_t i = 0; i < c; i++) out[row * c + i] = 0;
        for (int64_t e = starts[row]; e < starts[row + 1]; e++) add_scaled(out + row * c, values[e], b + columns[e] * c, c);
    }
}

/// out (d, c) = x' (d, n) · b (n, c), for x (n, d) in compressed rows; out is 0 before.
GROUPLEARN_ENTRY void sparse_transposed_product(const double *values, const int32_t *columns, const int64_t *starts, int64_t n,
                                                const double *b, int64_t c, double *out) {
    Arithmetic arithmetic;
    Looks looks;
    for (int64_t row = 0; row < n; row++) {
        if (looks.stop(1 + (starts[row + 1] - starts[row]) * (1 + c / 8))) return;
        if (c == 1) {
            double factor = b[row];
            for (int64_t e = starts[row]; e < starts[row + 1]; e++) out[columns[e]] += values[e] * factor;
            continue;
        }
        for (int64_t e = starts[row]; e < starts[row + 1]; e++) add_scaled(out + columns[e] * c, values[e], b + row * c, c);
    }
}

/// out (d, d) = x' (d, n) · x (n, d), for x in compressed rows; out is 0 before.
GROUPLEARN_ENTRY void sparse_gram(const double *values, const int32_t *columns, const int64_t *starts, int64_t n, int64_t d,
                                  double *out) {
    Arithmetic arithmetic;
    Looks looks;
    for (int64_t row = 0; row < n; row++) {
        int64_t first = starts[row], last = starts[row + 1];
        if (looks.stop(1 + (last - first) * (last - first) / 4)) return;
        for (int64_t e = first; e < last; e++)
            for (int64_t f = first; f < last; f++) out[columns[e] * d + columns[f]] += values[e] * values[f];
    }
}

/// Where each row of the product x'x begins that `sparse_gram_entries` makes; x is given by rows and by columns. 2 without memory.
GROUPLEARN_ENTRY int sparse_gram_starts(const int32_t *columns, const int64_t *starts, const int32_t *rows_of,
                                        const int64_t *column_starts, int64_t d, int64_t *found) {
    Met met;
    if (!met.reserve(d)) return 2;
    Looks looks;
    found[0] = 0;
    for (int64_t j = 0; j < d; j++) {
        met.count = 0;
        auto meet = [&](int64_t, int64_t f) { met.meet(j, columns[f]); };
        if (!each_pair(starts, rows_of, column_starts, j, looks, meet)) return 0;
        found[j + 1] = found[j] + met.count;
    }
    return 0;
}

/// The product x'x (d, d) in compressed rows, whose entries are in no order: their columns and values. 2 without memory.
GROUPLEARN_ENTRY int sparse_gram_entries(const double *values, const int32_t *columns, const int64_t *starts,
                                         const double *column_values, const int32_t *rows_of, const int64_t *column_starts,
                                         int64_t d, const int64_t *found, int32_t *of_entry, double *entry) {
    Arithmetic arithmetic;
    Met met;
    Scratch<double> sums;
    if (!met.reserve(d) || !sums.reserve(d)) return 2;
    Looks looks;
    for (int64_t j = 0; j < d; j++) {
        met.count = 0;
        auto add = [&](int64_t e, int64_t f) {
            double product = column_values[e] * values[f];
            sums[columns[f]] = (met.meet(j, columns[f]) ? 0 : sums[columns[f]]) + product;
        };
        if (!each_pair(starts, rows_of, column_starts, j, looks, add)) return 0;
        for (int64_t i = 0; i < met.count; i++) {
            of_entry[found[j] + i] = met.order[i];
            entry[found[j] + i] = sums[met.order[i]];
        }
    }
    return 0;
}

} // namespace grouplearn::sparse
