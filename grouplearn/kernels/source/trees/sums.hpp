// Sums of leaves that do not depend on the order of trees.
#pragma once
#include "lanes/lanes.hpp"

namespace grouplearn {

/// A sum as two numbers: what rounding takes from ``high`` is kept in ``low`` (Sum2: Ogita, Rump and Oishi 2005).
///
/// In forests different trees often have equal leaves, so that rows come to the same leaves in another order. Their sums must be
/// equal, or the last bit ranks them. While no term is 2^40 times as large as another that is not 0, ``low`` loses nothing, and
/// the ``whole`` is the sum of the terms, rounded once; SQL adds leaves as integers, and rounds as often.
template <class V> struct Sum {
    V high, low;

    void add(V term) {
        V sum = high + term, taken = sum - high;
        low = low + ((high - (sum - taken)) + (term - taken));
        high = sum;
    }
    /// Of a sum that is infinite ``low`` is no number.
    V whole() const { return chosen(low <= low, high + low, high); }

  private:
    static double chosen(bool finite, double sum, double infinite) { return finite ? sum : infinite; }
    static D chosen(DMask finite, D sum, D infinite) { return select(finite, sum, infinite); }
};

} // namespace grouplearn
