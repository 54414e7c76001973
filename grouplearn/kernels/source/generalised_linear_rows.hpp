// One pass over rows for up to a lane's count of generalised linear models: objective, gradient and curvature of the loss.
//
// Rows are standardised, z = (x − mean)·inverse, with a column of ones last for the intercept. Lanes are models: their
// weights (outputs · p) have one model per lane, so that each number of a row is read once for all of them. Sums over rows
// run from the first row to the last: in the lanes' precision within a tile, in double precision across tiles.
#pragma once
#include "elementary.hpp"
#include "lane_algebra.hpp"
#include "memory.hpp"

namespace grouplearn::generalised_linear {

enum class Loss { logistic = 0, softmax = 1, poisson = 2 };

/// y·log y − y, what half the deviance of a count adds whatever the score; ``constant`` has room up to a multiple of 8.
inline void count_constants(const double *label, int64_t rows, double *constant) {
    for (int64_t i = 0; i < (rows + 7) / 8 * 8; i++) constant[i] = i < rows ? label[i] : 1;
    for (int64_t i = 0; i < rows; i += 8) {
        D y = load(constant + i), positive = select(zero<D>() < y, y, all(1.0));
        store(constant + i, y * logarithm(positive) - y);
    }
}

/// Rows taken together: their scores are independent chains of operations. It decides speed, not bits.
#if defined(GROUPLEARN_AVX512) || defined(GROUPLEARN_NEON)
constexpr int rows_abreast = 8;
#else
constexpr int rows_abreast = 4;
#endif

template <class V> using Number = typename Lanes<V>::Number;

/// Standardised rows with what the loss asks of each; ``constant`` is what the loss adds whatever the score.
template <class V> struct Tile {
    const Number<V> *z;
    const double *label, *weight, *constant;
    int64_t rows, first; // how many, and the number of the first in its group
};

/// What a pass adds up over a tile, ``bend`` the second derivatives by the scores; ``curvature``, if any, keeps these of every
/// ``stride``-th row of the group.
template <class V> struct Sums {
    V loss, bend;
    Number<V> *gradient, *curvature;
    int64_t stride;
};

/// The sign by which a score becomes minus the margin keeps all digits of a small derivative, which p − y would not.
struct Logistic {
    static constexpr bool with_constant = false;
    template <class V> static void at(V score, double label, V &loss, V &slope, V &bend) {
        V sign = all<V>(label > 0.5 ? -1 : 1), one = all<V>(1);
        V m = sign * score, e = exponential(minus(size(m))), inverse = one / (one + e);
        loss = log_of_one_plus(e) + larger(m, zero<V>());
        slope = sign * select(m < zero<V>(), e * inverse, inverse);
        bend = e * inverse * inverse;
    }
};

/// Half the deviance, e^score − y·score + (y·log y − y).
struct Poisson {
    static constexpr bool with_constant = true;
    template <class V> static void at(V score, double label, V &loss, V &slope, V &bend) {
        V mean = exponential(score), y = all<V>(label);
        loss = fnma(y, score, mean);
        slope = mean - y;
        bend = mean;
    }
};

template <class V, int abreast, class Kind>
inline void pass_rows(const Tile<V> &tile, int64_t row, int64_t p, const Number<V> *weights, Sums<V> &sums) {
    constexpr int width = Lanes<V>::count;
    const Number<V> *z = tile.z + row * p;
    V score[abreast];
    for (int i = 0; i < abreast; i++) score[i] = zero<V>();
    for (int64_t k = 0; k < p; k++) {
        V weight = load(weights + k * width);
        for (int i = 0; i < abreast; i++) score[i] = fma(all(z[i * p + k]), weight, score[i]);
    }
    for (int i = 0; i < abreast; i++) {
        V loss, slope, bend, weight = all<V>(tile.weight[row + i]);
        Kind::at(score[i], tile.label[row + i], loss, slope, bend);
        if (Kind::with_constant) loss += all<V>(tile.constant[row + i]);
        sums.loss = fma(weight, loss, sums.loss);
        sums.bend = fma(weight, bend, sums.bend);
        score[i] = weight * slope;
        int64_t number = tile.first + row + i;
        if (sums.curvature && number % sums.stride == 0) store(sums.curvature + number / sums.stride * width, weight * bend);
    }
    for (int64_t k = 0; k < p; k++) {
        V sum = load(sums.gradient + k * width);
        for (int i = 0; i < abreast; i++) sum = fma(all(z[i * p + k]), score[i], sum);
        store(sums.gradient + k * width, sum);
    }
}

/// The weighted log-loss of one row; ``score`` (outputs) becomes its weighted derivatives, ``bend``, if any, the second ones,
/// and to ``trace`` those of each score by itself are added.
template <class V> inline V softmax(int64_t outputs, int64_t label, V weight, Number<V> *score, Number<V> *bend, V &trace) {
    constexpr int width = Lanes<V>::count;
    V most = load(score), total = zero<V>();
    for (int64_t c = 1; c < outputs; c++) most = larger(load(score + c * width), most);
    V own = load(score + label * width) - most;
    for (int64_t c = 0; c < outputs; c++) {
        V e = exponential(load(score + c * width) - most);
        total += e;
        store(score + c * width, e);
    }
    V inverse = all<V>(1) / total;
    for (int64_t c = 0; c < outputs; c++) {
        V share = load(score + c * width) * inverse;
        store(score + c * width, share);
        V weighted = weight * share;
        trace = fma(weighted, all<V>(1) - share, trace);
        if (!bend) continue;
        for (int64_t other = 0; other < c; other++, bend += width) store(bend, minus(weighted * load(score + other * width)));
        store(bend, weighted * (all<V>(1) - share));
        bend += width;
    }
    for (int64_t c = 0; c < outputs; c++) {
        V share = load(score + c * width);
        store(score + c * width, weight * (c == label ? share - all<V>(1) : share));
    }
    return weight * (logarithm(total) - own);
}

/// The softmax of ``outputs`` scores; ``score`` has room for them, per row.
template <class V, int abreast>
inline void pass_softmax(const Tile<V> &tile, int64_t row, int64_t p, int64_t outputs, const Number<V> *weights, Number<V> *score,
                         Sums<V> &sums) {
    constexpr int width = Lanes<V>::count;
    const Number<V> *z = tile.z + row * p;
    for (int64_t c = 0; c < outputs; c++) {
        V value[abreast];
        for (int i = 0; i < abreast; i++) value[i] = zero<V>();
        for (int64_t k = 0; k < p; k++) {
            V weight = load(weights + (c * p + k) * width);
            for (int i = 0; i < abreast; i++) value[i] = fma(all(z[i * p + k]), weight, value[i]);
        }
        for (int i = 0; i < abreast; i++) store(score + (i * outputs + c) * width, value[i]);
    }
    for (int i = 0; i < abreast; i++) {
        int64_t number = tile.first + row + i, apart = outputs * (outputs + 1) / 2;
        bool kept = sums.curvature && number % sums.stride == 0;
        Number<V> *bend = kept ? sums.curvature + number / sums.stride * apart * width : nullptr;
        sums.loss += softmax<V>(outputs, (int64_t)tile.label[row + i], all<V>(tile.weight[row + i]), score + i * outputs * width, bend, sums.bend);
    }
    for (int64_t c = 0; c < outputs; c++)
        for (int64_t k = 0; k < p; k++) {
            Number<V> *place = sums.gradient + (c * p + k) * width;
            V sum = load(place);
            for (int i = 0; i < abreast; i++) sum = fma(all(z[i * p + k]), load(score + (i * outputs + c) * width), sum);
            store(place, sum);
        }
}

/// Add a tile to ``sums``; ``score`` is scratch for rows_abreast · outputs lanes.
template <class V>
void pass_tile(Loss kind, const Tile<V> &tile, int64_t p, int64_t outputs, const Number<V> *weights, Number<V> *score, Sums<V> &sums) {
    int64_t row = 0;
    for (; row + rows_abreast <= tile.rows; row += rows_abreast) {
        if (kind == Loss::logistic) pass_rows<V, rows_abreast, Logistic>(tile, row, p, weights, sums);
        if (kind == Loss::poisson) pass_rows<V, rows_abreast, Poisson>(tile, row, p, weights, sums);
        if (kind == Loss::softmax) pass_softmax<V, rows_abreast>(tile, row, p, outputs, weights, score, sums);
    }
    for (; row < tile.rows; row++) {
        if (kind == Loss::logistic) pass_rows<V, 1, Logistic>(tile, row, p, weights, sums);
        if (kind == Loss::poisson) pass_rows<V, 1, Poisson>(tile, row, p, weights, sums);
        if (kind == Loss::softmax) pass_softmax<V, 1>(tile, row, p, outputs, weights, score, sums);
    }
}

/// Standardised rows of which second derivatives are taken, ``apart`` numbers from one to the next.
template <class V> struct Sample {
    const Number<V> *z, *curvature;
    int64_t rows, apart, p, outputs;

    int64_t pairs() const { return outputs * (outputs + 1) / 2; }
};

template <class V, int abreast>
inline void add_curvature(const Sample<V> &sample, int64_t row, int64_t pair, Number<V> *hessian, int64_t above, int64_t left) {
    constexpr int width = Lanes<V>::count;
    const Number<V> *z[abreast];
    V bend[abreast];
    for (int i = 0; i < abreast; i++) {
        z[i] = sample.z + (row + i) * sample.apart;
        bend[i] = load(sample.curvature + ((row + i) * sample.pairs() + pair) * width);
    }
    for (int64_t a = 0; a < sample.p; a++) {
        V scaled[abreast];
        for (int i = 0; i < abreast; i++) scaled[i] = all(z[i][a]) * bend[i];
        Number<V> *line = hessian + (triangle(above + a) + left) * width;
        for (int64_t b = 0; b <= a; b++) {
            V sum = load(line + b * width);
            for (int i = 0; i < abreast; i++) sum = fma(all(z[i][b]), scaled[i], sum);
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
template <class V> void sum_curvature(const Sample<V> &sample, Number<V> *hessian) {
    int64_t p = sample.p, size = sample.outputs * p, pair = 0;
    memset(hessian, 0, (size_t)(triangle(size) * Lanes<V>::count) * sizeof(Number<V>));
    for (int64_t above = 0; above < sample.outputs; above++)
        for (int64_t left = 0; left <= above; left++, pair++) {
            int64_t row = 0;
            for (; row + rows_abreast <= sample.rows; row += rows_abreast)
                add_curvature<V, rows_abreast>(sample, row, pair, hessian, above * p, left * p);
            for (; row < sample.rows; row++) add_curvature<V, 1>(sample, row, pair, hessian, above * p, left * p);
            if (left < above) mirror<V>(hessian, p, above, left);
        }
}

/// As ``sum_curvature`` for one lane: columns are side by side instead of models, and each number is the same. ``into`` is
/// told each element and its value. ``z`` may be read a lane's count beyond its end; ``scaled`` has room for rows · p numbers.
template <class V, class Into> void sum_curvature_of(int lane, const Sample<V> &sample, Number<V> *scaled, Into into) {
    constexpr int width = Lanes<V>::count, lines = 8;
    int64_t p = sample.p, pair = 0;
    for (int64_t above = 0; above < sample.outputs; above++)
        for (int64_t left = 0; left <= above; left++, pair++) {
            for (int64_t row = 0; row < sample.rows; row++) {
                Number<V> bend = sample.curvature[(row * sample.pairs() + pair) * width + lane];
                for (int64_t a = 0; a < p; a++) scaled[row * p + a] = sample.z[row * sample.apart + a] * bend;
            }
            for (int64_t first = 0; first < p; first += lines) {
                int count = (int)(p - first < lines ? p - first : lines);
                for (int64_t block = 0; block < first + count; block += width) {
                    V sum[lines];
                    for (int i = 0; i < lines; i++) sum[i] = zero<V>();
                    for (int64_t row = 0; row < sample.rows; row++) {
                        V other = load(sample.z + row * sample.apart + block);
                        const Number<V> *mine = scaled + row * p + first;
                        if (count == lines)
                            for (int i = 0; i < lines; i++) sum[i] = fma(other, all(mine[i]), sum[i]);
                        else
                            for (int i = 0; i < count; i++) sum[i] = fma(other, all(mine[i]), sum[i]);
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

} // namespace grouplearn::generalised_linear
