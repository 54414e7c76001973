// The hinge, max(0, 1 − margin).
#pragma once
#include "losses/loss.hpp"

namespace grouplearn::losses {

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
    static LossAndSlope of_row(D score, D label) {
        D one = all(1.0), side = label + label - one, less = larger(zero<D>(), one - side * score);
        return {less, minus(select(less <= zero<D>(), zero<D>(), side))};
    }
};

} // namespace grouplearn::losses
