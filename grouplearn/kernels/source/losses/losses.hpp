// The losses of linear models: a new one is a struct with its line in the list below, and a declaration in ``models/losses``.
#pragma once
#include "losses/loss.hpp"

namespace grouplearn::losses {

/// Half the squared error, (score − y)²/2.
struct Squares : Usual {
    static constexpr bool by_newton = false; // least squares are solved at once

    static double start(double mean) { return mean; }
    static void within(D score, D label, D, D &slope, D &bend) { slope = score - label, bend = all(1.0); }
    static D value(D score, D label) {
        D error = score - label;
        return all(0.5) * error * error;
    }
    static LossAndSlope of_row(D score, D label, D) {
        D rest = score - label;
        return {all(0.5) * rest * rest, rest};
    }
};

/// A loss of numbers that only steps along rows minimise: from the mean on.
struct OfResiduals : Usual {
    static constexpr bool by_newton = false, by_coordinates = false;

    static double start(double mean) { return mean; }
};

/// The absolute error, |score − y|.
struct Absolute : OfResiduals {
    static LossAndSlope of_row(D score, D label, D) {
        D rest = score - label, one = all(1.0);
        return {size(rest), select(zero<D>() < rest, one, select(rest < zero<D>(), minus(one), zero<D>()))};
    }
};

/// The pinball loss of the quantile α: α·(y − score) below the label, (1 − α)·(score − y) above it (Koenker & Bassett 1978).
struct Quantile : OfResiduals {
    static LossAndSlope of_row(D score, D label, D alpha) {
        D rest = score - label, below = minus(alpha), above = all(1.0) - alpha;
        D slope = select(zero<D>() < rest, above, select(rest < zero<D>(), below, zero<D>()));
        return {slope * rest, slope};
    }
};

/// Half the squared error up to δ, and from there on its tangent: δ·(|score − y| − δ/2) (Huber 1964).
struct Huber : OfResiduals {
    static LossAndSlope of_row(D score, D label, D delta) {
        D rest = score - label, slope = smaller(larger(rest, minus(delta)), delta);
        return {slope * fnma(all(0.5), slope, rest), slope};
    }
};

/// The log-loss of two classes, log(1 + e^−margin).
/// The sign by which a score becomes minus the margin keeps all digits of a small derivative, which p − y would not.
struct Logistic : Usual {
    static double start(double share) {
        share = within_shares(share);
        return logarithm_of(share / (1 - share));
    }
    template <class V> static void newton(V score, V label, V, V &loss, V &slope, V &bend) {
        V one = all<V>(1), sign = side_of(label);
        V m = sign * score, e = exponential(minus(size(m))), inverse = one / (one + e);
        loss = log_of_one_plus(e) + larger(m, zero<V>());
        slope = sign * select(m < zero<V>(), e * inverse, inverse);
        bend = e * inverse * inverse;
    }
    static void within(D score, D label, D reach, D &slope, D &bend) {
        D one = all(1.0), sign = side_of(label);
        D m = sign * score, e = exponential(minus(size(m))), inverse = one / (one + e);
        slope = sign * select(m < zero<D>(), e * inverse, inverse);
        bend = bend_of_odds(e, exponential(reach));
    }
    static D value(D score, D label) {
        D m = select(all(0.5) < label, minus(score), score);
        return log_of_one_plus(exponential(minus(size(m)))) + larger(m, zero<D>());
    }
    static LossAndSlope of_row(D score, D label, D) {
        D none = zero<D>(), one = all(1.0), e = exponential(minus(size(score))), share = one / (one + e);
        D p = select(score < none, e * share, share);
        return {larger(none, score) - label * score + log_of_one_plus(e), p - label};
    }
};

/// The log-loss of classes, one score each: log Σ e^score − the score of the label.
struct Softmax : Usual {
    static constexpr bool of_all_scores = true;

    static double start(double share) { return logarithm_of(within_shares(share)); }

