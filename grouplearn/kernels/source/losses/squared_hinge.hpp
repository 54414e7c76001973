// The squared hinge, max(0, 1 − margin)².
#pragma once
#include "losses/loss.hpp"

namespace grouplearn::losses {

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
    static LossAndSlope of_row(D score, D label) {
        D one = all(1.0), side = label + label - one, less = larger(zero<D>(), one - side * score);
        return {less * less, minus(all(2.0) * less * select(less <= zero<D>(), zero<D>(), side))};
    }
};

} // namespace grouplearn::losses
