// One pass over rows for up to a lane's count of generalised linear models: objective, gradient and curvature of the loss.
//
// Rows are standardised, z = (x − mean)·inverse, with a column of ones last for the intercept. Lanes are models: their
// weights (outputs · p) have one model per lane, so that each number of a row is read once for all of them. Sums over rows
// run from the first row to the last: in the lanes' precision within a tile, in double precision across tiles.
#pragma once
#include "lanes/elementary.hpp"
#include "lanes/lane_algebra.hpp"
#include "lanes/memory.hpp"
#include "losses/losses.hpp"
#include <type_traits>

namespace grouplearn::generalised_linear {

using losses::Loss, losses::has_constant, losses::has_kink, losses::jumps, losses::Number;

/// The loss of rows and, of one with a kink, how far from it each lane's smooth one is.
template <class V> struct Objective {
    Loss loss;
    V smoothing;
};

/// Rows taken together: their scores are independent chains of operations. It decides speed, not bits.
#if defined(GROUPLEARN_AVX512) || defined(GROUPLEARN_NEON)
constexpr int rows_abreast = 8;
#else
constexpr int rows_abreast = 4;
#endif

/// Standardised rows that are those of all lanes, with what the loss asks of each; ``constant`` is what it adds whatever the score.
template <class V> struct Shared {
    const Number<V> *z;
    const double *label, *weight, *constant;
    int64_t p;

    V x(int64_t row, int64_t k) const { return all(z[row * p + k]); }
    V label_of(int64_t row) const { return all<V>(label[row]); }
    V weight_of(int64_t row) const { return all<V>(weight[row]); }
    V constant_of(int64_t row) const { return all<V>(constant[row]); }
};

/// Rows of which each lane has its own; those that one has fewer than another weigh nothing.
template <class V> struct Own {
    static constexpr int width = Lanes<V>::count;
    const Number<V> *z, *label, *weight, *constant;
    int64_t p;

    V x(int64_t row, int64_t k) const { return load(z + (row * p + k) * width); }
    V label_of(int64_t row) const { return load(label + row * width); }
    V weight_of(int64_t row) const { return load(weight + row * width); }
    V constant_of(int64_t row) const { return load(constant + row * width); }
};

/// What a pass adds up over a tile, ``bend`` the second derivatives by the scores, ``exact`` a loss with a kink as it is;
/// ``curvature``, if any, keeps second derivatives of every ``stride``-th row of the group.
template <class V> struct Sums {
    V loss, bend, exact;
    Number<V> *gradient, *curvature;
    int64_t stride;
};

/// A loss of one score, of which ``newton`` is called with the ``smoothing``.
template <class Kind, class V> struct OfAScore : Kind {
    V smoothing;

    explicit OfAScore(V smoothing) : smoothing(smoothing) {}
    void at(V score, V label, V &loss, V &slope, V &bend) const { Kind::newton(score, label, smoothing, loss, slope, bend); }
};

/// ``work`` with the loss of models that have one score.
template <class V, class Work> inline void with_loss_of_a_score(const Objective<V> &objective, Work work) {
    losses::with(objective.loss, [&](auto kind) {
        using Kind = decltype(kind);
        if constexpr (Kind::by_newton && !Kind::of_all_scores) work(OfAScore<Kind, V>(objective.smoothing));
    });
}

/// As ``newton`` of a loss of all scores.
template <class V>
inline V loss_of_all_scores(Loss loss, int64_t outputs, V label, V weight, Number<V> *score, Number<V> *bend, V &trace) {
    return losses::with(loss, [&](auto kind) {
        using Kind = decltype(kind);
        if constexpr (Kind::of_all_scores) return Kind::template newton<V>(outputs, label, weight, score, bend, trace);
        else return zero<V>();
    });
}

template <int abreast, class Kind, class V, template <class> class Rows>
inline void pass_rows(const Kind &kind, Rows<V> rows, int64_t row, const Number<V> *weights, Sums<V> &sums) {
    constexpr int width = Lanes<V>::count;
    V score[abreast];
    for (int i = 0; i < abreast; i++) score[i] = zero<V>();
    for (int64_t k = 0; k < rows.p; k++) {
        V weight = load(weights + k * width);
        for (int i = 0; i < abreast; i++) score[i] = fma(rows.x(row + i, k), weight, score[i]);
    }
    for (int i = 0; i < abreast; i++) {
        V loss, slope, bend, weight = rows.weight_of(row + i);
        kind.at(score[i], rows.label_of(row + i), loss, slope, bend);
        if constexpr (Kind::with_kink) sums.exact = fma(weight, kind.exact(score[i], rows.label_of(row + i)), sums.exact);
        if (Kind::with_constant) loss += rows.constant_of(row + i);
        sums.loss = fma(weight, loss, sums.loss);
        sums.bend = fma(weight, bend, sums.bend);
        score[i] = weight * slope;
        if (sums.curvature && (row + i) % sums.stride == 0) store(sums.curvature + (row + i) / sums.stride * width, weight * bend);
    }
    for (int64_t k = 0; k < rows.p; k++) {
        V sum = load(sums.gradient + k * width);
        for (int i = 0; i < abreast; i++) sum = fma(rows.x(row + i, k), score[i], sum);
        store(sums.gradient + k * width, sum);
    }
}

/// The loss of all of ``outputs`` scores; ``score`` has room for them, per row.
template <int abreast, class V, template <class> class Rows>
inline void pass_all_scores(Loss loss, Rows<V> rows, int64_t row, int64_t outputs, const Number<V> *weights, Number<V> *score, Sums<V> &sums) {
    constexpr int width = Lanes<V>::count;
    int64_t p = rows.p, pairs = outputs * (outputs + 1) / 2;
    for (int64_t c = 0; c < outputs; c++) {
        V value[abreast];
        for (int i = 0; i < abreast; i++) value[i] = zero<V>();
        for (int64_t k = 0; k < p; k++) {
            V weight = load(weights + (c * p + k) * width);
            for (int i = 0; i < abreast; i++) value[i] = fma(rows.x(row + i, k), weight, value[i]);
        }
        for (int i = 0; i < abreast; i++) store(score + (i * outputs + c) * width, value[i]);
    }
    for (int i = 0; i < abreast; i++) {
        bool kept = sums.curvature && (row + i) % sums.stride == 0;
        Number<V> *bend = kept ? sums.curvature + (row + i) / sums.stride * pairs * width : nullptr;
        V label = rows.label_of(row + i), weight = rows.weight_of(row + i);
        sums.loss += loss_of_all_scores<V>(loss, outputs, label, weight, score + i * outputs * width, bend, sums.bend);
    }
    for (int64_t c = 0; c < outputs; c++)
        for (int64_t k = 0; k < p; k++) {
            Number<V> *place = sums.gradient + (c * p + k) * width;
            V sum = load(place);
            for (int i = 0; i < abreast; i++) sum = fma(rows.x(row + i, k), load(score + (i * outputs + c) * width), sum);
            store(place, sum);
        }
}

/// Add the rows from ``first`` to before ``last`` to ``sums``; ``score`` is scratch for rows_abreast · outputs lanes.
template <class V, template <class> class Rows>
void pass_tile(const Objective<V> &objective, Rows<V> rows, int64_t first, int64_t last, int64_t outputs, const Number<V> *weights, Number<V> *score,
               Sums<V> &sums) {
    int64_t row = first;
    bool all_scores = losses::of_all_scores(objective.loss);
    Looks looks;
    for (; row + rows_abreast <= last; row += rows_abreast) {
        if (looks.stop(outputs * rows_abreast * (2 * rows.p + 16))) return;
        with_loss_of_a_score(objective, [&](const auto &kind) { pass_rows<rows_abreast>(kind, rows, row, weights, sums); });
        if (all_scores) pass_all_scores<rows_abreast>(objective.loss, rows, row, outputs, weights, score, sums);
    }
    for (; row < last; row++) {
        with_loss_of_a_score(objective, [&](const auto &kind) { pass_rows<1>(kind, rows, row, weights, sums); });
        if (all_scores) pass_all_scores<1>(objective.loss, rows, row, outputs, weights, score, sums);
    }
}

/// Every ``stride``-th of some rows, of which second derivatives are taken: ``rows`` says how many these are.
template <class V, template <class> class Rows> struct Sample {
    Rows<V> from;
    const Number<V> *curvature;
    int64_t rows, stride, outputs;

    int64_t pairs() const { return outputs * (outputs + 1) / 2; }
};
template <class V, template <class> class Rows>
Sample<V, Rows> sample(Rows<V> from, const Number<V> *curvature, int64_t rows, int64_t stride, int64_t outputs) {
    return {from, curvature, rows, stride, outputs};
}

template <int abreast, class V, template <class> class Rows>
inline void add_curvature(Sample<V, Rows> sample, int64_t row, int64_t pair, Number<V> *hessian, int64_t above, int64_t left) {
    constexpr int width = Lanes<V>::count;
    V bend[abreast];
    for (int i = 0; i < abreast; i++) bend[i] = load(sample.curvature + ((row + i) * sample.pairs() + pair) * width);
    for (int64_t a = 0; a < sample.from.p; a++) {
        V scaled[abreast];
        for (int i = 0; i < abreast; i++) scaled[i] = sample.from.x((row + i) * sample.stride, a) * bend[i];
        Number<V> *line = hessian + (triangle(above + a) + left) * width;
        for (int64_t b = 0; b <= a; b++) {
            V sum = load(line + b * width);
            for (int i = 0; i < abreast; i++) sum = fma(sample.from.x((row + i) * sample.stride, b), scaled[i], sum);
            store(line + b * width, sum);
        }
    }
}

/// Copy the lower triangle of a block beside the diagonal, of which the upper one is the mirror.
template <class V> void mirror(Number<V> *hessian, int64_t p, int64_t above, int64_t left) {
    constexpr int width = Lanes<V>::count;
    for (int64_t a = 0; a < p; a++)
        for (int64_t b = 0; b < a; b++)
            store(hessian + (triangle(above * p + b) + left * p + a) * width, load(hessian + (triangle(above * p + a) + left * p + b) * width));
}

/// Σ curvature·z·z' over standardised rows: the lower triangle of the Hessian (outputs·p)², outputs outermost.
template <class V, template <class> class Rows> void sum_curvature(Sample<V, Rows> sample, Number<V> *hessian) {
    int64_t p = sample.from.p, size = sample.outputs * p, pair = 0;
    memset(hessian, 0, (size_t)(triangle(size) * Lanes<V>::count) * sizeof(Number<V>));
    Looks looks;
    for (int64_t above = 0; above < sample.outputs; above++)
        for (int64_t left = 0; left <= above; left++, pair++) {
            int64_t row = 0;
            for (; row + rows_abreast <= sample.rows && !looks.stop(rows_abreast * (p + 1) * (p + 1) / 2); row += rows_abreast)
                add_curvature<rows_abreast>(sample, row, pair, hessian, above * p, left * p);
            for (; row < sample.rows && !stopped(); row++) add_curvature<1>(sample, row, pair, hessian, above * p, left * p);
            if (left < above) mirror<V>(hessian, p, above, left);
        }
}

/// As ``sum_curvature`` for one lane: columns are side by side instead of models, and each number is the same. ``into`` is
/// told each element and its value. ``z`` may be read a lane's count beyond its end; ``scaled`` has room for rows · p numbers.
template <class V, class Into> void sum_curvature_of(int lane, Sample<V, Shared> sample, Number<V> *scaled, Into into) {
    constexpr int width = Lanes<V>::count, lines = 8;
    constexpr int64_t together = 1 << 13; // rows between two looks
    int64_t p = sample.from.p, apart = sample.stride * p, pair = 0;
    Looks looks;
    for (int64_t above = 0; above < sample.outputs; above++)
        for (int64_t left = 0; left <= above; left++, pair++) {
            for (int64_t row = 0; row < sample.rows && !looks.stop(p / 4 + 1); row++) {
                Number<V> bend = sample.curvature[(row * sample.pairs() + pair) * width + lane];
                for (int64_t a = 0; a < p; a++) scaled[row * p + a] = sample.from.z[row * apart + a] * bend;
            }
            for (int64_t first = 0; first < p; first += lines) {
                int count = (int)(p - first < lines ? p - first : lines);
                for (int64_t block = 0; block < first + count; block += width) {
                    V sum[lines];
                    for (int i = 0; i < lines; i++) sum[i] = zero<V>();
                    for (int64_t from = 0; from < sample.rows; from += together) {
                        int64_t end = sample.rows - from < together ? sample.rows : from + together;
                        if (looks.stop((end - from) * 2 * lines)) return;
                        for (int64_t row = from; row < end; row++) {
                            V other = load(sample.from.z + row * apart + block);
                            const Number<V> *mine = scaled + row * p + first;
                            if (count == lines)
                                for (int i = 0; i < lines; i++) sum[i] = fma(other, all(mine[i]), sum[i]);
                            else
                                for (int i = 0; i < count; i++) sum[i] = fma(other, all(mine[i]), sum[i]);
                        }
                    }
                    for (int64_t a = first; a < first + count; a++) {
                        Number<V> line[width];
                        store(line, sum[a - first]);
                        for (int64_t b = block; b <= a && b < block + width; b++) {
                            into(triangle(above * p + a) + left * p + b, line[b - block]);
                            if (left < above && b < a) into(triangle(above * p + b) + left * p + a, line[b - block]);
                        }
                    }
                }
            }
        }
}

/// Lanes of which each by itself takes less time than all together.
constexpr int few = 6;

/// ``sum_curvature`` for the lanes where it is ``wanted``; ``scaled`` has room as for ``sum_curvature_of``.
template <class V> void sum_curvature_where(const bool *wanted, Sample<V, Shared> sample, Number<V> *scaled, Number<V> *hessian) {
    constexpr int width = Lanes<V>::count;
    int count = 0;
    for (int lane = 0; lane < width; lane++) count += wanted[lane];
    if (count > few) return sum_curvature(sample, hessian);
    for (int lane = 0; lane < width; lane++)
        if (wanted[lane]) sum_curvature_of(lane, sample, scaled, [=](int64_t at, Number<V> value) { hessian[at * width + lane] = value; });
}
template <class V> void sum_curvature_where(const bool *, Sample<V, Own> sample, Number<V> *, Number<V> *hessian) {
    sum_curvature(sample, hessian);
}

} // namespace grouplearn::generalised_linear
