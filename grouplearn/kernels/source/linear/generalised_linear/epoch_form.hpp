// What a model in training is between two epochs: one row of numbers, which those who hold the rows in blocks pass on.
#pragma once
#include "lanes/lane_algebra.hpp"
#include "linear/generalised_linear/stages.hpp"

namespace grouplearn::generalised_linear {
namespace {

constexpr int64_t block_rows = 256;

/// Numbers of a model, the first of all: whether its sums are to have second derivatives, and of every how many rows.
enum Field {
    ASKS, STRIDE, PASSES, VALUE, BEND, BEND_THEN, DESCENT, LENGTH, RETRIES, AGE, STEPS, TRUSTED, DAMPING, DAMPED, SIGMA, SCALE, TOTAL, ROWS,
    PER_ROW, OBJECTIVE, SMOOTHING, ANEW, SAMPLED, FIELDS
};

/// Where the numbers of a model lie: fields, means and 1/spread of columns, where it is, where its step leads, where it is evaluated
/// next, the slope, the ``history`` of steps, and the factor of the second derivatives or, if not ``dense``, a diagonal and where it is
/// evaluated next as written, weights and then intercepts.
struct Form {
    int64_t columns, outputs, fit_intercept, history, dense;

    int64_t p() const { return columns + fit_intercept; }
    int64_t size() const { return outputs * p(); }
    int64_t mean() const { return FIELDS; }
    int64_t inverse() const { return mean() + columns; }
    int64_t point() const { return inverse() + columns; }
    int64_t goal() const { return point() + size(); }
    int64_t trial() const { return goal() + size(); }
    int64_t slope() const { return trial() + size(); }
    int64_t inner() const { return slope() + size(); }
    int64_t changes() const { return inner() + history; }
    int64_t bends() const { return changes() + history * size(); }
    int64_t matrix() const { return bends() + history * size(); }
    int64_t in_matrix() const { return dense ? triangle(size()) : size(); }
    int64_t written() const { return matrix() + in_matrix(); }
    int64_t lift() const { return written() + outputs * columns; }
    int64_t length() const { return dense ? written() : lift() + outputs; }
    /// Of the sums of a model: loss, second derivatives by scores, a loss with a kink as it is (0 of others), how many rows have their
    /// share of the gradient by columns as written, which are all or none, gradient.
    static constexpr int64_t before_gradient = 4;
    int64_t sums() const { return before_gradient + size(); }
};

/// Where a model of many parameters is evaluated next, as written: what columns are less their means for is the intercept's.
void write_trial(const Form &form, double *row) {
    const double *mean = row + form.mean(), *inverse = row + form.inverse();
    for (int64_t c = 0; c < form.outputs; c++) {
        const double *trial = row + form.trial() + c * form.p();
        double *written = row + form.written() + c * form.columns, rest = form.fit_intercept ? trial[form.columns] : 0;
        for (int64_t j = 0; j < form.columns; j++) {
            written[j] = trial[j] * inverse[j];
            rest = __builtin_fma(-written[j], mean[j], rest);
        }
        row[form.lift() + c] = rest;
    }
}

/// Rows whose second derivatives take the time of a pass over all, of a model with this ``row`` of numbers.
int64_t rows_of_a_pass(const double *row, int64_t size) {
    return size ? (int64_t)(4 * row[ROWS] * row[PER_ROW] / (double)(size * size)) : 0;
}

int64_t epoch_stride(const double *row, int64_t size, int64_t fewest) {
    int64_t as_a_pass = rows_of_a_pass(row, size), least = as_a_pass > fewest ? as_a_pass : fewest;
    int64_t stride = stride_at((int64_t)row[ROWS], size, (int64_t)row[PASSES], least);
    return stride < block_rows ? stride : block_rows;
}

/// The steps that second derivatives last, as a share of what they take, at most those that are remembered.
int64_t steps_between(const double *row, const Form &form) {
    int64_t sampled = sampled_per_parameter * form.size(), as_a_pass = rows_of_a_pass(row, form.size());
    if (sampled < fewest_sampled) sampled = fewest_sampled;
    if (sampled <= as_a_pass) return 1;
    return patience * sampled < form.history * as_a_pass ? patience * sampled / as_a_pass : form.history;
}

} // namespace
} // namespace grouplearn::generalised_linear
