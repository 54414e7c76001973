// What a loss is to the solvers of linear models. The losses are in ``losses.hpp``; what one does not say
// holds as here. The solvers write their formulas in forms of their own, of which each loss says those that it has:
//
// - Newton's method (generalised_linear*) asks for ``newton``: loss, slope and second derivative by the score;
// - coordinate descent for ``within``: the slope, and a bound on second derivatives within reach of the score (Genkin, Lewis &
//   Madigan 2007, equation 10), so that a step within reach that minimises the quadratic with it raises no objective; and ``value``;
// - stochastic gradient descent for ``of_row``: loss and slope, by the score, the label and the number that some losses take.
#pragma once
#include "lanes/elementary.hpp"
#include "lanes/lane_algebra.hpp"

namespace grouplearn::losses {

template <class V> using Number = typename Lanes<V>::Number;

struct LossAndSlope {
    D loss, slope;
};

struct Usual {
    static constexpr bool by_newton = true, by_coordinates = true;
    /// It is one of all scores of a row together, not one of each score.
    static constexpr bool of_all_scores = false;
    /// It adds a number that depends on the label alone, ``constant``.
    static constexpr bool with_constant = false;
    /// It has a kink, and is trained by smooth ones that come ever nearer to it: ``newton`` takes how far, ``exact`` is the loss itself.
    static constexpr bool with_kink = false;
    /// Its second derivatives jump, where a row comes to its margin: those of one point say little of the next.
    static constexpr bool jumps = false;
    /// It is max(0, 1 − margin)², which interior points see as ξ² of a slack ξ that is no less than 1 − margin.
    static constexpr bool of_slack = false;
    /// Newton's first steps may be in single precision.
    static constexpr bool begins_single = true;
    /// Its second derivatives have no bound: ``most_bend`` is what a row of ``of_row`` counts for at most.
    static constexpr bool unbounded = false;

    template <class V> static V exact(V, V) { return zero<V>(); }
    static D constant(D) { return zero<D>(); }
    static D most_bend(D, D) { return zero<D>(); }
};

/// The share or mean to start from where the labels' is 0, of which there is no score, and its distance from 1 where it is 1.
constexpr double almost_none = 1e-6;

inline double within_shares(double share) { return share <= 0 ? almost_none : share >= 1 ? 1 - almost_none : share; }

/// e/(1 + e)² for e = e^-|score| brought nearer to 1 by the factor `nearer`: what a logistic function bends at most within reach.
inline D bend_of_odds(D odds, D nearer) {
    D one = all(1.0), e = smaller(odds * nearer, one), share = one / (one + e);
    return e * share * share;
}

/// Minus 1 for labels above ½, else 1: by it a score becomes minus the margin.
template <class V> inline V side_of(V label) {
    V one = all<V>(1);
    return select(all<V>(0.5) < label, minus(one), one);
}

} // namespace grouplearn::losses
