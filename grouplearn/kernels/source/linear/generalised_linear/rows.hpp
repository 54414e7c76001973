// One pass over rows for up to a lane's count of generalised linear models: objective, gradient and curvature of the loss.
//
// Rows are standardised, z = (x − mean)·inverse, with a column of ones last for the intercept. Lanes are models: their
// weights (outputs · p) have one model per lane, so that each number of a row is read once for all of them. Sums over rows
// run from the first row to the last: in the lanes' precision within a tile, in double precision across tiles.
#pragma once
#include "lanes/elementary.hpp"
#include "lanes/lane_algebra.hpp"
#include "lanes/memory.hpp"
#include <type_traits>

namespace grouplearn::generalised_linear {

enum class Loss { logistic = 0, softmax = 1, poisson = 2, squared_hinge = 3, hinge = 4 };

/// Whether second derivatives of a loss jump, where a row comes to its margin: those of one point say little of the next.
inline bool jumps(Loss loss) { return loss == Loss::squared_hinge; }

/// Whether a loss has a kink, and is trained by smooth ones that come ever nearer to it.
inline bool has_kink(Loss loss) { return loss == Loss::hinge; }

/// The loss of rows and, of one with a kink, how far from it each lane's smooth one is.
template <class V> struct Objective {
    Loss loss;
    V smoothing;
};

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

/// The sign by which a score becomes minus the margin keeps all digits of a small derivative, which p − y would not.
struct Logistic {
    static constexpr bool with_constant = false, with_kink = false;
    template <class V> static void at(V score, V label, V &loss, V &slope, V &bend) {
        V one = all<V>(1), sign = select(all<V>(0.5) < label, minus(one), one);
        V m = sign * score, e = exponential(minus(size(m))), inverse = one / (one + e);
        loss = log_of_one_plus(e) + larger(m, zero<V>());
        slope = sign * select(m < zero<V>(), e * inverse, inverse);
        bend = e * inverse * inverse;
    }
};

/// Half the deviance, e^score − y·score + (y·log y − y).
struct Poisson {
    static constexpr bool with_constant = true, with_kink = false;
    template <class V> static void at(V score, V label, V &loss, V &slope, V &bend) {
        V mean = exponential(score);
        loss = fnma(label, score, mean);
        slope = mean - label;
        bend = mean;
    }
};

/// max(0, 1 − margin)², whose second derivative is 2 on the near side of the margin and 0 beyond it.
struct SquaredHinge {
    static constexpr bool with_constant = false, with_kink = false;
    template <class V> static void at(V score, V label, V &loss, V &slope, V &bend) {
        V one = all<V>(1), sign = select(all<V>(0.5) < label, minus(one), one);
        V short_of = larger(zero<V>(), fma(sign, score, one)), twice = short_of + short_of; // what is no number stays none
        loss = short_of * short_of;
        slope = sign * twice;
        bend = select(zero<V>() < short_of, all<V>(2), zero<V>());
    }
};

/// max(0, u) of u = 1 − margin by a barrier (Boyd & Vandenberghe 2004, section 11.2): least over s of s − μ·log(s/μ) − μ·log((s − u)/μ),
/// where μ is the ``smoothing``. With r = √(u² + 4·μ²), c = (|u| + r)/2 the greater of s and s − u is c + μ, the other μ·(c + μ)/c.
/// A row that is u from its margin weighs in second derivatives by about μ/u²: steps are aware of all rows, however small μ is.
template <class V> struct Hinge {
    static constexpr bool with_constant = false, with_kink = true;
    V smoothing;

    void at(V score, V label, V &loss, V &slope, V &bend) const {
        V one = all<V>(1), sign = select(all<V>(0.5) < label, minus(one), one), u = fma(sign, score, one);
        V twice = smoothing + smoothing, far = all<V>(0.5) * (size(u) + root(fma(u, u, twice * twice)));
        V more = far + smoothing, share = smoothing / far, less = more * share;
        auto inside = zero<V>() < u;
        loss = fnma(smoothing, logarithm(more / smoothing * (more / far)), select(inside, more, less));
        slope = sign * select(inside, far / more, smoothing / more);
        bend = smoothing / fma(more, more, less * less);
    }
    V exact(V score, V label) const {
        V one = all<V>(1), sign = select(all<V>(0.5) < label, minus(one), one);
        return larger(zero<V>(), fma(sign, score, one));
    }
};

/// ``work`` with the loss of models that have one score.
template <class V, class Work> inline void with_loss_of_a_score(const Objective<V> &objective, Work work) {
    if (objective.loss == Loss::logistic) work(Logistic());
    if (objective.loss == Loss::poisson) work(Poisson());
    if (objective.loss == Loss::squared_hinge) work(SquaredHinge());
    if (objective.loss == Loss::hinge) work(Hinge<V>{objective.smoothing});
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

/// The weighted log-loss of one row; ``score`` (outputs) becomes its weighted derivatives, ``bend``, if any, the second ones,
/// and to ``trace`` those of each score by itself are added.
template <class V> inline V softmax(int64_t outputs, V label, V weight, Number<V> *score, Number<V> *bend, V &trace) {
    constexpr int width = Lanes<V>::count;
    auto hit = [label](int64_t c) { return select(size(label - all<V>((double)c)) < all<V>(0.5), all<V>(1), zero<V>()); };
    V most = load(score), total = zero<V>(), own = zero<V>();
    for (int64_t c = 1; c < outputs; c++) most = larger(load(score + c * width), most);
    for (int64_t c = 0; c < outputs; c++) {
        V below = load(score + c * width) - most, e = exponential(below);
        own = fma(hit(c), below, own);
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
    for (int64_t c = 0; c < outputs; c++) store(score + c * width, weight * (load(score + c * width) - hit(c)));
    return weight * (logarithm(total) - own);
}

/// The softmax of ``outputs`` scores; ``score`` has room for them, per row.
template <int abreast, class V, template <class> class Rows>
inline void pass_softmax(Rows<V> rows, int64_t row, int64_t outputs, const Number<V> *weights, Number<V> *score, Sums<V> &sums) {
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
        sums.loss += softmax<V>(outputs, rows.label_of(row + i), rows.weight_of(row + i), score + i * outputs * width, bend, sums.bend);
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
    Looks looks;
    for (; row + rows_abreast <= last; row += rows_abreast) {
        if (looks.stop(outputs * rows_abreast * (2 * rows.p + 16))) return;
        with_loss_of_a_score(objective, [&](const auto &kind) { pass_rows<rows_abreast>(kind, rows, row, weights, sums); });
        if (objective.loss == Loss::softmax) pass_softmax<rows_abreast>(rows, row, outputs, weights, score, sums);
    }
    for (; row < last; row++) {
        with_loss_of_a_score(objective, [&](const auto &kind) { pass_rows<1>(kind, rows, row, weights, sums); });
        if (objective.loss == Loss::softmax) pass_softmax<1>(rows, row, outputs, weights, score, sums);
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