    /// The weighted loss of one row; ``score`` (outputs) becomes its weighted derivatives, ``bend``, if any, the second ones, and to
    /// ``trace`` those of each score by itself are added.
    template <class V> static V newton(int64_t outputs, V label, V weight, Number<V> *score, Number<V> *bend, V &trace) {
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

    /// Weighted slopes, bends and, if asked for, losses of scores that stand ``apart`` from each other, as do their results. Second
    /// derivatives are at most twice their diagonal, p·(1 − p), which bends as a logistic function of the class against the others
    /// does; they may all move, so that it comes twice as near.
    static void within(int64_t outputs, int64_t apart, D label, D weight, const double *score, const double *reaches, double *slope, double *bend,
                       double *loss) {
        D one = all(1.0), most = load(score), reach = load(reaches), total = zero<D>(), own = zero<D>();
        auto hit = [label](int64_t k) { return size(label - all((double)k)) < all(0.5); };
        for (int64_t k = 1; k < outputs; k++) {
            most = larger(load(score + k * apart), most);
            reach = larger(load(reaches + k * apart), reach);
        }
        for (int64_t k = 0; k < outputs; k++) {
            D below = load(score + k * apart) - most, e = exponential(below);
            own = select(hit(k), below, own), total += e;
            store(slope + k * apart, e);
        }
        D nearer = exponential(reach + reach);
        for (int64_t k = 0; k < outputs; k++) {
            D e = load(slope + k * apart), others = total - e, share = e / total;
            D odds = larger(smaller(e, others) / larger(e, others), all(0x1p-53)); // what is lost in the total, too
            D bends = bend_of_odds(odds, nearer);
            store(slope + k * apart, weight * (share - select(hit(k), one, zero<D>())));
            store(bend + k * apart, weight * (bends + bends));
            if (loss) store(loss + k * apart, k ? zero<D>() : weight * (logarithm(total) - own));
        }
    }

    /// Slopes in place of the scores of ``configs`` models (outputs, configs), whose losses are in the places of their first outputs;
    /// ``room`` has place for one output more, configs in whole lanes.
    static void of_row(int64_t outputs, int64_t configs, int64_t label, double *scores, double *losses, double *room) {
        int64_t wide = (configs + 7) / 8 * 8;
        for (int64_t k = 0; k < outputs; k++)
            for (int64_t c = 0; c < wide; c++) room[k * wide + c] = c < configs ? scores[k * configs + c] : 0.0;
        for (int64_t c = 0; c < wide; c += 8) {
            D most = load(room + c), own = load(room + label * wide + c), total = zero<D>();
            for (int64_t k = 1; k < outputs; k++) most = larger(load(room + k * wide + c), most);
            for (int64_t k = 0; k < outputs; k++) {
                D e = exponential(load(room + k * wide + c) - most);
                total += e;
                store(room + k * wide + c, e);
            }
            for (int64_t k = 0; k < outputs; k++) {
                D share = load(room + k * wide + c) / total;
                store(room + k * wide + c, k == label ? share - all(1.0) : share);
            }
            store(room + outputs * wide + c, most + logarithm(total) - own);
        }
        for (int64_t k = 0; k < outputs; k++)
            for (int64_t c = 0; c < configs; c++) {
                scores[k * configs + c] = room[k * wide + c];
                losses[k * configs + c] = k ? 0.0 : room[outputs * wide + c];
            }
    }
};

/// Half the deviance of counts with a log link, e^score − y·score + (y·log y − y).
struct Poisson : Usual {
    static constexpr bool with_constant = true, unbounded = true;
    static constexpr bool begins_single = false; // large counts need double precision from the first step on

    static double start(double mean) { return logarithm_of(mean > 0 ? mean : almost_none); }
    static D constant(D label) {
        D positive = select(zero<D>() < label, label, all(1.0));
        return label * logarithm(positive) - label;
    }
    template <class V> static void newton(V score, V label, V, V &loss, V &slope, V &bend) {
        V mean = exponential(score);
        loss = fnma(label, score, mean);
        slope = mean - label;
        bend = mean;
    }
    static void within(D score, D label, D reach, D &slope, D &bend) {
        slope = exponential(score) - label, bend = exponential(score + reach);
    }
    static D value(D score, D label) { return fnma(label, score, exponential(score)) + constant(label); }
    static LossAndSlope of_row(D score, D label, D) {
        D none = zero<D>(), one = all(1.0), mean = exponential(score);
        D itself = select(none < label, fma(label, logarithm(select(none < label, label, one)), minus(label)), none);
        return {mean - label * score + itself, mean - label};
    }
    /// The curvature at the score or at the minimum, whichever is more.
    static D most_bend(D slope, D label) { return larger(slope + label, label); }
};

/// The hinge, max(0, 1 − margin).
/// max(0, u) of u = 1 − margin by a barrier (Boyd & Vandenberghe 2004, section 11.2): least over s of s − μ·log(s/μ) − μ·log((s − u)/μ),
/// where μ is the ``smoothing``. With r = √(u² + 4·μ²), c = (|u| + r)/2 the greater of s and s − u is c + μ, the other μ·(c + μ)/c.
/// A row that is u from its margin weighs in second derivatives by about μ/u²: steps are aware of all rows, however small μ is.
struct Hinge : Usual {
    static constexpr bool with_kink = true;
    static constexpr bool by_coordinates = false; // it stops at kinks, before the minimum
    static constexpr bool begins_single = false;  // which sees the smoothest only

