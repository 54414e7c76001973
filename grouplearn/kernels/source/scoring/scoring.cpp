// Predictions of linear models: rows encoded with the parameters of their group, scored, linked.
//
// A row's bits do not depend on the rows beside it: a scalar product is 8 lanes over the row's own numbers, summed in a tree.
#include "lanes/links.hpp"
#include "lanes/memory.hpp"
#include "rows/rows.hpp"

namespace grouplearn {
namespace {

enum Link : int32_t { VALUE, EXPONENTIAL, SIGMOID, SOFTMAX };

} // namespace
} // namespace grouplearn

using namespace grouplearn;

/// The first n_items columns of x (n_rows, width) become (x - center)/scale, what is missing ``fill`` where that is a number.
/// Missing is NaN, and an infinite number where there is a fill, or where ``finite``. Parameters are (n_groups, n_items).
GROUPLEARN_ENTRY void encode_numbers(double *x, int64_t n_rows, int64_t width, const int32_t *group, int64_t n_items,
                                     const double *fills, const double *centers, const double *scales, int32_t finite) {
    Arithmetic arithmetic;
    Looks looks;
    for (int64_t row = 0; row < n_rows && !looks.stop(n_items); row++) {
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
    Looks looks;
    for (int64_t row = 0; row < n_rows && !looks.stop(n_outputs * (n_numbers / 8 + n_categories + 1)); row++) {
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
