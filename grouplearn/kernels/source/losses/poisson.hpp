// Half the deviance of counts with a log link, e^score − y·score + (y·log y − y).
#pragma once
#include "losses/loss.hpp"

namespace grouplearn::losses {

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
    static LossAndSlope of_row(D score, D label) {
        D none = zero<D>(), one = all(1.0), mean = exponential(score);
        D itself = select(none < label, fma(label, logarithm(select(none < label, label, one)), minus(label)), none);
        return {mean - label * score + itself, mean - label};
    }
    /// The curvature at the score or at the minimum, whichever is more.
    static D most_bend(D slope, D label) { return larger(slope + label, label); }
};

} // namespace grouplearn::losses