    static double start(double) { return 0; }
    template <class V> static void newton(V score, V label, V smoothing, V &loss, V &slope, V &bend) {
        V one = all<V>(1), sign = side_of(label), u = fma(sign, score, one);
        V twice = smoothing + smoothing, far = all<V>(0.5) * (size(u) + root(fma(u, u, twice * twice)));
        V more = far + smoothing, share = smoothing / far, less = more * share;
        auto inside = zero<V>() < u;
        loss = fnma(smoothing, logarithm(more / smoothing * (more / far)), select(inside, more, less));
        slope = sign * select(inside, far / more, smoothing / more);
        bend = smoothing / fma(more, more, less * less);
    }
    template <class V> static V exact(V score, V label) { return larger(zero<V>(), fma(side_of(label), score, all<V>(1))); }
    static LossAndSlope of_row(D score, D label, D) {
        D one = all(1.0), side = label + label - one, less = larger(zero<D>(), one - side * score);
        return {less, minus(select(less <= zero<D>(), zero<D>(), side))};
    }
};

/// The squared hinge, max(0, 1 − margin)².
/// Its second derivative is 2 on the near side of the margin and 0 beyond it.
struct SquaredHinge : Usual {
    static constexpr bool jumps = true, of_slack = true;

    /// The least mean of squared hinges.
    static double start(double share) { return 2 * share - 1; }
    template <class V> static void newton(V score, V label, V, V &loss, V &slope, V &bend) {
        V one = all<V>(1), sign = side_of(label);
        V short_of = larger(zero<V>(), fma(sign, score, one)), twice = short_of + short_of; // what is no number stays none
        loss = short_of * short_of;
        slope = sign * twice;
        bend = select(zero<V>() < short_of, all<V>(2), zero<V>());
    }
    static void within(D score, D label, D reach, D &slope, D &bend) {
        D one = all(1.0), sign = side_of(label);
        D short_of = fma(sign, score, one), less = larger(zero<D>(), short_of);
        slope = sign * (less + less);
        bend = select(zero<D>() < short_of + reach, all(2.0), zero<D>());
    }
    static D value(D score, D label) {
        D less = larger(zero<D>(), fma(side_of(label), score, all(1.0)));
        return less * less;
    }
    static LossAndSlope of_row(D score, D label, D) {
        D one = all(1.0), side = label + label - one, less = larger(zero<D>(), one - side * score);
        return {less * less, minus(all(2.0) * less * select(less <= zero<D>(), zero<D>(), side))};
    }
};

/// Each loss by its type and its name.
#define GROUPLEARN_LOSSES(each)                                                                                                            \
    each(Squares, squares)                                                                                                                 \
    each(Logistic, logistic)                                                                                                               \
    each(Softmax, softmax)                                                                                                                 \
    each(Poisson, poisson)                                                                                                                 \
    each(Hinge, hinge)                                                                                                                     \
    each(SquaredHinge, squared_hinge)                                                                                                      \
    each(Absolute, absolute)                                                                                                               \
    each(Quantile, quantile)                                                                                                               \
    each(Huber, huber)

enum class Loss : int64_t {
#define GROUPLEARN_NAMED(Kind, name) name,
    GROUPLEARN_LOSSES(GROUPLEARN_NAMED)
#undef GROUPLEARN_NAMED
};

/// The name of a loss; null after the last.
inline const char *name_of(int64_t number) {
#define GROUPLEARN_NAME(Kind, name) #name,
    static const char *const names[] = {GROUPLEARN_LOSSES(GROUPLEARN_NAME) nullptr};
#undef GROUPLEARN_NAME
    return names[number];
}

/// ``work`` with the loss of that name; every loss gives a result of the same type.
template <class Work> inline auto with(Loss loss, Work work) {
    switch (loss) {
#define GROUPLEARN_CASE(Kind, name)                                                                                                        \
    case Loss::name: return work(Kind());
        GROUPLEARN_LOSSES(GROUPLEARN_CASE)
#undef GROUPLEARN_CASE
    }
    __builtin_unreachable(); // Python gives no other
}

inline bool jumps(Loss loss) {
    return with(loss, [](auto kind) { return decltype(kind)::jumps; });
}
inline bool has_kink(Loss loss) {
    return with(loss, [](auto kind) { return decltype(kind)::with_kink; });
}
inline bool has_constant(Loss loss) {
    return with(loss, [](auto kind) { return decltype(kind)::with_constant; });
}
inline bool of_slack(Loss loss) {
    return with(loss, [](auto kind) { return decltype(kind)::of_slack; });
}
inline bool begins_single(Loss loss) {
    return with(loss, [](auto kind) { return decltype(kind)::begins_single; });
}
inline bool of_all_scores(Loss loss) {
    return with(loss, [](auto kind) { return decltype(kind)::of_all_scores; });
}

/// What a loss adds whatever the score, of ``rows`` labels; ``constant`` has room up to a multiple of 8.
inline void constants(Loss loss, const double *label, int64_t rows, double *constant) {
    for (int64_t i = 0; i < (rows + 7) / 8 * 8; i++) constant[i] = i < rows ? label[i] : 1;
    with(loss, [&](auto kind) {
        for (int64_t i = 0; i < rows; i += 8) store(constant + i, decltype(kind)::constant(load(constant + i)));
    });
}

} // namespace grouplearn::losses
