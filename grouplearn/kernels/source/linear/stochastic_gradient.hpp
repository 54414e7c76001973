// What stochastic gradient descent of linear models does with a row: scores, slopes of a loss, and a step along the row.
//
// Models stand in lanes, each alone: a nonzero of a row touches one run of numbers, those of its column.
#pragma once
#include "lanes/few.hpp"
#include "lanes/links.hpp"
#include "losses/losses.hpp"
#include <type_traits>

namespace grouplearn::stochastic_gradient {

using losses::Loss, losses::LossAndSlope;

/// The rows of a block: dense x (n, columns), or values with their columns, those of row i from start[i] to start[i + 1].
struct Rows {
    const float *x_single; // one of the three
    const double *x_double, *values;
    const int32_t *column;
    const int64_t *start;
    const double *y, *weight;
    const int64_t *order; // (n): how they are visited
    int64_t rows, columns, batch_size;
    double weighed; // weights are times this
};

template <class Number> struct DenseRow {
    const Number *x;
    int64_t size;
    int64_t column(int64_t i) const { return i; }
    double value(int64_t i) const { return (double)x[i]; }
};
struct SparseRow {
    const double *x;
    const int32_t *at;
    int64_t size;
    int64_t column(int64_t i) const { return at[i]; }
    double value(int64_t i) const { return x[i]; }
};
/// `use(row)` for the row as it lies.
template <class Use> inline void with_row(const Rows &rows, int64_t i, Use use) {
    if (rows.x_single) return use(DenseRow<float>{rows.x_single + i * rows.columns, rows.columns});
    if (rows.x_double) return use(DenseRow<double>{rows.x_double + i * rows.columns, rows.columns});
    int64_t first = rows.start[i];
    use(SparseRow{rows.values + first, rows.column + first, rows.start[i + 1] - first});
}

/// ‖x‖² of a row: even and odd places apart, then both.
template <class Row> inline double squared(const Row &row) {
    double own[2] = {0, 0};
    for (int64_t k = 0; k < row.size; k++) own[k & 1] = __builtin_fma(row.value(k), row.value(k), own[k & 1]);
    return own[0] + own[1];
}

/// The models of a pack, (columns, stride) of which `lanes` are used; then one number per lane, filled up to a multiple of 8.
///
/// `loss` is the number of the loss of all lanes; −1 where they differ: then `own_loss` has that of each. `parameter` is the number
/// that a loss takes.
/// The weights are scale·unscaled, less what is still `owed` to the penalty lasso·|w|: each weight was to pay `due` so far,
/// in units of what is unscaled, and `paid` says what it was moved by (Tsuruoka, Tsujii & Ananiadou 2009). The sum over steps of
/// the weights times the number of the step is total·unscaled − beyond (Bottou 2012, section 5.2), `counted` that of the numbers. `paid` or `beyond` are null where there are none.
struct Models {
    int64_t lanes, stride, outputs, loss;
    double *unscaled, *paid, *beyond;
    double *scale, *due, *total, *counted, *intercept, *intercept_sum, *step, *objective;
    // How they learn: η = rate/(1 + decay·t), with `rooted` its root in place of the divisor; penalties of a row; 1 or 0.
    const double *rate, *decay, *rooted, *ridge, *lasso, *with_intercept, *own_loss, *parameter;
};

/// v of one column, brought up to what is due.
template <class V> inline V settled(double *unscaled, double *paid, V due) {
    V before = taken<V>(unscaled), already = taken<V>(paid);
    V after = shortened(before, due + already, due - already);
    store(unscaled, after);
    store(paid, already + (after - before));
    return after;
}

/// Σ value·v over a row for n times the lanes of V from `lane` on: even and odd places apart, then both.
template <class V, int n, bool owes, class Row>
inline void scores_of(const Row &row, const Models &models, int64_t lane, double *scores) {
    constexpr int width = Lanes<V>::count;
    V sum[2][n], due[n];
    for (int k = 0; k < n; k++) {
        sum[0][k] = sum[1][k] = every<V>(0);
        due[k] = taken<V>(models.due + lane + k * width);
    }
    auto add = [&](int64_t i, V(&to)[n]) {
        V x = every<V>(row.value(i));
        int64_t at = row.column(i) * models.stride + lane;
        for (int k = 0; k < n; k++) {
            double *own = models.unscaled + at + k * width;
            V v = owes ? settled<V>(own, models.paid + at + k * width, due[k]) : taken<V>(own);
            to[k] = fma(x, v, to[k]);
        }
    };
    int64_t i = 0;
    for (; i + 1 < row.size; i += 2) {
        add(i, sum[0]);
        add(i + 1, sum[1]);
    }
    if (i < row.size) add(i, sum[0]);
    for (int k = 0; k < n; k++) store(scores + lane + k * width, sum[0][k] + sum[1][k]);
}

/// v += value·along over a row, and `beyond` of the sum over steps by value·sooner.
template <class V, int n, bool sums, class Row>
inline void move_along(const Row &row, const Models &models, int64_t lane, const double *along, const double *sooner) {
    constexpr int width = Lanes<V>::count;
    V by[n], also[n];
    for (int k = 0; k < n; k++) {
        by[k] = taken<V>(along + lane + k * width);
        if (sums) also[k] = taken<V>(sooner + lane + k * width);
    }
    for (int64_t i = 0; i < row.size; i++) {
        V x = every<V>(row.value(i));
        int64_t at = row.column(i) * models.stride + lane;
        for (int k = 0; k < n; k++) {
            double *own = models.unscaled + at + k * width;
            store(own, fma(x, by[k], taken<V>(own)));
            if (sums) {
                own = models.beyond + at + k * width;
                store(own, fma(x, also[k], taken<V>(own)));
            }
        }
    }
}

/// `use` with a V and how many of them at a time, for all lanes of the models.
template <class Use> inline void by_lanes_of(const Models &models, Use use) {
    switch (models.stride) {
    case 1: return use(Few<1>{}, std::integral_constant<int, 1>{}, 0);
    case 2: return use(Few<2>{}, std::integral_constant<int, 1>{}, 0);
    case 4: return use(Few<4>{}, std::integral_constant<int, 1>{}, 0);
    }
    int64_t lane = 0;
    for (; lane + 16 <= models.stride; lane += 16) use(D{}, std::integral_constant<int, 2>{}, lane);
    if (lane < models.stride) use(D{}, std::integral_constant<int, 1>{}, lane);
}

} // namespace grouplearn::stochastic_gradient
