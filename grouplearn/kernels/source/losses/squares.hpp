// Half the squared error, (score − y)²/2.
#pragma once
#include "losses/loss.hpp"

namespace grouplearn::losses {

struct Squares : Usual {
    static constexpr bool by_newton = false; // least squares are solved at once

    static double start(double mean) { return mean; }
    static void within(D score, D label, D, D &slope, D &bend) { slope = score - label, bend = all(1.0); }
    static D value(D score, D label) {
        D error = score - label;
        return all(0.5) * error * error;
    }
    static LossAndSlope of_row(D score, D label) {
        D rest = score - label;
        return {all(0.5) * rest * rest, rest};
    }
};

} // namespace grouplearn::losses
