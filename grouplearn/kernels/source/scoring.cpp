// Predictions of linear models: rows read where Arrow has them, encoded with the parameters of their group, scored, linked.
//
// A row's bits do not depend on the rows beside it: a scalar product is 8 lanes over the row's own numbers, summed in a tree.
#include "links.hpp"
#include "memory.hpp"
#include "rows.hpp"

namespace grouplearn {
namespace {

/// Rows of a column that are written before those of the next one: their lines of the matrix stay in the cache.
constexpr int64_t ROWS_AT_A_TIME = 64;

enum Link : int32_t { VALUE, EXPONENTIAL, SIGMOID, SOFTMAX };

/// Columns that lie one after the other become as many numbers beside each other in lines that are ``width`` apart.
void turn(const double (&columns)[Lanes<D>::count][ROWS_AT_A_TIME], int64_t n_rows, double *out, int64_t width) {
    constexpr int count = Lanes<D>::count;
    for (int64_t row = 0; row < n_rows; row += count) {
        D lines[count];
        for (int i = 0; i < count; i++) lines[i] = load(columns[i] + row);
        turn(lines);
        for (int i = 0; i < count && row + i < n_rows; i++) store(out + (row + i) * width, lines[i]);
    }
}

} // namespace
} // namespace grouplearn

using namespace grouplearn;

/// Columns ``fields`` of a struct array into columns ``places`` of out (n_rows, width); then lets go of the array.
GROUPLEARN_ENTRY void read_numbers(ArrowArray *rows, int64_t n_rows, const int32_t *fields, const int32_t *kinds,
                                   const int64_t *powers, const int32_t *places, int64_t n_fields, double *out,
                                   int64_t width) {
    Arithmetic arithmetic;
    constexpr int beside = Lanes<D>::count;
    for (int64_t first = 0; first < n_rows; first += ROWS_AT_A_TIME) {
        int64_t last = first + ROWS_AT_A_TIME < n_rows ? first + ROWS_AT_A_TIME : n_rows;
        auto read = [&](int64_t at, double *to, int64_t apart) {
            const ArrowArray &column = *rows->children[fields[at]];
            numbers(column, (Kind)kinds[at], powers[at], rows->offset + column.offset, first, last, to, apart);
        };
        for (int64_t at = 0; at < n_fields;) {
            double *own = out + first * width + places[at];
            bool together = at + beside <= n_fields;
            for (int i = 1; together && i < beside; i++) together = places[at + i] == places[at] + i;
            if (!together) {
                read(at++, own, width);
                continue;
            }
            alignas(64) double columns[beside][ROWS_AT_A_TIME];
            for (int i = 0; i < beside; i++) read(at++, columns[i], 1);
            turn(columns, last - first, own, width);
        }
    }
    rows->release(rows);
}

/// The first n_items columns of x (n_rows, width) become (x - center)/scale, what is missing ``fill`` where that is a number.
/// Missing is NaN, and an infinite number where there is a fill, or where ``finite``. Parameters are (n_groups, n_items).
GROUPLEARN_ENTRY void encode_numbers(double *x, int64_t n_rows, int64_t width, const int32_t *group, int64_t n_items,
                                     const double *fills, const double *centers, const double *scales, int32_t finite) {
    Arithmetic arithmetic;
    for (int64_t row = 0; row < n_rows; row++) {
        if (group[row] < 0) continue;
        double *own = x + row * width;
        int64_t start = group[row] * n_items;
        for (int64_t item = 0; item < n_items; item++) {
            double value = own[item], fill = fills[start + item];
            bool is_finite = value - value == 0;
            value = is_finite ? value : fill == fill || finite ? fill : value;
            own[item] = (value - centers[start + item]) / scales[start + item];
        }
    }
}

/// Scores (n_rows, n_outputs) of rows x (n_rows, width): intercepts (n_groups, n_outputs), weights (n_groups, n_outputs,
/// n_numbers) of the first columns, of which there are a multiple of 8, and for the category in each of the others the
/// number in ``category_weights`` that stands so far after ``starts`` (n_groups, n_outputs, n_categories). NaN: no group.
GROUPLEARN_ENTRY void score_linear(const double *x, int64_t n_rows, int64_t width, const int32_t *group, int64_t n_outputs,
                                   int64_t n_numbers, const double *weights, const double *intercepts,
                                   const int64_t *starts, const double *category_weights, double *out) {
    Arithmetic arithmetic;
    int64_t n_categories = width - n_numbers;
    for (int64_t row = 0; row < n_rows; row++) {
        const double *own = x + row * width;
        for (int64_t output = 0; output < n_outputs; output++) {
            if (group[row] < 0) {
                out[row * n_outputs + output] = (double)NAN;
                continue;
            }
            int64_t model = group[row] * n_outputs + output;
            D total = zero<D>();
            for (int64_t at = 0; at < n_numbers; at += Lanes<D>::count)
                total = fma(load(own + at), load(weights + model * n_numbers + at), total);
            double score = intercepts[model] + sum(total);
            for (int64_t at = 0; at < n_categories; at++) {
                double place = own[n_numbers + at];
                if (place >= 0) score += category_weights[starts[model * n_categories + at] + (int64_t)place];
            }
            out[row * n_outputs + output] = score;
        }
    }
}

/// Scores (n_rows, n_outputs) become predictions in their place: values, or the probability of each class; of two classes
/// the score is that of the second, in the second of two columns. 2 without memory.
GROUPLEARN_ENTRY int link_scores(double *scores, int64_t n_rows, int64_t n_outputs, int32_t link) {
    Arithmetic arithmetic;
    if (link == EXPONENTIAL) by_lanes<D>(scores, scores, n_rows * n_outputs, 1, [](D a) { return exponential(a); });
    if (link == SIGMOID) {
        by_lanes<D>(scores + 1, scores + 1, n_rows, 2, [](D a) { return logistic(a); });
        for (int64_t row = 0; row < n_rows; row++) scores[2 * row] = 1 - scores[2 * row + 1];
    }
    if (link == SOFTMAX) {
        Scratch<double> lanes;
        if (!lanes.reserve(n_outputs * Lanes<D>::count)) return 2;
        shares_of_rows(scores, n_rows, n_outputs, lanes);
    }
    return 0;
}
