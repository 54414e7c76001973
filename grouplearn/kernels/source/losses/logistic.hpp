// The log-loss of two classes, log(1 + e^−margin).
#pragma once
#include "losses/loss.hpp"

namespace grouplearn::losses {

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
    static LossAndSlope of_row(D score, D label) {
        D none = zero<D>(), one = all(1.0), e = exponential(minus(size(score))), share = one / (one + e);
        D p = select(score < none, e * share, share);
        return {larger(none, score) - label * score + log_of_one_plus(e), p - label};
    }
};

} // namespace grouplearn::losses
